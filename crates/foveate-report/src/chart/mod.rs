//! Kinds of charts.

mod bars;
mod flow;
mod frontier;
mod lanes;
mod lines;
mod scatter;

pub(crate) use bars::{Bar, Bars, Panel, Part};
pub(crate) use flow::{Flow, Station};
pub(crate) use frontier::{Frontier, Spot};
pub(crate) use lanes::{Lanes, Scenario, Stretch};
pub(crate) use lines::{Line, Lines, Point};
pub(crate) use scatter::{Dot, Scatter};

/// Returns the end of an axis for values up to `most`.
fn end_of_axis(most: f64) -> f64 {
    if most > 0.0 { most } else { 1.0 }
}
