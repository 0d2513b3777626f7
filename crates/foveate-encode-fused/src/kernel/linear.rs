//! Matrix products with prepacked weights and a fused epilogue.

use std::cmp::Ordering;

use pulp::{Simd, WithSimd};

use crate::kernel::amx::{self, ConfiguredTiles, Tiled, Tiles};
use crate::kernel::dot::{Bf16Unit, I8Unit};
use crate::kernel::isa::{Isa, Precision};
use crate::kernel::words::{WordFormat, Words};
use crate::kernel::{
    AlignedLines, MAX_LANES, MAX_TILE_ROWS, MAX_TILE_VECTORS, TILE_WORDS, load, math, store, tile, tile_rows,
};

/// Input rows are processed in blocks of at most about this many bytes. A block stays in the second-level cache while
/// the weights' panels stream past it.
const ROW_BLOCK_BYTES: usize = 448 << 10;

/// A linear layer's weights, `[outputs, inputs]`, rearranged for the tile kernel.
///
/// Outputs are grouped into panels as wide as a tile (the last may be narrower). Input by input, or word by word, a
/// panel holds its outputs' weights side by side. Outputs are padded with zeros to a whole number of vectors.
pub(crate) struct PackedLinear {
    weights: PackedWeights,
    bias: Vec<f32>,
    inputs: usize,
    outputs: usize,
    /// Words in an input row; unused in f32.
    width: usize,
    lanes: usize,
    tiles: Option<Tiles>,
}

enum PackedWeights {
    F32(AlignedLines<f32>),
    Bf16 {
        words: AlignedLines<u32>,
        unit: Bf16Unit,
    },
    /// `weight = integer · scale`, output by output.
    I8 {
        words: AlignedLines<u32>,
        unit: I8Unit,
        scales: Vec<f32>,
        /// Σ integer of each output.
        sums: Vec<i32>,
    },
}

impl PackedLinear {
    /// Packs `weight`, `[bias.len(), inputs]` row-major, for `isa` in a precision.
    pub(crate) fn new(isa: Isa, precision: Precision, weight: &[f32], bias: &[f32], inputs: usize) -> Self {
        let lanes = isa.lanes();
        let outputs = bias.len();
        assert_eq!(weight.len(), outputs * inputs, "a linear layer's weights have the shape its bias and input say");
        let padded = outputs.next_multiple_of(lanes);
        let tiles = isa.tiles().filter(|_| precision != Precision::F32);
        let panel = lanes * panel_vectors(tiles);
        let words_of = |format: WordFormat| {
            let words = inputs.div_ceil(format.values());
            if tiles.is_some() { words.next_multiple_of(TILE_WORDS) } else { words }
        };
        let mut width = 0;
        let weights = match precision {
            Precision::F32 => PackedWeights::F32(panels(weight, inputs, padded, panel)),
            Precision::Bf16 => {
                let mut words = Words::new(outputs, inputs);
                width = words_of(words.format);
                isa.run(words.fill(WordFormat::Bf16, width, weight, inputs));
                let words = &words.data[..outputs * width];
                PackedWeights::Bf16 { words: panels(words, width, padded, panel), unit: isa.bf16_unit() }
            }
            Precision::I8 => {
                let unit = isa.i8_unit();
                width = words_of(unit.format());
                let mut words = Vec::with_capacity(outputs * width);
                let mut scales = vec![0.0; padded];
                let mut sums = vec![0; padded];
                for ((row, scale), sum) in weight.chunks_exact(inputs).zip(&mut scales).zip(&mut sums) {
                    let (integers, by) = quantized(row);
                    *scale = by;
                    *sum = integers.iter().map(|&integer| i32::from(integer)).sum();
                    words.extend(unit.format().pack(&integers));
                    words.resize(words.len().next_multiple_of(width), 0);
                }
                PackedWeights::I8 { words: panels(&words, width, padded, panel), unit, scales, sums }
            }
        };
        let mut bias = bias.to_vec();
        bias.resize(padded, 0.0);
        Self { weights, bias, inputs, outputs, width, lanes, tiles }
    }

    /// The format of input rows, unless they are f32.
    pub(crate) fn format(&self) -> Option<WordFormat> {
        match &self.weights {
            PackedWeights::F32(_) => None,
            PackedWeights::Bf16 { .. } => Some(WordFormat::Bf16),
            PackedWeights::I8 { unit, .. } => Some(unit.format()),
        }
    }

    /// Values in an input row.
    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    /// Words in an input row; 0 in f32.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Values in an output row.
    pub(crate) fn outputs(&self) -> usize {
        self.outputs
    }
}

/// Vectors in a panel.
#[inline(always)]
fn panel_vectors(tiles: Option<Tiles>) -> usize {
    if tiles.is_some() { 2 } else { MAX_TILE_VECTORS }
}

/// Rearranges `rows`, each of `depth` values, into panels for `padded` outputs, `panel` wide.
fn panels<T: Copy + Default>(rows: &[T], depth: usize, padded: usize, panel: usize) -> AlignedLines<T> {
    let mut out = AlignedLines::new(padded * depth);
    for first in (0..padded).step_by(panel) {
        let width = panel.min(padded - first);
        let packed = &mut out[first * depth..(first + width) * depth];
        for (column, row) in rows.chunks_exact(depth).skip(first).take(width).enumerate() {
            for (slot, &value) in packed[column..].iter_mut().step_by(width).zip(row) {
                *slot = value;
            }
        }
    }
    out
}

/// Rounds weights to -127..=127 with the scale of the least squared error among a few. Returns the integers and the
/// scale.
fn quantized(weights: &[f32]) -> (Vec<i8>, f32) {
    const LANES: usize = 16;
    const MAGIC: f32 = 12_582_912.0; // 1.5 · 2²³: adding and subtracting it rounds to the nearest integer
    let most = weights.iter().fold(0.0f32, |most, weight| most.max(weight.abs()));
    let mut best = vec![0; weights.len()];
    let mut best_gain = 0.0;
    let mut best_scale = 0.0;
    let mut integers = best.clone();
    for clipped in (0..12).map(|step| 1.0 - 0.05 * step as f32) {
        let inverse = 127.0 / (most * clipped);
        let mut products = [0.0f32; LANES];
        let mut squares = [0i32; LANES];
        for (weights, integers) in weights.chunks(LANES).zip(integers.chunks_mut(LANES)) {
            for (i, (&weight, slot)) in weights.iter().zip(integers).enumerate() {
                let integer = ((weight * inverse).clamp(-127.0, 127.0) + MAGIC) - MAGIC;
                *slot = integer as i8;
                products[i] += weight * integer;
                squares[i] += integer as i32 * integer as i32;
            }
        }
        // The best scale for these integers is Σ w·i ÷ Σ i²; it leaves the squared error Σ w² − (Σ w·i)² ÷ Σ i².
        let product: f64 = products.into_iter().map(f64::from).sum();
        let square: f64 = squares.into_iter().map(f64::from).sum();
        let gain = product * product / square;
        // Also ends at a row of zeros.
        if gain.partial_cmp(&best_gain) != Some(Ordering::Greater) {
            break;
        }
        (best_gain, best_scale) = (gain, (product / square) as f32);
        best.copy_from_slice(&integers);
    }
    (best, best_scale)
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
    /// `out = gelu_tanh(v)`.
    GeluTanh,
    /// `out = quick_gelu(v)`.
    QuickGelu,
    /// `out = max(v, 0)`.
    Relu,
    /// `out *= silu(v)`: SwiGLU's gate, applied to the values that `Store` left there.
    Gate,
}

/// The layout of outputs: columns are stored in blocks of `block` columns, `block_stride` apart. Rows within a block
/// are `row_stride` apart.
pub(crate) struct LinearOutput<'a> {
    data: &'a mut [f32],
    row_stride: usize,
    block: usize,
    block_stride: usize,
}

impl<'a> LinearOutput<'a> {
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

/// Input rows, `[rows, inputs]` row-major.
#[derive(Clone, Copy)]
pub(crate) enum LinearInput<'a> {
    F32(&'a [f32]),
    /// The first rows.
    Words(&'a Words, usize),
}

/// `out ← finish(x · Wᵀ + b)`.
pub(crate) struct LinearProduct<'a> {
    pub(crate) x: LinearInput<'a>,
    pub(crate) layer: &'a PackedLinear,
    pub(crate) finish: Finish,
    pub(crate) out: LinearOutput<'a>,
}

impl WithSimd for LinearProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        assert_eq!(self.layer.lanes, S::F32_LANES, "weights are packed for the instruction set that uses them");
        let tiles = self.layer.tiles.map(Tiles::configure);
        let (rows, row_bytes) = match self.x {
            LinearInput::F32(x) => (x.len() / self.layer.inputs, self.layer.inputs * size_of::<f32>()),
            LinearInput::Words(x, rows) => (rows, x.width * size_of::<u32>()),
        };
        let widest = panel_vectors(self.layer.tiles);
        let blocks = (rows * row_bytes).div_ceil(ROW_BLOCK_BYTES).max(1);
        let block = rows.div_ceil(blocks).next_multiple_of(MAX_TILE_ROWS).max(MAX_TILE_ROWS);
        for first in (0..rows).step_by(block) {
            let last = rows.min(first + block);
            let vectors = self.layer.bias.len() / S::F32_LANES;
            for vector in (0..vectors).step_by(widest) {
                match (vectors - vector).min(widest) {
                    1 => self.panel::<S, 1>(simd, tiles.as_ref(), vector, first..last),
                    2 => self.panel::<S, 2>(simd, tiles.as_ref(), vector, first..last),
                    _ => self.panel::<S, 3>(simd, tiles.as_ref(), vector, first..last),
                }
            }
        }
    }
}

/// Memory for the largest tile.
type Scratch = [f32; TILE_WORDS * MAX_TILE_VECTORS * MAX_LANES];

impl LinearProduct<'_> {
    /// Computes rows `rows` of `NV` output vectors from vector `first` on.
    #[inline(always)]
    fn panel<S: Simd, const NV: usize>(
        &mut self,
        simd: S,
        tiles: Option<&ConfiguredTiles>,
        first: usize,
        rows: std::ops::Range<usize>,
    ) {
        let mut scratch: Scratch = [0.0; TILE_WORDS * MAX_TILE_VECTORS * MAX_LANES];
        let finish = FinishColumns::<S, NV>::new(simd, self.layer, &self.out, first);
        let mut row = rows.start;
        while row < rows.end {
            let left = rows.end - row;
            let height = if tiles.is_some() { left.min(TILE_WORDS) } else { tile_rows::<S>(left) };
            match (tiles, height) {
                (Some(tiles), _) => self.tile_registers::<S, NV>(tiles, first, row, rows.clone(), &mut scratch),
                (None, 8) => self.tile::<S, 8, NV>(simd, first, row, &mut scratch),
                (None, 4) => self.tile::<S, 4, NV>(simd, first, row, &mut scratch),
                (None, 3) => self.tile::<S, 3, NV>(simd, first, row, &mut scratch),
                (None, 2) => self.tile::<S, 2, NV>(simd, first, row, &mut scratch),
                (None, _) => self.tile::<S, 1, NV>(simd, first, row, &mut scratch),
            }
            let (sums, _) = S::as_simd_f32s(&scratch);
            let (sums, _) = sums.as_chunks::<NV>();
            self.finish_tile(simd, &finish, row, &sums[..height]);
            row += height;
        }
    }

    /// Computes `MR` rows from `row` on of `NV` output vectors from vector `first` on, without scales and bias.
    #[inline(always)]
    fn tile<S: Simd, const MR: usize, const NV: usize>(&self, simd: S, first: usize, row: usize, out: &mut Scratch) {
        let column = first * S::F32_LANES;
        let width = NV * S::F32_LANES;
        match (&self.layer.weights, self.x) {
            (PackedWeights::F32(weights), LinearInput::F32(x)) => {
                let inputs = self.layer.inputs;
                let (panel, _) = S::as_simd_f32s(&weights[column * inputs..][..width * inputs]);
                let (panel, _) = panel.as_chunks::<NV>();
                tile::<S, MR, NV>(simd, &x[row * inputs..], inputs, panel, out, width);
            }
            (PackedWeights::Bf16 { words, unit }, LinearInput::Words(x, _)) => {
                let panel = &words[column * x.width..][..width * x.width];
                unit.tile::<S, MR, NV>(simd, &x.data[row * x.width..], x.width, panel, out, width);
            }
            (PackedWeights::I8 { words, unit, sums, .. }, LinearInput::Words(x, _)) => {
                let panel = &words[column * x.width..][..width * x.width];
                let zeros = x.zeros[row..].first_chunk().expect("a row has a zero point");
                unit.tile::<S, MR, NV>(&x.data[row * x.width..], x.width, panel, zeros, &sums[column..], out);
            }
            _ => unreachable!("rows have the format that the weights ask for"),
        }
    }

    /// [`Self::tile`] of sixteen rows; those behind the last have no meaning.
    #[inline(always)]
    fn tile_registers<S: Simd, const NV: usize>(
        &self,
        tiles: &ConfiguredTiles,
        first: usize,
        row: usize,
        rows: std::ops::Range<usize>,
        out: &mut Scratch,
    ) {
        let column = first * S::F32_LANES;
        let width = NV * S::F32_LANES;
        let (LinearInput::Words(x, _), PackedWeights::Bf16 { words, .. } | PackedWeights::I8 { words, .. }) =
            (self.x, &self.layer.weights)
        else {
            unreachable!("rows have the format that the weights ask for")
        };
        let panel = Tiled { words: &words[column * x.width..][..width * x.width], stride: width };
        // The next panel comes from far away, a share of it for each tile of rows.
        let share = (width * x.width * TILE_WORDS).div_ceil(rows.len());
        let next = words[(column + width) * x.width..].chunks(share).nth((row - rows.start) / TILE_WORDS);
        amx::prefetch(next.unwrap_or_default());
        let factors = [Tiled { words: &x.data[row * x.width..], stride: x.width }, panel];
        let depth = x.width / TILE_WORDS;
        let out = &mut out[..TILE_WORDS * width];
        match &self.layer.weights {
            PackedWeights::I8 { sums, .. } => {
                tiles.integers::<NV>(factors, depth, &x.zeros[row..], &sums[column..], out);
            }
            _ => tiles.bf16::<NV>(factors, depth, out, width, false),
        }
    }

    /// Finishes and stores a tile's rows, from `row` on.
    #[inline(always)]
    fn finish_tile<S: Simd, const NV: usize>(
        &mut self,
        simd: S,
        columns: &FinishColumns<S, NV>,
        row: usize,
        sums: &[[S::f32s; NV]],
    ) {
        let FinishColumns { bias, scales, offsets, widths } = columns;
        let of_rows = match self.x {
            LinearInput::Words(x, _) if scales.is_some() => &x.scales[row..],
            _ => &[],
        };
        let stride = self.out.row_stride;
        let out = &mut self.out.data[row * stride..];
        // A macro, because a closure's code would not be compiled for the instruction set.
        macro_rules! write_rows {
            (|$out:ident, $value:ident| $result:expr) => {
                for i in 0..sums.len() {
                    for j in 0..NV {
                        let $out = &mut out[i * stride + offsets[j]..][..widths[j]];
                        let $value = match scales {
                            None => simd.add_f32s(sums[i][j], bias[j]),
                            Some(scales) => {
                                let scale = simd.mul_f32s(simd.splat_f32s(of_rows[i]), scales[j]);
                                simd.mul_add_e_f32s(sums[i][j], scale, bias[j])
                            }
                        };
                        let result = $result;
                        store(simd, $out, result);
                    }
                }
            };
        }
        // The next layer rounds its input.
        let is_short = self.layer.format().is_some();
        match self.finish {
            Finish::Store => write_rows!(|_out, value| value),
            Finish::Add => write_rows!(|out, value| simd.add_f32s(load(simd, out), value)),
            Finish::Gelu if is_short => write_rows!(|_out, value| math::gelu_short(simd, value)),
            Finish::Gelu => write_rows!(|_out, value| math::gelu(simd, value)),
            Finish::GeluTanh if is_short => write_rows!(|_out, value| math::gelu_tanh_short(simd, value)),
            Finish::GeluTanh => write_rows!(|_out, value| math::gelu_tanh(simd, value)),
            Finish::QuickGelu => write_rows!(|_out, value| math::quick_gelu(simd, value)),
            Finish::Relu => write_rows!(|_out, value| simd.max_f32s(value, simd.splat_f32s(0.0))),
            Finish::Gate => write_rows!(|out, value| simd.mul_f32s(load(simd, out), math::silu(simd, value))),
        }
    }
}

/// What all tiles of a panel share in the epilogue, vector by vector.
struct FinishColumns<S: Simd, const NV: usize> {
    bias: [S::f32s; NV],
    /// Of integers.
    scales: Option<[S::f32s; NV]>,
    /// The place of each vector in an output row, and how much of it there is.
    offsets: [usize; NV],
    widths: [usize; NV],
}

impl<S: Simd, const NV: usize> FinishColumns<S, NV> {
    #[inline(always)]
    fn new(simd: S, layer: &PackedLinear, out: &LinearOutput<'_>, first: usize) -> Self {
        let mut columns =
            Self { bias: [simd.splat_f32s(0.0); NV], scales: None, offsets: [0; NV], widths: [S::F32_LANES; NV] };
        for j in 0..NV {
            let column = (first + j) * S::F32_LANES;
            columns.bias[j] = load(simd, &layer.bias[column..]);
            columns.offsets[j] = out.column(column);
            columns.widths[j] = S::F32_LANES.min(layer.outputs - column);
        }
        if let PackedWeights::I8 { scales, .. } = &layer.weights {
            let mut of_columns = [simd.splat_f32s(0.0); NV];
            for j in 0..NV {
                of_columns[j] = load(simd, &scales[(first + j) * S::F32_LANES..]);
            }
            columns.scales = Some(of_columns);
        }
        columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(isa: Isa, precision: Precision, x: &[f32], weight: &[f32], inputs: usize) -> Vec<f32> {
        let (rows, outputs) = (x.len() / inputs, weight.len() / inputs);
        let layer = PackedLinear::new(isa, precision, weight, &vec![0.5; outputs], inputs);
        let mut words = Words::new(rows, inputs);
        isa.run(words.fill(layer.format().unwrap(), layer.width(), x, inputs));
        let mut out = vec![f32::NAN; rows * outputs];
        let x = LinearInput::Words(&words, rows);
        isa.run(LinearProduct { x, layer: &layer, finish: Finish::Store, out: LinearOutput::rows(&mut out, outputs) });
        out
    }

    fn numbers(n: usize, seed: u32) -> Vec<f32> {
        (0..n as u32).map(|i| ((i ^ seed).wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0 - 1.0).collect()
    }

    /// The greatest values of both signs in long rows: the sums of pairs do not fit 16 bits.
    #[test]
    fn integer_sums_are_exact_on_every_instruction_set() {
        let inputs = 1536;
        let x: Vec<f32> = (0..3 * inputs).map(|i| if i / inputs == 1 { -1.0 } else { 255.0 }).collect();
        let weight: Vec<f32> = (0..50 * inputs).map(|i| if i / inputs % 2 == 0 { 127.0 } else { -127.0 }).collect();
        for isa in Isa::all() {
            let out = product(isa, Precision::I8, &x, &weight, inputs);
            for (i, &found) in out.iter().enumerate() {
                let (x, weight) = (x[i / 50 * inputs], weight[i % 50 * inputs]);
                let exact = f64::from(x) * f64::from(weight) * inputs as f64 + 0.5;
                assert!(
                    (f64::from(found) - exact).abs() <= exact.abs() * 1e-6,
                    "{found}, not {exact} on {}",
                    isa.name()
                );
            }
        }
    }

    /// Each factor's own rounding bounds the error.
    #[test]
    fn products_in_fewer_bits_are_near_the_exact_ones() {
        for (inputs, outputs, rows) in [(1, 1, 1), (5, 3, 2), (64, 48, 9), (403, 50, 13)] {
            let (x, weight) = (numbers(rows * inputs, 1), numbers(outputs * inputs, 2));
            for (precision, unit) in [(Precision::Bf16, 1.0 / 256.0), (Precision::I8, 1.0 / 127.0)] {
                let (tiled, plain): (Vec<Isa>, Vec<Isa>) =
                    Isa::all().into_iter().partition(|isa| isa.tiles().is_some());
                let plain: Vec<Isa> = plain.into_iter().filter(|isa| isa.lanes() > 1).collect();
                let product_on = |isa: Isa| product(isa, precision, &x, &weight, inputs);
                let best = product_on(plain[0]);
                // Tile registers add products of bf16 in an order of their own, the same on all.
                let of_tiles = if precision == Precision::I8 {
                    Some(best.clone())
                } else {
                    tiled.first().map(|&isa| product_on(isa))
                };
                for (isa, want) in
                    plain.iter().map(|isa| (isa, Some(&best))).chain(tiled.iter().map(|isa| (isa, of_tiles.as_ref())))
                {
                    assert!(Some(&product_on(*isa)) == want, "{precision:?} on {}", isa.name());
                }
                for (i, &found) in best.iter().enumerate() {
                    let (x, w) = (&x[i / outputs * inputs..][..inputs], &weight[i % outputs * inputs..][..inputs]);
                    let exact = x.iter().zip(w).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum::<f64>() + 0.5;
                    let most = 2.0 * unit * (inputs as f64).sqrt();
                    assert!((f64::from(found) - exact).abs() <= most, "{found}, not {exact} in {precision:?}");
                }
            }
        }
    }

    /// A damaged value is not hidden by rounding.
    #[test]
    fn a_row_that_is_not_finite_gives_nan_and_other_rows_do_not() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = numbers(3 * 64, 1);
            x[64 + 17] = bad;
            for isa in Isa::all() {
                let out = product(isa, Precision::I8, &x, &numbers(16 * 64, 2), 64);
                let nan: Vec<bool> = out.iter().map(|value| value.is_nan()).collect();
                assert_eq!(nan, [vec![false; 16], vec![true; 16], vec![false; 16]].concat(), "{bad} on {}", isa.name());
            }
        }
    }

    #[test]
    fn the_scale_of_weights_has_the_least_squared_error() {
        // One outlier of 4 among values up to 1: clipping it a little costs less than a coarser scale does.
        let mut weights = numbers(2000, 3);
        weights[0] = 4.0;
        let (integers, scale) = quantized(&weights);
        let error = |integers: &[i8], scale: f32| {
            weights.iter().zip(integers).map(|(w, &i)| f64::from(w - scale * f32::from(i)).powi(2)).sum::<f64>()
        };
        let by_maximum: Vec<i8> = weights.iter().map(|w| (w * 127.0 / 4.0).round() as i8).collect();
        assert!(error(&integers, scale) <= error(&by_maximum, 4.0 / 127.0));
        assert!(integers.iter().all(|&integer| integer != i8::MIN));
        assert_eq!(quantized(&[0.0; 3]), (vec![0; 3], 0.0));
    }

    /// Zero stays zero, and every other value is off by at most half a step.
    #[test]
    fn integers_cover_a_rows_own_range() {
        let rows = [[-0.17, 0.0, 3.0, 0.4, 1.1], [2.0, 2.5, 3.0, 2.2, 0.0], [-4.0, -0.1, -3.0, 0.0, -2.0], [0.0; 5]];
        for isa in Isa::all() {
            for (row, format) in rows.iter().zip([WordFormat::I8, WordFormat::I16].into_iter().cycle()) {
                let mut words = Words::new(1, row.len());
                isa.run(words.fill(format, row.len().div_ceil(format.values()), row, row.len()));
                let integer = |i: usize| match format {
                    WordFormat::I8 => pulp::bytemuck::cast_slice::<u32, u8>(&words.data)[i].into(),
                    _ => i32::from(pulp::bytemuck::cast_slice::<u32, u16>(&words.data)[i]),
                };
                let (scale, zero) = (words.scales[0], words.zeros[0]);
                for (i, &value) in row.iter().enumerate() {
                    let restored = (integer(i) - zero) as f32 * scale;
                    let most = if value == 0.0 { 0.0 } else { 0.5001 * scale };
                    assert!((restored - value).abs() <= most, "{value} as {restored} in {format:?} on {}", isa.name());
                }
                assert_eq!(integer(5), 0, "padding");
            }
        }
    }
}
