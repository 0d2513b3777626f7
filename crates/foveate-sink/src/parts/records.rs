//! What a run in an object store knows of itself: small objects in the store, from which any machine continues it.
//!
//! | object | appears |
//! |---|---|
//! | `.foveate/run/claim.json` | when the run begins |
//! | `.foveate/run/part-00000.json`, … | when the part's files are there |
//!
//! With shards, `run` is `00002-of-00008`. All of them are removed once the manifest is there.

use std::collections::BTreeMap;
use std::mem::take;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::journal::{Journal, Record, State};
use crate::manifest::{check_command, check_plain_names};
use crate::staging::{FAILURES, FAILURES_HEADER, INPUTS, INPUTS_HEADER, JOURNAL, Ledger};
use crate::{ManifestPart, OutputNames, Prefix, RunManifest, SinkError, create_folders};

/// Incremented when the meaning of the objects changes.
const VERSION: u32 = 1;

/// The job that a prefix belongs to while its run lasts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claim {
    version: u32,
    pub(super) settings: RunManifest,
    /// The output that the run replaces may still be there.
    pub(super) replaces: bool,
}

impl Claim {
    pub(super) fn new(settings: RunManifest, replaces: bool) -> Self {
        Self { version: VERSION, settings, replaces }
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let claim: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        match claim.version {
            VERSION => Ok(claim),
            version => Err(format!("written by another version of this program (layout {version}, not {VERSION})")),
        }
    }

    /// A digest of what decides the output's bytes.
    pub(super) fn run(&self) -> String {
        self.settings.digest()
    }
}

/// A part that is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PartRecord {
    /// [`Claim::run`].
    pub(super) run: String,
    /// Its files; none if all of its items failed.
    pub(super) part: ManifestPart,
    /// The watermark at its end.
    pub(super) watermark: u64,
    pub(super) place: u64,
    /// Number of its failures.
    pub(super) failed: u64,
    /// Their lines.
    pub(super) failures: String,
    /// The lines of its inputs.
    pub(super) inputs: String,
}

impl PartRecord {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let record: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        check_plain_names(&record.part.files)?;
        Ok(record)
    }
}

/// The name of the claim of the run with these names.
pub(super) fn claim_name(names: &OutputNames) -> String {
    text(&names.staging().join("claim.json"))
}

/// The name of the record of a part.
pub(super) fn record_name(names: &OutputNames, part: u64) -> String {
    text(&names.part(&names.staging(), part, "json"))
}

/// The run's own objects.
pub(super) fn own_objects(prefix: &dyn Prefix, names: &OutputNames) -> Result<BTreeMap<String, u64>, SinkError> {
    prefix.list(&format!("{}/", names.staging().display()))
}

/// An object's name as the store takes it.
pub(super) fn text(name: &Path) -> String {
    name.to_string_lossy().into_owned()
}

/// Reads an object; `None` if it does not exist.
pub(super) fn read_parsed<T>(
    prefix: &dyn Prefix,
    name: &str,
    parse: impl FnOnce(&[u8]) -> Result<T, String>,
) -> Result<Option<T>, SinkError> {
    let Some(bytes) = prefix.read(name)? else { return Ok(None) };
    let address = Path::new(prefix.address()).join(name);
    check_command(&address, &bytes)?;
    parse(&bytes).map(Some).map_err(|reason| SinkError::damaged(&address, reason))
}

/// Text with the line end that a record has.
pub(super) fn json(value: &impl Serialize) -> Bytes {
    let mut text = serde_json::to_vec(value).expect("records are plain data and always have a JSON form");
    text.push(b'\n');
    text.into()
}

/// The staging folder of a run that was interrupted after some parts, which are elsewhere.
pub(super) struct Restored {
    staging: PathBuf,
    failures: Ledger,
    inputs: Ledger,
    /// Without their lines, which are in the files.
    pub(super) parts: Vec<PartRecord>,
}

impl Restored {
    /// A run without parts, in a new folder.
    fn new(staging: PathBuf) -> Result<Self, SinkError> {
        create_folders(&staging)?;
        let failures = Ledger::create(staging.join(FAILURES), FAILURES_HEADER)?;
        let inputs = Ledger::create(staging.join(INPUTS), INPUTS_HEADER)?;
        Ok(Self { staging, failures, inputs, parts: Vec::new() })
    }

    /// The run of `claim` in `staging`, a new folder: the parts that have a record, up to the first that has none.
    pub(super) fn read(
        prefix: &dyn Prefix,
        names: &OutputNames,
        claim: &Claim,
        staging: PathBuf,
    ) -> Result<Self, SinkError> {
        let mut restored = Self::new(staging)?;
        if claim.replaces {
            return Ok(restored); // there may be records of the run that is replaced
        }
        let (run, there) = (claim.run(), own_objects(prefix, names)?);
        for part in 0.. {
            let name = record_name(names, part);
            let record = if there.contains_key(&name) { read_parsed(prefix, &name, PartRecord::parse)? } else { None };
            match record {
                Some(record) if record.run == run && record.part.part == part => restored.add(record)?,
                _ => break,
            }
        }
        Ok(restored)
    }

    /// Adds the next part.
    fn add(&mut self, mut part: PartRecord) -> Result<(), SinkError> {
        self.failures.append(&take(&mut part.failures))?;
        self.inputs.append(&take(&mut part.inputs))?;
        self.parts.push(part);
        Ok(())
    }

    /// The file with the inputs of all parts.
    pub(super) fn inputs(&self) -> PathBuf {
        self.staging.join(INPUTS)
    }

    /// Writes the journal, so that the run can be resumed.
    pub(super) fn write_journal(&mut self, settings: RunManifest, first_index: u64) -> Result<(), SinkError> {
        let begun = State::begun(settings, first_index, false);
        let mut journal = Journal::create(&self.staging.join(JOURNAL), &begun)?;
        let Some(last) = self.parts.last() else { return Ok(()) };
        journal.append(&Record::Commit {
            watermark: last.watermark,
            place: last.place,
            failures: self.parts.iter().map(|part| part.failed).sum(),
            failures_file: self.failures.sync()?,
            inputs_file: self.inputs.sync()?,
            logs: Vec::new(),
        })?;
        let sealed = self.parts.iter().filter(|record| !record.part.files.is_empty());
        sealed.map(|record| record.part.clone()).try_for_each(|part| journal.append(&Record::Sealed { part }))
    }
}
