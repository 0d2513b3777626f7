//! Resizing on the device, with the numerics of the CPU's resizer `fir` to the last bit.

mod arena;
mod pass;
mod recipe;
mod taps;

use std::num::TryFromIntError;

use foveate_core::{CHANNELS, Size};
use foveate_cuda::{Arg, Buffer, CudaError, Device, Kernel, Module, Stream};
use foveate_decode::Orientation;
use foveate_resize::Geometry;

pub(crate) use arena::{pitch, room};
pub(crate) use pass::{ResampleBatch, ResampleSource};
pub(crate) use recipe::{Method, ResampleRecipe};

use pass::ResamplePass;

/// Gzipped PTX for compute capability 7.5 and every later one.
const PTX: &[u8] = include_bytes!("../../kernels/resize.sm_75.ptx.gz");
/// Threads per block.
const BLOCK: u32 = 256;
/// The largest second dimension of a grid.
const MOST_PASSES: usize = 65_535;

/// The kernels, compiled for a device.
pub(crate) struct Resampler {
    resample: Kernel,
    interpolate: Kernel,
}

/// The kernels' memory.
pub(crate) struct ResampleMemory<'a> {
    /// The output of [`ResampleBatch::write`].
    pub(crate) tables: &'a Buffer,
    /// Decoded images, and those between two passes.
    pub(crate) arena: &'a Buffer,
    /// The batch.
    pub(crate) out: &'a Buffer,
}

impl Resampler {
    pub(crate) fn new(device: &Device) -> Result<Self, CudaError> {
        let module = Module::from_gzip(device, PTX)?;
        Ok(Self { resample: module.kernel("resample")?, interpolate: module.kernel("interpolate")? })
    }

    /// Enqueues the passes of `job` on `stream`.
    pub(crate) fn run(
        &self,
        stream: &Stream,
        job: &ResampleBatch,
        memory: &ResampleMemory<'_>,
    ) -> Result<(), CudaError> {
        let bytes = [memory.tables, memory.arena, memory.out].map(Buffer::bytes);
        if job.bytes() > bytes[0]
            || job.passes().count() > MOST_PASSES
            || !job.passes().all(|pass| pass.fits(job.bytes(), bytes[1], bytes[2]))
        {
            return Err(CudaError::Misfit("a resize leaves its memory".to_owned()));
        }
        let steps = [(&self.resample, &job.first), (&self.interpolate, &job.linear), (&self.resample, &job.last)];
        let mut first = 0;
        for (kernel, passes) in steps {
            launch(kernel, stream, memory, first, passes)?;
            first += passes.len();
        }
        Ok(())
    }
}

/// The error of a launch whose numbers exceed 32 bits.
fn too_large(_: TryFromIntError) -> CudaError {
    CudaError::Misfit("a resize is too large for one launch".to_owned())
}

/// Launches `passes`, which follow `first` others in the tables. They have been checked.
#[allow(unsafe_code)]
fn launch(
    kernel: &Kernel,
    stream: &Stream,
    memory: &ResampleMemory<'_>,
    first: usize,
    passes: &[ResamplePass],
) -> Result<(), CudaError> {
    let Some(largest) = passes.iter().map(ResamplePass::threads).max() else { return Ok(()) };
    // The kernels number threads in 32 bits.
    let threads = u32::try_from(largest.next_multiple_of(BLOCK.into())).map_err(too_large)?;
    let blocks = threads / BLOCK;
    let grid = [blocks, u32::try_from(passes.len()).map_err(too_large)?, 1];
    let ResampleMemory { tables, arena, out } = memory;
    let number = Arg::I32(i32::try_from(first).map_err(too_large)?);
    // SAFETY: these are the arguments of both kernels. Every block belongs to a pass in the tables and stays within the
    // buffers: `ResamplePass::fits` guarantees that for its images, and `ResampleBatch` for its tables, in which no tap
    // reaches beyond its image.
    unsafe { kernel.launch(stream, grid, BLOCK, &[Arg::Buffer(tables), Arg::Buffer(arena), Arg::Buffer(out), number]) }
}

/// Turns and resizes one image of `stored` size, `[h, w, 3]`, as the preprocessor does after decoding: `[h, w, 3]` of
/// the geometry's output size. For comparisons with other resizers.
///
/// # Errors
/// If the device does not support the filter, or fails.
pub fn resample(
    device: &Device,
    pixels: &[u8],
    stored: Size,
    turn: Orientation,
    geometry: Geometry,
) -> Result<Vec<u8>, CudaError> {
    let recipe = ResampleRecipe::new(geometry, turn.apply_size(stored));
    let recipe = recipe.ok_or_else(|| CudaError::Misfit("no filter of the device".to_owned()))?;
    let mut job = ResampleBatch::default();
    let between = room(stored).next_multiple_of(4);
    job.add(&recipe, ResampleSource::turned(0, stored, turn), between, 0);
    let mut tables = vec![0; job.bytes()];
    job.write(&mut tables);
    let mut made = vec![0; geometry.output().rgb_len().unwrap_or(0)];
    let mut arena = vec![0; between + recipe.between()];
    let row = stored.width as usize * CHANNELS;
    for (row, place) in pixels.chunks_exact(row).zip(arena.chunks_exact_mut(pitch(stored.width))) {
        place[..row.len()].copy_from_slice(row);
    }
    let arena = Buffer::from_slice(device, &arena)?;
    let tables = Buffer::from_slice(device, &tables)?;
    let out = Buffer::zeroed(device, made.len())?;
    let memory = ResampleMemory { tables: &tables, arena: &arena, out: &out };
    Resampler::new(device)?.run(&Stream::new(device)?, &job, &memory)?;
    out.read(&mut made)?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::PTX;

    /// A division of 64 bits is a call of some hundred instructions, where a pixel has a few dozen.
    #[test]
    fn kernels_divide_32_bits_and_multiply_pairs() {
        let ptx = std::io::read_to_string(flate2::read::GzDecoder::new(PTX)).unwrap();
        for slow in ["div.s64", "div.u64", "rem.s64", "rem.u64"] {
            assert!(!ptx.contains(slow), "{slow}");
        }
        assert!(ptx.contains("dp2a.lo.s32.u32") && ptx.contains("dp2a.hi.s32.u32"));
    }
}
