//! `foveate embed --dry-run`: what a run would do, and how long it would take.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use foveate::backends;
use foveate::core::Backend;
use foveate::embed::{EmbedRun, OutputPlace, Settings, has_cpu};
use foveate::pipeline::{Cancel, RunError, RunReport};
use foveate::sink::{Element, RunManifest};
use foveate::source::container::{ContainerRegistry, format_of};
use foveate::source::{Extent, FileFetch, Item, Listing, ListingStats, Source, SourceError};
use serde_json::{Value, json};

use super::job;
use super::summary::{self, human_bytes, human_duration, number};

/// Number of inputs by kind: the extension in lower case, or why there is none.
type Kinds = BTreeMap<String, u64>;

/// Everything that a run would do.
pub(crate) struct DryRun {
    kinds: Kinds,
    listed: ListingStats,
    inputs: Extent,
    manifest: RunManifest,
    seeded: bool,
    found: OutputPlace,
    /// `None` if nothing is left to do.
    measured: Option<RunReport>,
}

/// Counts the inputs by kind, and goes back to the first. Containers are counted, not opened.
pub(crate) fn kinds(listing: &mut Listing) -> Result<Kinds, SourceError> {
    let mut kinds = Kinds::new();
    let containers = backends::containers();
    listing.each_input(&mut |item, _| *kinds.entry(kind(&item, &containers)).or_default() += 1)?;
    Ok(kinds)
}

fn kind(item: &Item, containers: &ContainerRegistry) -> String {
    if item.fault.is_some() {
        return "unreadable".to_owned();
    }
    if item.id == "-" {
        return "standard input".to_owned();
    }
    if let Some(format) = format_of(containers, &item.locator) {
        return format.name().to_owned();
    }
    let path = FileFetch::path(item);
    match path.extension().map(|extension| extension.to_string_lossy().to_lowercase()).as_deref() {
        Some("jpeg" | "jpe" | "jfif") => "jpg".to_owned(),
        Some(extension) => extension.to_owned(),
        None => "without extension".to_owned(),
    }
}

impl DryRun {
    /// Looks at the output's place, and measures a sample.
    pub(crate) fn new(
        kinds: Kinds,
        listed: ListingStats,
        mut job: EmbedRun,
        options: &Settings,
        cancel: &Cancel,
    ) -> Result<Self, RunError> {
        let found = job.found()?;
        let inputs = job.inputs();
        let manifest = job.manifest().clone();
        let seeded = job.is_seeded();
        let size = 2 * options.engine.batch as u64;
        let measured = (found != OutputPlace::Complete).then(|| measure(job, size, cancel)).transpose()?;
        Ok(Self { kinds, listed, inputs, manifest, seeded, found, measured })
    }

    /// Returns the number of inputs; `None` if there are containers, whose members a run counts.
    fn total(&self) -> Option<u64> {
        self.inputs.count()
    }

    /// Returns the number of inputs that the run would still embed, if it is known.
    fn left(&self) -> Option<u64> {
        match self.found {
            OutputPlace::Unfinished(next) => self.inputs.end.map(|end| end.saturating_sub(next)),
            OutputPlace::Complete => Some(0),
            _ => self.total(),
        }
    }

    /// Returns the sample that was measured, and the time that the run would take if the number of inputs is known.
    fn estimate(&self) -> Option<(Option<f64>, &RunReport)> {
        let sample = self.measured.as_ref().filter(|sample| sample.throughput() > 0.0)?;
        Some((self.left().map(|left| left as f64 / sample.throughput()), sample))
    }

    /// Returns the bytes of all vectors, without ids.
    fn vector_bytes(&self, element: Element) -> Option<u64> {
        let component = match element {
            Element::F32 => 4,
            Element::F16 => 2,
        };
        Some(self.total()? * self.manifest.dim as u64 * component)
    }

    fn chosen(&self, name: &str) -> &str {
        self.manifest.fingerprint.get(name).map_or("", String::as_str)
    }

    fn state(&self) -> &'static str {
        match self.found {
            OutputPlace::Unfinished(_) => "unfinished",
            OutputPlace::Complete => "complete",
            OutputPlace::Replaced => "replaced",
            _ => "new",
        }
    }

    /// Describes the output's place.
    fn resume(&self) -> String {
        match self.found {
            OutputPlace::Unfinished(next) => {
                let done = next.saturating_sub(self.inputs.start);
                format!("continues an interrupted run after {done} of {} inputs", number(self.total()))
            }
            OutputPlace::Complete => "already complete; nothing would be done".to_owned(),
            OutputPlace::Replaced => "an existing output or interrupted run would be replaced".to_owned(),
            _ => "new".to_owned(),
        }
    }

    pub(crate) fn text(&self, options: &Settings) -> String {
        let mut out = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(out, "{name:<9} {value}");
        };
        let kinds: Vec<_> = self.kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let inputs = match self.total() {
            Some(total) => format!("{total}: {}", kinds.join(", ")),
            None => format!("{}; the images in containers are counted as they are read", kinds.join(", ")),
        };
        line("inputs", inputs);
        if let Some(left_out) = job::left_out(&self.listed) {
            line("", left_out);
        }
        let note = if self.seeded { ", generated weights" } else { "" };
        line("model", format!("{}: {} components{note}", options.model.network.model, self.manifest.dim));
        let chain = ["decoder", "resizer", "encoder"].map(|stage| self.chosen(stage)).join(" → ");
        let recipe = self.chosen("recipe");
        let dtype = self.chosen("dtype");
        line("backends", format!("{chain} on {} in {dtype}, recipe {recipe}", options.engine.device));
        line("threads", threads(options));
        let vectors =
            self.vector_bytes(options.storage.out_dtype).map(|bytes| format!(", {} of vectors", human_bytes(bytes)));
        let output = options.output.display();
        line("output", format!("{output}: {}{}", self.resume(), vectors.unwrap_or_default()));
        if let Some((seconds, sample)) = self.estimate() {
            let time = seconds.map_or_else(String::new, |seconds| {
                format!("{} at ", human_duration(Duration::from_secs_f64(seconds.min(1e12))))
            });
            let rate = sample.throughput();
            let which = if seconds.is_some() { "of the inputs" } else { "images at the start" };
            line("estimate", format!("{time}{rate:.1} images/s, measured on {} {which}", sample.settled));
        }
        out
    }

    pub(crate) fn json(&self, options: &Settings) -> Value {
        json!({
            "status": "dry run",
            "inputs": self.total(),
            "kinds": self.kinds,
            "left_out": summary::left_out(&self.listed),
            "model": options.model.network.model,
            "dim": self.manifest.dim,
            "settings": self.manifest.fingerprint,
            "threads": {
                "read": options.ahead.readers,
                "decode": options.workers(),
                "forward": has_cpu(&options.engine.device).then_some(options.threads()),
            },
            "batch": options.engine.batch,
            "output": options.output.display().to_string(),
            "state": self.state(),
            "left": self.left(),
            "vector_bytes": self.vector_bytes(options.storage.out_dtype),
            "estimate": self.estimate().map(|(seconds, sample)| json!({
                "seconds": seconds,
                "images_per_second": sample.throughput(),
                "measured": sample.settled,
                "failures": sample.failures,
            })),
        })
    }
}

/// Describes the threads and batches of a job.
pub(crate) fn threads(options: &Settings) -> String {
    let workers = match options.workers() {
        0 => "every stage in turn on one thread".to_owned(),
        n => format!("{} to read, {n} to decode and resize", options.ahead.readers),
    };
    let forward = match has_cpu(&options.engine.device) {
        true => format!(", {} for the forward", options.threads()),
        false => String::new(),
    };
    format!("{workers}{forward} · batches of {}", options.engine.batch)
}

/// Measures a sample, for no longer than a few seconds and the batch after them.
fn measure(job: EmbedRun, size: u64, cancel: &Cancel) -> Result<RunReport, RunError> {
    const LONGEST: Duration = Duration::from_secs(5);
    const LOOK_EVERY: Duration = Duration::from_millis(50);
    let stop = Cancel::default();
    let started = Instant::now();
    let (done, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || {
            while ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                if cancel.is_cancelled() || started.elapsed() > LONGEST {
                    stop.cancel();
                }
            }
        });
        let report = job.rehearse(size, stop);
        drop(done);
        report
    })
}
