use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::basis::{Basis, Spread};
use crate::codes::{BLOCK, Codes, Scale};
use crate::found::{Neighbors, Pair, Pairs, Stats};
use crate::order::{Groups, order};
use crate::scan::FEW;
use crate::screen::{Block, Scratch, Unit};
use crate::threads::joined;
use crate::top::Top;
use crate::{SearchError, State, Vectors};

/// Widths of codes that are tried, besides all dimensions.
const WIDTHS: [usize; 5] = [32, 64, 128, 192, 256];
/// Rows from which directions and steps are estimated.
const SAMPLE: usize = 2048;
/// Rows whose neighbours are searched plainly, to see which width pays off.
const TRIED: usize = 64;
/// Neighbours in the order of groups that each row is compared with at first.
const SEEDS: usize = 32;
/// Share of the progress after which these are done.
pub(crate) const SEEDED: f64 = 0.02;
/// Nanoseconds that a width of one, a pair, a second look at a pair, and a score of one dimension take.
const COSTS: (f64, f64, f64, f64) = (1.0 / 200.0, 0.1, 60.0, 0.35);

/// A search, and who watches it.
pub struct Search<'a> {
    /// Threads that compute.
    pub threads: usize,
    /// Called at times with the share of the pairs that is done, in [0, 1].
    pub progress: &'a (dyn Fn(f64) + Sync),
    /// Asked at times whether to stop.
    pub is_cancelled: &'a (dyn Fn() -> bool + Sync),
    /// Where to keep the state, if anywhere. [`neighbors`](Self::neighbors), [`nearest`](Self::nearest) with more than
    /// 256 queries, [`pairs`](Self::pairs), [`pairs_with`](Self::pairs_with) and the neighbours of
    /// [`evaluate`](Self::evaluate) have one. It is saved at times and when the search is cancelled.
    pub state: Option<&'a dyn State>,
    /// Time between saved states.
    pub save_every: Duration,
}

impl Default for Search<'_> {
    /// On all cores, without a state.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, Into::into);
        Self { threads, progress: &|_| (), is_cancelled: &|| false, state: None, save_every: Duration::from_secs(60) }
    }
}

/// Directions to compare rows in: some, then all.
struct Bases {
    coarse: Basis,
    /// `None` if the first are all.
    fine: Option<Basis>,
}

/// The limits of a block's rows.
struct Limits {
    coarse: Vec<i32>,
    fine: Option<Vec<i32>>,
}

/// How rows are compared: by codes of some directions, then by those of all.
struct Scales<'a> {
    coarse: Scale<'a>,
    /// `None` if the first are of all directions.
    fine: Option<Scale<'a>>,
}

/// Vectors in the order in which they are searched.
pub(crate) struct Side<'a> {
    pub(crate) vectors: &'a Vectors<'a>,
    /// Of each place, the row.
    pub(crate) rows: Vec<u32>,
    codes: Codes,
    fine: Option<Codes>,
    /// Of each group, its first place.
    groups: BTreeMap<u32, usize>,
}

/// A block of one side and a block of the other.
#[derive(Clone, Copy)]
pub(crate) struct Task {
    a: usize,
    b: usize,
}

impl Search<'_> {
    /// Finds the `k` nearest other rows of each row, at least one.
    ///
    /// # Errors
    /// [`SearchError::Cancelled`].
    pub fn neighbors(&self, vectors: &Vectors<'_>, k: usize) -> Result<Neighbors, SearchError> {
        let (k, rows) = (k.max(1), vectors.finite().collect::<Vec<u32>>());
        let bases = self.bases(vectors, &rows, &Wanted::Nearest { vectors, rows: &rows, k });
        let scales = bases.scales(vectors, &rows, vectors.longest());
        let (side, _) = self.sides(&scales, (vectors, &rows), None);
        let tasks = symmetric(rows.len().div_ceil(BLOCK));
        let work = self.resume(&tasks, &[&side], k as u64, || tops(rows.len(), k));
        let (tops, scored) = (&work.found, &work.scored);
        let seed = |number: usize| {
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
        };
        if work.done == 0 {
            self.each(tops.len(), 0.0..SEEDED, || (), |number, ()| seed(number))?;
        }
        self.each_task(&work, |Task { a, b }, scratch, found| {
            let limits = |number: usize| scales.limits(lock(&tops[number]).least());
            let (of_a, of_b) = (limits(a), limits(b));
            scales.find(&side, &side, Task { a, b }, (&of_a, &of_b), scratch, found);
            let mut news = Vec::with_capacity(found.len());
            for (place, other) in found.iter().map(|&(i, j)| (a * BLOCK + i as usize, b * BLOCK + j as usize)) {
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
        })?;
        let stats = Stats { pairs: among(&rows), scored: work.scored.into_inner(), width: bases.coarse.width };
        Ok(side.neighbors(work.found, stats))
    }

    /// Finds the `k` nearest rows of `vectors` of each query, at least one. Up to 256 queries are compared with all
    /// rows in f64, without codes.
    ///
    /// # Errors
    /// [`SearchError::Dimensions`] and [`SearchError::Cancelled`].
    pub fn nearest(&self, queries: &Vectors<'_>, vectors: &Vectors<'_>, k: usize) -> Result<Neighbors, SearchError> {
        check(queries, vectors)?;
        let k = k.max(1);
        let (rows, of_queries) = (vectors.finite().collect::<Vec<_>>(), queries.finite().collect::<Vec<_>>());
        if of_queries.len() <= FEW {
            return self.scan((queries, &of_queries), (vectors, &rows), k);
        }
        let bases = self.bases(vectors, &rows, &Wanted::Nearest { vectors: queries, rows: &of_queries, k });
        let scales = bases.scales(vectors, &rows, vectors.longest().max(queries.longest()));
        let (side, query) = self.sides(&scales, (vectors, &rows), Some((queries, &of_queries)));
        let (blocks, of_query) = (rows.len().div_ceil(BLOCK), of_queries.len().div_ceil(BLOCK));
        // Each block of queries begins with its own groups.
        let tasks: Vec<Task> = (0..blocks)
            .flat_map(|step| (0..of_query).map(move |a| (a, step)))
            .map(|(a, step)| Task { a, b: (side.near(&query, a * BLOCK) / BLOCK + step) % blocks })
            .collect();
        let work = self.resume(&tasks, &[&query, &side], k as u64, || tops(of_queries.len(), k));
        let (tops, scored) = (&work.found, &work.scored);
        let seed = |number: usize| {
            let mut top = lock(&tops[number]);
            for place in number * BLOCK..(number * BLOCK + BLOCK).min(of_queries.len()) {
                let first = side.near(&query, place);
                for other in first..(first + SEEDS.max(2 * k)).min(rows.len()) {
                    top.push(place % BLOCK, query.score(place, &side, other), side.rows[other]);
                    scored.fetch_add(1, Relaxed);
                }
            }
        };
        if work.done == 0 {
            self.each(tops.len(), 0.0..SEEDED, || (), |number, ()| seed(number))?;
        }
        let unlimited = scales.limits(std::iter::empty());
        self.each_task(&work, |task @ Task { a, b }, scratch, found| {
            let of_a = scales.limits(lock(&tops[a]).least());
            scales.find(&query, &side, task, (&of_a, &unlimited), scratch, found);
            let news: Vec<_> = found
                .iter()
                .map(|&(i, j)| (i as usize, b * BLOCK + j as usize))
                .map(|(i, other)| (i, query.score(a * BLOCK + i, &side, other), side.rows[other]))
                .collect();
            scored.fetch_add(news.len() as u64, Relaxed);
            let mut top = lock(&tops[a]);
            news.into_iter().for_each(|(place, score, row)| top.push(place, score, row));
        })?;
        let pairs = rows.len() as u64 * of_queries.len() as u64;
        let stats = Stats { pairs, scored: work.scored.into_inner(), width: bases.coarse.width };
        Ok(query.neighbors(work.found, stats))
    }

    /// Finds all pairs of rows whose score is at least `threshold`, by row.
    ///
    /// # Errors
    /// [`SearchError::Cancelled`].
    pub fn pairs(&self, vectors: &Vectors<'_>, threshold: f64) -> Result<Pairs, SearchError> {
        let rows: Vec<u32> = vectors.finite().collect();
        let bases = self.bases(vectors, &rows, &Wanted::From(threshold));
        let scales = bases.scales(vectors, &rows, vectors.longest());
        let (side, _) = self.sides(&scales, (vectors, &rows), None);
        let (pairs, scored) = self.from(&side, &side, &scales, threshold, &symmetric(rows.len().div_ceil(BLOCK)))?;
        Ok(Pairs { pairs, stats: Stats { pairs: among(&rows), scored, width: bases.coarse.width } })
    }

    /// Finds all pairs of a row of `news` and a row of `vectors` whose score is at least `threshold`, by row.
    ///
    /// # Errors
    /// [`SearchError::Dimensions`] and [`SearchError::Cancelled`].
    pub fn pairs_with(&self, news: &Vectors<'_>, vectors: &Vectors<'_>, threshold: f64) -> Result<Pairs, SearchError> {
        check(news, vectors)?;
        let (rows, of_news) = (vectors.finite().collect::<Vec<_>>(), news.finite().collect::<Vec<_>>());
        let bases = self.bases(vectors, &rows, &Wanted::From(threshold));
        let scales = bases.scales(vectors, &rows, vectors.longest().max(news.longest()));
        let (side, new) = self.sides(&scales, (vectors, &rows), Some((news, &of_news)));
        let blocks = |rows: &[u32]| rows.len().div_ceil(BLOCK);
        let tasks: Vec<Task> =
            (0..blocks(&of_news)).flat_map(|a| (0..blocks(&rows)).map(move |b| Task { a, b })).collect();
        let (pairs, scored) = self.from(&new, &side, &scales, threshold, &tasks)?;
        let all = rows.len() as u64 * of_news.len() as u64;
        Ok(Pairs { pairs, stats: Stats { pairs: all, scored, width: bases.coarse.width } })
    }

    fn from(
        &self,
        side: &Side<'_>,
        others: &Side<'_>,
        scales: &Scales<'_>,
        threshold: f64,
        tasks: &[Task],
    ) -> Result<(Vec<Pair>, u64), SearchError> {
        let limits = scales.limits(std::iter::repeat_n(threshold, BLOCK));
        let is_same = std::ptr::eq(side, others);
        let both = if is_same { vec![side] } else { vec![side, others] };
        let work = self.resume(tasks, &both, threshold.to_bits(), || Mutex::new(Vec::new()));
        self.each_task(&work, |task @ Task { a, b }, scratch, found| {
            scales.find(side, others, task, (&limits, &limits), scratch, found);
            let found = found.iter().map(|&(i, j)| (a * BLOCK + i as usize, b * BLOCK + j as usize));
            let found: Vec<_> = found.filter(|(place, other)| !is_same || a != b || place < other).collect();
            work.scored.fetch_add(found.len() as u64, Relaxed);
            let news: Vec<_> = found
                .into_iter()
                .map(|(place, other)| (place, other, side.score(place, others, other)))
                .filter(|&(.., score)| score >= threshold)
                .map(|(place, other, score)| {
                    let (row, other) = (side.rows[place], others.rows[other]);
                    if is_same {
                        Pair { row: row.min(other), other: row.max(other), score }
                    } else {
                        Pair { row, other, score }
                    }
                })
                .collect();
            lock(&work.found).extend(news);
        })?;
        let mut pairs = work.found.into_inner().unwrap_or_else(PoisonError::into_inner);
        pairs.sort_unstable_by_key(|pair| (pair.row, pair.other));
        Ok((pairs, work.scored.into_inner()))
    }

    /// The side of some rows, and that of others with the same groups; without others, the first is both.
    fn sides<'v>(
        &self,
        scales: &Scales<'_>,
        (vectors, rows): (&'v Vectors<'v>, &[u32]),
        others: Option<(&'v Vectors<'v>, &[u32])>,
    ) -> (Side<'v>, Side<'v>) {
        let (other_vectors, other_rows) = others.unwrap_or((vectors, &[]));
        let both = |scale: &Scale<'_>| scale.both(vectors, rows, other_vectors, other_rows, self.threads);
        let (codes, other_codes) = both(&scales.coarse);
        let (fine, other_fine) = scales.fine.as_ref().map(both).unzip();
        let groups = Groups::around(&codes, rows.len(), scales.coarse.width);
        let side = |vectors, rows: &[u32], codes: Codes, fine: Option<Codes>| {
            Side::new(vectors, rows, (codes, fine), scales, |codes| groups.of(codes, rows.len(), self.threads))
        };
        (side(vectors, rows, codes, fine), side(other_vectors, other_rows, other_codes, other_fine))
    }

    /// Chooses the directions of codes: those whose pairs take the least time on a sample.
    fn bases(&self, vectors: &Vectors<'_>, rows: &[u32], wanted: &Wanted<'_>) -> Bases {
        let (sample, dim) = (some(rows, SAMPLE), vectors.dim());
        let widths: Vec<usize> = WIDTHS.into_iter().filter(|&width| width < dim).collect();
        if rows.len() < 2 * BLOCK || widths.is_empty() {
            return Bases { coarse: Spread::of(vectors, &sample, 0).basis(dim), fine: None };
        }
        let spread = Spread::of(vectors, &sample, widths.last().copied().unwrap_or(0));
        let (tried_vectors, tried) = match wanted {
            Wanted::Nearest { vectors, rows, .. } => (*vectors, some(rows, TRIED)),
            Wanted::From(_) => (vectors, some(rows, SAMPLE)),
        };
        let least: Vec<f64> = match wanted {
            Wanted::From(threshold) => vec![*threshold; tried.len()],
            Wanted::Nearest { vectors: queries, k, .. } => self.least(queries, &tried, vectors, rows, *k),
        };
        let longest = vectors.longest().max(tried_vectors.longest());
        let time = |width: usize| {
            let basis = spread.basis(width);
            let scale = Scale::of(&basis, vectors, &sample, longest);
            let (a, b) = scale.both(tried_vectors, &tried, vectors, &sample, self.threads);
            let mut limits: Vec<i32> = least.iter().map(|&score| scale.limit(score)).collect();
            limits.resize(a.len(), i32::MAX);
            let (unlimited, mut found) = (vec![i32::MAX; b.len()], Vec::new());
            for first in (0..a.len()).step_by(BLOCK) {
                let a_block = Block::of(&a, scale.width, first / BLOCK, &limits[first..(first + BLOCK).min(a.len())]);
                let whole = Block { codes: &b.codes, biases: &b.biases, limits: &unlimited };
                Unit::detected().find(&a_block, &whole, scale.width, &mut Scratch::default(), &mut found);
            }
            let share = found.len() as f64 / (tried.len() * sample.len()) as f64;
            let each = if width < dim { COSTS.2 } else { dim as f64 * COSTS.3 };
            (basis.width as f64 * COSTS.0 + COSTS.1 + share * each, share)
        };
        let (of_all, share) = time(dim);
        let scores = share * dim as f64 * COSTS.3;
        let times = widths.iter().map(|&width| (width, time(width).0 + scores)).chain([(dim, of_all)]);
        let best = times.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(dim, |(width, _)| width);
        Bases { coarse: spread.basis(best), fine: (best < dim).then(|| spread.basis(dim)) }
    }

    /// The scores of the `k`-th neighbours of some queries, searched plainly.
    fn least(&self, queries: &Vectors<'_>, tried: &[u32], vectors: &Vectors<'_>, rows: &[u32], k: usize) -> Vec<f64> {
        let is_same = std::ptr::eq(queries, vectors);
        let least = |query: u32| {
            let mut top = Top::new(1, k);
            for &row in rows.iter().filter(|&&row| !is_same || row != query) {
                top.push(0, queries.score(query, vectors, row), row);
            }
            top.least().next().unwrap_or(f64::NEG_INFINITY)
        };
        let share = tried.len().div_ceil(self.threads.max(1)).max(1);
        std::thread::scope(|scope| {
            let parts: Vec<_> = tried
                .chunks(share)
                .map(|tried| scope.spawn(move || tried.iter().map(|&query| least(query)).collect::<Vec<_>>()))
                .collect();
            parts.into_iter().flat_map(joined).collect()
        })
    }
}

/// What is searched for.
enum Wanted<'a> {
    /// The nearest of these rows.
    Nearest { vectors: &'a Vectors<'a>, rows: &'a [u32], k: usize },
    /// Scores from this one on.
    From(f64),
}

impl Bases {
    fn scales(&self, vectors: &Vectors<'_>, rows: &[u32], longest: f64) -> Scales<'_> {
        let sample = some(rows, SAMPLE);
        let scale = |basis| Scale::of(basis, vectors, &sample, longest);
        Scales { coarse: scale(&self.coarse), fine: self.fine.as_ref().map(scale) }
    }
}

impl Scales<'_> {
    /// The limits of rows that want these scores. What is left of a block wants nothing.
    fn limits(&self, scores: impl Iterator<Item = f64> + Clone) -> Limits {
        let of = |scale: &Scale<'_>| {
            let nothing = std::iter::repeat(i32::MAX);
            scores.clone().map(|score| scale.limit(score)).chain(nothing).take(BLOCK).collect()
        };
        Limits { coarse: of(&self.coarse), fine: self.fine.as_ref().map(of) }
    }

    /// Finds the pairs of a task whose bounds reach a limit, as numbers within their blocks.
    fn find(
        &self,
        side: &Side<'_>,
        others: &Side<'_>,
        task: Task,
        (limits, of_others): (&Limits, &Limits),
        scratch: &mut Scratch,
        found: &mut Vec<(u32, u32)>,
    ) {
        let (unit, width) = (Unit::detected(), self.coarse.width);
        let a = Block::of(&side.codes, width, task.a, &limits.coarse);
        let b = Block::of(&others.codes, width, task.b, &of_others.coarse);
        unit.find(&a, &b, width, scratch, found);
        let fine = (&self.fine, &side.fine, &others.fine, &limits.fine, &of_others.fine);
        if let (Some(scale), Some(codes), Some(of_b), Some(limits), Some(of_others)) = fine {
            let a = Block::of(codes, scale.width, task.a, limits);
            let b = Block::of(of_b, scale.width, task.b, of_others);
            unit.keep(&a, &b, scale.width, found);
        }
    }
}

impl<'a> Side<'a> {
    fn new(
        vectors: &'a Vectors<'a>,
        rows: &[u32],
        (codes, fine): (Codes, Option<Codes>),
        scales: &Scales<'_>,
        groups: impl FnOnce(&Codes) -> Vec<u32>,
    ) -> Self {
        let groups = groups(&codes);
        let order = order(&groups);
        let codes = codes.reordered(&order, scales.coarse.width);
        let fine = fine.zip(scales.fine.as_ref()).map(|(fine, scale)| fine.reordered(&order, scale.width));
        let mut places = BTreeMap::new();
        for (place, &row) in order.iter().enumerate() {
            places.entry(groups[row as usize]).or_insert(place);
        }
        Self { vectors, rows: order.iter().map(|&at| rows[at as usize]).collect(), codes, fine, groups: places }
    }

    fn score(&self, place: usize, other: &Side<'_>, of_other: usize) -> f64 {
        self.vectors.score(self.rows[place], other.vectors, other.rows[of_other])
    }

    /// The first place of the group in which a place of `other` is.
    fn near(&self, other: &Side<'_>, place: usize) -> usize {
        let group = other.groups.iter().filter(|&(_, &first)| first <= place).max_by_key(|&(_, &first)| first);
        group.and_then(|(group, _)| self.groups.get(group)).copied().unwrap_or(0)
    }

    fn neighbors(self, tops: Vec<Mutex<Top>>, stats: Stats) -> Neighbors {
        let mut places = vec![u32::MAX; self.vectors.len()];
        for (place, &row) in self.rows.iter().enumerate() {
            places[row as usize] = place as u32;
        }
        let blocks = tops.into_iter().map(|top| top.into_inner().unwrap_or_else(PoisonError::into_inner)).collect();
        Neighbors { blocks, block: BLOCK, places, stats }
    }
}

/// At most so many of some rows, evenly.
fn some(rows: &[u32], most: usize) -> Vec<u32> {
    let count = rows.len().min(most);
    (0..count).map(|number| rows[number * rows.len() / count]).collect()
}

fn tops(rows: usize, k: usize) -> Vec<Mutex<Top>> {
    (0..rows).step_by(BLOCK).map(|first| Mutex::new(Top::new(BLOCK.min(rows - first), k))).collect()
}

/// Each block with itself, then with the next one, and so on: what is near comes first.
fn symmetric(blocks: usize) -> Vec<Task> {
    let both = |step: usize| (0..blocks).map(move |a| Task { a, b: (a + step) % blocks });
    let half = |step: usize| if 2 * step == blocks && step > 0 { blocks / 2 } else { blocks };
    (0..=blocks / 2).flat_map(|step| both(step).take(half(step))).collect()
}

/// Number of pairs of some rows.
fn among(rows: &[u32]) -> u64 {
    let count = rows.len() as u64;
    count * count.saturating_sub(1) / 2
}

fn check(queries: &Vectors<'_>, vectors: &Vectors<'_>) -> Result<(), SearchError> {
    match queries.dim() == vectors.dim() && queries.metric() == vectors.metric() {
        true => Ok(()),
        false => Err(SearchError::Dimensions { queries: queries.dim(), vectors: vectors.dim() }),
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
