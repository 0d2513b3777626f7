//! `foveate duplicates`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{Read, Write};
use std::time::Instant;

use anyhow::{Context, anyhow};
use foveate::decode::{DEEP_GRAY_BYTES, may_have_deep_gray};
use foveate::pictures::WantedPicture;
use foveate::pipeline::Cancel;
use foveate::profile::process::peak_resident_bytes;
use foveate::search::{Linkage, Pair, Pairs, Search, SearchError, Stats, Vectors};
use foveate::sink::RecordedHash;
use foveate::source::NamedFile;
use foveate_sink_parquet::Column;
use serde_json::json;

use super::estimate::estimate;
use super::files::ImageFile;
use super::keep::{KeepRules, KeptImage};
use super::members::{FileCounts, KEPT, Member, NEAR, SAME, SAME_PIXELS, check_kept, settle, spelled};
use super::place::DUPLICATES;
use super::sheet::{self, Card, PictureInputs, Pictures, Row, Sheet};
use super::state::StateFile;
use super::table::Table;
use super::vectors::{Loaded, load};
use super::{announce, begin, of_pairs, unless_cancelled, warn_of_skipped, with_search};
use crate::cli::console;
use crate::cli::exit::{Exit, Usage};
use crate::cli::search_args::{DuplicatesArgs, LinkageArg, SearchArgs};
use crate::cli::summary::{counted, human_duration};

/// Scores for which the summary counts what would be removed.
const THRESHOLDS: [f64; 6] = [0.9, 0.95, 0.97, 0.98, 0.99, 0.999];
/// Pairs that a page shows from each of them on.
const EXAMPLES: usize = 6;

/// Bytes that `--linkage complete` takes for a pair: itself, its numbers in a set, and its place in the order of
/// scores.
const OF_PAIR: u64 = 48;
/// Most pairs that `--linkage complete` keeps, which are 0.8 GB.
const MOST_PAIRS: usize = 1 << 24;

pub(crate) fn duplicates(args: &DuplicatesArgs) -> anyhow::Result<Exit> {
    let started = Instant::now();
    let (SearchArgs { quiet, json, .. }, output) = (&args.search, &args.table.output);
    let labels = sheet::begin_sheet(&args.search, &args.sheet, false)?;
    let (loaded, against) = load(&args.search.with(&args.sheet.labels), &args.against, Some(output), args.metric)?;
    let labels = loaded.page_labels(labels, &args.sheet.labels)?;
    let cancel = begin()?;
    let rules = KeepRules::new(args)?;
    let values = thresholds(args);
    let most = announce(&args.search, &loaded, loaded.ids.len(), |search| {
        let old = against.as_ref().map_or(0, |old| Search::memory(old.ids.len(), old.dim, 0));
        old + Search::memory(loaded.ids.len(), loaded.dim, 0) + memory(args, search, &loaded, values.len())
    });
    if args.dry_run {
        let of = (&loaded, 0, args.metric.into());
        return estimate(&args.search, &cancel, of, |search, sample| {
            search.duplicates(sample, None, &values, EXAMPLES).map(drop)
        });
    }
    let all = loaded.vectors(args.metric)?;
    let copies = loaded.copies();
    // Of equal files, one is searched.
    let mut vectors = all.clone();
    vectors.leave_out(copies.values().flatten().copied());
    // Identity comes before scores: an id on both sides is one image, which is kept, and old bytes are a copy.
    let mut known_bytes = Vec::new();
    let mut old_ids = HashSet::new();
    if let Some(old) = &against {
        if loaded.has_numbers && old.has_numbers {
            // Of another file, equal numbers are other images; of the same file, every image is its own duplicate.
            let news: HashSet<_> = args.search.inputs.iter().filter_map(|path| path.canonicalize().ok()).collect();
            let both = args.against.iter().find(|path| path.canonicalize().is_ok_and(|path| news.contains(&path)));
            if let Some(both) = both {
                let why = "its rows have no ids that tell them; leave --against out to compare them with each other";
                return Err(Usage::from(anyhow!("{} is on both sides: {why}", both.display())).into());
            }
        }
        known_bytes = with_old_bytes(&loaded, old);
        if !loaded.has_numbers && !old.has_numbers {
            old_ids.extend(old.ids.iter().map(|id| spelled(id)));
        }
        vectors.leave_out(
            (0..loaded.ids.len() as u32)
                .filter(|row| old_ids.contains(&spelled(&loaded.ids[*row as usize])) && !copies.contains_key(row)),
        );
        vectors.leave_out(known_bytes.iter().map(|image| image.row));
    }
    let old = against.as_ref().map(|old| old.vectors(args.metric)).transpose()?;
    let state = StateFile::beside(output, *quiet);
    let found = with_search(&args.search, &cancel, Some(&state), |search| match args.linkage {
        LinkageArg::Complete if old.is_none() => complete(search, &vectors, &values),
        _ => joined(search, &vectors, old.as_ref(), &values),
    });
    if let Err(SearchError::TooManyPairs(most)) = found {
        return Err(Usage::from(anyhow!(
            "cannot group by --linkage complete: more than {most} pairs reach {}, and it keeps them in memory; raise \
             --threshold, or take --linkage single, which keeps none",
            args.threshold
        ))
        .into());
    }
    let Some(found) = unless_cancelled(found)? else { return Ok(Exit::Interrupted) };
    let looked = |of: &Loaded, rows: Vec<u32>| of.files(&args.search, &args.sheet, &cancel, args.list_removable, rows);
    let mut kept_elsewhere = Vec::new();
    let mut groups = match &against {
        Some(old) => {
            let mut known = known(&copies, &found.nearest);
            known.append(&mut known_bytes);
            known.sort_unstable_by_key(|image| image.row);
            known.retain(|image| !old_ids.contains(&spelled(&loaded.ids[image.row as usize])));
            let files = looked(&loaded, known.iter().map(|image| image.row).collect())?;
            let old_files = looked(old, old_rows(&loaded, old, &known))?;
            kept_elsewhere.extend(old_files.values().filter_map(|file| file.named.clone()));
            known_groups((&loaded, &files), (old, &old_files), &known)
        }
        None => {
            let groups = with_copies(&copies, found.groups[0].clone());
            let files = looked(&loaded, groups.concat())?;
            grouped(&loaded, &all, &rules, &files, groups)
        }
    };
    let order = by_doubt(&groups);
    let mut pictures = Ok(Pictures::default());
    if args.compare_pixels || args.sheet.page.html.is_some() {
        pictures =
            look(args, &cancel, [&loaded, against.as_ref().unwrap_or(&loaded)], &found.examples, &groups, &order);
    }
    look_at_gray(args, &cancel, &mut groups)?;
    if let Ok(pictures) = &pictures {
        mark_pixels(&mut groups, pictures);
    }
    let counts = settle(&mut groups, &kept_elsewhere, args.trust_ids);
    check_kept(&groups, args.trust_ids)?;
    if cancel.is_cancelled() {
        return Ok(Exit::Interrupted);
    }
    write_groups(args, &groups)?;
    state.remove();
    // A page that fails leaves the table.
    let pictures = pictures.context("cannot read the pictures; the table is written")?;
    if let Some(path) = &args.sheet.page.html {
        let pairs = examples(args, &loaded, against.as_ref(), &found.examples);
        page(args, pairs, &groups, &order).write(args.replace.file(path), &pictures, labels.as_ref())?;
    }
    let took = started.elapsed();
    let removable = counts.removable;
    let skipped = all.len() - all.finite().count();
    if args.list_removable {
        list(args, groups.iter().flatten().filter(|member| member.is_removable))?;
    } else if *json {
        console::summary(json!({
            "status": "complete", "output": output.display().to_string(), "rows": loaded.ids.len(), "groups": groups.len(),
            "removable": removable, "same_file": counts.same_file, "free_nothing": counts.free_nothing,
            "clipped": counts.clipped,
            "groups_not_found": counts.unknown, "groups_changed": counts.changed, "threshold": args.threshold, "not_finite": skipped, "pairs": found.stats.pairs,
            "scored": found.stats.scored, "width": found.stats.width, "seconds": took.as_secs_f64(),
            "memory_bytes": most, "peak_resident_bytes": peak_resident_bytes(),
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
        for (threshold, groups) in values.iter().zip(found.groups).skip(1) {
            let groups = with_copies(&copies, groups);
            let more: usize = groups.iter().map(|rows| rows.len() - 1).sum();
            let groups = counted(groups.len() as u64, "group");
            let images = counted(more as u64, "image");
            console::summary(format_args!("  at {threshold}: {groups}, {images}"));
        }
    }
    tell_of_files(args, groups.len(), &counts);
    warn_of_skipped(skipped);
    Ok(Exit::Complete)
}

/// Prints paths as the system has them, with which other programs find the files.
fn list<'a>(args: &DuplicatesArgs, members: impl Iterator<Item = &'a Member>) -> anyhow::Result<()> {
    let mut out = console::stdout();
    let mut left_out = Vec::new();
    for member in members {
        let path = member.path();
        let bytes = path.as_os_str().as_encoded_bytes();
        // Programs that read lines take a carriage return at the end for a part of the line break.
        if !args.null && (bytes.contains(&b'\n') || bytes.ends_with(b"\r")) {
            left_out.push(&member.id);
            continue;
        }
        out.write_all(&[bytes, if args.null { b"\0" } else { b"\n" }].concat())?;
    }
    if let Some(id) = left_out.first() {
        let count = counted(left_out.len() as u64, "name");
        console::say!("warning: {count} with a line break left out, such as {id:?}; --null prints them");
    }
    Ok(())
}

/// Old rows whose files are looked at: those that are nearest to new images, and all that may be files of new images,
/// which have their bytes.
fn old_rows(loaded: &Loaded, old: &Loaded, known: &[KnownImage]) -> Vec<u32> {
    let hashes: HashSet<Option<RecordedHash>> = known.iter().map(|image| loaded.hashes[image.row as usize]).collect();
    let nearest: HashSet<u32> = known.iter().map(|image| image.old).collect();
    let mut rows = Vec::new();
    for (row, hash) in (0..).zip(&old.hashes) {
        let may_be = nearest.contains(&row) || hash.is_none() || hashes.contains(&None) || hashes.contains(hash);
        if !known.is_empty() && may_be {
            rows.push(row);
        }
    }
    rows
}

/// Says what the files forbid.
fn tell_of_files(args: &DuplicatesArgs, groups: usize, counts: &FileCounts) {
    if args.search.quiet && !args.list_removable {
        return;
    }
    let FileCounts { same_file, free_nothing, .. } = counts;
    if same_file + free_nothing > 0 {
        console::say!(
            "note: {} of a file that has another one ('same file'), {} would free nothing ('hard link', 'link'): not \
             removable",
            counted(*same_file as u64, "name"),
            counted(*free_nothing as u64, "link")
        );
    }
    if counts.clipped > 0 {
        console::say!(
            "note: {} 'clipped': gray in more than 8 bits or in floats, of which other pictures have the same vector, too: \
             not removable",
            counted(counts.clipped as u64, "image")
        );
    }
    if let Some(id) = &counts.one_unknown {
        let so = if args.trust_ids { "trusted by its ids" } else { "not removable" };
        console::say!(
            "warning: {} of {groups} groups: {so}, because an image is not where its id says, such as {id}; run this where \
             `embed` ran, name the images with --images, or pass --trust-ids",
            counts.unknown
        );
    }
    if let Some(id) = &counts.one_changed {
        console::say!(
            "warning: {} of {groups} groups: not removable, because a file has changed since it was embedded, such as \
             {id}; `foveate embed --update` reads it again",
            counts.changed
        );
    }
}

/// The threshold, and the higher ones that the summary and the page tell of.
fn thresholds(args: &DuplicatesArgs) -> Vec<f64> {
    let higher = THRESHOLDS.into_iter().filter(|&value| value > args.threshold);
    std::iter::once(args.threshold).chain(higher).collect()
}

/// A run's findings besides the search itself: groups, the table, and what is known of the files.
fn memory(args: &DuplicatesArgs, search: &Search<'_>, loaded: &Loaded, thresholds: usize) -> u64 {
    let rows = loaded.ids.len();
    let pairs = match args.linkage {
        LinkageArg::Single => 0,
        LinkageArg::Complete => OF_PAIR * (rows as u64 * rows as u64 / 2).min(MOST_PAIRS as u64),
    };
    let of_members = loaded.ids.iter().map(|id| 4 * id.len() as u64 + 400).sum::<u64>();
    search.memory_of_duplicates(rows, thresholds) + 4 * (thresholds * rows) as u64 + pairs + of_members
}

/// A search's pairs.
struct FoundPairs {
    /// From each threshold on.
    groups: Vec<Vec<Vec<u32>>>,
    /// Of new rows, the nearest old one.
    nearest: Vec<KnownImage>,
    /// From each threshold on, the pairs with the lowest scores.
    examples: Vec<Vec<Pair>>,
    stats: Stats,
}

/// Groups that chains of pairs join, or the nearest of `old`.
fn joined(
    search: &Search<'_>,
    vectors: &Vectors<'_>,
    old: Option<&Vectors<'_>>,
    thresholds: &[f64],
) -> Result<FoundPairs, SearchError> {
    let found = search.duplicates(vectors, old, thresholds, EXAMPLES)?;
    let mut nearest = Vec::new();
    for row in 0..vectors.len() as u32 {
        nearest.extend(found.nearest(row).map(|(old, score)| KnownImage { row, old, score }));
    }
    let numbers = 0..thresholds.len();
    let groups = numbers.clone().filter(|_| old.is_none()).map(|number| found.groups(number)).collect();
    let examples = numbers.map(|number| found.examples(number).to_vec()).collect();
    Ok(FoundPairs { groups, nearest, examples, stats: found.stats })
}

/// Groups in which every two rows are a pair.
fn complete(search: &Search<'_>, vectors: &Vectors<'_>, thresholds: &[f64]) -> Result<FoundPairs, SearchError> {
    let search = Search { most_pairs: MOST_PAIRS, ..*search };
    let Pairs { pairs, stats } = search.pairs(vectors, thresholds[0])?;
    let mut found = FoundPairs { groups: Vec::new(), nearest: Vec::new(), examples: Vec::new(), stats };
    for &threshold in thresholds {
        let mut reaching: Vec<Pair> = pairs.iter().copied().filter(|pair| pair.score >= threshold).collect();
        found.groups.push(search.groups(&reaching, Linkage::Complete)?);
        reaching.sort_by(|a, b| a.score.total_cmp(&b.score));
        reaching.truncate(EXAMPLES);
        found.examples.push(reaching);
    }
    Ok(found)
}

/// Groups of near images, and the copies of each.
fn with_copies(copies: &BTreeMap<u32, Vec<u32>>, mut groups: Vec<Vec<u32>>) -> Vec<Vec<u32>> {
    let mut copies = copies.clone();
    for group in &mut groups {
        let more: Vec<u32> = group.iter().filter_map(|row| copies.remove(row)).flatten().collect();
        group.extend(more);
        group.sort_unstable();
    }
    groups.extend(copies.into_iter().map(|(row, copies)| [vec![row], copies].concat()));
    groups.sort_unstable();
    groups
}

/// Groups with their images, of which the first is kept.
fn grouped(
    loaded: &Loaded,
    vectors: &Vectors<'_>,
    rules: &KeepRules,
    files: &HashMap<u32, ImageFile>,
    groups: Vec<Vec<u32>>,
) -> Vec<Vec<Member>> {
    let mut all = Vec::with_capacity(groups.len());
    for rows in groups {
        let KeptImage { row: kept, by } = rules.choose(loaded, files, &rows);
        let mut group = vec![Member { kept_by: by, ..loaded.member(kept, files, 1.0, KEPT) }];
        for row in rows.into_iter().filter(|&row| row != kept) {
            group.push(match loaded.is_copy(row, loaded, kept) {
                true => loaded.member(row, files, 1.0, SAME),
                false => loaded.member(row, files, vectors.score(row, vectors, kept), NEAR),
            });
        }
        all.push(group);
    }
    all
}

/// A new image, the old one that is nearest to it, and their score.
#[derive(Clone, Copy)]
struct KnownImage {
    row: u32,
    old: u32,
    score: f64,
}

/// The new images that have the bytes of an old one, which may not be the first of several with the best score.
fn with_old_bytes(loaded: &Loaded, old: &Loaded) -> Vec<KnownImage> {
    let mut rows = HashMap::new();
    for (row, hash) in (0..).zip(&old.hashes) {
        if matches!(hash, Some(RecordedHash::Content(_))) {
            rows.entry(hash).or_insert(row);
        }
    }
    let mut known = Vec::new();
    for (row, hash) in (0..).zip(&loaded.hashes) {
        known.extend(rows.get(hash).map(|&old| KnownImage { row, old, score: 1.0 }));
    }
    known
}

/// The new images that have an old one near them, with the copies of each.
fn known(copies: &BTreeMap<u32, Vec<u32>>, nearest: &[KnownImage]) -> Vec<KnownImage> {
    let mut known = nearest.to_vec();
    for &KnownImage { row, old, score } in nearest {
        let copies = copies.get(&row).into_iter().flatten();
        known.extend(copies.map(|&row| KnownImage { row, old, score }));
    }
    known
}

/// Groups of old images with the new ones that are nearest to them.
fn known_groups(
    (loaded, files): (&Loaded, &HashMap<u32, ImageFile>),
    (old, old_files): (&Loaded, &HashMap<u32, ImageFile>),
    known: &[KnownImage],
) -> Vec<Vec<Member>> {
    let mut groups: BTreeMap<u32, Vec<Member>> = BTreeMap::new();
    for image in known {
        let is_same = loaded.is_copy(image.row, old, image.old);
        let group = groups.entry(image.old).or_insert_with(|| vec![old.member(image.old, old_files, 1.0, KEPT)]);
        group.push(loaded.member(image.row, files, image.score, if is_same { SAME } else { NEAR }));
    }
    groups.into_values().collect()
}

/// Reads the pictures of groups, to tell equal pixels from near ones, and of the page.
fn look(
    args: &DuplicatesArgs,
    cancel: &Cancel,
    sides: [&Loaded; 2],
    pairs: &[Vec<Pair>],
    groups: &[Vec<Member>],
    order: &[usize],
) -> anyhow::Result<Pictures> {
    let mut ids = HashMap::new();
    // Pixels are compared where neither the bytes nor the file says it.
    for member in groups.iter().filter(|group| group.iter().any(|member| member.reason == NEAR)).flatten() {
        ids.insert(member.id.as_str(), WantedPicture { is_shown: false, hash: member.hash });
    }
    if args.sheet.page.html.is_some() {
        for &Pair { row, other, .. } in pairs.iter().flatten() {
            for (of, row) in sides.into_iter().zip([row as usize, other as usize]) {
                ids.insert(&of.ids[row], WantedPicture { is_shown: true, hash: of.hashes[row] });
            }
        }
        for member in order.iter().flat_map(|&group| groups[group].iter().take(sheet::MOST)) {
            ids.insert(&member.id, WantedPicture { is_shown: true, hash: member.hash });
        }
    }
    let mut images = args.sheet.page.images.clone();
    if images.is_empty() {
        // Pixels are compared and not shown, so that the files at ids can be read.
        let whole =
            groups.iter().flatten().filter(|member| member.file.named.as_ref().is_some_and(NamedFile::is_whole));
        images = whole.map(Member::path).collect();
    }
    let inputs = PictureInputs { images: &images, manifest: sides[0].manifest.as_ref(), others: &[] };
    sheet::pictures(&args.search, &inputs, cancel, &ids)
}

/// Tells clipped gray and equal pixels, the latter only by pictures that are for sure those of their ids.
fn mark_pixels(groups: &mut [Vec<Member>], pictures: &Pictures) {
    mark_clipped(groups, pictures);
    for group in groups.iter_mut() {
        let kept = group.first().and_then(|kept| pixels_of(kept, pictures));
        for member in group.iter_mut().filter(|member| member.reason == NEAR) {
            if kept.is_some() && pixels_of(member, pictures) == kept {
                member.reason = SAME_PIXELS;
            }
        }
    }
}

fn pixels_of(member: &Member, pictures: &Pictures) -> Option<u64> {
    pictures.of.get(&member.id).filter(|found| found.is_sure)?.picture.pixels
}

/// The groups of the page: those with the least scores first, which are nearest to the threshold.
fn by_doubt(groups: &[Vec<Member>]) -> Vec<usize> {
    let mut least = Vec::new();
    for group in groups {
        least.push(group.iter().map(|member| member.score).fold(1.0, f64::min));
    }
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by(|&a, &b| least[a].total_cmp(&least[b]));
    let mut images = 0;
    let fitting = order.iter().take_while(|&&group| {
        images += groups[group].len();
        images <= sheet::MOST
    });
    order.truncate(fitting.count().max(1));
    order
}

fn page(args: &DuplicatesArgs, pairs: Vec<Row>, groups: &[Vec<Member>], order: &[usize]) -> Sheet {
    let members: HashMap<&str, &Member> = groups.iter().flatten().map(|member| (member.id.as_str(), member)).collect();
    let mut rows = pairs;
    for set in rows.iter_mut().flat_map(|row| &mut row.sets) {
        for card in &mut *set {
            let member = members.get(card.id.as_str());
            card.is_picked = member.is_some_and(|member| member.is_removable);
            card.is_marked = member.is_some_and(|member| member.is_kept);
        }
        set.sort_by_key(|card| !card.is_marked);
    }
    for &number in order {
        let group = &groups[number];
        let cards = group.iter().take(sheet::MOST).map(Member::card).collect();
        rows.push(Row { heading: format!("Group {number}: {} images", group.len()), sets: vec![cards] });
    }
    let lead = format!(
        "{} of {} groups at {}. First, the pairs that just reach each value; then groups, those with the lowest scores \
         first. Marked images are kept; those that can be removed are selected.",
        order.len(),
        groups.len(),
        args.threshold
    );
    Sheet { title: "Duplicates", lead, rows }
}

/// Reads those images of groups whose first bytes are of a format with gray in more than 8 bits.
fn look_at_gray(args: &DuplicatesArgs, cancel: &Cancel, groups: &mut [Vec<Member>]) -> anyhow::Result<()> {
    let mut paths = Vec::new();
    let mut ids = HashMap::new();
    for member in groups.iter().filter(|group| group.iter().any(|member| member.reason == NEAR)).flatten() {
        let Some(file) = member.file.named.as_ref().filter(|file| file.is_whole()) else { continue };
        let mut start = Vec::new();
        let opened = file.path.as_ref().and_then(|path| File::open(path).ok());
        let read = opened.map(|file| file.take(DEEP_GRAY_BYTES as u64).read_to_end(&mut start));
        if matches!(read, Some(Ok(_))) && may_have_deep_gray(&start) {
            paths.push(member.path());
            ids.insert(member.id.as_str(), WantedPicture { is_shown: false, hash: member.hash });
        }
    }
    if ids.is_empty() || cancel.is_cancelled() {
        return Ok(());
    }
    let inputs = PictureInputs { images: &paths, manifest: None, others: &[] };
    let pictures = sheet::pictures(&args.search, &inputs, cancel, &ids)?;
    mark_clipped(groups, &pictures);
    Ok(())
}

fn mark_clipped(groups: &mut [Vec<Member>], pictures: &Pictures) {
    for member in groups.iter_mut().flatten() {
        member.is_clipped |= pictures.of.get(&member.id).is_some_and(|found| found.picture.pixels.is_none());
    }
}

/// For each value, the pairs with the lowest scores that reach it: they tell whether it suits as a threshold.
fn examples(args: &DuplicatesArgs, loaded: &Loaded, against: Option<&Loaded>, pairs: &[Vec<Pair>]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (value, pairs) in thresholds(args).into_iter().zip(pairs).filter(|(_, pairs)| !pairs.is_empty()) {
        let mut sets = Vec::new();
        for &Pair { row, other, score } in pairs {
            let sides = [(loaded, row), (against.unwrap_or(loaded), other)];
            sets.push(sides.map(|(of, row)| Card::scored(of, (row, score), false)).into());
        }
        rows.push(Row { heading: format!("Pairs from {value} on"), sets });
    }
    rows
}

fn write_groups(args: &DuplicatesArgs, groups: &[Vec<Member>]) -> anyhow::Result<()> {
    let mut table = Table::create(args.replace.file(&args.table.output), &DUPLICATES)?;
    let members = groups.iter().flatten();
    let numbers = groups.iter().enumerate().flat_map(|(number, group)| group.iter().map(move |_| number as u32));
    table.write(vec![
        Column::Count(numbers.collect()),
        Column::Text(members.clone().map(|member| member.id.clone()).collect()),
        Column::Flag(members.clone().map(|member| member.is_kept).collect()),
        Column::Score(members.clone().map(|member| member.score as f32).collect()),
        Column::Text(members.clone().map(|member| member.reason.to_owned()).collect()),
        Column::Count(members.clone().map(|member| member.size.0).collect()),
        Column::Count(members.clone().map(|member| member.size.1).collect()),
        Column::Flag(members.clone().map(|member| member.is_removable).collect()),
        Column::Text(members.clone().map(|member| member.kept_by.clone()).collect()),
    ])?;
    table.finish()
}
