//! Random orders that a seed decides.

/// Returns the order of `cells` in a round: shuffled by the seed, and reversed in every second round.
pub(crate) fn order(seed: u64, cells: usize, round: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..cells).collect();
    fastrand::Rng::with_seed(seed ^ (round as u64 / 2).wrapping_mul(0xd1b5_4a32_d192_ed03)).shuffle(&mut order);
    if round % 2 == 1 {
        order.reverse();
    }
    order
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
}
