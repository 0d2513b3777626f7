//! Kinds of charts.

mod bars;
mod flow;
mod frontier;
mod lanes;
mod lines;
mod scatter;

pub(crate) use bars::{BarPart, Bars, ChartBar, Panel};
pub(crate) use flow::{FlowChart, Station};
pub(crate) use frontier::{Frontier, Spot};
pub(crate) use lanes::{LaneGroup, Stretch, Timeline};
pub(crate) use lines::{ChartLine, LineChart, Point};
pub(crate) use scatter::{Dot, Scatter};

/// Returns the end of an axis for values up to `most`.
fn end_of_axis(most: f64) -> f64 {
    if most > 0.0 { most } else { 1.0 }
}
