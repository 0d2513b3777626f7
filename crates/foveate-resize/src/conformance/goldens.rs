//! Results of Pillow 13.0.0 and OpenCV 5.0.0 on small noise images; `goldens.py` writes `goldens.bin`.

use foveate_core::{CHANNELS, Size};

use crate::{Filter, Geometry};

/// One image, its resample and the expected result.
pub(super) struct Golden {
    /// The source's size; its samples are [`noise`](super::noise) of that size.
    pub(super) source: Size,
    pub(super) geometry: Geometry,
    /// The output's samples, `[height, width, 3]`.
    pub(super) expected: &'static [u8],
}

/// Sources and geometries for each Pillow filter, in the order of `goldens.py`.
fn pillow(filter: Filter) -> [(Size, Geometry); 7] {
    [
        (Size::new(61, 47), stretch(24, 20, filter)),
        (Size::new(5, 4), stretch(16, 16, filter)),
        (Size::new(40, 20), stretch(20, 20, filter)),
        (Size::new(9, 100), stretch(12, 16, filter)),
        (Size::new(67, 41), crop(32, 24, filter)),
        (Size::new(13, 90), crop(32, 24, filter)),
        (Size::new(30, 45), crop(16, 20, filter)),
    ]
}

fn stretch(width: u32, height: u32, filter: Filter) -> Geometry {
    Geometry::Stretch { output: Size::new(width, height), filter }
}

fn crop(edge: u32, side: u32, filter: Filter) -> Geometry {
    Geometry::ShortestEdgeCrop { edge, longest: None, crop: Size::square(side), filter, ties: crate::CropTies::Down }
}

/// Sources and geometries for each OpenCV filter.
fn opencv(filter: Filter) -> [(Size, Geometry); 6] {
    [
        (Size::new(61, 47), stretch(24, 20, filter)),
        (Size::new(5, 4), stretch(16, 16, filter)),
        (Size::new(40, 20), stretch(20, 20, filter)),
        (Size::square(40), stretch(20, 20, filter)),
        (Size::new(1, 7), stretch(5, 5, filter)),
        (Size::new(9, 100), stretch(12, 16, filter)),
    ]
}

/// All goldens.
pub(super) fn goldens() -> Vec<Golden> {
    let of_pillow = [Filter::Box, Filter::Bilinear, Filter::Bicubic, Filter::Lanczos3];
    let of_opencv = [Filter::OpenCvLinear, Filter::OpenCvArea, Filter::OpenCvCubic];
    let mut rest: &'static [u8] = include_bytes!("goldens.bin");
    let cases = of_pillow.into_iter().flat_map(pillow).chain(of_opencv.into_iter().flat_map(opencv));
    let mut goldens: Vec<Golden> = cases
        .map(|(source, geometry)| {
            let output = geometry.output();
            let (expected, after) = rest.split_at(output.width as usize * output.height as usize * CHANNELS);
            rest = after;
            Golden { source, geometry, expected }
        })
        .collect();
    assert!(rest.is_empty(), "goldens.bin and goldens.rs list different cases");
    for filter in [Filter::PillowBilinear, Filter::PillowBicubic, Filter::PillowLanczos3] {
        let same = goldens.iter().filter(|golden| golden.geometry.filter() == filter.approximate());
        let expected: Vec<&[u8]> = same.map(|golden| golden.expected).collect();
        for ((source, geometry), expected) in pillow(filter).into_iter().zip(expected) {
            goldens.push(Golden { source, geometry, expected });
        }
    }
    goldens
}
