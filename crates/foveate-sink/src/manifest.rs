use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a run is: written into the output's metadata, and compared when a run is resumed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunManifest {
    /// Components of each vector.
    pub dim: usize,
    /// Settings that decide the output's bytes (model, weights hash, recipe, decoder, resizer, dtype, listing hash,
    /// shard, …). A run is resumed only when all of them are equal.
    pub fingerprint: BTreeMap<String, String>,
    /// Facts worth keeping that do not decide the bytes; not compared.
    pub info: BTreeMap<String, String>,
}

impl RunManifest {
    /// One line per fingerprint entry that differs (`name: was → now`), or `None` when the runs are the same.
    pub fn difference(&self, now: &Self) -> Option<String> {
        let mut lines: Vec<String> = Vec::new();
        if self.dim != now.dim {
            lines.push(format!("  dim: {} → {}", self.dim, now.dim));
        }
        let absent = || "(none)".to_owned();
        let names =
            self.fingerprint.keys().chain(now.fingerprint.keys().filter(|k| !self.fingerprint.contains_key(*k)));
        for name in names {
            let (was, is) = (self.fingerprint.get(name), now.fingerprint.get(name));
            if was != is {
                let show = |value: Option<&String>| value.cloned().unwrap_or_else(absent);
                lines.push(format!("  {name}: {} → {}", show(was), show(is)));
            }
        }
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}
