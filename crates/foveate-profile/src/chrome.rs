//! Chrome's Trace Event Format, the JSON object form.

use std::cmp::Reverse;
use std::fmt;
use std::io::{self, Write};

use crate::track::{Track, TrackEvent};

/// The one process that contains all tracks as threads. Viewers read zero as no thread, and the process's own number as
/// its main thread, so tracks start above both.
const PROCESS: usize = 1;
const FIRST_LANE: usize = 2;

#[derive(Clone, Copy)]
struct ChromeSpan {
    name: &'static str,
    start: u64,
    duration: u64,
}

/// Spans in the order of their start; a span that overlaps an earlier one lies inside it.
#[derive(Default)]
struct ChromeRow {
    spans: Vec<ChromeSpan>,
    /// End times of the spans that enclose the last one, and its own.
    open: Vec<u64>,
}

/// The beginning of every trace.
pub(crate) const START: &str = "{\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":";

pub(crate) fn write(mut tracks: Vec<Track>, dropped: u64, out: &mut dyn Write) -> io::Result<()> {
    tracks.sort_by_cached_key(place);
    let mut out = io::BufWriter::new(out);
    write!(out, "{START}{PROCESS},\"name\":\"process_name\"")?;
    write!(out, ",\"args\":{{\"name\":{}}}}}", Quoted(&program()))?;
    let rows = tracks.iter().flat_map(|track| rows(track).into_iter().map(|row| (track.name.as_str(), row)));
    for (number, (name, row)) in rows.enumerate() {
        write_row(&mut out, name, FIRST_LANE + number, &row)?;
    }
    write_counters(&mut out, &tracks)?;
    write!(out, "\n],\"displayTimeUnit\":\"ms\",\"otherData\":{{\"dropped_events\":{dropped}}}}}\n")?;
    out.flush()
}

fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_stem().map_or_else(|| "program".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Threads before tracks, the main thread first, names in the order that a reader expects.
fn place(track: &Track) -> (bool, bool, Vec<(String, u64)>, Option<u64>) {
    (track.thread.is_none(), track.name != "main", natural(&track.name), track.thread)
}

/// Splits text and numbers, so that "decode 10" sorts after "decode 9".
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = vec![(String::new(), 0_u64)];
    let mut in_number = false;
    for c in name.chars() {
        let digit = c.to_digit(10);
        if in_number && digit.is_none() {
            parts.push((String::new(), 0));
        }
        in_number = digit.is_some();
        if let Some((text, number)) = parts.last_mut() {
            match digit {
                Some(digit) => *number = number.saturating_mul(10).saturating_add(u64::from(digit)),
                None => text.push(c),
            }
        }
    }
    parts
}

/// Distributes a track's spans over rows such that spans in a row are nested or disjoint. One row suffices, unless the
/// track is a device that does several things at once. None if the track has only counters.
fn rows(track: &Track) -> Vec<ChromeRow> {
    // Among spans with the same times, the one recorded last is the outer one.
    let mut spans: Vec<ChromeSpan> = track.pieces.iter().flatten().rev().filter_map(span).collect();
    spans.sort_by_key(|span| (span.start, Reverse(span.duration)));
    let mut rows: Vec<ChromeRow> = Vec::new();
    for span in spans {
        if !rows.iter_mut().any(|row| row.take(span)) {
            rows.push(ChromeRow { open: vec![span.end()], spans: vec![span] });
        }
    }
    rows
}

fn span(event: &TrackEvent) -> Option<ChromeSpan> {
    match *event {
        TrackEvent::Span { name, start, duration } => Some(ChromeSpan { name, start, duration }),
        TrackEvent::Counter { .. } => None,
    }
}

impl ChromeSpan {
    fn end(&self) -> u64 {
        self.start.saturating_add(self.duration)
    }
}

impl ChromeRow {
    /// Adds the span if it fits here; returns whether it did.
    fn take(&mut self, span: ChromeSpan) -> bool {
        while self.open.pop_if(|end| *end <= span.start).is_some() {}
        let fits = self.open.last().is_none_or(|end| span.end() <= *end);
        if fits {
            self.open.push(span.end());
            self.spans.push(span);
        }
        fits
    }
}

fn write_row(out: &mut dyn Write, name: &str, number: usize, row: &ChromeRow) -> io::Result<()> {
    let meta = format!(",\n{{\"ph\":\"M\",\"pid\":{PROCESS},\"tid\":{number}");
    write!(out, "{meta},\"name\":\"thread_name\",\"args\":{{\"name\":{}}}}}", Quoted(name))?;
    write!(out, "{meta},\"name\":\"thread_sort_index\",\"args\":{{\"sort_index\":{number}}}}}")?;
    for ChromeSpan { name, start, duration } in &row.spans {
        write!(out, ",\n{{\"ph\":\"X\",\"pid\":{PROCESS},\"tid\":{number},\"name\":{}", Quoted(name))?;
        write!(out, ",\"ts\":{},\"dur\":{}}}", Micros(*start), Micros(*duration))?;
    }
    Ok(())
}

/// Counters belong to the process, not to the threads that reported them.
fn write_counters(out: &mut dyn Write, tracks: &[Track]) -> io::Result<()> {
    let mut counters = Vec::new();
    for event in tracks.iter().flat_map(|track| &track.pieces).flatten() {
        if let TrackEvent::Counter { track, at, value } = *event {
            counters.push((at, track, value));
        }
    }
    counters.sort_by_key(|(at, ..)| *at);
    for (at, track, value) in counters {
        write!(out, ",\n{{\"ph\":\"C\",\"pid\":{PROCESS},\"name\":{},\"ts\":{}", Quoted(track), Micros(at))?;
        write!(out, ",\"args\":{{\"value\":{value}}}}}")?;
    }
    Ok(())
}

/// Nanoseconds as the format's microseconds, without loss.
struct Micros(u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// A JSON string.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
                c => write!(f, "{c}")?,
            }
        }
        f.write_str("\"")
    }
}
