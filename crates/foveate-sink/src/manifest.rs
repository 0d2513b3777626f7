use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::{Difference, Published, SinkError, hash_file};

/// The beginning of the names of records and of work in progress.
pub(crate) const MARK: &str = "_";

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
    /// The fingerprint entry with the digest of all ids, if the inputs are a listing.
    pub const LISTING: &str = "listing_sha256";
    /// The fingerprint entry with the run's range of the listing.
    pub const ITEMS: &str = "items";
    /// The fingerprint entry with a digest of the outputs that were merged, in place of the two above.
    pub const MERGED: &str = "merged";
    /// The fingerprint entry with the instruction set or the library that decides the last bits. Outputs of earlier
    /// versions lack it, so it is compared only if both have it.
    pub const KERNELS: &str = "kernels";
    /// The fingerprint entry with the releases of the libraries that decide the pixels; compared as the one above.
    pub const PIXELS: &str = "pixels";
    /// The fingerprint entry of an update's run with the digest of the output; one with a longer name has a digest of
    /// its items.
    pub const UPDATE: &str = "update";
    /// The info entry that counts rows made with other settings than the fingerprint's, and names these: `2 rows with
    /// decoder: zune → image`.
    pub const RETRIED: &str = "retried";

    /// The fingerprint entry with the number of items of a part.
    pub const PART_ITEMS: &str = "sink.part_items";
    /// The fingerprint entry of vectors of texts, with the library that makes their tokens.
    pub const TEXTS: &str = "texts";
    /// The fingerprint entry with the command that made the output, if it holds no vectors: [`Self::PACK`].
    pub const COMMAND: &str = "command";
    /// The command that makes shards of images.
    pub const PACK: &str = "pack";

    /// The command that made the output.
    pub fn made_by(&self) -> &str {
        made_by(&self.fingerprint)
    }

    /// A digest of what decides the output's bytes: 16 lower-case hexadecimal digits.
    pub fn digest(&self) -> String {
        let json = serde_json::to_string(&(self.dim, &self.fingerprint));
        let json = json.expect("settings are plain data and always have a JSON form") + "\n";
        format!("{:016x}", xxh3_64(json.as_bytes()))
    }

    /// Compares this run with another one, `now`; `None` if they are the same job.
    pub fn difference(&self, now: &Self) -> Option<Difference> {
        let mut difference = Difference::default();
        if self.dim != now.dim {
            difference.settings.push(format!("dim: {} → {}", self.dim, now.dim));
        }
        let added = now.fingerprint.keys().filter(|name| !self.fingerprint.contains_key(*name));
        for name in self.fingerprint.keys().chain(added) {
            let was = self.fingerprint.get(name);
            let is = now.fingerprint.get(name);
            match (name.as_str(), name.strip_suffix("_sha256")) {
                _ if was == is => {}
                (Self::KERNELS | Self::PIXELS, _) if was.is_none() || is.is_none() => {}
                (Self::LISTING | Self::ITEMS, _) => difference.inputs = Some("other inputs".to_owned()),
                // Two digests tell a reader nothing.
                (_, Some(what)) => difference.settings.push(format!("other {what}")),
                _ => difference.settings.push(format!("{name}: {} → {}", shown(was), shown(is))),
            }
        }
        (difference != Difference::default()).then_some(difference)
    }
}

fn made_by(fingerprint: &BTreeMap<String, String>) -> &str {
    let vectors = if fingerprint.contains_key(RunManifest::MERGED) { "merge" } else { "embed" };
    fingerprint.get(RunManifest::COMMAND).map_or(vectors, String::as_str)
}

fn shown(value: Option<&String>) -> &str {
    value.map_or("(none)", String::as_str)
}

/// A complete output's description: `manifest.json` in a folder, `x.parquet.manifest.json` next to a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputManifest {
    /// Format of this file; 2.
    pub version: u32,
    /// True in a file, which appears when the output is complete; false in a [`StoredRun`](crate::StoredRun) otherwise.
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
    /// The files that belong to the whole output: the failures, and the inputs if they were recorded.
    pub records: Vec<ManifestFile>,
    /// Settings that affected the bytes.
    pub fingerprint: BTreeMap<String, String>,
    /// Informative facts that did not.
    pub info: BTreeMap<String, String>,
}

/// One part of an output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// XXH3-64 of the file, 16 lower-case hexadecimal digits.
    pub xxh3: String,
}

impl ManifestFile {
    /// Describes the finished file at `path`, which gets the name of `target`.
    pub fn describe(path: &Path, target: &Path) -> Result<Self, SinkError> {
        let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = fs::metadata(path).map_err(SinkError::io("inspect", path))?.len();
        Ok(Self { name, bytes, xxh3: hash_file(path)? })
    }

    /// Checks that the file at `path` has the recorded length and, with `contents`, the recorded hash.
    pub fn check(&self, path: &Path, contents: bool) -> Result<(), SinkError> {
        let len = match fs::metadata(path) {
            Ok(data) => Some(data.len()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(SinkError::io("inspect", path)(error)),
        };
        self.check_len(path, len)?;
        if contents { self.check_hash(path, &hash_file(path)?) } else { Ok(()) }
    }

    /// Checks the length of the file or object at `path`; `None` if there is none.
    pub(crate) fn check_len(&self, path: &Path, len: Option<u64>) -> Result<(), SinkError> {
        let was = format!("it was {} bytes long when it was completed", self.bytes);
        match len {
            Some(len) if len == self.bytes => Ok(()),
            Some(len) => Err(SinkError::damaged(path, format!("{was} and has {len} now"))),
            None => Err(SinkError::missing(path, was)),
        }
    }

    fn check_hash(&self, path: &Path, xxh3: &str) -> Result<(), SinkError> {
        match self.xxh3 == xxh3 {
            true => Ok(()),
            false => Err(SinkError::damaged(path, "its contents are not those that were written")),
        }
    }
}

impl OutputManifest {
    /// The version that this program writes and reads.
    pub const VERSION: u32 = 2;

    /// Describes an output without rows so far.
    pub(crate) fn begun(settings: RunManifest) -> Self {
        let RunManifest { dim, fingerprint, info } = settings;
        Self {
            version: Self::VERSION,
            complete: false,
            format: fingerprint.get("sink.format").cloned().unwrap_or_default(),
            dim,
            element: fingerprint.get("sink.element").cloned().unwrap_or_default(),
            rows: 0,
            failures: 0,
            watermark: 0,
            parts: Vec::new(),
            records: Vec::new(),
            fingerprint,
            info,
        }
    }

    /// Compares the job that this output completes with another one, `now`; `None` if they are the same.
    pub(crate) fn difference(&self, now: &RunManifest) -> Option<Difference> {
        let items = self.fingerprint.get(RunManifest::ITEMS).and_then(|items| items.split_once("..")?.1.parse().ok());
        let cut = items.filter(|&end: &u64| self.watermark < end);
        self.clone().run().difference(now).or_else(|| {
            let inputs = Some(format!("it has the first {} of {} inputs", self.watermark, cut?));
            Some(Difference { inputs, ..Difference::default() })
        })
    }

    /// The run that wrote the output.
    pub fn run(self) -> RunManifest {
        RunManifest { dim: self.dim, fingerprint: self.fingerprint, info: self.info }
    }

    /// Parses the file's bytes; the error says what is wrong with them.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let manifest: Self = match serde_json::from_slice(bytes) {
            Ok(manifest) => manifest,
            Err(error) => {
                let former = serde_json::from_slice::<FormerShards>(bytes);
                return former.map_err(|_| error.to_string()).and_then(FormerShards::manifest);
            }
        };
        if manifest.version != Self::VERSION {
            return Err(format!("manifest version {}, but this program reads {}", manifest.version, Self::VERSION));
        }
        let rows = manifest.parts.iter().try_fold(0_u64, |sum, part| sum.checked_add(part.rows));
        if rows != Some(manifest.rows) {
            return Err(format!("the parts' rows do not add up to {}", manifest.rows));
        }
        manifest.check_names()?;
        Ok(manifest)
    }

    /// The command that made the output.
    pub fn made_by(&self) -> &str {
        made_by(&self.fingerprint)
    }

    /// A digest of the whole description: two outputs with the same one are the same.
    pub(crate) fn digest(&self) -> String {
        format!("{:016x}", xxh3_64(self.to_json().as_bytes()))
    }

    /// Checks that no name leads out of the output's folder.
    pub(crate) fn check_names(&self) -> Result<(), String> {
        check_plain_names(self.files())
    }

    /// Renames the files of a single-file output, whose names have that of the main file, to those of `main`'s files.
    pub(crate) fn name_after(&mut self, main: &str) -> Result<(), String> {
        let Some(was) = self.parts.first().and_then(|part| part.files.first()).map(|file| file.name.clone()) else {
            return Err("it names no file of vectors".to_owned());
        };
        for file in self.parts.iter_mut().flat_map(|part| &mut part.files).chain(&mut self.records) {
            let mark = if file.name.starts_with(&was) { "" } else { MARK };
            let rest = file.name.strip_prefix(mark).and_then(|name| name.strip_prefix(&was));
            let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with('.'));
            let rest = rest.ok_or_else(|| format!("{:?} is no file of {was:?}", file.name))?;
            file.name = format!("{mark}{main}{rest}");
        }
        Ok(())
    }

    /// All files but the manifest: those with vectors first, the failures last.
    pub fn files(&self) -> impl Iterator<Item = &ManifestFile> {
        self.parts.iter().flat_map(|part| &part.files).chain(&self.records)
    }

    /// Checks the length of every file in `folder` and, with `contents`, its hash.
    pub fn check(&self, folder: &Path, contents: bool) -> Result<(), SinkError> {
        self.files().try_for_each(|file| file.check(&folder.join(&file.name), contents))
    }

    /// The output in `folder`, as its run reported it.
    pub fn published(&self, folder: &Path) -> Published {
        let files = self.files().map(|file| folder.join(&file.name)).collect();
        Published { files, rows: self.rows, failures: self.failures, ..Published::default() }
    }

    /// The file's bytes: indented JSON, keys in a fixed order.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a manifest is plain data and always has a JSON form") + "\n"
    }
}

/// Checks the names in a manifest or a record, which may be a stranger's.
pub(crate) fn check_plain_names<'a>(files: impl IntoIterator<Item = &'a ManifestFile>) -> Result<(), String> {
    match files.into_iter().find(|file| !is_plain_name(&file.name)) {
        Some(file) => Err(format!("{:?} is not a plain file name", file.name)),
        None => Ok(()),
    }
}

/// The manifest of shards that an earlier version packed.
#[derive(Deserialize)]
struct FormerShards {
    format: String,
    members: u64,
    failures: u64,
    shards: Vec<FormerShard>,
    records: Vec<ManifestFile>,
    fingerprint: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct FormerShard {
    members: u64,
    #[serde(flatten)]
    file: ManifestFile,
}

impl FormerShards {
    fn manifest(mut self) -> Result<OutputManifest, String> {
        let columns = self.fingerprint.remove("columns").filter(|columns| !columns.is_empty());
        self.fingerprint.extend(columns.map(|columns| ("sink.columns".to_owned(), columns)));
        self.fingerprint.remove("format");
        self.fingerprint.insert("sink.format".to_owned(), self.format);
        self.fingerprint.insert(RunManifest::COMMAND.to_owned(), RunManifest::PACK.to_owned());
        let settings = RunManifest { fingerprint: self.fingerprint, ..RunManifest::default() };
        let shards = (0..).zip(self.shards);
        let manifest = OutputManifest {
            complete: true,
            rows: self.members,
            failures: self.failures,
            watermark: self.members + self.failures,
            parts: shards
                .map(|(part, FormerShard { members, file })| ManifestPart { part, rows: members, files: vec![file] })
                .collect(),
            records: self.records,
            ..OutputManifest::begun(settings)
        };
        manifest.check_names()?;
        Ok(manifest)
    }
}

/// Returns true if a name cannot lead out of the manifest's folder.
pub fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> OutputManifest {
        let file = |name: &str| ManifestFile { name: name.into(), bytes: 9, xxh3: "0123456789abcdef".into() };
        OutputManifest {
            version: OutputManifest::VERSION,
            complete: true,
            format: "npy".into(),
            dim: 4,
            element: "f32".into(),
            rows: 2,
            failures: 1,
            watermark: 3,
            parts: vec![ManifestPart { part: 0, rows: 2, files: vec![file("part-00000.npy")] }],
            records: vec![file("failures.csv")],
            fingerprint: BTreeMap::from([("model".into(), "tiny".into())]),
            info: BTreeMap::new(),
        }
    }

    #[test]
    fn a_manifest_comes_back() {
        assert_eq!(OutputManifest::parse(manifest().to_json().as_bytes()), Ok(manifest()));
    }

    #[test]
    fn shards_of_an_earlier_version_are_read() {
        let shard = |name: &str| format!(r#"{{"members":2,"name":"{name}","bytes":9,"xxh3":"0123456789abcdef"}}"#);
        let json = |name: &str| {
            let shards = [shard("00000.tar"), shard(name)].join(",");
            let fingerprint = r#"{"format":"tar","columns":"caption","shard_bytes":"9"}"#;
            format!(
                r#"{{"version":1,"format":"tar","members":4,"failures":1,"shards":[{shards}],"records":[],
                    "fingerprint":{fingerprint}}}"#
            )
        };
        let found = OutputManifest::parse(json("00001.tar").as_bytes()).unwrap();
        assert_eq!((found.made_by(), found.format.as_str(), found.rows, found.failures), ("pack", "tar", 4, 1));
        assert_eq!((found.parts[1].part, found.parts[1].rows), (1, 2));
        assert_eq!(found.files().map(|file| file.name.as_str()).collect::<Vec<_>>(), ["00000.tar", "00001.tar"]);
        let settings = [("command", "pack"), ("shard_bytes", "9"), ("sink.columns", "caption"), ("sink.format", "tar")];
        assert_eq!(found.fingerprint, settings.map(|(name, value)| (name.into(), value.into())).into());
        assert!(OutputManifest::parse(json("../00001.tar").as_bytes()).unwrap_err().contains("plain"));
    }

    #[test]
    fn a_manifest_that_does_not_add_up_is_refused() {
        let wrong = OutputManifest { rows: 3, ..manifest() };
        assert!(OutputManifest::parse(wrong.to_json().as_bytes()).unwrap_err().contains("add up"));
        let newer = OutputManifest { version: 3, ..manifest() };
        assert!(OutputManifest::parse(newer.to_json().as_bytes()).unwrap_err().contains("version 3"));
        let mut outside = manifest();
        outside.records[0].name = "../x".into();
        assert!(OutputManifest::parse(outside.to_json().as_bytes()).unwrap_err().contains("plain"));
    }

    #[test]
    fn a_renamed_file_has_its_records_beside_it() {
        let mut renamed = manifest();
        let names = |manifest: &OutputManifest| manifest.files().map(|file| file.name.clone()).collect::<Vec<_>>();
        renamed.parts[0].files[0].name = "x.npy".into();
        let record = renamed.records[0].clone();
        let file = |name: &str| ManifestFile { name: name.into(), ..record.clone() };
        renamed.parts[0].files.push(file("x.npy.ids.csv"));
        // Those of earlier versions have no underscore.
        renamed.records = vec![file("_x.npy.inputs.csv"), file("x.npy.failures.csv")];
        renamed.name_after("_x.npy.npy").unwrap();
        let found = names(&renamed);
        assert_eq!(found, ["_x.npy.npy", "_x.npy.npy.ids.csv", "__x.npy.npy.inputs.csv", "_x.npy.npy.failures.csv"]);
        renamed.name_after("x.npy").unwrap();
        renamed.records = vec![file("other.csv")];
        assert_eq!(renamed.name_after("y.npy").unwrap_err(), "\"other.csv\" is no file of \"x.npy\"");
        renamed.records = vec![file("x.npyother.csv")];
        assert!(renamed.name_after("y.npy").is_err());
    }

    #[test]
    fn every_difference_is_named_once() {
        let run = |model: &str| RunManifest {
            dim: 4,
            fingerprint: BTreeMap::from([("model".into(), model.into())]),
            info: BTreeMap::from([("host".into(), model.into())]),
        };
        assert_eq!(run("a").difference(&run("a")), None);
        assert_eq!(run("a").difference(&run("b")).unwrap().to_string(), "model: a → b");
        let wider = RunManifest { dim: 5, fingerprint: BTreeMap::new(), ..run("a") };
        assert_eq!(run("a").difference(&wider).unwrap().to_string(), "dim: 4 → 5, model: a → (none)");
    }

    #[test]
    fn kernels_and_pixels_are_compared_if_both_runs_have_them() {
        for name in [RunManifest::KERNELS, RunManifest::PIXELS] {
            let run = |value: Option<&str>| {
                let fingerprint = value.map(|value| (name.to_owned(), value.to_owned()));
                RunManifest { dim: 4, fingerprint: fingerprint.into_iter().collect(), ..RunManifest::default() }
            };
            assert_eq!(run(Some("a")).difference(&run(Some("b"))).unwrap().to_string(), format!("{name}: a → b"));
            assert_eq!(run(None).difference(&run(Some("b"))), None);
            assert_eq!(run(Some("b")).difference(&run(None)), None);
        }
    }

    #[test]
    fn digests_are_not_shown() {
        let run = |digest: &str| {
            let names = [RunManifest::LISTING, RunManifest::ITEMS, "weights_sha256"];
            let fingerprint = names.map(|name| (name.to_owned(), digest.to_owned())).into();
            RunManifest { dim: 4, fingerprint, ..RunManifest::default() }
        };
        assert_eq!(run("0a").difference(&run("1b")).unwrap().to_string(), "other weights, other inputs");
    }
}
