//! Turns inputs into records, one outcome per input found.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::vec::IntoIter;

use globset::GlobBuilder;

use crate::braces;
use crate::container::ContainerOptions;
use crate::id::{id_of, to_bytes, to_path};
use crate::names::LeftOut;
use crate::pattern::{Pattern, PatternProgress, has_wildcard};
use crate::roots::Roots;
use crate::spool::{Record, Spool, SpoolWriter};
use crate::store::{Object, Store, Version, normal_address, scheme_of};
use crate::stream::{self, Reach, STANDARD_INPUT};
use crate::walk::{Ancestors, EntryKind, FolderEntry, FolderId, read_folder, readable};
use crate::{FetchError, Input, ListReader, Separator, SourceError, table_list};

/// The file name extensions that a folder contributes, in any case. Files that are named, listed or matched by a
/// pattern count with any extension.
pub const IMAGE_EXTENSIONS: [&str; 25] = [
    "jpg", "jpeg", "jpe", "jfif", "jif", "jfi", "pjpeg", "pjp", "mpo", "png", "apng", "webp", "gif", "bmp", "tif",
    "tiff", "pbm", "pgm", "ppm", "pnm", "pam", "tga", "qoi", "ico", "pcx",
];

/// The file name extensions of image formats that not every build reads. A folder does not contribute those that this
/// build does not read, in any case, but they are counted apart from files that are no images.
pub const FOREIGN_EXTENSIONS: [&str; 30] = [
    "arw", "avif", "cr2", "cr3", "cur", "dcm", "dds", "dng", "exr", "fits", "hdr", "heic", "heif", "hif", "icns",
    "j2c", "j2k", "jp2", "jpc", "jpf", "jpx", "jxl", "nef", "orf", "psd", "raf", "rw2", "sgi", "svg", "xcf",
];

/// Those that a folder contributes in builds whose decoders read them.
const FEATURE_EXTENSIONS: [(bool, &[&str]); 4] = [
    (cfg!(feature = "avif"), &["avif"]),
    (cfg!(feature = "heic"), &["heic", "heif", "hif"]),
    (cfg!(feature = "jpeg2000"), &["j2c", "j2k", "jp2", "jpc", "jpf", "jpx"]),
    (cfg!(feature = "jxl"), &["jxl"]),
];

/// Counts from listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListingStats {
    /// All inputs, including those with a fault.
    pub items: u64,
    /// Inputs that listing found unreadable.
    pub faults: u64,
    /// Searched folders.
    pub folders: u64,
    /// Images in folders that were skipped because no decoder reads their format, by extension
    /// ([`FOREIGN_EXTENSIONS`]).
    pub skipped_foreign: BTreeMap<&'static str, u64>,
    /// Containers in folders that were skipped, because a folder stands for its images: named or matched by a pattern,
    /// they are read.
    pub skipped_containers: u64,
    /// Other files in folders that were skipped because their extension is not an image's.
    pub skipped_other: u64,
    /// Entries of folders that were skipped because their name begins with a dot (a hidden folder counts once).
    pub skipped_hidden: u64,
    /// Images in folders that have another name: the name is a symbolic link, or its folder was searched before.
    pub linked: u64,
    /// Folders that were skipped because systems keep small copies and deleted files in them
    /// ([`SYSTEM_FOLDERS`](crate::SYSTEM_FOLDERS)).
    pub skipped_system: u64,
    /// Files, objects and folders that the user leaves out.
    pub skipped_excluded: u64,
}

/// Number of new items between two progress calls.
const PROGRESS_STEP: u64 = 1024;

pub(crate) struct InputLister<'a> {
    spool: SpoolWriter,
    stats: ListingStats,
    roots: Roots,
    reach: Arc<Reach>,
    containers: u64,
    /// Containers that cannot carry columns along, and files and objects.
    without_columns: u64,
    /// The first container that declares its columns.
    table: Option<Record>,
    /// The first container whose members tell which columns it has.
    archive: Option<Record>,
    /// The first lookup that a store refused without having found anything before, until it finds an object.
    refused: Option<SourceError>,
    has_objects: bool,
    progress: Option<&'a mut dyn FnMut(u64)>,
    /// Folders whose images were added.
    searched: HashSet<FolderId>,
    /// A folder that cannot be read is one faulty item.
    pub(crate) accepts_unreadable: bool,
}

fn failed_lookup(address: &str, error: FetchError) -> SourceError {
    SourceError::Io { action: format!("look up {}", id_of(address.as_bytes())), source: error.into() }
}

/// The result of listing.
pub(crate) struct ListedRecords {
    pub(crate) spool: Spool,
    pub(crate) stats: ListingStats,
    pub(crate) roots: Roots,
    /// Number of records that are containers.
    pub(crate) containers: u64,
}

/// A folder being walked.
struct Level<'p> {
    folder: PathBuf,
    entries: IntoIter<FolderEntry>,
    mode: Mode<'p>,
    /// It was searched before, under another name.
    is_again: bool,
}

/// Which entries of a folder to take.
#[derive(Clone)]
enum Mode<'p> {
    /// Every image below it.
    Images,
    /// Entries that continue to match a pattern.
    Matching(&'p Pattern, PatternProgress),
}

impl<'a> InputLister<'a> {
    /// A lister whose snapshot may take `max_bytes`.
    pub(crate) fn new(max_bytes: u64, reach: Arc<Reach>, progress: Option<&'a mut dyn FnMut(u64)>) -> Self {
        let spool = SpoolWriter::new(max_bytes);
        let stats = ListingStats::default();
        let roots = Roots::default();
        Self {
            spool,
            stats,
            roots,
            reach,
            containers: 0,
            without_columns: 0,
            table: None,
            archive: None,
            refused: None,
            has_objects: false,
            progress,
            searched: HashSet::new(),
            accepts_unreadable: false,
        }
    }

    /// The complete listing.
    ///
    /// # Errors
    /// If a store refused lookups and no object was found, or a table lacks a column.
    pub(crate) fn finish(mut self) -> Result<ListedRecords, SourceError> {
        if let Some(error) = self.refused.take_if(|_| !self.has_objects) {
            return Err(error);
        }
        self.stats.items = self.spool.records();
        if let Some(progress) = &mut self.progress {
            progress(self.stats.items);
        }
        self.check_columns()?;
        if self.containers > 0 {
            // Its members are not in the listing, and the names decide which there are.
            self.spool.hashed(self.reach.options.names.text().as_bytes());
        }
        let Self { spool, stats, roots, containers, .. } = self;
        Ok(ListedRecords { spool: spool.finish()?, stats, roots, containers })
    }

    /// Checks that the inputs can have the columns that the options name, before anything else is read of them.
    fn check_columns(&self) -> Result<(), SourceError> {
        let ContainerOptions { columns, image_column, id_column, .. } = &self.reach.options;
        if self.spool.records() == self.stats.faults {
            return Ok(());
        }
        if !columns.is_empty() && self.without_columns == self.spool.records() {
            let why = format!("no input can carry columns along ({})", columns.join(", "));
            return Err(SourceError::Invalid(why));
        }
        // Ids may also be in the sidecars of a tar, which only reading tells.
        let ids = id_column.as_ref().filter(|_| self.without_columns == self.spool.records());
        match (&self.table, image_column.as_ref().or(ids)) {
            (Some(table), _) => self.reach.check_columns(table),
            (None, Some(name)) => Err(SourceError::Invalid(format!("no input is a table with a column '{name}'"))),
            (None, None) => self.archive.as_ref().map_or(Ok(()), |archive| self.reach.check_columns(archive)),
        }
    }

    /// Adds all inputs in their order.
    pub(crate) fn inputs(&mut self, inputs: &[Input]) -> Result<(), SourceError> {
        inputs.iter().try_for_each(|input| match input {
            Input::Path(path) if path.as_os_str().as_encoded_bytes() == STANDARD_INPUT => self.standard_input(),
            Input::Path(path) => self.path(path),
            Input::List(path, separator) => {
                if *separator == Separator::Line {
                    table_list::check_is_list(path)?;
                }
                let mut list = ListReader::open(path, *separator)?;
                while let Some(entry) = list.next_entry()? {
                    self.listed(entry.bytes)?;
                }
                Ok(())
            }
            Input::Table(path, column) => table_list::each_path(path, column, &mut |path| self.listed(path.as_bytes())),
        })
    }

    /// Adds the container on standard input.
    fn standard_input(&mut self) -> Result<(), SourceError> {
        self.record(STANDARD_INPUT, "", &Version::default())
    }

    /// Adds an object, all images below a prefix, or the objects that match a pattern.
    fn address(&mut self, address: &str) -> Result<(), SourceError> {
        let store = match scheme_of(address.as_bytes()) {
            Some(scheme) => self.reach.store(scheme)?,
            None => return Ok(()),
        };
        let mut found = 0;
        let is_pattern = is_pattern(address);
        let is_container = matches!(self.reach.kind(address.as_bytes()), stream::RecordKind::Container(_));
        if is_web(address) && !is_pattern && !is_container && !address.ends_with('/') {
            // It can only be a file, and the answer with its bytes says all that there is to know.
            return self.object(&Object { address: address.to_owned(), version: Version::default() });
        }
        if !address.ends_with('/') {
            match store.find(address) {
                Ok(Some(object)) => return self.named(&object),
                Ok(None) => {}
                Err(error) => match (&error, error.suspects_storage()) {
                    // A store that does not tell which names there are refuses those that there are not.
                    (FetchError::Denied(_) | FetchError::Forbidden(_), _) | (_, false) if is_pattern => {}
                    (FetchError::Denied(why), _) => {
                        let why = why.clone();
                        self.refused.get_or_insert_with(|| failed_lookup(address, error));
                        return self.fault(Path::new(address), &why);
                    }
                    (_, true) => return Err(failed_lookup(address, error)),
                    (_, false) => return self.fault(Path::new(address), &error.to_string()),
                },
            }
        }
        match braces::expand(address) {
            Ok(Some(names)) => return self.numbered(store.as_ref(), address, &names),
            Ok(None) => {}
            Err(reason) => return self.fault(Path::new(address), &reason),
        }
        if is_pattern {
            let glob = GlobBuilder::new(address).literal_separator(true).build();
            let glob = glob
                .map_err(|error| SourceError::Invalid(format!("{}: {error}", id_of(address.as_bytes()))))?
                .compile_matcher();
            store.list(before_pattern(address), &mut |object| {
                if !glob.is_match(&object.address) {
                    return Ok(());
                }
                found += 1;
                self.named(&object)
            })?;
            return if found > 0 { Ok(()) } else { self.fault(Path::new(address), "the pattern matches nothing") };
        }
        let prefix = if address.ends_with('/') { address.to_owned() } else { format!("{address}/") };
        store.list(&prefix, &mut |object| {
            found += 1;
            self.found_below(&object, &prefix)
        })?;
        if found > 0 { Ok(()) } else { self.fault(Path::new(address), "no object has this name or prefix") }
    }

    /// Adds the objects that a range of numbers names. Listing many is faster than asking for each.
    fn numbered(&mut self, store: &dyn Store, address: &str, names: &[String]) -> Result<(), SourceError> {
        const FEW: usize = 100;
        if names.len() <= FEW || is_web(address) || names.iter().any(|name| has_wildcard(name)) {
            return names.iter().try_for_each(|name| self.address(name));
        }
        let wanted: HashSet<&str> = names.iter().map(String::as_str).collect();
        let mut found = HashMap::new();
        store.list(before_pattern(address), &mut |object| {
            if wanted.contains(object.address.as_str()) {
                found.insert(object.address.clone(), object);
            }
            Ok(())
        })?;
        names.iter().try_for_each(|name| match found.get(name) {
            Some(object) => self.named(object),
            None => self.fault(Path::new(name), "no object has this name"),
        })
    }

    /// Handles an object below a prefix that stands for its images.
    fn found_below(&mut self, object: &Object, prefix: &str) -> Result<(), SourceError> {
        let path = Path::new(&object.address);
        let is_folder = object.address.ends_with('/');
        let below = object.address.strip_prefix(prefix).unwrap_or(&object.address);
        if let Some(why) = self.reach.options.names.leaves_out_file(path, Path::new(below)) {
            self.left_out(why);
            return Ok(());
        }
        if is_folder {
            return Ok(());
        }
        if is_image(path) {
            self.object(object)?
        } else {
            self.skip(path)
        }
        Ok(())
    }

    /// Adds an object that the user named, or matched by a pattern.
    fn named(&mut self, object: &Object) -> Result<(), SourceError> {
        if self.leaves_out_named(object.address.as_bytes()) { Ok(()) } else { self.object(object) }
    }

    fn object(&mut self, object: &Object) -> Result<(), SourceError> {
        self.has_objects = true;
        let scheme = scheme_of(object.address.as_bytes()).unwrap_or_default();
        match self.reach.store(scheme)?.refusal(&object.address) {
            Some(reason) => self.fault(Path::new(&object.address), &reason),
            None => self.record(object.address.as_bytes(), "", &object.version),
        }
    }

    /// Returns true if the user leaves out what was named, and counts it.
    fn leaves_out_named(&mut self, path: &[u8]) -> bool {
        let is_container = matches!(self.reach.kind(path), stream::RecordKind::Container(_));
        let path = to_path(path);
        let is_left_out = self.reach.options.names.excludes(&path, &path, is_container);
        self.stats.skipped_excluded += u64::from(is_left_out);
        is_left_out
    }

    fn left_out(&mut self, why: LeftOut) {
        match why {
            LeftOut::Hidden => self.stats.skipped_hidden += 1,
            LeftOut::System => self.stats.skipped_system += 1,
            LeftOut::Excluded => self.stats.skipped_excluded += 1,
        }
    }

    /// Counts a file that a folder does not contribute.
    fn skip(&mut self, path: &Path) {
        match known_extension(path, &FOREIGN_EXTENSIONS) {
            Some(foreign) => *self.stats.skipped_foreign.entry(foreign).or_default() += 1,
            None if matches!(self.reach.kind(&to_bytes(path)), stream::RecordKind::Container(_)) => {
                self.stats.skipped_containers += 1;
            }
            None => self.stats.skipped_other += 1,
        }
    }

    /// Adds a file, a folder, a pattern, or what an address names. An existing path is never taken for a pattern.
    fn path(&mut self, path: &Path) -> Result<(), SourceError> {
        if let Some(address) = path.to_str().filter(|text| scheme_of(text.as_bytes()).is_some()) {
            return self.address(address);
        }
        match fs::metadata(path) {
            Ok(data) if data.is_dir() => self.search(path, Mode::Images),
            Ok(_) if self.leaves_out_named(&to_bytes(path)) => Ok(()),
            Ok(_) => self.item(path),
            Err(error) => match path.to_str().filter(|text| has_wildcard(text)) {
                Some(text) => self.pattern(text),
                None => self.fault(path, &error.to_string()),
            },
        }
    }

    /// Adds everything that a pattern matches: files as they are, folders searched.
    fn pattern(&mut self, text: &str) -> Result<(), SourceError> {
        match braces::expand(text) {
            Ok(Some(names)) => return names.iter().try_for_each(|name| self.path(Path::new(name))),
            Ok(None) => {}
            Err(reason) => return self.fault(Path::new(text), &reason),
        }
        let pattern = match Pattern::new(text) {
            Ok(pattern) => pattern,
            Err(reason) => return self.fault(Path::new(text), &reason),
        };
        let before = self.spool.records() + self.stats.skipped_excluded;
        if readable(&pattern.base).is_dir() {
            self.search(&pattern.base, Mode::Matching(&pattern, pattern.start()))?;
        }
        if self.spool.records() + self.stats.skipped_excluded == before {
            self.fault(Path::new(text), "the pattern matches nothing")?;
        }
        Ok(())
    }

    /// Adds an entry of a list.
    fn listed(&mut self, entry: &[u8]) -> Result<(), SourceError> {
        const SHOWN: usize = 64;
        if entry.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"data:")) {
            let start = String::from_utf8_lossy(&entry[..entry.len().min(SHOWN)]).into_owned();
            let why = "a data: address is the image itself; write it to a file (`base64 -d`) and list that";
            return self.fault(Path::new(&format!("{start}…")), why);
        }
        let address = std::str::from_utf8(entry).ok().map(normal_address);
        let path = address.as_ref().map_or(entry, |address| address.as_bytes());
        if self.leaves_out_named(path) {
            return Ok(());
        }
        let scheme = scheme_of(path).filter(|_| self.reach.stores.is_some());
        match scheme.map(|scheme| self.reach.store(scheme)) {
            Some(Err(error @ SourceError::NoStore { .. })) => self.fault(&to_path(path), &error.to_string()),
            Some(Err(error)) => Err(error),
            _ => self.record(path, "", &Version::default()),
        }
    }

    /// Adds a record of a listing that was kept.
    pub(crate) fn again(&mut self, Record { path, fault, version }: Record) -> Result<(), SourceError> {
        self.stats.faults += u64::from(!fault.is_empty());
        self.has_objects |= scheme_of(&path).is_some();
        self.record(&path, &fault, &Version::parse(&version))
    }

    /// Adds a folder that was searched for a listing that was kept.
    pub(crate) fn root(&mut self, folder: &[u8]) {
        self.roots.insert(&to_path(folder));
    }

    fn search(&mut self, root: &Path, mode: Mode<'_>) -> Result<(), SourceError> {
        self.roots.insert(root);
        self.walk(root.to_owned(), mode)
    }

    /// Depth first, in the byte order of path components. The stack is on the heap and holds only the names of the
    /// folders on the way down.
    fn walk(&mut self, start: PathBuf, mode: Mode<'_>) -> Result<(), SourceError> {
        let mut above = Ancestors::default();
        let mut levels = Vec::new();
        let root = start.clone();
        levels.extend(self.enter(start, mode, &mut above)?);
        while let Some(level) = levels.last_mut() {
            let Some(FolderEntry { name, kind, is_link }) = level.entries.next() else {
                levels.pop();
                above.leave();
                continue;
            };
            let path = level.folder.join(&name);
            let below = path.strip_prefix(&root).unwrap_or(&path);
            let is_folder = matches!(kind, EntryKind::Folder);
            let is_meant = matches!(&level.mode, Mode::Matching(pattern, _) if pattern.names(&name));
            match self.reach.options.names.leaves_out(&path, below, is_folder) {
                Some(LeftOut::Hidden | LeftOut::System) if is_meant => {}
                Some(why) => {
                    self.left_out(why);
                    continue;
                }
                None => {}
            }
            let descend = match &level.mode {
                Mode::Images => {
                    let before = self.spool.records();
                    let is_linked = matches!(kind, EntryKind::File) && (is_link || level.is_again);
                    let descend = self.found_in_folder(&path, kind)?;
                    self.stats.linked += if is_linked { self.spool.records() - before } else { 0 };
                    descend
                }
                Mode::Matching(pattern, from) => {
                    let to = pattern.step(from, &name);
                    self.found_by_pattern(&path, kind, pattern, to)?
                }
            };
            if let Some(mode) = descend {
                levels.extend(self.enter(path, mode, &mut above)?);
            }
        }
        Ok(())
    }

    /// Enters a folder, or records why that fails.
    fn enter<'p>(
        &mut self,
        folder: PathBuf,
        mode: Mode<'p>,
        above: &mut Ancestors,
    ) -> Result<Option<Level<'p>>, SourceError> {
        let on_disk = readable(&folder);
        if let Err(reason) = above.enter(on_disk) {
            self.fault(&folder, &reason)?;
            return Ok(None);
        }
        let found = match read_folder(on_disk) {
            Ok(found) => found,
            Err(error) => {
                above.leave();
                self.unreadable(&folder, error)?;
                return Ok(None);
            }
        };
        if let Some(error) = found.broken_off {
            self.unreadable(&folder, error)?;
        }
        self.stats.folders += 1;
        // A pattern may take other files of a folder than an earlier one.
        let is_again = matches!(mode, Mode::Images) && above.last().is_some_and(|id| !self.searched.insert(id.clone()));
        Ok(Some(Level { folder, entries: found.entries.into_iter(), mode, is_again }))
    }

    /// Handles an entry of a folder that is searched for images.
    fn found_in_folder(&mut self, path: &Path, kind: EntryKind) -> Result<Option<Mode<'static>>, SourceError> {
        match kind {
            EntryKind::Folder => return Ok(Some(Mode::Images)),
            EntryKind::File if is_image(path) => self.item(path)?,
            EntryKind::File if hints_at_image(path) && begins_as_image(path) => self.item(path)?,
            EntryKind::File => self.skip(path),
            // It might be a folder of images with any name.
            EntryKind::Broken(reason) => self.fault(path, &reason)?,
        }
        Ok(None)
    }

    /// Handles an entry that advances a pattern to `to`.
    fn found_by_pattern<'p>(
        &mut self,
        path: &Path,
        kind: EntryKind,
        pattern: &'p Pattern,
        to: PatternProgress,
    ) -> Result<Option<Mode<'p>>, SourceError> {
        match (kind, pattern.is_match(&to)) {
            (EntryKind::Folder, _) if pattern.can_go_on(&to) => return Ok(Some(Mode::Matching(pattern, to))),
            (EntryKind::Folder, true) => return Ok(Some(Mode::Images)),
            (EntryKind::File, true) => self.item(path)?,
            (EntryKind::Broken(reason), true) => self.fault(path, &reason)?,
            (_, false) => {}
        }
        Ok(None)
    }

    /// A folder that cannot be read hides any number of images.
    fn unreadable(&mut self, folder: &Path, source: io::Error) -> Result<(), SourceError> {
        if self.accepts_unreadable {
            self.fault(folder, &source.to_string())
        } else {
            Err(SourceError::Io { action: format!("read the folder {}", folder.display()), source })
        }
    }

    fn item(&mut self, path: &Path) -> Result<(), SourceError> {
        self.record(&to_bytes(path), "", &Version::default())
    }

    fn fault(&mut self, path: &Path, reason: &str) -> Result<(), SourceError> {
        self.stats.faults += 1;
        self.record(&to_bytes(path), reason, &Version::default())
    }

    fn record(&mut self, path: &[u8], fault: &str, version: &Version) -> Result<(), SourceError> {
        match self.reach.kind(path) {
            stream::RecordKind::Container(format) if fault.is_empty() => {
                self.without_columns += u64::from(!format.has_columns());
                self.containers += 1;
                // Its members are not in the listing, so its content has to be.
                let version = if scheme_of(path).is_some() { version.clone() } else { version_of(path) }.to_text();
                self.spool.push(path, fault, &version)?;
                let first = if format.has_schema() { &mut self.table } else { &mut self.archive };
                if first.is_none() && format.has_columns() && path != STANDARD_INPUT {
                    *first = Some(Record { path: path.to_owned(), version: version.clone(), ..Record::default() });
                }
                self.spool.hashed(version.as_bytes());
            }
            kind => {
                self.without_columns += 1;
                let version =
                    if matches!(kind, stream::RecordKind::Object(_)) { version.to_text() } else { String::new() };
                self.spool.push(path, fault, &version)?;
            }
        }
        let records = self.spool.records();
        if let Some(progress) = self.progress.as_mut().filter(|_| records.is_multiple_of(PROGRESS_STEP)) {
            progress(records);
        }
        Ok(())
    }
}

/// Returns true if an address that names no object is a pattern. Web addresses may have any sign but the asterisk and
/// ranges.
fn is_pattern(address: &str) -> bool {
    if is_web(address) {
        address.contains('*') || matches!(braces::expand(address), Ok(Some(_)) | Err(_))
    } else {
        has_wildcard(address)
    }
}

fn is_web(address: &str) -> bool {
    matches!(scheme_of(address.as_bytes()), Some("http" | "https"))
}

/// The prefix that every address has which matches a pattern.
fn before_pattern(pattern: &str) -> &str {
    let slash = pattern.find(['*', '?', '[', '{']).and_then(|at| pattern[..at].rfind('/'));
    &pattern[..slash.map_or(0, |at| at + 1)]
}

/// The version of a local container; unknown for standard input and for a file that cannot be examined.
fn version_of(path: &[u8]) -> Version {
    match fs::metadata(to_path(path)) {
        Ok(data) if path != STANDARD_INPUT => Version::of_file(&data),
        _ => Version::default(),
    }
}

/// Suffixes that programs add to the names of incomplete files.
const UNFINISHED: [&str; 6] = [".part", ".partial", ".crdownload", ".download", ".tmp", "~"];

/// Returns true for a name with an image's extension within: `x.jpg_large`, `x.jpg?w=300`, `x.jpg.1`, as programs name
/// what they download.
fn hints_at_image(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()).map(str::to_ascii_lowercase) else { return false };
    if UNFINISHED.iter().any(|end| name.ends_with(end)) {
        return false;
    }
    for known in image_extensions() {
        for (at, _) in name.match_indices(known) {
            let rest = &name[at + known.len()..];
            if name[..at].ends_with('.') && !rest.starts_with(|c: char| c.is_alphanumeric()) {
                return true;
            }
        }
    }
    false
}

/// Returns true if a file begins as those of the formats that are read.
fn begins_as_image(path: &Path) -> bool {
    let mut start = [0; 12];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
    let marks: [&[u8]; 10] = [
        b"\xff\xd8\xff",
        b"\x89PNG\r\n",
        b"GIF8",
        b"BM",
        b"II*\0",
        b"MM\0*",
        b"\xff\x0a",
        b"\0\0\0\x0cJXL ",
        b"\0\0\0\x0cjP  ",
        b"\xff\x4f\xff\x51",
    ];
    let is_webp = start.starts_with(b"RIFF") && start.ends_with(b"WEBP");
    let is_heif = [b"avif", b"heic", b"heix", b"mif1"].iter().any(|brand| start[8..] == **brand);
    let is_heif = is_heif && start[4..8] == *b"ftyp";
    read.is_ok() && (is_webp || is_heif || marks.iter().any(|mark| start.starts_with(mark)))
}

/// The extensions of the formats that this build reads.
fn image_extensions() -> impl Iterator<Item = &'static str> {
    let by_feature = FEATURE_EXTENSIONS.into_iter().filter(|(is_read, _)| *is_read).flat_map(|(_, known)| known);
    IMAGE_EXTENSIONS.iter().chain(by_feature).copied()
}

fn is_image(path: &Path) -> bool {
    let Some(extension) = path.extension().and_then(|extension| extension.to_str()) else { return false };
    image_extensions().any(|known| known.eq_ignore_ascii_case(extension))
}

fn known_extension(path: &Path, known: &[&'static str]) -> Option<&'static str> {
    let extension = path.extension()?.to_str()?;
    known.iter().copied().find(|known| known.eq_ignore_ascii_case(extension))
}
