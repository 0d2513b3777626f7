//! How close a whole run comes to its slowest stage: `foveate embed` (as a library) on real photos. For comparison, it
//! measures the ceilings: the forward alone; reading, decoding and resizing alone; and the sink alone. All take turns
//! in one run, over several rounds. The bench checks that every row is stored.
//!
//! On a machine without an accelerator the stages share the processor, so no pipeline can reach the forward's own
//! ceiling. The bound is then `1 / (1/forward + 1/prepare)`, with both ceilings measured on all cores.
//!
//! `cargo bench -p foveate-benches --bench end_to_end [-- --model M --images N --rounds R --csv FILE FOLDER…]`

// A bench prints its table.
#![allow(clippy::print_stdout)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use foveate::dinov2::{Model, OpenOptions};
use foveate::embed::{Backends, EmbedOptions};
use foveate::encode::{AnyModel, Encoder, EncoderOptions};
use foveate::pipeline::{Cancel, Config, Pipeline, Progress};
use foveate::preprocess::{CpuPreprocessor, PreprocessOptions};
use foveate::sink::{Existing, Rows, RunManifest, SinkOptions, Watermark};
use foveate::source::{Input, Separator};
use foveate_benches::{Result, photos, spread};
use foveate_core::{PixelBatch, VectorBuf};
use foveate_pipeline::synthetic::{CountingSink, FirstPixels};

struct Args {
    model: String,
    images: u64,
    rounds: usize,
    csv: Option<PathBuf>,
    folders: Vec<PathBuf>,
}

impl Args {
    fn parse() -> Result<Self> {
        let mut args =
            Self { model: "seeded:dinov2-small".to_owned(), images: 96, rounds: 3, csv: None, folders: Vec::new() };
        let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--model" => args.model = value()?,
                "--images" => args.images = value()?.parse()?,
                "--rounds" => args.rounds = value()?.parse()?,
                "--csv" => args.csv = Some(value()?.into()),
                _ => args.folders.push(word.into()),
            }
        }
        if args.folders.is_empty() {
            args.folders.push(photos::examples());
        }
        Ok(args)
    }
}

fn main() -> Result<()> {
    let args = Args::parse()?;
    let mut csv = args.csv.as_deref().map(std::fs::File::create).transpose()?;
    if let Some(csv) = &mut csv {
        writeln!(csv, "photos,model,images,rounds,cores,what,images_per_second_median,min,max")?;
    }
    for folder in &args.folders {
        let bench = Bench::new(&args, folder)?;
        let mut cells = [(); 4].map(|()| Vec::new());
        for _ in 0..args.rounds {
            for (cell, rate) in
                cells.iter_mut().zip([bench.forward()?, bench.prepare()?, bench.sink()?, bench.whole()?])
            {
                cell.push(rate);
            }
        }
        report(&args, folder, cells, &mut csv)?;
    }
    Ok(())
}

fn report(args: &Args, folder: &Path, cells: [Vec<f64>; 4], csv: &mut Option<std::fs::File>) -> Result<()> {
    let names = ["forward alone", "read+decode+resize alone", "sink alone", "end to end"];
    let cores = std::thread::available_parallelism()?;
    let photos = photos::short_name(folder);
    println!("{photos}: {} images, {}, {cores} cores, median of {} rounds", args.images, args.model, args.rounds);
    let mut medians = [0.0; 4];
    for ((name, rates), middle) in names.into_iter().zip(cells).zip(&mut medians) {
        let rates = spread(&rates);
        *middle = rates.median;
        let (least, most) = (rates.min, rates.max);
        println!("  {name:<26} {middle:>9.1} images/s  ({least:.1} to {most:.1})");
        if let Some(csv) = csv {
            let (model, images, rounds) = (&args.model, args.images, args.rounds);
            writeln!(csv, "{photos},{model},{images},{rounds},{cores},{name},{middle:.3},{least:.3},{most:.3}")?;
        }
    }
    let [forward, prepare, sink, whole] = medians;
    let slowest = forward.min(prepare).min(sink);
    let shared = 1.0 / (1.0 / forward + 1.0 / prepare);
    println!("  end to end ÷ slowest stage   {:.3}", whole / slowest);
    println!("  end to end ÷ shared cores    {:.3}   (bound {shared:.1} images/s)", whole / shared);
    Ok(())
}

/// One set of photos and one model.
struct Bench {
    options: EmbedOptions,
    backends: Arc<Backends>,
    model: Arc<Model>,
    images: u64,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(args: &Args, photos: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let list = folder.path().join("list.txt");
        photos::write_list(&photos::list(photos)?, args.images, &list)?;
        let model = Model::open(&args.model, &OpenOptions::from_env())?;
        let options = EmbedOptions {
            existing: Existing::Overwrite,
            ..EmbedOptions::new(
                vec![Input::List(list, Separator::Line)],
                &args.model,
                folder.path().join("out.parquet"),
            )
        };
        let backends = Arc::new(Backends::compiled());
        Ok(Self { options, backends, model: Arc::new(model), images: args.images, folder })
    }

    fn rate(&self, started: Instant) -> f64 {
        self.images as f64 / started.elapsed().as_secs_f64()
    }

    fn encoder(&self) -> Result<Box<dyn Encoder>> {
        let options = EncoderOptions {
            max_batch: self.options.batch,
            threads: self.options.encoder_threads,
            ..EncoderOptions::default()
        };
        let backend = self.backends.encoders.iter().next().ok_or("no encoder is compiled in")?;
        Ok(backend.open(&AnyModel::Checkpoint(Arc::clone(&self.model)), &options)?)
    }

    /// Runs the encoder on one batch that is already in memory.
    fn forward(&self) -> Result<f64> {
        let mut encoder = self.encoder()?;
        let size = encoder.spec().input;
        let pixels: Vec<u8> =
            (0..self.options.batch * size.rgb_len().unwrap_or(0)).map(|i| (i * 31 % 251) as u8).collect();
        let batch = PixelBatch::new(&pixels, size).ok_or("no pixels")?;
        let mut vectors = VectorBuf::new();
        encoder.encode(batch, &mut vectors)?;
        let started = Instant::now();
        let mut left = self.images as usize;
        while left > 0 {
            let part = batch.slice(0..left.min(batch.len())).ok_or("no pixels")?;
            encoder.encode(part, &mut vectors)?;
            left -= part.len();
        }
        Ok(self.rate(started))
    }

    /// Runs the engine with a forward and a sink without cost, decoding on every core.
    fn prepare(&self) -> Result<f64> {
        let stored = Arc::new(AtomicU64::new(0));
        let geometry = self.options.recipe.geometry(&self.model.preprocess)?;
        let (decoding, with_decoders, with_resizers) =
            (self.options.decoding, Arc::clone(&self.backends), Arc::clone(&self.backends));
        let pipeline = Pipeline {
            source: Box::new(self.options.list(|_| ())?),
            preprocessors: CpuPreprocessor::opener(
                Arc::new(move || with_decoders.open_decoders(None, &decoding)),
                Arc::new(move || with_resizers.open_resizer(None)),
                PreprocessOptions::new(geometry),
            ),
            encoders: vec![Box::new(FirstPixels::new(geometry.output()))],
            sink: Box::new(CountingSink::new(Arc::clone(&stored), |_, _| true)),
            config: Config { workers: std::thread::available_parallelism()?.get(), ..Config::default() },
        };
        let started = Instant::now();
        pipeline.run(&RunManifest::default(), Existing::Refuse, &Cancel::default(), &Progress::default())?;
        let rate = self.rate(started);
        self.expect_rows(stored.load(Ordering::Relaxed))?;
        Ok(rate)
    }

    /// Runs the sink on rows that are already in memory.
    fn sink(&self) -> Result<f64> {
        let dim = self.encoder()?.spec().dim;
        let n = self.options.batch;
        let vectors: Vec<f32> = (0..n * dim).map(|i| (i as f32).sin()).collect();
        let id: Vec<String> = (0..n).map(|i| format!("photos/{i:09}.jpg")).collect();
        let options = SinkOptions::new(self.folder.path().join("sink.parquet"));
        let backend = self.backends.sinks.iter().next().ok_or("no sink is compiled in")?;
        let mut sink = backend.open(&options)?;
        sink.begin(&RunManifest { dim, ..RunManifest::default() }, Existing::Overwrite)?;
        // The sink is fast: with as few rows as the other cells have, this would measure only the file system's fsync.
        let rows = self.images * 100;
        let started = Instant::now();
        for first in (0..rows).step_by(n) {
            let count = n.min((rows - first) as usize);
            let index: Vec<u64> = (first..first + count as u64).collect();
            let (side, hash) = (vec![224; count], vec![0; count]);
            let (id, vectors) = (&id[..count], &vectors[..count * dim]);
            sink.append(&Rows { index: &index, id, vectors, width: &side, height: &side, xxh3: &hash, columns: &[] })?;
        }
        sink.commit(Watermark::from(rows))?;
        let published = sink.finish()?;
        let rate = rows as f64 / started.elapsed().as_secs_f64();
        if published.rows != rows {
            return Err(format!("{} of {rows} rows stored", published.rows).into());
        }
        Ok(rate)
    }

    /// Runs the whole job; loading the model does not count.
    fn whole(&self) -> Result<f64> {
        let listing = self.options.list(|_| ())?;
        let job = self.options.prepare(Box::new(listing), &self.backends, &OpenOptions::from_env())?;
        let started = Instant::now();
        let report = job.run(&Cancel::default(), &Progress::default())?;
        let rate = self.rate(started);
        self.expect_rows(report.rows)?;
        Ok(rate)
    }

    fn expect_rows(&self, rows: u64) -> Result<()> {
        if rows == self.images { Ok(()) } else { Err(format!("{rows} of {} rows stored", self.images).into()) }
    }
}
