//! Median and range of measured values: those of `foveate_plan::stats`, for values that are there.

use foveate::plan::stats;

pub use foveate::plan::stats::Spread;

/// The median; for an even number of values, the mean of the two middle ones.
///
/// # Panics
/// If there are no values.
pub fn median(values: &[f64]) -> f64 {
    stats::median(values).expect("a median needs values")
}

/// The spread of `values`.
///
/// # Panics
/// If there are none.
pub fn spread(values: &[f64]) -> Spread {
    Spread::of(values).expect("a spread needs values")
}
