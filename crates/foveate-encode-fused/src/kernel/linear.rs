//! Matrix products with prepacked weights and a fused epilogue.

use pulp::{Simd, WithSimd};

use crate::kernel::{Isa, MAX_LANES, MAX_TILE_ROWS, MAX_TILE_VECTORS, load, math, store, tile_rows};

/// Input rows are processed in blocks of at most about this many bytes. A block stays in the second-level cache while
/// the weights' panels stream past it.
const ROW_BLOCK_BYTES: usize = 448 << 10;

/// A linear layer's weights, `[outputs, inputs]`, rearranged for the tile kernel.
///
/// Outputs are grouped into panels as wide as a tile (the last may be narrower). Input by input, a panel holds its
/// outputs' weights side by side. Outputs are padded with zeros to a whole number of vectors.
pub(crate) struct Packed {
    weights: Vec<f32>,
    bias: Vec<f32>,
    inputs: usize,
    outputs: usize,
    lanes: usize,
}

impl Packed {
    /// Packs `weight`, `[bias.len(), inputs]` row-major, for `isa`.
    pub(crate) fn new(isa: Isa, weight: &[f32], bias: &[f32], inputs: usize) -> Self {
        let (lanes, outputs) = (isa.lanes(), bias.len());
        assert_eq!(weight.len(), outputs * inputs, "a linear layer's weights have the shape its bias and input say");
        let padded = outputs.next_multiple_of(lanes);
        let mut weights = vec![0.0; padded * inputs];
        let panel = lanes * MAX_TILE_VECTORS;
        for first in (0..outputs).step_by(panel) {
            let width = panel.min(padded - first);
            let packed = &mut weights[first * inputs..(first + width) * inputs];
            for (column, row) in weight[first * inputs..].chunks_exact(inputs).take(width).enumerate() {
                for (slot, &value) in packed[column..].iter_mut().step_by(width).zip(row) {
                    *slot = value;
                }
            }
        }
        let mut bias = bias.to_vec();
        bias.resize(padded, 0.0);
        Self { weights, bias, inputs, outputs, lanes }
    }

    /// Values in an input row.
    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    /// Values in an output row.
    pub(crate) fn outputs(&self) -> usize {
        self.outputs
    }
}

/// The epilogue of a product, `v = x · Wᵀ + b`, before it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// `out = v`.
    Store,
    /// `out += v`: a residual connection.
    Add,
    /// `out = gelu(v)`.
    Gelu,
    /// `out *= silu(v)`: SwiGLU's gate, applied to the values that `Store` left there.
    Gate,
}

/// The layout of outputs: columns are stored in blocks of `block` columns, `block_stride` apart. Rows within a block
/// are `row_stride` apart.
pub(crate) struct Output<'a> {
    data: &'a mut [f32],
    row_stride: usize,
    block: usize,
    block_stride: usize,
}

impl<'a> Output<'a> {
    /// `[rows, width]`, row-major.
    pub(crate) fn rows(data: &'a mut [f32], width: usize) -> Self {
        Self { data, row_stride: width, block: width, block_stride: 0 }
    }

    /// `[blocks, rows, width]`: columns `b·width..(b + 1)·width` of the product make up block `b`.
    pub(crate) fn blocks(data: &'a mut [f32], rows: usize, width: usize) -> Self {
        Self { data, row_stride: width, block: width, block_stride: rows * width }
    }

    #[inline(always)]
    fn column(&self, column: usize) -> usize {
        column / self.block * self.block_stride + column % self.block
    }
}

/// `out ← finish(x · Wᵀ + b)` for `x` of `[rows, inputs]`, row-major.
pub(crate) struct Linear<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) layer: &'a Packed,
    pub(crate) finish: Finish,
    pub(crate) out: Output<'a>,
}

impl WithSimd for Linear<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        assert_eq!(self.layer.lanes, S::F32_LANES, "weights are packed for the instruction set that uses them");
        let rows = self.x.len() / self.layer.inputs;
        let blocks = (rows * self.layer.inputs * size_of::<f32>()).div_ceil(ROW_BLOCK_BYTES).max(1);
        let block = rows.div_ceil(blocks).next_multiple_of(MAX_TILE_ROWS).max(MAX_TILE_ROWS);
        for first in (0..rows).step_by(block) {
            let last = rows.min(first + block);
            let vectors = self.layer.bias.len() / S::F32_LANES;
            for vector in (0..vectors).step_by(MAX_TILE_VECTORS) {
                match vectors - vector {
                    1 => self.panel::<S, 1>(simd, vector, first..last),
                    2 => self.panel::<S, 2>(simd, vector, first..last),
                    _ => self.panel::<S, 3>(simd, vector, first..last),
                }
            }
        }
    }
}

/// Memory for the largest tile.
type Scratch = [f32; MAX_TILE_ROWS * MAX_TILE_VECTORS * MAX_LANES];

impl Linear<'_> {
    /// Computes rows `rows` of `NV` output vectors from vector `first` on.
    #[inline(always)]
    fn panel<S: Simd, const NV: usize>(&mut self, simd: S, first: usize, rows: std::ops::Range<usize>) {
        let inputs = self.layer.inputs;
        let (weights, _) = S::as_simd_f32s(&self.layer.weights[first * S::F32_LANES * inputs..]);
        let (weights, _) = weights.as_chunks::<NV>();
        let weights = &weights[..inputs];
        let mut scratch: Scratch = [0.0; MAX_TILE_ROWS * MAX_TILE_VECTORS * MAX_LANES];
        let mut row = rows.start;
        while row < rows.end {
            let x = &self.x[row * inputs..];
            let height = tile_rows::<S>(rows.end - row);
            let width = NV * S::F32_LANES;
            match height {
                8 => tile::<S, 8, NV>(simd, x, inputs, weights, &mut scratch, width),
                4 => tile::<S, 4, NV>(simd, x, inputs, weights, &mut scratch, width),
                2 => tile::<S, 2, NV>(simd, x, inputs, weights, &mut scratch, width),
                _ => tile::<S, 1, NV>(simd, x, inputs, weights, &mut scratch, width),
            }
            for column in first..first + NV {
                self.finish_column(simd, column, row..row + height, &scratch[(column - first) * S::F32_LANES..], width);
            }
            row += height;
        }
    }

    /// Finishes and stores one vector's width of a tile whose rows are `stride` apart.
    #[inline(always)]
    fn finish_column<S: Simd>(
        &mut self,
        simd: S,
        vector: usize,
        rows: std::ops::Range<usize>,
        sums: &[f32],
        stride: usize,
    ) {
        let column = vector * S::F32_LANES;
        let width = S::F32_LANES.min(self.layer.outputs - column);
        let bias = load(simd, &self.layer.bias[column..]);
        let offset = self.out.column(column);
        for (row, sums) in rows.zip(sums.chunks(stride)) {
            let out = &mut self.out.data[offset + row * self.out.row_stride..][..width];
            let value = simd.add_f32s(load(simd, sums), bias);
            let value = match self.finish {
                Finish::Store => value,
                Finish::Add => simd.add_f32s(load(simd, out), value),
                Finish::Gelu => math::gelu(simd, value),
                Finish::Gate => simd.mul_f32s(load(simd, out), math::silu(simd, value)),
            };
            store(simd, out, value);
        }
    }
}

/// Multiplies `MR` rows of `x`, `ld` apart, by a panel of `NV` vectors, into rows of `out` that are `stride` apart.
/// Every value is one chain of fused multiply-adds over the inputs in order.
#[inline(always)]
pub(crate) fn tile<S: Simd, const MR: usize, const NV: usize>(
    simd: S,
    x: &[f32],
    ld: usize,
    panel: &[[S::f32s; NV]],
    out: &mut [f32],
    stride: usize,
) {
    // All indices stay below one common length, so that the loop needs no bounds checks.
    let depth = panel.len();
    let mut rows = [&x[..depth]; MR];
    for (i, row) in rows.iter_mut().enumerate() {
        *row = &x[i * ld..i * ld + depth];
    }
    let mut sums = [[simd.splat_f32s(0.0); NV]; MR];
    for k in 0..depth {
        let weights = panel[k];
        for i in 0..MR {
            let x = simd.splat_f32s(rows[i][k]);
            for j in 0..NV {
                sums[i][j] = simd.mul_add_e_f32s(x, weights[j], sums[i][j]);
            }
        }
    }
    store_tile::<S, MR, NV>(out, stride, &sums);
}

/// Stores a tile's sums into rows of `out` that are `stride` apart.
#[inline(always)]
pub(crate) fn store_tile<S: Simd, const MR: usize, const NV: usize>(
    out: &mut [f32],
    stride: usize,
    sums: &[[S::f32s; NV]; MR],
) {
    for (i, sums) in sums.iter().enumerate() {
        let (out, _) = S::as_mut_simd_f32s(&mut out[i * stride..][..NV * S::F32_LANES]);
        out.copy_from_slice(sums);
    }
}
