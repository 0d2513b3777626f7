use std::error::Error;

use foveate_core::{BatchMemory, Size};
use foveate_cuda::nvjpeg::Handle;
use foveate_cuda::{Buffer, CudaError, Device};
use foveate_preprocess::{
    CpuPreprocessor, DeviceOptions, ItemFault, PreprocessError, PreprocessOptions, Preprocessor, StageClock,
};

use crate::admission::Admitted;
use crate::fault::fault;
use crate::flight::{Decoded, Decoders, Flight, Item};
use crate::landing::Landing;
use crate::resample::{Method, ResampleBatch, Resampler};
use crate::settings::Backend;

/// The most bytes of decoded images that one of the two groups has on the device, unless a single image has more.
const MOST_BYTES: usize = 256 << 20;
/// The limit on a group as a fraction of the device's free memory, because each of several threads has a preprocessor.
const SHARE_OF_FREE: usize = 128;
/// The most images of a group.
const MOST_IMAGES: usize = 64;
/// The groups of a batch that needs no more: while the device works on one, the host prepares the next.
const GROUPS: usize = 4;

/// Decodes JPEG with nvJPEG and resizes on the device. Images that it cannot decode fall back to the CPU, one by one.
///
/// Images pass through the device in groups, two at a time. A group's decoded pixels take no more than 256 MiB or a
/// 128th of the memory that was free at the start (a single image may take more).
///
/// Pixels are nvJPEG's, which differ from libjpeg's by rounding. The resampling equals that of the resizer `fir` to the
/// last bit, with [`Filter::Bilinear`](foveate_resize::Filter::Bilinear), `Bicubic`, `Lanczos3` and `OpenCvLinear`. A
/// [`DecodeHint`](foveate_decode::DecodeHint) is ignored: images are decoded at full size, except those of the
/// fallback.
///
/// With `backend=mixed`, the host decodes images from a batch's end whenever it would otherwise wait for the device. So
/// neither waits, whatever their rates; but two runs differ in which pixels are nvJPEG's and which libjpeg's.
pub struct NvjpegPreprocessor {
    flights: [Flight; 2],
    decoders: Decoders,
    resampler: Resampler,
    landing: Landing,
    fallback: CpuPreprocessor,
    /// The fallback's output for one image.
    image: Vec<u8>,
    said: Vec<Result<Size, ItemFault>>,
    is_mixed: bool,
    /// Room for a batch's images, which the host prepares while the device works.
    ready: Vec<u8>,
    options: PreprocessOptions,
    group_bytes: usize,
    device: Device,
}

impl NvjpegPreprocessor {
    /// Opens the device and nvJPEG. The only setting is `backend`: `auto` (the chip's JPEG engines if it has some, and
    /// the host for what they do not take), `mixed` (as `auto`, and the host decodes too), `hardware` (an error if the
    /// chip has no engines), `hybrid` (Huffman decoding on the host), `gpu` (everything on the device).
    ///
    /// # Errors
    /// [`PreprocessError::Device`] if the device or the library is missing, [`PreprocessError::Unsupported`] for an
    /// unknown setting or an unsupported filter.
    pub fn open(options: DeviceOptions) -> Result<Self, PreprocessError> {
        let backend = Backend::of(&options)?;
        let filter = options.options.geometry.filter();
        if Method::of(filter).is_none() {
            let reason = format!("nvjpeg has no filter {filter:?}; decode on the CPU for that one");
            return Err(PreprocessError::Unsupported(reason));
        }
        let unavailable =
            |source: Box<dyn Error + Send + Sync>| PreprocessError::Device { device: options.device.clone(), source };
        let ordinal = foveate_cuda::ordinal(&options.device)
            .ok_or_else(|| unavailable("nvjpeg is for GPUs; its device is `cuda` or `cuda:N`".into()))?;
        let missing = |error: CudaError| unavailable(error.into());
        let device = Device::open(ordinal).map_err(missing)?;
        let handle = Handle::new(&device, backend.processors()).map_err(missing)?;
        if let (Backend::Hardware, Err(error)) = (backend, handle.engines()) {
            let reason = format!("no JPEG engines of {} ({error}); backend=auto does without", device.name());
            return Err(unavailable(reason.into()));
        }
        let flight = || Flight::new(&device).map_err(missing);
        let (free, _) = device.memory().map_err(missing)?;
        Ok(Self {
            flights: [flight()?, flight()?],
            decoders: Decoders::new(&device, &handle, backend.huffman()).map_err(missing)?,
            resampler: Resampler::new(&device).map_err(missing)?,
            landing: Landing::default(),
            image: vec![0; options.options.geometry.output().rgb_len().unwrap_or(0)],
            fallback: options.fallback,
            said: Vec::new(),
            is_mixed: backend == Backend::Mixed,
            ready: Vec::new(),
            options: options.options,
            group_bytes: MOST_BYTES.min(free / SHARE_OF_FREE),
            device,
        })
    }

    /// The number of leading `items`, at least one and at most `most`, that form a group.
    fn group(&self, items: &[Item<'_>], most: usize) -> usize {
        let mut bytes = 0_usize;
        let fits = |item: &&Item<'_>| {
            bytes = bytes.saturating_add(item.bytes_on_device());
            bytes <= self.group_bytes
        };
        items.iter().take(most).take_while(fits).count().max(1)
    }

    /// Prepares the last of `items` on the host, one by one, while the device works on the flight's previous group.
    fn prepare_meanwhile(
        &mut self,
        which: usize,
        items: &mut [Item<'_>],
        clock: &dyn StageClock,
    ) -> Result<(), PreprocessError> {
        for item in items.iter_mut().rev().filter(|item| item.ready.is_none()) {
            let is_busy = self.flights[which].is_busy().map_err(fault)? || self.decoders.are_busy().map_err(fault)?;
            if !is_busy {
                break;
            }
            item.ready = Some(self.on_the_host(item.bytes, clock)?);
            item.admitted = None;
            self.ready[item.number * self.image.len()..][..self.image.len()].copy_from_slice(&self.image);
        }
        Ok(())
    }

    /// Prepares an image on the host, into `image`.
    fn on_the_host(
        &mut self,
        bytes: &[u8],
        clock: &dyn StageClock,
    ) -> Result<Result<Size, ItemFault>, PreprocessError> {
        self.fallback.preprocess(&[bytes], &mut self.image, &mut self.said, clock)?;
        Ok(self.said.pop().unwrap_or_else(|| unreachable!("one image, one outcome")))
    }

    /// Starts to prepare `items`, of which the first becomes image `made` of `out`; returns the number of images there.
    fn begin(
        &mut self,
        which: usize,
        items: &mut [Item<'_>],
        (out, mut made): (&Buffer, usize),
        prepared: &mut Vec<Result<Size, ItemFault>>,
        clock: &dyn StageClock,
    ) -> Result<usize, PreprocessError> {
        let flight = &mut self.flights[which];
        flight.finish(clock).map_err(fault)?;
        let decoded = flight.decode(&self.device, &mut self.decoders, items, self.group_bytes).map_err(fault)?;
        let mut job = ResampleBatch::default();
        for (item, decoded) in items.iter_mut().zip(decoded) {
            let to = made * self.image.len();
            let outcome = match (decoded, &item.admitted) {
                (Decoded::Device(room), Some(admitted)) => {
                    job.add(&admitted.recipe, Flight::source(room, admitted), room[1], to);
                    Ok(admitted.size())
                }
                _ => {
                    let (said, pixels) = match item.ready.take() {
                        Some(said) => (said, &self.ready[item.number * self.image.len()..][..self.image.len()]),
                        None => (self.on_the_host(item.bytes, clock)?, self.image.as_slice()),
                    };
                    said.inspect(|_| job.add_ready(pixels, self.options.geometry.output(), to))
                }
            };
            made += usize::from(outcome.is_ok());
            prepared.push(outcome);
        }
        if job.passes().next().is_some() {
            self.flights[which].resize(&self.device, &self.resampler, &job, out).map_err(fault)?;
        }
        Ok(made)
    }

    fn prepare(
        &mut self,
        images: &[&[u8]],
        out: &mut dyn BatchMemory,
        prepared: &mut Vec<Result<Size, ItemFault>>,
        clock: &dyn StageClock,
    ) -> Result<(), PreprocessError> {
        let buffer = self.landing.buffer(&self.device, out, images.len().saturating_mul(self.image.len()))?;
        let item = |(number, &bytes)| Item { number, bytes, admitted: Admitted::of(bytes, &self.options), ready: None };
        let mut items: Vec<Item<'_>> = images.iter().enumerate().map(item).collect();
        let most = MOST_IMAGES.min(items.len().div_ceil(GROUPS));
        if self.is_mixed {
            self.ready.resize(self.ready.len().max(images.len() * self.image.len()), 0);
        }
        let (mut rest, mut made) = (items.as_mut_slice(), 0);
        for which in [0, 1].into_iter().cycle() {
            if rest.is_empty() {
                break;
            }
            if self.is_mixed {
                self.prepare_meanwhile(which, rest, clock)?;
            }
            let count = self.group(rest, most);
            let (group, behind) = rest.split_at_mut(count);
            made = self.begin(which, group, (&buffer, made), prepared, clock)?;
            rest = behind;
        }
        for flight in &mut self.flights {
            flight.finish(clock).map_err(fault)?;
            flight.shrink(&self.device, self.group_bytes).map_err(fault)?;
        }
        self.landing.land(self.flights[0].stream(), out, made * self.image.len()).map_err(fault)
    }
}

impl Preprocessor for NvjpegPreprocessor {
    fn preprocess(
        &mut self,
        images: &[&[u8]],
        out: &mut dyn BatchMemory,
        prepared: &mut Vec<Result<Size, ItemFault>>,
        clock: &dyn StageClock,
    ) -> Result<(), PreprocessError> {
        prepared.clear();
        self.prepare(images, out, prepared, clock).inspect_err(|_| self.flights.iter_mut().for_each(Flight::abandon))
    }
}
