//! The arithmetic of the CPU forward: safe SIMD, chosen for the processor at run time.
//!
//! Every kernel is written once over [`pulp::Simd`] and compiled for AVX-512, AVX2 with FMA, NEON and plain scalar
//! code. All of them compute **every output value by one fixed sequence of operations**. It depends neither on how rows
//! are grouped into tiles, batches and threads, nor on the width of a vector: sums along vectors run over 64 virtual
//! lanes, sums down columns in order. An image's vector therefore has the same bits in any batch, with any number of
//! threads, and on any processor with fused multiply-add.

pub(crate) mod attention;
pub(crate) mod linear;
pub(crate) mod math;
pub(crate) mod norm;

use pulp::{Arch, Simd, WithSimd};

/// Rows of the tallest tile: eight rows by three vectors use 24 of 32 registers as accumulators.
pub(crate) const MAX_TILE_ROWS: usize = 8;
/// Vectors in a row of the widest tile.
pub(crate) const MAX_TILE_VECTORS: usize = 3;
/// Lanes of the widest supported vector.
pub(crate) const MAX_LANES: usize = 16;

/// The instruction set in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Isa(Arch);

impl Isa {
    /// Detects the best instruction set that this processor has.
    pub(crate) fn detect() -> Self {
        Self(Arch::new())
    }

    /// Runs `op` compiled for this instruction set.
    pub(crate) fn run<Op: WithSimd>(self, op: Op) -> Op::Output {
        self.0.dispatch(op)
    }

    /// The number of f32 values in a vector.
    pub(crate) fn lanes(self) -> usize {
        self.run(Lanes)
    }

    /// Every instruction set that this processor can run, best first.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Self> {
        let mut all = vec![Arch::new()];
        #[cfg(target_arch = "x86_64")]
        if let (Arch::V4(_), Some(v3)) = (all[0], pulp::x86::V3::try_new()) {
            all.push(Arch::V3(v3));
        }
        all.push(Arch::Scalar);
        all.into_iter().map(Self).collect()
    }
}

struct Lanes;

impl WithSimd for Lanes {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> usize {
        S::F32_LANES
    }
}

/// Returns how many of the `left` rows the next tile takes.
#[inline(always)]
fn tile_rows<S: Simd>(left: usize) -> usize {
    match left {
        8.. if S::REGISTER_COUNT >= 32 => 8,
        4.. => 4,
        2.. => 2,
        _ => 1,
    }
}

/// Loads a whole vector, or a partial one padded with zeros.
#[inline(always)]
fn load<S: Simd>(simd: S, src: &[f32]) -> S::f32s {
    match S::as_simd_f32s(src) {
        ([first, ..], _) => *first,
        ([], rest) => simd.partial_load_f32s(rest),
    }
}

/// Stores a vector, or as much of it as fits `dst`.
#[inline(always)]
fn store<S: Simd>(simd: S, dst: &mut [f32], value: S::f32s) {
    match S::as_mut_simd_f32s(dst) {
        ([first, ..], _) => *first = value,
        ([], rest) => simd.partial_store_f32s(rest, value),
    }
}
