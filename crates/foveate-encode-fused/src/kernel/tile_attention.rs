//! Softmax attention of one image in bf16 on tile registers, with a row for each query.
//!
//! Scores are rows of queries here, so that their words are the rows of the second product as they are. Sums run over
//! tokens in steps of [`STEP`], at which alone an image may be divided.

use pulp::{Simd, WithSimd, bytemuck};

use crate::kernel::amx::{ConfiguredTiles, Tiled, Tiles};
use crate::kernel::words::{bf16_row, round_pairs};
use crate::kernel::{AlignedLines, MAX_TILE_VECTORS, TILE_WORDS as TILE, load, math, store};

/// Tokens in a tile's row of words.
pub(crate) const STEP: usize = 2 * TILE;

/// Keys and values of some consecutive tokens of an image, in words.
pub(crate) struct TileKeyValues {
    tiles: Tiles,
    tokens: usize,
    /// `[heads, head_width / 2, tokens]`: two neighbours of a key in a word. Tokens are whole tiles.
    keys: AlignedLines<u32>,
    /// `[heads, tokens / 2, head_width]`: two tokens' values in a word. Pairs of tokens are whole tiles.
    values: AlignedLines<u32>,
}

impl TileKeyValues {
    /// Returns memory for `tokens` tokens; `None` if heads are not whole tiles wide.
    pub(crate) fn new(tiles: Option<Tiles>, heads: usize, tokens: usize, head_width: usize) -> Option<Self> {
        let tiles = tiles.filter(|_| head_width.is_multiple_of(STEP))?;
        let padded = tokens.next_multiple_of(STEP);
        let words = heads * padded / 2 * head_width;
        Some(Self { tiles, tokens, keys: AlignedLines::new(words), values: AlignedLines::new(words) })
    }

    fn padded(&self) -> usize {
        self.tokens.next_multiple_of(STEP)
    }
}

/// Rounds keys, then values, of all heads, `[heads, tokens, head_width]`.
pub(crate) struct RoundToTiles<'a> {
    pub(crate) from: &'a [f32],
    pub(crate) to: &'a mut TileKeyValues,
    pub(crate) head_width: usize,
}

impl WithSimd for RoundToTiles<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let width = self.head_width;
        let padded = self.to.padded();
        let tokens = self.to.tokens;
        let (keys, values) = self.from.split_at(self.from.len() / 2);
        let mut rows = [[0u16; STEP]; TILE];
        let heads = keys.chunks_exact(tokens * width).zip(self.to.keys.chunks_exact_mut(padded / 2 * width));
        for (from, to) in heads {
            for (block, from) in from.chunks(TILE * width).enumerate() {
                for column in (0..width).step_by(STEP) {
                    for (row, from) in rows.iter_mut().zip(from.chunks_exact(width)) {
                        bf16_row(&from[column..][..STEP], row);
                    }
                    let words: &[[u32; TILE]; TILE] = bytemuck::cast_ref(&rows);
                    for i in 0..TILE {
                        let to = &mut to[(column / 2 + i) * padded + block * TILE..][..TILE];
                        for j in 0..TILE {
                            to[j] = words[j][i];
                        }
                    }
                }
            }
        }
        round_pairs(simd, values, tokens, width, &mut self.to.values, padded / 2);
    }
}

/// Working memory of [`TileAttention`].
pub(crate) struct TileScratch {
    /// `[queries, head_width / 2]`.
    queries: AlignedLines<u32>,
    /// `[queries, tokens]`.
    scores: AlignedLines<f32>,
    /// `[queries, tokens / 2]`.
    words: AlignedLines<u32>,
    /// `[queries, head_width]`.
    sums: AlignedLines<f32>,
}

impl TileScratch {
    pub(crate) fn new(tokens: usize, head_width: usize) -> Self {
        let tokens = tokens.next_multiple_of(STEP);
        Self {
            queries: AlignedLines::new(TILE * head_width / 2),
            scores: AlignedLines::new(TILE * tokens),
            words: AlignedLines::new(TILE * tokens / 2),
            sums: AlignedLines::new(TILE * head_width),
        }
    }
}

/// As [`PartAttention`](crate::kernel::attention::PartAttention).
pub(crate) struct TileAttention<'a> {
    pub(crate) q: &'a [f32],
    /// All parts of the image; each but the last has a multiple of [`STEP`] tokens.
    pub(crate) parts: &'a [&'a TileKeyValues],
    pub(crate) heads: usize,
    pub(crate) head_width: usize,
    pub(crate) scratch: &'a mut TileScratch,
    pub(crate) out: &'a mut [f32],
}

impl WithSimd for TileAttention<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let tiles = self.parts[0].tiles.configure();
        let rows = self.q.len() / (self.heads * self.head_width);
        for head in 0..self.heads {
            for row in (0..rows).step_by(TILE) {
                self.queries(simd, &tiles, head, row, (rows - row).min(TILE));
            }
        }
    }
}

impl TileAttention<'_> {
    /// Computes attention of `count` queries from `row` on in one head. The rest of their tile has no meaning.
    #[inline(always)]
    fn queries<S: Simd>(&mut self, simd: S, tiles: &ConfiguredTiles, head: usize, row: usize, count: usize) {
        let width = self.head_width;
        let all = self.heads * width;
        let TileScratch { queries, scores, words, sums } = &mut *self.scratch;
        let of_rows = row * all + head * width;
        let q = self.q[of_rows..].chunks(all).map(|q| &q[..width]);
        for (q, words) in q.zip(queries.chunks_exact_mut(width / 2)).take(count) {
            bf16_row(q, bytemuck::cast_slice_mut(words));
        }
        let tokens: usize = self.parts.iter().map(|part| part.tokens).sum();
        let padded = tokens.next_multiple_of(STEP);
        let queries = Tiled { words: queries, stride: width / 2 };
        let mut first = 0;
        for part in self.parts {
            let stride = part.padded();
            let keys = &part.keys[head * stride / 2 * width..][..stride / 2 * width];
            for token in (0..stride).step_by(MAX_TILE_VECTORS * TILE) {
                let factors = [queries, Tiled { words: &keys[token..], stride }];
                let out = &mut scores[first + token..];
                match (stride - token) / TILE {
                    1 => tiles.bf16::<1>(factors, width / STEP, out, padded, false),
                    2 => tiles.bf16::<2>(factors, width / STEP, out, padded, false),
                    _ => tiles.bf16::<3>(factors, width / STEP, out, padded, false),
                }
            }
            first += part.tokens;
        }
        let mut factors = [0.0; TILE];
        let rows = scores.chunks_exact_mut(padded).zip(words.chunks_exact_mut(padded / 2));
        for ((scores, words), factor) in rows.zip(&mut factors).take(count) {
            *factor = softmax(simd, &mut scores[..tokens]);
            bf16_row(&scores[..tokens], bytemuck::cast_slice_mut(words));
        }
        for column in (0..width).step_by(2 * TILE) {
            let mut first = 0;
            for part in self.parts {
                let pairs = part.padded() / 2;
                let values = &part.values[head * pairs * width..][..pairs * width];
                let scores = Tiled { words: &words[first / 2..], stride: padded / 2 };
                let panel = Tiled { words: &values[column..], stride: width };
                tiles.bf16::<2>([scores, panel], pairs / TILE, &mut sums[column..], width, first > 0);
                first += part.tokens;
            }
        }
        let out = self.out[of_rows..].chunks_mut(all).zip(sums.chunks_exact(width)).zip(factors);
        for ((out, sums), factor) in out.take(count) {
            let factor = simd.splat_f32s(factor);
            for (out, sums) in out[..width].chunks_mut(S::F32_LANES).zip(sums.chunks(S::F32_LANES)) {
                store(simd, out, simd.mul_f32s(load(simd, sums), factor));
            }
        }
    }
}

/// Turns `scores` into `exp(score − max)`, and returns the reciprocal of their sum.
#[inline(always)]
fn softmax<S: Simd>(simd: S, scores: &mut [f32]) -> f32 {
    let (vectors, rest) = S::as_mut_simd_f32s(scores);
    let mut max = simd.splat_f32s(f32::NEG_INFINITY);
    for score in vectors.iter() {
        max = simd.max_f32s(max, *score);
    }
    let max = rest.iter().fold(simd.reduce_max_f32s(max), |max, &score| max.max(score));
    let most = simd.splat_f32s(max);
    let mut sum = simd.splat_f32s(0.0);
    for score in vectors.iter_mut() {
        *score = math::exp_short(simd, simd.sub_f32s(*score, most));
        sum = simd.add_f32s(sum, *score);
    }
    let mut total = simd.reduce_sum_f32s(sum);
    if !rest.is_empty() {
        let exp = math::exp_short(simd, simd.sub_f32s(simd.partial_load_f32s(rest), most));
        simd.partial_store_f32s(rest, exp);
        total += rest.iter().sum::<f32>();
    }
    1.0 / total
}
