//! The summary of a job, as text and as JSON.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use foveate::embed::store_address;
use foveate::pipeline::{Changes, QueueStats, Recalled, RunReport, StageReport};
use foveate::profile::StageTotals;
use foveate::profile::card::CardUse;
use foveate::sink::{Finished, Published};
use foveate::source::ListingStats;
use serde_json::{Value, json};

/// Formats the text that is printed at a session's end.
pub(crate) fn text(report: &RunReport, output: &Path) -> String {
    let mut out = String::new();
    let _ = match &report.published {
        Some(published) => {
            writeln!(out, "{}", outcome(published.rows, published.failures))
        }
        None => writeln!(out, "{} of {} inputs settled", report.settled, number(report.inputs)),
    };
    if let Some(changes) = &report.changes {
        out += &changes_text(changes);
        if changes.added + changes.changed == 0 {
            return out;
        }
    }
    if report.resumed > 0 {
        let _ = writeln!(out, "{} of them by earlier sessions", report.resumed);
    }
    let settled = report.rows + report.failures;
    let _ = writeln!(
        out,
        "{settled} in {} = {:.1} images/s, {} read",
        human_duration(report.wall),
        report.throughput(),
        human_bytes(report.bytes)
    );
    let Recalled { run, output: had, cache } = report.recalled;
    if run + had + cache > 0 {
        let computed = report.computed();
        let _ = write!(out, "vectors: {computed} computed, {run} of equal images");
        if had > 0 {
            let _ = write!(out, ", {had} of renamed or earlier inputs");
        }
        let _ = writeln!(out, ", {cache} from the cache");
    }
    if report.clipped > 0 {
        let images = counted(report.clipped, "image");
        let _ = writeln!(
            out,
            "note: {images} of gray in more than 8 bits or in floats: clipped to 0..255 as Pillow does, so that different \
             ones may have equal vectors; convert them first (docs/pixels.md)"
        );
    }
    stage_table(&mut out, &report.stages);
    queue_table(&mut out, &report.queues);
    if let Some(stage) = report.bottleneck() {
        let _ = writeln!(out, "\nbottleneck: {} (busy {:.0} % of the time)", stage.stage, 100.0 * stage.utilization);
    }
    match &report.published {
        Some(published) => published.files.iter().for_each(|file| {
            let _ = writeln!(out, "wrote {}", file.display());
        }),
        None => {
            let kept = if store_address(output).is_some() { " after its last complete part" } else { "" };
            let _ = writeln!(out, "interrupted: run the same command again to continue {}{kept}", output.display());
        }
    }
    out
}

/// Formats the use of the forward's cards in a line.
pub(crate) fn cards_text(used: &Result<CardUse, String>) -> String {
    match used {
        Ok(CardUse { busy, memory_bytes }) => {
            let memory = human_bytes(*memory_bytes);
            format!("device: busy {:.0} % of the time, {memory} of its memory in use\n", 100.0 * busy)
        }
        Err(why) => format!("device: no figures: {why}\n"),
    }
}

/// Formats the same as JSON; null on a CPU.
pub(crate) fn cards_json(used: Option<&Result<CardUse, String>>) -> Value {
    match used {
        None => Value::Null,
        Some(Ok(CardUse { busy, memory_bytes })) => json!({ "busy": busy, "memory_bytes": memory_bytes }),
        Some(Err(why)) => json!({ "reason": why }),
    }
}

/// Formats what an update found, or would find.
pub(crate) fn changes_text(changes: &Changes) -> String {
    let Changes { kept, added, changed, gone, pruned, unreadable, by_time, by_tag, by_content, .. } = changes;
    let gone_are = if *pruned { "removed" } else { "gone and kept" };
    let mut out = format!("{kept} kept, {added} added, {changed} changed or tried again, {gone} {gone_are}\n");
    if by_time + by_tag + by_content > 0 {
        let _ = writeln!(out, "compared: {by_time} by time and length, {by_tag} by ETag, {by_content} by content");
    }
    if *unreadable > 0 {
        let _ = writeln!(out, "{unreadable} of those kept could not be read; the output has what it had of them");
    }
    out
}

fn changes_json(changes: &Changes) -> Value {
    let Changes { kept, added, changed, gone, pruned, unreadable, by_time, by_tag, by_content, .. } = changes;
    json!({
        "kept": kept, "added": added, "changed": changed, "gone": gone, "pruned": pruned, "unreadable": unreadable,
        "compared": { "time": by_time, "etag": by_tag, "content": by_content },
    })
}

/// Formats what an update would find as JSON.
pub(crate) fn preview_json(changes: &Changes, listed: &ListingStats, output: &Path) -> Value {
    json!({
        "status": "dry run",
        "output": output.display().to_string(),
        "left_out": left_out(listed),
        "linked": listed.linked,
        "update": changes_json(changes),
    })
}

fn stage_table(out: &mut String, stages: &[StageReport]) {
    let _ = writeln!(
        out,
        "\n{:<8} {:>7} {:>10} {:>6} {:>6} {:>10} {:>10}",
        "stage", "threads", "busy", "share", "used", "p50", "p99"
    );
    for stage in stages.iter().filter(|stage| stage.totals.count > 0) {
        let totals = &stage.totals;
        let _ = writeln!(
            out,
            "{:<8} {:>7} {:>10} {:>5.1}% {:>5.1}% {:>10} {:>10}",
            totals.name,
            stage.threads,
            human_duration(totals.busy),
            100.0 * stage.share,
            100.0 * stage.utilization,
            human_duration(totals.p50),
            human_duration(totals.p99)
        );
    }
}

fn queue_table(out: &mut String, queues: &[QueueStats]) {
    if queues.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "\n{:<16} {:>8} {:>9} {:>14} {:>14}",
        "queue", "capacity", "occupancy", "producers wait", "consumers wait"
    );
    for queue in queues {
        let _ = writeln!(
            out,
            "{:<16} {:>8} {:>8.0}% {:>14} {:>14}",
            queue.name,
            queue.capacity,
            100.0 * queue.occupancy,
            human_duration(queue.producer_wait),
            human_duration(queue.consumer_wait)
        );
    }
}

/// Formats the same as JSON: durations in seconds, shares and occupancies from 0 to 1.
pub(crate) fn json(report: &RunReport, listed: &ListingStats, output: &Path) -> Value {
    let published = report.published.as_ref();
    json!({
        "status": status(report),
        "output": output.display().to_string(),
        "files": published.map(|p| p.files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>()),
        "inputs": report.inputs,
        "settled": report.settled,
        "vectors": published.map(|p| p.rows),
        "failures": published.map(|p| p.failures),
        "left_out": left_out(listed),
        "linked": listed.linked,
        "update": report.changes.as_ref().map(changes_json),
        "session": {
            "resumed": report.resumed,
            "vectors": report.rows,
            "failures": report.failures,
            "failure_kinds": report.failure_kinds,
            "computed": report.computed(),
            "from_run": report.recalled.run,
            "from_output": report.recalled.output,
            "from_cache": report.recalled.cache,
            "clipped": report.clipped,
            "bytes": report.bytes,
            "seconds": report.wall.as_secs_f64(),
            "images_per_second": report.throughput(),
        },
        "stages": report.stages.iter().map(stage_json).collect::<Vec<_>>(),
        "encode_parts": report.encode_parts.iter().map(part_json).collect::<Vec<_>>(),
        "queues": report.queues.iter().map(queue_json).collect::<Vec<_>>(),
        "bottleneck": report.bottleneck().map(|stage| stage.stage.name()),
    })
}

/// The files in folders that are not inputs, by the reason; images in formats that no decoder reads, by extension.
pub(crate) fn left_out(listed: &ListingStats) -> Value {
    json!({
        "foreign": listed.skipped_foreign,
        "containers": listed.skipped_containers,
        "other": listed.skipped_other,
        "hidden": listed.skipped_hidden,
        "system": listed.skipped_system,
        "excluded": listed.skipped_excluded,
    })
}

/// Formats a finished run that the same command found.
pub(crate) fn already_complete(done: &Finished, listed: &ListingStats) -> Value {
    let Published { rows, failures, .. } = done.published;
    json!({
        "status": "already complete",
        "output": done.path.display().to_string(),
        "inputs": rows + failures,
        "settled": rows + failures,
        "vectors": rows,
        "failures": failures,
        "left_out": left_out(listed),
        "linked": listed.linked,
    })
}

fn status(report: &RunReport) -> &'static str {
    match &report.published {
        None => "interrupted",
        Some(published) if published.rows == 0 => "failed",
        Some(_) => "complete",
    }
}

fn stage_json(stage: &StageReport) -> Value {
    let totals = &stage.totals;
    json!({
        "stage": totals.name,
        "threads": stage.threads,
        "count": totals.count,
        "busy_seconds": totals.busy.as_secs_f64(),
        "share": stage.share,
        "utilization": stage.utilization,
        "p50_seconds": totals.p50.as_secs_f64(),
        "p90_seconds": totals.p90.as_secs_f64(),
        "p99_seconds": totals.p99.as_secs_f64(),
    })
}

/// Formats one stage. Times on a device come from the device's clock. There, `busy_seconds` of `forward` ÷ the
/// session's `seconds` is the device's share of computing time.
fn part_json(part: &StageTotals) -> Value {
    json!({
        "part": part.name,
        "count": part.count,
        "busy_seconds": part.busy.as_secs_f64(),
        "p50_seconds": part.p50.as_secs_f64(),
        "p90_seconds": part.p90.as_secs_f64(),
        "p99_seconds": part.p99.as_secs_f64(),
    })
}

fn queue_json(queue: &QueueStats) -> Value {
    json!({
        "queue": queue.name,
        "capacity": queue.capacity,
        "passed": queue.passed,
        "occupancy": queue.occupancy,
        "producer_wait_seconds": queue.producer_wait.as_secs_f64(),
        "consumer_wait_seconds": queue.consumer_wait.as_secs_f64(),
    })
}

/// Formats a duration with three significant digits in a suitable unit: `812 µs`, `4.15 ms`, `31.0 s`, `2 h 05 min`.
pub(crate) fn human_duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    let digits = |value: f64, unit: &str| match value {
        v if v < 10.0 => format!("{v:.2} {unit}"),
        v if v < 100.0 => format!("{v:.1} {unit}"),
        v => format!("{v:.0} {unit}"),
    };
    match seconds {
        s if s < 1e-6 => digits(s * 1e9, "ns"),
        s if s < 1e-3 => digits(s * 1e6, "µs"),
        s if s < 1.0 => digits(s * 1e3, "ms"),
        s if s < 600.0 => digits(s, "s"),
        s => format!("{} h {:02} min", s as u64 / 3600, s as u64 % 3600 / 60),
    }
}

/// Formats what became of all inputs.
pub(crate) fn outcome(rows: u64, failures: u64) -> String {
    let [inputs, rows, failures] = [(rows + failures, "input"), (rows, "vector"), (failures, "failure")]
        .map(|(count, thing)| counted(count, thing));
    format!("{inputs} = {rows} + {failures}")
}

/// Formats a number of things: `1 input`, `2 inputs`.
pub(crate) fn counted(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// Formats a number of inputs for a sentence.
pub(crate) fn number(inputs: Option<u64>) -> String {
    inputs.map_or_else(|| "an unknown number of".to_owned(), |inputs| inputs.to_string())
}

/// Formats bytes in decimal units: `512 B`, `27.1 MB`.
pub(crate) fn human_bytes(bytes: u64) -> String {
    let (value, unit) = match bytes {
        0..1_000 => return format!("{bytes} B"),
        1_000..1_000_000 => (bytes as f64 / 1e3, "kB"),
        1_000_000..1_000_000_000 => (bytes as f64 / 1e6, "MB"),
        _ => (bytes as f64 / 1e9, "GB"),
    };
    format!("{value:.1} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_are_readable() {
        assert_eq!(human_duration(Duration::from_nanos(4_150_000)), "4.15 ms");
        assert_eq!(human_duration(Duration::from_secs(31)), "31.0 s");
        assert_eq!(human_duration(Duration::from_secs(7_500)), "2 h 05 min");
        assert_eq!(human_bytes(27_123_456), "27.1 MB");
        assert_eq!(human_bytes(999), "999 B");
    }

    #[test]
    fn cards_have_their_figures_or_the_reason() {
        let used = Ok(CardUse { busy: 0.874, memory_bytes: 1_230_000_000 });
        assert_eq!(cards_text(&used), "device: busy 87 % of the time, 1.2 GB of its memory in use\n");
        assert_eq!(cards_json(Some(&used))["memory_bytes"], 1_230_000_000_u64);
        let unknown = Err("no driver".to_owned());
        assert_eq!(cards_text(&unknown), "device: no figures: no driver\n");
        assert_eq!((&cards_json(Some(&unknown))["reason"], cards_json(None)), (&"no driver".into(), Value::Null));
    }
}
