//! Trials that are reported as ignored, with the reason, where they cannot run.

use libtest_mimic::{Completion, Failed, Trial};

/// Why a trial did not pass.
#[derive(Debug)]
pub enum Outcome {
    /// It could not run here: data or a backend is not there.
    Ignored(String),
    /// It ran and found something wrong.
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

/// A trial called `name`. Whatever `run` needs and does not find is an [`Outcome::Ignored`]: visible in the summary,
/// never absent and never a pass.
pub fn trial(name: impl Into<String>, run: impl FnOnce() -> Result<(), Outcome> + Send + 'static) -> Trial {
    Trial::ignorable_test(name, move || match run() {
        Ok(()) => Ok(Completion::Completed),
        Err(Outcome::Ignored(reason)) => Ok(Completion::ignored_with(reason)),
        Err(Outcome::Failed(message)) => Err(Failed::from(message)),
    })
}

/// Fails with `message` unless `holds`.
///
/// # Errors
/// [`Outcome::Failed`].
pub fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), Outcome> {
    if holds { Ok(()) } else { Err(Outcome::Failed(message())) }
}
