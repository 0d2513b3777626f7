//! `foveate neighbors`.

use std::time::Instant;

use foveate::Shard;
use foveate::profile::process::peak_resident_bytes;
use foveate::search::{Search, Vectors};
use foveate_sink_parquet::Column;
use serde_json::json;

use super::estimate::estimate;
use super::place::NEIGHBORS;
use super::state::StateFile;
use super::table::Table;
use super::vectors::load;
use super::{BLOCK, announce, begin, of_pairs, unless_cancelled, warn_of_skipped, with_search};
use crate::cli::console;
use crate::cli::exit::Exit;
use crate::cli::search_args::{NeighborsArgs, SearchArgs};
use crate::cli::summary::human_duration;

pub(crate) fn neighbors(args: &NeighborsArgs) -> anyhow::Result<Exit> {
    let started = Instant::now();
    let (SearchArgs { quiet, json, .. }, output) = (&args.search, &args.table.output);
    let (loaded, queries) = load(&args.search, &args.queries, Some(output), args.metric)?;
    let cancel = begin()?;
    let asked_rows = queries.as_ref().map_or(loaded.ids.len(), |queries| queries.ids.len());
    let memory = announce(&args.search, &loaded, asked_rows * args.k as usize, |_| {
        let of_asked = Search::memory(asked_rows, loaded.dim, args.k as usize + 1);
        let is_one = queries.is_none() && args.shard.is_none();
        of_asked + if is_one { 0 } else { Search::memory(loaded.ids.len(), loaded.dim, 0) }
    });
    if args.dry_run {
        let of = (&loaded, args.k as usize, args.metric.into());
        return estimate(&args.search, &cancel, of, |search, sample| {
            search.neighbors(sample, args.k as usize).map(drop)
        });
    }
    let vectors = loaded.vectors(args.metric)?;
    let part = args.shard.map(|Shard { index, count }| {
        let [begin, end] = [index, index + 1].map(|index| vectors.len() as u64 * u64::from(index) / u64::from(count));
        begin as usize..end as usize
    });
    let asked = match (&queries, &part) {
        (Some(queries), _) => Some(queries.vectors(args.metric)?),
        (None, Some(part)) => {
            let components = part.start * vectors.dim()..part.end * vectors.dim();
            Some(Vectors::new(&loaded.vectors[components], vectors.dim(), args.metric.into())?)
        }
        (None, None) => None,
    };
    // A row of a part finds itself, too.
    let k = args.k as usize + usize::from(part.is_some());
    let state = StateFile::beside(output, *quiet);
    let found = with_search(&args.search, &cancel, Some(&state), |search| match &asked {
        Some(asked) => search.nearest(asked, &vectors, k),
        None => search.neighbors(&vectors, k),
    });
    let Some(found) = unless_cancelled(found)? else { return Ok(Exit::Interrupted) };
    let ids = &queries.as_ref().unwrap_or(&loaded).ids;
    let first = part.as_ref().map_or(0, |part| part.start);
    let mut table = Table::create(args.replace.file(output), &NEIGHBORS)?;
    // A table without rows has a block, too.
    let block = (BLOCK / args.k as usize).max(1);
    for begin in (0..found.len().max(1)).step_by(block) {
        let mut id = Vec::new();
        let mut neighbor = Vec::new();
        let mut rank = Vec::new();
        let mut score = Vec::new();
        for row in begin..(begin + block).min(found.len()) {
            let others = found.of(row).filter(|&(other, _)| part.is_none() || other as usize != first + row);
            for ((other, value), number) in others.take(args.k as usize).zip(1..) {
                id.push(ids[first + row].to_string());
                neighbor.push(loaded.ids[other as usize].to_string());
                rank.push(number);
                score.push(value as f32);
            }
        }
        table.write(vec![Column::Text(id), Column::Text(neighbor), Column::Count(rank), Column::Score(score)])?;
    }
    table.finish()?;
    state.remove();
    let rows = found.len();
    let skipped = rows - asked.as_ref().unwrap_or(&vectors).finite().count();
    let took = started.elapsed();
    let stats = found.stats();
    if *json {
        console::summary(json!({
            "status": "complete", "output": output.display().to_string(), "rows": rows, "k": args.k, "not_finite": skipped,
            "pairs": stats.pairs, "scored": stats.scored, "width": stats.width, "seconds": took.as_secs_f64(),
            "memory_bytes": memory, "peak_resident_bytes": peak_resident_bytes(),
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
