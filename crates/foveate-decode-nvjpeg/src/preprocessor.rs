use std::error::Error;

use foveate_core::{BatchMemory, Size};
use foveate_cuda::nvjpeg::NvjpegHandle;
use foveate_cuda::{Buffer, Device};
use foveate_preprocess::{
    CpuPreprocessor, DeviceOptions, ItemFault, PreprocessError, PreprocessOptions, Preprocessor, StageClock,
};

use crate::admission::Admitted;
use crate::fault::fault;
use crate::flight::{DecodeFlight, DecodedItem, Decoders, FlightItem};
use crate::landing::Landing;
use crate::resample::{Method, ResampleBatch, Resampler};
use crate::settings::NvjpegBackend;

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
    flights: [DecodeFlight; 2],
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
        let backend = NvjpegBackend::of(&options)?;
        let filter = options.options.geometry.filter();
        if Method::of(filter).is_none() {
            let reason = format!("nvjpeg has no filter {filter:?}; decode on the CPU for that one");
            return Err(PreprocessError::Unsupported(reason));
        }
        let name = options.device.clone();
        Self::on_device(options, backend).map_err(|source| PreprocessError::Device { device: name, source })
    }

    /// Opens the device, with a filter that it supports.
    fn on_device(options: DeviceOptions, backend: NvjpegBackend) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let ordinal =
            foveate_cuda::ordinal(&options.device).ok_or("nvjpeg is for GPUs; its device is `cuda` or `cuda:N`")?;
        let device = Device::open(ordinal)?;
        let handle = NvjpegHandle::new(&device, backend.processors())?;
        if backend == NvjpegBackend::Hardware
            && let Err(error) = handle.engines()
        {
            let reason = format!("no JPEG engines of {} ({error}); backend=auto does without", device.name());
            return Err(reason.into());
        }
        let (free, _) = device.memory()?;
        Ok(Self {
            flights: [DecodeFlight::new(&device)?, DecodeFlight::new(&device)?],
            decoders: Decoders::new(&device, &handle, backend.huffman())?,
            resampler: Resampler::new(&device)?,
            landing: Landing::default(),
            image: vec![0; options.options.geometry.output().rgb_len().unwrap_or(0)],
            fallback: options.fallback,
            said: Vec::new(),
            is_mixed: backend == NvjpegBackend::Mixed,
            ready: Vec::new(),
            options: options.options,
            group_bytes: MOST_BYTES.min(free / SHARE_OF_FREE),
            device,
        })
    }

    /// The number of leading `items`, at least one and at most `most`, that form a group.
    fn group(&self, items: &[FlightItem<'_>], most: usize) -> usize {
        let mut bytes = 0_usize;
        for (count, item) in items.iter().take(most).enumerate() {
            bytes = bytes.saturating_add(item.bytes_on_device());
            if bytes > self.group_bytes {
                return count.max(1);
            }
        }
        most.min(items.len()).max(1)
    }

    /// Prepares the last of `items` on the host, one by one, while the device works on the flight's previous group.
    fn prepare_meanwhile(
        &mut self,
        which: usize,
        items: &mut [FlightItem<'_>],
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
        items: &mut [FlightItem<'_>],
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
                (DecodedItem::Device(room), Some(admitted)) => {
                    job.add(&admitted.recipe, DecodeFlight::source(room, admitted), room[1], to);
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
        let mut items: Vec<FlightItem<'_>> = images
            .iter()
            .enumerate()
            .map(|(number, &bytes)| FlightItem {
                number,
                bytes,
                admitted: Admitted::of(bytes, &self.options),
                ready: None,
            })
            .collect();
        let most = MOST_IMAGES.min(items.len().div_ceil(GROUPS));
        if self.is_mixed {
            self.ready.resize(self.ready.len().max(images.len() * self.image.len()), 0);
        }
        let mut rest = items.as_mut_slice();
        let mut made = 0;
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
        self.prepare(images, out, prepared, clock)
            .inspect_err(|_| self.flights.iter_mut().for_each(DecodeFlight::abandon))
    }
}
