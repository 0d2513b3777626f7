//! Random orders that a seed decides.

/// Returns the order of `cells` in a round: shuffled by the seed, and reversed in every second round.
pub(crate) fn order(seed: u64, cells: usize, round: usize) -> Vec<usize> {
    let mut random = SplitMix(seed ^ (round as u64 / 2).wrapping_mul(0xd1b5_4a32_d192_ed03));
    let mut order: Vec<usize> = (0..cells).collect();
    for last in (1..cells).rev() {
        order.swap(last, (random.next() % (last as u64 + 1)) as usize);
    }
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// Steele, Lea and Flood's SplitMix64.
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_permutations_that_the_seed_decides_and_every_second_one_goes_back() {
        for cells in [0, 1, 2, 7, 40] {
            for round in 0..6 {
                let mut sorted = order(3, cells, round);
                assert_eq!(sorted, order(3, cells, round));
                sorted.sort_unstable();
                assert_eq!(sorted, (0..cells).collect::<Vec<_>>());
            }
            let back: Vec<usize> = order(3, cells, 0).into_iter().rev().collect();
            assert_eq!(back, order(3, cells, 1));
        }
        assert_ne!(order(3, 40, 0), order(4, 40, 0));
        assert_ne!(order(3, 40, 0), order(3, 40, 2));
    }

    /// The first values for seed 0, from the reference code of its authors.
    #[test]
    fn splitmix_is_splitmix() {
        let mut random = SplitMix(0);
        assert_eq!([random.next(), random.next()], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }
}
