//! The places of one run of an output: its files, its records, and its work in progress.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::place::SinkPlace;
use crate::publish::parent_of;
use crate::{Layout, OutputManifest, OutputNames, RunManifest, SinkError, SinkOptions};

/// Incremented when the meaning of the work in progress changes.
const VERSION: u32 = 4;

/// The file of the work in progress that says whose it is. Without it, the rest is meaningless.
pub(crate) const CLAIM: &str = "claim";
/// The journal of a run by an earlier version.
pub(crate) const FORMER_JOURNAL: &str = "journal";

/// The job that the work in progress belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    version: u32,
    pub(crate) settings: RunManifest,
    /// Digest of the output that the run replaces.
    pub(crate) base: Option<String>,
    /// Number of its first part. An output in a store keeps its parts until another one has replaced it.
    pub(crate) first_part: u64,
    /// False for an update, which starts over: its items have no order of a source.
    pub(crate) can_continue: bool,
}

impl Claim {
    pub(crate) fn new(settings: RunManifest, base: Option<&OutputManifest>) -> Self {
        let base = base.map(OutputManifest::digest);
        Self { version: VERSION, settings, base, first_part: 0, can_continue: true }
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let claim: Self = parse_checked(bytes)?;
        match claim.version {
            VERSION => Ok(claim),
            version => Err(format!("written by another version of this program (layout {version}, not {VERSION})")),
        }
    }
}

/// One line of JSON after its checksum.
pub(crate) fn checked_json(value: &impl Serialize) -> Bytes {
    let json = serde_json::to_string(value).expect("records are plain data and always have a JSON form");
    format!("{:016x} {json}\n", xxh3_64(json.as_bytes())).into()
}

pub(crate) fn parse_checked<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T, String> {
    let line = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let line = line.strip_suffix('\n').and_then(|line| line.split_once(' '));
    let Some((sum, json)) = line.filter(|(sum, json)| *sum == format!("{:016x}", xxh3_64(json.as_bytes()))) else {
        return Err("it does not match its checksum".to_owned());
    };
    serde_json::from_str(json).map_err(|error| format!("{sum}: {error}"))
}

/// The places of one run: the only one of its output, or a shard.
#[derive(Clone, Debug)]
pub(crate) struct RunSite {
    pub(crate) names: OutputNames,
    pub(crate) layout: Layout,
    /// The folder or the prefix with the output's files.
    pub(crate) output: SinkPlace,
    /// The work in progress. A reader of the output does not look there.
    pub(crate) work: SinkPlace,
}

impl RunSite {
    /// The places of the run with these options. A store is asked how an output of an earlier version is named.
    pub(crate) fn of(options: &SinkOptions) -> Result<Self, SinkError> {
        let Some(prefix) = &options.prefix else {
            let names = OutputNames::new(options);
            let folder = match options.layout {
                Layout::File => parent_of(&options.output).to_owned(),
                Layout::Folder => options.output.clone(),
            };
            let work = SinkPlace::Folder(names.staging());
            return Ok(Self { names, layout: options.layout, output: SinkPlace::Folder(folder), work });
        };
        let names = OutputNames::find_below(prefix.as_ref(), options)?;
        Ok(Self::of_names(names, SinkPlace::Objects { prefix: Arc::clone(prefix), start: String::new() }))
    }

    /// The places of a run with these names, which are relative to `output`.
    pub(crate) fn of_names(names: OutputNames, output: SinkPlace) -> Self {
        let work = output.below(&names.staging().to_string_lossy());
        Self { names, layout: Layout::Folder, output, work }
    }

    pub(crate) fn manifest_name(&self) -> String {
        name_of(&self.names.manifest())
    }

    /// The name of the file that means that the output is complete.
    pub(crate) fn main_name(&self) -> String {
        name_of(&self.names.main())
    }

    /// Reads the output's manifest, whose files have the names that they have now.
    pub(crate) fn manifest(&self) -> Result<Option<OutputManifest>, SinkError> {
        let name = self.manifest_name();
        let Some(mut manifest) = self.output.parse(&name, OutputManifest::parse)? else { return Ok(None) };
        if self.layout == Layout::File {
            let renamed = manifest.name_after(&self.main_name());
            renamed.map_err(|reason| SinkError::damaged(&self.output.path(&name), reason))?;
        }
        Ok(Some(manifest))
    }

    /// Reads which job the work in progress belongs to; `None` if there is none.
    pub(crate) fn claim(&self) -> Result<Option<Claim>, SinkError> {
        if let SinkPlace::Folder(_) = &self.work {
            let former = "an earlier version of foveate began this run";
            self.work.parse::<()>(FORMER_JOURNAL, |_| Err(former.to_owned()))?;
        }
        self.work.parse(CLAIM, Claim::parse)
    }

    /// The names of a part's files: that with the vectors, and its sidecars.
    pub(crate) fn part_name(&self, number: u64, extension: &str) -> String {
        name_of(&self.names.part(Path::new(""), number, extension))
    }
}

/// The name of a file, as manifests and places have it.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
