//! fast_image_resize's horizontal pass for AVX2: the same samples in less time.
//!
//! The library computes the weights anew for each call, and spreads the source's bytes anew for each pixel that it
//! makes. Here the weights stay until the geometry changes, and each source pixel is spread once.

use std::ops::Range;

use core::arch::x86_64::__m256i;
use foveate_core::CHANNELS;
use foveate_resize::axis::Axis;
use pulp::x86::V3;
use pulp::{NullaryFnOnce, cast};

use crate::exact::ExactKernel;

/// Rows and output pixels that are computed together.
const ROWS: usize = 4;
const PIXELS: usize = 4;

/// Two neighbouring pixels of each row: r, r, g, g, b, b, and two zeros. In registers, a lane for each row.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Cell([[i16; 8]; ROWS]);

/// Source pixels in 16 bytes, and the cells that they fill.
const LOADED: usize = 4;
const FILLED: usize = LOADED / 2;

/// The bytes of a lane's two cells among [`LOADED`] pixels; the largest places give zeros.
const SPREAD: [[u8; 16]; FILLED] = {
    let mut places = [[u8::MAX; 16]; FILLED];
    let mut at = 0;
    while at < LOADED * CHANNELS {
        let pixel = at / CHANNELS;
        let channel = at % CHANNELS;
        places[pixel / 2][channel * 4 + pixel % 2 * 2] = at as u8;
        at += 1;
    }
    places
};

/// The places of a lane's samples in four pixels of four bytes.
const GATHERED: [u8; 16] = [0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, u8::MAX, u8::MAX, u8::MAX, u8::MAX];

/// The horizontal pass of one geometry after the other, with the memory that it needs.
#[derive(Debug, Default)]
pub(crate) struct AcrossPass {
    made_for: Option<(Axis, ExactKernel)>,
    weights: Weights,
    /// Some rows of the source.
    cells: Vec<Cell>,
}

#[derive(Debug, Default)]
struct Weights {
    /// Each output pixel's first cell; pixels that fill the last [`PIXELS`] up have no weights.
    firsts: Vec<usize>,
    /// Cells of every output pixel.
    count: usize,
    /// Both weights of a cell, the first one in the lower half: `[firsts.len() / PIXELS, count, PIXELS]`.
    pairs: Vec<i32>,
    /// Fractional bits of a weight.
    precision: u32,
    /// The cells that are read.
    cells: Range<usize>,
}

impl AcrossPass {
    /// Makes rows of `axis.target` pixels from rows of `axis.whole`, all there are; returns false if this processor
    /// cannot.
    pub(crate) fn run(&mut self, source: &[u8], axis: Axis, kernel: ExactKernel, out: &mut [u8]) -> bool {
        let Some(simd) = V3::try_new() else { return false };
        if self.made_for != Some((axis, kernel)) {
            self.weights = Weights::new(axis, kernel);
            self.made_for = Some((axis, kernel));
        }
        let Self { weights, cells, .. } = self;
        cells.resize(weights.cells.len().next_multiple_of(FILLED), Cell([[0; 8]; ROWS]));
        let line = axis.whole as usize * CHANNELS;
        let narrow = axis.target as usize * CHANNELS;
        for (source, out) in source.chunks(line * ROWS).zip(out.chunks_mut(narrow * ROWS)) {
            simd.vectorize(FewRows { simd, source, line, weights, cells, out, narrow });
        }
        true
    }
}

impl Weights {
    /// fast_image_resize's weights, from the same operations on the same numbers.
    fn new(axis: Axis, kernel: ExactKernel) -> Self {
        let taps: Vec<_> = (0..axis.target).map(|target| LibraryTaps::new(axis, kernel, target)).collect();
        let largest = taps.iter().flat_map(|taps| &taps.weights).copied().fold(0.0, f64::max);
        let precision = (0..21).find(|bits| (largest * f64::from(2 << bits)).round() >= 32_768.0).unwrap_or(21);
        let count = taps.iter().map(|taps| taps.cells().len()).max().unwrap_or(0);
        let start = taps.iter().map(|taps| taps.cells().start).min().unwrap_or(0);
        let end = taps.iter().map(|taps| taps.cells().start + count).max().unwrap_or(0);
        let padded = taps.len().next_multiple_of(PIXELS);
        let mut firsts = vec![0; padded];
        let mut pairs = vec![0; padded * count];
        for (target, taps) in taps.iter().enumerate() {
            let cell = taps.cells().start;
            firsts[target] = cell - start;
            for (x, weight) in (taps.first..).zip(&taps.weights) {
                let fixed = (weight * f64::from(1 << precision)).round() as i16;
                let place = (target / PIXELS * count + x / 2 - cell) * PIXELS + target % PIXELS;
                pairs[place] |= i32::from(fixed as u16) << (x % 2 * 16);
            }
        }
        Self { firsts, count, pairs, precision, cells: start..end }
    }
}

/// The source pixels from `first` on that make an output pixel, with their weights.
struct LibraryTaps {
    first: usize,
    weights: Vec<f64>,
}

impl LibraryTaps {
    fn new(axis: Axis, kernel: ExactKernel, target: u32) -> Self {
        let scale = (axis.at + axis.len - axis.at) / f64::from(axis.target);
        let widening = scale.max(1.0);
        let narrowing = 1.0 / widening;
        let radius = kernel.support() * widening;
        let centre = axis.at + (f64::from(target) + 0.5) * scale;
        let first = (centre - radius).floor().max(0.0) as u32;
        let end = (centre + radius).ceil().min(f64::from(axis.whole)) as u32;
        let weights = (first..end).map(|x| kernel.at((f64::from(x) - (centre - 0.5)) * narrowing));
        let mut weights: Vec<f64> = weights.skip_while(|&weight| weight == 0.0).collect();
        let total: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= total);
        Self { first: end as usize - weights.len(), weights }
    }

    fn cells(&self) -> Range<usize> {
        self.first / 2..(self.first + self.weights.len()).div_ceil(2)
    }
}

/// At most [`ROWS`] rows.
struct FewRows<'a> {
    simd: V3,
    source: &'a [u8],
    line: usize,
    weights: &'a Weights,
    cells: &'a mut [Cell],
    out: &'a mut [u8],
    narrow: usize,
}

impl NullaryFnOnce for FewRows<'_> {
    type Output = ();

    #[inline(always)]
    fn call(mut self) {
        self.spread();
        let groups = self.weights.pairs.chunks_exact(self.weights.count * PIXELS);
        for (group, pairs) in groups.enumerate() {
            let pixels = self.pixels(group, pairs.as_chunks().0);
            let first = group * PIXELS * CHANNELS;
            for (row, pixels) in self.out.chunks_exact_mut(self.narrow).zip(&pixels) {
                let out = &mut row[first..];
                match out.first_chunk_mut() {
                    // The next pixels take the place of the zeros.
                    Some(out) => *out = *pixels,
                    None => {
                        let count = out.len().min(PIXELS * CHANNELS);
                        out[..count].copy_from_slice(&pixels[..count]);
                    }
                }
            }
        }
    }
}

impl FewRows<'_> {
    /// Fills the cells.
    #[inline(always)]
    fn spread(&mut self) {
        let start = self.weights.cells.start * 2 * CHANNELS;
        let last = self.source.len() / self.line - 1;
        let cells = self.cells.as_chunks_mut().0;
        for lanes in 0..ROWS / 2 {
            let upper = &self.source[(lanes * 2).min(last) * self.line..][start..self.line];
            let lower = &self.source[(lanes * 2 + 1).min(last) * self.line..][start..self.line];
            let step = LOADED * CHANNELS;
            let windows = upper.windows(16).step_by(step).zip(lower.windows(16).step_by(step));
            for (cells, (upper, lower)) in cells.iter_mut().zip(windows) {
                spread(self.simd, [bytes(upper), bytes(lower)], lanes, cells);
            }
            let whole = (upper.len() + step).saturating_sub(16) / step;
            for (i, cells) in cells.iter_mut().enumerate().skip(whole) {
                let upper = bytes(upper.get(i * step..).unwrap_or_default());
                let lower = bytes(lower.get(i * step..).unwrap_or_default());
                spread(self.simd, [upper, lower], lanes, cells);
            }
        }
    }

    /// The next output pixels of each row, and zeros.
    #[inline(always)]
    fn pixels(&self, group: usize, pairs: &[[i32; PIXELS]]) -> [[u8; 16]; ROWS] {
        let V3 { avx, avx2, sse2, .. } = self.simd;
        let half = avx._mm256_set1_epi32(1 << (self.weights.precision - 1));
        let mut sums = [[half; ROWS / 2]; PIXELS];
        let firsts = &self.weights.firsts[group * PIXELS..][..PIXELS];
        let mut sources = [&self.cells[..0]; PIXELS];
        for (source, &first) in sources.iter_mut().zip(firsts) {
            *source = &self.cells[first..][..pairs.len()];
        }
        for (i, pairs) in pairs.iter().enumerate() {
            for pixel in 0..PIXELS {
                let weights = avx._mm256_set1_epi32(pairs[pixel]);
                let lanes: [__m256i; ROWS / 2] = cast(sources[pixel][i].0);
                for (sum, &lanes) in sums[pixel].iter_mut().zip(&lanes) {
                    *sum = avx2._mm256_add_epi32(*sum, avx2._mm256_madd_epi16(lanes, weights));
                }
            }
        }
        let bits = sse2._mm_cvtsi32_si128(self.weights.precision as i32);
        let places = cast([GATHERED; 2]);
        let mut out = [half; ROWS / 2];
        for (lanes, out) in out.iter_mut().enumerate() {
            let [a, b, c, d] = &sums;
            let first =
                avx2._mm256_packs_epi32(avx2._mm256_sra_epi32(a[lanes], bits), avx2._mm256_sra_epi32(b[lanes], bits));
            let second =
                avx2._mm256_packs_epi32(avx2._mm256_sra_epi32(c[lanes], bits), avx2._mm256_sra_epi32(d[lanes], bits));
            *out = avx2._mm256_shuffle_epi8(avx2._mm256_packus_epi16(first, second), places);
        }
        cast(out)
    }
}

/// Fills cells with some pixels of two rows.
#[inline(always)]
fn spread(simd: V3, [upper, lower]: [[u8; 16]; 2], lanes: usize, cells: &mut [Cell; FILLED]) {
    let V3 { avx, avx2, .. } = simd;
    let pair = avx2._mm256_inserti128_si256::<1>(avx._mm256_castsi128_si256(cast(upper)), cast(lower));
    for (cell, places) in cells.iter_mut().zip(SPREAD) {
        let spread: [[i16; 8]; 2] = cast(avx2._mm256_shuffle_epi8(pair, cast([places; 2])));
        cell.0.as_chunks_mut().0[lanes] = spread;
    }
}

/// The next bytes of a row, and zeros behind its end.
#[inline(always)]
fn bytes(row: &[u8]) -> [u8; 16] {
    if let Some(bytes) = row.first_chunk() {
        return *bytes;
    }
    let mut bytes = [0; 16];
    bytes[..row.len()].copy_from_slice(row);
    bytes
}

#[cfg(test)]
mod tests {
    use fast_image_resize::images::{TypedImage, TypedImageRef};
    use fast_image_resize::pixels::U8x3;
    use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};

    use super::*;

    fn expected(source: &[u8], axis: Axis, filter: FilterType) -> Vec<u8> {
        let height = (source.len() / (axis.whole as usize * CHANNELS)) as u32;
        let mut out = vec![0; (axis.target * height) as usize * CHANNELS];
        let source = TypedImageRef::<U8x3>::from_buffer(axis.whole, height, source).expect("whole rows");
        let mut target = TypedImage::from_buffer(axis.target, height, &mut out).expect("whole rows");
        let algorithm = ResizeAlg::Convolution(filter);
        let options = ResizeOptions::new().resize_alg(algorithm).crop(axis.at, 0.0, axis.len, f64::from(height));
        Resizer::new().resize_typed(&source, &mut target, &options).expect("a horizontal pass");
        out
    }

    struct Random(u32);

    impl Random {
        fn below(&mut self, limit: u32) -> u32 {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((u64::from(self.0) * u64::from(limit)) >> 32) as u32
        }
    }

    #[test]
    fn samples_are_the_librarys() {
        let mut pass = AcrossPass::default();
        let mut random = Random(1);
        for trial in 0..600 {
            let whole = 1 + random.below(if trial % 3 == 0 { 1500 } else { 60 });
            let at = f64::from(random.below(whole * 64)) / 64.0 * f64::from(random.below(2));
            let len = (f64::from(whole) - at) * f64::from(1 + random.below(64)) / 64.0;
            let axis = Axis::new(at, len, whole, 1 + random.below(if trial % 5 == 0 { 300 } else { 40 }));
            let extreme = random.below(2) == 1;
            let source: Vec<u8> = (0..whole as usize * CHANNELS * (1 + random.below(9)) as usize)
                .map(|_| if extreme { random.below(2) * 255 } else { random.below(256) } as u8)
                .collect();
            for (kernel, filter) in [
                (ExactKernel::Triangle, FilterType::Bilinear),
                (ExactKernel::Cubic, FilterType::CatmullRom),
                (ExactKernel::Lanczos, FilterType::Lanczos3),
            ] {
                if axis.is_copy() {
                    continue;
                }
                let expected = expected(&source, axis, filter);
                let mut out = vec![0; expected.len()];
                let has_run = pass.run(&source, axis, kernel, &mut out);
                assert_eq!(has_run, V3::is_available());
                assert!(!has_run || out == expected, "trial {trial}: {axis:?}, {kernel:?}");
            }
        }
    }
}
