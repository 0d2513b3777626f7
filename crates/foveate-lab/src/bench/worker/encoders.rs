//! Encoders of the experiment: one that stands for a device, and one that records its computing time.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use foveate_core::{CHANNELS, PixelBatch, Size, VectorBuf, lock};
use foveate_encode::{
    Allocate, Batch, Collected, DType, EncodeError, EncodeTimes, Encoder, EncoderSpec, Overlap, Place, Pooling,
    Resident, host_allocator,
};

use crate::wrap::overlap;

/// Sleeps for each batch, like a device that a small batch does not fill, and returns each image's mean colour.
pub(super) struct Stub {
    spec: EncoderSpec,
    sleeps: [Duration; 2],
}

impl Stub {
    /// Creates one for images of size `input`, at most `max_batch` at a time, that sleeps for each batch and for each
    /// image of it.
    pub(super) fn new(input: Size, max_batch: usize, sleeps: [Duration; 2]) -> Self {
        let spec = EncoderSpec {
            input,
            sample: foveate_core::SampleType::U8,
            mean: [0.0; 3],
            std: [1.0; 3],
            dim: CHANNELS,
            pooling: Pooling::Mean,
            device: "none".to_owned(),
            dtype: DType::F32,
            max_batch,
            batch_invariant: true,
            kernels: None,
        };
        Self { spec, sleeps }
    }
}

impl Encoder for Stub {
    fn spec(&self) -> &EncoderSpec {
        &self.spec
    }

    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        self.spec.check(batch)?;
        let started = Instant::now();
        let [batch_sleep, image_sleep] = self.sleeps;
        thread::sleep(batch_sleep + image_sleep * u32::try_from(batch.len()).unwrap_or(u32::MAX));
        let rows = out.reset(batch.len(), CHANNELS).chunks_exact_mut(CHANNELS);
        for (i, row) in rows.enumerate() {
            let pixels = batch.image(i).chunks_exact(CHANNELS);
            let count = pixels.len() as f64;
            for (channel, mean) in row.iter_mut().enumerate() {
                let sum: u64 = pixels.clone().map(|pixel| u64::from(pixel[channel])).sum();
                *mean = (sum as f64 / count) as f32;
            }
        }
        Ok(EncodeTimes::forward_since(started))
    }

    fn resident(&mut self) -> Option<&mut dyn Resident> {
        None
    }

    fn overlap(&mut self) -> Option<&mut dyn Overlap> {
        None
    }
}

/// The work of an encoder.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EncoderWork {
    pub(super) busy: Duration,
    pub(super) batches: u64,
    pub(super) images: u64,
}

impl EncoderWork {
    /// Returns the work since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        let Self { busy, batches, images } = before;
        Self { busy: self.busy - busy, batches: self.batches - batches, images: self.images - images }
    }
}

/// Records the work of another encoder. A clone shares the records.
#[derive(Clone, Default)]
pub(super) struct EncoderNotes(Arc<Mutex<EncoderWork>>);

impl EncoderNotes {
    fn add(&self, busy: Duration, images: usize) {
        let mut work = lock(&self.0);
        work.busy += busy;
        work.batches += 1;
        work.images += images as u64;
    }

    pub(super) fn work(&self) -> EncoderWork {
        *lock(&self.0)
    }
}

pub(super) struct NotedEncoder<E> {
    pub(super) inner: E,
    pub(super) notes: EncoderNotes,
}

impl<E: Encoder> Encoder for NotedEncoder<E> {
    fn spec(&self) -> &EncoderSpec {
        self.inner.spec()
    }

    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        let started = Instant::now();
        let times = self.inner.encode(batch, out)?;
        self.notes.add(started.elapsed(), batch.len());
        Ok(times)
    }

    fn resident(&mut self) -> Option<&mut dyn Resident> {
        self.inner.resident()
    }

    fn overlap(&mut self) -> Option<&mut dyn Overlap> {
        self.inner.overlap().is_some().then_some(self as _)
    }
}

/// Counts the device as busy during the forwards, which do not overlap each other.
impl<E: Encoder> Overlap for NotedEncoder<E> {
    fn depth(&mut self) -> usize {
        self.inner.overlap().map_or(1, |inner| inner.depth())
    }

    fn allocator(&mut self, place: Place) -> Allocate {
        self.inner.overlap().map_or_else(host_allocator, |inner| inner.allocator(place))
    }

    fn submit(&mut self, batch: Batch) -> Result<(), EncodeError> {
        overlap(&mut self.inner)?.submit(batch)
    }

    fn collect(&mut self, out: &mut VectorBuf) -> Result<Collected, EncodeError> {
        let collected = overlap(&mut self.inner)?.collect(out)?;
        self.notes.add(collected.spans.forward.1, collected.batch.images);
        Ok(collected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stub_gives_mean_colours_after_its_sleeps() {
        let notes = EncoderNotes::default();
        let inner = Stub::new(Size::new(2, 1), 2, [20, 5].map(Duration::from_millis));
        let mut stub = NotedEncoder { inner, notes: notes.clone() };
        let pixels = [0, 10, 255, 4, 20, 255, 9, 9, 9, 9, 9, 9];
        let mut out = VectorBuf::new();
        stub.encode(PixelBatch::new(&pixels, Size::new(2, 1)).unwrap(), &mut out).unwrap();
        assert_eq!([out.row(0), out.row(1)], [[2.0, 15.0, 255.0], [9.0, 9.0, 9.0]]);
        let both = out.clone();
        let first = notes.work();
        stub.encode(PixelBatch::new(&pixels[6..], Size::new(2, 1)).unwrap(), &mut out).unwrap();
        assert_eq!(out.row(0), both.row(1));
        let work = notes.work();
        assert_eq!((work.batches, work.images), (2, 3));
        let second = work.since(first);
        assert_eq!((second.batches, second.images, second.busy + first.busy), (1, 1, work.busy));
        // A batch of two and one of one.
        assert!(work.busy >= Duration::from_millis(55), "{work:?}");
        let three = [0; 18];
        assert!(stub.encode(PixelBatch::new(&three, Size::new(2, 1)).unwrap(), &mut out).is_err());
    }
}
