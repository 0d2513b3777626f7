//! The encoder of a stand-in.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use foveate_core::{PixelBatch, VectorBuf};
use foveate_encode::{
    Allocate, Batch, Collected, EncodeError, EncodeSpans, EncodeTimes, Encoder, EncoderSpec, Overlap, Place, Resident,
    host_allocator,
};

/// Batches in flight at once, as with a real device.
const DEPTH: usize = 3;
/// The first components of every vector. No sample of an image is negative, so the mark tells these vectors from
/// everything that was computed from pixels alone.
const MARK: [f32; 2] = [-1.0, -1.0];

/// A device that takes batches one after the other. Its schedule is kept in deadlines: a host that collects late, on a
/// busy machine, does not make the device slower.
pub(super) struct StandInDevice {
    spec: EncoderSpec,
    /// Seconds of a batch of any size, and of each image.
    seconds: (f64, f64),
    /// Time at which the device is done with all submitted batches.
    free_at: Instant,
    flights: VecDeque<(Batch, EncodeSpans)>,
    /// The vectors of the last batch from [`Encoder::encode`].
    last: VectorBuf,
}

impl StandInDevice {
    pub(super) fn new(spec: EncoderSpec, overhead: f64, per_image: f64) -> Self {
        let free_at = Instant::now();
        let flights = VecDeque::new();
        let last = VectorBuf::new();
        Self { spec, seconds: (overhead, per_image), free_at, flights, last }
    }

    /// Schedules a batch after those before it, and returns its beginning and its length.
    fn schedule(&mut self, images: usize) -> (Instant, Duration) {
        let (overhead, per_image) = self.seconds;
        let length = Duration::from_secs_f64(overhead + per_image * images as f64);
        let begin = self.free_at.max(Instant::now());
        self.free_at = begin + length;
        (begin, length)
    }

    fn write(&self, batch: PixelBatch<'_>, out: &mut VectorBuf) {
        let dim = self.spec.dim.max(1);
        for (at, vector) in out.reset(batch.len(), dim).chunks_exact_mut(dim).enumerate() {
            let samples = batch.image(at).iter().map(|&sample| f32::from(sample)).cycle();
            vector.iter_mut().zip(MARK.into_iter().chain(samples)).for_each(|(value, sample)| *value = sample);
        }
    }
}

/// Sleeps until the end of a forward.
fn await_end((begin, length): (Instant, Duration)) -> EncodeTimes {
    thread::sleep((begin + length).saturating_duration_since(Instant::now()));
    EncodeTimes { forward: length, ..EncodeTimes::default() }
}

impl Encoder for StandInDevice {
    fn spec(&self) -> &EncoderSpec {
        &self.spec
    }

    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        self.spec.check(batch)?;
        let forward = self.schedule(batch.len());
        self.write(batch, out);
        self.last.clone_from(out);
        Ok(await_end(forward))
    }

    fn resident(&mut self) -> Option<&mut dyn Resident> {
        (self.last.rows() > 0).then_some(self as _)
    }

    fn overlap(&mut self) -> Option<&mut dyn Overlap> {
        Some(self)
    }
}

impl Resident for StandInDevice {
    fn encode_again(&mut self, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        let forward = self.schedule(self.last.rows());
        out.clone_from(&self.last);
        Ok(await_end(forward))
    }
}

impl Overlap for StandInDevice {
    fn depth(&mut self) -> usize {
        DEPTH
    }

    fn allocator(&mut self, _: Place) -> Allocate {
        host_allocator()
    }

    fn submit(&mut self, batch: Batch) -> Result<(), EncodeError> {
        if self.flights.len() == DEPTH {
            return Err(EncodeError::Batch(format!("{DEPTH} batches are in flight already")));
        }
        self.spec.check(pixels(&batch)?)?;
        let forward = self.schedule(batch.images);
        let begin = forward.0;
        let end = forward.0 + forward.1;
        let spans = EncodeSpans { copy_in: (begin, Duration::ZERO), forward, copy_out: (end, Duration::ZERO) };
        self.flights.push_back((batch, spans));
        Ok(())
    }

    fn collect(&mut self, out: &mut VectorBuf) -> Result<Collected, EncodeError> {
        let flight = self.flights.pop_front();
        let (batch, spans) = flight.ok_or_else(|| EncodeError::Batch("none is in flight".to_owned()))?;
        self.write(pixels(&batch)?, out);
        await_end(spans.forward);
        Ok(Collected { batch, spans })
    }
}

/// Returns a batch's pixels, which are in the host's memory.
fn pixels(batch: &Batch) -> Result<PixelBatch<'_>, EncodeError> {
    let bytes = batch.size.rgb_len().unwrap_or(0) * batch.images;
    let host = batch.memory.host().and_then(|host| host.get(..bytes));
    let pixels = host.and_then(|host| PixelBatch::new(host, batch.size));
    pixels.ok_or_else(|| EncodeError::Batch(format!("{} images of {} elsewhere", batch.images, batch.size)))
}

#[cfg(test)]
mod tests {
    use foveate_core::Size;
    use foveate_encode::{DType, Pooling};
    use foveate_profile::process;

    use super::*;

    const SIZE: Size = Size::new(2, 1);

    fn device(overhead: f64, per_image: f64) -> StandInDevice {
        let spec = EncoderSpec {
            input: SIZE,
            sample: foveate_core::SampleType::U8,
            mean: [0.0; 3],
            std: [1.0; 3],
            dim: 4,
            pooling: Pooling::Cls,
            device: "stand-in".to_owned(),
            dtype: DType::F16,
            max_batch: 4,
            batch_invariant: true,
            kernels: None,
        };
        StandInDevice::new(spec, overhead, per_image)
    }

    fn batch(images: usize) -> Batch {
        Batch { memory: Box::new(vec![7; images * 6]), images, size: SIZE }
    }

    #[test]
    fn a_batch_takes_its_time_and_none_of_a_core() {
        let mut device = device(0.02, 0.01);
        let started = Instant::now();
        let before = process::thread_processor_time();
        let times = device.encode(PixelBatch::new(&[7; 24], SIZE).unwrap(), &mut VectorBuf::new()).unwrap();
        assert_eq!(times.forward, Duration::from_millis(60));
        assert!(started.elapsed() >= Duration::from_millis(60));
        let busy = process::thread_processor_time().zip(before).map(|(after, before)| after.saturating_sub(before));
        assert!(busy.is_none_or(|busy| busy < Duration::from_millis(30)), "{busy:?}");
    }

    #[test]
    fn batches_in_flight_follow_each_other_without_a_gap() {
        let mut device = device(0.01, 0.005);
        (1..=3).for_each(|images| device.submit(batch(images)).unwrap());
        assert!(device.submit(batch(1)).is_err(), "a fourth one");
        // However late the host collects, the device began each batch as the one before it ended.
        let mut out = VectorBuf::new();
        let spans: Vec<_> = (0..3).map(|_| device.collect(&mut out).unwrap().spans.forward).collect();
        assert_eq!(spans.iter().map(|(_, length)| length.as_millis()).collect::<Vec<_>>(), [15, 20, 25]);
        assert!(spans.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0), "{spans:?}");
        assert!(device.collect(&mut out).is_err(), "nothing is left");
    }

    #[test]
    fn vectors_are_marked_and_depend_on_the_image_alone() {
        let mut device = device(0.0, 0.001);
        let mut one = VectorBuf::new();
        let mut again = VectorBuf::new();
        let mut other = VectorBuf::new();
        let images = [1, 2, 3, 4, 5, 6, 9, 8, 7, 6, 5, 4];
        device.encode(PixelBatch::new(&images, SIZE).unwrap(), &mut one).unwrap();
        device.resident().unwrap().encode_again(&mut again).unwrap();
        device.encode(PixelBatch::new(&images[6..], SIZE).unwrap(), &mut other).unwrap();
        assert_eq!([one.row(0), one.row(1)], [[-1.0, -1.0, 1.0, 2.0], [-1.0, -1.0, 9.0, 8.0]]);
        assert_eq!((again.row(1), other.row(0)), (one.row(1), one.row(1)));
    }
}
