//! Measures one cell of `cargo xtask bench-matrix`: one combination of backends, in a process of its own.
//!
//! `cell --list` prints the backends as JSON. `cell --decoder D --resizer R --encoder E --dtype T --decode-scale S
//! --sink K --model M --photos P --images N --samples S [--batch B --workers W --threads T]` runs the whole pipeline.
//! It runs once over the golden photos (the work check) and once to warm up. Then it runs `samples` times over `images`
//! images, or fewer if that takes long. Loading the model does not count, and every output is read back. In every case
//! it prints one line of JSON.

// Its output is JSON on standard output.
#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use foveate::DecodeScale;
use foveate::core::{Backend, Health, Registry};
use foveate::decode::{DecodeError, DecoderOptions};
use foveate::dinov2::OpenOptions;
use foveate::embed::{Backends, EmbedError, EmbedOptions};
use foveate::encode::{DType, EncodeError};
use foveate::lane::LaneError;
use foveate::pipeline::{Cancel, Progress, RunError, RunReport};
use foveate::preprocess::{OrientationPolicy, PreprocessError};
use foveate::resize::ResizeError;
use foveate::sink::Existing;
use foveate::source::{Input, Separator};
use foveate::verify::cosine;
use foveate_benches::golden::{Closeness, GoldenSet, Threshold};
use foveate_benches::stored::{self, Row};
use foveate_benches::{Result, host, peak_resident_bytes, photos, processor_time, spread};
use serde_json::{Value, json};

/// A sample of a slow cell has fewer images, so that it takes about this long, but at least [`FEWEST`].
const SAMPLE_SECONDS: f64 = 5.0;
const FEWEST: u64 = 16;

/// Smallest cosine of rows of the same photo in different places of a batch.
const SAME_PHOTO: f64 = 0.9999;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let backends = Arc::new(Backends::compiled());
    if words == ["--list"] {
        println!("{}", list(&backends));
        return;
    }
    println!("{}", Cell::parse(&words, &backends).and_then(|cell| cell.run()).unwrap_or_else(|error| refusal(&*error)));
}

/// Why a measurement failed, and whether it is a limit of this machine or a defect.
fn refusal(error: &(dyn std::error::Error + 'static)) -> Value {
    let outcome = if is_unavailable(error) { "unavailable" } else { "failed" };
    json!({ "outcome": outcome, "reason": foveate::core::error_chain(error) })
}

fn is_unavailable(error: &(dyn std::error::Error + 'static)) -> bool {
    let unsupported = |error: &EncodeError| matches!(error, EncodeError::Unsupported(_) | EncodeError::Device { .. });
    if let Some(error) = error.downcast_ref::<EmbedError>() {
        return match error {
            EmbedError::UnknownBackend(_) => true,
            EmbedError::Encode(error) => unsupported(error),
            _ => false,
        };
    }
    if let Some(error) = error.downcast_ref::<RunError>() {
        return match error {
            RunError::Preprocess(PreprocessError::Decode(DecodeError::Unavailable(_))) => true,
            RunError::Preprocess(PreprocessError::Resize(
                ResizeError::Unavailable(_) | ResizeError::Unsupported { .. },
            )) => true,
            RunError::Encode(LaneError::Encode(error)) => unsupported(error),
            _ => false,
        };
    }
    error.is::<Broken>()
}

/// A backend whose library does not work here.
#[derive(Debug)]
struct Broken(String);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Broken {}

fn list(backends: &Backends) -> Value {
    let scales = |name: &str| {
        let opened = backends.decoders.get(name).ok().and_then(|backend| backend.open(&DecoderOptions::default()).ok());
        opened.is_some_and(|decoder| decoder.capability().scaled)
    };
    let scaling: Vec<&str> = backends.decoders.iter().map(Backend::name).filter(|name| scales(name)).collect();
    json!({
        "decoders": names(&backends.decoders),
        "resizers": names(&backends.resizers),
        "encoders": names(&backends.encoders),
        "sinks": names(&backends.sinks),
        "scaling_decoders": scaling,
        "foveate": foveate::VERSION,
        "processor": host::processor(),
        "cores": host::cores(),
        "system": format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
    })
}

/// Every known backend of a kind, and whether it is compiled in.
fn names<B: Backend>(registry: &Registry<B>) -> Value {
    registry.known().iter().map(|name| json!({ "name": name, "compiled": registry.get(name).is_ok() })).collect()
}

/// The library that a backend computes with.
///
/// # Errors
/// [`Broken`], with the cause, when it cannot.
fn library<B: Backend>(registry: &Registry<B>, name: &str) -> Result<String> {
    let health = registry.get(name).map_err(EmbedError::from)?.health();
    match health {
        Health { problem: Some(problem), .. } => Err(Broken(format!("{}: {}", name, problem.cause)).into()),
        Health { library, .. } => Ok(host::library(library.as_deref())),
    }
}

/// One combination and its input.
struct Cell {
    options: EmbedOptions,
    photos: PathBuf,
    images: u64,
    samples: usize,
    backends: Arc<Backends>,
    libraries: Value,
    /// The folder of lists and outputs.
    folder: tempfile::TempDir,
}

/// The result of one run.
struct Sample {
    report: RunReport,
    rows: Vec<Row>,
    per_second: f64,
    cpu_per_image: f64,
    load_seconds: f64,
}

impl Cell {
    fn parse(words: &[String], backends: &Arc<Backends>) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut options = EmbedOptions::new(Vec::new(), "seeded:dinov2-small", "");
        options.existing = Existing::Overwrite;
        let (mut photos, mut images, mut samples) = (photos::examples(), 64, 3);
        for pair in words.chunks(2) {
            let [name, value] = pair else { return Err(format!("{} needs a value", pair[0]).into()) };
            match name.as_str() {
                "--decoder" => options.decoder = Some(value.clone()),
                "--resizer" => options.resizer = Some(value.clone()),
                "--encoder" => options.encoder = Some(value.clone()),
                "--sink" => options.sink = Some(value.clone()),
                "--dtype" => options.dtype = dtype(value)?,
                "--decode-scale" => options.decode_scale = value.parse::<DecodeScale>()?,
                "--model" => options.model = value.clone(),
                "--batch" => options.batch = value.parse()?,
                "--workers" => options.workers = value.parse()?,
                "--threads" => options.encoder_threads = value.parse()?,
                "--photos" => photos = value.into(),
                "--images" => images = value.parse()?,
                "--samples" => samples = value.parse()?,
                _ => return Err(format!("there is no option {name}").into()),
            }
        }
        let mut cell =
            Self { options, photos, images, samples, backends: Arc::clone(backends), libraries: Value::Null, folder };
        cell.name_all()?;
        Ok(cell)
    }

    /// Fills in the default backends, and queries each one's library.
    fn name_all(&mut self) -> Result<()> {
        fn first<B: Backend>(registry: &Registry<B>, name: &mut Option<String>) -> Result<String> {
            let default = || registry.iter().next().map(|backend| backend.name().to_owned());
            let chosen = name.take().or_else(default).ok_or("no backend of this kind")?;
            *name = Some(chosen.clone());
            library(registry, &chosen)
        }
        let backends = &self.backends;
        self.libraries = json!({
            "decoder": first(&backends.decoders, &mut self.options.decoder)?,
            "resizer": first(&backends.resizers, &mut self.options.resizer)?,
            "encoder": first(&backends.encoders, &mut self.options.encoder)?,
            "sink": first(&backends.sinks, &mut self.options.sink)?,
        });
        let sink = self.options.sink.as_deref().unwrap_or_default();
        let extension = self.backends.sinks.get(sink).map_err(EmbedError::from)?.extension();
        self.options.output = self.folder.path().join(format!("out.{extension}"));
        Ok(())
    }

    fn run(&self) -> Result<Value> {
        let closeness = self.check_goldens()?;
        let files = photos::list(&self.photos)?;
        // Warms up memory pages, threads and tables.
        let warm = self.sample(&files, self.images.min(self.options.batch as u64), &self.options)?;
        let images = ((warm.per_second * SAMPLE_SECONDS) as u64).max(FEWEST).min(self.images);
        let samples: Vec<Sample> =
            (0..self.samples).map(|_| self.sample(&files, images, &self.options)).collect::<Result<_>>()?;
        self.describe(closeness, &files, &samples)
    }

    /// The work check: the golden photos through the same backends, read back from the same kind of output.
    fn check_goldens(&self) -> Result<Option<(Closeness, Threshold)>> {
        let Some(goldens) = GoldenSet::of(&self.options.model)? else { return Ok(None) };
        let files = goldens.photos();
        let options = EmbedOptions { orientation: OrientationPolicy::Ignore, ..self.options.clone() };
        let sample = self.sample(&files, files.len() as u64, &options)?;
        let closeness = goldens.compare(&sample.rows)?;
        let threshold = Threshold::of(&self.options, &self.backends, &goldens)?;
        if !threshold.holds(closeness) {
            let Closeness { min, median, .. } = closeness;
            let Threshold { name, min_cosine, median_cosine } = threshold;
            return Err(format!(
                "work check: cosine to the goldens {min:.6} (median {median:.6}), '{name}' asks for {min_cosine} ({median_cosine})"
            )
            .into());
        }
        Ok(Some((closeness, threshold)))
    }

    /// One run over `images` images, whose output is read back.
    fn sample(&self, files: &[PathBuf], images: u64, options: &EmbedOptions) -> Result<Sample> {
        let list = self.folder.path().join("list.txt");
        photos::write_list(files, images, &list)?;
        let options = EmbedOptions { inputs: vec![Input::List(list, Separator::Line)], ..options.clone() };
        let loading = Instant::now();
        let job = options.prepare(Box::new(options.list(|_| ())?), &self.backends, &OpenOptions::from_env())?;
        let load_seconds = loading.elapsed().as_secs_f64();
        let (started, cpu) = (Instant::now(), host::time(processor_time)?);
        let report = job.run(&Cancel::default(), &Progress::default())?;
        let (wall, cpu) = (started.elapsed().as_secs_f64(), host::time(processor_time)? - cpu);
        let published = report.published.as_ref().ok_or("the run did not finish")?;
        let rows = stored::read(published)?;
        check_rows(&rows, files, images)?;
        let (per_second, cpu_per_image) = (images as f64 / wall, cpu.as_secs_f64() / images as f64);
        Ok(Sample { report, rows, per_second, cpu_per_image, load_seconds })
    }

    fn describe(
        &self,
        closeness: Option<(Closeness, Threshold)>,
        files: &[PathBuf],
        samples: &[Sample],
    ) -> Result<Value> {
        let of = |value: fn(&Sample) -> f64| spread(&samples.iter().map(value).collect::<Vec<_>>());
        let last = samples.last().ok_or("no samples")?;
        let stages = last.report.stages.iter().map(|stage| (stage.stage.name().to_owned(), json!(stage.share)));
        let o = &self.options;
        Ok(json!({
            "outcome": "ok",
            "images_per_second": samples.iter().map(|sample| sample.per_second).collect::<Vec<_>>(),
            "cpu_seconds_per_image": samples.iter().map(|sample| sample.cpu_per_image).collect::<Vec<_>>(),
            "load_seconds": of(|sample| sample.load_seconds).median,
            "peak_resident_bytes": peak_resident_bytes(),
            "rows_checked": samples.iter().map(|sample| sample.rows.len()).sum::<usize>(),
            "images": last.rows.len(),
            "dim": last.rows.first().map_or(0, |row| row.vector.len()),
            "photos": files.len(),
            "golden": closeness.map(|(found, threshold)| json!({
                "photos": found.photos,
                "min_cosine": found.min,
                "median_cosine": found.median,
                "tier": threshold.name,
                "tier_min_cosine": threshold.min_cosine,
                "tier_median_cosine": threshold.median_cosine,
            })),
            "busy": stages.collect::<serde_json::Map<_, _>>(),
            "bottleneck": last.report.bottleneck().map(|stage| stage.stage.name()),
            "libraries": self.libraries,
            "batch": o.batch,
            "workers": o.workers,
            "threads": o.encoder_threads,
            "recipe": o.recipe.name(),
        }))
    }
}

fn dtype(name: &str) -> Result<DType> {
    let known = [DType::F32, DType::F16, DType::Bf16];
    known.into_iter().find(|dtype| dtype.name() == name).ok_or_else(|| format!("no dtype '{name}'").into())
}

/// Checks that there is one row per image, in order, that vectors are not degenerate, and that equal photos have equal
/// vectors.
fn check_rows(rows: &[Row], files: &[PathBuf], images: u64) -> Result<()> {
    if rows.len() as u64 != images {
        return Err(format!("work check: {} rows of {images} images", rows.len()).into());
    }
    for (at, row) in rows.iter().enumerate() {
        let wrong = |what: &str| format!("work check: row {at} {what}");
        if Path::new(&row.id) != files[at % files.len()] {
            return Err(wrong("is of another photo").into());
        }
        // NaN and zero vectors must fail this comparison.
        let cosine = cosine(&row.vector, &rows[at % files.len()].vector);
        if !(cosine > SAME_PHOTO && cosine.is_finite()) {
            return Err(wrong(&format!("is not the vector that the photo had before: cosine {cosine}")).into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(vectors: &[[f32; 2]], files: &[PathBuf]) -> Vec<Row> {
        let of = |(at, vector): (usize, &[f32; 2])| Row {
            id: files[at % files.len()].display().to_string(),
            vector: vector.to_vec(),
        };
        vectors.iter().enumerate().map(of).collect()
    }

    #[test]
    fn work_that_was_not_done_is_noticed() {
        let files = [PathBuf::from("a"), PathBuf::from("b")];
        let good = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]];
        assert!(check_rows(&rows(&good, &files), &files, 3).is_ok());
        let reason = |vectors: &[[f32; 2]]| check_rows(&rows(vectors, &files), &files, 3).unwrap_err().to_string();
        assert!(reason(&good[..2]).contains("2 rows of 3"));
        assert!(reason(&[good[0], good[1], good[1]]).contains("row 2 is not the vector"));
        assert!(reason(&[good[0], [0.0; 2], good[0]]).contains("row 1"));
        assert!(reason(&[good[0], [f32::NAN; 2], good[0]]).contains("row 1"));
        let swapped = rows(&good, &[files[1].clone(), files[0].clone()]);
        assert!(check_rows(&swapped, &files, 3).unwrap_err().to_string().contains("another photo"));
    }

    #[test]
    fn what_a_machine_lacks_is_no_defect() {
        let backends = Arc::new(Backends::compiled());
        let run = |words: &str| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            let error = Cell::parse(&words, &backends).and_then(|cell| cell.run()).unwrap_err();
            refusal(&*error)["outcome"].as_str().unwrap().to_owned()
        };
        assert_eq!(run("--decoder nothing"), "unavailable");
        assert_eq!(run("--encoder fused --dtype f16 --model seeded:dinov2-small"), "unavailable");
        assert_eq!(run("--model seeded:nothing"), "failed");
        assert_eq!(run("--colour red"), "failed");
    }
}
