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

/// Time and memory of so many rows.
struct Prediction {
    rows: usize,
    seconds: f64,
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
    search: impl Fn(&Search<'_>, &Vectors<'_>) -> Result<(), SearchError>,
) -> anyhow::Result<Exit> {
    let rows = loaded.ids.len();
    let dim = loaded.dim.max(1);
    let count = rows.min(SAMPLE);
    let chosen = (0..count).map(|number| (number as u64 * rows as u64 / count as u64) as usize);
    let data: Vec<f32> = chosen.flat_map(|row| &loaded.vectors[row * dim..][..dim]).copied().collect();
    let mut seconds = [0.0; 2];
    // Every other row is a sample, too.
    let half: Vec<f32> = data.chunks_exact(dim).step_by(2).flatten().copied().collect();
    for (data, seconds) in [&half, &data].into_iter().zip(&mut seconds) {
        let sample = Vectors::new(data, dim, metric)?;
        let started = Instant::now();
        let found = with_search(args, cancel, None, |watched| search(watched, &sample));
        let Some(()) = unless_cancelled(found)? else { return Ok(Exit::Interrupted) };
        *seconds = started.elapsed().as_secs_f64();
    }
    let of_row = loaded.ids.iter().map(|id| id.len() as u64 + 64).sum::<u64>() / loaded.ids.len().max(1) as u64;
    let mut predictions = Vec::new();
    for more in ROWS.into_iter().chain([rows]).filter(|&more| more > count && count >= LEAST) {
        predictions.push(Prediction {
            rows: more,
            seconds: grown(seconds, more as f64 / count as f64),
            memory: Search::memory(more, dim, k) + of_row * more as u64,
            vectors: (more * dim * 4) as u64,
        });
    }
    let seconds = seconds[1];
    predictions.sort_by_key(|prediction| prediction.rows);
    predictions.dedup_by_key(|prediction| prediction.rows);
    if args.json {
        let mut predicted = Vec::new();
        for Prediction { rows, seconds, memory, vectors } in &predictions {
            predicted.push(json!({
                "rows": rows, "seconds": seconds, "memory_bytes": memory, "vectors_bytes": vectors,
            }));
        }
        console::summary(json!({
            "rows": rows, "dim": dim, "measured_rows": count, "measured_seconds": seconds, "predicted": predicted,
        }));
        return Ok(Exit::Complete);
    }
    let mut out = console::stdout();
    writeln!(out, "{count} of {rows} rows take {}", human_duration(Duration::from_secs_f64(seconds)))?;
    if predictions.is_empty() {
        return Ok(Exit::Complete);
    }
    writeln!(out, "\n{:>11}  {:<14} {:<10} vectors", "rows", "time", "memory")?;
    for Prediction { rows, seconds, memory, vectors } in predictions {
        let time = human_duration(Duration::from_secs_f64(seconds));
        writeln!(out, "{rows:>11}  {time:<14} {:<10} {}", human_bytes(memory), human_bytes(vectors))?;
    }
    writeln!(
        out,
        "\nThe times hold if the share of pairs that are compared in full stays. It falls for most collections, and then \
         the search takes less. For many more rows, search in parts on several machines, or build an approximate index \
         (`foveate.export_index` in Python)."
    )?;
    Ok(Exit::Complete)
}

/// The time of `ratio` times the rows, of which half and all took these. A part of it grows as rows do, and the rest as
/// their pairs.
fn grown([half, all]: [f64; 2], ratio: f64) -> f64 {
    let of_pairs = (2.0 * all - 4.0 * half).clamp(0.0, all);
    (all - of_pairs) * ratio + of_pairs * ratio * ratio
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_grow_as_the_halves_of_a_sample_say() {
        for (halves, expected) in [([1.0, 4.0], 100.0 * 4.0), ([2.0, 4.0], 10.0 * 4.0), ([1.5, 4.0], 220.0)] {
            assert!((grown(halves, 10.0) - expected).abs() < 1e-9, "{halves:?}");
        }
        assert!((grown([9.0, 4.0], 10.0) - 40.0).abs() < 1e-9, "noise makes nothing smaller");
    }
}
