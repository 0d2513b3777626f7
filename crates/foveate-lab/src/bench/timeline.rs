//! Who worked on what when, before and after a change.

use std::time::Duration;

use foveate_profile::{Trace, TraceSpan};

use super::cells::usual_output;
use crate::{Cell, Lab, LabError, PhotoSet, Setting, Table, schema};

/// Maximum number of events of a trace.
const MOST_EVENTS: usize = 1_000_000;
/// Share of the window below which a span is left out, because no figure shows it.
const VISIBLE: f64 = 1.0 / 2000.0;
/// The window is shorter where the faster run would have more spans than this in it.
const MOST_SPANS: usize = 2000;

/// Runs the setting before a change and the one after it, each with its number of images. Returns which thread worked
/// on what, [`schema::TIMELINE`]. The rows are from the middle of each run and cover the same time: half of the first
/// run, or what 2000 spans of the second take. So the denser timeline is the faster one.
///
/// # Errors
/// The errors of [`Lab::run`].
pub fn timeline(
    lab: &Lab<'_>,
    photos: &PhotoSet,
    (before, images): (&Setting, u64),
    (after, images_after): (&Setting, u64),
) -> Result<Table, LabError> {
    let mut table = Table::new(&schema::TIMELINE);
    let before_spans = traced(lab, photos, before, images)?;
    let after_spans = traced(lab, photos, after, images_after)?;
    let [half, whole_after] =
        [(&before_spans, 2), (&after_spans, 1)].map(|(spans, part)| (end(spans) - start(spans)) / part);
    let window = half.min(whole_after.mul_f64(MOST_SPANS as f64 / after_spans.len().max(1) as f64));
    add(&mut table, "before", &before_spans, window);
    add(&mut table, &format!("after: {}", before.changes_to(after)), &after_spans, window);
    Ok(table)
}

/// Runs the job and returns the spans of its threads and its forward.
fn traced(lab: &Lab<'_>, photos: &PhotoSet, setting: &Setting, images: u64) -> Result<Vec<TraceSpan>, LabError> {
    lab.watch.doing(&format!("timeline, {}: {setting}", photos.name));
    let trace = Trace::new(MOST_EVENTS);
    let sink = lab.sink(&usual_output(lab), photos)?;
    let source = photos.stored(setting, images)?;
    let mut pipeline = lab.pipeline(setting, source, Box::new(lab.encoder(setting)?), Box::new(sink.clone()));
    pipeline.config.trace = Some(trace.clone());
    lab.carry_out(pipeline, &sink, images)?;
    let mut spans = trace.spans();
    spans.retain(|span| lane(span).is_some());
    spans.sort_by_key(|span| span.start);
    Ok(spans)
}

/// Returns the number of the thread that a track is called after, from 1.
fn number(track: &str) -> usize {
    track.parse::<usize>().map_or(1, |n| n + 1)
}

/// Returns the lane of a span; `None` for copies to and from a device, and for the thread that waits for the forward.
fn lane(span: &TraceSpan) -> Option<String> {
    match (span.track.split_once('-'), span.name) {
        (_, "forward") => Some("encoder".to_owned()),
        (_, "write") => Some("writer".to_owned()),
        (Some(("read", n)), _) => Some(format!("reader {}", number(n))),
        (Some(("decode", n)), _) => Some(format!("worker {}", number(n))),
        _ => None,
    }
}

fn start(spans: &[TraceSpan]) -> Duration {
    spans.iter().map(|span| span.start).min().unwrap_or_default()
}

fn end(spans: &[TraceSpan]) -> Duration {
    spans.iter().map(|span| span.start + span.duration).max().unwrap_or_default()
}

fn add(table: &mut Table, scenario: &str, spans: &[TraceSpan], window: Duration) {
    let from = ((start(spans) + end(spans)) / 2).saturating_sub(window / 2);
    let mut batches = 0_usize..;
    for span in spans {
        let batch = if span.name == "forward" { batches.next() } else { None };
        let [start, end] =
            [span.start, span.start + span.duration].map(|at| at.saturating_sub(from).min(window).as_secs_f64() * 1e3);
        if end - start < VISIBLE * window.as_secs_f64() * 1e3 {
            continue;
        }
        table.push([
            ("scenario", scenario.into()),
            ("lane", lane(span).into()),
            ("stage", span.name.into()),
            ("start_ms", start.into()),
            ("end_ms", end.into()),
            ("batch", Cell::from(batch)),
            ("samples", 1_usize.into()),
        ]);
    }
}
