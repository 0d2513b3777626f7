//! The pictures behind ids, to look at and to compare.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use foveate_core::{PixelBudget, Size, error_chain, lock};
use foveate_pipeline::{Cancel, RunError};
use foveate_resize::Filter;
use foveate_sink::RecordedHash;
use foveate_source::{Delivery, Listing, Source};

use crate::embed::{Backends, Settings};
use crate::pack::{Fault, PhotoLook, Resize, Shrink};

/// A picture of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// XXH3-64 of the upright RGB pixels, seeded with the size; `None` if the pixels are of clipped gray, which says
    /// little of the picture.
    pub pixels: Option<u64>,
    /// The image as a JPEG, upright, its shorter side no longer than asked for. Empty if it is not shown.
    pub thumbnail: Vec<u8>,
    /// The image's size, upright.
    pub size: Size,
    /// Bytes of the input.
    pub bytes: u64,
    /// True if the input has the bytes that were recorded, if any were.
    pub is_recorded: Option<bool>,
}

/// A picture to read.
#[derive(Clone, Copy, Debug)]
pub struct WantedPicture {
    /// It has a thumbnail.
    pub is_shown: bool,
    /// The recorded hash of its bytes.
    pub hash: Option<RecordedHash>,
}

/// Pictures to read.
#[derive(Clone, Copy, Debug)]
pub struct WantedPictures<'a> {
    /// By the id of the input.
    pub of: &'a HashMap<&'a str, WantedPicture>,
    /// Pixels of a thumbnail's shorter side.
    pub edge: u32,
}

/// Calls `act` with each input whose id is wanted and its picture, or why there is none; in any order, from several
/// threads, until it is cancelled.
///
/// # Errors
/// If the listing breaks, or a backend.
pub fn each_picture(
    listing: Listing,
    options: &Settings,
    backends: &Arc<Backends>,
    wanted: &WantedPictures<'_>,
    cancel: &Cancel,
    act: &(dyn Fn(&str, Result<Picture, String>) + Sync),
) -> Result<(), RunError> {
    const QUALITY: u8 = 80;
    let shrink = Shrink {
        resize: Resize { edge: wanted.edge, quality: QUALITY },
        filter: Filter::Bilinear,
        decoder: options.decoder_opener(None, backends),
        resizer: options.resizer_opener(None, backends),
        orientation: options.images.orientation,
        limits: options.model.limits(),
        budget: PixelBudget::new(options.engine.pixel_memory),
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let listing = Mutex::new(listing);
    let work = || -> Result<(), RunError> {
        let mut fetch = lock(&listing).open_fetch()?;
        let mut shrinker = shrink.open()?;
        let mut bytes = Vec::new();
        while !cancel.is_cancelled() {
            let next = lock(&listing).deliver()?;
            let Some(Delivery { item, content }) = next else { return Ok(()) };
            let Some(&WantedPicture { is_shown, hash }) = wanted.of.get(item.id.as_str()) else { continue };
            let read = match &item.fault {
                Some(fault) => Err(fault.to_string()),
                None => content.read_into(&item, fetch.as_mut(), &mut bytes).map_err(|error| error_chain(&error)),
            };
            let picture = match read.map(|()| shrinker.look(&bytes, is_shown)) {
                Ok(Ok(PhotoLook { pixels, size, small })) => {
                    let is_recorded = hash.map(|hash| hash.is_of(&bytes));
                    Ok(Picture { pixels, thumbnail: small, size, bytes: bytes.len() as u64, is_recorded })
                }
                Ok(Err(Fault::Run(error))) => return Err(error.into()),
                Ok(Err(Fault::Item(_, reason))) | Err(reason) => Err(reason),
            };
            act(&item.id, picture);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let ends = workers.into_iter().map(|worker| worker.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
        ends.collect()
    })
}
