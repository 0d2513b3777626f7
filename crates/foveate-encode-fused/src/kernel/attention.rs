//! Softmax attention of one image, head by head. It never stores a whole score matrix.

use std::ops::Range;

use pulp::{Simd, WithSimd, bytemuck};

use crate::kernel::amx::Tiles;
use crate::kernel::dot::Bf16Unit;
use crate::kernel::isa::Isa;
use crate::kernel::tile_attention::{RoundToTiles, TileAttention, TileKeyValues, TileScratch};
use crate::kernel::words::{bf16_pair, bf16_row, round_pairs};
use crate::kernel::{MAX_LANES, MAX_TILE_ROWS, MAX_TILE_VECTORS, load, math, store, store_tile, tile, tile_rows};

/// Queries computed at a time, one per lane.
const MAX_QUERIES: usize = MAX_TILE_VECTORS * MAX_LANES;

/// The score of a token that a query does not attend to. Its weight, e⁻⁸⁷, is lost beside the largest, which is 1.
const HIDDEN_SCORE: f32 = -1e30;

/// Keys and values of some consecutive tokens of an image, each `[heads, tokens, head_width]`.
pub(crate) struct KeyValues {
    /// Keys of all heads, then values of all heads.
    pub(crate) data: Vec<f32>,
    /// The number of tokens.
    pub(crate) tokens: usize,
    /// The unit that multiplies bf16; `None` if attention is computed in f32, or in tile registers.
    pub(crate) unit: Option<Bf16Unit>,
    pub(crate) tiles: Option<TileKeyValues>,
    /// In bf16: keys, `[heads, tokens, head_width / 2]`, two neighbours in a word.
    keys: Vec<u32>,
    /// In bf16: values, `[heads, tokens / 2, head_width]`, two tokens in a word.
    values: Vec<u32>,
}

impl KeyValues {
    /// Allocates memory for `tokens` tokens; in f32 unless there is something that multiplies bf16.
    pub(crate) fn new(heads: usize, tokens: usize, head_width: usize, bf16: Option<(Bf16Unit, Option<Tiles>)>) -> Self {
        let tiles = bf16.and_then(|(_, tiles)| TileKeyValues::new(tiles, heads, tokens, head_width));
        let unit = bf16.map(|(unit, _)| unit).filter(|_| tiles.is_none());
        let heads_in_words = if unit.is_some() { heads } else { 0 };
        Self {
            data: vec![0.0; 2 * heads * tokens * head_width],
            tokens,
            unit,
            tiles,
            keys: vec![0; heads_in_words * (tokens * head_width / 2)],
            values: vec![0; heads_in_words * tokens.div_ceil(2) * head_width],
        }
    }

    /// Returns block `i`, `[tokens, head_width]`: keys of head `i`, or values of head `i − heads`.
    #[inline(always)]
    fn block(&self, i: usize, head_width: usize) -> &[f32] {
        &self.data[i * self.tokens * head_width..][..self.tokens * head_width]
    }
}

/// Rounds keys and values to bf16.
pub(crate) struct Round<'a> {
    pub(crate) key_values: &'a mut KeyValues,
    pub(crate) heads: usize,
    pub(crate) head_width: usize,
}

impl WithSimd for Round<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let KeyValues { data, tokens, keys, values, tiles, .. } = self.key_values;
        let width = self.head_width;
        if let Some(tiles) = tiles {
            return RoundToTiles { from: data, to: tiles, head_width: width }.with_simd(simd);
        }
        let (from_keys, from_values) = data.split_at(self.heads * *tokens * width);
        bf16_row(from_keys, bytemuck::cast_slice_mut(keys));
        round_pairs(simd, from_values, *tokens, width, values, tokens.div_ceil(2));
    }
}

/// Working memory of [`PartAttention`].
pub(crate) struct AttentionScratch {
    /// `[head_width, queries]`.
    queries: Vec<f32>,
    /// In bf16: `[head_width / 2, queries]`, two neighbours in a word.
    query_words: Vec<u32>,
    /// In bf16: one query, `[head_width / 2]`.
    query: Vec<u32>,
    /// `[tokens, queries]`.
    scores: Vec<f32>,
    /// In bf16: `[tokens / 2, queries]`, two tokens in a word.
    score_words: Vec<u32>,
    tiles: TileScratch,
}

impl AttentionScratch {
    pub(crate) fn new(tokens: usize, head_width: usize) -> Self {
        Self {
            queries: vec![0.0; head_width * MAX_QUERIES],
            query_words: vec![0; head_width / 2 * MAX_QUERIES],
            query: vec![0; head_width / 2],
            scores: vec![0.0; tokens * MAX_QUERIES],
            // Each part of an image may end in half a pair.
            score_words: vec![0; tokens * MAX_QUERIES],
            tiles: TileScratch::new(tokens, head_width),
        }
    }
}

/// `softmax(q · kᵀ) · v` for each head. `q` must include the scale already.
///
/// Scores are computed transposed, one token per row and one query per lane. The softmax then needs no sums across
/// lanes, and the second product reads the scores in order.
pub(crate) struct PartAttention<'a> {
    /// `[rows, heads · head_width]`.
    pub(crate) q: &'a [f32],
    /// All tokens of the image, in order, in any number of parts.
    pub(crate) keys: &'a [KeyValues],
    pub(crate) heads: usize,
    /// A multiple of the vector's width (see [`padded_head_width`]).
    pub(crate) head_width: usize,
    /// For each row the tokens that it attends to; empty if it is all of them. Not with tile registers.
    pub(crate) seen: &'a [Range<usize>],
    pub(crate) scratch: &'a mut AttentionScratch,
    /// `[rows, heads · head_width]`.
    pub(crate) out: &'a mut [f32],
}

/// The width at which heads of `width` are stored: whole vectors and whole pairs, the rest zeros.
pub(crate) fn padded_head_width(isa: Isa, width: usize) -> usize {
    width.next_multiple_of(isa.lanes().max(2))
}

impl WithSimd for PartAttention<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        assert!(self.head_width.is_multiple_of(S::F32_LANES), "heads are whole vectors wide");
        let parts: Vec<&TileKeyValues> = self.keys.iter().filter_map(|part| part.tiles.as_ref()).collect();
        if !parts.is_empty() {
            let Self { q, heads, head_width, scratch, out, .. } = self;
            let scratch = &mut scratch.tiles;
            return TileAttention { q, parts: &parts, heads, head_width, scratch, out }.with_simd(simd);
        }
        let rows = self.q.len() / (self.heads * self.head_width);
        for head in 0..self.heads {
            let mut row = 0;
            while row < rows {
                let vectors = (rows - row).div_ceil(S::F32_LANES).min(MAX_TILE_VECTORS);
                let count = (rows - row).min(vectors * S::F32_LANES);
                match vectors {
                    1 => self.queries::<S, 1>(simd, head, row, count),
                    2 => self.queries::<S, 2>(simd, head, row, count),
                    _ => self.queries::<S, 3>(simd, head, row, count),
                }
                row += count;
            }
        }
    }
}

impl PartAttention<'_> {
    /// The unit that multiplies bf16; `None` for f32. All parts of an image have the same.
    #[inline(always)]
    fn unit(&self) -> Option<Bf16Unit> {
        self.keys.first().and_then(|part| part.unit)
    }

    /// Computes attention of `count` queries from `row` on in one head, in `NV` vectors.
    #[inline(always)]
    fn queries<S: Simd, const NV: usize>(&mut self, simd: S, head: usize, row: usize, count: usize) {
        self.transpose_queries::<S, NV>(head, row, count);
        self.score::<S, NV>(simd, head);
        self.hide(row, count, NV * S::F32_LANES);
        let mut factors = [0.0; MAX_QUERIES];
        if self.unit().is_some() {
            self.softmax_words::<S, NV>(simd, &mut factors);
        } else {
            let tokens = self.keys.iter().map(|part| part.tokens).sum::<usize>();
            softmax::<S, NV>(simd, &mut self.scratch.scores[..tokens * NV * S::F32_LANES], &mut factors);
        }
        let mut query = 0;
        while query < count {
            let height = tile_rows::<S>(count - query);
            match height {
                8 => self.mix::<S, 8, NV>(simd, head, row, query, &factors),
                4 => self.mix::<S, 4, NV>(simd, head, row, query, &factors),
                3 => self.mix::<S, 3, NV>(simd, head, row, query, &factors),
                2 => self.mix::<S, 2, NV>(simd, head, row, query, &factors),
                _ => self.mix::<S, 1, NV>(simd, head, row, query, &factors),
            }
            query += height;
        }
    }

    /// Writes the queries `[head_width, NV vectors]`, zeros in the lanes beyond `count`. In bf16, a word has two
    /// neighbours.
    #[inline(always)]
    fn transpose_queries<S: Simd, const NV: usize>(&mut self, head: usize, row: usize, count: usize) {
        let lanes = NV * S::F32_LANES;
        let head_width = self.head_width;
        let unit = self.unit();
        let q = self.q[head * head_width..].chunks(self.heads * head_width).skip(row).take(count);
        let AttentionScratch { queries, query_words, query, .. } = &mut *self.scratch;
        if unit.is_some() {
            let words = &mut query_words[..head_width / 2 * lanes];
            words.fill(0);
            for (column, q) in q.enumerate() {
                bf16_row(&q[..head_width], bytemuck::cast_slice_mut(query));
                words[column..].iter_mut().step_by(lanes).zip(&*query).for_each(|(slot, &pair)| *slot = pair);
            }
        } else {
            let queries = &mut queries[..head_width * lanes];
            queries.fill(0.0);
            for (column, q) in q.enumerate() {
                queries[column..].iter_mut().step_by(lanes).zip(q).for_each(|(slot, &value)| *slot = value);
            }
        }
    }

    /// Writes the scores `[tokens, NV vectors]`.
    #[inline(always)]
    fn score<S: Simd, const NV: usize>(&mut self, simd: S, head: usize) {
        let lanes = NV * S::F32_LANES;
        let mut scores = self.scratch.scores.as_mut_slice();
        for part in self.keys {
            let mut token = 0;
            while token < part.tokens {
                let height = tile_rows::<S>(part.tokens - token);
                let tile = ScoreTile {
                    part,
                    head,
                    token,
                    width: self.head_width,
                    queries: &self.scratch.queries,
                    words: &self.scratch.query_words,
                };
                match height {
                    8 => tile.write::<S, 8, NV>(simd, scores),
                    4 => tile.write::<S, 4, NV>(simd, scores),
                    3 => tile.write::<S, 3, NV>(simd, scores),
                    2 => tile.write::<S, 2, NV>(simd, scores),
                    _ => tile.write::<S, 1, NV>(simd, scores),
                }
                scores = &mut scores[height * lanes..];
                token += height;
            }
        }
    }

    /// Makes the softmax of `count` queries from `row` on ignore the tokens that they do not attend to. `lanes` queries
    /// lie side by side.
    #[inline(always)]
    fn hide(&mut self, row: usize, count: usize, lanes: usize) {
        if self.seen.is_empty() {
            return;
        }
        let tokens = self.keys.iter().map(|part| part.tokens).sum::<usize>();
        for query in 0..count {
            let seen = &self.seen[row + query];
            for token in (0..seen.start).chain(seen.end..tokens) {
                self.scratch.scores[token * lanes + query] = HIDDEN_SCORE;
            }
        }
    }

    /// [`softmax`] whose result is rounded to bf16, two tokens in a word.
    #[inline(always)]
    fn softmax_words<S: Simd, const NV: usize>(&mut self, simd: S, factors: &mut [f32; MAX_QUERIES]) {
        let tokens = self.keys.iter().map(|part| part.tokens).sum::<usize>();
        let (scores, _) = S::as_simd_f32s(&self.scratch.scores[..tokens * NV * S::F32_LANES]);
        let (mut scores, _) = scores.as_chunks::<NV>();
        let (words, _) = S::as_mut_simd_u32s(&mut self.scratch.score_words);
        let (mut words, _) = words.as_chunks_mut::<NV>();
        let max = greatest(simd, scores);
        let mut sums = [simd.splat_f32s(0.0); NV];
        for part in self.keys {
            let own_words;
            let own;
            (own, scores) = scores.split_at(part.tokens);
            (own_words, words) = words.split_at_mut(part.tokens.div_ceil(2));
            for (pair, words) in own.chunks(2).zip(own_words) {
                for j in 0..NV {
                    let low = math::exp_short(simd, simd.sub_f32s(pair[0][j], max[j]));
                    sums[j] = simd.add_f32s(sums[j], low);
                    let mut high = simd.splat_f32s(0.0);
                    if let Some(score) = pair.get(1) {
                        high = math::exp_short(simd, simd.sub_f32s(score[j], max[j]));
                        sums[j] = simd.add_f32s(sums[j], high);
                    }
                    words[j] = bf16_pair(simd, low, high);
                }
            }
        }
        reciprocals(simd, &sums, factors);
    }

    /// Writes the outputs of `MR` queries: all tokens' values, weighted by their scores.
    #[inline(always)]
    fn mix<S: Simd, const MR: usize, const NV: usize>(
        &mut self,
        simd: S,
        head: usize,
        row: usize,
        query: usize,
        factors: &[f32; MAX_QUERIES],
    ) {
        let lanes = S::F32_LANES;
        let width = self.heads * self.head_width;
        let mut column = 0;
        while column < self.head_width {
            let mut sums = [0.0; MAX_TILE_ROWS * 2 * MAX_LANES];
            let vectors = ((self.head_width - column) / lanes).min(2);
            match (vectors, self.unit()) {
                (1, None) => self.weighted_sum::<S, MR, NV, 1>(simd, head, query, column, &mut sums),
                (_, None) => self.weighted_sum::<S, MR, NV, 2>(simd, head, query, column, &mut sums),
                (1, Some(unit)) => {
                    self.weighted_sum_of_words::<S, MR, NV, 1>(simd, unit, head, query, column, &mut sums)
                }
                (_, Some(unit)) => {
                    self.weighted_sum_of_words::<S, MR, NV, 2>(simd, unit, head, query, column, &mut sums)
                }
            }
            for i in 0..MR {
                let factor = simd.splat_f32s(factors[query + i]);
                let out = &mut self.out[(row + query + i) * width + head * self.head_width + column..];
                for j in 0..vectors {
                    let sum = load(simd, &sums[(i * vectors + j) * lanes..]);
                    store(simd, &mut out[j * lanes..][..lanes], simd.mul_f32s(sum, factor));
                }
            }
            column += vectors * lanes;
        }
    }

    /// [`Self::weighted_sum`] in bf16.
    #[inline(always)]
    fn weighted_sum_of_words<S: Simd, const MR: usize, const NV: usize, const VV: usize>(
        &self,
        simd: S,
        unit: Bf16Unit,
        head: usize,
        query: usize,
        column: usize,
        out: &mut [f32],
    ) {
        let lanes = NV * S::F32_LANES;
        let width = self.head_width;
        let mut scores = self.scratch.score_words.as_slice();
        for part in self.keys {
            let pairs = part.tokens.div_ceil(2);
            let (own, rest) = scores.split_at(pairs * lanes);
            scores = rest;
            let values = &part.values[head * pairs * width..][..pairs * width];
            let out = &mut out[..MR * VV * S::F32_LANES];
            unit.columns::<S, MR, VV>(simd, &own[query..], lanes, &values[column..], width, out);
        }
    }

    /// Returns `Σ score · value` over all tokens in order, for `MR` queries and `VV` vectors of the head's columns.
    #[inline(always)]
    fn weighted_sum<S: Simd, const MR: usize, const NV: usize, const VV: usize>(
        &self,
        simd: S,
        head: usize,
        query: usize,
        column: usize,
        out: &mut [f32],
    ) {
        let lanes = S::F32_LANES;
        let mut sums = [[simd.splat_f32s(0.0); VV]; MR];
        let mut scores = self.scratch.scores.as_slice();
        for part in self.keys {
            let (own, rest) = scores.split_at(part.tokens * NV * lanes);
            scores = rest;
            let values = part.block(self.heads + head, self.head_width);
            for token in 0..part.tokens {
                let score = &own[token * NV * lanes + query..][..MR];
                let (value, _) = S::as_simd_f32s(&values[token * self.head_width + column..][..VV * lanes]);
                for i in 0..MR {
                    let score = simd.splat_f32s(score[i]);
                    for j in 0..VV {
                        sums[i][j] = simd.mul_add_e_f32s(score, value[j], sums[i][j]);
                    }
                }
            }
        }
        store_tile::<S, MR, VV>(out, VV * lanes, &sums);
    }
}

/// The scores of some tokens' keys for all queries.
struct ScoreTile<'a> {
    part: &'a KeyValues,
    head: usize,
    token: usize,
    width: usize,
    queries: &'a [f32],
    words: &'a [u32],
}

impl ScoreTile<'_> {
    #[inline(always)]
    fn write<S: Simd, const MR: usize, const NV: usize>(self, simd: S, scores: &mut [f32]) {
        let lanes = NV * S::F32_LANES;
        let width = self.width;
        if let Some(unit) = self.part.unit {
            let width = width / 2;
            let keys = &self.part.keys[(self.head * self.part.tokens + self.token) * width..];
            unit.tile::<S, MR, NV>(simd, keys, width, &self.words[..width * lanes], scores, lanes);
        } else {
            let keys = &self.part.block(self.head, width)[self.token * width..];
            let (queries, _) = S::as_simd_f32s(self.queries);
            let (queries, _) = queries.as_chunks::<NV>();
            tile::<S, MR, NV>(simd, keys, width, &queries[..width], scores, lanes);
        }
    }
}

/// Turns each column of `scores`, `[tokens, NV vectors]`, into `exp(score − max)`, and writes the reciprocal of its sum
/// to `factors`.
#[inline(always)]
fn softmax<S: Simd, const NV: usize>(simd: S, scores: &mut [f32], factors: &mut [f32; MAX_QUERIES]) {
    let (scores, _) = S::as_mut_simd_f32s(scores);
    let (scores, _) = scores.as_chunks_mut::<NV>();
    let max = greatest(simd, scores);
    let mut sums = [simd.splat_f32s(0.0); NV];
    for score in scores.iter_mut() {
        for j in 0..NV {
            score[j] = math::exp(simd, simd.sub_f32s(score[j], max[j]));
            sums[j] = simd.add_f32s(sums[j], score[j]);
        }
    }
    reciprocals(simd, &sums, factors);
}

/// The greatest score of each column.
#[inline(always)]
fn greatest<S: Simd, const NV: usize>(simd: S, scores: &[[S::f32s; NV]]) -> [S::f32s; NV] {
    let mut max = scores[0];
    for score in scores {
        for j in 0..NV {
            max[j] = simd.max_f32s(max[j], score[j]);
        }
    }
    max
}

#[inline(always)]
fn reciprocals<S: Simd, const NV: usize>(simd: S, sums: &[S::f32s; NV], factors: &mut [f32; MAX_QUERIES]) {
    for (sum, factor) in sums.iter().zip(factors.chunks_exact_mut(S::F32_LANES)) {
        store(simd, factor, simd.div_f32s(simd.splat_f32s(1.0), *sum));
    }
}
