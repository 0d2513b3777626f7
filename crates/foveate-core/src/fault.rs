use std::cell::Cell;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The reach of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultScope {
    /// Only this item is lost: it is recorded as failed and the run goes on.
    Item,
    /// The run cannot continue: it stops and keeps what was committed.
    Run,
}

/// A stage of the pipeline, as it is named in failure records, profiles and reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Stage {
    /// Enumerating the inputs.
    List,
    /// Getting an item's bytes.
    Read,
    /// Bytes to RGB pixels, including EXIF orientation.
    Decode,
    /// Resampling and cropping to the encoder's input size.
    Resize,
    /// Gathering images into a batch.
    Batch,
    /// Pixels to vectors.
    Encode,
    /// Storing rows and failures.
    Write,
}

impl Stage {
    /// Every stage, in the order an item passes through them.
    pub const ALL: [Self; 7] =
        [Self::List, Self::Read, Self::Decode, Self::Resize, Self::Batch, Self::Encode, Self::Write];

    /// The lower-case name used in files and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Read => "read",
            Self::Decode => "decode",
            Self::Resize => "resize",
            Self::Batch => "batch",
            Self::Encode => "encode",
            Self::Write => "write",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A cause of any type. Strings convert to it, for backends that have only a message.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// An error and its causes on one line: `a: b: c`. Omits a cause whose text the line already contains, because many
/// libraries repeat theirs.
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        next = cause.source();
    }
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// Extracts a panic's message from the value that `catch_unwind` returned.
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

thread_local! {
    static CATCHES: Cell<bool> = const { Cell::new(false) };
}

/// Calls a library that may panic at damaged input. What it was working on must not be used after a panic.
///
/// # Errors
/// The panic's message.
pub fn catch_panic<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    let outer = CATCHES.replace(true);
    let done = catch_unwind(AssertUnwindSafe(call));
    CATCHES.set(outer);
    done.map_err(|panic| panic_message(panic.as_ref()))
}

/// Returns true within [`catch_panic`] on this thread, for panic hooks: the caller reports the message as its error.
pub fn catches_panics() -> bool {
    CATCHES.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error with a given message and cause.
    #[derive(Debug)]
    struct Because(&'static str, BoxError);

    impl fmt::Display for Because {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Because {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(self.1.as_ref())
        }
    }

    #[test]
    fn a_panic_is_an_error_with_its_message() {
        let text = String::from("x");
        assert_eq!(catch_panic(catches_panics), Ok(true));
        assert_eq!(catch_panic(|| assert!(text.is_empty(), "not {text}")), Err("not x".to_owned()));
        assert!(!catches_panics());
    }

    #[test]
    fn a_chain_has_every_cause_once() {
        let repeats = Because("cannot write x: disk full", "disk full".into());
        assert_eq!(error_chain(&Because("run failed", repeats.into())), "run failed: cannot write x: disk full");
        let plain = Because("cannot write x", Because("no room", "disk full".into()).into());
        assert_eq!(error_chain(&plain), "cannot write x: no room: disk full");
        assert_eq!(error_chain(&Because("several", "lines:\n  one\n  two".into())), "several: lines: one two");
    }
}
