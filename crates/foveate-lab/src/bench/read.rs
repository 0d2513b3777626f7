use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use foveate_core::error_chain;
use foveate_source::FetchError;
use foveate_source::blob::Blob;

use super::cells::Effort;
use crate::order::order;
use crate::stats::Spread;
use crate::{Lab, LabError, Table, schema};

/// Opens the file or object that [`read`] measures.
pub type OpenBlob<'a> = dyn Fn() -> Result<Arc<dyn Blob>, FetchError> + Sync + 'a;

/// Measures what a file or an object delivers in pieces of each of `chunks` bytes, with each of `requests` readers at a
/// time. Files are in the system's page cache, which `profile` measures them without.
///
/// # Errors
/// Fails if the blob cannot be read, or is a stream; [`LabError::Interrupted`].
pub fn read(
    lab: &Lab<'_>,
    open: &OpenBlob<'_>,
    chunks: &[u64],
    requests: &[usize],
    effort: &Effort,
) -> Result<Table, LabError> {
    let cells: Vec<(u64, usize)> =
        chunks.iter().flat_map(|&chunk| requests.iter().map(move |&requests| (chunk, requests))).collect();
    let seconds = effort.seconds / 4.0;
    let mut rates = vec![Vec::new(); cells.len()];
    for round in 0..effort.samples {
        for at in order(lab.seed, cells.len(), round) {
            lab.go_on()?;
            let (chunk, requests) = cells[at];
            lab.watch.doing(&format!("read: pieces of {chunk} bytes, {requests} at a time"));
            rates[at].push(sample(open, chunk, requests, seconds)?);
        }
    }
    let mut table = Table::new(&schema::READ);
    for ((chunk, requests), rates) in cells.into_iter().zip(rates) {
        let spread = Spread::of(&rates);
        table.push([
            ("chunk_bytes", chunk.into()),
            ("requests", requests.into()),
            ("samples", rates.len().into()),
            ("sample_seconds", seconds.into()),
            ("mb_per_second", spread.map(|spread| spread.median).into()),
            ("mb_per_second_min", spread.map(|spread| spread.min).into()),
            ("mb_per_second_max", spread.map(|spread| spread.max).into()),
        ]);
    }
    Ok(table)
}

/// Returns the megabytes per second of readers that take the next piece in turn, over and over.
fn sample(open: &OpenBlob<'_>, chunk: u64, requests: usize, seconds: f64) -> Result<f64, LabError> {
    let next = AtomicU64::new(0);
    let began = Instant::now();
    let end = began + Duration::from_secs_f64(seconds);
    let bytes = thread::scope(|scope| {
        let readers: Vec<_> = (0..requests).map(|_| scope.spawn(|| read_pieces(open, chunk, &next, end))).collect();
        readers.into_iter().try_fold(0, |sum, reader| {
            let bytes = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok::<_, FetchError>(sum + bytes)
        })
    });
    let bytes = bytes.map_err(|error| LabError::Photos(error_chain(&error)))?;
    Ok(bytes as f64 / 1e6 / began.elapsed().as_secs_f64())
}

/// Reads the next piece that no other reader took, until `end`, and returns the bytes.
fn read_pieces(open: &OpenBlob<'_>, chunk: u64, next: &AtomicU64, end: Instant) -> Result<u64, FetchError> {
    let blob = open()?;
    let len = blob.len().filter(|&len| len > 0).ok_or_else(|| FetchError::Refused("a stream, or empty".to_owned()))?;
    let mut buffer = vec![0; chunk.min(len) as usize];
    let mut bytes = 0;
    while bytes == 0 || Instant::now() < end {
        let offset = next.fetch_add(1, Ordering::Relaxed) % len.div_ceil(chunk) * chunk;
        let piece = &mut buffer[..chunk.min(len - offset) as usize];
        blob.read_at(offset, piece)?;
        bytes += piece.len() as u64;
    }
    Ok(bytes)
}
