//! Checks of an output's options and place, before a run begins there.

use std::fs;
use std::path::Path;

use crate::names::{STAGING, shards_of};
use crate::rows;
use crate::site::{CLAIM, FORMER_JOURNAL, RunSite};
use crate::{Layout, OutputManifest, OutputNames, Prefix, RunManifest, SinkError, SinkOptions};

/// Returns true if an output, or a run that was interrupted, is at the options' place.
///
/// # Errors
/// If a store cannot be asked.
pub fn is_begun(options: &SinkOptions) -> Result<bool, SinkError> {
    let Some(prefix) = &options.prefix else {
        let names = OutputNames::new(options);
        return Ok(names.main().exists() || names.staging().exists());
    };
    let names = OutputNames::find_below(prefix.as_ref(), options)?;
    let main = names.main().to_string_lossy().into_owned();
    Ok(!prefix.list(&main)?.is_empty() || !prefix.list(&format!("{}/", names.staging().display()))?.is_empty())
}

/// Checks a run's options and its output's location, before creating anything there.
pub fn check(options: &SinkOptions, manifest: &RunManifest) -> Result<(), SinkError> {
    let reason = if manifest.dim == 0 {
        "vectors have no components"
    } else if options.part_items == 0 {
        "a part covers no items"
    } else if options.shard.is_some_and(|(i, n)| i >= n) {
        "shard i of n needs i < n"
    } else {
        return check_place(options);
    };
    Err(SinkError::Misuse(reason.to_owned()))
}

/// Checks that no other command's output is there, complete or not: shards of images and vectors never replace each
/// other.
///
/// # Errors
/// [`SinkError::OtherCommand`].
pub fn check_maker(options: &SinkOptions, manifest: &RunManifest) -> Result<(), SinkError> {
    let site = RunSite::of(&SinkOptions { shard: None, ..options.clone() })?;
    let found = site.manifest()?.map(OutputManifest::run);
    match found.or_else(|| Some(site.claim().ok()??.settings)) {
        Some(found) if (found.made_by() == RunManifest::PACK) != (manifest.made_by() == RunManifest::PACK) => {
            Err(SinkError::OtherCommand { path: options.output.clone(), command: found.made_by().to_owned() })
        }
        _ => Ok(()),
    }
}

/// Checks that the output can be where the options put it: no folder where a file is requested, and no file where a
/// folder is requested. Missing folders are created when the run begins; this creates nothing, so a program may call it
/// long before. A store is asked for its objects, so this shows whether it can be reached.
pub fn check_place(options: &SinkOptions) -> Result<(), SinkError> {
    if let Some(prefix) = &options.prefix {
        return check_prefix(prefix.as_ref(), options);
    }
    let output = &options.output;
    let above = output.ancestors().skip(1).find(|above| above.exists()).filter(|above| !above.is_dir());
    let reason = match (above, options.layout) {
        (Some(above), _) => format!("{} is not a folder", above.display()),
        (None, Layout::File) if output.is_dir() => "it is a folder; name a file in it".to_owned(),
        (None, Layout::Folder) if output.exists() && !output.is_dir() => {
            "a folder is needed there, but it is a file".to_owned()
        }
        (None, Layout::Folder) => return check_division(options),
        (None, Layout::File) => return Ok(()),
    };
    Err(SinkError::BadOutput { path: output.clone(), source: reason.into() })
}

/// Checks that a folder's other runs, complete or interrupted, divide the inputs as this one does. Otherwise readers of
/// the whole folder would find inputs twice.
fn check_division(options: &SinkOptions) -> Result<(), SinkError> {
    let staging = options.output.join(STAGING);
    let begun = file_names(&staging)
        .filter(|name| [FORMER_JOURNAL, CLAIM].iter().any(|file| staging.join(name).join(file).exists()));
    check_names(options, file_names(&options.output), begun)
}

/// Checks the division of the inputs below a prefix.
fn check_prefix(prefix: &dyn Prefix, options: &SinkOptions) -> Result<(), SinkError> {
    let staging = format!("{STAGING}/");
    let own = prefix.list(&staging)?;
    let begun = own.keys().filter_map(|name| name.strip_prefix(&staging)?.strip_suffix(CLAIM)?.strip_suffix('/'));
    let found = [prefix.list("part")?, prefix.list("_manifest")?, prefix.list("manifest")?];
    check_names(options, found.into_iter().flatten().map(|(name, _)| name), begun.map(str::to_owned))
}

/// Checks the names of files and of runs that were begun.
fn check_names(
    options: &SinkOptions,
    files: impl Iterator<Item = String>,
    mut begun: impl Iterator<Item = String>,
) -> Result<(), SinkError> {
    let ours = options.shard.map(|(_, count)| count);
    let mut others = files.filter(|name| shards_of(name).is_some_and(|shards| shards != ours));
    let Some(name) = others
        .next()
        .or_else(|| begun.find(|run| run.split_once("-of-").and_then(|(_, count)| count.parse().ok()) != ours))
    else {
        return Ok(());
    };
    let own = ours.map_or_else(|| "a whole run".to_owned(), |count| format!("one of {count} shards"));
    let source =
        format!("it holds a run that divides the inputs otherwise ({name}), and {own} would mix with it; name another");
    Err(SinkError::BadOutput { path: options.output.clone(), source: source.into() })
}

/// The names in a folder; none if it cannot be read.
pub(crate) fn file_names(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// The caller's settings plus the options that must not change within a run.
pub fn settings(options: &SinkOptions, format: &str, manifest: &RunManifest) -> RunManifest {
    let mut settings = manifest.clone();
    let fingerprint = &mut settings.fingerprint;
    fingerprint.insert("sink.format".to_owned(), format.to_owned());
    fingerprint.insert("sink.element".to_owned(), options.element.name().to_owned());
    fingerprint.insert("sink.first_index".to_owned(), options.first_index.to_string());
    if let Some((i, n)) = options.shard {
        fingerprint.insert("sink.shard".to_owned(), format!("{i}/{n}"));
    }
    if !options.columns.is_empty() {
        fingerprint.insert("sink.columns".to_owned(), options.columns.join(","));
    }
    if !options.column_kinds.is_empty() {
        fingerprint.insert("sink.column_kinds".to_owned(), rows::kinds_text(&options.column_kinds));
    }
    for (name, value) in &options.settings {
        fingerprint.insert(format!("sink.{name}"), value.clone());
    }
    settings
}
