//! What a person can do about an error. Libraries say what failed and why; only this program knows its options.

use std::error::Error;
use std::io::{self, ErrorKind};

use foveate::embed::EmbedError;
use foveate::pipeline::RunError;
use foveate::source::SourceError;
use foveate::verify::VerifyError;

/// The remedy for the first cause that has one.
pub(crate) fn of(error: &anyhow::Error) -> Option<&'static str> {
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
