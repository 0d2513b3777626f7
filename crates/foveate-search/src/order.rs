use crate::codes::Codes;
use crate::screen::{Unit, product};

/// Rows that stand for groups of others.
const PIVOTS: usize = 256;

/// Groups of rows that are probably near each other. They decide how fast a search is, and not what it finds.
pub(crate) struct Groups {
    /// `[pivots, width]`
    pivots: Vec<i8>,
    /// Half the square of each pivot's length.
    halves: Vec<i32>,
    width: usize,
}

impl Groups {
    /// Groups around some of the first `count` rows.
    pub(crate) fn around(codes: &Codes, count: usize, width: usize) -> Self {
        let pivots = PIVOTS.min(count.div_ceil(8));
        let chosen = (0..pivots).map(|pivot| pivot * count / pivots);
        let pivots: Vec<i8> = chosen.flat_map(|row| codes.codes[row * width..][..width].iter().copied()).collect();
        let halves = pivots.chunks_exact(width).map(|pivot| product(pivot, pivot) / 2).collect();
        Self { pivots, halves, width }
    }

    /// The group of each of the first `count` rows.
    pub(crate) fn of(&self, codes: &Codes, count: usize, threads: usize) -> Vec<u32> {
        let mut groups = vec![0; count];
        let share = count.div_ceil(threads.max(1)).max(1);
        std::thread::scope(|scope| {
            for (groups, codes) in groups.chunks_mut(share).zip(codes.codes.chunks(share * self.width)) {
                scope.spawn(|| Unit::detected().nearest(codes, &self.pivots, &self.halves, self.width, groups));
            }
        });
        groups
    }
}

/// The order of groups: of each place, the row that comes there.
pub(crate) fn order(groups: &[u32]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..groups.len() as u32).collect();
    order.sort_by_key(|&row| groups[row as usize]);
    order
}

impl Codes {
    /// Moves the rows to another order, without a second copy of them.
    pub(crate) fn reorder(&mut self, order: &[u32], width: usize) {
        let biases: Vec<i32> = order.iter().map(|&row| self.biases[row as usize]).collect();
        self.biases[..order.len()].copy_from_slice(&biases);
        // Rows move in cycles. A row that is in its place comes from there.
        let mut from = order.to_vec();
        for start in 0..from.len() {
            let first = self.codes[start * width..][..width].to_vec();
            let mut place = start;
            loop {
                let next = std::mem::replace(&mut from[place], place as u32) as usize;
                if next == start {
                    break;
                }
                self.codes.copy_within(next * width..(next + 1) * width, place * width);
                place = next;
            }
            self.codes[place * width..][..width].copy_from_slice(&first);
        }
    }
}
