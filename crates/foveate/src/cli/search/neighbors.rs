//! `foveate neighbors`.

use std::time::Instant;

use foveate::search::Neighbors;
use foveate_sink_parquet::Column;
use serde_json::json;

use super::table::Table;
use super::vectors::load;
use super::{announce, begin, of_pairs, unless_cancelled, warn_of_skipped, with_search};
use crate::cli::console;
use crate::cli::exit::Exit;
use crate::cli::search_args::{NeighborsArgs, SearchArgs};
use crate::cli::summary::human_duration;

/// Rows of a table that are written together.
const BLOCK: usize = 1 << 16;

pub(crate) fn neighbors(args: &NeighborsArgs) -> anyhow::Result<Exit> {
    const NAMES: &[&str] = &["id", "neighbor", "rank", "score"];
    let (cancel, started) = (begin()?, Instant::now());
    let (SearchArgs { quiet, json, .. }, output) = (&args.search, &args.table.output);
    let (loaded, queries) = load(&args.search, &args.queries)?;
    announce(&args.search, &loaded, args.k as usize);
    let vectors = loaded.vectors(args.metric)?;
    let asked = queries.as_ref().map(|queries| queries.vectors(args.metric)).transpose()?;
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
