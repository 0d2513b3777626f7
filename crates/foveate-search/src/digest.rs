use std::io::{self, Read, Write};
use std::sync::{Mutex, PoisonError};

use crate::bytes::{get, put};
use crate::found::{Pair, Stats};
use crate::nearest::PairSink;
use crate::search::lock;
use crate::state::SavedFindings;
use crate::{Search, SearchError, Vectors};

/// Groups of near rows, which take memory for the rows and not for their pairs: of 60,000 near rows there are 1.8
/// billion pairs.
pub struct Duplicates {
    digest: PairDigest,
    /// Cost of the search.
    pub stats: Stats,
}

/// Groups, neighbours and examples, into which pairs go.
#[derive(Clone)]
struct PairDigest {
    /// In order.
    thresholds: Vec<f64>,
    /// The rows that chains of pairs join, from each threshold on; none with other vectors.
    forests: Vec<Forest>,
    /// With other vectors, the nearest of these.
    best: Vec<(f64, u32)>,
    /// From each threshold on, the pairs with the lowest scores.
    examples: Vec<Vec<Pair>>,
    most_examples: usize,
}

/// Trees of rows. Each row has the number of another one of its tree, or its own.
#[derive(Clone)]
struct Forest(Vec<u32>);

/// No row is as near as the threshold.
const NONE: (f64, u32) = (f64::NEG_INFINITY, u32::MAX);

impl Search<'_> {
    /// Bytes that [`duplicates`](Self::duplicates) takes in addition to [`memory`](Self::memory) and
    /// [`memory_of_threads`](Self::memory_of_threads).
    pub fn memory_of_duplicates(&self, rows: usize, thresholds: usize) -> u64 {
        (4 * thresholds + 16) as u64 * rows as u64
    }

    /// Finds the groups of rows whose score is at least a threshold, for each of `thresholds`, which are in order. With
    /// `others`, finds the nearest of these for each row. Up to `examples` pairs that just reach a threshold are kept.
    ///
    /// # Errors
    /// [`SearchError::Dimensions`] and [`SearchError::Cancelled`].
    pub fn duplicates(
        &self,
        vectors: &Vectors<'_>,
        others: Option<&Vectors<'_>>,
        thresholds: &[f64],
        examples: usize,
    ) -> Result<Duplicates, SearchError> {
        let empty = PairDigest {
            thresholds: thresholds.to_vec(),
            forests: Vec::new(),
            best: Vec::new(),
            examples: vec![Vec::new(); thresholds.len()],
            most_examples: examples,
        };
        let least = thresholds.first().copied().unwrap_or(f64::INFINITY);
        let (digest, stats) = match others {
            Some(others) => self.each_pair_with(vectors, others, least, || {
                Mutex::new(PairDigest { best: vec![NONE; vectors.len()], ..empty.clone() })
            })?,
            None => self.each_pair(vectors, least, || {
                let forest = Forest((0..vectors.len() as u32).collect());
                Mutex::new(PairDigest { forests: vec![forest; thresholds.len()], ..empty.clone() })
            })?,
        };
        Ok(Duplicates { digest: digest.into_inner().unwrap_or_else(PoisonError::into_inner), stats })
    }
}

impl Duplicates {
    /// Groups of two rows or more that chains of pairs join from threshold `number` on. Groups are in the order of
    /// their first rows, and rows in order.
    pub fn groups(&self, number: usize) -> Vec<Vec<u32>> {
        let forest = &self.digest.forests[number];
        let mut sizes = vec![0_u32; forest.0.len()];
        for row in 0..forest.0.len() as u32 {
            sizes[forest.root(row) as usize] += 1;
        }
        // The root is the first row of its tree.
        let mut groups = Vec::<Vec<u32>>::new();
        let mut places = vec![0; sizes.len()];
        for row in 0..forest.0.len() as u32 {
            let root = forest.root(row) as usize;
            if sizes[root] < 2 {
                continue;
            }
            if root == row as usize {
                places[root] = groups.len();
                groups.push(Vec::with_capacity(sizes[root] as usize));
            }
            groups[places[root]].push(row);
        }
        groups
    }

    /// The nearest of the other vectors, and the score, for a row that has one from the first threshold on. Of equal
    /// scores, the lower row is nearer.
    pub fn nearest(&self, row: u32) -> Option<(u32, f64)> {
        let &(score, other) = self.digest.best.get(row as usize)?;
        (other != NONE.1).then_some((other, score))
    }

    /// The pairs with the lowest scores from threshold `number` on.
    pub fn examples(&self, number: usize) -> &[Pair] {
        &self.digest.examples[number]
    }
}

impl Forest {
    fn root(&self, mut row: u32) -> u32 {
        while self.0[row as usize] != row {
            row = self.0[row as usize];
        }
        row
    }

    /// Joins the trees of two rows. Returns false if they are one.
    fn join(&mut self, a: u32, b: u32) -> bool {
        let a = self.shorten(a);
        let b = self.shorten(b);
        self.0[a.max(b) as usize] = a.min(b);
        a != b
    }

    /// The root of a row, which is fewer steps away then.
    fn shorten(&mut self, mut row: u32) -> u32 {
        while self.0[row as usize] != row {
            let next = self.0[row as usize];
            self.0[row as usize] = self.0[next as usize];
            row = next;
        }
        row
    }
}

impl PairDigest {
    fn add(&mut self, pair: Pair) {
        let reached = self.thresholds.partition_point(|&threshold| threshold <= pair.score);
        // Rows that are joined from one threshold on are so from lower ones on.
        for forest in self.forests.iter_mut().take(reached).rev() {
            if !forest.join(pair.row, pair.other) {
                break;
            }
        }
        if let Some(best) = self.best.get_mut(pair.row as usize)
            && (pair.score > best.0 || pair.score == best.0 && pair.other < best.1)
        {
            *best = (pair.score, pair.other);
        }
        for examples in &mut self.examples[..reached] {
            let place = examples.partition_point(|other| other.is_below(&pair));
            if place < self.most_examples {
                examples.truncate(self.most_examples - 1);
                examples.insert(place, pair);
            }
        }
    }
}

impl PairSink for Mutex<PairDigest> {
    /// So that a saved state of pairs is not taken for one of groups.
    const KIND: u64 = 0x6469_6765_7374_0000;

    fn add(&self, pairs: &[Pair]) -> Result<(), SearchError> {
        let mut digest = lock(self);
        pairs.iter().for_each(|&pair| digest.add(pair));
        Ok(())
    }
}

impl SavedFindings for Mutex<PairDigest> {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let digest = lock(self);
        digest.forests.iter().try_for_each(|forest| put(out, &forest.0, u32::to_le_bytes))?;
        put(out, &digest.best, |(score, _)| score.to_le_bytes())?;
        put(out, &digest.best, |(_, row)| row.to_le_bytes())?;
        for examples in &digest.examples {
            put(out, &[examples.len() as u64], u64::to_le_bytes)?;
            put(out, examples, Pair::to_bytes)?;
        }
        Ok(())
    }

    fn read(new: Self, input: &mut dyn Read) -> io::Result<Self> {
        let mut digest = lock(&new);
        let PairDigest { forests, best, examples, most_examples, .. } = &mut *digest;
        for forest in forests {
            get(input, &mut forest.0, u32::from_le_bytes)?;
        }
        let mut scores = vec![0.0; best.len()];
        let mut rows = vec![0; best.len()];
        get(input, &mut scores, f64::from_le_bytes)?;
        get(input, &mut rows, u32::from_le_bytes)?;
        best.iter_mut().zip(scores.into_iter().zip(rows)).for_each(|(best, known)| *best = known);
        for examples in examples {
            let mut count = [0];
            get(input, &mut count, u64::from_le_bytes)?;
            if count[0] > *most_examples as u64 {
                return Err(io::ErrorKind::InvalidData.into());
            }
            *examples = vec![Pair { row: 0, other: 0, score: 0.0 }; count[0] as usize];
            get(input, examples, Pair::from_bytes)?;
        }
        drop(digest);
        Ok(new)
    }
}
