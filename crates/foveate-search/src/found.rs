use crate::top::Top;

/// Counts of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Pairs of rows, each counted once.
    pub pairs: u64,
    /// Pairs whose scores were computed, the first look at neighbouring rows included.
    pub scored: u64,
    /// Directions of which codes were made.
    pub width: usize,
}

/// Two rows, and their score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// The lower row; with other vectors, the row of these.
    pub row: u32,
    /// The higher row.
    pub other: u32,
    /// See [`Metric`](crate::Metric).
    pub score: f64,
}

impl Pair {
    /// Orders pairs by score, then by rows.
    pub(crate) fn is_below(&self, other: &Self) -> bool {
        (self.score, self.row, self.other) < (other.score, other.row, other.other)
    }

    pub(crate) fn to_bytes(self) -> [u8; 16] {
        let rows = u128::from(self.row) << 96 | u128::from(self.other) << 64;
        (rows | u128::from(self.score.to_bits())).to_le_bytes()
    }

    pub(crate) fn from_bytes(bytes: [u8; 16]) -> Self {
        let number = u128::from_le_bytes(bytes);
        Self { row: (number >> 96) as u32, other: (number >> 64) as u32, score: f64::from_bits(number as u64) }
    }
}

/// All pairs from some score on.
#[derive(Debug)]
pub struct Pairs {
    /// By row, then by the other row.
    pub pairs: Vec<Pair>,
    /// Cost of the search.
    pub stats: Stats,
}

/// The neighbours of every row, best first.
pub struct Neighbors {
    /// In blocks of rows, in the order in which they were searched.
    pub(crate) blocks: Vec<Top>,
    pub(crate) block: usize,
    /// Of each row, its place in the search; `u32::MAX` for rows that are not searched.
    pub(crate) places: Vec<u32>,
    pub(crate) stats: Stats,
}

impl Neighbors {
    /// The rows that are nearest to row `row`, with their scores, best first; of equal scores, the lower row first.
    /// There are fewer than asked for if there are not more, and none for a row that is not searched.
    pub fn of(&self, row: usize) -> impl Iterator<Item = (u32, f64)> + '_ {
        let place = Some(self.places[row] as usize).filter(|&place| place != u32::MAX as usize);
        place.into_iter().flat_map(|place| self.blocks[place / self.block].of(place % self.block))
    }

    /// Cost of the search.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}
