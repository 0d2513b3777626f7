//! The encoder: it keeps batches in flight on the device.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use foveate_core::{BatchMemory, PixelBatch, VectorBuf};
use foveate_cuda::blaslt::{self, Element};
use foveate_cuda::{Buffer, CudaError, Device, DevicePixels, Pinned, Stream};
use foveate_encode::{
    Allocate, Batch, Collected, DType, EncodeError, EncodeSpans, EncodeTimes, Encoder, EncoderOptions, EncoderSpec,
    Overlap, Place, Resident,
};
use foveate_model::Model;
use foveate_model::parts::Parts;

use super::clock::{DeviceClock, Marks};
use super::geometry::CudaGeometry;
use super::network::CudaNetwork;
use super::settings::CudaSettings;
use super::{fault, unavailable};

/// The most batches in flight: one copied to the device, one computed, one copied back.
const DEPTH: usize = 3;
/// The oldest compute capability that the kernels support.
const OLDEST: (u32, u32) = (7, 5);
/// The oldest compute capability that multiplies bfloat16.
const OLDEST_BF16: (u32, u32) = (8, 0);

/// A vision transformer on an NVIDIA GPU, in f32, f16 or bf16.
///
/// It keeps up to three batches in flight ([`Overlap`]); [`Encoder::encode`] submits and collects a single one.
pub struct CudaEncoder {
    spec: EncoderSpec,
    device: Device,
    network: CudaNetwork,
    streams: Streams,
    slots: Vec<Slot>,
    /// The slot of the next batch.
    next: usize,
    /// Oldest first.
    flights: VecDeque<CudaFlight>,
    clock: DeviceClock,
    /// The number of images of the last batch, if the last slot has its pixels.
    resident: Option<usize>,
}

/// Copies and kernels wait for each other through events alone.
struct Streams {
    copy_in: Stream,
    compute: Stream,
    copy_out: Stream,
}

/// The memory of a batch in flight. It is reused only after its batch was collected, when the device has finished with
/// it.
struct Slot {
    pixels: Buffer,
    /// For batches that the device cannot read directly; allocated at first need.
    staging: Option<Pinned>,
    rows: Buffer,
    collected: Pinned,
    marks: Marks,
}

/// A batch in flight.
struct CudaFlight {
    slot: usize,
    images: usize,
    /// Returned to the caller on collection.
    batch: Option<Batch>,
    asked: Instant,
}

/// The location of a batch's pixels.
enum PixelSource<'a> {
    /// In host memory that the device cannot read directly.
    Host(&'a [u8]),
    /// In pinned host memory, which the device reads directly.
    Pinned(&'a mut Pinned),
    /// On the device.
    Device(&'a DevicePixels),
    /// Still in the slot, from the last batch.
    Resident,
}

impl CudaEncoder {
    /// Opens the device `options.device` (`cuda` or `cuda:N`), copies the weights of `model` to it in the precision
    /// `options.dtype`, and allocates all memory for batches of `options.max_batch` images. `options.threads` is not
    /// used.
    ///
    /// # Errors
    /// - [`EncodeError::Device`] if the device, its driver or a library is missing or too old.
    /// - [`EncodeError::Unsupported`] for an unknown setting, a precision that the device lacks, and heads whose
    ///   width is not a multiple of 4.
    /// - [`EncodeError::Model`] if the model lacks a tensor or the input is not a whole number of patches.
    /// - [`EncodeError::Engine`] if the device's memory does not suffice.
    pub fn new(model: &Model, options: &EncoderOptions) -> Result<Self, EncodeError> {
        let settings = CudaSettings::new(options)?;
        let refused = |error| unavailable(&options.device, error);
        let device = Device::open(number(&options.device)?).map_err(refused)?;
        let element = element(&device, options)?;
        let decisive = blaslt::release().and_then(|blas| Ok(format!("{blas}, {}", foveate_cuda::release()?)));
        let kernels = Some(decisive.map_err(refused)?);
        let spec = EncoderSpec { kernels, ..crate::encoder::spec(model, options)? };
        let parts = Parts::new(model).map_err(crate::encoder::unusable)?;
        let geometry = CudaGeometry::new(&parts, &model.network, options)?;
        let network = CudaNetwork::new(&device, &parts, &model.network, geometry, element, settings, options)?;
        let slots = (0..DEPTH).map(|_| Slot::new(&device, &geometry, spec.max_batch)).collect::<Result<_, _>>();
        Ok(Self {
            slots: slots.map_err(refused)?,
            streams: Streams::new(&device).map_err(refused)?,
            clock: DeviceClock::new(&device).map_err(refused)?,
            spec,
            device,
            network,
            next: 0,
            flights: VecDeque::with_capacity(DEPTH),
            resident: None,
        })
    }

    /// Bytes of device memory for batches' intermediate values, without the weights and without the pixels and rows of
    /// the batches in flight.
    pub fn workspace_bytes(&self) -> usize {
        self.network.workspace_bytes()
    }

    /// Starts to encode `images` images into the next slot.
    fn begin(&mut self, source: PixelSource<'_>, images: usize) -> Result<CudaFlight, EncodeError> {
        let asked = Instant::now();
        let slot = if matches!(source, PixelSource::Resident) { self.last_slot() } else { self.next };
        let is_kept = !matches!(source, PixelSource::Device(_));
        self.launch(slot, source, images).map_err(|error| self.abandon(error))?;
        self.next = (slot + 1) % DEPTH;
        self.resident = is_kept.then_some(images);
        Ok(CudaFlight { slot, images, batch: None, asked })
    }

    fn last_slot(&self) -> usize {
        (self.next + DEPTH - 1) % DEPTH
    }

    fn launch(&mut self, slot: usize, source: PixelSource<'_>, images: usize) -> Result<(), CudaError> {
        let Self { device, network, streams, slots, .. } = self;
        let slot = &mut slots[slot];
        let geometry = *network.geometry();
        let pixels = slot.copy_in(device, &streams.copy_in, source, images * geometry.image_bytes())?;
        let Slot { rows, collected, marks, .. } = slot;

        streams.compute.wait(&marks.copy_in[1])?;
        streams.compute.record(&marks.forward[0])?;
        network.forward(&streams.compute, images, &pixels, rows)?;
        streams.compute.record(&marks.forward[1])?;

        streams.copy_out.wait(&marks.forward[1])?;
        streams.copy_out.record(&marks.copy_out[0])?;
        streams.copy_out.download(rows, collected, images * geometry.dim * size_of::<f32>())?;
        streams.copy_out.record(&marks.copy_out[1])
    }

    /// Waits for a batch, and returns its rows.
    fn finish(&mut self, flight: &CudaFlight, out: &mut VectorBuf) -> Result<EncodeSpans, EncodeError> {
        let Self { spec, slots, clock, .. } = self;
        let Slot { collected, marks, .. } = &mut slots[flight.slot];
        let rows = marks.copy_out[1].synchronize().and_then(|()| {
            let spans = clock.spans(marks, flight.asked, Instant::now())?;
            Ok((spans, collected.as_f32(flight.images * spec.dim)?))
        });
        match rows {
            Ok((spans, rows)) => {
                out.reset(flight.images, spec.dim).copy_from_slice(rows);
                Ok(spans)
            }
            Err(error) => Err(self.abandon(error)),
        }
    }

    /// Drops the batches in flight.
    fn abandon(&mut self, error: CudaError) -> EncodeError {
        // A slot is reused only when the device has finished with it. If it never finishes, the slot is not reused.
        let _ = self.device.synchronize();
        self.flights.clear();
        self.resident = None;
        fault(error)
    }

    fn check_idle(&self) -> Result<(), EncodeError> {
        if self.flights.is_empty() {
            return Ok(());
        }
        Err(EncodeError::Batch(format!("{} batches are under way; collect them first", self.flights.len())))
    }

    fn check_batch(&self, batch: &Batch) -> Result<(), EncodeError> {
        let image = self.network.geometry().image_bytes();
        let problem = if self.flights.len() == DEPTH {
            format!("{DEPTH} batches are under way; collect one first")
        } else if batch.size != self.spec.input {
            format!("images are {}, not {}", batch.size, self.spec.input)
        } else if batch.images == 0 || batch.images > self.spec.max_batch {
            format!("{} images, not 1 to {}", batch.images, self.spec.max_batch)
        } else if batch.memory.bytes() / image < batch.images {
            format!("{} images in {} bytes", batch.images, batch.memory.bytes())
        } else {
            return Ok(());
        };
        Err(EncodeError::Batch(problem))
    }
}

impl Encoder for CudaEncoder {
    fn spec(&self) -> &EncoderSpec {
        &self.spec
    }

    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        self.spec.check(batch)?;
        self.check_idle()?;
        let flight = self.begin(PixelSource::Host(batch.as_slice()), batch.len())?;
        Ok(self.finish(&flight, out)?.times())
    }

    fn resident(&mut self) -> Option<&mut dyn Resident> {
        self.resident.is_some().then_some(self as _)
    }

    fn overlap(&mut self) -> Option<&mut dyn Overlap> {
        Some(self)
    }
}

impl Resident for CudaEncoder {
    fn encode_again(&mut self, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        self.check_idle()?;
        let images = self.resident.ok_or_else(|| EncodeError::Batch("none is on the device".to_owned()))?;
        let flight = self.begin(PixelSource::Resident, images)?;
        Ok(self.finish(&flight, out)?.times())
    }
}

impl Overlap for CudaEncoder {
    fn depth(&mut self) -> usize {
        DEPTH
    }

    fn allocator(&mut self, place: Place) -> Allocate {
        let device = self.device.clone();
        Arc::new(move |bytes| {
            let memory: Box<dyn BatchMemory> = match place {
                Place::Host => Box::new(Pinned::new(&device, bytes).map_err(fault)?),
                Place::Device => Box::new(DevicePixels::new(&device, bytes).map_err(fault)?),
            };
            Ok(memory)
        })
    }

    fn submit(&mut self, mut batch: Batch) -> Result<(), EncodeError> {
        self.check_batch(&batch)?;
        let source = PixelSource::of(batch.memory.as_mut(), &self.device)?;
        let flight = self.begin(source, batch.images)?;
        self.flights.push_back(CudaFlight { batch: Some(batch), ..flight });
        Ok(())
    }

    fn collect(&mut self, out: &mut VectorBuf) -> Result<Collected, EncodeError> {
        let mut flight = self.flights.pop_front().ok_or_else(no_batch)?;
        let spans = self.finish(&flight, out)?;
        let batch = flight.batch.take().ok_or_else(no_batch)?;
        Ok(Collected { batch, spans })
    }
}

impl Streams {
    fn new(device: &Device) -> Result<Self, CudaError> {
        Ok(Self { copy_in: Stream::new(device)?, compute: Stream::new(device)?, copy_out: Stream::new(device)? })
    }
}

fn no_batch() -> EncodeError {
    EncodeError::Batch("no batch is under way".to_owned())
}

impl Slot {
    fn new(device: &Device, geometry: &CudaGeometry, max_batch: usize) -> Result<Self, CudaError> {
        let rows = max_batch * geometry.dim * size_of::<f32>();
        Ok(Self {
            pixels: Buffer::zeroed(device, max_batch * geometry.image_bytes())?,
            staging: None,
            rows: Buffer::zeroed(device, rows)?,
            collected: Pinned::new(device, rows)?,
            marks: Marks::new(device)?,
        })
    }

    /// Enqueues on `stream` the copy of `bytes` of pixels to the device, if one is needed, and returns their location.
    fn copy_in(
        &mut self,
        device: &Device,
        stream: &Stream,
        source: PixelSource<'_>,
        bytes: usize,
    ) -> Result<Buffer, CudaError> {
        let [begin, end] = &self.marks.copy_in;
        let pixels = match source {
            PixelSource::Host(pixels) => {
                let staging = match &mut self.staging {
                    Some(staging) => staging,
                    none => none.insert(Pinned::new(device, self.pixels.bytes())?),
                };
                staging.as_mut_slice()[..bytes].copy_from_slice(&pixels[..bytes]);
                stream.record(begin)?;
                stream.upload(staging, &self.pixels, bytes)?;
                &self.pixels
            }
            PixelSource::Pinned(pinned) => {
                stream.record(begin)?;
                stream.upload(pinned, &self.pixels, bytes)?;
                &self.pixels
            }
            PixelSource::Device(pixels) => {
                pixels.wait_on(stream)?;
                stream.record(begin)?;
                pixels.buffer()
            }
            PixelSource::Resident => {
                stream.record(begin)?;
                &self.pixels
            }
        };
        stream.record(end)?;
        Ok(pixels.clone())
    }
}

impl<'a> PixelSource<'a> {
    /// # Errors
    /// [`EncodeError::Batch`] for memory that neither the host nor `device` can read.
    fn of(memory: &'a mut dyn BatchMemory, device: &Device) -> Result<Self, EncodeError> {
        let source = if memory.as_any().is::<Pinned>() {
            memory.as_any_mut().downcast_mut().map(PixelSource::Pinned)
        } else if memory.as_any().is::<DevicePixels>() {
            memory
                .as_any()
                .downcast_ref()
                .filter(|pixels: &&DevicePixels| pixels.device() == device)
                .map(PixelSource::Device)
        } else {
            memory.host().map(PixelSource::Host)
        };
        source.ok_or_else(|| EncodeError::Batch(format!("its memory is neither the host's nor that of {device:?}")))
    }
}

pub(super) fn number(device: &str) -> Result<usize, EncodeError> {
    foveate_cuda::ordinal(device).ok_or_else(|| EncodeError::Device {
        device: device.to_owned(),
        reason: "a device is called `cuda` or `cuda:N`".into(),
    })
}

pub(super) fn element(device: &Device, options: &EncoderOptions) -> Result<Element, EncodeError> {
    let (major, minor) = device.compute_capability();
    let what = format!("{} (compute capability {major}.{minor})", device.name());
    if (major, minor) < OLDEST {
        let reason = format!("{what} is too old; {}.{} is the least", OLDEST.0, OLDEST.1);
        return Err(EncodeError::Device { device: options.device.clone(), reason: reason.into() });
    }
    match options.dtype {
        DType::F32 => Ok(Element::F32),
        DType::F16 => Ok(Element::F16),
        DType::Bf16 if (major, minor) >= OLDEST_BF16 => Ok(Element::Bf16),
        DType::Bf16 => {
            Err(EncodeError::Unsupported(format!("bf16 on {what}, which has no instructions for it; use f16")))
        }
        other => Err(EncodeError::Unsupported(format!("{} on CUDA", other.name()))),
    }
}
