//! The files behind images, as they are now.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use foveate::embed::{InputSettings, Settings};
use foveate::pipeline::{Cancel, stamp_of};
use foveate::sink::{Likeness, Stamp};
use foveate::source::container::{ContainerRegistry, format_of};
use foveate::source::store::scheme_of;
use foveate::source::{Input, NamedFile, Source};

use super::images::{FoundImages, columns_of, find_images, image_options};
use super::vectors::Loaded;
use crate::cli::search_args::{SearchArgs, SheetArgs};
use crate::cli::{console, job};

/// An image's file.
#[derive(Clone, Debug, Default)]
pub(super) struct ImageFile {
    /// `None` if it is not where its id says.
    pub(super) named: Option<NamedFile>,
    /// It has other bytes than those that were embedded.
    pub(super) is_changed: bool,
    /// The time of its last modification, in nanoseconds since 1970.
    pub(super) modified_ns: Option<i64>,
    /// It was found by the end of its id, in another place.
    pub(super) is_moved: bool,
}

impl Loaded {
    /// Looks at the files of some rows. Those that are not at their ids are looked for among the sheet's images; one
    /// with another id counts only if it has what was recorded of the file. Objects are looked up, one by one, if
    /// `asks_stores`.
    pub(super) fn files(
        &self,
        args: &SearchArgs,
        sheet: &SheetArgs,
        cancel: &Cancel,
        asks_stores: bool,
        rows: impl IntoIterator<Item = u32>,
    ) -> anyhow::Result<HashMap<u32, ImageFile>> {
        let formats = foveate::backends::containers();
        let mut files = HashMap::new();
        // Rows by id that only a listing finds, and the tables that have them.
        let mut missing: HashMap<&str, u32> = HashMap::new();
        let mut in_tables: BTreeMap<&Path, HashMap<&str, u32>> = BTreeMap::new();
        for row in rows {
            if cancel.is_cancelled() {
                return Ok(files);
            }
            let id = &*self.ids[row as usize];
            let named = NamedFile::of_id(id);
            if let Some(table) = table_of(&formats, id).filter(|_| named.as_ref().is_none_or(|file| !file.is_whole())) {
                in_tables.entry(table).or_default().insert(id, row);
            } else if named.is_none() {
                missing.insert(id, row);
            }
            files.insert(row, ImageFile { named, ..ImageFile::default() });
        }
        if !sheet.page.images.is_empty() {
            missing.extend(in_tables.into_values().flatten());
            let found = find_images(args, self.manifest.as_ref(), &sheet.page.images, cancel, missing.keys().copied());
            let found = found.unwrap_or_else(|error| {
                console::say!("warning: {error:#}");
                FoundImages::default()
            });
            for (wanted, image) in &found.images {
                let file = files.entry(missing[wanted]).or_default();
                file.named = found.file_of(image);
                file.is_moved = !image.is_exact;
            }
        } else {
            for (table, wanted) in in_tables {
                self.list(args, table, cancel, wanted, &mut files)?;
            }
        }
        let stamps = self.stamps(&files)?;
        if asks_stores {
            self.look_up(args, &formats, cancel, &stamps, &mut files)?;
        }
        self.compare(cancel, &stamps, &mut files);
        Ok(files)
    }

    /// Finds the files of ids in a table, whose rows name files, or hold the images.
    fn list(
        &self,
        args: &SearchArgs,
        table: &Path,
        cancel: &Cancel,
        mut wanted: HashMap<&str, u32>,
        files: &mut HashMap<u32, ImageFile>,
    ) -> anyhow::Result<()> {
        let options = image_options(args, &[table.to_owned()], columns_of(self.manifest.as_ref()));
        // What is not there any more is not found, and the caller says so.
        let Ok(mut listing) = job::list(&options, |_| ()) else { return Ok(()) };
        while let Some(item) = listing.next_item()? {
            let named = listing.file_of(&item);
            // Images in the table itself are members by their ids, and need not be read.
            let is_of_images = named.as_ref().is_some_and(NamedFile::is_member);
            if cancel.is_cancelled() || wanted.is_empty() || is_of_images {
                return Ok(());
            }
            if let Some(row) = wanted.remove(item.id.as_str()) {
                files.entry(row).or_default().named = named;
            }
        }
        Ok(())
    }

    /// Looks up objects. One that is gone, or in a store that does not answer, is not found.
    fn look_up(
        &self,
        args: &SearchArgs,
        formats: &ContainerRegistry,
        cancel: &Cancel,
        stamps: &HashMap<u32, Stamp>,
        files: &mut HashMap<u32, ImageFile>,
    ) -> anyhow::Result<()> {
        let mut wanted: HashMap<&str, u32> = HashMap::new();
        for (&row, file) in &*files {
            let id = &*self.ids[row as usize];
            let is_web = matches!(scheme_of(id.as_bytes()), None | Some("http" | "https"));
            if !is_web && file.named.is_some() && container_of(formats, id).is_none() {
                wanted.insert(id, row);
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let inputs = wanted.keys().map(|id| Input::Path(id.into())).collect();
        let options = Settings {
            inputs: InputSettings { inputs, store_option: args.store_option.clone(), ..InputSettings::default() },
            ..Settings::new(Vec::new(), "", "")
        };
        let mut found = HashMap::new();
        if let Ok(mut listing) = job::list(&options, |_| ()) {
            let mut fetch = listing.open_fetch()?;
            while let Some(item) = listing.next_item()?.filter(|_| !cancel.is_cancelled()) {
                let stamp = stamp_of(fetch.as_mut(), &item);
                // Of a file on a web server, only its version says that it is there.
                if item.fault.is_none() && stamp != Stamp::default() {
                    found.insert(item.id, stamp);
                }
            }
        }
        for (id, row) in wanted {
            let file = files.entry(row).or_default();
            let Some(stamp) = found.get(id) else {
                file.named = None;
                continue;
            };
            match stamps.get(&row).map(|recorded| recorded.compare(stamp)) {
                Some(Likeness::Other) => file.is_changed = true,
                // Records of older versions know nothing of listed objects.
                Some(Likeness::Unknown) => file.named = None,
                _ => {}
            }
        }
        Ok(())
    }

    /// Records of files in the runs.
    fn stamps(&self, files: &HashMap<u32, ImageFile>) -> anyhow::Result<HashMap<u32, Stamp>> {
        let rows: HashMap<&str, u32> = files.keys().map(|&row| (&*self.ids[row as usize], row)).collect();
        let mut stamps = HashMap::new();
        for record in &self.records {
            // A file that was copied alone has no record beside it; its images are read instead.
            let Ok(inputs) = record.read() else { continue };
            for input in inputs {
                let input = input?;
                if let Some(&row) = rows.get(input.id.as_str()) {
                    stamps.insert(row, input.stamp);
                }
            }
        }
        Ok(stamps)
    }

    /// Notices files that are others by now. The stamp that the run recorded spares reading the file; that of a member
    /// is its container's.
    fn compare(&self, cancel: &Cancel, stamps: &HashMap<u32, Stamp>, files: &mut HashMap<u32, ImageFile>) {
        for (&row, file) in files {
            let recorded = stamps.get(&row);
            file.modified_ns = recorded.and_then(|stamp| stamp.modified_ns);
            let Some(named) = file.named.as_ref().filter(|_| !cancel.is_cancelled()) else { continue };
            let Some(path) = named.path.clone() else {
                file.named = file.named.take().filter(|_| !file.is_moved);
                continue;
            };
            let stamp = fs::metadata(&path).ok();
            let stamp = stamp.map(|data| Stamp::new(Some(data.len()), data.modified().ok(), None));
            let is_same = recorded.zip(stamp).is_some_and(|(was, now)| was.is_same(&now));
            if file.is_moved {
                let hash = self.hashes[row as usize].filter(|_| named.is_whole() && !is_same);
                let is_known =
                    is_same || hash.is_some_and(|hash| fs::read(&path).is_ok_and(|bytes| hash.is_of(&bytes)));
                file.named = file.named.take().filter(|_| is_known);
                continue;
            }
            if named.is_member() {
                let likeness = recorded.zip(stamp).map(|(was, now)| was.compare(&now));
                file.is_changed = likeness == Some(Likeness::Other);
                continue;
            }
            file.modified_ns = file.modified_ns.or(stamp.and_then(|stamp| stamp.modified_ns));
            if is_same {
                continue;
            }
            // Another length is another file, and one of no length, as of a system's own folders, is no image.
            let len = stamp.and_then(|stamp| stamp.bytes).unwrap_or(0);
            if len == 0 || recorded.and_then(|recorded| recorded.bytes).is_some_and(|bytes| bytes != len) {
                file.is_changed = true;
                continue;
            }
            let Some(hash) = self.hashes[row as usize] else { continue };
            match fs::read(&path) {
                Ok(bytes) => file.is_changed = !hash.is_of(&bytes),
                Err(_) => file.named = None,
            }
        }
    }
}

/// The container, by its name, that an id is a member of.
fn container_of<'a>(formats: &ContainerRegistry, id: &'a str) -> Option<&'a Path> {
    let mut above = Path::new(id).ancestors().skip(1);
    above.find(|path| format_of(formats, path.as_os_str().as_encoded_bytes()).is_some())
}

/// The table, by its name, that an id is a row of.
fn table_of<'a>(formats: &ContainerRegistry, id: &'a str) -> Option<&'a Path> {
    container_of(formats, id).filter(|path| {
        format_of(formats, path.as_os_str().as_encoded_bytes()).is_some_and(|format| format.has_schema())
    })
}
