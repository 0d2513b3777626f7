use std::io::{self, Read, Write};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use crate::bases::SoughtPairs;
use crate::bytes::{CHUNK, get, put};
use crate::codes::BLOCK;
use crate::found::{Neighbors, Pair, Pairs, Stats};
use crate::scan::FEW;
use crate::search::{BlockPair, BlockPairs, lock};
use crate::side::{Scales, SearchSide};
use crate::state::{SEEDED, SavedFindings};
use crate::top::Top;
use crate::vectors::RowsOf;
use crate::{Search, SearchError, Vectors};

/// Neighbours in the order of the tree that each row is compared with at first.
const SEEDS: usize = 32;
/// Pairs that are scored together.
const PIECE: usize = 1 << 13;

impl Search<'_> {
    /// Finds the `k` nearest other rows of each row, at least one.
    ///
    /// # Errors
    /// [`SearchError::Cancelled`].
    pub fn neighbors(&self, vectors: &Vectors<'_>, k: usize) -> Result<Neighbors, SearchError> {
        let k = k.max(1);
        let rows = vectors.finite().collect::<Vec<u32>>();
        let bases = self.bases(vectors, &rows, &SoughtPairs::Nearest { vectors, rows: &rows, k });
        let scales = bases.scales(vectors, &rows, vectors.longest());
        let [side, _] = self.sides(&scales, RowsOf { vectors, rows: &rows }, RowsOf { vectors, rows: &[] });
        let tasks = BlockPairs::symmetric(rows.len().div_ceil(BLOCK));
        let work = self.resume(&tasks, &[&side], k as u64, || tops(rows.len(), k));
        let tops = &work.found;
        let scored = &work.scored;
        if work.done == 0 {
            self.each(
                tops.len(),
                0.0..SEEDED,
                || (),
                |number, ()| {
                    let mut top = lock(&tops[number]);
                    let places = number * BLOCK..(number * BLOCK + BLOCK).min(rows.len());
                    for place in places.clone() {
                        for other in place + 1..(place + 1 + SEEDS.max(2 * k)).min(places.end) {
                            let score = side.score(place, &side, other);
                            top.push(place - places.start, score, side.rows[other]);
                            top.push(other - places.start, score, side.rows[place]);
                            scored.fetch_add(1, Relaxed);
                        }
                    }
                },
            )?;
        }
        self.each_task(&work, |BlockPair { a, b }, scratch, found| {
            let of_a = scales.limits(lock(&tops[a]).least());
            let of_b = scales.limits(lock(&tops[b]).least());
            scales.find(&side, &side, BlockPair { a, b }, &of_a, &of_b, scratch, found);
            for found in found.chunks(PIECE) {
                let mut news = Vec::with_capacity(found.len());
                for &(i, j) in found {
                    let place = a * BLOCK + i as usize;
                    let other = b * BLOCK + j as usize;
                    if place < other || a != b {
                        news.push((place, other, side.score(place, &side, other)));
                    }
                }
                scored.fetch_add(news.len() as u64, Relaxed);
                let mut top = lock(&tops[a]);
                news.iter().for_each(|&(place, other, score)| top.push(place % BLOCK, score, side.rows[other]));
                drop(top);
                let mut top = lock(&tops[b]);
                news.iter().for_each(|&(place, other, score)| top.push(other % BLOCK, score, side.rows[place]));
            }
        })?;
        let stats = Stats { pairs: among(&rows), scored: work.scored.into_inner(), width: bases.coarse.width };
        Ok(side.neighbors(work.found, stats))
    }

    /// Finds the `k` nearest rows of `vectors` of each query, at least one. Up to 256 queries, or up to 64
    /// rows, are compared in f64, without codes.
    ///
    /// # Errors
    /// [`SearchError::Dimensions`] and [`SearchError::Cancelled`].
    pub fn nearest(&self, queries: &Vectors<'_>, vectors: &Vectors<'_>, k: usize) -> Result<Neighbors, SearchError> {
        check(queries, vectors)?;
        let k = k.max(1);
        let rows = vectors.finite().collect::<Vec<_>>();
        let of_queries = queries.finite().collect::<Vec<_>>();
        if of_queries.len() <= FEW.0 || rows.len() <= FEW.1 {
            return self.scan(RowsOf { vectors: queries, rows: &of_queries }, RowsOf { vectors, rows: &rows }, k);
        }
        let bases = self.bases(vectors, &rows, &SoughtPairs::Nearest { vectors: queries, rows: &of_queries, k });
        let scales = bases.scales(vectors, &rows, vectors.longest().max(queries.longest()));
        let [side, query] =
            self.sides(&scales, RowsOf { vectors, rows: &rows }, RowsOf { vectors: queries, rows: &of_queries });
        let tasks = query.tasks(&side);
        let work = self.resume(&tasks, &[&query, &side], k as u64, || tops(of_queries.len(), k));
        let tops = &work.found;
        let scored = &work.scored;
        if work.done == 0 {
            self.each(
                tops.len(),
                0.0..SEEDED,
                || (),
                |number, ()| {
                    let mut top = lock(&tops[number]);
                    for place in number * BLOCK..(number * BLOCK + BLOCK).min(of_queries.len()) {
                        let first = query.near[place] as usize;
                        for other in first..(first + SEEDS.max(2 * k)).min(rows.len()) {
                            top.push(place % BLOCK, query.score(place, &side, other), side.rows[other]);
                            scored.fetch_add(1, Relaxed);
                        }
                    }
                },
            )?;
        }
        let unlimited = scales.limits(std::iter::empty());
        self.each_task(&work, |task @ BlockPair { a, b }, scratch, found| {
            let of_a = scales.limits(lock(&tops[a]).least());
            scales.find(&query, &side, task, &of_a, &unlimited, scratch, found);
            for found in found.chunks(PIECE) {
                let mut news = Vec::with_capacity(found.len());
                for &(i, j) in found {
                    let other = b * BLOCK + j as usize;
                    news.push((i as usize, query.score(a * BLOCK + i as usize, &side, other), side.rows[other]));
                }
                scored.fetch_add(news.len() as u64, Relaxed);
                let mut top = lock(&tops[a]);
                news.into_iter().for_each(|(place, score, row)| top.push(place, score, row));
            }
        })?;
        let pairs = rows.len() as u64 * of_queries.len() as u64;
        let stats = Stats { pairs, scored: work.scored.into_inner(), width: bases.coarse.width };
        Ok(query.neighbors(work.found, stats))
    }

    /// Finds all pairs of rows whose score is at least `threshold`, by row.
    ///
    /// # Errors
    /// [`SearchError::TooManyPairs`] and [`SearchError::Cancelled`].
    pub fn pairs(&self, vectors: &Vectors<'_>, threshold: f64) -> Result<Pairs, SearchError> {
        let (found, stats) = self.each_pair(vectors, threshold, || PairList::new(self.most_pairs))?;
        Ok(found.finish(stats))
    }

    /// Finds all pairs of a row of `news` and a row of `vectors` whose score is at least `threshold`, by row.
    ///
    /// # Errors
    /// [`SearchError::Dimensions`], [`SearchError::TooManyPairs`] and [`SearchError::Cancelled`].
    pub fn pairs_with(&self, news: &Vectors<'_>, vectors: &Vectors<'_>, threshold: f64) -> Result<Pairs, SearchError> {
        let (found, stats) = self.each_pair_with(news, vectors, threshold, || PairList::new(self.most_pairs))?;
        Ok(found.finish(stats))
    }

    pub(crate) fn each_pair<F: PairSink>(
        &self,
        vectors: &Vectors<'_>,
        threshold: f64,
        new: impl Fn() -> F,
    ) -> Result<(F, Stats), SearchError> {
        let rows: Vec<u32> = vectors.finite().collect();
        let bases = self.bases(vectors, &rows, &SoughtPairs::From(threshold));
        let scales = bases.scales(vectors, &rows, vectors.longest());
        let [side, _] = self.sides(&scales, RowsOf { vectors, rows: &rows }, RowsOf { vectors, rows: &[] });
        let tasks = BlockPairs::symmetric(rows.len().div_ceil(BLOCK));
        let (found, scored) = self.from(&side, &side, &scales, threshold, &tasks, new)?;
        Ok((found, Stats { pairs: among(&rows), scored, width: bases.coarse.width }))
    }

    pub(crate) fn each_pair_with<F: PairSink>(
        &self,
        news: &Vectors<'_>,
        vectors: &Vectors<'_>,
        threshold: f64,
        new: impl Fn() -> F,
    ) -> Result<(F, Stats), SearchError> {
        check(news, vectors)?;
        let rows = vectors.finite().collect::<Vec<_>>();
        let of_news = news.finite().collect::<Vec<_>>();
        let bases = self.bases(vectors, &rows, &SoughtPairs::From(threshold));
        let scales = bases.scales(vectors, &rows, vectors.longest().max(news.longest()));
        let [side, new_side] =
            self.sides(&scales, RowsOf { vectors, rows: &rows }, RowsOf { vectors: news, rows: &of_news });
        let tasks = new_side.tasks(&side);
        let (found, scored) = self.from(&new_side, &side, &scales, threshold, &tasks, new)?;
        let all = rows.len() as u64 * of_news.len() as u64;
        Ok((found, Stats { pairs: all, scored, width: bases.coarse.width }))
    }

    fn from<F: PairSink>(
        &self,
        side: &SearchSide<'_>,
        others: &SearchSide<'_>,
        scales: &Scales<'_>,
        threshold: f64,
        tasks: &BlockPairs,
        new: impl Fn() -> F,
    ) -> Result<(F, u64), SearchError> {
        let limits = scales.limits(std::iter::repeat_n(threshold, BLOCK));
        let is_same = std::ptr::eq(side, others);
        let both = if is_same { vec![side] } else { vec![side, others] };
        let work = self.resume(tasks, &both, threshold.to_bits() ^ F::KIND, new);
        let fault = Mutex::new(None);
        let search = Search { is_cancelled: &|| (self.is_cancelled)() || lock(&fault).is_some(), ..*self };
        let ended = search.each_task(&work, |BlockPair { a, b }, scratch, found| {
            scales.find(side, others, BlockPair { a, b }, &limits, &limits, scratch, found);
            // A block of near rows has a million pairs, so that they are handed over in pieces.
            for found in found.chunks(PIECE) {
                let mut news = Vec::with_capacity(found.len());
                let mut scored = 0;
                for &(i, j) in found {
                    let place = a * BLOCK + i as usize;
                    let other = b * BLOCK + j as usize;
                    if is_same && a == b && place >= other {
                        continue;
                    }
                    scored += 1;
                    let score = side.score(place, others, other);
                    let row = side.rows[place];
                    let other = others.rows[other];
                    if score >= threshold && is_same {
                        news.push(Pair { row: row.min(other), other: row.max(other), score });
                    } else if score >= threshold {
                        news.push(Pair { row, other, score });
                    }
                }
                work.scored.fetch_add(scored, Relaxed);
                if let Err(error) = work.found.add(&news) {
                    lock(&fault).get_or_insert(error);
                }
            }
        });
        if let Some(error) = fault.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        ended?;
        Ok((work.found, work.scored.into_inner()))
    }
}

/// Takes pairs in any order, from several threads.
pub(crate) trait PairSink: SavedFindings + Sync {
    /// Tells the states of sinks apart.
    const KIND: u64;

    fn add(&self, pairs: &[Pair]) -> Result<(), SearchError>;
}

/// All pairs, up to some number.
struct PairList {
    pairs: Mutex<Vec<Pair>>,
    most: usize,
}

impl PairList {
    fn new(most: usize) -> Self {
        Self { pairs: Mutex::new(Vec::new()), most }
    }

    fn finish(self, stats: Stats) -> Pairs {
        let mut pairs = self.pairs.into_inner().unwrap_or_else(PoisonError::into_inner);
        pairs.sort_unstable_by_key(|pair| (pair.row, pair.other));
        Pairs { pairs, stats }
    }
}

impl PairSink for PairList {
    const KIND: u64 = 0;

    fn add(&self, pairs: &[Pair]) -> Result<(), SearchError> {
        let mut all = lock(&self.pairs);
        if all.len() + pairs.len() > self.most {
            return Err(SearchError::TooManyPairs(self.most));
        }
        all.extend(pairs);
        Ok(())
    }
}

impl SavedFindings for PairList {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let pairs = lock(&self.pairs);
        put(out, &[pairs.len() as u64], u64::to_le_bytes)?;
        put(out, &pairs, Pair::to_bytes)
    }

    fn read(new: Self, input: &mut dyn Read) -> io::Result<Self> {
        let mut count = [0];
        get(input, &mut count, u64::from_le_bytes)?;
        let mut pairs = lock(&new.pairs);
        // The count may be damaged, so memory grows with what is read.
        while pairs.len() < count[0] as usize {
            let first = pairs.len();
            let more = CHUNK.min(count[0] as usize - first);
            pairs.resize(first + more, Pair { row: 0, other: 0, score: 0.0 });
            get(input, &mut pairs[first..], Pair::from_bytes)?;
        }
        drop(pairs);
        Ok(new)
    }
}

fn tops(rows: usize, k: usize) -> Vec<Mutex<Top>> {
    (0..rows).step_by(BLOCK).map(|first| Mutex::new(Top::new(BLOCK.min(rows - first), k))).collect()
}

/// Number of pairs of some rows.
fn among(rows: &[u32]) -> u64 {
    let count = rows.len() as u64;
    count * count.saturating_sub(1) / 2
}

pub(crate) fn check(queries: &Vectors<'_>, vectors: &Vectors<'_>) -> Result<(), SearchError> {
    if queries.dim() != vectors.dim() || queries.metric() != vectors.metric() {
        return Err(SearchError::Dimensions { queries: queries.dim(), vectors: vectors.dim() });
    }
    Ok(())
}
