//! The parts that all kinds of charts share.

use std::convert::Infallible;

use plotters::drawing::DrawingAreaErrorKind;
use plotters::style::{Color, RGBAColor, ShapeStyle};

use crate::canvas::{Hand, Pen};
use crate::ink::Ink;
use crate::shown::{Text, significant};

/// Width below which a figure is laid out for a phone.
const NARROW: f32 = 600.0;

/// The reason why plotters did not draw.
pub(crate) type Failed = DrawingAreaErrorKind<Infallible>;

/// The meaning of a colour.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) ink: Ink,
    pub(crate) faint: bool,
    pub(crate) name: Text,
}

/// Returns a colour, lighter if `faint`.
pub(crate) fn shade(ink: Ink, faint: bool) -> RGBAColor {
    ink.color().mix(if faint { 0.5 } else { 1.0 })
}

pub(crate) fn stroke(ink: Ink, width: u32) -> ShapeStyle {
    ink.color().stroke_width(width)
}

pub(crate) fn is_narrow(pen: &Pen) -> bool {
    pen.width < NARROW
}

/// Draws the meanings of the colours from `y` down; returns their height.
pub(crate) fn legend(pen: &Pen, y: f32, keys: &[Key]) -> Result<f32, Failed> {
    const CHIP: f32 = 11.0;
    const ROW: f32 = 20.0;
    if keys.is_empty() {
        return Ok(0.0);
    }
    let (mut x, mut row) = (0.0, 0.0);
    for key in keys {
        let wide = CHIP + 6.0 + Hand::SMALL.width(&key.name.plain()) + 16.0;
        if x > 0.0 && x + wide > pen.width {
            (x, row) = (0.0, row + ROW);
        }
        pen.area((x, y + row + 2.0), (CHIP, CHIP)).fill(&shade(key.ink, key.faint))?;
        pen.text(x + CHIP + 6.0, y + row + CHIP + 1.0, Hand::SMALL, &key.name);
        x += wide;
    }
    Ok(row + ROW + 8.0)
}

/// Formats a number beside an axis.
pub(crate) fn tick(value: &f64) -> String {
    let words = significant(*value);
    match words.split_once('.') {
        Some((whole, rest)) if rest.bytes().all(|digit| digit == b'0') => whole.to_owned(),
        Some((whole, rest)) => format!("{whole}.{}", rest.trim_end_matches('0')),
        None => words,
    }
}

/// Returns the upper end of an axis for values up to `most`.
pub(crate) fn end_of_axis(most: f64) -> f64 {
    if most > 0.0 { most } else { 1.0 }
}
