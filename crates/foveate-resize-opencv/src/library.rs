//! The OpenCV that this program is linked with.

use std::sync::OnceLock;

use foveate_core::{Health, error_chain};
use foveate_resize::ResizeError;

/// Sets the library up once, for an engine that has its own threads.
pub(crate) fn set_up() -> Result<(), ResizeError> {
    static OUTCOME: OnceLock<Result<(), String>> = OnceLock::new();
    let outcome = OUTCOME.get_or_init(|| opencv::core::set_num_threads(1).map_err(|error| error.to_string()));
    outcome.clone().map_err(|reason| ResizeError::Unavailable(reason.into()))
}

/// The OpenCV version, or why it is unusable.
pub(crate) fn health() -> Health {
    match (set_up(), opencv::core::get_version_string()) {
        (Ok(()), Ok(version)) => {
            let release = format!("OpenCV {version}");
            Health::library(format!("{release}, shared")).with_pixels_of(release)
        }
        (Err(error), _) => Health::broken(error_chain(&error), "cargo xtask setup --only opencv"),
        (_, Err(error)) => Health::broken(error.to_string(), "cargo xtask setup --only opencv"),
    }
}

/// Converts a C++ exception.
pub(crate) fn fault(error: opencv::Error) -> ResizeError {
    ResizeError::Backend(error.into())
}
