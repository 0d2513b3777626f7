//! The instruction sets that the kernels are compiled for.

use pulp::{Arch, Simd, WithSimd};

use crate::kernel::amx::Tiles;
use crate::kernel::dot::{Bf16Unit, I8Unit};

/// The type to which a product's factors are rounded. Sums are f32, or exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    F32,
    Bf16,
    I8,
}

/// The instruction set in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Isa {
    arch: Arch,
    bf16: Bf16Unit,
    i8: I8Unit,
    tiles: Option<Tiles>,
}

/// The environment variable that chooses an instruction set, so that several machines have the same bits.
const VARIABLE: &str = "FOVEATE_INSTRUCTIONS";

impl Isa {
    /// Detects the best instruction set that this processor has. The environment variable `FOVEATE_INSTRUCTIONS` may
    /// name another one.
    ///
    /// # Errors
    /// If the variable names a set that this processor lacks.
    pub(crate) fn detect() -> Result<Self, String> {
        let all = Self::all();
        let Some(name) = std::env::var_os(VARIABLE) else { return Ok(all[0]) };
        let found = all.iter().find(|isa| name == isa.name());
        found.copied().ok_or_else(|| {
            let names = all.iter().map(|isa| isa.name()).collect::<Vec<_>>().join(", ");
            format!("{VARIABLE}={}: this processor has {names}", name.display())
        })
    }

    /// Runs `op` compiled for this instruction set.
    pub(crate) fn run<Op: WithSimd>(self, op: Op) -> Op::Output {
        self.arch.dispatch(op)
    }

    /// The number of f32 values in a vector.
    pub(crate) fn lanes(self) -> usize {
        self.run(LaneCount)
    }

    pub(crate) fn bf16_unit(self) -> Bf16Unit {
        self.bf16
    }

    pub(crate) fn i8_unit(self) -> I8Unit {
        self.i8
    }

    /// The tile registers that linear layers below f32 use.
    pub(crate) fn tiles(self) -> Option<Tiles> {
        self.tiles
    }

    /// The instruction set and the precisions that it multiplies faster than f32, for reports.
    pub(crate) fn describe(self) -> String {
        #[cfg(target_arch = "x86_64")]
        let fast_bf16 = self.bf16 == Bf16Unit::Avx512;
        #[cfg(not(target_arch = "x86_64"))]
        let fast_bf16 = false;
        match (fast_bf16, self.has_fast_i8()) {
            (true, _) => format!("{}: f32, fast bf16 and i8", self.name()),
            (false, true) => format!("{}: f32, fast i8", self.name()),
            (false, false) => format!("{}: f32", self.name()),
        }
    }

    /// Returns true if products of 8-bit integers are faster than those of f32.
    pub(crate) fn has_fast_i8(self) -> bool {
        self.i8 != I8Unit::Scalar
    }

    /// Every instruction set that this processor can run, best first.
    pub(crate) fn all() -> Vec<Self> {
        let plain = |arch| Self { arch, bf16: Bf16Unit::Fused, i8: I8Unit::Scalar, tiles: None };
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            if let Some(v4) = pulp::x86::V4::try_new() {
                let avx512 = Self { i8: I8Unit::Avx512, ..plain(Arch::V4(v4)) };
                let vnni = Self { i8: I8Unit::Vnni, ..avx512 };
                if has!("avx512vnni") && has!("avx512bf16") {
                    let bf16 = Self { bf16: Bf16Unit::Avx512, ..vnni };
                    all.extend(Tiles::detect().map(|tiles| Self { tiles: Some(tiles), ..bf16 }));
                    all.push(bf16);
                    #[cfg(test)]
                    all.push(Self { tiles: Some(Tiles::Model), ..bf16 });
                }
                all.extend(has!("avx512vnni").then_some(vnni));
                all.push(avx512);
            }
            if let Some(v3) = pulp::x86::V3::try_new() {
                all.push(Self { i8: I8Unit::Avx2, ..plain(Arch::V3(v3)) });
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        if !matches!(Arch::new(), Arch::Scalar) {
            all.push(plain(Arch::new()));
        }
        all.push(plain(Arch::Scalar));
        all
    }

    /// The instruction sets that give the same bits as this one, by what they have in common.
    pub(crate) fn family(self, precision: Precision) -> &'static str {
        if self.lanes() == 1 {
            return "scalar";
        }
        // Tile registers add in an order of their own, and have no f32.
        if self.tiles.is_some() && precision != Precision::F32 { "amx" } else { "fma" }
    }

    /// The name of this instruction set.
    pub(crate) fn name(self) -> &'static str {
        #[cfg(target_arch = "x86_64")]
        match (self.bf16, self.i8) {
            (Bf16Unit::Avx512, _) if self.tiles == Some(Tiles::Amx) => return "amx",
            #[cfg(test)]
            (Bf16Unit::Avx512, _) if self.tiles.is_some() => return "amx-model",
            (Bf16Unit::Avx512, _) => return "avx512-bf16",
            (_, I8Unit::Vnni) => return "avx512-vnni",
            (_, I8Unit::Avx512) => return "avx512",
            (_, I8Unit::Avx2) => return "avx2",
            _ => {}
        }
        if self.lanes() > 1 { "neon" } else { "scalar" }
    }
}

struct LaneCount;

impl WithSimd for LaneCount {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> usize {
        S::F32_LANES
    }
}
