use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A run's description, written into the output's metadata and compared when a run is resumed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunManifest {
    /// Components of each vector.
    pub dim: usize,
    /// Settings that affect the output's bytes (model, weights hash, recipe, decoder, resizer, dtype, listing hash,
    /// shard, …). A run is resumed only if all of them are equal.
    pub fingerprint: BTreeMap<String, String>,
    /// Informative facts that do not affect the vectors and are not compared. They are written to the output, so facts
    /// that vary between equal runs (times, workers) must stay out, or the outputs differ.
    pub info: BTreeMap<String, String>,
}

impl RunManifest {
    /// Each fingerprint entry that differs (`name: was → now`), separated by commas; `None` if the runs are the same.
    pub fn difference(&self, now: &Self) -> Option<String> {
        let mut differences: Vec<String> = Vec::new();
        if self.dim != now.dim {
            differences.push(format!("dim: {} → {}", self.dim, now.dim));
        }
        let absent = || "(none)".to_owned();
        let names =
            self.fingerprint.keys().chain(now.fingerprint.keys().filter(|k| !self.fingerprint.contains_key(*k)));
        for name in names {
            let (was, is) = (self.fingerprint.get(name), now.fingerprint.get(name));
            if was != is {
                let show = |value: Option<&String>| value.cloned().unwrap_or_else(absent);
                differences.push(format!("{name}: {} → {}", show(was), show(is)));
            }
        }
        (!differences.is_empty()).then(|| differences.join(", "))
    }
}

/// A complete output's description: `manifest.json` in a folder, `x.manifest.json` beside a file whose format has no
/// room for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputManifest {
    /// Format of this file; 1.
    pub version: u32,
    /// Always true: the file appears when the output is complete.
    pub complete: bool,
    /// Name of the sink that wrote it.
    pub format: String,
    /// Components of each vector.
    pub dim: usize,
    /// `f32` or `f16`.
    pub element: String,
    /// Number of vectors.
    pub rows: u64,
    /// Number of items without a vector; the failures file lists them.
    pub failures: u64,
    /// One past the index of the last item.
    pub watermark: u64,
    /// The files that hold the vectors, in row order.
    pub parts: Vec<ManifestPart>,
    /// Settings that affected the bytes.
    pub fingerprint: BTreeMap<String, String>,
    /// Informative facts that did not.
    pub info: BTreeMap<String, String>,
}

/// One part of an output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestPart {
    /// Its range of the source: items from `first_index + part * part_items` on.
    pub part: u64,
    /// Vectors in it.
    pub rows: u64,
    /// Its files, the one with the vectors first; names are relative to the manifest.
    pub files: Vec<ManifestFile>,
}

/// One file of an output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// Name, relative to the manifest.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
    /// XXH3-64 of the file, 16 lower-case hexadecimal digits; absent for single-file outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xxh3: Option<String>,
}

impl OutputManifest {
    /// The only version so far.
    pub const VERSION: u32 = 1;

    /// The run that wrote the output.
    pub fn run(self) -> RunManifest {
        RunManifest { dim: self.dim, fingerprint: self.fingerprint, info: self.info }
    }

    /// Parses the file's bytes; the error says what is wrong with them.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let manifest: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if manifest.version != Self::VERSION {
            return Err(format!("manifest version {}, but this program reads {}", manifest.version, Self::VERSION));
        }
        let rows = manifest.parts.iter().try_fold(0_u64, |sum, part| sum.checked_add(part.rows));
        if rows != Some(manifest.rows) {
            return Err(format!("the parts' rows do not add up to {}", manifest.rows));
        }
        let names = manifest.parts.iter().flat_map(|part| &part.files).map(|file| &file.name);
        match names.into_iter().find(|name| !is_plain_name(name)) {
            Some(name) => Err(format!("{name:?} is not a plain file name")),
            None => Ok(manifest),
        }
    }

    /// The file's bytes: indented JSON, keys in a fixed order.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a manifest is plain data and always has a JSON form") + "\n"
    }
}

/// Whether a name cannot lead out of the manifest's folder.
fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> OutputManifest {
        let file = ManifestFile { name: "part-00000.npy".into(), bytes: 9, xxh3: Some("0123456789abcdef".into()) };
        OutputManifest {
            version: OutputManifest::VERSION,
            complete: true,
            format: "npy".into(),
            dim: 4,
            element: "f32".into(),
            rows: 2,
            failures: 1,
            watermark: 3,
            parts: vec![ManifestPart { part: 0, rows: 2, files: vec![file] }],
            fingerprint: BTreeMap::from([("model".into(), "tiny".into())]),
            info: BTreeMap::new(),
        }
    }

    #[test]
    fn a_manifest_comes_back() {
        assert_eq!(OutputManifest::parse(manifest().to_json().as_bytes()), Ok(manifest()));
    }

    #[test]
    fn a_manifest_that_does_not_add_up_is_refused() {
        let wrong = OutputManifest { rows: 3, ..manifest() };
        assert!(OutputManifest::parse(wrong.to_json().as_bytes()).unwrap_err().contains("add up"));
        let newer = OutputManifest { version: 2, ..manifest() };
        assert!(OutputManifest::parse(newer.to_json().as_bytes()).unwrap_err().contains("version 2"));
        let mut outside = manifest();
        outside.parts[0].files[0].name = "../x".into();
        assert!(OutputManifest::parse(outside.to_json().as_bytes()).unwrap_err().contains("plain"));
    }

    #[test]
    fn every_difference_is_named_once() {
        let run = |model: &str| RunManifest {
            dim: 4,
            fingerprint: BTreeMap::from([("model".into(), model.into())]),
            info: BTreeMap::from([("host".into(), model.into())]),
        };
        assert_eq!(run("a").difference(&run("a")), None);
        assert_eq!(run("a").difference(&run("b")).unwrap(), "model: a → b");
        let wider = RunManifest { dim: 5, fingerprint: BTreeMap::new(), ..run("a") };
        assert_eq!(run("a").difference(&wider).unwrap(), "dim: 4 → 5, model: a → (none)");
    }
}
