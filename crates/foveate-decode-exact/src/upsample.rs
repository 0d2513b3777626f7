//! Brings subsampled components to full size, with libjpeg's filters.

/// The way of one component to the image's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upsampling {
    /// It already has it.
    None,
    /// Twice as wide: 3:1 between neighbours.
    FancyH2V1,
    /// Twice as high: 3:1 between neighbours.
    FancyH1V2,
    /// Twice in both directions.
    FancyH2V2,
    /// Every sample repeated: `h` times in a row, `v` rows.
    Repeat { h: usize, v: usize },
}

impl Upsampling {
    /// Returns true if a row of the image depends on a row of the component above or below its own.
    pub(crate) fn needs_neighbours(self) -> bool {
        matches!(self, Self::FancyH1V2 | Self::FancyH2V2)
    }

    /// libjpeg's choice for a component of `h` x `v` samples where the picture has `max_h` x `max_v`. Without `fancy`,
    /// samples are repeated. `None` for a ratio that is not a whole number, which libjpeg refuses.
    pub(crate) fn choose(
        (h, v): (usize, usize),
        (max_h, max_v): (usize, usize),
        width: usize,
        fancy: bool,
    ) -> Option<Self> {
        if max_h % h != 0 || max_v % v != 0 {
            return None;
        }
        Some(match (max_h / h, max_v / v) {
            (1, 1) => Self::None,
            (2, 1) if fancy && width > 2 => Self::FancyH2V1,
            (1, 2) if fancy => Self::FancyH1V2,
            (2, 2) if fancy && width > 2 => Self::FancyH2V2,
            (h, v) => Self::Repeat { h, v },
        })
    }

    /// Image columns per component column.
    pub(crate) fn columns(self) -> usize {
        match self {
            Self::None | Self::FancyH1V2 => 1,
            Self::FancyH2V1 | Self::FancyH2V2 => 2,
            Self::Repeat { h, .. } => h,
        }
    }

    /// Image rows per component row.
    pub(crate) fn rows(self) -> usize {
        match self {
            Self::None | Self::FancyH2V1 => 1,
            Self::FancyH1V2 | Self::FancyH2V2 => 2,
            Self::Repeat { v, .. } => v,
        }
    }
}

/// Doubles `near`'s width.
#[inline(always)]
pub(crate) fn fancy_h2v1(near: &[u8], out: &mut [u8]) {
    let (pairs, _) = out.as_chunks_mut::<2>();
    let n = near.len();
    let pairs = &mut pairs[..near.len()];
    for (pair, three) in pairs[1..n - 1].iter_mut().zip(near.windows(3)) {
        let [left, own, right] = [three[0], three[1], three[2]].map(u16::from);
        *pair = [((own * 3 + left + 1) >> 2) as u8, ((own * 3 + right + 2) >> 2) as u8];
    }
    pairs[0] = [near[0], ((u16::from(near[0]) * 3 + u16::from(near[1]) + 2) >> 2) as u8];
    pairs[n - 1] = [((u16::from(near[n - 1]) * 3 + u16::from(near[n - 2]) + 1) >> 2) as u8, near[n - 1]];
}

/// A row at twice the height, between `near` and `far`; `bias` is 1 for the row above `near`'s middle, 2 below.
#[inline(always)]
pub(crate) fn fancy_h1v2(near: &[u8], far: &[u8], bias: u16, out: &mut [u8]) {
    for (out, (&near, &far)) in out.iter_mut().zip(near.iter().zip(far)) {
        *out = ((u16::from(near) * 3 + u16::from(far) + bias) >> 2) as u8;
    }
}

/// Four times a sample between two rows.
#[inline(always)]
fn weighted(near: u8, far: u8) -> u16 {
    u16::from(near) * 3 + u16::from(far)
}

/// The two samples that take the place of `own`, from [`weighted`] sums.
#[inline(always)]
fn both(left: u16, own: u16, right: u16) -> [u8; 2] {
    ((own * 3 + left + 8) >> 4 | (own * 3 + right + 7) >> 4 << 8).to_le_bytes()
}

/// A row at twice the width and height.
#[inline(always)]
pub(crate) fn fancy_h2v2(near: &[u8], far: &[u8], out: &mut [u8]) {
    /// Pairs whose sums are computed before they are used: a load must not wait for the store before it.
    const RUN: usize = 256;
    let (pairs, _) = out.as_chunks_mut::<2>();
    let n = near.len();
    let far = &far[..near.len()];
    let pairs = &mut pairs[..near.len()];
    let mut sums = [0; RUN + 2];
    for (run, pairs) in pairs[1..n - 1].chunks_mut(RUN).enumerate() {
        for (at, (&near, &far)) in sums.iter_mut().zip(near[run * RUN..].iter().zip(&far[run * RUN..])) {
            *at = weighted(near, far);
        }
        for (pair, sums) in pairs.iter_mut().zip(sums.windows(3)) {
            *pair = both(sums[0], sums[1], sums[2]);
        }
    }
    let first = weighted(near[0], far[0]);
    let last = weighted(near[n - 1], far[n - 1]);
    pairs[0] = both(first, first, weighted(near[1], far[1]));
    pairs[n - 1] = both(weighted(near[n - 2], far[n - 2]), last, last);
}

/// Repeats every sample `times` times.
#[inline(always)]
pub(crate) fn repeat(near: &[u8], times: usize, out: &mut [u8]) {
    for (copies, &sample) in out.chunks_exact_mut(times).zip(near) {
        copies.fill(sample);
    }
}
