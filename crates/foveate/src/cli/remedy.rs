//! Error messages for users. The libraries say what failed and why; only this program knows its options and can add the
//! remedy.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::path::Path;

use foveate::core::error_chain;
use foveate::embed::{EmbedError, kernels_remedy};
use foveate::model::ModelError;
use foveate::pack::PackError;
use foveate::pipeline::RunError;
use foveate::sink::{RunState, SinkError};
use foveate::source::{FetchError, SourceError};
use foveate::verify::VerifyError;

use super::console;

/// The remedy for a file of an output that is missing.
pub(super) const TOGETHER: &str = "bring it back under this name (the files of an output are copied and renamed \
                                   together), or name another output";

/// Prints what failed, why, and what to do, in one line on standard error.
pub(crate) fn tell(error: &anyhow::Error) {
    match of(error) {
        Some(remedy) => console::say!("error: {}; {remedy}", error_chain(error.as_ref())),
        None => console::say!("error: {}", error_chain(error.as_ref())),
    }
}

/// Returns the remedy for the first cause that has one.
fn of(error: &anyhow::Error) -> Option<&'static str> {
    error.chain().find_map(of_cause)
}

fn of_cause(cause: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(error) = cause.downcast_ref() {
        return of_verify(error);
    }
    if let Some(error) = cause.downcast_ref() {
        return match error {
            PackError::Embed(error) => of_embed(error),
            PackError::Run(error) => of_run(error),
            PackError::Drift(error) => of_verify(error),
            PackError::DecodeScale(_) => Some("leave out --decode-scale"),
            _ => None,
        };
    }
    if let Some(error) = cause.downcast_ref() {
        return of_embed(error);
    }
    if let Some(error) = cause.downcast_ref() {
        return of_run(error);
    }
    if let Some(error) = cause.downcast_ref() {
        return of_sink(error);
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
        EmbedError::NoOutput(_) => Some("run it without --retry-failures first"),
        EmbedError::Device { .. } => Some(
            "`foveate doctor` lists each encoder's devices; NVIDIA GPUs need their driver and a build with `-F cuda`",
        ),
        EmbedError::Extension { .. } => Some("name a folder (`-o out/`) or a format (`--sink NAME`)"),
        EmbedError::OutputStore { known, .. } if known.is_empty() => {
            Some("rebuild with `-F object-store`, or write to a folder and upload it")
        }
        EmbedError::OutputStore { .. } => Some("name a bucket (`-o s3://bucket/vectors/`), or a folder to upload"),
        EmbedError::OutputFile(_) => Some("name the prefix and end it in a slash (`-o s3://bucket/vectors/`)"),
        EmbedError::ShardCount { .. } => Some("choose another output, or remove the other run's files"),
        EmbedError::OtherFormat { .. } => Some("give -o that extension, a folder (`-o out/`), or leave out --sink"),
        EmbedError::Model(ModelError::Hub(error)) => error.remedy(),
        EmbedError::NoDevice(_) => Some("give --device a name such as cpu or cuda:0"),
        EmbedError::Sink(error) => of_sink(error),
        EmbedError::Source(error) => of_source(error),
        EmbedError::Update(error) => of_run(error),
        _ => None,
    }
}

fn of_run(error: &RunError) -> Option<&'static str> {
    match error {
        RunError::TooManyFailures { .. } => Some("repair the inputs or raise --max-failures"),
        RunError::Unreadable { .. } => {
            Some("bring it back and run the same command again, or record them as failures with `--max-unreadable off`")
        }
        RunError::TooManyRemoved { .. } => {
            Some("`--dry-run --changes FILE` shows which; pass `--max-removed 100%` if it is meant")
        }
        RunError::EmptyFolder { .. } => Some("mount it, remove the folder, or pass `--max-removed 100%`"),
        RunError::NothingInCommon { .. } => Some(
            "spell the inputs as before (`photos/` and `../photos/` are two names), or write another output and \
             `foveate merge` both",
        ),
        RunError::Fetch(FetchError::StoreGone(_)) => {
            Some("mend that and run the same command again: it continues after the last commit")
        }
        RunError::Fetch(_) => Some("bring it back and run the same command again: it continues after the last commit"),
        RunError::Sink(error) => of_sink(error),
        RunError::Source(error) => of_source(error),
        _ => None,
    }
}

fn of_sink(error: &SinkError) -> Option<&'static str> {
    match error {
        SinkError::Exists(_) => Some("pass --overwrite to replace it"),
        SinkError::OtherCommand { .. } => Some("name another output"),
        SinkError::OtherRun(other) if kernels_remedy(&other.difference).is_some() => kernels_remedy(&other.difference),
        SinkError::OtherRun(other)
            if other.difference.settings.is_empty() && other.inputs.is_some() && other.state != RunState::Replacing =>
        {
            Some("pass --update to embed what is new and keep the rest, or --overwrite to start anew")
        }
        SinkError::OtherRun(other) if other.state == RunState::Complete => Some("pass --overwrite to replace it"),
        SinkError::OtherRun(_) => {
            Some("repeat that job's command to continue it, or pass --overwrite to start this one instead")
        }
        SinkError::Updating(_) => Some("repeat the command that writes it, which puts the rest in place"),
        SinkError::Replaced(_) => Some("repeat this command, whose result is not in it"),
        SinkError::Differs(_) => {
            Some("stop the other run, then repeat this command with --overwrite; or choose another prefix")
        }
        SinkError::Unconditional(_) => Some(
            "pass `--store-option conditional-writes=false` to go without, and let one run at a time write to a prefix",
        ),
        SinkError::Store { .. } => {
            Some("mend that and run the same command: it continues after the last complete part")
        }
        // Without these, it is not known which files are the output's.
        SinkError::Damaged { path, .. } if path.ends_with("commit") || is_manifest(path) => {
            Some("restore it from a copy, or remove the output's files, or name another output")
        }
        SinkError::Damaged { .. } => Some("pass --overwrite to start anew"),
        SinkError::Missing { .. } => Some(TOGETHER),
        SinkError::NoSpace { .. } => {
            Some("make room and run the same command again: it continues after the last commit")
        }
        SinkError::Io { source, .. } => match source.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                Some("choose an output folder that you may write to")
            }
            _ => Some("mend that and run the same command again: it continues after the last commit"),
        },
        _ => None,
    }
}

fn is_manifest(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().ends_with("manifest.json"))
}

fn of_source(error: &SourceError) -> Option<&'static str> {
    match error {
        SourceError::Io { source, .. } => of_reading(source),
        SourceError::NulInList { .. } => Some("pass -0 if NUL separates its paths, or convert it to UTF-8"),
        SourceError::Interrupted { .. } => {
            Some("mend that and run the same command again: it continues after the last commit")
        }
        SourceError::TooLarge { .. } => Some("raise --max-listing, unless a list has no end"),
        _ => None,
    }
}

fn of_reading(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::NotFound => Some("check the path"),
        ErrorKind::PermissionDenied => Some("run with read access, or leave it out (`--exclude NAME`)"),
        _ => None,
    }
}
