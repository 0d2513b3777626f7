//! AMX: products of sixteen input rows with a panel, in tile registers.
//!
//! A tile is sixteen rows of sixteen words. Rows of `x` and rows of a panel have that shape as they are, because a
//! panel holds, word by word, the words of sixteen outputs side by side.
//!
//! Few machines have AMX, so the tests also run the same code on a model of the instructions, and [`available`]
//! compares the real ones with plain sums before they are used.

use pulp::bytemuck;

use crate::kernel::TILE_WORDS as TILE;

/// The unit that multiplies tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tiles {
    #[cfg(target_arch = "x86_64")]
    Amx,
    /// A model of the instructions.
    #[cfg(test)]
    Model,
}

impl Tiles {
    /// Returns the processor's tile registers, if they can be used.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn detect() -> Option<Self> {
        x86::available().then_some(Self::Amx)
    }

    /// Prepares this thread's registers.
    #[inline(always)]
    pub(crate) fn configure(self) -> ConfiguredTiles {
        #[cfg(target_arch = "x86_64")]
        return ConfiguredTiles { tiles: self, _configured: (self == Self::Amx).then(x86::Configured::new) };
        #[cfg(not(target_arch = "x86_64"))]
        ConfiguredTiles { tiles: self }
    }
}

/// Tile registers that this thread may use.
pub(crate) struct ConfiguredTiles {
    tiles: Tiles,
    #[cfg(target_arch = "x86_64")]
    _configured: Option<x86::Configured>,
}

impl ConfiguredTiles {
    /// Multiplies sixteen rows of `x` by `NV` vectors of a panel, into rows of `out` that are side by side:
    /// `Σ (x − zero) · weight` of 8-bit integers, given zero points and the panel's `Σ weight`.
    #[inline(always)]
    pub(crate) fn integers<const NV: usize>(
        &self,
        factors: [Tiled<'_>; 2],
        depth: usize,
        zeros: &[i32],
        sums: &[i32],
        out: &mut [f32],
    ) {
        let bits: &mut [u32] = bytemuck::cast_slice_mut(out);
        self.product::<NV>(WordKind::I8, factors, depth, bits, NV * TILE, false);
        for (row, zero) in bits.chunks_exact_mut(NV * TILE).zip(zeros) {
            for (value, sum) in row.iter_mut().zip(sums) {
                *value = ((*value as i32 - zero * sum) as f32).to_bits();
            }
        }
    }

    /// Multiplies sixteen rows of `x` by `NV` vectors of a panel, in bf16, into rows of `out` that are
    /// `stride` apart, or adds to what is there if `adds`.
    #[inline(always)]
    pub(crate) fn bf16<const NV: usize>(
        &self,
        factors: [Tiled<'_>; 2],
        depth: usize,
        out: &mut [f32],
        stride: usize,
        adds: bool,
    ) {
        self.product::<NV>(WordKind::Bf16, factors, depth, bytemuck::cast_slice_mut(out), stride, adds);
    }

    #[inline(always)]
    fn product<const NV: usize>(
        &self,
        kind: WordKind,
        factors: [Tiled<'_>; 2],
        depth: usize,
        out: &mut [u32],
        stride: usize,
        adds: bool,
    ) {
        match self.tiles {
            #[cfg(target_arch = "x86_64")]
            Tiles::Amx => product::<x86::Amx, NV>(kind, factors, depth, out, stride, adds),
            #[cfg(test)]
            Tiles::Model => product::<Model, NV>(kind, factors, depth, out, stride, adds),
        }
    }
}

/// Fetches words into the second-level cache.
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) fn prefetch(words: &[u32]) {
    #[cfg(target_arch = "x86_64")]
    for line in words.chunks(TILE) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: it reads nothing that the program could see, and the address is a slice's.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = words;
}

/// Rows of words that are `stride` apart.
#[derive(Clone, Copy)]
pub(crate) struct Tiled<'a> {
    pub(crate) words: &'a [u32],
    pub(crate) stride: usize,
}

/// The tiles of `x` and of the panel's first vector; those of the sums are 0, 1 and 2.
const X: u8 = 3;
const PANEL: u8 = 4;

/// The content of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WordKind {
    /// Pairs of bf16; sums are f32.
    Bf16,
    /// Four u8 of `x`, four s8 of the panel; sums are i32.
    I8,
}

/// Tile registers. Every tile is whole.
trait TileMachine {
    fn start() -> Self;
    fn zero<const T: u8>(&mut self);
    /// Loads rows that are `stride` words apart.
    fn load<const T: u8>(&mut self, from: &[u32], stride: usize);
    /// Adds to `T` the products of [`X`] and `P`.
    fn multiply<const T: u8, const P: u8>(&mut self, kind: WordKind);
    /// Stores the bits of rows to rows that are `stride` words apart.
    fn store<const T: u8>(&mut self, to: &mut [u32], stride: usize);
}

/// Multiplies sixteen rows of `x`, `depth` tiles wide, by `NV` vectors of a panel, into the bits of sums in `out`.
#[inline(always)]
fn product<M: TileMachine, const NV: usize>(
    kind: WordKind,
    [x, panel]: [Tiled<'_>; 2],
    depth: usize,
    out: &mut [u32],
    stride: usize,
    adds: bool,
) {
    let mut tiles = M::start();
    // A macro, because the instructions name their tiles.
    macro_rules! each {
        (|$t:ident| $body:expr) => {{
            each!(0, $t, $body);
            each!(1, $t, $body);
            each!(2, $t, $body);
        }};
        ($number:literal, $t:ident, $body:expr) => {
            if NV > $number {
                const $t: u8 = $number;
                $body
            }
        };
    }
    each!(|T| if adds { tiles.load::<T>(&out[column(T)..], stride) } else { tiles.zero::<T>() });
    for k in 0..depth {
        let words = &panel.words[k * TILE * panel.stride..];
        tiles.load::<X>(&x.words[k * TILE..], x.stride);
        each!(|T| tiles.load::<{ PANEL + T }>(&words[column(T)..], panel.stride));
        each!(|T| tiles.multiply::<T, { PANEL + T }>(kind));
    }
    each!(|T| tiles.store::<T>(&mut out[column(T)..], stride));
}

/// The offset of a tile's first column.
#[inline(always)]
fn column(tile: u8) -> usize {
    usize::from(tile) * TILE
}

/// Word `i` of a sample: four bytes, or two small whole numbers in bf16.
fn sample_word(kind: WordKind, i: usize) -> u32 {
    let [a, b, c, d] = match kind {
        WordKind::I8 => [4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3],
        WordKind::Bf16 => [2 * i, 2 * i + 1, 0, 0],
    }
    .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8);
    match kind {
        WordKind::I8 => u32::from_le_bytes([a, b, c, d]),
        WordKind::Bf16 => f32::from(a % 16).to_bits() >> 16 | (f32::from(b % 16).to_bits() >> 16) << 16,
    }
}

/// The two numbers of a word in bf16.
fn halves(word: u32) -> [f32; 2] {
    [word << 16, word & 0xffff_0000].map(f32::from_bits)
}

/// Compares products of numbers that differ from word to word with plain sums. All sums are exact in both kinds.
fn is_right<M: TileMachine>() -> bool {
    const DEPTH: usize = 2 * TILE;
    const WIDTH: usize = 3 * TILE;
    [WordKind::I8, WordKind::Bf16].into_iter().all(|kind| {
        let x: Vec<u32> = (0..TILE * DEPTH).map(|i| sample_word(kind, i)).collect();
        let panel: Vec<u32> = (0..DEPTH * WIDTH).map(|i| sample_word(kind, 7777 + i)).collect();
        let mut out = vec![0; TILE * WIDTH];
        let factors = [(&x, DEPTH), (&panel, WIDTH)].map(|(words, stride)| Tiled { words, stride });
        product::<M, 3>(kind, factors, DEPTH / TILE, &mut out, WIDTH, false);
        out.iter().enumerate().all(|(i, &found)| {
            let products = (0..DEPTH).map(|k| (x[i / WIDTH * DEPTH + k], panel[k * WIDTH + i % WIDTH]));
            match kind {
                WordKind::I8 => {
                    let bytes = products.flat_map(|(x, w)| x.to_le_bytes().into_iter().zip(w.to_le_bytes()));
                    bytes.map(|(x, w)| i32::from(x) * i32::from(w as i8)).sum::<i32>() as u32 == found
                }
                WordKind::Bf16 => {
                    let halves = products.flat_map(|(x, w)| halves(x).into_iter().zip(halves(w)));
                    // The sums are exact in any order.
                    halves.map(|(x, w)| x * w).sum::<f32>().to_bits() == found
                }
            }
        })
    })
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;
    use std::sync::OnceLock;

    use super::{TILE, TileMachine, WordKind, X, is_right};

    /// The configuration of this thread's tile registers: eight tiles of 16 rows by 64 bytes. They are released when it
    /// is dropped.
    pub(super) struct Configured(());

    #[allow(unsafe_code)]
    impl Configured {
        /// Configures the registers. [`available`] must have returned true.
        #[inline(always)]
        pub(super) fn new() -> Self {
            /// Palette 1.
            const CONFIGURATION: [u8; 64] = {
                let mut bytes = [0; 64];
                bytes[0] = 1;
                let mut tile = 0;
                while tile < 8 {
                    bytes[16 + 2 * tile] = 64;
                    bytes[48 + tile] = 16;
                    tile += 1;
                }
                bytes
            };
            // SAFETY: the processor has tile registers, and the process may use them.
            unsafe { asm!("ldtilecfg [{}]", in(reg) &CONFIGURATION, options(nostack, readonly)) };
            Self(())
        }
    }

    #[allow(unsafe_code)]
    impl Drop for Configured {
        #[inline(always)]
        fn drop(&mut self) {
            // SAFETY: see `new`.
            unsafe { asm!("tilerelease", options(nostack, nomem)) };
        }
    }

    /// The processor's tile registers, while they are [`Configured`].
    pub(super) struct Amx(());

    /// The words from the first of a tile to its last.
    fn extent(stride: usize) -> usize {
        (TILE - 1) * stride + TILE
    }

    // SAFETY of all blocks: registers are configured, after `available` alone. Slices are as long as what a tile reads
    // or writes. The compiler never uses tile registers itself.
    #[allow(unsafe_code)]
    impl TileMachine for Amx {
        #[inline(always)]
        fn start() -> Self {
            Self(())
        }

        #[inline(always)]
        fn zero<const T: u8>(&mut self) {
            // SAFETY: see above.
            unsafe { asm!("tilezero tmm{}", const T, options(nostack, nomem)) };
        }

        #[inline(always)]
        fn load<const T: u8>(&mut self, from: &[u32], stride: usize) {
            let from = from[..extent(stride)].as_ptr();
            // SAFETY: see above.
            unsafe {
                asm!("tileloadd tmm{}, [{} + {}]", const T, in(reg) from, in(reg) stride * 4, options(nostack, readonly))
            };
        }

        #[inline(always)]
        fn multiply<const T: u8, const P: u8>(&mut self, kind: WordKind) {
            // SAFETY: see above.
            unsafe {
                match kind {
                    WordKind::Bf16 => {
                        asm!("tdpbf16ps tmm{}, tmm{}, tmm{}", const T, const X, const P, options(nostack, nomem))
                    }
                    WordKind::I8 => {
                        asm!("tdpbusd tmm{}, tmm{}, tmm{}", const T, const X, const P, options(nostack, nomem))
                    }
                }
            }
        }

        #[inline(always)]
        fn store<const T: u8>(&mut self, to: &mut [u32], stride: usize) {
            let to = to[..extent(stride)].as_mut_ptr();
            // SAFETY: see above.
            unsafe { asm!("tilestored [{} + {}], tmm{}", in(reg) to, in(reg) stride * 4, const T, options(nostack)) };
        }
    }

    /// Returns true if the processor has AMX for both kinds, the system lets this process use it, and its products are
    /// right.
    pub(super) fn available() -> bool {
        static AVAILABLE: OnceLock<bool> = OnceLock::new();
        *AVAILABLE.get_or_init(|| {
            has_amx() && is_permitted() && {
                let _configured = Configured::new();
                is_right::<Amx>()
            }
        })
    }

    fn has_amx() -> bool {
        /// AMX-BF16, AMX-TILE and AMX-INT8 in EDX of leaf 7.
        const BITS: u32 = 1 << 22 | 1 << 24 | 1 << 25;
        std::arch::x86_64::__cpuid_count(7, 0).edx & BITS == BITS
    }

    /// Asks Linux to save tile registers with this process's threads.
    #[allow(unsafe_code)]
    fn is_permitted() -> bool {
        const ARCH_PRCTL: i64 = 158;
        const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
        const TILE_DATA: i64 = 18;
        let result: i64;
        if !cfg!(target_os = "linux") {
            return false;
        }
        // SAFETY: this call of the system reads and writes no memory of the process.
        unsafe {
            asm!(
                "syscall", inlateout("rax") ARCH_PRCTL => result, in("rdi") ARCH_REQ_XCOMP_PERM, in("rsi") TILE_DATA,
                lateout("rcx") _, lateout("r11") _, options(nostack),
            );
        }
        result == 0
    }
}

/// A model of the instructions, after Intel's manual.
#[cfg(test)]
struct Model([[[u32; TILE]; TILE]; 8]);

#[cfg(test)]
impl TileMachine for Model {
    fn start() -> Self {
        Self([[[0xdead_beef; TILE]; TILE]; 8])
    }

    fn zero<const T: u8>(&mut self) {
        self.0[usize::from(T)] = [[0; TILE]; TILE];
    }

    fn load<const T: u8>(&mut self, from: &[u32], stride: usize) {
        for (row, to) in self.0[usize::from(T)].iter_mut().enumerate() {
            to.copy_from_slice(&from[row * stride..][..TILE]);
        }
    }

    fn multiply<const T: u8, const P: u8>(&mut self, kind: WordKind) {
        let [x, panel] = [X, P].map(|tile| self.0[usize::from(tile)]);
        for (x, sums) in x.iter().zip(&mut self.0[usize::from(T)]) {
            for (n, sum) in sums.iter_mut().enumerate() {
                match kind {
                    WordKind::I8 => {
                        for (k, word) in x.iter().enumerate() {
                            for (x, w) in word.to_le_bytes().into_iter().zip(panel[k][n].to_le_bytes()) {
                                *sum = sum.wrapping_add((i32::from(x) * i32::from(w as i8)) as u32);
                            }
                        }
                    }
                    WordKind::Bf16 => {
                        // Products of low halves and of high halves have sums of their own.
                        let [mut low, mut high] = [0.0f32; 2];
                        for (k, word) in x.iter().enumerate() {
                            let halves = |word: u32| [word << 16, word & 0xffff_0000].map(f32::from_bits);
                            let ([x_low, x_high], [w_low, w_high]) = (halves(*word), halves(panel[k][n]));
                            low = x_low.mul_add(w_low, low);
                            high = x_high.mul_add(w_high, high);
                        }
                        *sum = (f32::from_bits(*sum) + (low + high)).to_bits();
                    }
                }
            }
        }
    }

    fn store<const T: u8>(&mut self, to: &mut [u32], stride: usize) {
        for (row, from) in self.0[usize::from(T)].iter().enumerate() {
            to[row * stride..][..TILE].copy_from_slice(from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tiles that multiply wrongly.
    struct Swapped(Model);

    impl TileMachine for Swapped {
        fn start() -> Self {
            Self(Model::start())
        }

        fn zero<const T: u8>(&mut self) {
            self.0.zero::<T>();
        }

        fn load<const T: u8>(&mut self, from: &[u32], stride: usize) {
            if T == X { self.0.load::<PANEL>(from, stride) } else { self.0.load::<X>(from, stride) }
        }

        fn multiply<const T: u8, const P: u8>(&mut self, kind: WordKind) {
            self.0.multiply::<T, P>(kind);
        }

        fn store<const T: u8>(&mut self, to: &mut [u32], stride: usize) {
            self.0.store::<T>(to, stride);
        }
    }

    #[test]
    fn the_check_before_use_tells_right_from_wrong() {
        assert!(is_right::<Model>());
        assert!(!is_right::<Swapped>());
    }
}
