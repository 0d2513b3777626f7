//! Errors for people: what failed and why, as the libraries say it, and what to do, as only this program with its options
//! knows it.

use std::error::Error;
use std::io::{self, ErrorKind};

use foveate::embed::EmbedError;
use foveate::pipeline::RunError;
use foveate::source::SourceError;
use foveate::verify::VerifyError;

/// What failed, why, and what to do: one line on standard error.
pub(crate) fn tell(error: &anyhow::Error) {
    match of(error) {
        Some(remedy) => eprintln!("error: {}; {remedy}", chain(error)),
        None => eprintln!("error: {}", chain(error)),
    }
}

/// An error and its causes in one line, without repeating a cause that a message already contains.
fn chain(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

/// The remedy for the first cause that has one.
fn of(error: &anyhow::Error) -> Option<&'static str> {
    error.chain().find_map(of_cause)
}

fn of_cause(cause: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(error) = cause.downcast_ref() {
        return of_verify(error);
    }
    if let Some(error) = cause.downcast_ref() {
        return of_embed(error);
    }
    if let Some(error) = cause.downcast_ref() {
        return of_run(error);
    }
    cause.downcast_ref().and_then(of_source)
}

fn of_verify(error: &VerifyError) -> Option<&'static str> {
    match error {
        VerifyError::Embed(error) => of_embed(error),
        VerifyError::Run(error) => of_run(error),
        _ => None,
    }
}

fn of_embed(error: &EmbedError) -> Option<&'static str> {
    match error {
        EmbedError::Device { .. } => {
            Some("`foveate doctor` lists the devices of each encoder; NVIDIA GPUs need a build with `-F cuda`")
        }
        EmbedError::NoDevice(_) => Some("give --device a name such as cpu or cuda:0"),
        EmbedError::Source(error) => of_source(error),
        _ => None,
    }
}

fn of_run(error: &RunError) -> Option<&'static str> {
    match error {
        RunError::Source(error) => of_source(error),
        RunError::TooManyFailures { .. } => Some("repair the inputs or raise --max-failures"),
        _ => None,
    }
}

fn of_source(error: &SourceError) -> Option<&'static str> {
    match error {
        SourceError::Io { source, .. } => of_reading(source),
        _ => None,
    }
}

fn of_reading(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::NotFound => Some("check the path"),
        ErrorKind::PermissionDenied => Some("run with read access or exclude it"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_once() {
        let error = anyhow::anyhow!("disk full").context("cannot write x: disk full").context("run failed");
        assert_eq!(chain(&error), "run failed: cannot write x: disk full");
    }
}
