//! foveate as a contestant.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use foveate::backends::stores;
use foveate::collect::MemorySink;
use foveate::embed::{Backends, EmbedOptions};
use foveate::encode::{DType, EncodeError, EncodeTimes, Encoder, EncoderSpec, Overlap, Pooling, Resident};
use foveate::pipeline::{Cancel, Config, Pipeline, Progress};
use foveate::preprocess::{CpuPreprocessor, PreprocessOptions};
use foveate::resize::{Filter, Geometry};
use foveate::sink::{Existing, RunManifest};
use foveate::source::store::{Object, StoreOptions, Version};
use foveate::source::{Content, Delivery, Input, Source};
use foveate_benches::contest::{serve, timed};
use foveate_benches::{Result, host, processor_time};
use foveate_core::{PixelBatch, Size, VectorBuf};

const EDGE: u32 = 256;
const CROP: Size = Size::square(224);

/// Every so many rows and columns, a sample is compared.
const GRID: usize = 16;

/// Answers `read INPUT PASSES`, `pixels INPUT`, `check INPUT IMAGES FILE`, `ahead PREFIX OBJECTS LEN REQUESTS COUNT`.
pub(crate) fn contend(endpoint: &str) -> Result<()> {
    let reader = Reader { endpoint: endpoint.to_owned() };
    serve(&format!("foveate {}", foveate::VERSION), |words| match *words {
        ["read", input, passes] => reader.read(input, passes.parse()?),
        ["pixels", input] => reader.pixels(input),
        ["check", input, images, file] => reader.check(input, images.parse()?, file),
        ["ahead", list, requests, count] => reader.ahead(list, requests.parse().ok(), count.parse()?),
        _ => Err("what?".into()),
    })
}

struct Reader {
    endpoint: String,
}

impl Reader {
    fn settings(&self) -> BTreeMap<String, String> {
        let settings = [("endpoint", self.endpoint.as_str()), ("anonymous", "true"), ("region", "none")];
        settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    fn options(&self, input: &str) -> EmbedOptions {
        let options = EmbedOptions::new(vec![Input::Path(input.into())], "", "");
        EmbedOptions { store_settings: self.settings(), ..options }
    }

    /// Wall time, processor time, images and bytes of reading alone, for one of `passes`.
    fn read(&self, input: &str, passes: usize) -> Result<Vec<f64>> {
        let (mut images, mut bytes) = (0, 0);
        let times = timed(processor_time, || {
            for _ in 0..passes {
                let read = read_once(&self.options(input))?;
                (images, bytes) = (images + read.0, bytes + read.1);
            }
            Ok(())
        })?;
        Ok([&times[..], &[images as f64, bytes as f64]].concat().iter().map(|sum| sum / passes as f64).collect())
    }

    /// Wall time, processor time, images and the mean of some samples of reading, decoding and resizing.
    fn pixels(&self, input: &str) -> Result<Vec<f64>> {
        let mut means = Vec::new();
        let times = timed(processor_time, || {
            means = prepare(&self.options(input), Sampled::Grid)?;
            Ok(())
        })?;
        let (images, sum) = (means.len() as f64, means.iter().map(|mean| f64::from(mean[0])).sum::<f64>());
        Ok([&times[..], &[images, sum / images]].concat())
    }

    /// Writes the pixels of the first images.
    fn check(&self, input: &str, images: u64, file: &str) -> Result<Vec<f64>> {
        let options = EmbedOptions { limit: Some(images), ..self.options(input) };
        let (mut file, mut written) = (File::create(file)?, 0.0);
        for pixels in prepare(&options, Sampled::All)? {
            file.write_all(&pixels.iter().map(|&sample| sample as u8).collect::<Vec<_>>())?;
            written += 1.0;
        }
        Ok(vec![written])
    }

    /// Wall time, processor time, objects and bytes of reading `count` objects, again and again those of the list.
    fn ahead(&self, list: &str, requests: Option<usize>, count: usize) -> Result<Vec<f64>> {
        let objects = std::fs::read_to_string(list)?;
        let objects: Vec<Object> = objects.lines().map(object).collect::<Result<_>>()?;
        let requests = requests.unwrap_or(StoreOptions::DEFAULT_REQUESTS);
        let options = StoreOptions { requests, settings: self.settings(), ..StoreOptions::default() };
        let registry = stores();
        let mut ahead = registry.iter().next().ok_or("no store is compiled in")?.open(&options)?.read_ahead();
        let (mut asked, mut bytes) = (objects.iter().cycle().take(count), 0);
        let times = timed(processor_time, || {
            for _ in 0..count {
                while ahead.has_room() {
                    let Some(object) = asked.next() else { break };
                    ahead.ask(object.clone());
                }
                bytes += ahead.take()?.len();
            }
            Ok(())
        })?;
        Ok([&times[..], &[count as f64, bytes as f64]].concat())
    }
}

/// The object in a line of its address and its length.
fn object(line: &str) -> Result<Object> {
    let (address, len) = line.split_once(' ').ok_or("a line has an address and a length")?;
    Ok(Object { address: address.to_owned(), version: Version { len: Some(len.parse()?), ..Version::default() } })
}

/// Bytes on their way to a decoder.
enum Held {
    Fetched(Vec<u8>),
    Delivered(Bytes),
}

/// Reads all images on one thread, and holds as many as a run holds ahead of its decoders.
fn read_once(options: &EmbedOptions) -> Result<(usize, usize)> {
    let mut source = options.list(|_| ())?;
    let mut fetch = source.open_fetch()?;
    let most = Config { workers: host::cores(), ..Config::default() }.read_ahead_items();
    let (mut held, mut spare, mut images, mut bytes) = (VecDeque::new(), Vec::new(), 0, 0);
    while let Some(Delivery { item, content }) = source.deliver()? {
        let content = match content {
            Content::Failed(error) => return Err(error.into()),
            Content::Read(content) => Held::Delivered(content),
            Content::Unread => {
                let mut content = spare.pop().unwrap_or_default();
                fetch.fetch(&item, &mut content)?;
                Held::Fetched(content)
            }
        };
        images += 1;
        bytes += match &content {
            Held::Fetched(content) => content.len(),
            Held::Delivered(content) => content.len(),
        };
        held.push_back(content);
        if held.len() > most
            && let Some(Held::Fetched(content)) = held.pop_front()
        {
            spare.push(content);
        }
    }
    Ok((images, bytes))
}

/// Runs the engine with `sampled` in place of the forward, decoding on every core. Returns what it samples, in order.
fn prepare(options: &EmbedOptions, sampled: Sampled) -> Result<Vec<Vec<f32>>> {
    let backends = Arc::new(Backends::compiled());
    let (with_decoders, with_resizers, decoding) = (Arc::clone(&backends), backends, options.decoding);
    let collected = MemorySink::default();
    let geometry = Geometry::ShortestEdgeCrop { edge: EDGE, crop: CROP, filter: Filter::Bicubic };
    let pipeline = Pipeline {
        source: Box::new(options.list(|_| ())?),
        preprocessors: CpuPreprocessor::opener(
            Arc::new(move || with_decoders.open_decoders(None, &decoding)),
            Arc::new(move || with_resizers.open_resizer(None)),
            PreprocessOptions::new(geometry),
        ),
        encoders: vec![Box::new(sampled.encoder())],
        sink: Box::new(collected.clone()),
        config: Config { workers: host::cores(), ..Config::default() },
    };
    pipeline.run(&RunManifest::default(), Existing::Refuse, &Cancel::default(), &Progress::default())?;
    let collected = collected.take();
    match collected.failures.first() {
        Some(failure) => Err(format!("{}: {}", failure.id, failure.reason).into()),
        None => Ok(collected.rows.into_iter().map(|row| row.vector).collect()),
    }
}

/// What stands for an image's vector.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sampled {
    /// The mean of the samples at every 16th row and column.
    Grid,
    /// All samples.
    All,
}

impl Sampled {
    fn encoder(self) -> Samples {
        let dim = if self == Self::Grid { 1 } else { CROP.rgb_len().unwrap_or_default() };
        let (mean, std, device) = ([0.0; 3], [1.0; 3], "cpu".to_owned());
        let (pooling, dtype, max_batch, batch_invariant) = (Pooling::Cls, DType::F32, 4096, true);
        let spec = EncoderSpec { input: CROP, mean, std, dim, pooling, device, dtype, max_batch, batch_invariant };
        Samples { sampled: self, spec }
    }
}

struct Samples {
    sampled: Sampled,
    spec: EncoderSpec,
}

impl Encoder for Samples {
    fn spec(&self) -> &EncoderSpec {
        &self.spec
    }

    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> std::result::Result<EncodeTimes, EncodeError> {
        let started = Instant::now();
        for (number, row) in out.reset(batch.len(), self.spec.dim).chunks_exact_mut(self.spec.dim).enumerate() {
            let image = batch.image(number);
            match self.sampled {
                Sampled::Grid => row[0] = grid_mean(image),
                Sampled::All => row.iter_mut().zip(image).for_each(|(out, &sample)| *out = f32::from(sample)),
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

fn grid_mean(image: &[u8]) -> f32 {
    let rows = image.chunks_exact(3 * CROP.width as usize).step_by(GRID);
    let samples = rows.flat_map(|row| row.chunks_exact(3).step_by(GRID)).flatten();
    let (count, sum) = samples.fold((0, 0), |(count, sum), &sample| (count + 1, sum + u32::from(sample)));
    sum as f32 / count as f32
}
