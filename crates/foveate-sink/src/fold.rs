//! Makes one output of an output and what a later run of some of its inputs stored.
//!
//! The later run is complete, and lies in the update's work in progress. The result is one more run of the sink, which
//! replaces the output: a folder's parts are adopted as they are unless a row of theirs goes, and then the rows that
//! stay are written once more. A single file is written anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use foveate_core::{Backend as _, error_chain};

use crate::checks::{self, file_names, is_begun};
use crate::commit::{LATER, end_commit, later, update_work};
use crate::copy::{Copy, Keep};
use crate::entries::{InputOutcome, entries, outcomes};
use crate::names::STAGING;
use crate::place::SinkPlace;
use crate::publish::parent_of;
use crate::site::RunSite;
use crate::staging::StagingFolder;
use crate::{
    ActOnRecordedRow, Existing, InputRecord, Layout, OtherRun, Prefix, Published, RunManifest, RunState, SinkBackend,
    SinkError, SinkOptions, StoredRun, StoredState,
};

/// An output, and the work of folding a later run into it, which this value keeps other processes from.
#[derive(Debug)]
pub struct Fold {
    options: SinkOptions,
    /// `None` in a store, and where no output is.
    work: Option<StagingFolder>,
    /// Keeps plain runs away from an output that is updated; `None` where `work` is, and before [`Self::base`].
    plain: Option<StagingFolder>,
    /// Digest of the output that [`Self::base`] found.
    base: Option<String>,
}

impl Drop for Fold {
    /// An interrupted update goes on later; one that has written nothing leaves nothing.
    fn drop(&mut self) {
        if let Some(work) = self.work.take_if(|work| file_names(work.folder()).count() <= 1) {
            let _ = work.remove();
        }
        self.release();
    }
}

impl Fold {
    /// The output of `options`, which is no shard.
    ///
    /// # Errors
    /// [`SinkError::Locked`] if another process is at it.
    pub fn open(options: SinkOptions) -> Result<Self, SinkError> {
        let mut fold = Self { options, work: None, plain: None, base: None };
        if let SinkPlace::Folder(folder) = update_work(&fold.site()?)
            && (folder.exists() || is_begun(&fold.options)?)
        {
            let common = (fold.options.layout == Layout::Folder).then(|| parent_of(&folder).to_owned());
            fold.work = Some(StagingFolder::take_at(folder, common, &fold.options)?);
        }
        Ok(fold)
    }

    fn site(&self) -> Result<RunSite, SinkError> {
        RunSite::of(&self.options)
    }

    /// Lets plain runs write to the output again.
    fn release(&mut self) {
        if let Some(plain) = self.plain.take() {
            plain.discard_unused();
        }
    }

    /// The output's options.
    pub fn options(&self) -> &SinkOptions {
        &self.options
    }

    /// The options of the later run.
    ///
    /// # Errors
    /// If a store cannot be asked.
    pub fn later(&self) -> Result<SinkOptions, SinkError> {
        let prefix = self.options.prefix.as_ref();
        Ok(SinkOptions {
            output: later(&self.site()?).path(""),
            prefix: prefix.map(|prefix| -> Arc<dyn Prefix> { Arc::new(Below::new(prefix)) }),
            layout: Layout::Folder,
            shard: None,
            first_index: 0,
            publish_empty: true,
            ..self.options.clone()
        })
    }

    /// The complete output as it is now, and a digest of it; `None` if there is none. Ends a commit that was
    /// interrupted, and an interrupted run of the job that `manifest` describes if its inputs were others.
    ///
    /// # Errors
    /// [`SinkError::OtherRun`] for an output of another job, [`SinkError::Damaged`] for files of another length.
    pub fn base(
        &mut self,
        backend: &SinkBackend,
        manifest: &RunManifest,
        may_differ: impl Fn(&str) -> bool,
    ) -> Result<Option<(StoredRun, String)>, SinkError> {
        let site = self.site()?;
        if self.work.is_some() || self.options.prefix.is_some() {
            if self.work.is_some() {
                self.plain = Some(StagingFolder::take(&self.options, &site.names)?);
            }
            end_commit(&site, &mut |_| {})?;
            self.release();
        }
        self.end_begun(backend, manifest, &may_differ)?;
        let site = self.site()?;
        if self.work.is_some() && site.manifest()?.is_some() {
            self.plain = Some(StagingFolder::take(&self.options, &site.names)?);
        }
        let Some(run) = StoredRun::complete_at(&site)? else { return Ok(None) };
        self.check(backend, &run, manifest, may_differ)?;
        run.check_lengths()?;
        let digest = run.manifest.digest();
        self.base = Some(digest.clone());
        Ok(Some((run, digest)))
    }

    fn end_begun(
        &self,
        backend: &SinkBackend,
        manifest: &RunManifest,
        may_differ: &impl Fn(&str) -> bool,
    ) -> Result<(), SinkError> {
        let runs = if self.options.prefix.is_some() { Vec::new() } else { StoredRun::find(&self.options.output)? };
        let listing = manifest.fingerprint.get(RunManifest::LISTING);
        let Some(begun) = runs.into_iter().find(|run| {
            run.state == StoredState::Unfinished && run.manifest.fingerprint.get(RunManifest::LISTING) != listing
        }) else {
            return Ok(());
        };
        self.check(backend, &begun, manifest, may_differ)?;
        let mut begun = begun.manifest.run();
        begun.fingerprint.retain(|name, _| !name.starts_with("sink."));
        let mut sink = backend.open(&self.options)?;
        sink.begin(&begun, Existing::Resume)?;
        sink.finish().map(drop)
    }

    /// Checks that the output's vectors are of the job that `manifest` describes, no matter what its inputs are.
    /// Settings for which `may_differ` returns true are not compared.
    ///
    /// # Errors
    /// [`SinkError::OtherRun`] with what differs.
    fn check(
        &self,
        backend: &SinkBackend,
        base: &StoredRun,
        manifest: &RunManifest,
        may_differ: impl Fn(&str) -> bool,
    ) -> Result<(), SinkError> {
        let mut was = base.manifest.clone().run();
        let mut now = checks::settings(&self.options, backend.name(), manifest);
        let of_inputs = [RunManifest::LISTING, RunManifest::ITEMS, RunManifest::MERGED, RunManifest::PART_ITEMS];
        for run in [&mut was, &mut now] {
            run.fingerprint.retain(|name, _| !of_inputs.contains(&name.as_str()) && !may_differ(name));
        }
        match was.difference(&now) {
            None => Ok(()),
            Some(difference) => {
                let path = self.options.output.clone();
                let other = OtherRun { path, state: RunState::Complete, difference, inputs: None };
                Err(SinkError::OtherRun(Box::new(other)))
            }
        }
    }

    /// Makes room for the later run of the job that `manifest` describes, and removes what another one began. If that
    /// differs in the items alone, `act` gets its rows. Returns the later run if it is complete.
    pub fn make_room(
        &self,
        backend: &SinkBackend,
        manifest: &RunManifest,
        act: &mut ActOnRecordedRow<'_>,
    ) -> Result<Option<StoredRun>, SinkError> {
        let options = self.later()?;
        match backend.open(&options)?.begin(manifest, Existing::Resume) {
            Ok(_) => return Ok(None),
            Err(SinkError::AlreadyComplete(_)) => return StoredRun::complete(&options),
            Err(SinkError::OtherRun(_)) => {
                let runs = match &options.prefix {
                    Some(prefix) => StoredRun::find_below(prefix)?,
                    None => StoredRun::find(&options.output)?,
                };
                for run in runs {
                    let check = self.check(backend, &run, manifest, |name| name.starts_with(RunManifest::UPDATE));
                    if check.is_ok() {
                        self.discard(backend, run, act)?;
                    }
                }
            }
            // What is left of one that was removed in part, parts without their manifest among them.
            Err(SinkError::Damaged { .. } | SinkError::Missing { .. } | SinkError::BadOutput { .. }) => {}
            Err(error) => return Err(error),
        }
        self.clear().map(|()| None)
    }

    /// Calls `act` with those rows of the output whose inputs are `wanted`. Reads the parts alone that have any.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn rows_of(
        &self,
        backend: &SinkBackend,
        wanted: &dyn Fn(&InputRecord) -> bool,
        act: &mut ActOnRecordedRow<'_>,
    ) -> Result<(), SinkError> {
        let (Some(reader), Some(run)) = (backend.reader(), StoredRun::complete_at(&self.site()?)?) else {
            return Ok(());
        };
        let parts = parts_with(&run, wanted)?;
        for part in parts.iter().filter_map(|&part| run.manifest.parts.get(part)) {
            run.check_part(part)?;
        }
        outcomes(&run, reader, &|part| parts.contains(&part), &mut |record, outcome| match outcome {
            Ok(row) if wanted(&record) => act(&record, row),
            _ => Ok(()),
        })
    }

    /// A folder for files of this update.
    pub fn scratch(&self) -> PathBuf {
        self.work.as_ref().map_or_else(|| self.options.temporary(), |work| work.folder().to_owned())
    }

    /// The later run, complete.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn complete_later(&self) -> Result<Option<StoredRun>, SinkError> {
        let site = RunSite::of(&self.later()?)?;
        // What its run could not remove would keep readers away.
        end_commit(&site, &mut |_| {})?;
        StoredRun::complete_at(&site)
    }

    /// Removes a later run of other items than those that are wanted now. `act` gets its rows.
    ///
    /// # Errors
    /// If it cannot be removed, and the errors of `act`. What is damaged is left out.
    pub fn discard(
        &self,
        backend: &SinkBackend,
        run: StoredRun,
        act: &mut ActOnRecordedRow<'_>,
    ) -> Result<(), SinkError> {
        if let Some(reader) = backend.reader().filter(|_| run.check().is_ok()) {
            match run.recorded_rows(reader, act) {
                Ok(()) | Err(SinkError::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.clear()
    }

    /// Removes the later run.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn clear(&self) -> Result<(), SinkError> {
        let later = later(&self.site()?);
        let SinkPlace::Folder(folder) = &later else {
            return later.list()?.into_keys().try_for_each(|name| later.remove(&name));
        };
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(SinkError::io("remove", folder)(error)),
            _ => SinkPlace::Folder(parent_of(folder).to_owned()).sync(),
        }
    }

    /// Folds the later run into the output. `manifest` describes the result, `keep` what stays of the output, and
    /// `take` what of the later run follows. `take` may leave out failures, but no rows.
    ///
    /// # Errors
    /// [`SinkError::Replaced`] if the output is not the one that [`Self::base`] found.
    pub fn run(
        &mut self,
        backend: &SinkBackend,
        manifest: &RunManifest,
        keep: &Keep<'_>,
        take: &Keep<'_>,
    ) -> Result<Published, SinkError> {
        let reader =
            backend.reader().ok_or_else(|| SinkError::Unsupported("reading vectors of this format".to_owned()))?;
        let later = self.complete_later()?.ok_or_else(|| SinkError::missing(&self.options.output, "of the update"))?;
        self.release();
        let mut sink = backend.open(&SinkOptions { publish_empty: true, ..self.options.clone() })?;
        sink.begin(manifest, Existing::Update)?;
        let base = StoredRun::complete_at(&self.site()?)?;
        let Some(base) = base.filter(|base| Some(base.manifest.digest()) == self.base) else {
            return Err(SinkError::Replaced(self.options.output.clone()));
        };
        let mut copy = Copy::new(sink.as_mut(), 0);
        if self.options.layout == Layout::File && self.options.prefix.is_none() {
            copy.add(&base, reader, &|_| true, keep)?;
            copy.add(&later, reader, &|_| true, take)?;
        } else {
            let changed = parts_with(&base, &|record| keep(record).is_none())?;
            copy.adopt(&base, false, &|part| !changed.contains(&part), keep)?;
            copy.add(&base, reader, &|part| changed.contains(&part), keep)?;
            copy.adopt(&later, true, &|_| true, take)?;
        }
        let published = copy.finish()?;
        let cleared = self.clear().and_then(|()| self.work.take().map_or(Ok(()), StagingFolder::remove));
        // The output is complete by now, so an error is a note.
        Ok(Published { leftover: published.leftover.or(cleared.err().map(|error| error_chain(&error))), ..published })
    }
}

/// The parts with a row of an input that is `wanted`.
fn parts_with(run: &StoredRun, wanted: &dyn Fn(&InputRecord) -> bool) -> Result<BTreeSet<usize>, SinkError> {
    let mut parts = BTreeSet::new();
    for entry in entries(run)? {
        let InputOutcome { part, record, failure } = entry?;
        if failure.is_none() && wanted(&record) {
            parts.insert(part);
        }
    }
    Ok(parts)
}

/// The objects of a prefix whose names begin with a folder's.
#[derive(Debug)]
struct Below {
    prefix: Arc<dyn Prefix>,
    start: String,
    address: String,
}

impl Below {
    /// The objects of an update's later run.
    fn new(prefix: &Arc<dyn Prefix>) -> Self {
        let start = format!("{STAGING}/update/{LATER}/");
        let address = format!("{}{start}", prefix.address());
        Self { prefix: Arc::clone(prefix), start, address }
    }

    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.start)
    }
}

impl Prefix for Below {
    fn address(&self) -> &str {
        &self.address
    }

    fn create(&self, name: &str, content: Bytes) -> Result<bool, SinkError> {
        self.prefix.create(&self.name(name), content)
    }

    fn exchange(&self, name: &str, old: &[u8], content: Bytes) -> Result<bool, SinkError> {
        self.prefix.exchange(&self.name(name), old, content)
    }

    fn replace(&self, name: &str, content: Bytes) -> Result<(), SinkError> {
        self.prefix.replace(&self.name(name), content)
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, SinkError> {
        self.prefix.read(&self.name(name))
    }

    fn list(&self, start: &str) -> Result<std::collections::BTreeMap<String, u64>, SinkError> {
        let found = self.prefix.list(&self.name(start))?;
        Ok(found.into_iter().map(|(name, len)| (name[self.start.len()..].to_owned(), len)).collect())
    }

    fn remove(&self, name: &str) -> Result<(), SinkError> {
        self.prefix.remove(&self.name(name))
    }
}
