//! `foveate clusters` and `foveate sample`.

use std::cmp::Reverse;
use std::collections::HashSet;

use foveate::pipeline::Cancel;
use foveate::profile::process::peak_resident_bytes;
use foveate::search::{ClusterOptions, Clusters, Metric, Search};
use foveate::source::NamedFile;
use foveate_sink_parquet::Column;
use serde_json::json;

use super::place::{CLUSTERS, SAMPLE};
use super::sheet::{Card, MOST, PictureInputs, Row, Sheet, begin_sheet, pictures};
use super::table::Table;
use super::vectors::{Loaded, load};
use super::{BLOCK, announce, begin, unless_cancelled, warn_of_skipped, with_search};
use crate::cli::console;
use crate::cli::exit::Exit;
use crate::cli::labels::Labels;
use crate::cli::search_args::{ClusterCount, ClustersArgs, SampleArg, SampleArgs, SampleSize, SearchArgs};
use crate::cli::summary::counted;

/// Most clusters of `-k auto`: more are no overview.
const MOST_AUTO: usize = 1000;
/// Images of a cluster that a page shows: typical ones, and then outliers.
const SHOWN: (usize, usize) = (8, 4);

pub(crate) fn clusters(args: &ClustersArgs) -> anyhow::Result<Exit> {
    let labels = begin_sheet(&args.search, &args.sheet, false)?;
    let (loaded, _) = load(&args.search.with(&args.sheet.labels), &[], Some(&args.table.output), Metric::Cosine)?;
    let labels = loaded.page_labels(labels, &args.sheet.labels)?;
    let cancel = begin()?;
    let vectors = loaded.vectors(Metric::Cosine)?;
    let rows = vectors.finite().count();
    let k = match args.k {
        ClusterCount::Given(k) => k,
        ClusterCount::Auto => ((rows as f64 / 2.0).sqrt().round() as usize).clamp(1, MOST_AUTO),
    };
    let memory = announce(&args.search, &loaded, loaded.ids.len(), |_| {
        Search::memory_of_clusters(loaded.ids.len(), loaded.dim, k.min(rows))
    });
    if matches!(args.k, ClusterCount::Auto) && !args.search.quiet {
        console::say!("note: -k auto is {k}, the square root of half of {rows} images, at most {MOST_AUTO}");
    }
    let options = ClusterOptions { k, ..ClusterOptions::default() };
    let found = with_search(&args.search, &cancel, None, |search| search.clusters(&vectors, &options));
    let Some(found) = unless_cancelled(found)? else { return Ok(Exit::Interrupted) };
    tell_of_fewer(&args.search, "cluster", k, found.len(), rows);
    let members = found.members();
    write_clusters(args, &loaded, &found, &members)?;
    if let Some(path) = &args.sheet.page.html {
        let sheet = of_clusters(&loaded, &members);
        let inputs = PictureInputs { images: &args.sheet.page.images, manifest: loaded.manifest.as_ref(), others: &[] };
        let found = pictures(&args.search, &inputs, &cancel, &sheet.ids())?;
        if cancel.is_cancelled() {
            return Ok(Exit::Interrupted);
        }
        sheet.write(args.replace.file(path), &found, labels.as_ref())?;
    }
    let skipped = vectors.len() - rows;
    let least = members.iter().map(Vec::len).min().unwrap_or(0);
    let most = members.iter().map(Vec::len).max().unwrap_or(0);
    let mean = found_scores(&found, vectors.len()).sum::<f64>() / (vectors.len() - skipped).max(1) as f64;
    let output = args.table.output.display();
    if args.search.json {
        console::summary(json!({
            "status": "complete", "output": output.to_string(), "rows": loaded.ids.len(), "not_finite": skipped,
            "clusters": found.len(), "smallest": least, "largest": most, "mean_score": mean, "k": k,
            "memory_bytes": memory, "peak_resident_bytes": peak_resident_bytes(),
        }));
    } else if !args.search.quiet {
        console::summary(format_args!(
            "{output} has {} clusters of {least} to {most} images; their mean cosine to the centres is {mean:.3}",
            found.len()
        ));
    }
    warn_of_skipped(skipped);
    Ok(Exit::Complete)
}

fn found_scores(found: &Clusters, rows: usize) -> impl Iterator<Item = f64> + '_ {
    (0..rows).filter_map(|row| found.of(row)).map(|(_, score)| score)
}

fn write_clusters(
    args: &ClustersArgs,
    loaded: &Loaded,
    found: &Clusters,
    members: &[Vec<(u32, f64)>],
) -> anyhow::Result<()> {
    let mut ranks = vec![0; loaded.ids.len()];
    for members in members {
        (1..).zip(members).for_each(|(rank, &(row, _))| ranks[row as usize] = rank);
    }
    let rows: Vec<_> = (0..loaded.ids.len()).filter_map(|row| Some((row, found.of(row)?))).collect();
    let mut table = Table::create(args.replace.file(&args.table.output), &CLUSTERS)?;
    // A table without rows has a block, too.
    for begin in (0..rows.len().max(1)).step_by(BLOCK) {
        let rows = &rows[begin..(begin + BLOCK).min(rows.len())];
        table.write(vec![
            Column::Text(rows.iter().map(|&(row, _)| loaded.ids[row].to_string()).collect()),
            Column::Count(rows.iter().map(|&(_, (cluster, _))| cluster).collect()),
            Column::Count(rows.iter().map(|&(row, _)| ranks[row]).collect()),
            Column::Score(rows.iter().map(|&(_, (_, score))| score as f32).collect()),
        ])?;
    }
    table.finish()
}

fn of_clusters(loaded: &Loaded, members: &[Vec<(u32, f64)>]) -> Sheet {
    let mut headings = Vec::new();
    for (cluster, members) in members.iter().enumerate() {
        headings.push(format!("Cluster {cluster}: {}", counted(members.len() as u64, "image")));
    }
    let rows = grouped(loaded, members, &headings);
    let lead = format!(
        "{} of {} clusters, large ones first: the most typical images, which are marked, and those that are least so.",
        rows.len(),
        members.len()
    );
    Sheet { title: "Clusters", lead, rows }
}

/// Rows of groups, large ones first: the first members of each, which are marked, and its last ones.
pub(super) fn grouped(loaded: &Loaded, groups: &[Vec<(u32, f64)>], headings: &[String]) -> Vec<Row> {
    let mut order: Vec<usize> = (0..groups.len()).filter(|&group| !groups[group].is_empty()).collect();
    order.sort_by_key(|&group| Reverse(groups[group].len()));
    let mut rows = Vec::new();
    for group in order.into_iter().take(MOST / (SHOWN.0 + SHOWN.1)) {
        let members = &groups[group];
        let outliers = members.len().saturating_sub(SHOWN.1).max(SHOWN.0.min(members.len()));
        let typical = members.iter().take(SHOWN.0).map(|&member| Card::scored(loaded, member, true));
        let last = members[outliers..].iter().map(|&member| Card::scored(loaded, member, false));
        rows.push(Row { heading: headings[group].clone(), sets: vec![typical.chain(last).collect()] });
    }
    rows
}

pub(crate) fn sample(args: &SampleArgs) -> anyhow::Result<Exit> {
    let labels = begin_sheet(&args.search, &args.sheet, false)?;
    let (loaded, _) = load(&args.search.with(&args.sheet.labels), &[], Some(&args.table.output), Metric::Cosine)?;
    let labels = loaded.page_labels(labels, &args.sheet.labels)?;
    let cancel = begin()?;
    let vectors = loaded.vectors(Metric::Cosine)?;
    let rows = vectors.finite().count();
    let n = match args.n {
        SampleSize::Given(n) => n,
        SampleSize::Share(share) => (rows as f64 * share).ceil() as usize,
    };
    // Those that are chosen are written as a whole.
    let memory = announce(&args.search, &loaded, loaded.ids.len(), |_| {
        let of_chosen = loaded.ids.iter().map(|id| 4 * id.len() as u64 + 200).max().unwrap_or(0) * n.min(rows) as u64;
        let centres = if args.by == SampleArg::Clusters { n.min(rows) } else { 1 };
        of_chosen + Search::memory_of_clusters(loaded.ids.len(), loaded.dim, centres)
    });
    let chosen = with_search(&args.search, &cancel, None, |search| match args.by {
        SampleArg::Spread => search.spread_out(&vectors, n),
        SampleArg::Clusters => {
            let found = search.clusters(&vectors, &ClusterOptions { k: n, ..ClusterOptions::default() })?;
            let mut members = found.members();
            members.sort_by_key(|members| Reverse(members.len()));
            Ok(members.iter().filter_map(|members| members.first()).map(|&(row, score)| (row, Some(score))).collect())
        }
    });
    let Some(mut chosen) = unless_cancelled(chosen)? else { return Ok(Exit::Interrupted) };
    tell_of_fewer(&args.search, "image", n, chosen.len(), rows);
    let before = chosen.len();
    let mut seen = HashSet::new();
    chosen
        .retain(|&(row, _)| NamedFile::of_id(&loaded.ids[row as usize]).is_none_or(|file| seen.insert(file.identity)));
    if chosen.len() < before && !args.search.quiet {
        let names = counted((before - chosen.len()) as u64, "name");
        console::say!("note: {names} of files that are in the sample already left out");
    }
    let scores = chosen.iter().map(|&(_, score)| score.map_or(f32::NAN, |score| score as f32));
    let mut table = Table::create(args.replace.file(&args.table.output), &SAMPLE)?;
    table.write(vec![
        Column::Text(chosen.iter().map(|&(row, _)| loaded.ids[row as usize].to_string()).collect()),
        Column::Count((1..=chosen.len() as u32).collect()),
        Column::Score(scores.collect()),
    ])?;
    table.finish()?;
    show_sample(args, &cancel, &loaded, &chosen, labels.as_ref())?;
    if cancel.is_cancelled() {
        return Ok(Exit::Interrupted);
    }
    let output = args.table.output.display();
    if args.search.json {
        let rows = loaded.ids.len();
        console::summary(json!({
            "status": "complete", "output": output.to_string(), "rows": rows, "chosen": chosen.len(),
            "memory_bytes": memory, "peak_resident_bytes": peak_resident_bytes(),
        }));
    } else if !args.search.quiet {
        console::summary(format_args!("{output} has {} of {} images", chosen.len(), loaded.ids.len()));
    }
    warn_of_skipped(vectors.len() - vectors.finite().count());
    Ok(Exit::Complete)
}

/// Says why there is less than was asked for.
fn tell_of_fewer(args: &SearchArgs, what: &str, asked: usize, found: usize, rows: usize) {
    if found >= asked || args.quiet {
        return;
    }
    let why = match rows < asked {
        true => format!("there are {} with a vector", counted(rows as u64, "image")),
        false => "further clusters would be empty, because images are alike".to_owned(),
    };
    console::say!("note: {} instead of {asked}: {why}", counted(found as u64, what));
}

fn show_sample(
    args: &SampleArgs,
    cancel: &Cancel,
    loaded: &Loaded,
    chosen: &[(u32, Option<f64>)],
    labels: Option<&Labels>,
) -> anyhow::Result<()> {
    let Some(path) = &args.sheet.page.html else { return Ok(()) };
    let cards = chosen.iter().take(MOST).map(|&(row, score)| match score {
        Some(score) => Card::scored(loaded, (row, score), false),
        None => Card { caption: "first".to_owned(), ..Card::scored(loaded, (row, 0.0), false) },
    });
    let row = Row { heading: "In the order of choice".to_owned(), sets: vec![cards.collect()] };
    let lead = format!("{} of {} images.", chosen.len(), loaded.ids.len());
    let page = Sheet { title: "Sample", lead, rows: vec![row] };
    let inputs = PictureInputs { images: &args.sheet.page.images, manifest: loaded.manifest.as_ref(), others: &[] };
    let found = pictures(&args.search, &inputs, cancel, &page.ids())?;
    if cancel.is_cancelled() { Ok(()) } else { page.write(args.replace.file(path), &found, labels) }
}
