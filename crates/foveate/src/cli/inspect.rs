//! `foveate inspect`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, bail};
use foveate::core::error_chain;
use foveate::embed::{Backends, Settings, store_address};
use foveate::sink::{
    Layout, OutputManifest, OutputNames, RunManifest, SinkError, SinkOptions, StoredFailure, StoredRun, StoredState,
    VectorReader, record_of, sidecar,
};
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_128;

use super::args::InspectArgs;
use super::exit::{Exit, Usage};
use super::foreign::{may_have_vectors, read_ids, read_vectors};
use super::summary::human_bytes;
use super::{console, pack, remedy};

/// Rows that the sample shows.
const SAMPLE: usize = 3;
/// Components that each of them shows.
const COMPONENTS: usize = 4;
/// Reasons of failures that the table shows.
const REASONS: usize = 5;
/// Reasons that are counted one by one.
const MOST_REASONS: usize = 10_000;
/// Times that an unfinished output is read.
const ATTEMPTS: usize = 3;
const WAIT: Duration = Duration::from_millis(200);

/// Checks that a file or a folder of the output exists.
pub(crate) fn check(args: &InspectArgs) -> anyhow::Result<()> {
    let output = &args.output;
    let name = output.display();
    if store_address(output).is_some()
        || output.exists()
        || OutputNames::new(&SinkOptions::new(output)).staging().exists()
    {
        return Ok(());
    }
    let failures = OutputNames::new(&SinkOptions::new(output)).beside("failures.csv");
    if failures.exists() {
        bail!("cannot inspect {name}: every input failed; the reasons are in {}", failures.display());
    }
    bail!("cannot inspect {name}: there is no such output; check the path")
}

pub(crate) fn run(args: &InspectArgs) -> anyhow::Result<Exit> {
    if let Some(shards) = StoredRun::packed(&args.output).map_err(remedied)? {
        return packed(args, &shards);
    }
    let backends = Backends::compiled();
    if is_foreign(&args.output, &backends)? {
        return foreign(args);
    }
    let mut attempts = 1..ATTEMPTS;
    let (output, inspection) = loop {
        let mut output = find(args, &backends)?;
        match Inspection::new(args, &mut output.runs, &backends) {
            // A job that is about to finish moves its files.
            Err(_) if output.state() == "unfinished" && attempts.next().is_some() => thread::sleep(WAIT),
            inspection => break (output, inspection?),
        }
    };
    match args.json {
        true => writeln!(console::stdout(), "{}", inspection.json(args, &output))?,
        false => write!(console::stdout(), "{}", inspection.text(args, &output))?,
    }
    Ok(Exit::Complete)
}

/// Returns true for another program's file of vectors.
fn is_foreign(path: &Path, backends: &Backends) -> anyhow::Result<bool> {
    let is_candidate = path.is_file() && may_have_vectors(path) && !sidecar(path, "ids.csv").exists();
    if !is_candidate || !StoredRun::find(path).map_err(remedied)?.is_empty() {
        return Ok(false);
    }
    let reader = backends.sink_of_extension(path).and_then(|sink| sink.reader());
    Ok(reader.map(|reader| StoredRun::alone(path, reader).map_err(remedied)).transpose()?.flatten().is_none())
}

/// Shows another program's file of vectors.
fn foreign(args: &InspectArgs) -> anyhow::Result<Exit> {
    if args.check {
        return Err(
            Usage::from(anyhow!("cannot check {}: it has no record of its files", args.output.display())).into()
        );
    }
    let mut given = Vec::new();
    for path in &args.foreign.ids {
        given.extend(read_ids(path, None)?);
    }
    let mut found = Inspection::default();
    let mut dims: BTreeMap<usize, u64> = BTreeMap::new();
    let source = read_vectors(&args.output, &args.foreign, &mut |own, vector| {
        let number = found.rows as usize;
        let id = given.get(number).map(String::as_str).or(own).map_or_else(|| number.to_string(), str::to_owned);
        found.row(&id, vector, true);
        found.rows += 1;
        *dims.entry(vector.len()).or_default() += 1;
        Ok(())
    })?;
    let without = dims.remove(&0).unwrap_or(0);
    let widths: Vec<String> = dims.keys().map(usize::to_string).collect();
    let output = args.output.display();
    let bytes = fs::metadata(&args.output)?.len();
    if args.json {
        let mut object = found.vectors_json();
        object["output"] = json!(output.to_string());
        object["made_by"] = json!("another program");
        object["dims"] = json!(dims.keys().collect::<Vec<_>>());
        object["ids"] = json!(source.to_string());
        object["rows_without_vector"] = json!(without);
        object["repeated_ids"] = json!(found.repeated.0);
        object["bytes"] = json!(bytes);
        writeln!(console::stdout(), "{object}")?;
        return Ok(Exit::Complete);
    }
    let mut out = console::stdout();
    writeln!(out, "output      {output}: vectors of another program, {}", human_bytes(bytes))?;
    writeln!(out, "vectors     {} rows of {} components", found.rows, widths.join(" or "))?;
    writeln!(out, "ids         {source}")?;
    if let (count, Some(id)) = &found.repeated {
        writeln!(out, "            {count} rows have an id that was there before, such as {id}")?;
    }
    if without > 0 {
        writeln!(out, "empty       {without} rows have no vector")?;
    }
    write!(out, "{}", found.vectors_text(dims.keys().next_back().copied().unwrap_or(0)))?;
    Ok(Exit::Complete)
}

/// Shows a folder of shards.
fn packed(args: &InspectArgs, found: &StoredRun) -> anyhow::Result<Exit> {
    let OutputManifest { format, rows: members, failures, parts: shards, complete, .. } = &found.manifest;
    if args.check {
        found.check().map_err(|error| anyhow!("{}; pack it again with `pack --overwrite`", error_chain(&error)))?;
    }
    let bytes: u64 = shards.iter().flat_map(|shard| &shard.files).map(|file| file.bytes).sum();
    let output = args.output.display();
    let count = shards.len();
    let state = if *complete { "complete" } else { "unfinished" };
    let embed = pack::embed_command(&args.output, format);
    if args.json {
        let object = json!({
            "output": output.to_string(),
            "made_by": "pack",
            "format": format,
            "state": state,
            "shards": count,
            "bytes": bytes,
            "images": members,
            "failures": failures,
            "embed": embed,
            "checked": args.check,
        });
        writeln!(console::stdout(), "{object}")?;
        return Ok(Exit::Complete);
    }
    let mut out = console::stdout();
    writeln!(out, "output      {output}: {count} {format} shards of `foveate pack`, {}", human_bytes(bytes))?;
    let more = if *complete { "" } else { "; repeat the command that packs them" };
    writeln!(out, "state       {state}{more}")?;
    let inputs = members + failures;
    writeln!(out, "inputs      {inputs} = {members} images + {failures} failures")?;
    writeln!(out, "embed       {embed}")?;
    if args.check {
        writeln!(out, "check       every file is as it was recorded")?;
    }
    Ok(Exit::Complete)
}

/// The runs of an output.
struct Found {
    runs: Vec<StoredRun>,
    /// Number of runs that make up the output.
    shards: usize,
}

fn find(args: &InspectArgs, backends: &Backends) -> anyhow::Result<Found> {
    let output = &args.output;
    let mut options = Settings::new(Vec::new(), "", output);
    options.inputs.store_option = args.store_option.clone();
    let mut runs = match options.prefix().map_err(|error| Usage::from(anyhow!(error)))? {
        Some(prefix) => StoredRun::find_below(&prefix).map_err(remedied)?,
        None => StoredRun::find(output).map_err(remedied)?,
    };
    if runs.is_empty() && output.is_file() {
        let reader = backends.sink_of_extension(output).and_then(|sink| sink.reader());
        let alone = reader.map(|reader| StoredRun::alone(output, reader).map_err(remedied)).transpose()?;
        runs.extend(alone.flatten());
    }
    if runs.is_empty() {
        let why = no_manifest(output);
        return Err(Usage::from(anyhow!("cannot inspect {}: {why}", output.display())).into());
    }
    let shards = runs[0].manifest.fingerprint.get("sink.shard").and_then(|shard| shard.split_once('/')?.1.parse().ok());
    let shards = shards.filter(|_| Layout::of(output) == Layout::Folder).unwrap_or(1);
    Ok(Found { runs, shards })
}

/// Says what is missing at a path without a manifest, and how it is brought back.
pub(super) fn no_manifest(path: &Path) -> String {
    match path.is_file() {
        true => format!("it has no manifest of foveate: {}; or name what `embed -o` wrote", missing_records(path)),
        false => "it has no manifest of foveate; name what `embed -o` wrote".to_owned(),
    }
}

/// Says which records a file of vectors lacks, and how they are named.
pub(super) fn missing_records(path: &Path) -> String {
    let manifest = record_of(path, "manifest.json");
    let name = path.file_name().unwrap_or_default().display();
    format!(
        "{} is missing; if it was copied or renamed, do the same with the other files \
         of its output, whose names become _{name}.* and {name}.*",
        manifest.display()
    )
}

/// Adds the remedy.
pub(crate) fn remedied(error: SinkError) -> anyhow::Error {
    let remedy = match &error {
        SinkError::OtherCommand { .. } => return Usage::from(anyhow!("{error}; name another output")).into(),
        SinkError::Damaged { .. } => "restore it from a copy, or write it anew with `embed --overwrite`",
        SinkError::Updating(_) => "repeat the command that writes it, which puts the rest in place",
        SinkError::Missing { .. } => remedy::TOGETHER,
        SinkError::Unsupported(_) => "inspect it with the version of foveate that wrote it",
        _ => "restore the file, or run with read access",
    };
    anyhow!("{}; {remedy}", error_chain(&error))
}

/// Sums over the rows and failures of an output.
#[derive(Default)]
struct Inspection {
    /// The settings that all runs of the output share.
    common: RunManifest,
    rows: u64,
    failures: u64,
    /// Number of failures by stage and reason.
    reasons: BTreeMap<(String, String), u64>,
    norms: Norms,
    not_finite: u64,
    zero: u64,
    sample: Vec<(String, Vec<f32>)>,
    /// Hashes of the ids, if the output is checked.
    ids: HashSet<u128>,
    /// Number of outcomes whose id came before, and the first such id.
    repeated: (u64, Option<String>),
}

impl Inspection {
    fn new(args: &InspectArgs, runs: &mut [StoredRun], backends: &Backends) -> anyhow::Result<Self> {
        let mut found = Self { common: common(runs), ..Self::default() };
        for run in runs {
            if args.check && run.state == StoredState::Alone {
                bail!("cannot check {}: {}", args.output.display(), missing_records(&args.output));
            }
            let reader = reader(run, backends)?;
            found.add(run, reader, args.check).map_err(remedied)?;
        }
        Ok(found)
    }

    fn add(&mut self, run: &mut StoredRun, reader: &dyn VectorReader, check: bool) -> Result<(), SinkError> {
        if check {
            run.check()?;
        }
        let read_rows = if check { StoredRun::checked_rows } else { StoredRun::rows };
        let rows = read_rows(run, reader, &mut |row| {
            self.row(row.id, row.vector, check);
            Ok(())
        })?;
        self.rows += rows;
        self.failures += run.manifest.failures;
        for failure in run.failures()? {
            self.failure(failure?, check);
        }
        Ok(())
    }

    fn row(&mut self, id: &str, vector: &[f32], check: bool) {
        self.id(id, check);
        if self.sample.len() < SAMPLE {
            self.sample.push((id.to_owned(), vector.iter().copied().take(COMPONENTS).collect()));
        }
        if vector.iter().any(|component| !component.is_finite()) {
            self.not_finite += 1;
            return;
        }
        let norm = vector.iter().map(|&component| f64::from(component).powi(2)).sum::<f64>().sqrt();
        self.zero += u64::from(norm == 0.0);
        self.norms.add(norm);
    }

    fn failure(&mut self, StoredFailure { id, stage, reason, .. }: StoredFailure, check: bool) {
        self.id(&id, check);
        let key = (stage, reason);
        if self.reasons.len() < MOST_REASONS || self.reasons.contains_key(&key) {
            *self.reasons.entry(key).or_default() += 1;
        }
    }

    fn id(&mut self, id: &str, check: bool) {
        if check && !self.ids.insert(xxh3_128(id.as_bytes())) {
            self.repeated.1.get_or_insert_with(|| id.to_owned());
            self.repeated.0 += 1;
        }
    }

    /// Returns the reasons with their counts, the most frequent first.
    fn reasons(&self) -> Vec<(&str, &str, u64)> {
        let mut reasons: Vec<_> = self.reasons.iter().map(|((stage, reason), &n)| (&**stage, &**reason, n)).collect();
        reasons.sort_by_key(|&(.., count)| Reverse(count));
        reasons
    }

    fn setting(&self, name: &str) -> &str {
        self.common.fingerprint.get(name).map_or("(unknown)", String::as_str)
    }

    fn text(&self, args: &InspectArgs, output: &Found) -> String {
        let mut out = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(out, "{name:<11} {value}");
        };
        let files = output.files();
        let count = files.len();
        let bytes = human_bytes(files.iter().map(|(_, bytes)| bytes).sum());
        line("output", format!("{}: {}, {count} files, {bytes}", args.output.display(), self.setting("sink.format")));
        line("state", output.state_text(&args.output));
        if let Some(settled) = output.settled() {
            line("inputs", format!("{settled} = {} vectors + {} failures", self.rows, self.failures));
        }
        let element = self.setting("sink.element");
        line("vectors", format!("{} rows of {} components, {element}", self.rows, self.common.dim));
        let digest: String = self.setting("weights_sha256").chars().take(16).collect();
        line("model", format!("{}, weights {digest}", self.setting("model")));
        let [recipe, pooling] = ["recipe", "pooling"].map(|name| self.setting(name));
        let [normalize, dtype] = ["normalize", "dtype"].map(|name| self.setting(name));
        line("recipe", format!("{recipe}, pooling {pooling}, normalize {normalize}, dtype {dtype}"));
        line("backends", ["decoder", "resizer", "encoder"].map(|stage| self.setting(stage)).join(" → "));
        let settings = self.common.fingerprint.len();
        line("fingerprint", format!("{} of {settings} settings, which --json lists", self.common.digest()));
        if let Some(rows) = self.common.info.get(RunManifest::RETRIED) {
            line("retried", rows.clone());
        }
        let reasons = self.reasons();
        for (number, (stage, reason, count)) in reasons.iter().take(REASONS).enumerate() {
            line(if number == 0 { "failures" } else { "" }, format!("{count} {stage}: {reason}"));
        }
        let shown: u64 = reasons.iter().take(REASONS).map(|&(.., count)| count).sum();
        if self.failures > shown {
            line("", format!("{} others", self.failures - shown));
        }
        out.push_str(&self.vectors_text(self.common.dim));
        if args.check {
            out.push_str("check       every file is as it was recorded, and every input has one outcome\n");
            if let (count, Some(id)) = &self.repeated {
                let _ = writeln!(out, "            {count} outcomes are of ids that were listed before, such as {id}");
            }
        }
        out
    }

    /// The lines about any vectors.
    fn vectors_text(&self, dim: usize) -> String {
        let mut out = String::new();
        if let Some([least, median, most]) = self.norms.summary() {
            let _ = writeln!(out, "norms       least {least:.4}, median {median:.4}, most {most:.4}");
        }
        let _ = writeln!(out, "not finite  {} rows", self.not_finite);
        let _ = writeln!(out, "zero        {} rows", self.zero);
        for (number, (id, components)) in self.sample.iter().enumerate() {
            let components: Vec<_> = components.iter().map(|component| format!("{component:.4}")).collect();
            let dots = if dim > COMPONENTS { " …" } else { "" };
            let name = if number == 0 { "sample" } else { "" };
            let _ = writeln!(out, "{name:<11} {id}: {}{dots}", components.join(" "));
        }
        out
    }

    fn vectors_json(&self) -> Value {
        let sample = self.sample.iter().map(|(id, components)| json!({ "id": id, "components": components }));
        json!({
            "rows": self.rows,
            "norms": self.norms.summary().map(|[least, median, most]| {
                json!({ "least": least, "median": median, "most": most })
            }),
            "not_finite_rows": self.not_finite,
            "zero_rows": self.zero,
            "sample": sample.collect::<Vec<_>>(),
        })
    }

    fn json(&self, args: &InspectArgs, output: &Found) -> Value {
        let files = output.files();
        let setting = |name: &str| self.common.fingerprint.get(name);
        let reason = |(stage, reason, count)| json!({ "stage": stage, "reason": reason, "count": count });
        let settled = output.settled();
        let mut object = self.vectors_json();
        let others = json!({
            "output": args.output.display().to_string(),
            "format": setting("sink.format"),
            "files": files.iter().map(|(path, bytes)| json!({ "path": path.display().to_string(), "bytes": bytes }))
                .collect::<Vec<_>>(),
            "bytes": files.iter().map(|(_, bytes)| bytes).sum::<u64>(),
            "state": output.state(),
            "runs": output.runs.len(),
            "shards": output.shards,
            "inputs": output.inputs(),
            "settled": settled,
            "dim": self.common.dim,
            "element": setting("sink.element"),
            "model": setting("model"),
            "weights_sha256": setting("weights_sha256"),
            "recipe": setting("recipe"),
            "pooling": setting("pooling"),
            "normalize": setting("normalize"),
            "dtype": setting("dtype"),
            "decoder": setting("decoder"),
            "resizer": setting("resizer"),
            "encoder": setting("encoder"),
            "fingerprint": self.common.digest(),
            "settings": self.common.fingerprint,
            "retried": self.common.info.get(RunManifest::RETRIED),
            "failures": settled.map(|_| self.failures),
            "failure_reasons": self.reasons().into_iter().map(reason).collect::<Vec<_>>(),
            "checked": args.check,
            "repeated_ids": args.check.then_some(self.repeated.0),
        });
        if let (Value::Object(object), Value::Object(others)) = (&mut object, others) {
            object.extend(others);
        }
        object
    }
}

/// Returns what all runs have in common.
pub(crate) fn common(runs: &[StoredRun]) -> RunManifest {
    let Some((first, others)) = runs.split_first() else { return RunManifest::default() };
    let mut common = first.manifest.clone().run();
    common.fingerprint.retain(|name, value| others.iter().all(|run| run.manifest.fingerprint.get(name) == Some(value)));
    common.info.retain(|name, value| others.iter().all(|run| run.manifest.info.get(name) == Some(value)));
    common
}

pub(crate) fn reader<'a>(run: &StoredRun, backends: &'a Backends) -> anyhow::Result<&'a dyn VectorReader> {
    let sink = backends.sinks.get(&run.manifest.format)?;
    sink.reader().ok_or_else(|| anyhow!("sink {} has no reader; inspect its files another way", run.manifest.format))
}

impl Found {
    fn files(&self) -> Vec<(PathBuf, u64)> {
        self.runs.iter().flat_map(StoredRun::files).collect()
    }

    fn count(&self, state: StoredState) -> usize {
        self.runs.iter().filter(|run| run.state == state).count()
    }

    fn state(&self) -> &'static str {
        match (self.count(StoredState::Alone), self.count(StoredState::Complete)) {
            (1.., _) => "alone",
            (_, complete) if complete < self.shards => "unfinished",
            _ => "complete",
        }
    }

    fn state_text(&self, path: &Path) -> String {
        let state = self.state();
        let inputs = self.inputs().filter(|_| state == "unfinished");
        let inputs = inputs.map_or_else(String::new, |inputs| format!(" of {inputs}"));
        let state = match self.settled() {
            Some(settled) => format!("{state}, {settled}{inputs} inputs settled"),
            None => format!("{state}, and its failures are not known: {}", missing_records(path)),
        };
        match self.shards {
            1 => state,
            shards => format!("{state}, {} of {shards} shards complete", self.count(StoredState::Complete)),
        }
    }

    /// Returns the number of inputs with an outcome; `None` if it was not recorded.
    fn settled(&self) -> Option<u64> {
        let outcomes = self.runs.iter().map(|run| run.manifest.rows + run.manifest.failures);
        (self.state() != "alone").then(|| outcomes.sum())
    }

    /// Returns the number of all inputs, if it is known: containers' images are counted as they are read.
    fn inputs(&self) -> Option<u64> {
        if self.runs.len() < self.shards {
            return None;
        }
        let mut inputs = 0;
        for StoredRun { manifest, state, .. } in &self.runs {
            if *state == StoredState::Complete {
                inputs += manifest.rows + manifest.failures;
            } else {
                let (start, end) = manifest.fingerprint.get(RunManifest::ITEMS)?.split_once("..")?;
                inputs += end.parse::<u64>().ok()?.checked_sub(start.parse().ok()?)?;
            }
        }
        Some(inputs)
    }
}

/// Norms, in bounded memory: a histogram with 2¹³ buckets for each power of two, so that the median is within 0.01 %.
#[derive(Default)]
struct Norms {
    /// Number of norms by the highest bits of their representation, which are in the order of the values.
    buckets: BTreeMap<u64, u64>,
    count: u64,
    /// Least and most.
    ends: Option<(f64, f64)>,
}

impl Norms {
    const DROPPED: u32 = f64::MANTISSA_DIGITS - 1 - 13;

    fn add(&mut self, norm: f64) {
        *self.buckets.entry(norm.to_bits() >> Self::DROPPED).or_default() += 1;
        self.count += 1;
        let (least, most) = self.ends.unwrap_or((norm, norm));
        self.ends = Some((least.min(norm), most.max(norm)));
    }

    /// Returns the least, the median and the most.
    fn summary(&self) -> Option<[f64; 3]> {
        let (least, most) = self.ends?;
        let mut below = 0;
        let middle = self.buckets.iter().find_map(|(bits, count)| {
            below += count;
            (2 * below >= self.count).then_some(*bits)
        })?;
        let middle = f64::from_bits((middle << Self::DROPPED) + (1 << (Self::DROPPED - 1)));
        Some([least, middle.clamp(least, most), most])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_norms_is_near() {
        let mut norms = Norms::default();
        assert_eq!(norms.summary(), None);
        (0..=1000).for_each(|n| norms.add(f64::from(n) / 7.0));
        let [least, median, most] = norms.summary().unwrap();
        assert_eq!((least, most), (0.0, 1000.0 / 7.0));
        assert!((median / (500.0 / 7.0) - 1.0).abs() < 1e-4, "{median}");
        let mut same = Norms::default();
        (0..9).for_each(|_| same.add(1.1));
        assert_eq!(same.summary(), Some([1.1; 3]));
    }
}
