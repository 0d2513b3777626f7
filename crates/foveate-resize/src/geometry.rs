use foveate_core::{InputFormat, Size};

use crate::{Filter, Placement, ResizePlan, SourceBox};

/// The first row or column of a centre crop if the resized image has an odd number more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CropTies {
    /// Half of it, rounded down, as in `transformers`.
    #[default]
    Down,
    /// Half of it, rounded to the even neighbour, as torchvision's transforms do, and with them timm and open_clip.
    ToEven,
}

/// Way in which an image of any size becomes the encoder's input.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Geometry {
    /// The `hf` recipe: resizes so that the shorter side is `edge` (the longer one truncated), then crops the centre.
    /// If the crop is larger than the resized image (`edge` below a side of `crop`), the image is centred on black, as
    /// in `transformers`.
    ShortestEdgeCrop {
        /// Length of the shorter side after resizing.
        edge: u32,
        /// Most that the longer side may become. An image for which it is too little gets a shorter side below `edge`.
        longest: Option<u32>,
        /// Size cut from the centre.
        crop: Size,
        /// The interpolation.
        filter: Filter,
        /// The place of a crop whose margins are odd.
        ties: CropTies,
    },
    /// The `squash` recipe: stretches the whole image to `output`, ignoring its aspect ratio.
    Stretch {
        /// Size of the output.
        output: Size,
        /// The interpolation.
        filter: Filter,
    },
}

impl Geometry {
    /// Size of the output, the same for every source.
    pub const fn output(&self) -> Size {
        match *self {
            Self::ShortestEdgeCrop { crop, .. } => crop,
            Self::Stretch { output, .. } => output,
        }
    }

    /// Size and samples of the output.
    pub const fn format(&self) -> InputFormat {
        InputFormat { size: self.output(), sample: self.filter().sample() }
    }

    /// The interpolation.
    pub const fn filter(&self) -> Filter {
        match *self {
            Self::ShortestEdgeCrop { filter, .. } | Self::Stretch { filter, .. } => filter,
        }
    }

    /// The one resample that turns a `source` image into the output. It equals resizing and cropping in two steps, with
    /// the rounding of `transformers`' `BitImageProcessor` (Pillow backend): `get_resize_output_image_size` and
    /// `center_crop`.
    ///
    /// A pure function for any size; for an empty source it makes a plan that [`ResizePlan::check`] refuses.
    pub fn plan(self, source: Size) -> ResizePlan {
        match self {
            Self::Stretch { output, filter } => ResizePlan::new(SourceBox::whole(source), output, filter),
            Self::ShortestEdgeCrop { edge, longest, crop, filter, ties } => {
                let bounded = longest.and_then(|longest| longest_edge(source, edge, longest));
                let [width, height] = bounded.unwrap_or_else(|| shortest_edge(source, edge));
                let x = center_crop(source.width, width, crop.width, ties);
                let y = center_crop(source.height, height, crop.height, ties);
                ResizePlan {
                    source: SourceBox { x: x.source_at, y: y.source_at, width: x.source_len, height: y.source_len },
                    output: crop,
                    placement: Placement { x: x.place_at, y: y.place_at, size: Size::new(x.place_len, y.place_len) },
                    filter,
                }
            }
        }
    }
}

/// Width and height after resizing the shorter side to `edge`; the longer becomes `int(edge * long / short)`. 64 bits
/// wide: a 1 × 100 000 000 image's longer side exceeds any image's, but the crop needs little of it.
fn shortest_edge(source: Size, edge: u32) -> [u64; 2] {
    let short = source.width.min(source.height);
    let long = source.width.max(source.height);
    let new_short = u64::from(edge);
    // Both factors are below 2^32, so the product and the truncated quotient are exact. Python's `int(a * b / c)` gives
    // the same number for every image that has fewer than 2^52 / edge pixels on a side.
    let new_long = (new_short * u64::from(long)).checked_div(u64::from(short)).unwrap_or(0);
    if source.width <= source.height { [new_short, new_long] } else { [new_long, new_short] }
}

/// Width and height of an image whose longer side would exceed `longest`; `None` for another. In the floating-point
/// operations of `transformers`' `get_size_with_aspect_ratio`.
fn longest_edge(source: Size, edge: u32, longest: u32) -> Option<[u64; 2]> {
    let short = f64::from(source.width.min(source.height));
    let long = f64::from(source.width.max(source.height));
    if long / short * f64::from(edge) <= f64::from(longest) {
        return None;
    }
    let exact = f64::from(longest) * short / long;
    let new_short = exact.round_ties_even();
    let new_long = if new_short == short { long } else { (exact * long / short).trunc() };
    let [new_short, new_long] = [new_short, new_long].map(|side| side as u64);
    Some(if source.width <= source.height { [new_short, new_long] } else { [new_long, new_short] })
}

/// One axis of a centre crop, as a part of the source and a place in the output.
struct AxisCrop {
    source_at: f64,
    source_len: f64,
    place_at: u32,
    place_len: u32,
}

fn center_crop(source: u32, resized: u64, crop: u32, ties: CropTies) -> AxisCrop {
    let source = f64::from(source);
    if resized >= u64::from(crop) {
        let scale = source / resized as f64;
        let rest = resized - u64::from(crop);
        let at = match ties {
            CropTies::Down => rest / 2,
            // 1 of 1 goes to 0, 3 to 2, 5 to 2, 7 to 4.
            CropTies::ToEven => rest / 2 + u64::from(rest % 4 == 3),
        };
        // Keep the whole side exactly whole, so that an unchanged size is recognized.
        let source_len = if resized == u64::from(crop) { source } else { f64::from(crop) * scale };
        AxisCrop { source_at: at as f64 * scale, source_len, place_at: 0, place_len: crop }
    } else {
        let place_len = resized as u32; // below `crop`, a u32
        AxisCrop { source_at: 0.0, source_len: source, place_at: (crop - place_len).div_ceil(2), place_len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hf(edge: u32, crop: u32) -> Geometry {
        Geometry::ShortestEdgeCrop {
            edge,
            longest: None,
            crop: Size::square(crop),
            filter: Filter::Bicubic,
            ties: crate::CropTies::Down,
        }
    }

    /// Resized size and crop origin from `transformers` 5.23 for (width, height), edge 256, crop 224.
    #[test]
    fn sizes_and_origins_are_those_of_transformers() {
        for (w, h, resized, left, top) in [
            (512, 512, [256, 256], 16, 16),
            (600, 400, [384, 256], 80, 16),
            (451, 300, [384, 256], 80, 16), // 384.85 truncated
            (300, 451, [256, 384], 16, 80),
            (640, 427, [383, 256], 79, 16), // 383.7, and an odd margin rounded down
            (2000, 50, [10240, 256], 5008, 16),
            (50, 2000, [256, 10240], 16, 5008),
            (1, 1, [256, 256], 16, 16),
            (257, 255, [258, 256], 17, 16),
            (20, 30, [256, 384], 16, 80),
        ] {
            let source = Size::new(w, h);
            assert_eq!(shortest_edge(source, 256), resized, "{source}");
            let plan = hf(256, 224).plan(source);
            let sx = f64::from(w) / resized[0] as f64;
            let sy = f64::from(h) / resized[1] as f64;
            let want =
                SourceBox { x: f64::from(left) * sx, y: f64::from(top) * sy, width: 224.0 * sx, height: 224.0 * sy };
            assert_eq!(plan, ResizePlan::new(want, Size::square(224), Filter::Bicubic), "{source}");
            assert_eq!(plan.scaled(source), Size::new(resized[0] as u32, resized[1] as u32), "{source}");
            plan.check(source, plan.output).unwrap();
        }
    }

    /// Of the function of `transformers`, with a longest edge of 400 where 256 is the shortest.
    #[test]
    fn a_longest_edge_makes_long_images_smaller() {
        for (width, height, expected) in [
            (600, 400, None),
            (625, 400, None),
            (640, 400, Some([400, 250])),
            (400, 641, Some([250, 400])),
            (1000, 333, Some([400, 133])),
            (333, 1000, Some([133, 400])),
            (1999, 101, Some([400, 20])),
            (100, 50, Some([400, 200])),
            (10_000, 1, Some([400, 0])),
        ] {
            assert_eq!(longest_edge(Size::new(width, height), 256, 400), expected, "{width} x {height}");
        }
        assert_eq!(longest_edge(Size::new(100, 50), 60, 101), Some([100, 50]), "the size that it has");
    }

    #[test]
    fn unchanged_sizes_give_whole_boxes() {
        let plan = hf(256, 224).plan(Size::square(256));
        assert_eq!(plan.source, SourceBox { x: 16.0, y: 16.0, width: 224.0, height: 224.0 });
        let plan = hf(224, 224).plan(Size::square(224));
        assert_eq!(plan.source, SourceBox::whole(Size::square(224)));
    }

    #[test]
    fn a_crop_larger_than_the_image_is_centred_on_black() {
        // 100 × 150 becomes 32 × 48; `transformers` pads the short side by ceil(9 / 2) in front and crops the long one.
        let plan = Geometry::ShortestEdgeCrop {
            edge: 32,
            longest: None,
            crop: Size::square(41),
            filter: Filter::Bicubic,
            ties: crate::CropTies::Down,
        }
        .plan(Size::new(100, 150));
        assert_eq!(plan.placement, Placement { x: 5, y: 0, size: Size::new(32, 41) });
        assert_eq!((plan.source.x, plan.source.width), (0.0, 100.0));
        assert_eq!((plan.source.y, plan.source.height), (3.0 * 150.0 / 48.0, 41.0 * 150.0 / 48.0));
        assert!(plan.is_padded());
        plan.check(Size::new(100, 150), Size::square(41)).unwrap();
    }

    #[test]
    fn extreme_and_empty_sources_do_not_panic() {
        for source in [Size::new(1, u32::MAX), Size::new(u32::MAX, 1), Size::square(u32::MAX)] {
            hf(256, 224).plan(source).check(source, Size::square(224)).unwrap();
            hf(u32::MAX, 224).plan(source).check(source, Size::square(224)).unwrap();
        }
        for source in [Size::new(0, 5), Size::new(5, 0), Size::default()] {
            let plan = hf(256, 224).plan(source);
            assert!(plan.check(source, plan.output).is_err());
        }
    }
}
