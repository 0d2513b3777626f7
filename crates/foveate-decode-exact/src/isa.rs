//! Compiles the same code for several instruction sets, chosen at run time; without `unsafe`, thanks to `pulp`.

#[cfg(target_arch = "aarch64")]
use pulp::aarch64::Neon;
#[cfg(target_arch = "x86_64")]
use pulp::{
    NullaryFnOnce,
    x86::{V3, V4},
};

use crate::kernels::{JpegKernels, Two};
use crate::reduced::Reduction;
use crate::zigzag::natural;
use crate::{color, idct};

/// Plain Rust.
#[derive(Clone, Copy)]
struct PlainKernels;

impl JpegKernels for PlainKernels {
    #[inline(always)]
    fn blocks(self, two: Two<'_>, samples: &mut [u8], stride: usize) {
        for (coefficients, start) in two.coefficients.into_iter().zip(two.starts) {
            idct::block(coefficients, two.quantization, &mut samples[start..], stride);
        }
    }

    #[inline(always)]
    fn reduced_blocks(self, reduction: &Reduction, two: Two<'_>, samples: &mut [u8], stride: usize) {
        for (coefficients, start) in two.coefficients.into_iter().zip(two.starts) {
            reduction.block(coefficients, two.quantization, &mut samples[start..], stride);
        }
    }

    #[inline(always)]
    fn refine(self, coefficients: &mut [i16; 64], mut ones: u64, negative: u64, bit: i16) {
        while ones != 0 {
            let k = ones.trailing_zeros();
            let coefficient = &mut coefficients[natural(k as usize)];
            let step = bit & !*coefficient;
            let is_negative = *coefficient < 0 || negative >> k & 1 != 0;
            *coefficient = coefficient.wrapping_add(if is_negative { -step } else { step });
            ones &= ones - 1;
        }
    }

    #[inline(always)]
    fn ycbcr(self, rows: [&[u8]; 3], out: &mut [[u8; 3]]) {
        color::ycbcr(rows, out);
    }
}

#[cfg(target_arch = "x86_64")]
impl JpegKernels for V3 {
    #[inline(always)]
    fn blocks(self, two: Two<'_>, samples: &mut [u8], stride: usize) {
        crate::avx2::blocks(self, two, samples, stride);
    }

    #[inline(always)]
    fn reduced_blocks(self, reduction: &Reduction, two: Two<'_>, samples: &mut [u8], stride: usize) {
        crate::avx2::reduced_blocks(self, reduction, two, samples, stride);
    }

    #[inline(always)]
    fn refine(self, coefficients: &mut [i16; 64], ones: u64, negative: u64, bit: i16) {
        crate::avx2::refine(self, coefficients, ones, negative, bit);
    }

    #[inline(always)]
    fn ycbcr(self, rows: [&[u8]; 3], out: &mut [[u8; 3]]) {
        crate::avx2::ycbcr(self, rows, out);
    }
}

#[cfg(target_arch = "aarch64")]
impl JpegKernels for Neon {
    #[inline(always)]
    fn blocks(self, two: Two<'_>, samples: &mut [u8], stride: usize) {
        crate::neon::blocks(self, two, samples, stride);
    }

    #[inline(always)]
    fn reduced_blocks(self, reduction: &Reduction, two: Two<'_>, samples: &mut [u8], stride: usize) {
        crate::neon::reduced_blocks(self, reduction, two, samples, stride);
    }

    #[inline(always)]
    fn refine(self, coefficients: &mut [i16; 64], ones: u64, negative: u64, bit: i16) {
        // Vectors of eight save only 1 % of a progressive file's instructions.
        PlainKernels.refine(coefficients, ones, negative, bit);
    }

    #[inline(always)]
    fn ycbcr(self, rows: [&[u8]; 3], out: &mut [[u8; 3]]) {
        crate::neon::ycbcr(self, rows, out);
    }
}

/// Work to compile for each instruction set: `run` and the functions it calls must be `#[inline(always)]`.
pub(crate) trait IsaTask {
    type Output;

    fn run(self, kernels: impl JpegKernels) -> Self::Output;
}

/// The instruction set in use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Isa {
    /// The program's compile target.
    Plain,
    /// AVX2 and BMI2.
    #[cfg(target_arch = "x86_64")]
    V3(V3),
    /// AVX-512 too, for its 32 registers. Its longer vectors would make the kernels no faster on Zen 4.
    #[cfg(target_arch = "x86_64")]
    V4(V4),
    /// NEON, which compile targets for aarch64 include.
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
}

impl Isa {
    /// Every instruction set that this processor can run, the best first.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let better = V4::try_new().map(Self::V4).into_iter().chain(V3::try_new().map(Self::V3));
        #[cfg(target_arch = "aarch64")]
        let better = Neon::try_new().map(Self::Neon);
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let better = None;
        better.into_iter().chain([Self::Plain])
    }

    /// Runs `task`, compiled for this instruction set.
    pub(crate) fn run<T: IsaTask>(self, task: T) -> T::Output {
        match self {
            Self::Plain => task.run(PlainKernels),
            #[cfg(target_arch = "x86_64")]
            Self::V3(v3) => v3.vectorize(Compiled(task, v3)),
            #[cfg(target_arch = "x86_64")]
            Self::V4(v4) => v4.vectorize(Compiled(task, *v4)),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(neon) => task.run(neon),
        }
    }
}

#[cfg(target_arch = "x86_64")]
struct Compiled<T>(T, V3);

#[cfg(target_arch = "x86_64")]
impl<T: IsaTask> NullaryFnOnce for Compiled<T> {
    type Output = T::Output;

    #[inline(always)]
    fn call(self) -> T::Output {
        self.0.run(self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records each kernel's results.
    struct Record<'a> {
        blocks: &'a [[i16; 64]],
        rows: [&'a [u8]; 3],
        result: &'a mut Vec<u8>,
    }

    impl IsaTask for Record<'_> {
        type Output = ();

        #[inline(always)]
        fn run(self, kernels: impl JpegKernels) {
            let quantization = std::array::from_fn(|i| 1 + i as i16 % 5);
            for blocks in self.blocks.windows(2) {
                let mut samples = [0; 8 * 24];
                let two = Two { coefficients: [&blocks[0], &blocks[1]], quantization: &quantization, starts: [0, 8] };
                kernels.blocks(two, &mut samples, 24);
                self.result.extend(samples);
                for reduction in Reduction::all() {
                    kernels.reduced_blocks(reduction, two, &mut samples, 24);
                    self.result.extend(samples);
                }
            }
            for (block, other) in self.blocks.iter().zip(&self.blocks[1..]) {
                let set = |first: usize| other[first..].iter().fold(0, |set, &value| set << 1 | value as u64 & 1);
                let mut refined = *block;
                kernels.refine(&mut refined, set(0), set(1), 1 << (block[0] & 7));
                self.result.extend(refined.into_iter().flat_map(i16::to_le_bytes));
            }
            let mut pixels = vec![[0; 3]; self.rows[0].len()];
            kernels.ycbcr(self.rows, &mut pixels);
            self.result.extend(pixels.as_flattened());
        }
    }

    fn record(isa: Isa, blocks: &[[i16; 64]], rows: [&[u8]; 3]) -> Vec<u8> {
        let mut result = Vec::new();
        isa.run(Record { blocks, rows, result: &mut result });
        result
    }

    /// Pseudo-random numbers (xorshift).
    fn noise() -> impl FnMut() -> u32 {
        let mut state = 0x2545_F491u32;
        move || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state
        }
    }

    #[test]
    fn every_instruction_set_gives_the_same_samples() {
        let mut next = noise();
        let blocks: Vec<[i16; 64]> = (0..5000)
            .map(|n| {
                // Ordinary coefficients, large ones, and ones that only damaged files have.
                let range = [21, 401, 1 << 16][n % 3];
                std::array::from_fn(|_| ((next() % range) as i32 - range as i32 / 2) as i16)
            })
            .collect();
        // Every pair of chroma values, at a length that is not a multiple of a vector's.
        let chroma = || (0..=255u8).flat_map(|cb| (0..=255u8).map(move |cr| (cb, cr))).chain([(0, 0); 5]);
        let (cb, cr): (Vec<u8>, Vec<u8>) = chroma().unzip();
        let y: Vec<u8> = cb.iter().map(|_| next() as u8).collect();
        let plain = record(Isa::Plain, &blocks, [&y, &cb, &cr]);
        for isa in Isa::all() {
            assert!(record(isa, &blocks, [&y, &cb, &cr]) == plain, "{isa:?}");
        }
    }

    #[test]
    fn a_flat_block_is_what_the_whole_transform_gives() {
        for dc in -2048..2048 {
            let mut block = [0; 64];
            block[0] = dc;
            let mut whole = [0; 64];
            let mut flat = [0; 64];
            idct::block(&block, &[3; 64], &mut whole, 8);
            idct::flat_block(dc, 3, 8, &mut flat, 8);
            assert_eq!(whole, flat, "{dc}");
        }
    }
}
