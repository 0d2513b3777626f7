//! The conformance suite must fail for resizers that are almost right.

use std::panic::{AssertUnwindSafe, catch_unwind};

use foveate_core::{ImageView, ImageViewMut};
use foveate_resize::conformance::{Promise, Tolerance, check};
use foveate_resize::{Capability, ResizeError, ResizePlan, Resizer};

/// Nearest neighbour, with one defect.
struct Nearest(Wrong);

#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    /// No defect but the filter.
    Filter,
    /// Accepts any plan.
    Check,
    /// Leaves padding unwritten.
    Padding,
    /// Claims to equal Pillow.
    Claim,
}

impl Resizer for Nearest {
    fn resize(&mut self, src: ImageView<'_>, plan: &ResizePlan, mut dst: ImageViewMut<'_>) -> Result<(), ResizeError> {
        if self.0 != Wrong::Check {
            plan.check(src.size(), dst.size())?;
        }
        if self.0 != Wrong::Padding {
            dst.as_mut_slice().fill(0);
        }
        let (place, part, width) = (plan.placement, plan.source, dst.size().width);
        for y in 0..place.size.height {
            for x in 0..place.size.width {
                let at = |i: u32, from: f64, len: f64, target: u32, whole: u32| {
                    ((from + (f64::from(i) + 0.5) * len / f64::from(target)) as u32).min(whole - 1)
                };
                let sx = at(x, part.x, part.width, place.size.width, src.size().width);
                let sy = at(y, part.y, part.height, place.size.height, src.size().height);
                let to = ((place.y + y) * width + place.x + x) as usize * 3;
                if let Some(pixel) = dst.as_mut_slice().get_mut(to..to + 3) {
                    pixel.copy_from_slice(&src.pixel(sx, sy));
                }
            }
        }
        Ok(())
    }

    fn capability(&self) -> Capability {
        Capability { pillow_exact: self.0 == Wrong::Claim, pillow_kernels: false, opencv_exact: false }
    }
}

/// The suite's message about a resizer that may differ from Pillow by any amount.
fn complaint(wrong: Wrong, tolerance: Tolerance) -> Option<String> {
    let promise = Promise { pillow: tolerance, approximate: tolerance, opencv: tolerance };
    let run = || check(promise, || Box::new(Nearest(wrong)));
    let panic = catch_unwind(AssertUnwindSafe(run)).err()?;
    Some(panic.downcast_ref::<String>().expect("panics with a message").clone())
}

const ANYTHING: Tolerance = Tolerance { name: "anything", max: 255, within_one: 0.0 };

#[test]
fn nearest_neighbour_is_caught_by_the_goldens_alone() {
    assert_eq!(complaint(Wrong::Filter, ANYTHING), None);
    let complaint = complaint(Wrong::Filter, Tolerance::PILLOW_U8).expect("caught");
    assert!(complaint.contains("'pillow-u8' allows 2"), "{complaint}");
}

#[test]
fn unchecked_plans_are_caught() {
    let complaint = complaint(Wrong::Check, ANYTHING).expect("caught");
    assert!(complaint.contains("leaves the image"), "{complaint}");
}

#[test]
fn forgotten_padding_is_caught() {
    let complaint = complaint(Wrong::Padding, ANYTHING).expect("caught");
    assert!(complaint.contains("what was there before"), "{complaint}");
}

#[test]
fn claims_that_the_promise_does_not_keep_are_caught() {
    let complaint = complaint(Wrong::Claim, ANYTHING).expect("caught");
    assert!(complaint.contains("claims to be within 'pillow-u8'"), "{complaint}");
}
