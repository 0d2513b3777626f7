//! `--dry-run`: what a search takes, measured on some of its rows.

use std::io::Write;
use std::time::{Duration, Instant};

use foveate::pipeline::Cancel;
use foveate::search::{Metric, Search, SearchError, Vectors};
use serde_json::json;

use super::vectors::Loaded;
use super::{unless_cancelled, with_search};
use crate::cli::console;
use crate::cli::exit::Exit;
use crate::cli::search_args::SearchArgs;
use crate::cli::summary::{human_bytes, human_duration};

/// Rows that are searched.
const SAMPLE: usize = 50_000;
/// Numbers of rows whose time is predicted, besides that of all rows.
const ROWS: [usize; 3] = [1_000_000, 10_000_000, 100_000_000];
/// Least rows from which more are predicted: with fewer, other things than pairs take the time.
const LEAST: usize = 20_000;
const AN_HOUR: f64 = 3600.0;

/// What so many rows take. The share of pairs that are computed in full falls with their number, so the time grows with
/// a power of it between 1.5 and 2.
struct Prediction {
    rows: usize,
    seconds: [f64; 2],
    /// Bytes of the search, without the vectors.
    memory: u64,
    /// Bytes of the vectors, which are in a file if they are many.
    vectors: u64,
}

/// Searches some rows, and predicts what all of them and more take. `search` finds `k` neighbours of each row, or none.
pub(super) fn estimate(
    args: &SearchArgs,
    cancel: &Cancel,
    (loaded, k, metric): (&Loaded, usize, Metric),
    search: impl FnOnce(&Search<'_>, &Vectors<'_>) -> Result<(), SearchError>,
) -> anyhow::Result<Exit> {
    let (rows, dim) = (loaded.ids.len(), loaded.dim.max(1));
    let count = rows.min(SAMPLE);
    let chosen = (0..count).map(|number| (number as u64 * rows as u64 / count as u64) as usize);
    let data: Vec<f32> = chosen.flat_map(|row| &loaded.vectors[row * dim..][..dim]).copied().collect();
    let sample = Vectors::new(&data, dim, metric)?;
    let started = Instant::now();
    let found = with_search(args, cancel, None, |watched| search(watched, &sample));
    let Some(()) = unless_cancelled(found)? else { return Ok(Exit::Interrupted) };
    let seconds = started.elapsed().as_secs_f64();
    let more = ROWS.into_iter().chain([rows]).filter(|&rows| rows > count && count >= LEAST);
    let mut predictions: Vec<Prediction> = more.map(|rows| predict(seconds, count, (rows, dim, k))).collect();
    predictions.sort_by_key(|prediction| prediction.rows);
    predictions.dedup_by_key(|prediction| prediction.rows);
    if args.json {
        let of = |Prediction { rows, seconds: [from, to], memory, vectors }: &Prediction| {
            json!({
                "rows": rows, "seconds_from": from, "seconds_to": to, "memory_bytes": memory, "vectors_bytes": vectors,
            })
        };
        console::summary(json!({
            "rows": rows, "dim": dim, "measured_rows": count, "measured_seconds": seconds,
            "predicted": predictions.iter().map(of).collect::<Vec<_>>(),
        }));
        return Ok(Exit::Complete);
    }
    let time = |seconds: f64| human_duration(Duration::from_secs_f64(seconds));
    let mut out = console::stdout();
    writeln!(out, "{count} of {rows} rows take {}", time(seconds))?;
    if predictions.is_empty() {
        return Ok(Exit::Complete);
    }
    writeln!(out, "\n{:>11}  {:<28} {:<10} vectors", "rows", "time", "memory")?;
    for Prediction { rows, seconds: [least, most], memory, vectors } in predictions {
        let times = format!("{} to {}", time(least), time(most));
        writeln!(out, "{rows:>11}  {times:<28} {:<10} {}", human_bytes(memory), human_bytes(vectors))?;
    }
    let in_an_hour = count as f64 * (AN_HOUR / seconds.max(1e-3)).sqrt();
    writeln!(
        out,
        "\nAn hour is enough for {:.1} million rows. For many more, search in parts on several machines, or build an \
         approximate index (`foveate.export_index` in Python).",
        in_an_hour / 1e6
    )?;
    Ok(Exit::Complete)
}

fn predict(seconds: f64, measured: usize, (rows, dim, k): (usize, usize, usize)) -> Prediction {
    let ratio = rows as f64 / measured.max(1) as f64;
    let vectors = rows as u64 * dim as u64 * 4;
    let seconds = [ratio.powf(1.5) * seconds, ratio * ratio * seconds];
    Prediction { rows, seconds, memory: Search::memory(rows, dim, k), vectors }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_rows_take_more_than_their_share() {
        let Prediction { seconds, memory, vectors, .. } = predict(2.0, 50_000, (200_000, 384, 10));
        assert_eq!((seconds, vectors), ([16.0, 32.0], 200_000 * 384 * 4));
        assert!(memory > 200_000 * 384);
    }
}
