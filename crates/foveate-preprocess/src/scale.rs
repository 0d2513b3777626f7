use std::fmt;
use std::str::FromStr;

use foveate_decode::{Capability, DecodeHint};
use foveate_resize::Geometry;

/// The permission for decoders to return a smaller image than the file holds. The two give different vectors; `foveate
/// verify` measures how different on the user's own photos.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum DecodeScale {
    /// Every image at its native size: the vectors match those of `transformers`.
    #[default]
    Exact,
    /// JPEGs may be decoded at a fraction of their size (DCT scaling), as long as the shorter side is at least the size
    /// that the recipe resizes it to. Other formats stay exact.
    Fast,
    /// Like `Fast`, and only the frequencies that the smaller image shows are decoded. Images whose shorter side is
    /// below twice the size that the recipe resizes it to stay exact.
    Low,
}

impl DecodeScale {
    /// All scales, the exact one first.
    pub const ALL: [Self; 3] = [Self::Exact, Self::Fast, Self::Low];

    /// Returns the name on the command line and in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Fast => "fast",
            Self::Low => "low",
        }
    }

    /// Returns true if a decoder of this `capability` decodes at this scale.
    pub const fn is_within(self, capability: &Capability) -> bool {
        match self {
            Self::Exact => true,
            Self::Fast => capability.scaled,
            Self::Low => capability.low_frequencies,
        }
    }

    /// Returns the hint for a decoder, for a recipe's geometry.
    pub fn hint(self, geometry: &Geometry) -> DecodeHint {
        DecodeHint {
            min_side: (self != Self::Exact).then(|| resized_side(geometry)),
            low_frequencies: self == Self::Low,
        }
    }
}

/// Returns the length that the shorter side is resized to. Below it, the resizer would have to enlarge the decoder's
/// image.
fn resized_side(geometry: &Geometry) -> u32 {
    match *geometry {
        Geometry::ShortestEdgeCrop { edge, .. } => edge,
        // An image may have either orientation before the stretch, so its shorter side must suffice for the longer
        // output side.
        _ => geometry.output().width.max(geometry.output().height),
    }
}

impl fmt::Display for DecodeScale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DecodeScale {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let scale = Self::ALL.into_iter().find(|scale| scale.name() == text);
        scale.ok_or_else(|| format!("no decode scale '{text}'; there are: {}", Self::ALL.map(Self::name).join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use foveate_core::Size;
    use foveate_resize::Filter;

    use super::*;

    #[test]
    fn names_are_read_back() {
        for scale in DecodeScale::ALL {
            assert_eq!(scale.name().parse(), Ok(scale));
        }
        assert_eq!("half".parse::<DecodeScale>().unwrap_err(), "no decode scale 'half'; there are: exact, fast, low");
    }

    #[test]
    fn only_fast_and_low_permit_and_never_less_than_the_recipe_resizes_to() {
        let crop = Size::square(224);
        let hf = Geometry::ShortestEdgeCrop {
            edge: 256,
            longest: None,
            crop,
            filter: Filter::Bicubic,
            ties: foveate_resize::CropTies::Down,
        };
        let squash = Geometry::Stretch { output: crop, filter: Filter::OpenCvLinear };
        let wide = Geometry::Stretch { output: Size::new(320, 224), filter: Filter::Bilinear };
        let fast = |geometry: &Geometry| DecodeScale::Fast.hint(geometry).min_side;
        assert_eq!([fast(&hf), fast(&squash), fast(&wide)], [Some(256), Some(224), Some(320)]);
        assert_eq!(DecodeScale::Exact.hint(&hf), DecodeHint::default());
        let low = DecodeScale::Low.hint(&hf);
        assert_eq!(low, DecodeHint { low_frequencies: true, ..DecodeScale::Fast.hint(&hf) });
    }
}
