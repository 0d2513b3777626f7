//! What a packed folder says about itself.

use std::collections::BTreeMap;
use std::path::Path;

use foveate_sink::{ManifestFile, RunManifest, is_plain_name};
use serde::{Deserialize, Serialize};

use super::drift::Drift;

/// A folder of shards: its `_manifest.json`, which appears when all shards are complete.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PackManifest {
    /// Format of this file; 1.
    pub version: u32,
    /// Container format of the shards.
    pub format: String,
    /// Images in the shards.
    pub members: u64,
    /// Inputs that are in none; the failures file lists them.
    pub failures: u64,
    /// The shards, in the order of the inputs.
    pub shards: Vec<PackedShard>,
    /// The failures file.
    pub records: Vec<ManifestFile>,
    /// What resizing does to the vectors of a sample, if it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
    /// Settings that affected the bytes.
    pub fingerprint: BTreeMap<String, String>,
}

/// One shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PackedShard {
    /// Images in it.
    pub members: u64,
    /// Its name, length and hash.
    #[serde(flatten)]
    pub file: ManifestFile,
}

impl PackManifest {
    pub(super) const VERSION: u32 = 1;

    /// The file's bytes: indented JSON, keys in a fixed order.
    pub(super) fn to_json(&self) -> Vec<u8> {
        let json = serde_json::to_string_pretty(self);
        (json.expect("a manifest is plain data and always has a JSON form") + "\n").into_bytes()
    }

    /// Parses the file's bytes; the error says what is wrong with them.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let manifest: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        manifest.check_names()?;
        Ok(manifest)
    }

    /// Checks that no name leads out of the folder, or to a file that is no shard: a folder may be a stranger's, and
    /// `--overwrite` removes what its record names.
    pub(super) fn check_names(&self) -> Result<(), String> {
        self.shards.iter().try_for_each(|shard| check_name(&shard.file.name))?;
        check_name(&self.next_name())?;
        match self.records.iter().find(|file| !is_plain_name(&file.name)) {
            Some(file) => Err(format!("{:?} is not a plain file name", file.name)),
            None => Ok(()),
        }
    }

    /// The name of the shard after those that are complete.
    pub(super) fn next_name(&self) -> String {
        format!("{:05}.{}", self.shards.len(), self.format)
    }

    pub(super) fn run(&self) -> RunManifest {
        RunManifest { fingerprint: self.fingerprint.clone(), ..RunManifest::default() }
    }
}

pub(super) fn check_name(name: &str) -> Result<(), String> {
    match is_plain_name(name) && is_shard_name(name) {
        true => Ok(()),
        false => Err(format!("{name:?} is not the name of a shard")),
    }
}

/// Returns true for a name such as `00000.tar`, of any format.
pub(super) fn is_shard_name(name: &str) -> bool {
    let stem = Path::new(name).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    stem.len() >= 5 && stem.bytes().all(|byte| byte.is_ascii_digit())
}
