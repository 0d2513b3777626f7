//! Vectors from a graph's outputs.

use foveate_encode::{EncodeError, Pooling};
use half::{bf16, f16};
use ort::value::{DynValue, PrimitiveTensorElementType};

use crate::contract::{GraphElement, Tensor};
use crate::error::engine;

/// A float of any width.
trait Float: PrimitiveTensorElementType + Copy {
    fn to_f32(self) -> f32;
}

impl Float for f32 {
    fn to_f32(self) -> f32 {
        self
    }
}

impl Float for f16 {
    fn to_f32(self) -> f32 {
        f16::to_f32(self)
    }
}

impl Float for bf16 {
    fn to_f32(self) -> f32 {
        bf16::to_f32(self)
    }
}

/// The part of an output that is read, and its place in a row.
pub(crate) enum Take {
    /// A finished vector `[n, width]`, written from component `at` of the row on.
    Vector { at: usize, width: usize },
    /// Tokens `[n, tokens, width]`, of which the patches start at `first_patch`, pooled to the whole row.
    Tokens { tokens: usize, width: usize, first_patch: usize, pooling: Pooling },
}

impl Take {
    /// The number of components of a row that it fills.
    pub(crate) fn components(&self) -> usize {
        match *self {
            Self::Vector { width, .. } => width,
            Self::Tokens { width, pooling, .. } => pooling.dim(width),
        }
    }

    /// Fills `rows`, `[n, dim]`, from `value`; images behind the `n`th are dropped.
    pub(crate) fn fill(&self, of: &Tensor, value: &DynValue, rows: &mut [f32], dim: usize) -> Result<(), EncodeError> {
        match of.element {
            GraphElement::F16 => self.fill_from(of, floats::<f16>(value)?, rows, dim),
            GraphElement::Bf16 => self.fill_from(of, floats::<bf16>(value)?, rows, dim),
            _ => self.fill_from(of, floats::<f32>(value)?, rows, dim),
        }
    }

    fn fill_from<T: Float>(&self, of: &Tensor, values: &[T], rows: &mut [f32], dim: usize) -> Result<(), EncodeError> {
        let image = match *self {
            Self::Vector { width, .. } => width,
            Self::Tokens { tokens, width, .. } => tokens * width,
        };
        let n = rows.len() / dim;
        if values.len() < n * image {
            let problem = format!("{} has {} values for {n} images, not {image} each", of.name, values.len());
            return Err(EncodeError::Engine(problem.into()));
        }
        for (values, row) in values.chunks_exact(image).zip(rows.chunks_exact_mut(dim)) {
            self.fill_row(values, row);
        }
        Ok(())
    }

    fn fill_row<T: Float>(&self, values: &[T], row: &mut [f32]) {
        match *self {
            Self::Vector { at, width } => copy(values, &mut row[at..at + width]),
            Self::Tokens { width, first_patch, pooling, .. } => {
                let class = &values[..width];
                let patches = &values[first_patch * width..];
                match pooling {
                    // A graph computes its own head, and never as tokens.
                    Pooling::Cls | Pooling::Register | Pooling::Head => copy(class, row),
                    Pooling::Mean => mean(patches, row),
                    Pooling::ClsMean => {
                        copy(class, &mut row[..width]);
                        mean(patches, &mut row[width..]);
                    }
                }
            }
        }
    }
}

fn floats<T: Float>(value: &DynValue) -> Result<&[T], EncodeError> {
    value.try_extract_tensor().map(|(_, values)| values).map_err(|error| engine(&error))
}

fn copy<T: Float>(values: &[T], out: &mut [f32]) {
    for (out, value) in out.iter_mut().zip(values) {
        *out = value.to_f32();
    }
}

/// Computes the mean of vectors as long as `out`.
fn mean<T: Float>(vectors: &[T], out: &mut [f32]) {
    out.fill(0.0);
    for vector in vectors.chunks_exact(out.len()) {
        for (out, value) in out.iter_mut().zip(vector) {
            *out += value.to_f32();
        }
    }
    let count = (vectors.len() / out.len()) as f32;
    for out in out {
        *out /= count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two images, each with a class token, a register and two patches, of width two.
    const TOKENS: [f32; 16] = [1.0, 2.0, 90.0, 90.0, 3.0, 5.0, 5.0, 11.0, -1.0, -2.0, 90.0, 90.0, 0.0, 1.0, 1.0, 2.0];

    fn rows(pooling: Pooling) -> Vec<f32> {
        let dim = pooling.dim(2);
        let take = Take::Tokens { tokens: 4, width: 2, first_patch: 2, pooling };
        let of = Tensor { name: "x".to_owned(), element: GraphElement::F32, shape: Vec::new() };
        let mut rows = vec![f32::NAN; 2 * dim];
        take.fill_from(&of, &TOKENS, &mut rows, dim).unwrap();
        assert!(take.fill_from(&of, &TOKENS[..15], &mut vec![0.0; 2 * dim], dim).is_err());
        rows
    }

    #[test]
    fn poolings() {
        assert_eq!(rows(Pooling::Cls), [1.0, 2.0, -1.0, -2.0]);
        assert_eq!(rows(Pooling::Mean), [4.0, 8.0, 0.5, 1.5]);
        assert_eq!(rows(Pooling::ClsMean), [1.0, 2.0, 4.0, 8.0, -1.0, -2.0, 0.5, 1.5]);
    }

    #[test]
    fn finished_vectors_go_side_by_side_and_padding_is_left_out() {
        let of = Tensor { name: "x".to_owned(), element: GraphElement::F16, shape: Vec::new() };
        let values = [1.0, 2.0, 3.0, 4.0, 9.0, 9.0].map(f16::from_f32);
        let mut rows = [0.0; 6];
        Take::Vector { at: 1, width: 2 }.fill_from(&of, &values, &mut rows, 3).unwrap();
        assert_eq!(rows, [0.0, 1.0, 2.0, 0.0, 3.0, 4.0]);
    }
}
