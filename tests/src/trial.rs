//! Trials that return their outcome.

use foveate_testkit::{Trial, ignore};

/// The reason that a trial did not pass.
#[derive(Debug)]
pub enum Outcome {
    /// Nothing to check: a backend is not compiled in, or does not support this.
    Ignored(String),
    /// It ran and found an error.
    Failed(String),
}

impl<E: std::error::Error + 'static> From<E> for Outcome {
    fn from(error: E) -> Self {
        Self::Failed(foveate_core::error_chain(&error))
    }
}

impl Outcome {
    /// A failure with `message`.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }
}

/// A trial called `name`.
pub fn trial(name: impl Into<String>, run: impl FnOnce() -> Result<(), Outcome> + Send + 'static) -> Trial {
    foveate_testkit::trial(name, move || match run() {
        Ok(()) => Ok(()),
        Err(Outcome::Ignored(reason)) => ignore(reason),
        Err(Outcome::Failed(message)) => Err(message),
    })
}

/// Fails with `message` unless `holds`.
///
/// # Errors
/// [`Outcome::Failed`].
pub fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), Outcome> {
    if holds { Ok(()) } else { Err(Outcome::Failed(message())) }
}
