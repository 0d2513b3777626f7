use std::io::{self, Read, Write};

use crate::bytes::{get, put};

/// The best rows of several others, best first. Of equal scores, the lower row is better.
pub(crate) struct Top {
    k: usize,
    /// Of each row, how many are known.
    known: Vec<u32>,
    /// `[rows, k]`
    scores: Vec<f64>,
    /// `[rows, k]`
    rows: Vec<u32>,
}

impl Top {
    pub(crate) fn new(count: usize, k: usize) -> Self {
        Self { k, known: vec![0; count], scores: vec![0.0; count * k], rows: vec![0; count * k] }
    }

    /// Of each row, the score below which nothing is better than what is known.
    pub(crate) fn least(&self) -> impl Iterator<Item = f64> + Clone + '_ {
        let last = self.scores.chunks_exact(self.k).map(|scores| scores[self.k - 1]);
        let is_full = self.known.iter().map(|&known| known as usize == self.k);
        last.zip(is_full).map(|(last, is_full)| if is_full { last } else { f64::NEG_INFINITY })
    }

    /// Returns true if the row at a place is worse than `row` with this score.
    #[inline(always)]
    fn is_worse(&self, place: usize, score: f64, row: u32) -> bool {
        score > self.scores[place] || score == self.scores[place] && row < self.rows[place]
    }

    pub(crate) fn push(&mut self, at: usize, score: f64, row: u32) {
        let known = self.known[at] as usize;
        let first = at * self.k;
        if known == self.k && !self.is_worse(first + known - 1, score, row) {
            return;
        }
        let mut place = first;
        let mut end = first + known;
        while place < end {
            let middle = usize::midpoint(place, end);
            if self.is_worse(middle, score, row) { end = middle } else { place = middle + 1 }
        }
        if place > first && self.rows[place - 1] == row {
            return;
        }
        let end = first + (known + 1).min(self.k);
        self.scores.copy_within(place..end - 1, place + 1);
        self.rows.copy_within(place..end - 1, place + 1);
        self.scores[place] = score;
        self.rows[place] = row;
        self.known[at] = (end - first) as u32;
    }

    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        put(out, &self.known, u32::to_le_bytes)?;
        put(out, &self.scores, f64::to_le_bytes)?;
        put(out, &self.rows, u32::to_le_bytes)
    }

    pub(crate) fn read(&mut self, input: &mut dyn Read) -> io::Result<()> {
        get(input, &mut self.known, u32::from_le_bytes)?;
        get(input, &mut self.scores, f64::from_le_bytes)?;
        get(input, &mut self.rows, u32::from_le_bytes)
    }

    pub(crate) fn of(&self, at: usize) -> impl Iterator<Item = (u32, f64)> + '_ {
        let places = at * self.k..at * self.k + self.known[at] as usize;
        self.rows[places.clone()].iter().copied().zip(self.scores[places].iter().copied())
    }
}
