//! Reads the costs for the analytic model from a run's CSV files.

use std::path::Path;

use anyhow::{Context as _, bail};
use foveate::lab::{Context, Schema, StandIn, schema};
use foveate::pipeline::Config;
use foveate::plan::{Configuration, ForwardCost, Measured, MeasuredRun as Run, Place, StageCost, Storage};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The measured costs, and the configuration that they were measured with.
pub(crate) struct MeasuredRun {
    pub(crate) measured: Measured,
    pub(crate) configuration: Configuration,
    pub(crate) context: Context,
    /// The forward on the cores, whatever stands in for it; empty if it was elsewhere, or not measured.
    pub(crate) forward_on_cpu: Vec<ForwardCost>,
    /// Ends of the throughput's interval, as fractions of its mean.
    pub(crate) interval: Option<(f64, f64)>,
    /// The reason why the figures may be wrong, if there is one.
    pub(crate) disturbed: Option<String>,
}

/// The columns that are read from `profile.csv`. A file of an older version may lack the optional ones, here and below.
#[derive(Deserialize)]
struct Profile {
    photos: String,
    mode: String,
    decoder: String,
    resizer: String,
    encoder: String,
    dtype: String,
    workers: u32,
    threads: u32,
    batch: u32,
    readers: Option<u32>,
    prefetch: Option<u32>,
    stage: String,
    ms_per_image: f64,
    bytes_per_image: f64,
    storage_mb_per_second: Option<f64>,
    storage_latency_ms: Option<f64>,
    storage_request_mb_per_second: Option<f64>,
    storage_most_mb_per_second: Option<f64>,
    storage_in_flight: Option<u32>,
    disturbed: Option<String>,
}

/// The columns that are read from `storage.csv`.
#[derive(Deserialize)]
struct Supply {
    photos: String,
    place: String,
    cache: String,
    mb_per_second: f64,
}

/// The columns that are read from `batch_sweep.csv` or `forward.csv`.
#[derive(Deserialize)]
struct Forward {
    encoder: String,
    dtype: String,
    threads: Option<u32>,
    batch: Option<u32>,
    status: String,
    #[serde(alias = "batch_p50_ms")]
    p50_ms: Option<f64>,
    /// The network alone.
    forward_ms: Option<f64>,
}

/// The columns that are read from `worker_sweep.csv`.
#[derive(Deserialize)]
struct Sweep {
    photos: String,
    decoder: String,
    resizer: String,
    encoder: String,
    dtype: String,
    workers: Option<u32>,
    threads: Option<u32>,
    batch: Option<u32>,
    status: String,
    images_per_second: Option<f64>,
    limit: Option<String>,
}

/// The columns that are read from `sinks.csv`.
#[derive(Deserialize)]
struct Sink {
    status: String,
    bytes_per_row: Option<f64>,
}

/// The columns that are read from `extrapolation.csv`.
#[derive(Deserialize)]
struct Extrapolation {
    photos: String,
    images_per_second: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
}

impl MeasuredRun {
    /// Returns true if the forward ran on the cores that decode.
    pub(crate) fn is_on_cpu(&self) -> bool {
        self.context.is_on_cpu()
    }

    /// Returns the share of the throughput below which the measurement's interval leaves a difference open; 0 if there
    /// is no interval.
    pub(crate) fn resolution(&self) -> f64 {
        self.interval.map_or(0.0, |(low, high)| (high - 1.0).max(1.0 - low))
    }

    /// Reads `profile.csv`, and the folder's other files where they help. Of several sets of photos it takes the one
    /// whose name begins with `photos`, or the first. Of several configurations it takes the first.
    ///
    /// A stand-in replaces the forward that was measured.
    pub(crate) fn read(folder: &Path, photos: Option<&str>, stand_in: Option<&StandIn>) -> anyhow::Result<Self> {
        let profile: Vec<Profile> = read(folder, &schema::PROFILE)?;
        if profile.is_empty() {
            bail!("{} has no {}: `foveate profile` makes it", folder.display(), schema::PROFILE.file);
        }
        let Some(first) = profile.iter().find(|row| photos.is_none_or(|name| row.photos.starts_with(name))) else {
            bail!("{}: no photos called '{}'", schema::PROFILE.file, photos.unwrap_or_default());
        };
        let read_ahead = storage(first)?;
        let mut stages = Vec::new();
        let mut threaded = None;
        for row in &profile {
            if (&row.photos, &row.decoder, &row.resizer) != (&first.photos, &first.decoder, &first.resizer) {
                continue;
            }
            match row.mode.as_str() {
                // Where the storage reads ahead, its readers only wait for it.
                "serial" => {
                    stages.extend(stage(row).filter(|stage| read_ahead.is_none() || stage.place != Place::Reader))
                }
                "threaded" if threaded.is_none() => threaded = Some(row),
                _ => {}
            }
        }
        let threaded = threaded.context("profile.csv has no threaded run")?;
        let usual = Config::default();
        let configuration = Configuration {
            readers: threaded.readers.unwrap_or(usual.readers as u32),
            workers: threaded.workers,
            batch: threaded.batch,
            prefetch: threaded.prefetch.unwrap_or(usual.prefetch as u32),
            forward_threads: threaded.threads,
            encoders: 1,
        };
        let contexts: Vec<Context> = read(folder, &schema::PROFILE)?;
        let mut context = contexts.into_iter().next().unwrap_or_default();
        let disturbed = first.disturbed.clone();
        let is_on_cpu = context.is_on_cpu();
        let measured = forward(folder, first, &context, &configuration);
        let forward_on_cpu = measured.as_ref().ok().filter(|_| is_on_cpu).cloned().unwrap_or_default();
        let forward = match stand_in {
            None => measured?,
            Some(stand_in) => {
                context.device = stand_in.to_string();
                curve(stand_in, configuration.forward_threads)
            }
        };
        let measured = Measured {
            cores: context.cores as u32,
            bytes_per_image: first.bytes_per_image,
            bytes_per_vector: bytes_per_vector(folder)?,
            stages,
            forward,
            storage: read_ahead.map_or_else(|| cold_files(folder, &first.photos), |ahead| Ok(Some(ahead)))?,
            interference: 0.0,
        };
        let sweep: Vec<Sweep> = read(folder, &schema::WORKER_SWEEP)?;
        let sweep: Vec<Sweep> = sweep.into_iter().filter(|row| row.is_like(first)).collect();
        let measured = match is_on_cpu {
            true => calibrated(measured, &sweep, &configuration)?,
            false => with_scaling(measured, &sweep, &configuration),
        };
        let interval = interval(folder, &first.photos)?;
        Ok(Self { measured, configuration, context, forward_on_cpu, interval, disturbed })
    }
}

/// Returns a stage of the serial profile. On one thread, its wall time is its time on a core.
fn stage(row: &Profile) -> Option<StageCost> {
    let place = match row.stage.as_str() {
        "list" | "read" => Place::Reader,
        "decode" | "resize" | "batch" => Place::Worker,
        "copy-in" | "copy-out" => Place::Encoder,
        "serialize" => Place::Writer,
        // The forward comes from its own bench; normalizing is not part of the job.
        _ => return None,
    };
    let seconds = row.ms_per_image / 1e3;
    Some(StageCost { name: row.stage.clone(), place, seconds, cpu_seconds: seconds })
}

/// Returns what containers and stores deliver; `None` for files.
fn storage(row: &Profile) -> anyhow::Result<Option<Storage>> {
    let Some(rate) = row.storage_mb_per_second else { return Ok(None) };
    let Some(latency) = row.storage_latency_ms else { return Ok(Some(Storage::disk(rate * 1e6))) };
    let request = row.storage_request_mb_per_second.zip(row.storage_in_flight);
    let (stream, requests) = request.context("profile.csv has a store's latency without its bandwidth")?;
    let link_bytes_per_second = row.storage_most_mb_per_second.map(|limit| limit * 1e6);
    Ok(Some(Storage { link_bytes_per_second, ..Storage::remote(latency / 1e3, stream * 1e6, requests) }))
}

/// Reads what files deliver that are not in the page cache, as for a job larger than the memory; `None` if that was not
/// measured.
fn cold_files(folder: &Path, photos: &str) -> anyhow::Result<Option<Storage>> {
    let rows: Vec<Supply> = read(folder, &schema::STORAGE)?;
    let cold = rows.iter().find(|row| row.photos == photos && row.place == "files" && row.cache == "cold");
    Ok(cold.map(|row| Storage::disk(row.mb_per_second * 1e6)))
}

impl Sweep {
    /// Returns true for a run of the same job with any number of workers.
    fn is_like(&self, job: &Profile) -> bool {
        let same_stages = self.photos == job.photos && self.decoder == job.decoder && self.resizer == job.resizer;
        same_stages && self.encoder == job.encoder && self.dtype == job.dtype && self.status == "ok"
    }
}

/// Returns the measurements with the interference of the sweep's runs, whose threads share the cores with the forward.
fn calibrated(measured: Measured, sweep: &[Sweep], like: &Configuration) -> anyhow::Result<Measured> {
    let mut runs = Vec::new();
    for row in sweep.iter().filter(|row| row.threads == Some(like.forward_threads)) {
        if let (Some(workers @ 1..), Some(batch), Some(images_per_second)) =
            (row.workers, row.batch, row.images_per_second)
        {
            runs.push(Run {
                configuration: Configuration { workers, batch, ..*like },
                images: None,
                images_per_second,
            });
        }
    }
    if runs.is_empty() { Ok(measured) } else { Ok(measured.calibrated(&runs)?) }
}

/// Returns the measurements with the workers' stages as slow as in the sweep's run that is nearest to the job's number
/// of workers, if these stages limit that run. Threads that share a core or the memory are slower together than alone.
fn with_scaling(mut measured: Measured, sweep: &[Sweep], like: &Configuration) -> Measured {
    let limited = sweep.iter().filter(|row| {
        row.workers > Some(0)
            && row.limit.as_deref().is_some_and(|limit| ["decode", "resize", "batch"].contains(&limit))
    });
    let nearest = limited.min_by_key(|row| row.workers.map_or(u32::MAX, |workers| workers.abs_diff(like.workers)));
    let Some(&Sweep { workers: Some(workers), images_per_second: Some(rate), .. }) = nearest else { return measured };
    let of_workers = measured.stages.iter().filter(|stage| stage.place == Place::Worker);
    let alone: f64 = of_workers.map(|stage| stage.seconds).sum();
    let together = f64::from(workers) / rate;
    if together > alone {
        for stage in measured.stages.iter_mut().filter(|stage| stage.place == Place::Worker) {
            stage.seconds *= together / alone;
            stage.cpu_seconds *= together / alone;
        }
    }
    measured
}

/// Reads the forward's time by batch size from the sweep, or from the bench with the run's number of threads.
fn forward(
    folder: &Path,
    like: &Profile,
    context: &Context,
    configuration: &Configuration,
) -> anyhow::Result<Vec<ForwardCost>> {
    let threads = configuration.forward_threads;
    let mut costs = Vec::<ForwardCost>::new();
    for schema in [&schema::BATCH_SWEEP, &schema::FORWARD] {
        for row in read::<Forward>(folder, schema)? {
            let same = row.encoder == like.encoder && row.dtype == like.dtype && row.status == "ok";
            // A device computes one batch while others are copied: a call's time includes the copies.
            let ms = row.forward_ms.filter(|ms| *ms > 0.0 && !context.is_on_cpu()).or(row.p50_ms);
            let (Some(batch), Some(ms)) = (row.batch, ms) else { continue };
            if same && row.threads == Some(threads) && costs.iter().all(|cost| cost.batch != batch) {
                let seconds = ms / 1e3;
                let cpu_seconds = if context.is_on_cpu() { seconds * f64::from(threads) } else { 0.0 };
                costs.push(ForwardCost { threads, batch, seconds, cpu_seconds });
            }
        }
    }
    if costs.is_empty() {
        bail!(
            "{}: no forward of {} in {} with {threads} threads was measured; `foveate bench batch-sweep` does that",
            folder.display(),
            like.encoder,
            like.dtype,
        );
    }
    Ok(costs)
}

/// The batch sizes of a stand-in's forward.
const BATCHES: [u32; 7] = [1, 8, 16, 32, 64, 128, 256];

pub(crate) fn curve(stand_in: &StandIn, threads: u32) -> Vec<ForwardCost> {
    let (overhead, per_image) = stand_in.step_ms();
    let mut costs = Vec::new();
    for batch in BATCHES {
        let seconds = (overhead + per_image * f64::from(batch)) / 1e3;
        costs.push(ForwardCost { threads, batch, seconds, cpu_seconds: 0.0 });
    }
    costs
}

fn bytes_per_vector(folder: &Path) -> anyhow::Result<f64> {
    let rows: Vec<Sink> = read(folder, &schema::SINKS)?;
    Ok(rows.iter().find(|row| row.status == "ok").and_then(|row| row.bytes_per_row).unwrap_or(0.0))
}

/// Returns the interval. `None` also if it has no upper end, such as for two samples that differ much.
fn interval(folder: &Path, photos: &str) -> anyhow::Result<Option<(f64, f64)>> {
    let rows: Vec<Extrapolation> = read(folder, &schema::EXTRAPOLATION)?;
    let ends = rows.iter().filter(|row| row.photos == photos).find_map(|row| {
        let rate = row.images_per_second?;
        Some((row.low? / rate, row.high? / rate))
    });
    Ok(ends.filter(|(low, _)| *low > 0.0))
}

/// Reads a file's rows; none if the file does not exist.
fn read<T: DeserializeOwned>(folder: &Path, schema: &Schema) -> anyhow::Result<Vec<T>> {
    let path = folder.join(schema.file);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let mut reader = csv::Reader::from_path(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let rows = reader.deserialize().collect::<Result<Vec<T>, _>>();
    let rows =
        rows.with_context(|| format!("cannot read {}; measure again if another version made it", path.display()))?;
    if rows.is_empty() {
        bail!("{}: no rows", path.display());
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_lack_newer_columns_but_none_that_a_plan_needs() {
        let folder = tempfile::tempdir().unwrap();
        let stand_in = "5+1*n".parse().unwrap();
        let needed = "photos,mode,decoder,resizer,encoder,dtype,workers,threads,batch,stage,ms_per_image";
        let read = |names: &str, values: &str| {
            let rows =
                ["serial", "threaded"].map(|mode| format!("all,{mode},exact,fir,fused,f32,1,2,8,decode,4{values}\n"));
            std::fs::write(folder.path().join("profile.csv"), format!("{needed}{names}\n{}", rows.concat())).unwrap();
            MeasuredRun::read(folder.path(), None, Some(&stand_in))
        };
        let run = read(",bytes_per_image,cores", ",1000,4").unwrap();
        assert_eq!((run.measured.storage, run.disturbed, run.context.libraries), (None, None, String::new()));
        assert_eq!(
            (run.measured.cores, run.measured.stages[0].seconds, run.configuration.forward_threads),
            (4, 4e-3, 2)
        );
        let error = format!("{:#}", read("", "").map(drop).unwrap_err());
        assert!(error.contains("missing field `bytes_per_image`"), "{error}");
    }
}
