//! Trials, and running them.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::ignored::Ignored;
use crate::resource::required;

/// The return type of a trial's body.
pub trait Verdict {
    /// Returns the message of a failure.
    fn failure(self) -> Option<String>;
}

impl Verdict for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<E: Display> Verdict for Result<(), E> {
    fn failure(self) -> Option<String> {
        self.err().map(|error| error.to_string())
    }
}

/// Creates a trial called `name`. It fails if `body` panics or returns an error.
pub fn trial<V: Verdict>(name: impl Into<String>, body: impl FnOnce() -> V + Send + 'static) -> Trial {
    Trial::ignorable_test(name, move || match catch_unwind(AssertUnwindSafe(body)) {
        Ok(verdict) => verdict.failure().map_or(Ok(Completion::Completed), |message| Err(Failed::from(message))),
        Err(payload) => match payload.downcast::<Ignored>() {
            Ok(ignored) => Ok(Completion::ignored_with(ignored.0)),
            Err(panic) => resume_unwind(panic),
        },
    })
}

/// Creates a [`Trial`] of each function, under the function's name. Those after `async` run on a tokio runtime each.
#[macro_export]
macro_rules! trials {
    (async $($body:path),* $(,)?) => {
        vec![$($crate::trial(stringify!($body), || tokio::runtime::Runtime::new().unwrap().block_on($body()))),*]
    };
    ($($body:path),* $(,)?) => {
        vec![$($crate::trial(stringify!($body), $body)),*]
    };
}

/// Runs the trials that the program's arguments select. The exit code is that of libtest, or 2 if `FOVEATE_REQUIRE`
/// names an unknown resource.
pub fn run(trials: Vec<Trial>) -> ExitCode {
    run_with(&Arguments::from_args(), trials)
}

/// Runs one trial at a time, otherwise like [`run`]: for trials that share a device.
pub fn run_in_turn(trials: Vec<Trial>) -> ExitCode {
    run_with(&Arguments { test_threads: Some(1), ..Arguments::from_args() }, trials)
}

fn run_with(arguments: &Arguments, trials: Vec<Trial>) -> ExitCode {
    if let Err(unknown) = required() {
        eprintln!("{unknown}");
        return ExitCode::from(2);
    }
    libtest_mimic::run(arguments, trials).exit_code()
}
