//! A device whose encoder keeps batches under way.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use foveate_core::{PixelBatch, Size, VectorBuf};
use foveate_encode::{
    Allocate, Batch, Collected, DType, EncodeError, EncodeSpans, EncodeTimes, Encoder, EncoderSpec, Overlap, Place,
    Pooling, Resident, host_allocator,
};

/// The requests that a device received.
#[derive(Default)]
pub struct Notes {
    /// The sizes of its batches.
    pub sizes: BTreeSet<usize>,
    /// The most batches under way at once.
    pub most: usize,
    /// The places that memory was wanted at.
    pub places: Vec<Place>,
}

/// Computes a batch's vectors.
type Forward = dyn FnMut(&Batch, &mut VectorBuf) -> Result<(), EncodeError> + Send;

/// A device that reads a batch's memory as late as it may: when the batch is collected. An error takes along the
/// batches under way.
pub struct Device {
    spec: EncoderSpec,
    forward: Box<Forward>,
    allocator: fn(Place) -> Allocate,
    under_way: VecDeque<Batch>,
    notes: Arc<Mutex<Notes>>,
}

impl Device {
    /// A device with all its memory on the host.
    pub fn new(
        (input, dim, max_batch): (Size, usize, usize),
        forward: impl FnMut(&Batch, &mut VectorBuf) -> Result<(), EncodeError> + Send + 'static,
    ) -> Self {
        let notes = Arc::default();
        let spec = spec((input, dim, max_batch), "cuda:0");
        Self { spec, forward: Box::new(forward), allocator: |_| host_allocator(), under_way: VecDeque::new(), notes }
    }

    /// The same device with another memory.
    pub fn with_allocator(self, allocator: fn(Place) -> Allocate) -> Self {
        Self { allocator, ..self }
    }

    /// The requests so far.
    pub fn notes(&self) -> Arc<Mutex<Notes>> {
        Arc::clone(&self.notes)
    }
}

/// The spec of an encoder that leaves pixels as they are.
pub fn spec((input, dim, max_batch): (Size, usize, usize), device: &str) -> EncoderSpec {
    EncoderSpec {
        input,
        sample: foveate_core::SampleType::U8,
        mean: [0.0; 3],
        std: [1.0; 3],
        dim,
        pooling: Pooling::Cls,
        device: device.to_owned(),
        dtype: DType::F32,
        max_batch,
        batch_invariant: true,
        kernels: None,
    }
}

impl Encoder for Device {
    fn spec(&self) -> &EncoderSpec {
        &self.spec
    }
    fn encode(&mut self, _: PixelBatch<'_>, _: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        unreachable!("whoever can overlap does")
    }
    fn resident(&mut self) -> Option<&mut dyn Resident> {
        None
    }
    fn overlap(&mut self) -> Option<&mut dyn Overlap> {
        Some(self)
    }
}

impl Overlap for Device {
    fn depth(&mut self) -> usize {
        3
    }
    fn allocator(&mut self, place: Place) -> Allocate {
        self.notes.lock().unwrap().places.push(place);
        (self.allocator)(place)
    }
    fn submit(&mut self, batch: Batch) -> Result<(), EncodeError> {
        let Size { width, height } = self.spec.input;
        assert!(batch.memory.bytes() >= batch.images * (width * height * 3) as usize, "a batch lies in its memory");
        assert!(self.under_way.len() < 3, "no more than the depth");
        let mut notes = self.notes.lock().unwrap();
        notes.sizes.insert(batch.images);
        self.under_way.push_back(batch);
        notes.most = notes.most.max(self.under_way.len());
        Ok(())
    }
    fn collect(&mut self, out: &mut VectorBuf) -> Result<Collected, EncodeError> {
        let batch = self.under_way.pop_front().ok_or_else(|| EncodeError::Batch("none under way".to_owned()))?;
        let started = Instant::now();
        (self.forward)(&batch, out).inspect_err(|_| self.under_way.clear())?;
        Ok(Collected { batch, spans: EncodeSpans::in_turn(started, EncodeTimes::forward_since(started)) })
    }
}
