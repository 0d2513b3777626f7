//! Embedding in the engine: on a device with several batches under way, with images prepared alone and in batches.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use foveate_core::{BatchMemory, Size, VectorBuf};
use foveate_encode::EncodeError;
use foveate_pipeline::lane::Normalize;
use foveate_pipeline::{KnownVector, Recall};
use foveate_preprocess::{Granularity, ItemFault, PreprocessError, Preprocessor, PreprocessorOpener, StageClock};
use foveate_sink::ContentId;
use foveate_worker::{
    Batching, Done, Embed, EmbedTexts, Engine, EngineError, Image, Outcome, Output, Probe, Request, Stage, TaskError,
    TextTokens,
};

use foveate_testkit::device::{Device, Notes};

const INPUT: Size = Size::new(1, 1);
const MAX_BATCH: usize = 4;

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

/// A device that finishes no batch before its gate opens. An image's vector is its first sample.
fn device(gate: &Gate) -> Device {
    let gate = gate.clone();
    Device::new((INPUT, 1, MAX_BATCH), move |batch, out| {
        gate.pass();
        let samples = batch.memory.host().unwrap();
        for (row, image) in out.reset(batch.images, 1).iter_mut().zip(samples.chunks_exact(3)) {
            if image[0] == BROKEN {
                return Err(EncodeError::Engine("an illegal address".into()));
            }
            *row = if image[0] == NAN { f32::NAN } else { f32::from(image[0]) };
        }
        Ok(())
    })
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

/// A text's vector is its negative number of letters.
struct Letters;

impl EmbedTexts for Letters {
    fn tokenize(&self, text: &str) -> Result<TextTokens, TaskError> {
        Ok(TextTokens { ids: text.bytes().map(u32::from).collect(), real: text.len() })
    }

    fn embed_tokens(&self, texts: &[&[u32]], vectors: &mut VectorBuf) -> Result<(), TaskError> {
        vectors.reset(texts.len(), 1).iter_mut().zip(texts).for_each(|(row, ids)| *row = -(ids.len() as f32));
        Ok(())
    }
}

struct Rig {
    engine: Engine,
    gate: Gate,
    notes: Arc<Mutex<Notes>>,
}

impl Rig {
    fn new(granularity: Granularity) -> Self {
        Self::with_cache(granularity, None)
    }

    fn with_cache(granularity: Granularity, cache: Option<Arc<dyn Recall>>) -> Self {
        let gate = Gate::default();
        let device = device(&gate);
        let notes = device.notes();
        let opener = PreprocessorOpener::new(granularity, INPUT, || Ok(Box::new(Last)));
        let embed =
            Embed::new(opener, vec![Box::new(device)], Normalize::Off).unwrap().cache(cache).texts(Arc::new(Letters));
        let batching = Batching { max: MAX_BATCH, delay: Duration::from_millis(1), lanes: 1 };
        let engine = Engine::builder().workers(2).max_bytes_in_flight(64).task("embed", embed, batching);
        Self { engine: engine.build().unwrap(), gate, notes }
    }

    fn submit(&self, last: u8) -> Receiver<Outcome> {
        self.send(Image::Bytes(vec![0xff, 0xd8, 0xff, 0xe0, last]))
    }

    fn send(&self, image: Image) -> Receiver<Outcome> {
        let (tell, told) = channel();
        let done = Done::new(move |outcome| tell.send(outcome).unwrap());
        let (id, task, span) = ("id".to_owned(), "embed".to_owned(), tracing::Span::none());
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
            assert_eq!((failure.stage, failure.transient), (Stage::Process, false), "not the device's fault");
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
fn texts_and_images_share_batches() {
    for granularity in [Granularity::Image, Granularity::Batch] {
        let rig = Rig::new(granularity);
        let mut told = Vec::new();
        for n in 1..200 {
            let last = b"abCdBe"[n % 6];
            told.push((last, n, rig.submit(last), rig.send(Image::Text("x".repeat(n)))));
        }
        for (last, letters, image, text) in told {
            check(wait(&image), last);
            let Ok(Output::Vector(text)) = wait(&text) else { panic!("{letters}") };
            assert_eq!((text.vector, text.tokens, text.width), (vec![-(letters as f32)], letters, 0));
        }
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
        assert_eq!(rig.notes.lock().unwrap().most, 3, "{granularity:?}");
    }
}

#[test]
fn a_task_has_as_many_lanes_as_encoders() {
    let opener = PreprocessorOpener::new(Granularity::Image, INPUT, || Ok(Box::new(Last)));
    let embed = Embed::new(opener, vec![Box::new(device(&Gate::default()))], Normalize::Off);
    let batching = Batching { lanes: 2, ..Batching::default() };
    let refused = Engine::builder().task("embed", embed.unwrap(), batching).build().unwrap_err();
    assert!(matches!(refused, EngineError::Options(_)));
    assert_eq!(refused.to_string(), "task 'embed' has no more than 1 lanes, not 2");
}

#[derive(Debug, Default)]
struct Remembered(Mutex<HashMap<ContentId, KnownVector>>);

impl Recall for Remembered {
    fn recall(&self, content: ContentId) -> Option<KnownVector> {
        self.0.lock().unwrap().get(&content).cloned()
    }
    fn remember(&self, content: ContentId, known: KnownVector) {
        self.0.lock().unwrap().insert(content, known);
    }
}

#[test]
fn an_image_in_the_cache_waits_for_no_batch() {
    for granularity in [Granularity::Image, Granularity::Batch] {
        let cache = Arc::new(Remembered::default());
        let rig = Rig::with_cache(granularity, Some(Arc::clone(&cache) as Arc<dyn Recall>));
        let first = wait(&rig.submit(7)).unwrap();
        assert!(wait(&rig.submit(NAN)).is_err() && wait(&rig.submit(CORRUPT)).is_err());
        assert_eq!(cache.0.lock().unwrap().len(), 1, "failures are not kept");

        // The device finishes nothing any more.
        rig.gate.set_closed(true);
        let (again, other) = (rig.submit(7), rig.submit(8));
        assert_eq!(wait(&again).unwrap(), first);
        assert!(
            rig.engine.metrics().contains("foveate_cache_hits_total{task=\"embed\"} 1"),
            "{}",
            rig.engine.metrics()
        );
        rig.gate.set_closed(false);
        assert_ne!(wait(&other).unwrap(), first);

        cache.0.lock().unwrap().values_mut().for_each(|known| known.vector.push(0.0));
        assert_eq!(wait(&rig.submit(7)).unwrap(), first, "a vector of another length is of no use");
    }
}
