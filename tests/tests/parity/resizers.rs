//! Every compiled resizer on the golden crops, from exactly the pixels that Pillow and OpenCV started from.

use foveate_core::Size;
use foveate_resize::{Capability, Filter, Geometry};
use foveate_testkit::Trial;
use foveate_tests::backends::resizers;
use foveate_tests::embed::resize;
use foveate_tests::goldens::{photos_with, pixels};
use foveate_tests::numerics::{EQUAL, OTHER_KERNEL, PILLOW, PixelTier, SAME_KERNEL, pixel_error};
use foveate_tests::trial::{Outcome, trial};

const INPUT: Size = Size::square(224);
const HF: Geometry = Geometry::ShortestEdgeCrop {
    edge: 256,
    longest: None,
    crop: INPUT,
    filter: Filter::Bicubic,
    ties: foveate_resize::CropTies::Down,
};
const SQUASH: Geometry = Geometry::Stretch { output: INPUT, filter: Filter::OpenCvLinear };

pub(super) fn trials() -> Vec<Trial> {
    let (names, mut trials) = super::backends("resize", &resizers());
    for name in names {
        for (recipe, geometry, crops) in [("hf", HF, "crop_hf_pil"), ("squash", SQUASH, "crop_squash")] {
            let name = name.clone();
            trials.push(trial(format!("resize::{name}::{recipe}"), move || check(&name, geometry, crops)));
        }
    }
    trials
}

/// Checks every photo against the tier that the resizer claims.
fn check(name: &str, geometry: Geometry, crops: &str) -> Result<(), Outcome> {
    let mut resizer = resizers().get(name)?.open()?;
    let tier = tier(geometry.filter(), resizer.capability());
    for photo in photos_with("decoded")? {
        let output = resize(resizer.as_mut(), &pixels("decoded", &photo)?, geometry)?;
        tier.check(&photo, pixel_error(&output, pixels(crops, &photo)?.as_slice()))?;
    }
    Ok(())
}

fn tier(filter: Filter, capability: Capability) -> PixelTier {
    match filter {
        Filter::OpenCvLinear if capability.opencv_exact => EQUAL,
        Filter::OpenCvLinear => SAME_KERNEL,
        _ if capability.pillow_exact => PILLOW,
        _ if capability.pillow_kernels => SAME_KERNEL,
        _ => OTHER_KERNEL,
    }
}
