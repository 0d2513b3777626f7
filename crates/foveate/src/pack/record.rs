//! What a packed folder says about itself.

use std::collections::BTreeMap;

use foveate_sink::{ManifestFile, RunManifest};
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

    pub(super) fn run(&self) -> RunManifest {
        RunManifest { fingerprint: self.fingerprint.clone(), ..RunManifest::default() }
    }
}
