//! What the photos' places deliver while nothing else works: containers and object stores, which a job reads ahead.

use std::time::Instant;

use foveate_plan::Storage;
use foveate_source::{Content, Source};

use crate::{LabError, PhotoSet};

/// Least length of a measurement, in seconds; it ends with the turn.
const SECONDS: f64 = 1.0;

/// Measures the bytes per second of the photos' places, and how long the first photo of a turn takes. The requests in
/// flight follow by Little's law. `None` for files, which readers read one by one.
///
/// A turn begins anew, at the directory of an archive and without requests in flight, so a few small photos of a remote
/// place give less than a long job would have.
///
/// # Errors
/// Fails if the photos cannot be read any more.
pub(crate) fn measure(photos: &PhotoSet) -> Result<Option<Storage>, LabError> {
    if !photos.is_delivered() {
        return Ok(None);
    }
    let (mut bytes, mut turns, mut firsts) = (0, 0, 0.0);
    let begun = Instant::now();
    while begun.elapsed().as_secs_f64() < SECONDS {
        let started = Instant::now();
        let mut source = photos.stored(photos.photos.len() as u64);
        bytes += delivered(source.as_mut())?;
        firsts += started.elapsed().as_secs_f64();
        while let more @ 1.. = delivered(source.as_mut())? {
            bytes += more;
        }
        turns += 1;
    }
    let rate = bytes as f64 / begun.elapsed().as_secs_f64();
    Ok((rate > 0.0).then(|| fit(rate, photos.mean_bytes(), firsts / f64::from(turns))))
}

/// Returns the bytes of the next photo, or 0 at the end.
fn delivered(source: &mut dyn Source) -> Result<u64, LabError> {
    Ok(match source.deliver()?.map(|delivery| delivery.content) {
        None => 0,
        Some(Content::Read(bytes)) => bytes.len() as u64,
        // It is in a file beside the container.
        Some(Content::Unread) => 1,
        Some(Content::Failed(error)) => return Err(LabError::Photos(error.to_string())),
    })
}

/// Returns a store with this `rate` in bytes per second, whose photos of `bytes` each take about `first` seconds.
fn fit(rate: f64, bytes: f64, first: f64) -> Storage {
    let transfer = bytes / rate;
    let in_flight = (first / transfer).round().clamp(1.0, f64::from(u32::MAX));
    Storage { latency: (in_flight - 1.0) * transfer, concurrency: in_flight as u32, ..Storage::disk(rate) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fit_delivers_what_was_measured() {
        // 32 requests in flight of 100 ms and 300 kB; an archive whose photos come at once.
        for (rate, bytes, first, in_flight) in [(96e6, 300e3, 0.1, 32), (90e6, 300e3, 0.1, 30), (1e9, 300e3, 0.0002, 1)]
        {
            let store = fit(rate, bytes, first);
            assert_eq!(store.concurrency, in_flight);
            let images = store.images_per_second(bytes).unwrap();
            assert!((images * bytes / rate - 1.0).abs() < 1e-9, "{store:?}: {images}");
        }
    }
}
