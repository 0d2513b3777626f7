//! Kinds of charts. Each is drawn at any width: labels beside a bar on a desktop move above it on a phone.

mod bars;
mod flow;
mod lanes;
mod lines;
mod marks;
mod scatter;

pub(crate) use bars::{Bar, Bars, Panel, Part, single};
pub(crate) use flow::{Flow, Station};
pub(crate) use lanes::{Lanes, Scenario, Stretch};
pub(crate) use lines::{Line, Lines, Point};
pub(crate) use marks::{Failed, Key};
pub(crate) use scatter::{Dot, Scatter};

use crate::canvas::{Drawing, Pen};

/// The content of a figure.
#[derive(Clone, Debug)]
pub(crate) enum Chart {
    Bars(Bars),
    Lines(Lines),
    Scatter(Scatter),
    Lanes(Lanes),
    Flow(Flow),
}

impl Chart {
    pub(crate) fn draw(&self, width: f32) -> Result<Drawing, Failed> {
        let pen = Pen::new(width);
        let height = match self {
            Self::Bars(bars) => bars.draw(&pen),
            Self::Lines(lines) => lines.draw(&pen),
            Self::Scatter(scatter) => scatter.draw(&pen),
            Self::Lanes(lanes) => lanes.draw(&pen),
            Self::Flow(flow) => flow.draw(&pen),
        }?;
        Ok(pen.finish(height))
    }
}
