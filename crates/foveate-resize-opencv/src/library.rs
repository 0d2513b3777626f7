//! The OpenCV that this program is linked with.

use std::sync::OnceLock;

use foveate_core::{Health, error_chain};
use foveate_resize::ResizeError;

/// Sets the library up for an engine that has threads of its own, once.
pub(crate) fn set_up() -> Result<(), ResizeError> {
    static OUTCOME: OnceLock<Result<(), String>> = OnceLock::new();
    let outcome = OUTCOME.get_or_init(|| opencv::core::set_num_threads(1).map_err(|error| error.to_string()));
    outcome.clone().map_err(|reason| ResizeError::Unavailable(reason.into()))
}

/// Which OpenCV, or why there is no use in it.
pub(crate) fn health() -> Health {
    let broken = |cause: String| Health::broken(cause, "cargo xtask setup --only opencv");
    match (set_up(), opencv::core::get_version_string()) {
        (Ok(()), Ok(version)) => Health::library(format!("OpenCV {version}, shared")),
        (Err(error), _) => broken(error_chain(&error)),
        (_, Err(error)) => broken(error.to_string()),
    }
}

/// What a C++ exception becomes.
pub(crate) fn fault(error: opencv::Error) -> ResizeError {
    ResizeError::Backend(error.into())
}
