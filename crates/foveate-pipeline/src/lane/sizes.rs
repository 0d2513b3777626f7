use foveate_encode::BATCH_SIZES;

/// The batch sizes that a device is given: any other batch is padded to the next larger one. The device thus prepares
/// its product plans and its captured graph once per size.
pub(crate) struct LaneSizes(Vec<usize>);

impl LaneSizes {
    /// Chooses at most [`BATCH_SIZES`] sizes up to `max`. Each is smaller than the one above it by a fixed fraction,
    /// the smallest fraction that leads down to 1.
    pub(crate) fn new(max: usize) -> Self {
        let mut sizes =
            (2..=max.max(2)).map(|part| descend(max, part)).take_while(|sizes| sizes.len() <= BATCH_SIZES).last();
        sizes.get_or_insert_with(|| descend(max, 2)).truncate(BATCH_SIZES);
        Self(sizes.unwrap_or_default())
    }

    /// Returns the smallest size with room for `images`.
    pub(crate) fn padded(&self, images: usize) -> usize {
        self.0.iter().rev().find(|&&size| size >= images).copied().unwrap_or(images)
    }
}

/// Lists sizes from `max` down to 1, each smaller than the last by one `part`-th.
fn descend(max: usize, part: usize) -> Vec<usize> {
    let sizes =
        std::iter::successors(Some(max.max(1)), |size| Some(size - size.div_ceil(part)).filter(|&size| size > 0));
    sizes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_few_and_have_room_for_every_batch() {
        assert_eq!(LaneSizes::new(1).0, [1]);
        assert_eq!(LaneSizes::new(5).0, [5, 4, 3, 2, 1]);
        assert_eq!(LaneSizes::new(32).0, [32, 24, 18, 13, 9, 6, 4, 3, 2, 1]);
        for max in 1..=2_000 {
            let sizes = LaneSizes::new(max);
            assert!(sizes.0.len() <= BATCH_SIZES && sizes.0[0] == max, "{max}: {:?}", sizes.0);
            for images in 1..=max {
                let padded = sizes.padded(images);
                let is_smallest = sizes.0.iter().all(|&size| size < images || size >= padded);
                assert!((images..=max).contains(&padded) && is_smallest, "{images} of {max}: {padded}");
                let most = if max <= 1_024 { 2 * images } else { usize::MAX };
                assert!(padded <= most, "{images} of {max}: {padded}");
            }
        }
    }
}
