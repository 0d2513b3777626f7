//! Finds the pairs whose bound reaches a limit.

mod block;
#[cfg(target_arch = "x86_64")]
mod vnni;

use block::product;
pub(crate) use block::{CodeBlock, FineBlock};

use crate::codes::FineScale;
use crate::order::{LEAF, LeafMask, is_leaf};

/// Instructions that multiply codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// `vpdpbusd` on 512 bits.
    #[cfg(target_arch = "x86_64")]
    Vnni,
    /// The compiler's choice for AVX2.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Plain integers.
    Portable,
}

/// Memory of a thread that is used again.
#[derive(Default)]
pub(crate) struct ThreadScratch {
    #[cfg(target_arch = "x86_64")]
    panels: Vec<u8>,
}

impl Unit {
    /// The fastest of this processor.
    pub(crate) fn detected() -> Self {
        Self::ALL.into_iter().find(|unit| unit.is_here()).unwrap_or(Self::Portable)
    }

    /// Fastest first.
    #[cfg(target_arch = "x86_64")]
    pub(crate) const ALL: [Self; 3] = [Self::Vnni, Self::Avx2, Self::Portable];
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) const ALL: [Self; 1] = [Self::Portable];

    pub(crate) fn is_here(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Vnni => vnni::is_here(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => std::arch::is_x86_feature_detected!("avx2"),
            Self::Portable => true,
        }
    }

    /// Finds pairs of a row of `a` and a row of `b`, in any order. `kept` has, for each leaf of `b`, the leaves of `a`
    /// with which it is compared.
    pub(crate) fn find(
        self,
        a: &CodeBlock<'_>,
        b: &CodeBlock<'_>,
        kept: &[LeafMask],
        width: usize,
        scratch: &mut ThreadScratch,
        found: &mut Vec<(u32, u32)>,
    ) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Vnni => vnni::find(a, b, kept, width, &mut scratch.panels, found),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the unit is chosen on processors that have the instructions.
            #[allow(unsafe_code)]
            Self::Avx2 => unsafe { find_with_avx2(a, b, kept, width, found) },
            Self::Portable => find_plainly(a, b, kept, width, found),
        }
        let _ = scratch;
    }

    /// Keeps the pairs that reach their limits with the codes of what their first codes leave.
    pub(crate) fn keep(self, a: &FineBlock<'_>, b: &FineBlock<'_>, scale: &FineScale, found: &mut Vec<(u32, u32)>) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Vnni => vnni::keep(a, b, scale, found),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the unit is chosen on processors that have the instructions.
            #[allow(unsafe_code)]
            Self::Avx2 => unsafe { keep_with_avx2(a, b, scale, found) },
            Self::Portable => keep_plainly(a, b, scale, found),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn find_with_avx2(a: &CodeBlock<'_>, b: &CodeBlock<'_>, kept: &[LeafMask], width: usize, found: &mut Vec<(u32, u32)>) {
    find_plainly(a, b, kept, width, found);
}

#[inline(always)]
fn find_plainly(a: &CodeBlock<'_>, b: &CodeBlock<'_>, kept: &[LeafMask], width: usize, found: &mut Vec<(u32, u32)>) {
    for i in 0..a.biases.len() as u32 {
        for j in 0..b.biases.len() as u32 {
            let is_kept = is_leaf(kept[j as usize / LEAF], i as usize);
            if is_kept && a.reaches(b, i, j, |i, j| product(a.row(i, width), b.row(j, width))) {
                found.push((i, j));
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn keep_with_avx2(a: &FineBlock<'_>, b: &FineBlock<'_>, scale: &FineScale, found: &mut Vec<(u32, u32)>) {
    keep_plainly(a, b, scale, found);
}

#[inline(always)]
fn keep_plainly(a: &FineBlock<'_>, b: &FineBlock<'_>, scale: &FineScale, found: &mut Vec<(u32, u32)>) {
    found.retain(|&(i, j)| a.reaches(b, i, j, scale, product));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::{Codes, NEVER};

    #[test]
    fn all_units_find_the_same() {
        let mut random = fastrand::Rng::with_seed(3);
        for (rows, others, width) in [(4, 4, 4), (12, 68, 64), (256, 1024, 100), (1024, 200, 384)] {
            let mut codes = |rows: usize| Codes {
                codes: (0..rows * width).map(|_| random.i8(-127..=127)).collect(),
                biases: (0..rows).map(|row| if row + 2 == rows { NEVER } else { random.i32(-9000..9000) }).collect(),
            };
            let a = codes(rows);
            let b = codes(others);
            let mut limits = |count: usize| (0..count).map(|_| random.i32(20_000..200_000)).collect::<Vec<_>>();
            let of_a = limits(rows);
            let of_b = limits(others);
            let kept: Vec<LeafMask> = (0..others.div_ceil(LEAF)).map(|_| random.u16(..)).collect();
            let find = |unit: Unit| {
                let mut found = Vec::new();
                let a = CodeBlock::of(&a, width, 0, &of_a);
                let b = CodeBlock::of(&b, width, 0, &of_b);
                unit.find(&a, &b, &kept, width, &mut ThreadScratch::default(), &mut found);
                found.sort_unstable();
                found
            };
            let scale = FineScale::with_widths(width, 2 * width, 3);
            let mut rest = |rows: usize| Codes {
                codes: (0..rows * 2 * width).map(|_| random.i8(-127..=127)).collect(),
                biases: (0..rows).map(|_| random.i32(-9000..9000)).collect(),
            };
            let a_rest = rest(rows);
            let b_rest = rest(others);
            let keep = |unit: Unit| {
                let mut all: Vec<_> = (0..rows as u32).flat_map(|i| (0..others as u32).map(move |j| (i, j))).collect();
                let codes = CodeBlock::of(&a, width, 0, &of_a);
                let a = FineBlock { codes, rest: CodeBlock::of(&a_rest, 2 * width, 0, &of_a) };
                let codes = CodeBlock::of(&b, width, 0, &of_b);
                let b = FineBlock { codes, rest: CodeBlock::of(&b_rest, 2 * width, 0, &of_b) };
                unit.keep(&a, &b, &scale, &mut all);
                all
            };
            let expected = find(Unit::Portable);
            assert!(width < 64 || !expected.is_empty() && expected.len() < rows * others / 4, "{}", expected.len());
            for unit in Unit::ALL.into_iter().filter(|unit| unit.is_here()) {
                assert_eq!(find(unit), expected, "{unit:?} {rows} {others} {width}");
                assert_eq!(keep(unit), keep(Unit::Portable), "{unit:?} {rows} {others} {width}");
            }
        }
    }
}
