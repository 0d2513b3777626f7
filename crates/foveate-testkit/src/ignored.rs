//! The end of a trial that cannot run here.

use std::fmt::Display;
use std::panic::resume_unwind;

/// The payload of the unwinding that ends an ignored trial.
pub(crate) struct Ignored(pub(crate) String);

/// Ends the trial as ignored, with the reason.
pub fn ignore(reason: impl Display) -> ! {
    // Unlike `panic!`, this skips the panic hook, which would print a message.
    resume_unwind(Box::new(Ignored(reason.to_string())))
}
