use crate::codes::Codes;
use crate::screen::product;

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
        let nearest = |row: &[i8]| {
            let pivots = self.pivots.chunks_exact(self.width).zip(&self.halves).enumerate();
            let best =
                pivots.max_by_key(|(group, (pivot, half))| (product(row, pivot) - **half, std::cmp::Reverse(*group)));
            best.map_or(0, |(group, _)| group as u32)
        };
        let (mut groups, share) = (vec![0; count], count.div_ceil(threads.max(1)).max(1));
        std::thread::scope(|scope| {
            for (groups, codes) in groups.chunks_mut(share).zip(codes.codes.chunks(share * self.width)) {
                scope.spawn(move || {
                    for (group, row) in groups.iter_mut().zip(codes.chunks_exact(self.width)) {
                        *group = nearest(row);
                    }
                });
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
    /// The rows in another order.
    pub(crate) fn reordered(&self, order: &[u32], width: usize) -> Self {
        let mut codes = Vec::with_capacity(self.codes.len());
        for &row in order {
            codes.extend_from_slice(&self.codes[row as usize * width..][..width]);
        }
        codes.resize(self.codes.len(), 0);
        let biases = order.iter().map(|&row| self.biases[row as usize]);
        Self { codes, biases: biases.chain(self.biases[order.len()..].iter().copied()).collect() }
    }
}
