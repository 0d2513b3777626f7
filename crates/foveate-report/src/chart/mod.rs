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

use crate::canvas::{Drawing, Hand, Pen};
use crate::shown::Text;

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
    /// Draws the chart, and `note` below it.
    pub(crate) fn draw(&self, width: f32, note: &Text) -> Result<Drawing, Failed> {
        let pen = Pen::new(width);
        let height = match self {
            Self::Bars(bars) => bars.draw(&pen),
            Self::Lines(lines) => lines.draw(&pen),
            Self::Scatter(scatter) => scatter.draw(&pen),
            Self::Lanes(lanes) => lanes.draw(&pen),
            Self::Flow(flow) => flow.draw(&pen),
        }?;
        if note.is_empty() {
            return Ok(pen.finish(height));
        }
        let lines = pen.paragraph(0.0, height + 18.0, pen.width, Hand::SMALL, note);
        Ok(pen.finish(height + lines + 10.0))
    }
}
