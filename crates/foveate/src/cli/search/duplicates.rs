//! `foveate duplicates`.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Instant;

use foveate::search::{Pair, Vectors, groups};
use foveate_sink_parquet::Column;
use serde_json::json;

use super::estimate::estimate;
use super::place::DUPLICATES;
use super::sheet::{self, Card, Row, Sheet};
use super::state::StateFile;
use super::table::Table;
use super::vectors::{Loaded, load};
use super::{announce, begin, of_pairs, unless_cancelled, warn_of_skipped, with_search};
use crate::cli::console;
use crate::cli::exit::Exit;
use crate::cli::search_args::{DuplicatesArgs, SearchArgs};
use crate::cli::summary::{counted, human_duration};

/// Scores for which the summary counts what would be removed.
const THRESHOLDS: [f64; 6] = [0.9, 0.95, 0.97, 0.98, 0.99, 0.999];
/// Pairs that a page shows from each of them on.
const EXAMPLES: usize = 6;

pub(crate) fn duplicates(args: &DuplicatesArgs) -> anyhow::Result<Exit> {
    let (cancel, started) = (begin()?, Instant::now());
    let (SearchArgs { quiet, json, .. }, output) = (&args.search, &args.table.output);
    let (loaded, against) = load(&args.search, &args.against, Some(output), args.metric)?;
    announce(&args.search, &loaded, 0);
    if args.dry_run {
        let of = (&loaded, 0, args.metric.into());
        return estimate(&args.search, &cancel, of, |search, sample| search.pairs(sample, args.threshold).map(drop));
    }
    let (all, copies) = (loaded.vectors(args.metric)?, loaded.copies());
    // Of equal files, one is searched.
    let mut vectors = all.clone();
    vectors.leave_out(copies.values().flatten().copied());
    let old = against.as_ref().map(|old| old.vectors(args.metric)).transpose()?;
    let state = StateFile::beside(output, *quiet);
    let found = with_search(&args.search, &cancel, Some(&state), |search| match &old {
        Some(old) => search.pairs_with(&vectors, old, args.threshold),
        None => search.pairs(&vectors, args.threshold),
    });
    let Some(found) = unless_cancelled(found)? else { return Ok(Exit::Interrupted) };
    let mut groups = match &against {
        Some(old) => known(&loaded, &copies, old, &found.pairs),
        None => grouped(&loaded, &all, groups_of(&copies, &found.pairs, args)),
    };
    if args.compare_pixels || args.sheet.html.is_some() {
        look(args, &loaded, against.as_ref(), &found.pairs, &mut groups)?;
    }
    write_groups(args, &groups)?;
    state.remove();
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
            "{} has {} of {} rows, after {} ({}); {} would be removed",
            output.display(),
            counted(groups.len() as u64, "group"),
            loaded.ids.len(),
            human_duration(took),
            of_pairs(found.stats),
            counted(removable as u64, "image")
        ));
        for threshold in THRESHOLDS.into_iter().filter(|&threshold| threshold > args.threshold && against.is_none()) {
            let pairs: Vec<Pair> = found.pairs.iter().copied().filter(|pair| pair.score >= threshold).collect();
            let groups = groups_of(&copies, &pairs, args);
            let removable: usize = groups.iter().map(|rows| rows.len() - 1).sum();
            let (groups, images) = (counted(groups.len() as u64, "group"), counted(removable as u64, "image"));
            console::summary(format_args!("  at {threshold}: {groups}, {images}"));
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
const SAME_PIXELS: &str = "same pixels";
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
        let member = |row: u32| match loaded.is_copy(row, loaded, kept) {
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
        let is_same = loaded.is_copy(row, old, other);
        let group = groups.entry(other).or_insert_with(|| vec![old.member(other, true, 1.0, KEPT)]);
        group.push(loaded.member(row, false, score, if is_same { SAME } else { NEAR }));
    }
    groups.into_values().collect()
}

/// Reads the images of groups, tells equal pixels from near ones, and writes the page.
fn look(
    args: &DuplicatesArgs,
    loaded: &Loaded,
    against: Option<&Loaded>,
    pairs: &[Pair],
    groups: &mut [Vec<Member>],
) -> anyhow::Result<()> {
    let rows = args.sheet.html.as_ref().map(|_| examples(args, loaded, against, pairs)).unwrap_or_default();
    let mut sheet = Sheet { title: "Duplicates", lead: String::new(), rows };
    let mut ids = sheet.ids();
    ids.extend(groups.iter().flatten().map(|member| member.id.as_str()));
    let pictures = sheet::pictures(&args.search, &args.sheet, &[], &ids)?;
    for group in groups.iter_mut() {
        let pixels = |member: &Member| pictures.get(&member.id).map(|picture| picture.pixels);
        let kept = group.first().and_then(pixels);
        for member in group.iter_mut().filter(|member| member.reason == NEAR) {
            if kept.is_some() && pixels(member) == kept {
                member.reason = SAME_PIXELS;
            }
        }
    }
    let Some(path) = &args.sheet.html else { return Ok(()) };
    let (mut shown, count) = (0, groups.len());
    let fitting = groups.iter().take_while(|group| {
        shown += group.len();
        shown <= sheet::MOST
    });
    let row = |(number, group): (usize, &Vec<Member>)| Row {
        heading: format!("Group {number}"),
        cards: group.iter().map(Member::card).collect(),
    };
    let rows: Vec<Row> = fitting.enumerate().map(row).collect();
    sheet.lead = format!(
        "{} of {count} groups at {}; marked images are kept. First, pairs with the lowest scores from each value on.",
        rows.len(),
        args.threshold
    );
    sheet.rows.extend(rows);
    sheet.write(args.replace.file(path), &pictures)
}

/// For each value, the pairs with the lowest scores that reach it: they tell whether it suits as a threshold.
fn examples(args: &DuplicatesArgs, loaded: &Loaded, against: Option<&Loaded>, pairs: &[Pair]) -> Vec<Row> {
    let mut pairs: Vec<&Pair> = pairs.iter().collect();
    pairs.sort_by(|a, b| a.score.total_cmp(&b.score));
    let above = THRESHOLDS.into_iter().filter(|&value| value > args.threshold);
    let values: Vec<f64> = std::iter::once(args.threshold).chain(above).collect();
    let row = |value: f64| {
        let first = pairs.partition_point(|pair| pair.score < value);
        let shown = pairs[first..].iter().take(EXAMPLES);
        let cards = shown.flat_map(|&&Pair { row, other, score }| {
            [(loaded, row), (against.unwrap_or(loaded), other)].map(|(of, row)| Card::scored(of, (row, score), false))
        });
        Row { heading: format!("Pairs from {value} on"), cards: cards.collect() }
    };
    values.into_iter().map(row).filter(|row| !row.cards.is_empty()).collect()
}

impl Member {
    fn card(&self) -> Card {
        let score = if self.is_kept { String::new() } else { format!("{:.4}, ", self.score) };
        Card { id: self.id.clone(), caption: format!("{score}{}", self.reason), is_marked: self.is_kept }
    }
}

fn write_groups(args: &DuplicatesArgs, groups: &[Vec<Member>]) -> anyhow::Result<()> {
    let mut table = Table::create(args.replace.file(&args.table.output), &DUPLICATES)?;
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
    table.finish()
}

impl Loaded {
    /// Returns true if a row's file is known to have the bytes of the file of a row of `other`.
    fn is_copy(&self, row: u32, other: &Self, of_other: u32) -> bool {
        let hash = self.hashes[row as usize];
        hash != 0 && hash == other.hashes[of_other as usize]
    }

    fn member(&self, row: u32, is_kept: bool, score: f64, reason: &'static str) -> Member {
        Member { id: self.ids[row as usize].to_string(), is_kept, score, reason, size: self.sizes[row as usize] }
    }
}
