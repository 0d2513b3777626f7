//! [`LmdbSink`]: one transaction per commit.

use std::borrow::Cow;
use std::fmt;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use foveate_core::error_chain;
use foveate_sink::staging::{
    self, DATABASE, FAILURES, FAILURES_HEADER, INPUTS, INPUTS_HEADER, Ledger, LedgerExtent, Phase, Staging, Steps,
    Taken, parent_of, push_failure, remove_if_there,
};
use foveate_sink::{
    Element, Existing, Failure, InputRecord, Layout, ManifestFile, ManifestPart, OutputManifest, OutputNames,
    Published, Rows, RunManifest, SinkError, SinkOptions, VectorSink, Watermark, publish, sync_file, sync_folder,
};
use lmdb::{Cursor, Error, RwTransaction, Transaction, WriteFlags};
use serde::{Deserialize, Serialize};

use crate::layout::{
    COMPLETE, INPUTS_FILE, MANIFEST, PLACE, REPLACES, STAGED, WATERMARK, is_key, push_value, stand_in, with_id,
};
use crate::store::{ROOMY_MAP, Store, copy_sorted, failed};

const FORMAT: &str = "lmdb";
/// Files of the staging folder that are incomplete, or do not have their final name yet.
const NEW_DATA: &str = "new.data";
const NEW_VECTORS: &str = "new.lmdb";
const NEW_MANIFEST: &str = "new.manifest.json";
const MANIFEST_FILE: &str = "manifest.json";
/// Initial map size of the finished file. It doubles when full, so that the size recorded in the file follows from the
/// content.
const FINISHED_MAP: usize = 16 << 20;
/// Bytes of rows held in memory between commits; more are written ahead of their commit.
const MOST_PENDING: usize = 64 << 20;
/// Map size of a database that holds only a manifest.
const FRESH_MAP: usize = 1 << 20;

/// A [`VectorSink`] that stores vectors in an LMDB database, by id.
///
/// During the run the database is the folder `x.lmdb.partial` ([`OutputNames::staging`]), an LMDB environment that
/// other processes may open and read; each commit is one transaction. `finish` writes its content again, in key order,
/// to the single file `x.lmdb`. That file is as small as possible, complete as soon as it appears, and has the same
/// bytes for the same rows, regardless of commits.
///
/// Between commits, up to 64 MiB of rows stay in memory. More are written ahead of their commit, beyond the watermark,
/// where neither readers nor a resumed run take notice of them. After any error but [`SinkError::Misuse`] the sink
/// accepts no more calls; drop it and begin again with a new one.
pub struct LmdbSink {
    options: SinkOptions,
    map_size: usize,
    phase: Phase<Run>,
    steps: Steps,
}

/// A run in progress.
struct Run {
    /// Closed before the staging folder is released.
    store: Store,
    staging: Staging,
    names: OutputNames,
    settings: RunManifest,
    watermark: Watermark,
    /// The record of what was read; it grows beside the database. `None` once it is complete.
    inputs: Option<Ledger>,
    inputs_file: LedgerExtent,
    /// The files to publish, once every one is complete and synced: only the renames remain.
    staged: Option<Vec<ManifestFile>>,
    taken: Taken,
    pending: Pending,
    /// The greatest key among the vectors; a greater key can be appended at the end.
    last_key: Vec<u8>,
}

/// The rows and failures since the last commit, encoded.
#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    rows: Vec<PendingRow>,
    failures: Vec<(u64, Range<usize>)>,
}

/// A row's location in [`Pending::bytes`].
struct PendingRow {
    index: u64,
    id: Range<usize>,
    value: Range<usize>,
}

/// An interrupted run's own records.
struct Found {
    settings: RunManifest,
    watermark: Watermark,
    inputs_file: LedgerExtent,
    /// An output that the run replaces may still be there.
    must_clear: bool,
    staged: Option<Vec<ManifestFile>>,
}

/// The value of a failure.
#[derive(Serialize, Deserialize)]
struct StoredFailure<'a> {
    id: Cow<'a, str>,
    stage: Cow<'a, str>,
    reason: Cow<'a, str>,
    bytes: Option<u64>,
}

impl LmdbSink {
    /// A sink for `options`; does not write to disk before `begin`.
    pub fn new(options: SinkOptions) -> Self {
        Self { options, map_size: ROOMY_MAP, phase: Phase::New, steps: Steps::default() }
    }

    /// Reserves `bytes` of address space for the growing database instead of 1 TiB (64 MiB on Windows and with 32
    /// bits). A full database doubles it; a process that reads at that time must then map the file anew
    /// (`MDB_MAP_RESIZED`).
    #[must_use]
    pub fn with_map_size(mut self, bytes: usize) -> Self {
        self.map_size = bytes;
        self
    }

    /// Calls `probe` before every step that changes the disk, so that a test can see the state after a crash there.
    #[doc(hidden)]
    #[must_use]
    pub fn with_probe(mut self, probe: impl FnMut(&'static str) + Send + 'static) -> Self {
        self.steps = Steps::seen_by(probe);
        self
    }

    fn open(&mut self, manifest: &RunManifest, existing: Existing) -> Result<Run, SinkError> {
        staging::check(&self.options, manifest)?;
        self.options.check_no_columns()?;
        let names = OutputNames::new(&self.options);
        let settings = staging::settings(&self.options, FORMAT, manifest);
        let is_complete = || existing != Existing::Overwrite && names.main().exists();
        if is_complete() && !names.staging().exists() {
            return Err(staging::finished(&self.options, &names, &settings, existing));
        }
        self.steps.step("create staging folder");
        let staging = Staging::take(&self.options, &names, DATABASE)?;
        let found = if existing == Existing::Overwrite { None } else { Found::read(&staging.join(DATABASE))? };
        // Another run may have finished while this one waited for the lock.
        let is_complete = is_complete();
        match (found, existing) {
            (Some(found), Existing::Resume) => self.resume(names, staging, found, &settings),
            (Some(_), Existing::Refuse) if !is_complete => Err(SinkError::Interrupted(self.options.output.clone())),
            _ if is_complete => {
                staging.discard_unused();
                Err(staging::finished(&self.options, &names, &settings, existing))
            }
            _ => match self.start(&names, &staging, &settings, existing) {
                Ok((store, inputs)) => {
                    Ok(Run::new(store, Some(inputs), staging, names, settings, self.options.first_index.into()))
                }
                Err(error) => {
                    staging.discard_unused();
                    Err(error)
                }
            },
        }
    }

    /// Creates a fresh run's database. It gets its name once it holds its manifest.
    fn start(
        &mut self,
        names: &OutputNames,
        staging: &Staging,
        settings: &RunManifest,
        existing: Existing,
    ) -> Result<(Store, Ledger), SinkError> {
        let replaces = existing == Existing::Overwrite && self.options.layout == Layout::Folder;
        if existing != Existing::Overwrite {
            staging::check_folder(&self.options, names, staging)?;
        }
        self.steps.step("empty staging folder");
        staging.clear()?;
        let inputs = Ledger::create(staging.join(INPUTS), INPUTS_HEADER)?;
        self.steps.step("create database");
        let fresh = staging.join(NEW_DATA);
        let store = Store::create_private(&fresh, FRESH_MAP)?;
        put_meta(&store, settings, self.options.first_index, false)?;
        if replaces {
            store.write(|transaction| transaction.put(store.meta, &REPLACES, b"true", WriteFlags::empty()))?;
        }
        store.sync()?;
        drop(store);
        self.steps.step("begin");
        publish(&fresh, &staging.join(DATABASE))?;
        sync_folder(parent_of(staging.folder()))?;
        self.steps.step("open database");
        let store = Store::open_shared(staging.folder(), self.map_size)?;
        if replaces {
            self.clear_replaced(names, &store)?;
        }
        Ok((store, inputs))
    }

    /// Removes the output that the run replaces. The database exists by then, so that a run that is killed here goes on
    /// with the plain command.
    fn clear_replaced(&mut self, names: &OutputNames, store: &Store) -> Result<(), SinkError> {
        staging::clear_folder(&self.options, names, &mut self.steps)?;
        self.steps.step("record cleared");
        store.write(|transaction| transaction.del(store.meta, &REPLACES, None))
    }

    fn resume(
        &mut self,
        names: OutputNames,
        staging: Staging,
        found: Found,
        settings: &RunManifest,
    ) -> Result<Run, SinkError> {
        staging::check_same_job(&staging, &names, (&found.settings, found.inputs_file.len), settings)?;
        self.steps.step("open database");
        let store = Store::open_shared(staging.folder(), self.map_size)?;
        if found.must_clear {
            self.clear_replaced(&names, &store)?;
        }
        store.remove_from(found.watermark.index)?;
        let inputs = match found.staged {
            None => Some(Ledger::reopen(staging.join(INPUTS), found.inputs_file)?),
            Some(_) => None,
        };
        let mut run = Run::new(store, inputs, staging, names, found.settings, found.watermark);
        run.inputs_file = found.inputs_file;
        run.last_key = run.store.last_key(run.store.vectors)?.unwrap_or_default();
        if let Some(files) = found.staged {
            run.close(files);
        }
        Ok(run)
    }

    fn take_rows(&mut self, run: &mut Run, rows: &Rows<'_>) -> Result<(), SinkError> {
        run.taken.check_rows(rows, 0)?;
        for at in 0..rows.index.len() {
            run.pending.push_row(rows, at, self.options.element, run.settings.dim);
        }
        run.taken.rows(rows);
        if run.pending.bytes.len() < MOST_PENDING {
            return Ok(());
        }
        self.steps.step("write ahead");
        run.put_pending(None)
    }

    fn take_failures(&mut self, run: &mut Run, failures: &[Failure]) -> Result<(), SinkError> {
        run.taken.check_failures(failures)?;
        failures.iter().for_each(|failure| run.pending.push_failure(failure));
        run.taken.failures(failures);
        Ok(())
    }

    fn commit_run(&mut self, run: &mut Run, watermark: Watermark) -> Result<(), SinkError> {
        run.taken.check_watermark(watermark.index)?;
        if !run.taken.is_news(watermark.index) {
            return Ok(());
        }
        self.steps.step("commit");
        if let Some(inputs) = &mut run.inputs {
            run.inputs_file = inputs.sync()?;
        }
        run.put_pending(Some(watermark))?;
        run.watermark = watermark;
        run.taken.commit(watermark.index);
        Ok(())
    }

    fn finish_run(&mut self, run: &mut Run) -> Result<Published, SinkError> {
        run.taken.check_finish()?;
        if run.staged.is_none() {
            let files = self.stage(run)?;
            self.steps.step("record staged");
            sync_folder(run.staging.folder())?;
            let json = serde_json::to_vec(&files).expect("names and numbers always have a JSON form");
            run.store.write(|transaction| transaction.put(run.store.meta, &STAGED, &json, WriteFlags::empty()))?;
            run.close(files);
        }
        let moves = self.publication(run)?;
        if !run.has_output()? {
            staging::remove_overwritten(&run.names, &[], &mut self.steps)?;
            remove_if_there(&reader_lock(&run.names.main()))?;
        }
        self.remove_reader_lock(run, &moves)?;
        staging::publish_all(&moves, run.staged.as_deref().unwrap_or_default(), &mut self.steps)?;
        Ok(Published {
            files: reported(moves.into_iter().map(|(_, file)| file), &run.vectors(self.options.layout)),
            rows: run.store.count(run.store.vectors)?,
            failures: run.store.count(run.store.failures)?,
            leftover: None,
        })
    }

    /// Prepares all output files, and describes them in the order of their renames.
    fn stage(&mut self, run: &Run) -> Result<Vec<ManifestFile>, SinkError> {
        self.steps.step("write failures file");
        write_failures(&run.store, &run.staging.join(FAILURES))?;
        if run.has_output()? {
            self.steps.step("write vectors in order");
            let vectors = run.staging.join(NEW_VECTORS);
            remove_if_there(&vectors)?;
            let store = Store::create_private(&vectors, FINISHED_MAP)?;
            copy_sorted(&run.store, &store)?;
            put_meta(&store, &run.settings, run.watermark.index, true)?;
            store.sync()?;
            drop(store);
            sync_file(&vectors)?;
            self.steps.step("write manifest");
            let path = run.staging.join(NEW_MANIFEST);
            fs::write(&path, self.output_manifest(run)?.to_json()).map_err(SinkError::io("write", &path))?;
            sync_file(&path)?;
        }
        self.publication(run)?.iter().map(|(from, to)| run.describe(from, to)).collect()
    }

    fn output_manifest(&self, run: &Run) -> Result<OutputManifest, SinkError> {
        let (vectors, manifest) = (run.vectors(self.options.layout), run.names.beside(MANIFEST_FILE));
        let (mut files, mut records) = (Vec::new(), Vec::new());
        for (from, to) in self.publication(run)?.iter().rev().filter(|(_, to)| *to != manifest) {
            let of_its_kind = if *to == vectors { &mut files } else { &mut records };
            of_its_kind.push(run.describe(from, to)?);
        }
        let rows = run.store.count(run.store.vectors)?;
        Ok(OutputManifest {
            version: OutputManifest::VERSION,
            complete: true,
            format: FORMAT.to_owned(),
            dim: run.settings.dim,
            element: self.options.element.name().to_owned(),
            rows,
            failures: run.store.count(run.store.failures)?,
            watermark: run.watermark.index,
            parts: vec![ManifestPart { part: 0, rows, files }],
            records,
            fingerprint: run.settings.fingerprint.clone(),
            info: run.settings.info.clone(),
        })
    }

    /// The final renames, in order: the file that means "complete" is the last.
    fn publication(&self, run: &Run) -> Result<Vec<(PathBuf, PathBuf)>, SinkError> {
        let mut moves = vec![(run.staging.join(FAILURES), run.names.beside(FAILURES))];
        if !run.has_output()? {
            return Ok(moves);
        }
        if run.inputs_file.len > INPUTS_HEADER.len() as u64 {
            moves.push((run.staging.join(INPUTS), run.names.beside(INPUTS)));
        }
        let manifest = (run.staging.join(NEW_MANIFEST), run.names.beside(MANIFEST_FILE));
        let vectors = (run.staging.join(NEW_VECTORS), run.vectors(self.options.layout));
        moves.extend(match self.options.layout {
            Layout::File => [manifest, vectors],
            Layout::Folder => [vectors, manifest],
        });
        Ok(moves)
    }

    /// Removes the lock file that readers left beside an output that is being overwritten. It describes the old file's
    /// transactions and would mislead readers of the new file. The old file goes first, so that no reader recreates the
    /// lock file.
    fn remove_reader_lock(&mut self, run: &Run, moves: &[(PathBuf, PathBuf)]) -> Result<(), SinkError> {
        let vectors = run.vectors(self.options.layout);
        if moves.iter().any(|(staged, target)| *target == vectors && staged.exists()) {
            self.steps.step("remove old output");
            remove_if_there(&vectors)?;
            remove_if_there(&reader_lock(&vectors))?;
        }
        Ok(())
    }

    /// Removes the work in progress, every file of it closed. The output is complete by now, so an error is a note.
    fn remove_staging(&mut self, run: Run) -> Option<String> {
        self.steps.step("remove staging folder");
        let Run { store, inputs, staging, names, .. } = run;
        drop((store, inputs));
        let removed = staging.remove().and_then(|()| sync_folder(parent_of(&names.main())));
        removed.err().map(|error| error_chain(&error))
    }

    /// Runs one call on the open run; an error that may have left files half-written ends the run.
    fn on_run<T>(
        &mut self,
        call: &str,
        act: impl FnOnce(&mut Self, &mut Run) -> Result<T, SinkError>,
    ) -> Result<T, SinkError> {
        let mut run = self.phase.take(call)?;
        let result = act(self, &mut run);
        self.phase.put_back(run, result)
    }
}

impl VectorSink for LmdbSink {
    fn begin(&mut self, manifest: &RunManifest, existing: Existing) -> Result<Watermark, SinkError> {
        self.phase.check_new()?;
        let run = self.open(manifest, existing)?;
        let watermark = run.watermark;
        self.phase = Phase::Open(Box::new(run));
        Ok(watermark)
    }

    fn failures(&mut self) -> Result<u64, SinkError> {
        self.on_run("failures", |_, run| run.store.count(run.store.failures))
    }

    fn append(&mut self, rows: &Rows<'_>) -> Result<(), SinkError> {
        self.on_run("append", |sink, run| sink.take_rows(run, rows))
    }

    fn fail(&mut self, failures: &[Failure]) -> Result<(), SinkError> {
        self.on_run("fail", |sink, run| sink.take_failures(run, failures))
    }

    fn record(&mut self, inputs: &[InputRecord]) -> Result<(), SinkError> {
        self.on_run("record", |_, run| run.record(inputs))
    }

    fn commit(&mut self, watermark: Watermark) -> Result<(), SinkError> {
        self.on_run("commit", |sink, run| sink.commit_run(run, watermark))
    }

    fn finish(&mut self) -> Result<Published, SinkError> {
        let published = self.on_run("finish", Self::finish_run)?;
        let run = self.phase.take("finish")?;
        let leftover = self.remove_staging(*run);
        self.phase = Phase::Done;
        Ok(Published { leftover, ..published })
    }
}

impl fmt::Debug for LmdbSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LmdbSink").field("options", &self.options).field("map_size", &self.map_size).finish()
    }
}

impl Run {
    fn new(
        store: Store,
        inputs: Option<Ledger>,
        staging: Staging,
        names: OutputNames,
        settings: RunManifest,
        watermark: Watermark,
    ) -> Self {
        let taken = Taken::up_to(watermark.index, settings.dim, false);
        Self {
            store,
            staging,
            names,
            settings,
            watermark,
            inputs,
            inputs_file: LedgerExtent::of(INPUTS_HEADER),
            staged: None,
            taken,
            pending: Pending::default(),
            last_key: Vec::new(),
        }
    }

    /// Accepts no more rows: the files exist.
    fn close(&mut self, files: Vec<ManifestFile>) {
        self.staged = Some(files);
        self.inputs = None;
        self.taken.close();
    }

    fn record(&mut self, inputs: &[InputRecord]) -> Result<(), SinkError> {
        let Some(ledger) = &mut self.inputs else { return Ok(()) };
        let mut lines = String::new();
        inputs.iter().for_each(|input| input.push_line(&mut lines));
        ledger.append(&lines)
    }

    /// Whether any file but the failures is published; see [`staging::remove_overwritten`].
    fn has_output(&self) -> Result<bool, SinkError> {
        Ok(self.store.count(self.store.vectors)? > 0 || self.store.count(self.store.failures)? == 0)
    }

    /// Describes a complete file; the inputs as they were committed, so that later damage is found.
    fn describe(&self, path: &Path, target: &Path) -> Result<ManifestFile, SinkError> {
        match path.ends_with(INPUTS) {
            true => Ok(self.inputs_file.describe(target)),
            false => ManifestFile::describe(path, target),
        }
    }

    /// The vectors' final path.
    fn vectors(&self, layout: Layout) -> PathBuf {
        match layout {
            Layout::File => self.names.main(),
            Layout::Folder => self.names.part(parent_of(&self.names.main()), 0, FORMAT),
        }
    }

    /// Writes the pending rows in one transaction, with the watermark if they are committed.
    fn put_pending(&mut self, watermark: Option<Watermark>) -> Result<(), SinkError> {
        let inputs_file = serde_json::to_vec(&self.inputs_file).expect("numbers always have a JSON form");
        self.last_key = self.store.write(|transaction| {
            let last = self.put_rows(transaction)?;
            if let Some(Watermark { index, place }) = watermark {
                let meta = self.store.meta;
                transaction.put(meta, &INPUTS_FILE, &inputs_file, WriteFlags::empty())?;
                transaction.put(meta, &WATERMARK, &index.to_string(), WriteFlags::empty())?;
                transaction.put(meta, &PLACE, &place.to_string(), WriteFlags::empty())?;
            }
            Ok(last)
        })?;
        self.pending.clear();
        Ok(())
    }

    /// Puts the pending rows into a transaction, and returns the greatest key after them.
    fn put_rows(&self, transaction: &mut RwTransaction<'_>) -> lmdb::Result<Vec<u8>> {
        let (pending, store) = (&self.pending, &self.store);
        let mut last = self.last_key.as_slice();
        for row in &pending.rows {
            let (id, value) = (&pending.bytes[row.id.clone()], &pending.bytes[row.value.clone()]);
            let order = row.index.to_be_bytes();
            if is_key(id) && put_new(transaction, store, id, value, last)? {
                transaction.put(store.order, &order, &id, WriteFlags::APPEND)?;
                last = last.max(id);
            } else {
                let key = stand_in(id, row.index);
                transaction.put(store.vectors, &key, &with_id(value, id), WriteFlags::NO_OVERWRITE)?;
                transaction.put(store.order, &order, &key, WriteFlags::APPEND)?;
            }
        }
        for (index, value) in &pending.failures {
            transaction.put(
                store.failures,
                &index.to_be_bytes(),
                &&pending.bytes[value.clone()],
                WriteFlags::APPEND,
            )?;
        }
        Ok(last.to_owned())
    }
}

/// Puts a row under its id, unless an earlier row has that key.
fn put_new(
    transaction: &mut RwTransaction<'_>,
    store: &Store,
    id: &[u8],
    value: &[u8],
    last: &[u8],
) -> lmdb::Result<bool> {
    // Beyond the last key LMDB need not search, and it fills the page before it starts another.
    let flags = if id > last { WriteFlags::APPEND } else { WriteFlags::NO_OVERWRITE };
    match transaction.put(store.vectors, &id, &value, flags) {
        Err(Error::KeyExist) => Ok(false),
        result => result.map(|()| true),
    }
}

impl Pending {
    fn push_row(&mut self, rows: &Rows<'_>, at: usize, element: Element, dim: usize) {
        let start = self.bytes.len();
        self.bytes.extend(rows.id[at].as_bytes());
        let id = start..self.bytes.len();
        push_value(&mut self.bytes, rows, at, element, dim);
        self.rows.push(PendingRow { index: rows.index[at], value: id.end..self.bytes.len(), id });
    }

    fn push_failure(&mut self, failure: &Failure) {
        let start = self.bytes.len();
        let stored = StoredFailure {
            id: failure.id.as_str().into(),
            stage: failure.stage.name().into(),
            reason: failure.reason.as_str().into(),
            bytes: failure.bytes,
        };
        serde_json::to_writer(&mut self.bytes, &stored).expect("text and numbers always have a JSON form");
        self.failures.push((failure.index, start..self.bytes.len()));
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
        self.failures.clear();
    }
}

impl Found {
    /// Reads the run's records from the database at `file`, which no process may be writing; `None` if there is none.
    fn read(file: &Path) -> Result<Option<Self>, SinkError> {
        if !file.exists() {
            return Ok(None);
        }
        let store = Store::open_quiet(file)?;
        let number = |key: &[u8]| -> Result<Option<u64>, SinkError> {
            Ok(store.meta(key)?.and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok()))
        };
        let watermark = number(WATERMARK)?;
        let settings = store.meta(MANIFEST)?.and_then(|json| serde_json::from_slice(&json).ok());
        match (settings, watermark) {
            (Some(settings), Some(index)) => {
                let place = number(PLACE)?.unwrap_or(0);
                let inputs_file = store.meta(INPUTS_FILE)?.and_then(|json| serde_json::from_slice(&json).ok());
                let staged = store.meta(STAGED)?.and_then(|json| serde_json::from_slice(&json).ok());
                Ok(Some(Self {
                    settings,
                    watermark: Watermark { index, place },
                    inputs_file: inputs_file.unwrap_or(LedgerExtent::of(INPUTS_HEADER)),
                    must_clear: store.meta(REPLACES)?.is_some(),
                    staged,
                }))
            }
            _ => Err(SinkError::damaged(file, "it does not say which run wrote it")),
        }
    }
}

/// Renamed files as a run reports them: the one with the vectors first, the failures last.
fn reported(renamed: impl DoubleEndedIterator<Item = PathBuf>, vectors: &Path) -> Vec<PathBuf> {
    let (mut files, others): (Vec<_>, Vec<_>) = renamed.rev().partition(|file| file == vectors);
    files.extend(others);
    files
}

/// The lock file that LMDB's readers leave beside a finished file.
fn reader_lock(vectors: &Path) -> PathBuf {
    let mut lock = vectors.as_os_str().to_owned();
    lock.push("-lock");
    lock.into()
}

/// Writes the run's records to a database.
fn put_meta(store: &Store, settings: &RunManifest, watermark: u64, complete: bool) -> Result<(), SinkError> {
    let manifest = serde_json::to_vec(settings).expect("a manifest is plain data and always has a JSON form");
    let (watermark, complete) = (watermark.to_string(), complete.to_string());
    store.write(|transaction| {
        transaction.put(store.meta, &MANIFEST, &manifest, WriteFlags::empty())?;
        transaction.put(store.meta, &WATERMARK, &watermark, WriteFlags::empty())?;
        transaction.put(store.meta, &COMPLETE, &complete, WriteFlags::empty())
    })
}

fn write_failures(store: &Store, path: &Path) -> Result<(), SinkError> {
    let mut file = BufWriter::new(File::create(path).map_err(SinkError::io("create", path))?);
    let snapshot = store.read()?;
    let mut cursor = snapshot.open_ro_cursor(store.failures).map_err(failed("read", &store.path))?;
    let mut line = String::from(FAILURES_HEADER);
    for entry in cursor.iter_start() {
        let (_, json) = entry.map_err(failed("read", &store.path))?;
        let failure: StoredFailure<'_> = serde_json::from_slice(json)
            .map_err(|error| SinkError::damaged(&store.path, format!("a failure is not as it was written: {error}")))?;
        push_failure(&mut line, &failure.id, &failure.stage, &failure.reason, failure.bytes);
        file.write_all(line.as_bytes()).map_err(SinkError::io("write", path))?;
        line.clear();
    }
    file.write_all(line.as_bytes()).map_err(SinkError::io("write", path))?;
    let file = file.into_inner().map_err(|error| SinkError::io("write", path)(error.into_error()))?;
    file.sync_all().map_err(SinkError::io("sync", path))
}
