//! Positions and weights of OpenCV's `resize(…, INTER_LINEAR)` on u8: one tap per output pixel and axis.

use crate::axis::Axis;

/// 1.0 in the weights' fixed point.
const ONE: f32 = 2048.0;

/// One output pixel along one axis: between source pixels `first` and `second`, weights of 2048 in all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tap {
    /// The source pixel before it.
    pub first: u32,
    /// The source pixel after it; the same one at an edge.
    pub second: u32,
    /// Weight of each, in 2048ths.
    pub weights: [i16; 2],
}

/// Treatment of a tap that reaches over the image's edge. Both variants repeat the edge pixel, with different
/// rounding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Edge {
    /// All weight on the edge pixel (OpenCV's columns).
    Snap,
    /// The edge pixel twice, with unchanged weights (OpenCV's rows).
    Repeat,
}

/// Source pixels per output pixel, computed as OpenCV does (the reciprocal of a quotient).
fn scale(axis: Axis) -> f64 {
    1.0 / (f64::from(axis.target) / axis.len)
}

/// The tap of output pixel `target`.
pub fn tap(axis: Axis, target: u32, edge: Edge) -> Tap {
    let last = i64::from(axis.whole) - 1;
    let position = ((f64::from(target) + 0.5) * scale(axis) - 0.5 + axis.at) as f32;
    let floor = position.floor();
    let mut at = floor as i64;
    let mut fraction = position - floor;
    if edge == Edge::Snap && !(0..last).contains(&at) {
        at = at.clamp(0, last);
        fraction = 0.0;
    }
    Tap {
        first: at.clamp(0, last) as u32,
        second: (at + 1).clamp(0, last) as u32,
        weights: [1.0 - fraction, fraction].map(|weight| (weight * ONE).round_ties_even() as i16),
    }
}
