//! Embedding in the engine: on a device with several batches under way, with images prepared alone and in batches.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use foveate_core::{BatchMemory, PixelBatch, Size, VectorBuf};
use foveate_encode::{
    Allocate, Batch, Collected, DType, EncodeError, EncodeSpans, EncodeTimes, Encoder, EncoderSpec, Overlap, Place,
    Pooling, Resident, host_allocator,
};
use foveate_lane::Normalize;
use foveate_preprocess::{Granularity, ItemFault, PreprocessError, Preprocessor, PreprocessorOpener, StageClock};
use foveate_worker::{Batching, Done, Embed, Engine, EngineError, Image, Outcome, Output, Probe, Request, Stage};

const INPUT: Size = Size::new(1, 1);
const MAX_BATCH: usize = 4;

/// A device that accepts batches, and finishes none before its gate opens. An image's vector is its first sample.
struct Device {
    spec: EncoderSpec,
    under_way: VecDeque<Batch>,
    gate: Gate,
    /// The maximum number of batches that were under way.
    most: Arc<AtomicUsize>,
}

/// A last byte for which the device fails.
const BROKEN: u8 = b'B';
/// A last byte whose vector is not a number.
const NAN: u8 = b'N';
/// A last byte that cannot be decoded.
const CORRUPT: u8 = b'C';

#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn set_closed(&self, closed: bool) {
        *self.0.0.lock().unwrap() = closed;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let (closed, changed) = &*self.0;
        drop(changed.wait_while(closed.lock().unwrap(), |closed| *closed).unwrap());
    }
}

impl Device {
    fn new(gate: &Gate, most: &Arc<AtomicUsize>) -> Self {
        let spec = EncoderSpec {
            input: INPUT,
            mean: [0.0; 3],
            std: [1.0; 3],
            dim: 1,
            pooling: Pooling::Cls,
            device: "cuda:0".to_owned(),
            dtype: DType::F32,
            max_batch: MAX_BATCH,
            batch_invariant: true,
        };
        Self { spec, under_way: VecDeque::new(), gate: gate.clone(), most: Arc::clone(most) }
    }
}

impl Encoder for Device {
    fn spec(&self) -> &EncoderSpec {
        &self.spec
    }
    fn encode(&mut self, _: PixelBatch<'_>, _: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        unreachable!("the engine overlaps where it can")
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
    fn allocator(&mut self, _: Place) -> Allocate {
        host_allocator()
    }
    fn submit(&mut self, batch: Batch) -> Result<(), EncodeError> {
        self.under_way.push_back(batch);
        self.most.fetch_max(self.under_way.len(), SeqCst);
        Ok(())
    }
    fn collect(&mut self, out: &mut VectorBuf) -> Result<Collected, EncodeError> {
        let batch = self.under_way.pop_front().ok_or_else(|| EncodeError::Batch("none under way".to_owned()))?;
        self.gate.pass();
        let (started, samples) = (Instant::now(), batch.memory.host().unwrap());
        for (row, image) in out.reset(batch.images, 1).iter_mut().zip(samples.chunks_exact(3)) {
            if image[0] == BROKEN {
                self.under_way.clear();
                return Err(EncodeError::Engine("an illegal address".into()));
            }
            *row = if image[0] == NAN { f32::NAN } else { f32::from(image[0]) };
        }
        Ok(Collected { batch, spans: EncodeSpans::in_turn(started, EncodeTimes::forward_since(started)) })
    }
}

/// A file's pixels are its last byte.
struct Last;

impl Preprocessor for Last {
    fn preprocess(
        &mut self,
        images: &[&[u8]],
        out: &mut dyn BatchMemory,
        prepared: &mut Vec<Result<Size, ItemFault>>,
        _: &dyn StageClock,
    ) -> Result<(), PreprocessError> {
        let fault = || ItemFault { stage: foveate_core::Stage::Decode, reason: "bad marker".to_owned() };
        let lasts = images.iter().map(|image| image[image.len() - 1]);
        prepared.clear();
        prepared.extend(lasts.clone().map(|last| if last == CORRUPT { Err(fault()) } else { Ok(Size::new(640, 480)) }));
        let slots = out.host_mut().unwrap().chunks_exact_mut(3);
        slots.zip(lasts.filter(|&last| last != CORRUPT)).for_each(|(slot, last)| slot.fill(last));
        Ok(())
    }
}

struct Rig {
    engine: Engine,
    gate: Gate,
    most: Arc<AtomicUsize>,
}

impl Rig {
    fn new(granularity: Granularity) -> Self {
        let (gate, most) = (Gate::default(), Arc::default());
        let opener = PreprocessorOpener::new(granularity, INPUT, || Ok(Box::new(Last)));
        let embed = Embed::new(opener, vec![Box::new(Device::new(&gate, &most))], Normalize::Off).unwrap();
        let batching = Batching { max: MAX_BATCH, delay: Duration::from_millis(1), lanes: 1 };
        let engine = Engine::builder().workers(2).max_bytes_in_flight(64).task("embed", embed, batching);
        Self { engine: engine.build().unwrap(), gate, most }
    }

    fn submit(&self, last: u8) -> Receiver<Outcome> {
        let (tell, told) = channel();
        let done = Done::new(move |outcome| tell.send(outcome).unwrap());
        let image = Image::Bytes(vec![0xff, 0xd8, 0xff, 0xe0, last]);
        let (id, task, span) = (last.to_string(), "embed".to_owned(), tracing::Span::none());
        self.engine.submit(Request { id, task, image, metadata: None, done, span }).unwrap();
        told
    }
}

fn wait(told: &Receiver<Outcome>) -> Outcome {
    told.recv_timeout(Duration::from_secs(30)).unwrap()
}

fn check(outcome: Outcome, last: u8) {
    match (last, outcome) {
        (CORRUPT, Err(failure)) => {
            assert_eq!((failure.to_string().as_str(), failure.transient), ("decode: bad marker", false));
        }
        (NAN, Err(failure)) => {
            assert_eq!((failure.stage, failure.transient), (Stage::Process, true));
            assert!(failure.reason.contains("not a number"), "{failure}");
        }
        (BROKEN, Err(failure)) => {
            assert_eq!(failure.to_string(), "process: encoder failed: an illegal address");
            assert!(failure.transient);
        }
        (last, Ok(Output::Vector(embedding))) => {
            assert_eq!((embedding.vector, embedding.width, embedding.height), (vec![f32::from(last)], 640, 480));
        }
        (last, outcome) => panic!("{last}: {outcome:?}"),
    }
}

#[test]
fn every_request_has_its_own_outcome_whatever_is_in_its_batch() {
    for granularity in [Granularity::Image, Granularity::Batch] {
        let rig = Rig::new(granularity);
        let lasts: Vec<u8> = (0..400).map(|n| b"abcdefgCNhijBklmnopCqrst"[n % 24]).collect();
        let told: Vec<_> = lasts.iter().map(|&last| (last, rig.submit(last))).collect();
        told.iter().for_each(|(last, told)| check(wait(told), *last));
        assert!(told.iter().all(|(_, told)| told.try_recv().is_err()), "one outcome");
        assert_eq!((rig.engine.in_flight(), rig.engine.live()), (0, Ok(())));
    }
}

#[test]
fn batches_are_submitted_while_others_are_under_way() {
    for granularity in [Granularity::Image, Granularity::Batch] {
        let rig = Rig::new(granularity);
        rig.gate.set_closed(true);
        let told: Vec<_> = (b'a'..=b'z').map(|last| (last, rig.submit(last))).collect();
        // The first image goes alone or with a few others; the rest gathers behind it.
        let all = "foveate_items_total{stage=\"preprocess\",task=\"embed\",result=\"ok\"} 26";
        while !rig.engine.metrics().lines().any(|line| line == all) {
            std::thread::sleep(Duration::from_millis(1));
        }
        rig.gate.set_closed(false);
        told.iter().for_each(|(last, told)| check(wait(told), *last));
        assert_eq!(rig.most.load(SeqCst), 3, "{granularity:?}");
    }
}

#[test]
fn a_task_has_as_many_lanes_as_encoders() {
    let opener = PreprocessorOpener::new(Granularity::Image, INPUT, || Ok(Box::new(Last)));
    let embed = Embed::new(opener, vec![Box::new(Device::new(&Gate::default(), &Arc::default()))], Normalize::Off);
    let batching = Batching { lanes: 2, ..Batching::default() };
    let refused = Engine::builder().task("embed", embed.unwrap(), batching).build().unwrap_err();
    assert!(matches!(refused, EngineError::Options(_)));
    assert_eq!(refused.to_string(), "task 'embed' has no more than 1 lanes, not 2");
}
