//! Two tasks of your own in one worker process: the brightness of photos, and their size.

use std::sync::Arc;
use std::sync::mpsc::channel;

use foveate_core::{PixelBuf, PixelLimits};
use foveate_decode::{DecodeHint, Decoder, DecoderOptions};
use foveate_decode_zune::ZuneDecoder;
use foveate_worker::{Batching, Done, Engine, Image, InTurn, Output, Received, Request, Task, TaskError};
use serde_json::json;

/// The mean of all samples, 0 to 255.
struct Brightness;
/// The size of the file.
struct Bytes;

impl Task for Brightness {
    type Prepared = PixelBuf;
    type Lane = InTurn<PixelBuf>;

    fn prepare(&self, received: Received<'_>) -> Result<PixelBuf, TaskError> {
        let mut pixels = PixelBuf::new(PixelLimits::DEFAULT);
        let decoded =
            ZuneDecoder::new(DecoderOptions::default()).decode(&received.file, DecodeHint::default(), &mut pixels);
        decoded.map_err(|error| TaskError::image(error.to_string()).at("decode"))?;
        Ok(pixels)
    }

    fn lane(self: Arc<Self>) -> Option<InTurn<PixelBuf>> {
        let mean = |samples: &[u8]| samples.iter().map(|&s| f64::from(s)).sum::<f64>() / samples.len() as f64;
        let output = move |pixels: &PixelBuf| Output::Json(json!(mean(pixels.as_slice()).round()));
        Some(InTurn::new(move |batch| Ok(batch.iter().map(output).collect())))
    }
}

impl Task for Bytes {
    type Prepared = usize;
    type Lane = InTurn<usize>;

    fn prepare(&self, received: Received<'_>) -> Result<usize, TaskError> {
        Ok(received.file.len())
    }

    fn lane(self: Arc<Self>) -> Option<InTurn<usize>> {
        Some(InTurn::new(|batch| Ok(batch.iter().map(|&bytes| Output::Json(json!(bytes))).collect())))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usual = Batching::default();
    let engine = Engine::builder().task("brightness", Brightness, usual).task("bytes", Bytes, usual).build()?;
    // `Worker::start(engine, WorkerOptions::new(queues, callbacks))` would take the requests from a queue.
    let photo = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../photos/avocado.jpg"))?;
    for (task, expected) in [("brightness", json!(102.0)), ("bytes", json!(photo.len()))] {
        let (tell, told) = channel();
        let done = Done::new(move |outcome| drop(tell.send(outcome)));
        let (image, span) = (Image::Bytes(photo.clone()), tracing::Span::none());
        engine.submit(Request { id: "avocado".into(), task: task.into(), image, metadata: None, done, span })?;
        assert_eq!(told.recv()?, Ok(Output::Json(expected.clone())));
        println!("{task}: {expected}");
    }
    Ok(())
}
