//! Reads the costs for the analytic model from a run's CSV files.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context as _, bail};
use foveate::lab::{Context, Schema, StandIn, schema};
use foveate::plan::{Configuration, ForwardCost, Measured, Place, StageCost, Storage};

/// The measured costs, and the configuration that they were measured with.
pub(crate) struct MeasuredRun {
    pub(crate) measured: Measured,
    pub(crate) configuration: Configuration,
    pub(crate) context: Context,
    /// Ends of the throughput's interval, as fractions of its mean.
    pub(crate) interval: Option<(f64, f64)>,
    /// The reason why the figures may be wrong, if there is one.
    pub(crate) disturbed: Option<String>,
}

/// A row of a CSV file, by column.
type Row = HashMap<String, String>;

impl MeasuredRun {
    /// Tells whether the forward ran on the cores that decode.
    pub(crate) fn is_on_cpu(&self) -> bool {
        is_cpu(&self.context)
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
        let profile = read(folder, &schema::PROFILE)?;
        let profile = profile.with_context(|| {
            format!("{} has no {}: `foveate profile` makes it", folder.display(), schema::PROFILE.file)
        })?;
        let is_wanted = |row: &&Row| photos.is_none_or(|name| row["photos"].starts_with(name));
        let Some(first) = profile.iter().find(is_wanted) else {
            bail!("{}: no photos called '{}'", schema::PROFILE.file, photos.unwrap_or_default());
        };
        let same = |row: &&Row| ["photos", "decoder", "resizer"].iter().all(|&name| row[name] == first[name]);
        let of_mode = |mode: &'static str| profile.iter().filter(same).filter(move |row| row["mode"] == mode);
        let read_ahead = storage(first)?;
        let stages = of_mode("serial").map(stage).collect::<anyhow::Result<Vec<_>>>()?;
        // Where the storage reads ahead, its readers only wait for it.
        let is_work = |stage: &StageCost| read_ahead.is_none() || stage.place != Place::Reader;
        let stages: Vec<StageCost> = stages.into_iter().flatten().filter(is_work).collect();
        let threaded = of_mode("threaded").next().context("profile.csv has no threaded run")?;
        let configuration = Configuration {
            readers: number(threaded, "readers")? as u32,
            workers: number(threaded, "workers")? as u32,
            batch: number(threaded, "batch")? as u32,
            prefetch: number(threaded, "prefetch")? as u32,
            forward_threads: number(threaded, "threads")? as u32,
            encoders: 1,
        };
        let mut context = context(first)?;
        let disturbed = Some(first["disturbed"].clone()).filter(|why| !why.is_empty());
        let forward = match stand_in {
            None => forward(folder, first, &context, &configuration)?,
            Some(stand_in) => {
                context.device = stand_in.to_string();
                curve(stand_in, configuration.forward_threads)
            }
        };
        let measured = Measured {
            cores: context.cores as u32,
            bytes_per_image: number(first, "bytes_per_image")?,
            bytes_per_vector: bytes_per_vector(folder)?,
            stages,
            forward,
            storage: read_ahead.map_or_else(|| cold_files(folder, &first["photos"]), |ahead| Ok(Some(ahead)))?,
            interference: 0.0,
        };
        Ok(Self { measured, configuration, context, interval: interval(folder, &first["photos"])?, disturbed })
    }
}

fn is_cpu(context: &Context) -> bool {
    context.is_on_cpu()
}

/// Reads a stage of the serial profile. On one thread, its wall time is its time on a core.
fn stage(row: &Row) -> anyhow::Result<Option<StageCost>> {
    let place = match row["stage"].as_str() {
        "list" | "read" => Place::Reader,
        "decode" | "resize" | "batch" => Place::Worker,
        "copy-in" | "copy-out" => Place::Encoder,
        "serialize" => Place::Writer,
        // The forward comes from its own bench; normalizing is not part of the job.
        _ => return Ok(None),
    };
    let seconds = number(row, "ms_per_image")? / 1e3;
    Ok(Some(StageCost { name: row["stage"].clone(), place, seconds, cpu_seconds: seconds }))
}

/// Reads what containers and stores deliver; `None` for files.
fn storage(row: &Row) -> anyhow::Result<Option<Storage>> {
    if row["storage_mb_per_second"].is_empty() {
        return Ok(None);
    }
    if row["storage_latency_ms"].is_empty() {
        return Ok(Some(Storage::disk(number(row, "storage_mb_per_second")? * 1e6)));
    }
    let (latency, requests) = (number(row, "storage_latency_ms")? / 1e3, number(row, "storage_in_flight")? as u32);
    let remote = Storage::remote(latency, number(row, "storage_request_mb_per_second")? * 1e6, requests);
    let has_limit = !row["storage_most_mb_per_second"].is_empty();
    let limit = has_limit.then(|| number(row, "storage_most_mb_per_second")).transpose()?;
    Ok(Some(Storage { link_bytes_per_second: limit.map(|limit| limit * 1e6), ..remote }))
}

/// Reads what files deliver that are not in the page cache, as for a job larger than the memory; `None` if that was not
/// measured.
fn cold_files(folder: &Path, photos: &str) -> anyhow::Result<Option<Storage>> {
    let rows = read(folder, &schema::STORAGE)?.unwrap_or_default();
    let is_cold = |row: &&Row| row["photos"] == photos && row["place"] == "files" && row["cache"] == "cold";
    let rate = |row: &Row| number(row, "mb_per_second");
    Ok(rows.iter().find(is_cold).map(rate).transpose()?.map(|mega| Storage::disk(mega * 1e6)))
}

/// Reads the forward's time by batch size from the sweep, or from the bench with the run's number of threads.
fn forward(
    folder: &Path,
    like: &Row,
    context: &Context,
    configuration: &Configuration,
) -> anyhow::Result<Vec<ForwardCost>> {
    let mut costs: Vec<ForwardCost> = Vec::new();
    for (schema, milliseconds) in [(&schema::BATCH_SWEEP, "batch_p50_ms"), (&schema::FORWARD, "p50_ms")] {
        for row in read(folder, schema)?.unwrap_or_default() {
            let same = row["encoder"] == like["encoder"] && row["dtype"] == like["dtype"] && row["status"] == "ok";
            if !same || number(&row, "threads")? as u32 != configuration.forward_threads {
                continue;
            }
            let batch = number(&row, "batch")? as u32;
            if costs.iter().all(|cost| cost.batch != batch) {
                let seconds = number(&row, milliseconds)? / 1e3;
                let threads = configuration.forward_threads;
                let cpu_seconds = if is_cpu(context) { seconds * f64::from(threads) } else { 0.0 };
                costs.push(ForwardCost { threads, batch, seconds, cpu_seconds });
            }
        }
    }
    if costs.is_empty() {
        bail!(
            "{}: no forward of {} in {} with {} threads was measured; `foveate bench batch-sweep` does that",
            folder.display(),
            like["encoder"],
            like["dtype"],
            configuration.forward_threads
        );
    }
    Ok(costs)
}

/// The batch sizes of a stand-in's forward.
const BATCHES: [u32; 7] = [1, 8, 16, 32, 64, 128, 256];

fn curve(stand_in: &StandIn, threads: u32) -> Vec<ForwardCost> {
    let (overhead, per_image) = stand_in.step_ms();
    let seconds = |batch: u32| (overhead + per_image * f64::from(batch)) / 1e3;
    let cost = |batch| ForwardCost { threads, batch, seconds: seconds(batch), cpu_seconds: 0.0 };
    BATCHES.map(cost).into()
}

fn bytes_per_vector(folder: &Path) -> anyhow::Result<f64> {
    let rows = read(folder, &schema::SINKS)?.unwrap_or_default();
    let written = rows.iter().find(|row| row["status"] == "ok");
    written.map_or(Ok(0.0), |row| number(row, "bytes_per_row"))
}

/// Returns the interval. `None` also if it has no upper end, such as for two samples that differ much.
fn interval(folder: &Path, photos: &str) -> anyhow::Result<Option<(f64, f64)>> {
    let rows = read(folder, &schema::EXTRAPOLATION)?.unwrap_or_default();
    let bounded = |row: &&Row| row["photos"] == photos && !row["low"].is_empty() && !row["high"].is_empty();
    let Some(row) = rows.iter().find(bounded) else { return Ok(None) };
    let mean = number(row, "images_per_second")?;
    Ok(Some((number(row, "low")? / mean, number(row, "high")? / mean)).filter(|(low, _)| *low > 0.0))
}

fn context(row: &Row) -> anyhow::Result<Context> {
    Ok(Context {
        model: row["model"].clone(),
        device: row["device"].clone(),
        host: row["host"].clone(),
        cores: number(row, "cores")? as usize,
        foveate: row["foveate"].clone(),
        features: row["features"].clone(),
        libraries: row["libraries"].clone(),
        date: row["date"].clone(),
        seed: number(row, "seed")? as u64,
    })
}

fn number(row: &Row, name: &str) -> anyhow::Result<f64> {
    row[name].parse().with_context(|| format!("'{}' is no number for {name}", row[name]))
}

/// Reads a file's rows, each with every column of the schema; `None` if the file does not exist.
fn read(folder: &Path, schema: &Schema) -> anyhow::Result<Option<Vec<Row>>> {
    let path = folder.join(schema.file);
    if !path.exists() {
        return Ok(None);
    }
    let context = || format!("cannot read {}", path.display());
    let mut reader = csv::Reader::from_path(&path).with_context(context)?;
    let header = reader.headers().with_context(context)?.clone();
    let missing = schema.columns.iter().chain(schema::CONTEXT).find(|column| !header.iter().any(|h| h == column.name));
    if let Some(column) = missing {
        bail!("{}: no column '{}'; was it made by another version? Measure again", path.display(), column.name);
    }
    let row =
        |record: csv::StringRecord| header.iter().zip(&record).map(|(h, v)| (h.to_owned(), v.to_owned())).collect();
    let rows = reader.records().map(|record| record.map(row)).collect::<Result<Vec<Row>, _>>().with_context(context)?;
    if rows.is_empty() {
        bail!("{}: no rows", path.display());
    }
    Ok(Some(rows))
}
