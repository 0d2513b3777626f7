//! Rotary position embeddings: the angles of every patch, in one form for both kinds.

use std::f64::consts::TAU;

use crate::{Grid, Rotary};

/// The rotation of patches' queries and keys. Component `i < head / 2` of each head rotates with component
/// `i + head / 2`: `(a, b)` becomes `(a·cos − b·sin, b·cos + a·sin)`.
#[derive(Clone, Debug)]
pub struct RotaryTable {
    /// `[patches, head / 2]`.
    pub cos: Vec<f32>,
    /// `[patches, head / 2]`.
    pub sin: Vec<f32>,
    /// Half the width of a head.
    pub half: usize,
}

impl RotaryTable {
    /// The same for all tokens, `[prefix + patches, head / 2]` each: those before the patches are not rotated.
    #[must_use]
    pub fn behind(mut self, prefix: usize) -> Self {
        let len = prefix * self.half;
        self.cos.splice(0..0, std::iter::repeat_n(1.0, len));
        self.sin.splice(0..0, std::iter::repeat_n(0.0, len));
        self
    }

    /// Computes the angles for heads of width `head`, in f32 as the libraries do.
    pub(crate) fn new(rotary: Rotary, grid: Grid, head: usize) -> Self {
        let half = head / 2;
        let mut table = Self { cos: Vec::new(), sin: Vec::new(), half };
        for row in 0..grid.height {
            for column in 0..grid.width {
                for i in 0..half {
                    let angle = angle(rotary, grid, (row, column), head, i);
                    table.cos.push(angle.cos());
                    table.sin.push(angle.sin());
                }
            }
        }
        table
    }
}

/// The angle of component `i` of `head / 2`: a quarter of the head for each direction.
fn angle(rotary: Rotary, grid: Grid, (row, column): (usize, usize), head: usize, i: usize) -> f32 {
    let quarter = head / 4;
    let is_second = i >= quarter;
    let exponent = -4.0 * (i % quarter) as f64 / head as f64;
    match rotary {
        Rotary::Relative { theta } => {
            let (at, len) = if is_second { (column, grid.width) } else { (row, grid.height) };
            let place = 2.0 * ((at as f32 + 0.5) / len as f32) - 1.0;
            TAU as f32 * place * theta.powf(exponent) as f32
        }
        Rotary::Absolute { theta, first } => {
            let at = if is_second { row } else { column };
            (at + first) as f32 * theta.powf(exponent) as f32
        }
    }
}

/// Moves the outputs of each head, `head` rows of `inputs` values, so that the even ones come before the odd ones.
/// Products of queries and keys do not depend on the order.
pub(crate) fn pairs_apart(rows: &[f32], inputs: usize, head: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(rows.len());
    for block in rows.chunks_exact(head * inputs) {
        for parity in 0..2 {
            for row in block.chunks_exact(inputs).skip(parity).step_by(2) {
                out.extend_from_slice(row);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_outputs_of_each_head_come_first() {
        assert_eq!(
            pairs_apart(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 1, 4),
            [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]
        );
        assert_eq!(pairs_apart(&[0.0, 0.5, 1.0, 1.5], 2, 2), [0.0, 0.5, 1.0, 1.5]);
    }
}
