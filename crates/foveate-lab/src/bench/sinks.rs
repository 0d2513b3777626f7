use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

use foveate_core::error_chain;
use foveate_sink::{Existing, Published, Rows, RunManifest, SinkOptions, VectorSink, Watermark};

use super::cells::{Attempt, Effort, not_available, usable, wrong};
use super::rounds;
use crate::stats::{Spread, median};
use crate::{Candidate, Lab, LabError, Table, schema};

/// The vectors to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkVectors {
    /// Number of vectors.
    pub rows: u64,
    /// Components of each.
    pub dim: usize,
}

impl SinkVectors {
    /// Returns 50 000 vectors of 384 components, 77 MB.
    pub fn usual() -> Self {
        Self { rows: 50_000, dim: 384 }
    }

    /// Returns a fifth of them: enough for a first answer.
    pub fn quick() -> Self {
        Self { rows: 10_000, ..Self::usual() }
    }
}

/// Settings that a sink is measured with, by the sink's name; other sinks use their defaults.
const VARIANTS: [(&str, &str, &[&str]); 1] = [("parquet", "compression", &["none", "snappy", "lz4", "zstd"])];
/// Rows per call: one batch.
const BLOCK: usize = 64;
/// Rows between commits: what a job with some thousand images per second stores in the two seconds between them.
const COMMIT_EVERY: u64 = 8192;
/// Random bits of each component, which no format can compress.
const RANDOM_BITS: u64 = 24;

/// Measures every sink compiled in: vectors in memory to a finished output on disk, synced.
///
/// Components are random, uniform in -1..1 with 24 random bits each: like those of real vectors, their mantissas are
/// noise. Rows come in blocks of 64, with a commit every 8192. The clock runs from the first row to the finished
/// output. A sample counts if every row is reported as published, every file exists, and the files are large enough for
/// the random bits.
///
/// # Errors
/// [`LabError::Setting`] if there is nothing to write; [`LabError::File`]; [`LabError::Interrupted`].
pub fn sinks(lab: &Lab<'_>, vectors: &SinkVectors, effort: &Effort) -> Result<Table, LabError> {
    if vectors.rows == 0 || vectors.dim == 0 {
        return Err(LabError::Setting(format!("nothing to write: {} x {}", vectors.rows, vectors.dim)));
    }
    let data = Data::new(vectors, lab.seed);
    let variants: Vec<Variant> = lab.rig.sinks().iter().flat_map(Variant::all).collect();
    let mut jobs: Vec<Attempt<SinkRun>> = variants.iter().map(|variant| SinkRun::new(lab, variant)).collect();
    // The first round warms up the file system and the libraries and is not counted.
    rounds::sample(lab, 1, &mut jobs, label, |job| job.sample(lab, &data).map(drop))?;
    jobs.iter_mut().flatten().for_each(|job| job.seconds.clear());
    rounds::sample(lab, effort.samples, &mut jobs, label, |job| job.sample(lab, &data))?;
    let mut table = Table::new(&schema::SINKS);
    for (variant, job) in variants.iter().zip(&jobs) {
        push(&mut table, variant, job, vectors);
    }
    Ok(table)
}

/// Names a run while it is measured.
fn label(run: &SinkRun) -> String {
    format!("sinks: {}", run.what)
}

fn push(table: &mut Table, variant: &Variant, job: &Attempt<SinkRun>, vectors: &SinkVectors) {
    let identity = [("sink", variant.sink.name.as_str().into()), ("variant", variant.name().into())];
    match job {
        Err(reason) => table.push(identity.into_iter().chain([("status", not_available(reason).into())])),
        Ok(job) => {
            let rates: Vec<f64> = job.seconds.iter().map(|seconds| vectors.rows as f64 / seconds).collect();
            let spread = Spread::of(&rates);
            table.push(identity.into_iter().chain([
                ("status", "ok".into()),
                ("rows", vectors.rows.into()),
                ("dim", vectors.dim.into()),
                ("samples", rates.len().into()),
                ("sample_seconds", median(&job.seconds).into()),
                ("rows_per_second", spread.map(|spread| spread.median).into()),
                ("rows_per_second_min", spread.map(|spread| spread.min).into()),
                ("rows_per_second_max", spread.map(|spread| spread.max).into()),
                ("bytes", job.bytes.into()),
                ("bytes_per_row", (job.bytes as f64 / vectors.rows as f64).into()),
            ]));
        }
    }
}

/// A sink with its settings.
struct Variant {
    sink: Candidate,
    settings: BTreeMap<String, String>,
}

impl Variant {
    fn all(sink: &Candidate) -> Vec<Self> {
        let Some((_, setting, values)) = VARIANTS.iter().find(|(name, ..)| *name == sink.name) else {
            return vec![Self { sink: sink.clone(), settings: BTreeMap::new() }];
        };
        let mut variants = Vec::new();
        for value in *values {
            let settings = BTreeMap::from([((*setting).to_owned(), (*value).to_owned())]);
            variants.push(Self { sink: sink.clone(), settings });
        }
        variants
    }

    /// Returns `name=value` for each setting.
    fn name(&self) -> String {
        self.settings.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }
}

/// A sink being measured.
struct SinkRun {
    what: String,
    sink: String,
    options: SinkOptions,
    folder: PathBuf,
    seconds: Vec<f64>,
    /// Bytes on disk.
    bytes: u64,
}

impl SinkRun {
    fn new(lab: &Lab<'_>, variant: &Variant) -> Attempt<Self> {
        let sink = usable(&variant.sink)?.to_owned();
        let folder = lab.scratch.join("sink/");
        let options = SinkOptions { settings: variant.settings.clone(), ..SinkOptions::new(&folder) };
        // Opening a sink reveals what it does not support.
        lab.rig.open_sink(&sink, &options).map_err(|error| error_chain(&error))?;
        Ok(Self { what: format!("{sink} {}", variant.name()), sink, options, folder, seconds: Vec::new(), bytes: 0 })
    }

    fn sample(&mut self, lab: &Lab<'_>, data: &Data) -> Result<(), LabError> {
        // The files of a failed sink must not count for this one.
        clear(&self.folder)?;
        let mut sink = lab.rig.open_sink(&self.sink, &self.options)?;
        sink.begin(&RunManifest { dim: data.dim, ..RunManifest::default() }, Existing::Overwrite)?;
        let started = Instant::now();
        let published = data.write(sink.as_mut())?;
        let seconds = started.elapsed().as_secs_f64();
        drop(sink);
        self.bytes = data.check(&published, &self.folder)?;
        self.seconds.push(seconds);
        clear(&self.folder)
    }
}

/// The rows to write.
struct Data {
    dim: usize,
    index: Vec<u64>,
    id: Vec<String>,
    vectors: Vec<f32>,
    side: Vec<u32>,
    xxh3: Vec<u64>,
}

impl Data {
    fn new(vectors: &SinkVectors, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let scale = 2.0 / (1 << RANDOM_BITS) as f32;
        let rows = vectors.rows as usize;
        let floats =
            (0..rows * vectors.dim).map(|_| (random.u64(..) >> (64 - RANDOM_BITS)) as f32 * scale - 1.0).collect();
        Self {
            dim: vectors.dim,
            index: (0..vectors.rows).collect(),
            id: (0..rows).map(|row| format!("photos/{row:08}.jpg")).collect(),
            vectors: floats,
            side: vec![1000; rows],
            xxh3: (0..rows).map(|_| random.u64(..)).collect(),
        }
    }

    fn write(&self, sink: &mut dyn VectorSink) -> Result<Published, LabError> {
        let mut committed = 0;
        for start in (0..self.index.len()).step_by(BLOCK) {
            let block = start..self.index.len().min(start + BLOCK);
            let end = block.end as u64;
            sink.append(&Rows {
                index: &self.index[block.clone()],
                id: &self.id[block.clone()],
                vectors: &self.vectors[block.start * self.dim..block.end * self.dim],
                width: &self.side[block.clone()],
                height: &self.side[block.clone()],
                xxh3: &self.xxh3[block],
                columns: &[],
            })?;
            if end - committed >= COMMIT_EVERY || end == self.index.len() as u64 {
                sink.commit(Watermark::from(end))?;
                committed = end;
            }
        }
        Ok(sink.finish()?)
    }

    /// Returns the output's size in bytes, after a check that it can hold the rows.
    fn check(&self, published: &Published, folder: &Path) -> Result<u64, LabError> {
        let rows = self.index.len() as u64;
        if published.rows != rows || published.failures != 0 {
            return Err(wrong(format!(
                "{} rows and {} failures published of {rows} rows",
                published.rows, published.failures
            )));
        }
        if let Some(file) = published.files.iter().find(|file| !file.is_file()) {
            return Err(wrong(format!("{} was published and is not there", file.display())));
        }
        let bytes = bytes_in(folder)?;
        let least = self.vectors.len() as u64 * RANDOM_BITS / 8;
        if bytes < least {
            return Err(wrong(format!("{bytes} bytes on disk, and the vectors cannot be told in fewer than {least}")));
        }
        Ok(bytes)
    }
}

fn clear(folder: &Path) -> Result<(), LabError> {
    match fs::remove_dir_all(folder) {
        Err(cause) if cause.kind() != ErrorKind::NotFound => Err(LabError::File { path: folder.to_owned(), cause }),
        _ => Ok(()),
    }
}

/// Returns the bytes of all files in a folder and its subfolders.
fn bytes_in(folder: &Path) -> Result<u64, LabError> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).map_err(LabError::file(folder))? {
        let entry = entry.map_err(LabError::file(folder))?;
        let metadata = entry.metadata().map_err(LabError::file(folder))?;
        bytes += if metadata.is_dir() { bytes_in(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}
