//! The order in which coefficients are coded.

/// Natural order of the coefficients as they are coded; the entries past the last one serve runs that leave the block.
pub(crate) const ZIGZAG: [u8; 128] = {
    let mut order = [63; 128];
    let mut x = 0usize;
    let mut y = 0usize;
    let mut k = 0usize;
    while k < 64 {
        order[k] = (y * 8 + x) as u8;
        let upwards = (x + y).is_multiple_of(2);
        match (upwards, x, y) {
            (true, 7, _) => y += 1,
            (true, _, 0) => x += 1,
            (true, ..) => {
                x += 1;
                y -= 1;
            }
            (false, _, 7) => x += 1,
            (false, 0, _) => y += 1,
            (false, ..) => {
                x -= 1;
                y += 1;
            }
        }
        k += 1;
    }
    order
};

/// The natural index of coefficient `k` in a block.
#[inline(always)]
pub(crate) fn natural(k: usize) -> usize {
    usize::from(index(k) & 63)
}

/// [`natural`] for a scratch block, whose index needs no check.
#[inline(always)]
pub(crate) fn index(k: usize) -> u8 {
    ZIGZAG[k & 127]
}
