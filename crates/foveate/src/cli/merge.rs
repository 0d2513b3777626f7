//! `foveate merge`.

use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use foveate::core::ColumnKind;
use foveate::embed::{
    ApartFrom, Backends, EmbedError, InputSettings, Settings, StorageSettings, decides_vectors, kernels_remedy,
    store_address,
};
use foveate::sink::{
    Element, Existing, Join, Layout, Merge, OutputNames, Published, RunManifest, SinkError, SinkOptions, StoredRun,
    StoredState, VectorReader, column_kinds, hash_file,
};
use foveate::source::container::TableColumn;
use serde_json::json;

use super::exit::{Exit, Usage};
use super::foreign::read_ids;
use super::merge_args::{MergeArgs, MergeOrder};
use super::side_table::{SideTable, read_side_table};
use super::summary::counted;
use super::tables::column;
use super::{console, inspect};

/// The command in its messages.
const MERGE: &str = "merge";

/// Collects the options of the output, before its inputs are known.
pub(crate) fn options(args: &MergeArgs) -> Settings {
    Settings {
        existing: if args.overwrite { Existing::Overwrite } else { Existing::Resume },
        storage: StorageSettings {
            out_dtype: args.out_dtype.unwrap_or_default(),
            sink: args.sink.clone(),
            sink_option: args.sink_option.clone(),
        },
        part_items: args.part_items,
        inputs: InputSettings { store_option: args.store_option.clone(), ..InputSettings::default() },
        ..Settings::new(Vec::new(), "", &args.output)
    }
}

/// Refuses an output that is or holds an input, or lies among the outputs in an input folder.
pub(crate) fn check(args: &MergeArgs) -> anyhow::Result<()> {
    check_places(&args.inputs, &args.output, MERGE)
}

/// Does the same for another command, whose name is `verb`.
pub(crate) fn check_places<'a>(
    inputs: impl IntoIterator<Item = &'a PathBuf>,
    output: &Path,
    verb: &str,
) -> anyhow::Result<()> {
    let apart = ApartFrom::new(output);
    for input in inputs {
        if store_address(input).is_none() && !input.exists() {
            let is_unfinished = OutputNames::new(&SinkOptions::new(input)).staging().exists();
            let why = match is_unfinished {
                true => "it is unfinished; repeat the command that wrote it",
                false => "there is no such output; check the path",
            };
            bail!("cannot {verb} {}: {why}", input.display());
        }
        apart.check(input).map_err(anyhow::Error::msg)?;
        if apart.lies_in(input) {
            bail!("cannot write {} where {} is; name another place", output.display(), input.display());
        }
    }
    Ok(())
}

pub(crate) fn run(args: &MergeArgs) -> anyhow::Result<Exit> {
    let backends = Backends::compiled();
    let mut options = options(args);
    let found =
        args.inputs.iter().map(|input| find(input, &options, &backends, MERGE)).collect::<anyhow::Result<Vec<_>>>()?;
    let (names, runs): (Vec<_>, Vec<_>) = found.into_iter().flatten().unzip();
    check_same_job(&names, &runs, MERGE, |name| {
        decides_vectors(name) || ["sink.columns", "sink.column_kinds"].contains(&name)
    })?;
    options.storage.out_dtype = element(args, &names, &runs)?;
    let columns = runs[0].manifest.fingerprint.get("sink.columns");
    options.rows.columns = columns.map_or_else(Vec::new, |names| names.split(',').map(str::to_owned).collect());
    let mut kinds = column_kinds(&runs[0].manifest.fingerprint);
    let table = args.join.as_deref().map(|path| join_table(path, args)).transpose()?;
    for column in table.iter().flat_map(|table| &table.columns) {
        options.rows.columns.push(column.name.clone());
        if column.kind != ColumnKind::Text {
            kinds.insert(column.name.clone(), column.kind);
        }
    }
    options.check_output(&backends).map_err(|error| Usage::from(anyhow!(error)))?;

    let readers = runs.iter().map(|run| inspect::reader(run, &backends));
    let readers: Vec<&dyn VectorReader> = readers.collect::<anyhow::Result<_>>()?;
    let mut merge = Merge::new(&runs, &readers)?;
    let chosen = choose(args, &merge)?;
    let left_out = chosen.as_ref().map_or(0, |chosen| chosen.left_out);
    if let Some(chosen) = chosen {
        merge.choose(chosen.numbers);
    }
    let (sink, mut sink_options) = options.sink_and_options(&backends)?;
    sink_options.column_kinds = kinds;
    let mut manifest = manifest(args, &runs, &merge);
    let mut unmatched = None;
    if let (Some(table), Some(path)) = (&table, &args.join) {
        unmatched = Some(check_join(&merge, table, path)?);
        let digest = format!("{} by {}", hash_file(path)?, table.key);
        manifest.fingerprint.insert("joined".to_owned(), digest);
    }
    let join = table.as_ref().map(|table| {
        |id: &str, values: &mut Vec<Option<String>>| match table.row(id) {
            Some((_, row)) => values.extend_from_slice(row),
            None => values.resize(values.len() + table.columns.len(), None),
        }
    });
    let join = join.as_ref().map(|join| join as &Join<'_>);
    let written = merge.run(sink, &sink_options, &manifest, options.existing, join);
    let (published, is_new) = match written {
        Ok(published) => (published, true),
        Err(SinkError::AlreadyComplete(done)) => (done.published, false),
        Err(error) => return Err(EmbedError::from(error).into()),
    };
    tell(args, &runs, &merge, &published, &MergeCounts { is_new, left_out, unmatched: unmatched.filter(|_| is_new) })
}

/// Counts of a merge besides the copied rows.
struct MergeCounts {
    is_new: bool,
    /// Rows and failures that `--ids-from` does not name.
    left_out: u64,
    /// Images without a row in the joined table.
    unmatched: Option<u64>,
}

/// The rows and failures of a merge, in the order in which it takes them.
struct MergeChoice {
    numbers: Vec<u64>,
    left_out: u64,
}

/// Chooses what `--ids-from` names, in the order of `--order`; `None` for all, as they come.
fn choose(args: &MergeArgs, merge: &Merge<'_>) -> anyhow::Result<Option<MergeChoice>> {
    if args.ids_from.is_empty() && args.order == MergeOrder::List {
        return Err(Usage::from(anyhow!("--order list needs a list: --ids-from names it")).into());
    }
    if args.ids_from.is_empty() && args.order == MergeOrder::Inputs {
        return Ok(None);
    }
    let mut wanted: HashMap<String, u64> = HashMap::new();
    for path in &args.ids_from {
        for id in read_ids(path, None)? {
            let place = wanted.len() as u64;
            wanted.entry(id).or_insert(place);
        }
    }
    let mut found: Vec<(u64, u64, String)> = Vec::new();
    let mut left_out = 0;
    let mut an_id = String::new();
    merge.each_candidate(&mut |candidate| {
        let place = wanted.get(candidate.id).copied();
        if place.is_none() && !args.ids_from.is_empty() {
            candidate.id.clone_into(&mut an_id);
            left_out += 1;
            return;
        }
        let id = if args.order == MergeOrder::Id { candidate.id.to_owned() } else { String::new() };
        found.push((place.unwrap_or(0), candidate.number, id));
    })?;
    if let Some(missing) = (wanted.len() as u64).checked_sub(found.len() as u64).filter(|&missing| missing > 0) {
        let of = counted(wanted.len() as u64, "id");
        if found.is_empty() {
            let one = wanted.keys().min().cloned().unwrap_or_default();
            let why =
                format!("none of the {of} is there: they are such as '{one}', and the outputs' such as '{an_id}'");
            return Err(Usage::from(anyhow!("cannot take what --ids-from names: {why}")).into());
        }
        console::say!("warning: {missing} of {of} in --ids-from are in none of the outputs");
    }
    match args.order {
        MergeOrder::Inputs => {}
        MergeOrder::Id => found.sort_by(|a, b| a.2.cmp(&b.2)),
        MergeOrder::List => found.sort_by_key(|&(place, ..)| place),
    }
    Ok(Some(MergeChoice { numbers: found.into_iter().map(|(_, number, _)| number).collect(), left_out }))
}

/// Reads the table of `--join`.
fn join_table(path: &Path, args: &MergeArgs) -> Result<SideTable, Usage> {
    let table = read_side_table(path, args.on.as_deref(), "join", &mut |columns| match args.columns.as_slice() {
        [] => Ok((0..columns.len()).collect()),
        names => names.iter().map(|name| column(columns, name)).collect(),
    })?;
    for TableColumn { name, .. } in &table.columns {
        let why = match name.as_str() {
            "id" | "embedding" | "width" | "height" | "xxh3" => "every output has one of that name",
            name if name.contains([',', '=']) => "its name has a comma or an equals sign",
            _ => continue,
        };
        let path = path.display();
        let remedy = "take others with --columns, or rename it";
        return Err(anyhow!("cannot join {path}: column '{name}': {why}; {remedy}").into());
    }
    Ok(table)
}

/// Counts the images without a row in the joined table, and refuses a table that has none of any image.
fn check_join(merge: &Merge<'_>, table: &SideTable, path: &Path) -> anyhow::Result<u64> {
    let mut ids = Vec::new();
    merge.each_candidate(&mut |candidate| {
        if candidate.is_row {
            ids.push(candidate.id.to_owned());
        }
    })?;
    let matches = table.matches(ids.iter().map(String::as_str));
    table.check(path, &matches, ids.first().map(String::as_str))?;
    console::say!("note: {}", table.tell("row", &matches));
    Ok((matches.images - matches.matched()) as u64)
}

/// Finds the runs of an output, each with a name for messages, in order. `verb` is the command.
pub(crate) fn find(
    input: &Path,
    options: &Settings,
    backends: &Backends,
    verb: &str,
) -> anyhow::Result<Vec<(String, StoredRun)>> {
    let usage = |why: String| Usage::from(anyhow!("cannot {verb} {}: {why}", input.display())).into();
    let place = Settings { output: input.to_owned(), ..options.clone() };
    let found = match place.prefix().map_err(|error| Usage::from(anyhow!(error)))? {
        Some(prefix) => StoredRun::find_below(&prefix),
        None => StoredRun::find(input),
    };
    let found = found.with_context(|| format!("cannot {verb} {}", input.display()))?;
    let mut runs: Vec<_> = found.into_iter().map(|run| (input.display().to_string(), run)).collect();
    if runs.is_empty() && input.is_dir() {
        runs = segments(input, backends, verb)?;
    }
    if runs.is_empty() {
        return Err(usage(inspect::no_manifest(input)));
    }
    if let Some((name, run)) = runs.iter().find(|(_, run)| run.state != StoredState::Complete) {
        let shard = shard(run).map_or_else(String::new, |(index, count)| format!(" (shard {index}/{count})"));
        return Err(usage(format!("{name}{shard} is unfinished; repeat the command that wrote it")));
    }
    let sharded: Vec<_> = runs.iter().filter_map(|(_, run)| shard(run)).collect();
    let shards: BTreeSet<_> = sharded.iter().copied().collect();
    let count = shards.first().map_or(0, |&(_, count)| count);
    if sharded.len() > shards.len() || shards.iter().any(|&(_, other)| other != count) {
        return Err(usage("it holds shards of several runs; name the files of each".to_owned()));
    }
    if Layout::of(input) == Layout::Folder
        && let Some(missing) = (0..count).find(|&index| !shards.contains(&(index, count)))
    {
        return Err(usage(format!("shard {missing}/{count} is missing; embed it with --shard {missing}/{count}")));
    }
    // Stable: segments stay in the order of their names.
    runs.sort_by_key(|(_, run)| shard(run));
    Ok(runs)
}

/// Finds the outputs of one file each in a folder, by name.
fn segments(folder: &Path, backends: &Backends, verb: &str) -> anyhow::Result<Vec<(String, StoredRun)>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<BTreeSet<_>>>()?;
    let mut found = Vec::new();
    for path in &paths {
        let unfinished = path.file_name().and_then(|name| {
            let name = name.to_str()?.strip_suffix(".partial")?;
            Some(path.with_file_name(name.trim_start_matches('_')))
        });
        if let Some(output) = unfinished.filter(|output| !output.exists()) {
            console::say!("warning: {} is unfinished and left out", output.display());
        }
        if !path.is_file() || backends.sink_of_extension(path).is_none() {
            continue;
        }
        let name = path.display().to_string();
        let runs = StoredRun::find(path).with_context(|| format!("cannot {verb} {name}"))?;
        if runs.is_empty() {
            let why = format!("{}; or take the file out of the folder", inspect::missing_records(path));
            return Err(Usage::from(anyhow!("cannot {verb} {name}: {why}")).into());
        }
        found.extend(runs.into_iter().map(|run| (name.clone(), run)));
    }
    Ok(found)
}

/// The run's shard as index and count.
fn shard(run: &StoredRun) -> Option<(u32, u32)> {
    let (index, count) = run.manifest.fingerprint.get("sink.shard")?.split_once('/')?;
    Some((index.parse().ok()?, count.parse().ok()?))
}

/// Checks that runs agree in the settings for which `matters` returns true.
pub(crate) fn check_same_job<R: Borrow<StoredRun>>(
    names: &[String],
    runs: &[R],
    verb: &str,
    matters: impl Fn(&str) -> bool,
) -> Result<(), Usage> {
    let mut first: Option<RunManifest> = None;
    let mut other = None;
    for (run, name) in runs.iter().zip(names) {
        let mut job = run.borrow().manifest.clone().run();
        job.fingerprint.retain(|name, _| matters(name));
        let difference = first.get_or_insert_with(|| job.clone()).difference(&job);
        if let Some(difference) = difference {
            other = Some((name, difference));
            break;
        }
    }
    let Some((other, difference)) = other else { return Ok(()) };
    let first = &names[0];
    let remedy =
        kernels_remedy(&difference).map_or_else(|| format!("{verb} outputs with the same settings"), str::to_owned);
    Err(anyhow!("cannot {verb} {first} and {other}: {difference}; {remedy}").into())
}

/// The type of the output's components.
fn element(args: &MergeArgs, names: &[String], runs: &[StoredRun]) -> Result<Element, Usage> {
    let of = |element: Element| runs.iter().zip(names).find(|(run, _)| run.manifest.element == element.name());
    match (args.out_dtype, of(Element::F16), of(Element::F32)) {
        (None, Some(_), None) | (Some(Element::F16), ..) => Ok(Element::F16),
        (_, None, _) => Ok(Element::F32),
        (_, Some((_, half)), _) => {
            Err(anyhow!("cannot make {half} f32: its vectors are f16 and stay so; pass --out-dtype f16").into())
        }
    }
}

/// Describes the output: as the run without shards if the runs are all of its shards, otherwise by what they share.
fn manifest(args: &MergeArgs, runs: &[StoredRun], merge: &Merge<'_>) -> RunManifest {
    let mut manifest = inspect::common(runs);
    manifest.fingerprint.retain(|name, _| !name.starts_with("sink.") && name != RunManifest::MERGED);
    let mut set = |name: &str, value| manifest.fingerprint.insert(name.to_owned(), value);
    set("shard", "none".to_owned());
    if let Some(model) = runs[0].manifest.fingerprint.get("model") {
        // The others may name the same weights otherwise.
        set("model", model.clone());
    }
    let notes: Vec<&str> =
        runs.iter().filter_map(|run| Some(run.manifest.info.get(RunManifest::RETRIED)?.as_str())).collect();
    if !notes.is_empty() {
        manifest.info.insert(RunManifest::RETRIED.to_owned(), notes.join("; "));
    }
    let takes_all = args.ids_from.is_empty() && args.order == MergeOrder::Inputs;
    match whole(runs).filter(|_| takes_all && merge.duplicates() == 0) {
        Some(items) => drop(set(RunManifest::ITEMS, items)),
        None => {
            set(RunManifest::MERGED, merge.digest());
            manifest.fingerprint.remove(RunManifest::LISTING);
            manifest.fingerprint.remove(RunManifest::ITEMS);
        }
    }
    manifest
}

/// The range of a listing that the runs cover, if they are all its shards in order. Others may be in another order than
/// the listing, after an update; a run that goes on with an interrupted merge relies on it.
fn whole(runs: &[StoredRun]) -> Option<String> {
    let listing = runs[0].manifest.fingerprint.get(RunManifest::LISTING)?;
    let mut whole: Option<String> = None;
    for (number, run) in runs.iter().enumerate() {
        let settings = &run.manifest.fingerprint;
        let is_next = *settings.get("shard")? == format!("{number}/{}", runs.len());
        if !is_next || settings.get(RunManifest::LISTING)? != listing || !run.has_inputs() {
            return None;
        }
        let items = settings.get(RunManifest::ITEMS)?;
        // `0..8`, or `all of files 0..8`: containers' images are counted as they are read.
        whole = match whole {
            None => Some(items.clone()).filter(|items| !items.starts_with("the first")),
            Some(before) => {
                let (begin, end) = before.rsplit_once("..")?;
                let kind = begin.rsplit_once(' ').map_or("", |(kind, _)| kind);
                let next = items.strip_prefix(kind)?.trim_start().strip_prefix(&format!("{end}.."))?;
                Some(format!("{begin}..{next}"))
            }
        };
    }
    whole
}

/// Prints the outcome and converts it to an exit code.
fn tell(
    args: &MergeArgs,
    runs: &[StoredRun],
    merge: &Merge<'_>,
    published: &Published,
    counts: &MergeCounts,
) -> anyhow::Result<Exit> {
    let output = args.output.display();
    let duplicates = merge.duplicates();
    let (conflicts, conflict) = merge.conflicts();
    let Published { rows, failures, .. } = published;
    let inputs: u64 = runs.iter().map(|run| run.manifest.rows + run.manifest.failures).sum();
    let MergeCounts { is_new, left_out, unmatched } = *counts;
    if rows + failures + duplicates + left_out != inputs {
        bail!(
            "{output} has {rows} vectors and {failures} failures, without {duplicates} duplicates and {left_out} that \
             --ids-from does not name, of {inputs}; \
             `foveate inspect --check` finds the output that is damaged"
        );
    }
    if let Some(id) = conflict {
        console::say!(
            "warning: {conflicts} of the duplicates have another content than the row that stays, that of {id} among \
             them; the first output has the first word, so name the newest one first"
        );
    }
    let runs = runs.len();
    let is = if is_new { "complete" } else { "already complete" };
    match args.json {
        true => console::summary(json!({
            "status": is,
            "output": output.to_string(),
            "files": published.files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>(),
            "runs": runs,
            "inputs": inputs,
            "vectors": rows,
            "failures": failures,
            "duplicates": duplicates,
            "conflicts": conflicts,
            "left_out": left_out,
            "unmatched": unmatched,
        })),
        false => {
            console::summary(format_args!(
                "{output} is {is}: {inputs} inputs of {runs} runs = {rows} vectors + {failures} failures + {duplicates} \
                 duplicates, which are left out{}",
                if left_out > 0 { format!(", and {left_out} that --ids-from does not name") } else { String::new() }
            ));
            if let (Some(path), Some(unmatched)) = (&args.join, unmatched) {
                console::summary(format_args!("{unmatched} vectors have no row in {}", path.display()));
            }
        }
    }
    Ok(Exit::Complete)
}
