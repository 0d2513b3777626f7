//! Groups of images in flight on the device. Two groups take turns: while one's pixels are resized, the next is
//! decoded.

use std::time::Duration;

use foveate_core::{Size, Stage};
use foveate_cuda::nvjpeg::{Huffman, ImageDecoder, NvjpegHandle, Target};
use foveate_cuda::{Buffer, CudaError, Device, Event, Pinned, Stream};
use foveate_preprocess::{ItemFault, StageClock};

use crate::admission::Admitted;
use crate::lane::EngineLane;
use crate::resample::{ResampleBatch, ResampleMemory, ResampleSource, Resampler, pitch, room};

/// One encoded image of a batch, and its plan for the device; `None` if the device does not prepare it.
pub(crate) struct FlightItem<'a> {
    /// Its place in the batch.
    pub(crate) number: usize,
    pub(crate) bytes: &'a [u8],
    pub(crate) admitted: Option<Admitted>,
    /// Its outcome, if the host has prepared it already.
    pub(crate) ready: Option<Result<Size, ItemFault>>,
}

/// The alignment of each image's memory.
const ALIGNMENT: usize = 256;

impl FlightItem<'_> {
    /// The bytes of its pixels and of those between two passes, in the arena.
    fn parts(&self) -> [usize; 2] {
        let Some(admitted) = &self.admitted else { return [0; 2] };
        [room(admitted.stored), admitted.recipe.between()]
            .map(|bytes| bytes.saturating_add(ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT)
    }

    /// The bytes it needs in the arena.
    pub(crate) fn bytes_on_device(&self) -> usize {
        self.parts().into_iter().fold(0, usize::saturating_add)
    }
}

/// The outcome of an image that the device was given.
pub(crate) enum DecodedItem {
    /// Its pixels are in the arena, once the stream is done: their offset, and the offset of the memory behind them.
    Device([usize; 2]),
    /// The CPU must decode it.
    No,
}

/// Memory and decoders for one group.
pub(crate) struct DecodeFlight {
    stream: Stream,
    arena: Buffer,
    tables: (Pinned, Buffer),
    /// Recorded before the first image, after decoding, after resizing.
    moments: [Event; 3],
    /// True if the device decodes some of the images.
    decodes: bool,
    /// True if the device has been given all of them.
    is_under_way: bool,
}

/// The device's time between two recorded events.
fn between(earlier: &Event, later: &Event) -> Result<Duration, CudaError> {
    later.seconds_since(earlier).map(|seconds| Duration::from_secs_f64(seconds.max(0.0)))
}

impl DecodeFlight {
    pub(crate) fn new(device: &Device) -> Result<Self, CudaError> {
        Ok(Self {
            stream: Stream::new(device)?,
            arena: Buffer::zeroed(device, 1)?,
            tables: (Pinned::new(device, 1)?, Buffer::zeroed(device, 1)?),
            moments: [Event::new(device)?, Event::new(device)?, Event::new(device)?],
            decodes: false,
            is_under_way: false,
        })
    }

    /// Returns true if the device works on the previous group.
    pub(crate) fn is_busy(&self) -> Result<bool, CudaError> {
        Ok(self.is_under_way && !self.moments[2].has_happened()?)
    }

    /// Waits until the previous group is done, and reports its times.
    pub(crate) fn finish(&mut self, clock: &dyn StageClock) -> Result<(), CudaError> {
        if !std::mem::take(&mut self.is_under_way) {
            return Ok(());
        }
        let [begun, decoded, resized] = &self.moments;
        resized.synchronize()?;
        if self.decodes {
            clock.record(Stage::Decode, between(begun, decoded)?);
        }
        clock.record(Stage::Resize, between(decoded, resized)?);
        Ok(())
    }

    /// Waits for all enqueued work, after a failure.
    pub(crate) fn abandon(&mut self) {
        // An error means that the context is lost, and the work with it.
        let _ = self.stream.synchronize();
        self.is_under_way = false;
    }

    /// Frees memory that only an unusually large group needed.
    pub(crate) fn shrink(&mut self, device: &Device, most: usize) -> Result<(), CudaError> {
        if self.arena.bytes() > most {
            self.arena = Buffer::zeroed(device, 1)?;
        }
        Ok(())
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Decodes the images of `items` that the device supports. The previous group must be finished. Groups have `usual`
    /// bytes at most, unless a single image has more.
    pub(crate) fn decode(
        &mut self,
        device: &Device,
        decoders: &mut Decoders,
        items: &[FlightItem<'_>],
        usual: usize,
    ) -> Result<Vec<DecodedItem>, CudaError> {
        let bytes = items.iter().map(FlightItem::bytes_on_device).fold(0, usize::saturating_add);
        if bytes > self.arena.bytes() {
            // Frees the old one first. The new one serves all usual groups, because freeing waits for the device.
            self.arena = Buffer::zeroed(device, 1)?;
            self.arena = Buffer::zeroed(device, bytes.max(usual))?;
        }
        self.stream.record(&self.moments[0])?;
        let mut rooms = Vec::with_capacity(items.len());
        let mut free = 0;
        for item in items {
            let [pixels, between] = item.parts();
            rooms.push([free, free + pixels]);
            free += pixels + between;
        }
        let is_decoded = self.decode_into(decoders, items, &rooms)?;
        self.decodes = is_decoded.contains(&true);
        self.stream.record(&self.moments[1])?;
        let mut decoded = Vec::with_capacity(items.len());
        for (room, is_decoded) in rooms.into_iter().zip(is_decoded) {
            decoded.push(if is_decoded { DecodedItem::Device(room) } else { DecodedItem::No });
        }
        Ok(decoded)
    }

    fn decode_into(
        &mut self,
        decoders: &mut Decoders,
        items: &[FlightItem<'_>],
        rooms: &[[usize; 2]],
    ) -> Result<Vec<bool>, CudaError> {
        let mut is_decoded = vec![false; items.len()];
        let arena = self.arena.clone();
        let mut admitted = Vec::new();
        for (at, (item, room)) in items.iter().zip(rooms).enumerate() {
            if let Some(Admitted { stored: Size { width, height }, .. }) = item.admitted {
                let target = Target { buffer: &arena, offset: room[0], width, height, pitch: pitch(width) };
                admitted.push((at, item.bytes, target));
            }
        }
        match decoders {
            Decoders::Engines(lane) => {
                let mut engines = lane.lock();
                let mut places = Vec::new();
                let mut jpegs = Vec::new();
                for (at, bytes, target) in admitted {
                    if let Some(taken) = engines.take(bytes, target)? {
                        places.push(at);
                        jpegs.push(taken);
                    }
                }
                if !jpegs.is_empty() && engines.decode(&self.stream, &jpegs)? {
                    places.into_iter().for_each(|at| is_decoded[at] = true);
                }
            }
            Decoders::Cores(cores) => {
                for (at, bytes, target) in admitted {
                    // So that the host's part of an image overlaps with the device's part of the previous one.
                    cores.swap(0, 1);
                    is_decoded[at] = cores[0].decode(&self.stream, bytes, &target)?;
                }
            }
        }
        Ok(is_decoded)
    }

    /// The location of a decoded image's pixels.
    pub(crate) fn source(room: [usize; 2], admitted: &Admitted) -> ResampleSource {
        ResampleSource::turned(room[0], admitted.stored, admitted.turn)
    }

    /// Enqueues the batch's resizing behind the decoding.
    pub(crate) fn resize(
        &mut self,
        device: &Device,
        resampler: &Resampler,
        job: &ResampleBatch,
        out: &Buffer,
    ) -> Result<(), CudaError> {
        let bytes = job.bytes();
        if bytes > self.tables.1.bytes() {
            let room = bytes.next_power_of_two();
            self.tables = (Pinned::new(device, room)?, Buffer::zeroed(device, room)?);
        }
        let (host, tables) = &mut self.tables;
        job.write(host.as_mut_slice());
        self.stream.upload(host, tables, bytes)?;
        resampler.run(&self.stream, job, &ResampleMemory { tables, arena: &self.arena, out })?;
        self.stream.record(&self.moments[2])?;
        self.is_under_way = true;
        Ok(())
    }
}

/// The decoders of both groups.
pub(crate) enum Decoders {
    /// The chip's engines. The host decodes what they do not take.
    Engines(EngineLane),
    /// The chip's cores: two that take turns.
    Cores(Box<[ImageDecoder; 2]>),
}

impl Decoders {
    pub(crate) fn new(device: &Device, handle: &NvjpegHandle, huffman: Huffman) -> Result<Self, CudaError> {
        if let Some(lane) = EngineLane::of(device, handle)? {
            return Ok(Self::Engines(lane));
        }
        Ok(Self::Cores(Box::new([ImageDecoder::new(handle, huffman)?, ImageDecoder::new(handle, huffman)?])))
    }

    /// Returns true if the engines work for another preprocessor.
    pub(crate) fn are_busy(&self) -> Result<bool, CudaError> {
        match self {
            Self::Engines(lane) => lane.is_busy(),
            Self::Cores(_) => Ok(false),
        }
    }
}
