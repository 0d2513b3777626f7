//! `foveate profile`: the time of a job, stage by stage.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use foveate_core::{PixelBatch, Stage, VectorBuf};
use foveate_encode::{EncodeError, EncodeTimes, Encoder, EncoderSpec, Overlap, Resident, normalize_nchw};
use foveate_pipeline::RunReport;
use foveate_plan::Storage;
use foveate_profile::{StageProfiler, StageTotals, Trace};

use crate::run::{Lab, Output, Run, card_columns};
use crate::storage::Supply;
use crate::{Cell, LabError, LentEncoder, PhotoSet, Setting, Table, schema};

/// The subject and thoroughness of a profile.
#[derive(Clone, Debug)]
pub struct ProfileOptions {
    /// The configurations, for comparison.
    pub settings: Vec<Setting>,
    /// Images of each run; `None` for about as many as take [`SECONDS`].
    pub images: Option<u64>,
    /// True if the serial run normalizes on the CPU too, image by image into f32 planes, as pipelines do whose encoder
    /// does not fold normalization into its weights. The run with workers is the job, which does not have this stage.
    pub normalize: bool,
    /// Number of images to which the stages' times are projected.
    pub project: u64,
    /// The trace that records every span of the first setting's threaded run.
    pub trace: Option<Trace>,
    /// The sink.
    pub sink: String,
}

/// Length of a run in seconds.
pub const SECONDS: f64 = 4.0;

/// Profiles each setting on each set of photos: on one thread, every stage in turn, and with its workers.
///
/// # Errors
/// Fails if a run cannot be carried out, or its rows are wrong.
pub fn run(lab: &Lab<'_>, sets: &[PhotoSet], options: &ProfileOptions) -> Result<Table, LabError> {
    let mut table = Table::new(&schema::PROFILE);
    let mut trace = options.trace.clone();
    for photos in sets {
        lab.watch.doing(&format!("profile: {}, reading alone", photos.name));
        let supply = photos.supply()?;
        for setting in &options.settings {
            // One thread in total: this includes the forward.
            let storage = supply.storage(setting.requests);
            let serial = Setting { workers: 0, threads: 1, ..setting.clone() };
            let threaded = Setting { workers: setting.workers.max(1), ..setting.clone() };
            ProfileRun { lab, options, photos, storage, setting: &serial, trace: None }.add_to(&mut table, "serial")?;
            ProfileRun { lab, options, photos, storage, setting: &threaded, trace: trace.take() }
                .add_to(&mut table, "threaded")?;
        }
    }
    Ok(table)
}

/// Measures what the photos' places deliver while nothing else works, as [`schema::STORAGE`].
///
/// # Errors
/// Fails if the photos cannot be read any more.
pub fn storage(sets: &[PhotoSet]) -> Result<Table, LabError> {
    let mut table = Table::new(&schema::STORAGE);
    for photos in sets {
        add_supply(&mut table, photos, photos.supply()?);
    }
    Ok(table)
}

fn add_supply(table: &mut Table, photos: &PhotoSet, supply: &Supply) {
    let fit = supply.storage.filter(|_| photos.is_in_store());
    for reading in &supply.readings {
        let fitted = fit.map(|fit| Storage { concurrency: reading.requests as u32, ..fit });
        table.push([
            ("photos", photos.name.as_str().into()),
            ("place", supply.place.into()),
            ("cache", reading.cache.into()),
            ("requests", reading.requests.into()),
            ("samples", 1_usize.into()),
            ("images", reading.images.into()),
            ("mb_per_second", (reading.bytes_per_second() / 1e6).into()),
            ("images_per_second", reading.images_per_second().into()),
            (
                "fitted_images_per_second",
                fitted.and_then(|fitted| fitted.images_per_second(photos.mean_bytes()).ok()).into(),
            ),
            ("latency_ms", fit.map(|fit| fit.latency * 1e3).into()),
            ("request_mb_per_second", fit.map(|fit| fit.stream_bytes_per_second / 1e6).into()),
            ("most_mb_per_second", fit.and_then(|fit| Some(fit.link_bytes_per_second? / 1e6)).into()),
        ]);
    }
}

/// Prints a profile with its configurations in columns. Each stage has its milliseconds per image and its share of the
/// wall time; the projection to a whole job follows.
///
/// # Errors
/// Fails if `out` cannot be written.
pub fn print(table: &Table, out: &mut dyn Write) -> std::io::Result<()> {
    let mut photos: Vec<String> = Vec::new();
    for row in 0..table.len() {
        let name = table.get(row, "photos").to_string();
        if !photos.contains(&name) {
            photos.push(name);
        }
    }
    for photos in photos {
        let mut runs: Vec<(String, Vec<usize>)> = Vec::new();
        for row in (0..table.len()).filter(|&row| table.get(row, "photos").to_string() == photos) {
            let [decoder, resizer, mode] = ["decoder", "resizer", "mode"].map(|name| table.get(row, name));
            let run = format!("{decoder}+{resizer} {mode}");
            match runs.iter_mut().find(|(name, _)| *name == run) {
                Some((_, rows)) => rows.push(row),
                None => runs.push((run, vec![row])),
            }
        }
        runs.chunks(BESIDE).try_for_each(|runs| print_runs(table, &photos, runs, out))?;
    }
    Ok(())
}

/// Width of one run's column, and the number of runs next to each other.
const WIDTH: usize = 27;
const BESIDE: usize = 4;

/// Returns a number of a row; 0 if the cell holds none.
fn number(table: &Table, row: usize, name: &str) -> f64 {
    table.number(row, name).unwrap_or(0.0)
}

/// Prints a line with one cell for the rows of each run.
fn print_line(
    out: &mut dyn Write,
    head: &str,
    runs: &[(String, Vec<usize>)],
    cell: impl Fn(&[usize]) -> String,
) -> std::io::Result<()> {
    write!(out, "{head:<12}")?;
    runs.iter().try_for_each(|(_, rows)| write!(out, "{:>WIDTH$}", cell(rows)))?;
    writeln!(out)
}

fn print_runs(table: &Table, photos: &str, runs: &[(String, Vec<usize>)], out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(
        out,
        "\n{photos}: ms per image, share of the wall-clock time (of threads that work at once, more than 100%)"
    )?;
    write!(out, "{:<12}", "")?;
    runs.iter().try_for_each(|(name, _)| write!(out, "{name:>WIDTH$}"))?;
    writeln!(out)?;
    // The serial run has every stage.
    let longest = runs.iter().max_by_key(|(_, rows)| rows.len()).map_or(&[][..], |(_, rows)| rows.as_slice());
    for name in longest.iter().map(|&row| table.get(row, "stage")) {
        print_line(out, &name.to_string(), runs, |rows| {
            match rows.iter().find(|&&row| table.get(row, "stage") == name) {
                Some(&row) if number(table, row, "total_s") > 0.0 => {
                    let share = 100.0 * number(table, row, "share_of_wall");
                    format!("{:.3} {share:>6.1}%", number(table, row, "ms_per_image"))
                }
                _ => "–        ".to_owned(),
            }
        })?;
    }
    print_line(out, "images/s", runs, |rows| format!("{:.1}        ", number(table, rows[0], "images_per_second")))?;
    print_line(out, "hours", runs, |rows| {
        let seconds = number(table, rows[0], "projected_images") / number(table, rows[0], "images_per_second");
        format!("{:.2}        ", seconds / 3600.0)
    })?;
    writeln!(out, "(hours for {:.0} images)", number(table, longest[0], "projected_images"))?;
    let Some(storage) = table.number(longest[0], "storage_mb_per_second") else { return Ok(()) };
    let at_most = storage * 1e6 / number(table, longest[0], "bytes_per_image");
    write!(
        out,
        "(reading goes on beside the stages; alone, the storage delivers {storage:.1} MB/s, {at_most:.1} images/s"
    )?;
    if let Some(requests) = table.number(longest[0], "storage_in_flight")
        && let Some(latency) = table.number(longest[0], "storage_latency_ms")
    {
        let plural = if requests == 1.0 { "" } else { "s" };
        let each = number(table, longest[0], "storage_request_mb_per_second");
        write!(out, ", with {requests:.0} request{plural} in flight: {latency:.1} ms, then {each:.1} MB/s each")?;
    }
    if let Some(most) = table.number(longest[0], "storage_most_mb_per_second") {
        write!(out, ", and {most:.1} MB/s at most together")?;
    }
    writeln!(out, ")")
}

/// One profiled run.
struct ProfileRun<'a> {
    lab: &'a Lab<'a>,
    options: &'a ProfileOptions,
    photos: &'a PhotoSet,
    storage: Option<Storage>,
    setting: &'a Setting,
    trace: Option<Trace>,
}

impl ProfileRun<'_> {
    fn add_to(&self, table: &mut Table, mode: &str) -> Result<(), LabError> {
        let Setting { decoder, resizer, .. } = self.setting;
        self.lab.watch.doing(&format!("profile: {}, {decoder}+{resizer}, {mode}", self.photos.name));
        let encoder = self.lab.encoder(self.setting)?;
        let images = match self.options.images {
            Some(images) => images,
            None => self.lab.images_for(SECONDS, self.setting, self.photos, &encoder)?,
        };
        let normalizing = Normalizing::new(encoder);
        let run = self.run(images, &normalizing)?;
        for stage in self.stages(&run.report, &normalizing) {
            self.push(table, mode, images, &run, &stage);
        }
        Ok(())
    }

    fn run(&self, images: u64, normalizing: &Normalizing) -> Result<Run, LabError> {
        let sink = self.lab.sink(&Output::Sink(self.options.sink.clone()), self.photos)?;
        let encoder: Box<dyn Encoder> = match self.options.normalize && self.setting.workers == 0 {
            true => Box::new(normalizing.clone()),
            false => Box::new(normalizing.encoder.clone()),
        };
        let source = self.photos.stored(self.setting, images)?;
        let mut pipeline = self.lab.pipeline(self.setting, source, encoder, Box::new(sink.clone()));
        pipeline.config.trace = self.trace.clone();
        self.lab.carry_out(pipeline, &sink, images)
    }

    /// Returns the engine's timings under the names of the classic breakdown, and last the time that none of them
    /// covers.
    fn stages(&self, report: &RunReport, normalizing: &Normalizing) -> Vec<StageTotals> {
        let mut stages = Vec::new();
        for stage in &report.stages {
            match stage.stage {
                Stage::Batch => stages.extend(normalizing.totals().into_iter().chain([stage.totals.clone()])),
                Stage::Encode => stages.extend(report.encode_parts.iter().cloned()),
                Stage::Write => stages.push(StageTotals { name: "serialize", ..stage.totals.clone() }),
                _ => stages.push(stage.totals.clone()),
            }
        }
        if self.setting.workers == 0 {
            let covered: Duration = stages.iter().map(|stage| stage.busy).sum();
            stages.push(other(report.wall.saturating_sub(covered)));
        }
        stages
    }

    /// Returns the bytes per second that the storage delivers alone.
    fn storage_rate(&self) -> Option<f64> {
        let bytes = self.photos.mean_bytes();
        self.storage?.images_per_second(bytes).ok().map(|images| images * bytes)
    }

    fn push(&self, table: &mut Table, mode: &str, images: u64, run: &Run, stage: &StageTotals) {
        let busy = stage.busy.as_secs_f64();
        let wall = run.report.wall.as_secs_f64();
        // Without spans, there are no quantiles.
        let [mean, p50, p90, p99] = [stage.mean(), stage.p50, stage.p90, stage.p99]
            .map(|duration| Cell::from((stage.count > 0).then_some(duration.as_secs_f64() * 1e3)));
        let store = self.storage.filter(|_| self.photos.is_in_store());
        let figures = [
            ("photos", self.photos.name.as_str().into()),
            ("mode", mode.into()),
            ("readers", self.setting.readers.into()),
            ("prefetch", self.setting.prefetch.into()),
            ("samples", 1_usize.into()),
            ("images", images.into()),
            ("stage", stage.name.into()),
            ("count", stage.count.into()),
            ("total_s", busy.into()),
            ("mean_ms", mean),
            ("p50_ms", p50),
            ("p90_ms", p90),
            ("p99_ms", p99),
            ("share_of_wall", (busy / wall).into()),
            ("ms_per_image", (busy * 1e3 / images as f64).into()),
            ("wall_s", wall.into()),
            ("bytes_per_image", self.photos.mean_bytes().into()),
            ("storage_mb_per_second", self.storage_rate().map(|rate| rate / 1e6).into()),
            ("storage_latency_ms", store.map(|store| store.latency * 1e3).into()),
            ("storage_request_mb_per_second", store.map(|store| store.stream_bytes_per_second / 1e6).into()),
            ("storage_most_mb_per_second", store.and_then(|store| Some(store.link_bytes_per_second? / 1e6)).into()),
            ("storage_in_flight", store.map(|store| store.concurrency as usize).into()),
            ("images_per_second", run.rate.into()),
            ("projected_images", self.options.project.into()),
            ("projected_s", (busy / images as f64 * self.options.project as f64).into()),
        ];
        table.push(self.setting.columns().into_iter().chain(figures).chain(card_columns([run.cards])));
    }
}

/// Returns the job's time outside all stages: the engine itself.
fn other(time: Duration) -> StageTotals {
    let zero = Duration::ZERO;
    StageTotals { name: "other", count: 0, busy: time, own: time, p50: zero, p90: zero, p99: zero, max: zero }
}

/// An encoder that first normalizes every image on the CPU to time that; the result is not used.
#[derive(Clone)]
struct Normalizing {
    encoder: LentEncoder,
    planes: Vec<f32>,
    clock: Arc<StageProfiler>,
}

impl Normalizing {
    fn new(encoder: LentEncoder) -> Self {
        Self { encoder, planes: Vec::new(), clock: Arc::new(StageProfiler::new(["normalize"])) }
    }

    fn totals(&self) -> Vec<StageTotals> {
        self.clock.totals()
    }
}

impl Encoder for Normalizing {
    fn spec(&self) -> &EncoderSpec {
        self.encoder.spec()
    }

    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        let EncoderSpec { mean, std, .. } = *self.encoder.spec();
        for image in (0..batch.len()).filter_map(|i| batch.slice(i..i + 1)) {
            let _span = self.clock.span(0);
            normalize_nchw(image, mean, std, &mut self.planes);
            std::hint::black_box(&self.planes);
        }
        self.encoder.encode(batch, out)
    }

    fn resident(&mut self) -> Option<&mut dyn Resident> {
        self.encoder.resident()
    }

    fn overlap(&mut self) -> Option<&mut dyn Overlap> {
        None
    }
}
