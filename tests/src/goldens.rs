//! Golden vectors and pixels.

use std::path::Path;

use foveate_core::{PixelBuf, PixelLimits, Size};
pub use foveate_testkit::encoders::Goldens;

use crate::data::fixture;
use crate::trial::Outcome;

/// Reads a PNG of 8-bit RGB, the format of golden pixels.
///
/// # Errors
/// If it is missing or not such a file.
pub fn png(path: &Path) -> Result<PixelBuf, Outcome> {
    let image = image::open(path).map_err(|error| Outcome::failed(format!("{}: {error}", path.display())))?;
    let image = image.into_rgb8();
    let mut pixels = PixelBuf::new(PixelLimits::DEFAULT);
    pixels.reset(Size::new(image.width(), image.height()))?.copy_from_slice(image.as_raw());
    Ok(pixels)
}

/// The names of the photos that have a fixture of this `kind` (`crop_hf_pil`, `crop_squash`, `decoded`), sorted.
///
/// # Errors
/// If the folder cannot be read.
pub fn photos_with(kind: &str) -> Result<Vec<String>, Outcome> {
    photos_in(&fixture("goldens").join(kind))
}

/// The names of the photos in a folder of golden pixels, sorted.
///
/// # Errors
/// If the folder cannot be read.
pub fn photos_in(folder: &Path) -> Result<Vec<String>, Outcome> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        names.extend(path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
    }
    names.sort();
    if names.is_empty() { Err(Outcome::failed(format!("no goldens in {}", folder.display()))) } else { Ok(names) }
}

/// The golden pixels of `photo` of a kind that [`photos_with`] lists.
///
/// # Errors
/// If there are none.
pub fn pixels(kind: &str, photo: &str) -> Result<PixelBuf, Outcome> {
    png(&fixture("goldens").join(kind).join(format!("{photo}.png")))
}
