//! The output files' names.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::manifest::{MARK, is_plain_name};
use crate::{Layout, Prefix, SinkError, SinkOptions};

/// The folder within an output folder that holds each run's staging folder.
pub(crate) const STAGING: &str = ".foveate";

/// Name of the failures file while it grows in the staging folder, and ending of its final name.
pub const FAILURES: &str = "failures.csv";
/// The same for the record of the inputs.
pub const INPUTS: &str = "inputs.csv";

/// The suffix for shards: `-0000i-of-0000n` goes before the extension of every name, so that any number of array jobs
/// can write to one folder. Empty without a shard.
pub fn shard_suffix(shard: Option<(u32, u32)>) -> String {
    shard.map_or_else(String::new, |(i, n)| format!("-{i:05}-of-{n:05}"))
}

/// The names of all files that one run writes.
///
/// | | file `x.parquet` | folder `dir/` |
/// |---|---|---|
/// | vectors | `x.parquet` | `dir/part-00000.parquet`, … |
/// | a part's sidecar `s` | `x.parquet.s` | `dir/part-00000.parquet.s`, … |
/// | record `s` of the whole output | `_x.parquet.s` | `dir/_s` |
/// | file that marks the run as complete | `x.parquet` | `dir/_manifest.json` |
/// | work in progress | `_x.parquet.partial/` | `dir/.foveate/run/` |
///
/// Further names are appended to the whole name of the file, so that `x.parquet` and `x.npy` share none. Readers of a
/// folder of Parquet files skip names that begin with an underscore or a dot. In outputs of earlier versions, no name
/// has an underscore.
#[derive(Clone, Debug)]
pub struct OutputNames {
    output: PathBuf,
    layout: Layout,
    suffix: String,
    mark: &'static str,
    /// Parts are shards of images: `00000.tar`.
    packed: bool,
}

impl OutputNames {
    /// The names for a run with these options.
    pub fn new(options: &SinkOptions) -> Self {
        let output = options.output.clone();
        let suffix = shard_suffix(options.shard);
        let former = Self { output, layout: options.layout, suffix, mark: "", packed: options.packed };
        if former.manifest().exists() { former } else { former.current() }
    }

    /// The names that a new output gets.
    pub(crate) fn current(&self) -> Self {
        Self { mark: MARK, ..self.clone() }
    }

    /// The names of a run's objects, relative to its prefix, which may hold an output of an earlier version.
    pub(crate) fn find_below(prefix: &dyn Prefix, options: &SinkOptions) -> Result<Self, SinkError> {
        let old = Self { mark: "", ..Self::of_objects(options) };
        let is_old = !prefix.list(&old.manifest().to_string_lossy())?.is_empty();
        Ok(if is_old { old } else { Self::of_objects(options) })
    }

    /// The names of a new run's objects, relative to its prefix.
    pub(crate) fn of_objects(options: &SinkOptions) -> Self {
        let suffix = shard_suffix(options.shard);
        Self { output: PathBuf::new(), layout: Layout::Folder, suffix, mark: MARK, packed: options.packed }
    }

    /// The names of the run that [`staging`](Self::staging) ends with, relative to the output. Those of an earlier
    /// version have no mark.
    pub(crate) fn of_run(run: &str, is_former: bool) -> Self {
        let suffix = if run == "run" { String::new() } else { format!("-{run}") };
        let mark = if is_former { "" } else { MARK };
        Self { output: PathBuf::new(), layout: Layout::Folder, suffix, mark, packed: false }
    }

    /// The description of the complete output.
    pub fn manifest(&self) -> PathBuf {
        self.beside("manifest.json")
    }

    /// The file whose presence marks the run as complete.
    pub fn main(&self) -> PathBuf {
        match self.layout {
            Layout::File => {
                let mut name = self.output.file_stem().unwrap_or_default().to_owned();
                name.push(&self.suffix);
                if let Some(extension) = self.output.extension() {
                    name.push(".");
                    name.push(extension);
                }
                self.output.with_file_name(name)
            }
            Layout::Folder => self.manifest(),
        }
    }

    /// A file that belongs to the whole output.
    pub fn beside(&self, name: &str) -> PathBuf {
        match self.layout {
            Layout::File => marked(&self.main(), name, self.mark),
            Layout::Folder => {
                let (stem, extension) = name.split_once('.').unwrap_or((name, ""));
                self.output.join(format!("{}{stem}{}.{extension}", self.mark, self.suffix))
            }
        }
    }

    /// A file of part `number` within a folder.
    pub fn part(&self, folder: &Path, number: u64, extension: &str) -> PathBuf {
        match self.packed {
            true => folder.join(format!("{number:05}.{extension}")),
            false => folder.join(format!("part{}-{number:05}.{extension}", self.suffix)),
        }
    }

    /// Returns true if [`part`](Self::part) could return `name` for some format, or `name` is such a file's sidecar.
    pub fn is_part(&self, name: &str) -> bool {
        let mut rest = Some(name);
        if !self.packed {
            rest =
                name.strip_prefix("part").and_then(|rest| rest.strip_prefix(self.suffix.as_str())?.strip_prefix('-'));
        }
        let number = rest.and_then(|rest| rest.split_once('.')).map_or("", |(number, _)| number);
        is_plain_name(name) && is_number(number)
    }

    /// Returns true if a plain name is that of one of this output's files, in this version or an earlier one.
    pub(crate) fn owns(&self, name: &str) -> bool {
        match self.layout {
            Layout::File => {
                let main = self.main().file_name().unwrap_or_default().to_string_lossy().into_owned();
                let rest = name.strip_prefix(MARK).unwrap_or(name).strip_prefix(&main);
                is_plain_name(name) && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            }
            Layout::Folder => {
                let unmarked = name.strip_prefix(MARK).unwrap_or(name);
                let is_record = ["manifest.json", FAILURES, INPUTS].into_iter().any(|record| {
                    let (stem, extension) = record.split_once('.').unwrap_or((record, ""));
                    unmarked == format!("{stem}{}.{extension}", self.suffix)
                });
                is_record || self.is_part(name)
            }
        }
    }

    /// The output as the user named it.
    pub fn output(&self) -> &Path {
        &self.output
    }

    /// The folder for work in progress, on the output's own file system.
    pub fn staging(&self) -> PathBuf {
        match self.layout {
            Layout::File => marked(&self.main(), "partial", MARK),
            Layout::Folder => {
                let run = self.suffix.strip_prefix('-').filter(|name| !name.is_empty()).unwrap_or("run");
                self.output.join(STAGING).join(run)
            }
        }
    }
}

/// The number of shards that a name in an output folder speaks of: `Some(None)` for a file of a whole run, and `None`
/// for a file that no run wrote.
pub(crate) fn shards_of(name: &str) -> Option<Option<u32>> {
    let manifest = name.strip_prefix(MARK).unwrap_or(name).strip_prefix("manifest");
    let rest = name.strip_prefix("part").or(manifest)?;
    match rest.strip_prefix('-').and_then(|rest| rest.split_once("-of-")) {
        Some((shard, rest)) if is_number(shard) => rest.split(['-', '.']).next()?.parse().ok().map(Some),
        Some(_) => None,
        None if rest == ".json" => Some(None),
        None => rest.strip_prefix('-')?.split('.').next().is_some_and(is_number).then_some(None),
    }
}

/// Returns true for the number of a shard or part, of at least five digits.
fn is_number(text: &str) -> bool {
    text.len() >= 5 && text.bytes().all(|b| b.is_ascii_digit())
}

/// A record, or the work in progress, of a single file: `_file.name`.
pub fn record_of(file: &Path, name: &str) -> PathBuf {
    marked(file, name, MARK)
}

fn marked(file: &Path, name: &str, mark: &str) -> PathBuf {
    let mut marked = OsString::from(mark);
    marked.push(file.file_name().unwrap_or_default());
    sidecar(&file.with_file_name(marked), name)
}

/// The file `name` that belongs to `file`: `file.name`.
pub fn sidecar(file: &Path, name: &str) -> PathBuf {
    let mut path = OsString::from(file);
    path.push(".");
    path.push(name);
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(output: &str, shard: Option<(u32, u32)>) -> OutputNames {
        OutputNames::new(&SinkOptions { shard, ..SinkOptions::new(output) })
    }

    #[test]
    fn a_file_and_its_sidecars() {
        let plain = names("out/a.b.parquet", None);
        assert_eq!(plain.main(), Path::new("out/a.b.parquet"));
        assert_eq!(plain.beside("failures.csv"), Path::new("out/_a.b.parquet.failures.csv"));
        assert_eq!(plain.staging(), Path::new("out/_a.b.parquet.partial"));
        let shard = names("x.parquet", Some((2, 8)));
        assert_eq!(shard.main(), Path::new("x-00002-of-00008.parquet"));
        assert_eq!(shard.beside("failures.csv"), Path::new("_x-00002-of-00008.parquet.failures.csv"));
        assert_eq!(shard.staging(), Path::new("_x-00002-of-00008.parquet.partial"));
    }

    #[test]
    fn the_name_is_kept_and_shared_with_no_other_format() {
        assert_eq!(names("x.PARQUET", None).main(), Path::new("x.PARQUET"));
        assert_eq!(names("x.npy", None).beside("failures.csv"), Path::new("_x.npy.failures.csv"));
        let bare = OutputNames::new(&SinkOptions { layout: Layout::File, ..SinkOptions::new("vectors") });
        assert_eq!(bare.main(), Path::new("vectors"));
    }

    #[test]
    fn a_folder_and_its_parts() {
        let plain = names("out/", None);
        assert_eq!(plain.main(), Path::new("out/_manifest.json"));
        assert_eq!(plain.part(Path::new("out"), 3, "parquet"), Path::new("out/part-00003.parquet"));
        assert_eq!(plain.staging(), Path::new("out/.foveate/run"));
        let shard = names("out/", Some((2, 8)));
        assert_eq!(shard.main(), Path::new("out/_manifest-00002-of-00008.json"));
        assert_eq!(shard.beside("failures.csv"), Path::new("out/_failures-00002-of-00008.csv"));
        assert_eq!(shard.part(Path::new("out"), 3, "npy"), Path::new("out/part-00002-of-00008-00003.npy"));
        assert_eq!(shard.staging(), Path::new("out/.foveate/00002-of-00008"));
    }

    #[test]
    fn names_tell_the_number_of_shards() {
        for name in ["part-00000.parquet", "part-00012.npy.ids.csv", "manifest.json", "_manifest.json"] {
            assert_eq!(shards_of(name), Some(None), "{name}");
        }
        for name in ["part-00001-of-00004-00000.npy", "_manifest-00003-of-00004.json"] {
            assert_eq!(shards_of(name), Some(Some(4)), "{name}");
        }
        for name in ["particle.parquet", "part-one.npy", "manifest.yaml", "part-a-of-b.npy", "failures.csv"] {
            assert_eq!(shards_of(name), None, "{name}");
        }
    }

    #[test]
    fn only_a_runs_own_parts_are_recognized() {
        let (plain, shard) = (names("out/", None), names("out/", Some((2, 8))));
        assert!(plain.is_part("part-00000.parquet"));
        assert!(plain.is_part("part-123456.npy.ids.csv"));
        assert!(!plain.is_part("part-00002-of-00008-00000.parquet"));
        assert!(shard.is_part("part-00002-of-00008-00000.parquet"));
        assert!(!shard.is_part("part-00003-of-00008-00000.parquet"));
        assert!(!plain.is_part("part-1.parquet") && !plain.is_part("particle.parquet"));
    }
}
