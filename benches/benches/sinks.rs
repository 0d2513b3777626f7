//! The cost of storing: rows per second of every compiled sink from `begin` to `finish`, the time of a commit,
//! processor time and bytes per row. For comparison, it writes and syncs the same bytes once. The bench reads every
//! output back.
//!
//! `cargo bench -p foveate-benches --features native --bench sinks -- [--rows 50000] [--dim 384] [--part P]
//! [--rounds 5] [--folder DIR] [--csv FILE]`
//!
//! The sinks take turns, in reverse order every other round; figures are medians over the rounds. The disk's figures
//! depend mostly on its fsync, so `--folder` on another disk gives other figures; processor time stays the same.

// A bench prints its table.
#![allow(clippy::print_stdout)]

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use foveate::core::Backend;
use foveate::embed::Backends;
use foveate::sink::{Existing, Published, Rows, RunManifest, SinkBackend, SinkOptions, Watermark};
use foveate_benches::{Result, Spread, host, median, processor_time, spread, stored};

/// Rows per `append`, and appends per `commit`.
const BATCH: usize = 64;
const COMMIT_EVERY: usize = 32;

struct Args {
    rows: usize,
    dim: usize,
    part: u64,
    rounds: usize,
    folder: PathBuf,
    csv: Option<PathBuf>,
}

impl Args {
    fn parse() -> Result<Self> {
        let mut args = Self {
            rows: 50_000,
            dim: 384,
            part: SinkOptions::DEFAULT_PART_ITEMS,
            rounds: 5,
            folder: std::env::temp_dir(),
            csv: None,
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
                "--csv" => args.csv = Some(value.into()),
                _ => return Err(format!("there is no option {word}").into()),
            }
        }
        Ok(args)
    }
}

/// One batch of every column. The vectors are noise, because real ones are noise to a compressor, too.
struct Batch {
    index: Vec<u64>,
    id: Vec<String>,
    vectors: Vec<f32>,
    side: Vec<u32>,
    xxh3: Vec<u64>,
}

impl Batch {
    /// Rows `first..first + rows`.
    fn new(first: usize, rows: usize, dim: usize) -> Self {
        let noise = |i: u64| (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let index: Vec<u64> = (first..first + rows).map(|row| row as u64).collect();
        let values = (first * dim..(first + rows) * dim).map(|i| (noise(i as u64) >> 40) as f32 / 8e6 - 1.0);
        Self {
            id: index.iter().map(|row| format!("photos/folder/{row:08}.jpg")).collect(),
            vectors: values.collect(),
            side: vec![1000; rows],
            xxh3: index.iter().map(|&row| noise(row)).collect(),
            index,
        }
    }

    /// All batches of `rows` rows.
    fn all(rows: usize, dim: usize) -> Vec<Self> {
        (0..rows).step_by(BATCH).map(|first| Self::new(first, BATCH.min(rows - first), dim)).collect()
    }

    fn rows(&self) -> Rows<'_> {
        let Self { index, id, vectors, side, xxh3 } = self;
        Rows { index, id, vectors, width: side, height: side, xxh3, columns: &[] }
    }

    fn end(&self) -> u64 {
        self.index.last().map_or(0, |last| last + 1)
    }
}

/// One turn of one sink.
#[derive(Default)]
struct Turn {
    rows_per_second: f64,
    cpu_us_per_row: f64,
    bytes_per_row: f64,
    /// Zero for the disk alone.
    commit_ms: f64,
    longest_commit_ms: f64,
    finish_ms: f64,
}

fn measure(backend: &SinkBackend, args: &Args, batches: &[Batch], folder: &Path) -> Result<Turn> {
    let output = folder.join(format!("x.{}", backend.extension()));
    let mut sink = backend.open(&SinkOptions { part_items: args.part, ..SinkOptions::new(output) })?;
    let (start, cpu) = (Instant::now(), host::time(processor_time)?);
    sink.begin(&RunManifest { dim: args.dim, ..RunManifest::default() }, Existing::Overwrite)?;
    let mut commits = Vec::new();
    for some in batches.chunks(COMMIT_EVERY) {
        some.iter().try_for_each(|batch| sink.append(&batch.rows()))?;
        let commit = Instant::now();
        sink.commit(Watermark::from(some.last().map_or(0, Batch::end)))?;
        commits.push(commit.elapsed().as_secs_f64() * 1e3);
    }
    let finish = Instant::now();
    let published = sink.finish()?;
    let (wall, finish_ms) = (start.elapsed().as_secs_f64(), finish.elapsed().as_secs_f64() * 1e3);
    let cpu = (host::time(processor_time)? - cpu).as_secs_f64();
    drop(sink);
    check(&published, batches)?;
    let rows = args.rows as f64;
    let turn = Turn {
        rows_per_second: rows / wall,
        cpu_us_per_row: cpu * 1e6 / rows,
        bytes_per_row: size(&published)? as f64 / rows,
        longest_commit_ms: commits.iter().copied().fold(0.0, f64::max),
        commit_ms: median(&commits),
        finish_ms,
    };
    published
        .files
        .iter()
        .try_for_each(|file| if file.is_dir() { std::fs::remove_dir_all(file) } else { std::fs::remove_file(file) })?;
    Ok(turn)
}

/// Checks every id and every vector, in order.
fn check(published: &Published, batches: &[Batch]) -> Result<()> {
    let rows = stored::read(published)?;
    let mut stored = rows.iter();
    for batch in batches {
        for (id, vector) in batch.id.iter().zip(batch.vectors.chunks_exact(batch.vectors.len() / batch.id.len())) {
            let row = stored.next().ok_or("work check: rows are missing")?;
            if row.id != *id || row.vector != vector {
                return Err(format!("work check: {id} is stored as something else").into());
            }
        }
    }
    if stored.next().is_some() { Err("work check: rows that nobody stored".into()) } else { Ok(()) }
}

/// The output's size on disk, with its sidecars.
fn size(published: &Published) -> Result<u64> {
    published.files.iter().map(|file| Ok(std::fs::metadata(file)?.len())).sum()
}

/// Writes and syncs a file once.
fn disk(args: &Args, batches: &[Batch], folder: &Path) -> Result<Turn> {
    let values = batches.iter().flat_map(|batch| &batch.vectors);
    let bytes: Vec<u8> = values.flat_map(|value| value.to_le_bytes()).collect();
    let (start, cpu) = (Instant::now(), host::time(processor_time)?);
    let path = folder.join("plain");
    let mut file = File::create(&path)?;
    for part in bytes.chunks(1 << 20) {
        file.write_all(part)?;
    }
    file.sync_all()?;
    let (wall, cpu) = (start.elapsed().as_secs_f64(), (host::time(processor_time)? - cpu).as_secs_f64());
    std::fs::remove_file(path)?;
    let rows = args.rows as f64;
    let bytes_per_row = bytes.len() as f64 / rows;
    Ok(Turn { rows_per_second: rows / wall, cpu_us_per_row: cpu * 1e6 / rows, bytes_per_row, ..Turn::default() })
}

fn main() -> Result<()> {
    let args = Args::parse()?;
    let folder = tempfile::tempdir_in(&args.folder)?;
    let backends = Backends::compiled();
    let batches = Batch::all(args.rows, args.dim);
    let sinks: Vec<Option<&SinkBackend>> = std::iter::once(None).chain(backends.sinks.iter().map(Some)).collect();
    let mut turns: Vec<Vec<Turn>> = sinks.iter().map(|_| Vec::new()).collect();
    // The first round fills caches and does not count.
    for round in 0..=args.rounds {
        let mut order: Vec<usize> = (0..sinks.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let turn = match sinks[at] {
                None => disk(&args, &batches, folder.path())?,
                Some(backend) => measure(backend, &args, &batches, folder.path())?,
            };
            if round > 0 {
                turns[at].push(turn);
            }
        }
    }
    report(&args, &sinks, &turns)
}

fn report(args: &Args, sinks: &[Option<&SinkBackend>], turns: &[Vec<Turn>]) -> Result<()> {
    let Args { rows, dim, rounds, .. } = args;
    let commit = BATCH * COMMIT_EVERY;
    println!("{rows} rows of {dim} f32, {commit} rows per commit, {}, medians of {rounds} rounds", host::processor());
    println!("sink       rows/s (least to most)      cpu us/row  bytes/row  commit ms  longest  finish ms");
    let mut csv = String::from(
        "host,cores,rows,dim,rows_per_commit,rounds,sink,library,rows_per_second_median,rows_per_second_min,\
         rows_per_second_max,cpu_us_per_row,bytes_per_row,commit_ms,longest_commit_ms,finish_ms\n",
    );
    for (sink, turns) in sinks.iter().zip(turns).filter(|(_, turns)| !turns.is_empty()) {
        let name = sink.map_or("(disk)", Backend::name);
        let library = sink.map_or("one file".to_owned(), |sink| host::library(sink.health().library.as_deref()));
        let middle = |value: fn(&Turn) -> f64| median(&turns.iter().map(value).collect::<Vec<_>>());
        let rate = spread(&turns.iter().map(|turn| turn.rows_per_second).collect::<Vec<_>>());
        let [cpu, bytes] = [middle(|turn| turn.cpu_us_per_row), middle(|turn| turn.bytes_per_row)];
        let longest = turns.iter().map(|turn| turn.longest_commit_ms).fold(0.0, f64::max);
        let [commit_ms, finish] = [middle(|turn| turn.commit_ms), middle(|turn| turn.finish_ms)];
        let Spread { median, min, max } = rate;
        println!(
            "{name:<8} {median:>8.0} ({min:>7.0} to {max:>7.0}) {cpu:>11.1} {bytes:>10.0} {commit_ms:>10.1} \
             {longest:>8.1} {finish:>10.1}"
        );
        csv += &format!(
            "{},{},{rows},{dim},{commit},{rounds},{name},{},{median:.0},{min:.0},{max:.0},{cpu:.3},{bytes:.1},\
             {commit_ms:.3},{longest:.3},{finish:.3}\n",
            host::processor(),
            host::cores(),
            library,
        );
    }
    Ok(args.csv.as_ref().map_or(Ok(()), |path| std::fs::write(path, csv))?)
}
