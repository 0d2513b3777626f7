//! What storing costs: rows per second of every compiled sink from `begin` to `finish`, how long a commit takes, and
//! processor time per row, beside what the disk does with the same bytes written once and synced. Checks its work.
//!
//! `cargo bench -p foveate-benches --bench sinks [-- --rows N --dim D --part P --rounds R --folder DIR]`

// A bench's table is what it is for.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use foveate::embed::Backends;
use foveate::sink::{Existing, Rows, RunManifest, SinkBackend, SinkOptions, Watermark};
use foveate_benches::{median, processor_time};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Rows per `append`, and appends per `commit`.
const BATCH: usize = 64;
const COMMIT_EVERY: usize = 32;

struct Args {
    rows: usize,
    dim: usize,
    part: u64,
    rounds: usize,
    folder: PathBuf,
}

impl Args {
    fn parse() -> Result<Self> {
        let mut args = Self {
            rows: 131_072,
            dim: 384,
            part: SinkOptions::DEFAULT_PART_ITEMS,
            rounds: 3,
            folder: std::env::temp_dir(),
        };
        let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
        while let Some(word) = words.next() {
            let value = words.next().ok_or(format!("{word} needs a value"))?;
            match word.as_str() {
                "--rows" => args.rows = value.parse()?,
                "--dim" => args.dim = value.parse()?,
                "--part" => args.part = value.parse()?,
                "--rounds" => args.rounds = value.parse()?,
                "--folder" => args.folder = value.into(),
                _ => return Err(format!("unknown option {word}").into()),
            }
        }
        args.rows = args.rows.next_multiple_of(BATCH);
        Ok(args)
    }
}

/// One batch of every column; the vectors are noise, as real ones are to a compressor.
struct Batch {
    index: Vec<u64>,
    id: Vec<String>,
    vectors: Vec<f32>,
    side: Vec<u32>,
    xxh3: Vec<u64>,
}

impl Batch {
    fn new(dim: usize) -> Self {
        let noise = |i: u64| (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self {
            index: (0..BATCH as u64).collect(),
            id: (0..BATCH).map(|i| format!("photos/folder/{i:08}.jpg")).collect(),
            vectors: (0..(BATCH * dim) as u64).map(|i| (noise(i) >> 40) as f32 / 8e6 - 1.0).collect(),
            side: vec![1000; BATCH],
            xxh3: (0..BATCH as u64).map(noise).collect(),
        }
    }

    fn next(&mut self) {
        self.index.iter_mut().for_each(|index| *index += BATCH as u64);
    }

    fn rows(&self) -> Rows<'_> {
        let Self { index, id, vectors, side, xxh3 } = self;
        Rows { index, id, vectors, width: side, height: side, xxh3 }
    }
}

struct Measured {
    rows_per_second: f64,
    cpu_us_per_row: Option<f64>,
    commit_ms: f64,
    longest_commit_ms: f64,
    finish_ms: f64,
}

fn measure(backend: &SinkBackend, args: &Args, folder: &Path) -> Result<Measured> {
    let output = folder.join(format!("x.{}", backend.extension()));
    let mut sink = backend.open(&SinkOptions { part_items: args.part, ..SinkOptions::new(output) })?;
    let mut batch = Batch::new(args.dim);
    let (start, cpu) = (Instant::now(), processor_time());
    sink.begin(&RunManifest { dim: args.dim, ..RunManifest::default() }, Existing::Overwrite)?;
    let mut commits = Vec::new();
    for number in 1..=args.rows / BATCH {
        sink.append(&batch.rows())?;
        batch.next();
        if number % COMMIT_EVERY == 0 || number * BATCH == args.rows {
            let commit = Instant::now();
            sink.commit(Watermark((number * BATCH) as u64))?;
            commits.push(commit.elapsed().as_secs_f64() * 1e3);
        }
    }
    let finish = Instant::now();
    let published = sink.finish()?;
    let (wall, finish_ms) = (start.elapsed().as_secs_f64(), finish.elapsed().as_secs_f64() * 1e3);
    assert_eq!(published.rows, args.rows as u64, "every row is stored");
    let cpu_us_per_row =
        cpu.zip(processor_time()).map(|(then, now)| (now - then).as_secs_f64() * 1e6 / args.rows as f64);
    Ok(Measured {
        rows_per_second: args.rows as f64 / wall,
        cpu_us_per_row,
        longest_commit_ms: commits.iter().copied().fold(0.0, f64::max),
        commit_ms: median(&mut commits),
        finish_ms,
    })
}

/// Rows per second of a file that is written and synced once.
fn disk(args: &Args, folder: &Path) -> Result<f64> {
    let bytes: Vec<u8> = Batch::new(args.dim).vectors.iter().flat_map(|value| value.to_le_bytes()).collect();
    let start = Instant::now();
    let mut file = File::create(folder.join("plain"))?;
    for _ in 0..args.rows / BATCH {
        file.write_all(&bytes)?;
    }
    file.sync_all()?;
    Ok(args.rows as f64 / start.elapsed().as_secs_f64())
}

fn main() -> Result<()> {
    let args = Args::parse()?;
    let folder = tempfile::tempdir_in(&args.folder)?;
    let backends = Backends::compiled();
    println!(
        "{} rows of {} f32, {} rows per commit, {} rounds",
        args.rows,
        args.dim,
        BATCH * COMMIT_EVERY,
        args.rounds
    );
    println!("sink       rows/s  cpu us/row  commit ms  longest ms  finish ms");
    for _ in 0..args.rounds {
        println!("(disk) {:>10.0}", disk(&args, folder.path())?);
        for backend in backends.sinks.iter() {
            let found = measure(backend, &args, folder.path())?;
            let cpu = found.cpu_us_per_row.map_or_else(|| "n/a".to_owned(), |us| format!("{us:.1}"));
            println!(
                "{:8}{:>9.0} {cpu:>11} {:>10.1} {:>11.1} {:>10.1}",
                foveate_core::Backend::name(backend),
                found.rows_per_second,
                found.commit_ms,
                found.longest_commit_ms,
                found.finish_ms
            );
        }
    }
    Ok(())
}
