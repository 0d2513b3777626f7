//! Resizing on the device: the numbers of the CPU's resizer `fir`, to the last bit.

mod pass;
mod recipe;
mod taps;

use foveate_cuda::{Arg, Buffer, CudaError, Device, Kernel, Module, Stream};

pub(crate) use pass::{Job, Source};
pub(crate) use recipe::{Method, Recipe};

use pass::Pass;

/// For compute capability 7.5, and every later one.
const PTX: &str = include_str!("../../kernels/resize.sm_75.ptx");
/// Threads of a block, and pixels that it makes.
const BLOCK: u32 = 256;
/// Most blocks of a grid in its second dimension.
const MOST_PASSES: usize = 65_535;

/// The kernels, compiled for a device.
pub(crate) struct Resampler {
    resample: Kernel,
    interpolate: Kernel,
}

/// What the kernels work on.
pub(crate) struct Memory<'a> {
    /// Holds what [`Job::write`] writes.
    pub(crate) tables: &'a Buffer,
    /// Decoded images, and those between two passes.
    pub(crate) arena: &'a Buffer,
    /// The batch.
    pub(crate) out: &'a Buffer,
}

impl Resampler {
    pub(crate) fn new(device: &Device) -> Result<Self, CudaError> {
        let module = Module::from_ptx(device, PTX)?;
        Ok(Self { resample: module.kernel("resample")?, interpolate: module.kernel("interpolate")? })
    }

    /// Gives `stream` the passes of `job`.
    pub(crate) fn run(&self, stream: &Stream, job: &Job, memory: &Memory<'_>) -> Result<(), CudaError> {
        let bytes = [memory.tables, memory.arena, memory.out].map(Buffer::bytes);
        let fits = |pass: &Pass| pass.fits(job.bytes(), bytes[1], bytes[2]);
        if job.bytes() > bytes[0] || job.passes().count() > MOST_PASSES || !job.passes().all(fits) {
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

/// Launches `passes`, before which `first` others are in the tables. They have been checked.
#[allow(unsafe_code)]
fn launch(
    kernel: &Kernel,
    stream: &Stream,
    memory: &Memory<'_>,
    first: usize,
    passes: &[Pass],
) -> Result<(), CudaError> {
    let Some(largest) = passes.iter().map(Pass::pixels).max() else { return Ok(()) };
    let too_large = |_| CudaError::Misfit("a resize is too large for one launch".to_owned());
    let blocks = u32::try_from(largest.div_ceil(BLOCK.into())).map_err(too_large)?;
    let grid = [blocks, u32::try_from(passes.len()).map_err(too_large)?, 1];
    let Memory { tables, arena, out } = memory;
    let number = Arg::I32(i32::try_from(first).map_err(too_large)?);
    // SAFETY: these are the arguments of both kernels. Every block belongs to a pass that is in the tables and reads and
    // writes within the buffers, as `Pass::fits` says of its images and `Job` sees to with its tables, in which no tap
    // reaches beyond its image.
    unsafe { kernel.launch(stream, grid, BLOCK, &[Arg::Buffer(tables), Arg::Buffer(arena), Arg::Buffer(out), number]) }
}

#[cfg(test)]
mod tests {
    use foveate_core::{ImageView, ImageViewMut, PixelBuf, Size};
    use foveate_decode::Orientation;
    use foveate_resize::{Filter, Geometry, Resizer};
    use foveate_resize_fir::FirResizer;

    use super::*;

    /// Noise, in which every wrong tap and every other rounding shows.
    fn noise(size: Size, seed: u32) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9E37_79B9) | 1;
        let next = |_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 24) as u8
        };
        (0..size.rgb_len().unwrap()).map(next).collect()
    }

    fn on_the_cpu(pixels: &[u8], stored: Size, turn: Orientation, geometry: Geometry) -> Vec<u8> {
        let (mut image, mut scratch) = (PixelBuf::default(), PixelBuf::default());
        image.reset(stored).unwrap().copy_from_slice(pixels);
        turn.apply(&mut image, &mut scratch).unwrap();
        let plan = geometry.plan(image.size());
        let mut out = vec![0; plan.output.rgb_len().unwrap()];
        let view: ImageView<'_> = image.view();
        FirResizer::new().resize(view, &plan, ImageViewMut::new(&mut out, plan.output).unwrap()).unwrap();
        out
    }

    fn on_the_device(device: &Device, pixels: &[u8], stored: Size, turn: Orientation, geometry: Geometry) -> Vec<u8> {
        let recipe = Recipe::new(geometry, turn.apply_size(stored)).unwrap();
        let arena = [pixels, &vec![0; recipe.between()]].concat();
        let mut job = Job::default();
        job.add(&recipe, Source::turned(0, stored, turn), pixels.len(), 0);
        let mut tables = vec![0; job.bytes()];
        job.write(&mut tables);
        let out = Buffer::zeroed(device, geometry.output().rgb_len().unwrap()).unwrap();
        let (tables, arena) =
            (Buffer::from_slice(device, &tables).unwrap(), Buffer::from_slice(device, &arena).unwrap());
        let stream = Stream::new(device).unwrap();
        let memory = Memory { tables: &tables, arena: &arena, out: &out };
        Resampler::new(device).unwrap().run(&stream, &job, &memory).unwrap();
        let mut made = vec![0; out.bytes()];
        out.read(&mut made).unwrap();
        made
    }

    /// Every filter and turn, shrinking and growing, cropped, padded, copied, extreme: every sample is the CPU's.
    #[test]
    fn samples_are_those_of_fir() {
        let is_emulated = std::env::var_os("FOVEATE_CUDA_TESTS").is_none_or(|place| place != "device");
        if let Some(reason) = is_emulated.then(foveate_cuda_emulator::load).and_then(Result::err) {
            return eprintln!("skipped: {reason}");
        }
        let device = Device::open(0).unwrap();
        let filters = [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos3, Filter::OpenCvLinear];
        let sizes = [
            (1, 1),
            (2, 3),
            (28, 28),
            (28, 90),
            (90, 28),
            (56, 56),
            (57, 43),
            (43, 57),
            (31, 200),
            (200, 31),
            (333, 250),
            (20, 640),
            (640, 20),
            (64, 64),
            (65, 64),
            (3, 100),
        ];
        let mut turns = Orientation::ALL.into_iter().cycle();
        let mut compared = 0;
        for (seed, (width, height)) in (1..).zip(sizes) {
            let stored = Size::new(width, height);
            let pixels = noise(stored, seed);
            for filter in filters {
                let turn = turns.next().unwrap();
                for geometry in [
                    Geometry::Stretch { output: Size::new(28, 28), filter },
                    Geometry::Stretch { output: Size::new(37, 21), filter },
                    Geometry::ShortestEdgeCrop { edge: 32, crop: Size::square(28), filter },
                    Geometry::ShortestEdgeCrop { edge: 28, crop: Size::square(28), filter },
                    Geometry::ShortestEdgeCrop { edge: 20, crop: Size::square(28), filter },
                ] {
                    let expected = on_the_cpu(&pixels, stored, turn, geometry);
                    let made = on_the_device(&device, &pixels, stored, turn, geometry);
                    assert!(made == expected, "{stored} {turn:?} {geometry:?}");
                    compared += made.len();
                }
            }
            // So that a size meets other turns with other filters.
            turns.next();
        }
        assert!(compared > 500_000, "{compared} samples");
    }
}
