//! Every compiled resizer × the golden crops, from the very pixels that Pillow and OpenCV started from.

use foveate::backends::resizers;
use foveate_core::Size;
use foveate_resize::{Filter, Geometry};
use foveate_tests::embed::resize;
use foveate_tests::goldens::{photos_with, pixels};
use foveate_tests::numerics::pixel_error;
use foveate_tests::trial::{Outcome, ensure, trial};
use libtest_mimic::Trial;

const INPUT: Size = Size::square(224);
const HF: Geometry = Geometry::ShortestEdgeCrop { edge: 256, crop: INPUT, filter: Filter::Bicubic };
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

/// Within one level on 99.9 % of the samples of every photo, and nowhere more than two away.
fn check(name: &str, geometry: Geometry, crops: &str) -> Result<(), Outcome> {
    let mut resizer = resizers().get(name)?.open()?;
    for photo in photos_with("decoded")? {
        let output = resize(resizer.as_mut(), &pixels("decoded", &photo)?, geometry)?;
        let error = pixel_error(&output, pixels(crops, &photo)?.as_slice());
        ensure(error.max <= 2 && error.above_one <= 0.001, || format!("{photo}: {error:?}"))?;
    }
    Ok(())
}
