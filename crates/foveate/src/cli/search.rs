//! `foveate neighbors` and `foveate duplicates`.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, anyhow};
use foveate::embed::{Backends, EmbedOptions};
use foveate::pipeline::Cancel;
use foveate::search::{Neighbors, Pair, Search, SearchError, Stats, Vectors, groups};
use foveate::sink::{StoredRun, record_of};
use foveate_sink_parquet::{Column, TableWriter};
use serde_json::json;

use super::exit::{Exit, Usage};
use super::search_args::{DuplicatesArgs, NeighborsArgs, SearchArgs};
use super::summary::{human_bytes, human_duration};
use super::{console, inspect, job, merge, progress};

/// The commands in their messages.
const SEARCH: &str = "search";
/// Rows of a table that are written together.
const BLOCK: usize = 1 << 16;
/// Scores for which `duplicates` counts what would be removed.
const THRESHOLDS: [f64; 6] = [0.9, 0.95, 0.97, 0.98, 0.99, 0.999];

/// The vectors of outputs, in memory.
#[derive(Default)]
struct Loaded {
    ids: Vec<Box<str>>,
    /// `[n, dim]`
    vectors: Vec<f32>,
    dim: usize,
    /// XXH3-64 of the files.
    hashes: Vec<u64>,
    /// Width and height.
    sizes: Vec<(u32, u32)>,
}

/// Checks the kind of output.
pub(crate) fn check(args: &SearchArgs, others: &[PathBuf]) -> anyhow::Result<()> {
    is_parquet(&args.output)?;
    merge::check_places(args.inputs.iter().chain(others), &args.output, SEARCH)
}

pub(crate) fn neighbors(args: &NeighborsArgs) -> anyhow::Result<Exit> {
    const NAMES: &[&str] = &["id", "neighbor", "rank", "score"];
    let (cancel, started) = (begin()?, Instant::now());
    let SearchArgs { output, quiet, json, .. } = &args.search;
    let (loaded, queries) = load(&args.search, &args.queries)?;
    announce(&args.search, &loaded, args.k as usize);
    let vectors = loaded.vectors(&args.search)?;
    let asked = queries.as_ref().map(|queries| queries.vectors(&args.search)).transpose()?;
    let found = with_search(&args.search, &cancel, |search| match &asked {
        Some(asked) => search.nearest(asked, &vectors, args.k as usize),
        None => search.neighbors(&vectors, args.k as usize),
    });
    let Some(found) = unless_cancelled(found)? else { return Ok(Exit::Interrupted) };
    let ids = &queries.as_ref().unwrap_or(&loaded).ids;
    let mut table = Table::create(output, NAMES)?;
    // A table without rows has a block, too.
    for first in (0..found.len().max(1)).step_by(BLOCK) {
        table.write(columns(&found, first..(first + BLOCK).min(found.len()), ids, &loaded.ids))?;
    }
    table.finish(output)?;
    let (rows, skipped) = (found.len(), found.len() - asked.as_ref().unwrap_or(&vectors).finite().count());
    let (took, stats) = (started.elapsed(), found.stats());
    if *json {
        console::summary(json!({
            "status": "complete", "output": output.display().to_string(), "rows": rows, "k": args.k, "not_finite": skipped,
            "pairs": stats.pairs, "scored": stats.scored, "width": stats.width, "seconds": took.as_secs_f64(),
        }));
    } else if !quiet {
        console::summary(format_args!(
            "{} has the {} nearest of {rows} rows, after {} ({})",
            output.display(),
            args.k,
            human_duration(took),
            of_pairs(stats)
        ));
    }
    warn_of_skipped(skipped);
    Ok(Exit::Complete)
}

fn columns(found: &Neighbors, rows: std::ops::Range<usize>, ids: &[Box<str>], of_found: &[Box<str>]) -> Vec<Column> {
    let (mut id, mut neighbor, mut rank, mut score) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        for (number, (other, value)) in found.of(row).enumerate() {
            id.push(ids[row].to_string());
            neighbor.push(of_found[other as usize].to_string());
            rank.push(number as u32 + 1);
            score.push(value as f32);
        }
    }
    vec![Column::Text(id), Column::Text(neighbor), Column::Count(rank), Column::Score(score)]
}

pub(crate) fn duplicates(args: &DuplicatesArgs) -> anyhow::Result<Exit> {
    let (cancel, started) = (begin()?, Instant::now());
    let SearchArgs { output, quiet, json, .. } = &args.search;
    let (loaded, against) = load(&args.search, &args.against)?;
    announce(&args.search, &loaded, 0);
    let (all, copies) = (loaded.vectors(&args.search)?, loaded.copies());
    // Of equal files, one is searched.
    let mut vectors = loaded.vectors(&args.search)?;
    vectors.leave_out(copies.values().flatten().copied());
    let old = against.as_ref().map(|old| old.vectors(&args.search)).transpose()?;
    let found = with_search(&args.search, &cancel, |search| match &old {
        Some(old) => search.pairs_with(&vectors, old, args.threshold),
        None => search.pairs(&vectors, args.threshold),
    });
    let Some(found) = unless_cancelled(found)? else { return Ok(Exit::Interrupted) };
    let groups = match &against {
        Some(old) => known(&loaded, &copies, old, &found.pairs),
        None => grouped(&loaded, &all, groups_of(&copies, &found.pairs, args)),
    };
    write_groups(output, &groups)?;
    let (took, removable) = (started.elapsed(), groups.iter().map(|group| group.len() - 1).sum::<usize>());
    let skipped = all.len() - all.finite().count();
    if args.list_removable {
        let mut out = console::stdout();
        groups
            .iter()
            .flatten()
            .filter(|member| !member.is_kept)
            .try_for_each(|member| writeln!(out, "{}", member.id))?;
    } else if *json {
        console::summary(json!({
            "status": "complete", "output": output.display().to_string(), "rows": loaded.ids.len(), "groups": groups.len(),
            "removable": removable, "threshold": args.threshold, "not_finite": skipped, "pairs": found.stats.pairs,
            "scored": found.stats.scored, "width": found.stats.width, "seconds": took.as_secs_f64(),
        }));
    } else if !quiet {
        console::summary(format_args!(
            "{} has {} groups of {} rows, after {} ({}); {removable} images would be removed",
            output.display(),
            groups.len(),
            loaded.ids.len(),
            human_duration(took),
            of_pairs(found.stats)
        ));
        for threshold in THRESHOLDS.into_iter().filter(|&threshold| threshold > args.threshold && against.is_none()) {
            let pairs: Vec<Pair> = found.pairs.iter().copied().filter(|pair| pair.score >= threshold).collect();
            let groups = groups_of(&copies, &pairs, args);
            let removable: usize = groups.iter().map(|rows| rows.len() - 1).sum();
            console::summary(format_args!("  at {threshold}: {} groups, {removable} images", groups.len()));
        }
    }
    warn_of_skipped(skipped);
    Ok(Exit::Complete)
}

/// Groups of near images, and the copies of each.
fn groups_of(copies: &BTreeMap<u32, Vec<u32>>, pairs: &[Pair], args: &DuplicatesArgs) -> Vec<Vec<u32>> {
    let (mut copies, mut groups) = (copies.clone(), groups(pairs, args.linkage.into()));
    for group in &mut groups {
        let more: Vec<u32> = group.iter().filter_map(|row| copies.remove(row)).flatten().collect();
        group.extend(more);
        group.sort_unstable();
    }
    groups.extend(copies.into_iter().map(|(row, copies)| [vec![row], copies].concat()));
    groups.sort_unstable();
    groups
}

/// Why an image is in a group.
const KEPT: &str = "kept";
const SAME: &str = "same bytes";
const NEAR: &str = "near";

/// An image in a group.
struct Member {
    id: String,
    is_kept: bool,
    score: f64,
    reason: &'static str,
    size: (u32, u32),
}

/// Chooses the image of each group that is kept: the largest, or the first of several.
fn grouped(loaded: &Loaded, vectors: &Vectors<'_>, groups: Vec<Vec<u32>>) -> Vec<Vec<Member>> {
    let area = |row: u32| loaded.sizes[row as usize].0 as u64 * u64::from(loaded.sizes[row as usize].1);
    let group = |rows: Vec<u32>| {
        let kept = rows.iter().copied().max_by_key(|&row| (area(row), std::cmp::Reverse(row))).unwrap_or_default();
        let others = rows.into_iter().filter(|&row| row != kept);
        let is_same = |row: u32| loaded.hashes[row as usize] == loaded.hashes[kept as usize];
        let member = |row: u32| match is_same(row) {
            true => loaded.member(row, false, 1.0, SAME),
            false => loaded.member(row, false, vectors.score(row, vectors, kept), NEAR),
        };
        std::iter::once(loaded.member(kept, true, 1.0, KEPT)).chain(others.map(member)).collect()
    };
    groups.into_iter().map(group).collect()
}

/// Groups of old images with the new ones that are nearest to them.
fn known(loaded: &Loaded, copies: &BTreeMap<u32, Vec<u32>>, old: &Loaded, pairs: &[Pair]) -> Vec<Vec<Member>> {
    let mut best: BTreeMap<u32, (f64, u32)> = BTreeMap::new();
    for pair in pairs {
        let known = best.entry(pair.row).or_insert((pair.score, pair.other));
        if pair.score > known.0 {
            *known = (pair.score, pair.other);
        }
    }
    for (row, copies) in copies {
        if let Some(&known) = best.get(row) {
            best.extend(copies.iter().map(|&copy| (copy, known)));
        }
    }
    let mut groups: BTreeMap<u32, Vec<Member>> = BTreeMap::new();
    for (row, (score, other)) in best {
        let is_same = loaded.hashes[row as usize] == old.hashes[other as usize];
        let group = groups.entry(other).or_insert_with(|| vec![old.member(other, true, 1.0, KEPT)]);
        group.push(loaded.member(row, false, score, if is_same { SAME } else { NEAR }));
    }
    groups.into_values().collect()
}

fn write_groups(output: &Path, groups: &[Vec<Member>]) -> anyhow::Result<()> {
    const NAMES: &[&str] = &["group", "id", "keep", "score", "reason", "width", "height"];
    let mut table = Table::create(output, NAMES)?;
    let members = || groups.iter().flatten();
    let numbers = groups.iter().enumerate().flat_map(|(number, group)| group.iter().map(move |_| number as u32));
    table.write(vec![
        Column::Count(numbers.collect()),
        Column::Text(members().map(|member| member.id.clone()).collect()),
        Column::Flag(members().map(|member| member.is_kept).collect()),
        Column::Score(members().map(|member| member.score as f32).collect()),
        Column::Text(members().map(|member| member.reason.to_owned()).collect()),
        Column::Count(members().map(|member| member.size.0).collect()),
        Column::Count(members().map(|member| member.size.1).collect()),
    ])?;
    table.finish(output)
}

impl Loaded {
    fn read(runs: &mut [StoredRun], backends: &Backends) -> anyhow::Result<Self> {
        let (dim, rows) = (runs[0].manifest.dim, runs.iter().map(|run| run.manifest.rows).sum::<u64>() as usize);
        let mut loaded = Self { dim, vectors: Vec::with_capacity(rows * dim), ..Self::default() };
        for run in runs {
            let reader = inspect::reader(run, backends)?;
            let rows = run.rows(reader, &mut |row| {
                loaded.ids.push(row.id.into());
                loaded.vectors.extend_from_slice(row.vector);
                loaded.hashes.push(row.xxh3);
                loaded.sizes.push((row.width, row.height));
                Ok(())
            });
            rows.map_err(inspect::remedied)?;
        }
        Ok(loaded)
    }

    fn vectors(&self, args: &SearchArgs) -> anyhow::Result<Vectors<'_>> {
        Ok(Vectors::new(&self.vectors, self.dim, args.metric.into())?)
    }

    fn member(&self, row: u32, is_kept: bool, score: f64, reason: &'static str) -> Member {
        Member { id: self.ids[row as usize].to_string(), is_kept, score, reason, size: self.sizes[row as usize] }
    }

    /// Of each file that is there more than once, the first row, and the others.
    fn copies(&self) -> BTreeMap<u32, Vec<u32>> {
        let (mut copies, mut firsts) = (BTreeMap::<_, Vec<_>>::new(), HashMap::new());
        for (row, hash) in (0..).zip(&self.hashes) {
            let first = *firsts.entry(hash).or_insert(row);
            if first != row {
                copies.entry(first).or_default().push(row);
            }
        }
        copies
    }
}

/// Reads `args.inputs`, and `others` if there are any. All are of the same model and settings.
fn load(args: &SearchArgs, others: &[PathBuf]) -> anyhow::Result<(Loaded, Option<Loaded>)> {
    let backends = Backends::compiled();
    let store_settings = args.store_option.iter().cloned().collect();
    let options = EmbedOptions { store_settings, ..EmbedOptions::new(Vec::new(), "", "") };
    let find = |inputs: &[PathBuf]| -> anyhow::Result<Vec<(String, StoredRun)>> {
        let mut runs = Vec::new();
        for input in inputs {
            runs.extend(merge::find(input, &options, &backends, SEARCH)?);
        }
        Ok(runs)
    };
    let found = find(&args.inputs)?;
    let count = found.len();
    let (names, mut runs): (Vec<_>, Vec<_>) = found.into_iter().chain(find(others)?).unzip();
    merge::check_same_job(&names, &runs, SEARCH)?;
    let (ours, theirs) = runs.split_at_mut(count);
    let loaded = Loaded::read(ours, &backends)?;
    Ok((loaded, if theirs.is_empty() { None } else { Some(Loaded::read(theirs, &backends)?) }))
}

fn begin() -> anyhow::Result<Cancel> {
    let cancel = Cancel::default();
    job::on_signal(&cancel, || console::say!("\ninterrupted: nothing is written; interrupt again to stop at once"))?;
    Ok(cancel)
}

/// Says what memory the search takes, before it takes it.
fn announce(args: &SearchArgs, loaded: &Loaded, k: usize) {
    if args.quiet {
        return;
    }
    let (rows, dim) = (loaded.ids.len(), loaded.dim);
    // Of codes, two copies for a moment.
    let bytes = rows * (6 * dim + 512 + 12 * k);
    console::say!("{rows} vectors of {dim} dimensions; at most about {} of memory", human_bytes(bytes as u64));
}

fn with_search<T>(args: &SearchArgs, cancel: &Cancel, work: impl FnOnce(&Search<'_>) -> T) -> T {
    let bar = progress::Share::new(args.quiet || args.json);
    let (show, is_cancelled) = (|share| bar.show(share), || cancel.is_cancelled());
    let mut search = Search { progress: &show, is_cancelled: &is_cancelled, ..Search::default() };
    search.threads = args.threads.unwrap_or(search.threads);
    let done = work(&search);
    bar.clear();
    done
}

fn unless_cancelled<T>(done: Result<T, SearchError>) -> anyhow::Result<Option<T>> {
    match done {
        Err(SearchError::Cancelled) => Ok(None),
        done => Ok(Some(done?)),
    }
}

fn of_pairs(Stats { pairs, scored, width }: Stats) -> String {
    format!(
        "{pairs} pairs compared in {width} directions, {:.2} % in full",
        100.0 * scored as f64 / pairs.max(1) as f64
    )
}

fn warn_of_skipped(rows: usize) {
    if rows > 0 {
        console::say!("warning: {rows} rows are not finite and were left out; `foveate inspect` counts them");
    }
}

/// Tells Parquet from CSV.
fn is_parquet(output: &Path) -> Result<bool, Usage> {
    match output.extension().and_then(|extension| extension.to_str()) {
        Some("csv") => Ok(false),
        Some("parquet") => Ok(true),
        _ => Err(Usage::from(anyhow!("cannot write {}: name an output x.parquet or x.csv", output.display()))),
    }
}

/// A table that appears under its name when it is whole.
enum Table {
    Csv(PathBuf, csv::Writer<File>),
    Parquet(PathBuf, TableWriter),
}

impl Table {
    fn create(output: &Path, names: &'static [&'static str]) -> anyhow::Result<Self> {
        let path = record_of(output, "partial");
        if let Some(folder) = output.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        if is_parquet(output)? {
            let writer = TableWriter::new(&path, names);
            return Ok(Self::Parquet(path, writer));
        }
        let mut writer = csv::Writer::from_path(&path).with_context(|| format!("cannot write {}", path.display()))?;
        writer.write_record(names)?;
        Ok(Self::Csv(path, writer))
    }

    fn write(&mut self, columns: Vec<Column>) -> anyhow::Result<()> {
        match self {
            Self::Csv(path, writer) => {
                let text = |column: &Column, row: usize| match column {
                    Column::Text(texts) => texts[row].clone(),
                    Column::Count(counts) => counts[row].to_string(),
                    Column::Score(scores) => scores[row].to_string(),
                    Column::Flag(flags) => flags[row].to_string(),
                };
                let rows = match &columns[0] {
                    Column::Text(texts) => texts.len(),
                    Column::Count(counts) => counts.len(),
                    Column::Score(scores) => scores.len(),
                    Column::Flag(flags) => flags.len(),
                };
                for row in 0..rows {
                    let record = columns.iter().map(|column| text(column, row));
                    writer.write_record(record).with_context(|| format!("cannot write {}", path.display()))?;
                }
                Ok(())
            }
            Self::Parquet(_, writer) => Ok(writer.write(columns)?),
        }
    }

    fn finish(self, output: &Path) -> anyhow::Result<()> {
        let path = match self {
            Self::Csv(path, writer) => {
                let file = writer.into_inner().map_err(|error| error.into_error());
                file.and_then(|file| file.sync_all()).with_context(|| format!("cannot write {}", path.display()))?;
                path
            }
            Self::Parquet(path, writer) => {
                writer.finish()?;
                path
            }
        };
        fs::rename(&path, output).with_context(|| format!("cannot write {}", output.display()))
    }
}
