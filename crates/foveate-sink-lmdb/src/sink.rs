//! [`LmdbSink`]: one transaction per commit.

use std::borrow::Cow;
use std::fmt;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use foveate_sink::staging::{
    self, FAILURES_HEADER, Phase, Staging, Steps, Taken, parent_of, push_failure, remove_if_there,
};
use foveate_sink::{
    Element, Existing, Failure, Layout, ManifestFile, ManifestPart, OutputManifest, OutputNames, Published, Rows,
    RunManifest, SinkError, SinkOptions, VectorSink, Watermark, publish, sync_file, sync_folder,
};
use lmdb::{Cursor, Error, RwTransaction, Transaction, WriteFlags};
use serde::{Deserialize, Serialize};

use crate::layout::{COMPLETE, MANIFEST, STAGED, WATERMARK, is_key, push_value, stand_in, with_id};
use crate::store::{ROOMY_MAP, Store, copy_sorted, failed};

const FORMAT: &str = "lmdb";
/// LMDB's own name for the database in the staging folder. It exists if and only if a run was begun.
const DATA: &str = "data.mdb";
/// Files of the staging folder that are incomplete, or do not have their final name yet.
const NEW_DATA: &str = "new.data";
const NEW_VECTORS: &str = "new.lmdb";
const NEW_FAILURES: &str = "new.failures.csv";
const NEW_MANIFEST: &str = "new.manifest.json";
/// Initial map size of the finished file. It doubles when full, so that the size recorded in the file follows from the
/// content.
const FINISHED_MAP: usize = 16 << 20;
/// Map size of a database that holds only a manifest.
const FRESH_MAP: usize = 1 << 20;

/// A [`VectorSink`] that stores vectors in an LMDB database, by id.
///
/// During the run the database is the folder `x.lmdb.partial` ([`OutputNames::staging`]), an LMDB environment that
/// other processes may open and read; each commit is one transaction. `finish` writes its content again, in key order,
/// to the single file `x.lmdb`. That file is as small as possible, complete as soon as it appears, and has the same
/// bytes for the same rows, regardless of commits.
///
/// Between commits, rows stay in memory. After any error but [`SinkError::Misuse`] the sink accepts no more calls; drop
/// it and begin again with a new one.
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
    watermark: u64,
    /// Every file is complete and synced; only the renames remain.
    staged: bool,
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
    watermark: u64,
    staged: bool,
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
        let names = OutputNames::new(&self.options);
        let settings = staging::settings(&self.options, FORMAT, manifest);
        let main = names.main();
        if existing != Existing::Overwrite && main.exists() && !names.staging().exists() {
            return Err(self.finished(&names, &settings, existing));
        }
        self.steps.step("create staging folder");
        let staging = Staging::take(&self.options, &names)?;
        let found = if existing == Existing::Overwrite { None } else { Found::read(&staging.join(DATA))? };
        match (found, existing) {
            (Some(found), Existing::Resume) => self.resume(names, staging, found, &settings),
            (Some(_), Existing::Refuse) if !main.exists() => Err(SinkError::Interrupted(self.options.output.clone())),
            (_, Existing::Resume | Existing::Refuse) if main.exists() => {
                staging.discard_unused(DATA);
                Err(self.finished(&names, &settings, existing))
            }
            _ => match self.start(&names, &staging, &settings, existing) {
                Ok(store) => Ok(Run::new(store, staging, names, settings, self.options.first_index)),
                Err(error) => {
                    staging.discard_unused(DATA);
                    Err(error)
                }
            },
        }
    }

    fn finished(&self, names: &OutputNames, settings: &RunManifest, existing: Existing) -> SinkError {
        let main = names.main();
        let done = match self.options.layout {
            Layout::Folder => staging::read_manifest(&main),
            Layout::File => Found::read(&main).ok().flatten().map(|found| found.settings),
        };
        staging::finished(main, done, settings, existing)
    }

    /// Creates a fresh run's database. It gets its name once it holds its manifest.
    fn start(
        &mut self,
        names: &OutputNames,
        staging: &Staging,
        settings: &RunManifest,
        existing: Existing,
    ) -> Result<Store, SinkError> {
        self.steps.step("empty staging folder");
        staging.clear(DATA)?;
        if self.options.layout == Layout::Folder {
            staging::clear_folder(&self.options.output, names, &[FORMAT.to_owned()], existing, &mut self.steps)?;
        }
        self.steps.step("create database");
        let fresh = staging.join(NEW_DATA);
        let store = Store::create_private(&fresh, FRESH_MAP)?;
        put_meta(&store, settings, self.options.first_index, false)?;
        store.sync()?;
        drop(store);
        self.steps.step("begin");
        publish(&fresh, &staging.join(DATA))?;
        sync_folder(parent_of(staging.folder()))?;
        self.steps.step("open database");
        Store::open_shared(staging.folder(), self.map_size)
    }

    fn resume(
        &mut self,
        names: OutputNames,
        staging: Staging,
        found: Found,
        settings: &RunManifest,
    ) -> Result<Run, SinkError> {
        if let Some(difference) = found.settings.difference(settings) {
            return Err(SinkError::OtherRun { path: self.options.output.clone(), difference });
        }
        self.steps.step("open database");
        let store = Store::open_shared(staging.folder(), self.map_size)?;
        let mut run = Run::new(store, staging, names, found.settings, found.watermark);
        run.last_key = run.store.last_key(run.store.vectors)?.unwrap_or_default();
        if found.staged {
            run.close();
        }
        Ok(run)
    }

    fn take_rows(&mut self, run: &mut Run, rows: &Rows<'_>) -> Result<(), SinkError> {
        run.taken.check_rows(rows)?;
        for at in 0..rows.index.len() {
            run.pending.push_row(rows, at, self.options.element, run.settings.dim);
        }
        run.taken.rows(rows);
        Ok(())
    }

    fn take_failures(&mut self, run: &mut Run, failures: &[Failure]) -> Result<(), SinkError> {
        run.taken.check_failures(failures)?;
        failures.iter().for_each(|failure| run.pending.push_failure(failure));
        run.taken.failures(failures);
        Ok(())
    }

    fn commit_run(&mut self, run: &mut Run, watermark: u64) -> Result<(), SinkError> {
        run.taken.check_watermark(watermark)?;
        if !run.taken.is_news(watermark) {
            return Ok(());
        }
        self.steps.step("commit");
        run.last_key = run.store.write(|transaction| run.put_pending(transaction, watermark))?;
        run.pending.clear();
        run.watermark = watermark;
        run.taken.commit(watermark);
        Ok(())
    }

    fn finish_run(&mut self, run: &mut Run) -> Result<Published, SinkError> {
        run.taken.check_finish()?;
        if !run.staged {
            self.stage(run)?;
            self.steps.step("record staged");
            sync_folder(run.staging.folder())?;
            run.store.write(|transaction| transaction.put(run.store.meta, &STAGED, b"true", WriteFlags::empty()))?;
            run.close();
        }
        let has_output = run.has_output()?;
        let moves = self.publication(run, has_output);
        if !has_output {
            staging::remove_overwritten(&run.names, &[], &mut self.steps)?;
            remove_if_there(&reader_lock(&run.names.main()))?;
        }
        self.remove_reader_lock(run, &moves)?;
        staging::publish_all(&moves, &mut self.steps)?;
        let mut files: Vec<PathBuf> = moves.into_iter().map(|(_, file)| file).collect();
        files.rotate_left(1); // the failures come last
        Ok(Published {
            files,
            rows: run.store.count(run.store.vectors)?,
            failures: run.store.count(run.store.failures)?,
        })
    }

    /// Prepares all output files.
    fn stage(&mut self, run: &Run) -> Result<(), SinkError> {
        self.steps.step("write failures file");
        write_failures(&run.store, &run.staging.join(NEW_FAILURES))?;
        if !run.has_output()? {
            return Ok(());
        }
        self.steps.step("write vectors in order");
        let vectors = run.staging.join(NEW_VECTORS);
        remove_if_there(&vectors)?;
        let store = Store::create_private(&vectors, FINISHED_MAP)?;
        copy_sorted(&run.store, &store)?;
        put_meta(&store, &run.settings, run.watermark, true)?;
        store.sync()?;
        drop(store);
        sync_file(&vectors)?;
        if self.options.layout == Layout::Folder {
            self.steps.step("write manifest");
            let path = run.staging.join(NEW_MANIFEST);
            fs::write(&path, self.output_manifest(run, &vectors)?.to_json()).map_err(SinkError::io("write", &path))?;
            sync_file(&path)?;
        }
        Ok(())
    }

    fn output_manifest(&self, run: &Run, vectors: &Path) -> Result<OutputManifest, SinkError> {
        let target = run.vectors(self.options.layout);
        let rows = run.store.count(run.store.vectors)?;
        let file = ManifestFile {
            name: target.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            bytes: fs::metadata(vectors).map_err(SinkError::io("inspect", vectors))?.len(),
            xxh3: Some(staging::hash_file(vectors)?),
        };
        Ok(OutputManifest {
            version: OutputManifest::VERSION,
            complete: true,
            format: FORMAT.to_owned(),
            dim: run.settings.dim,
            element: self.options.element.name().to_owned(),
            rows,
            failures: run.store.count(run.store.failures)?,
            watermark: run.watermark,
            parts: vec![ManifestPart { part: 0, rows, files: vec![file] }],
            fingerprint: run.settings.fingerprint.clone(),
            info: run.settings.info.clone(),
        })
    }

    /// The final renames, in order: the file that means "complete" is the last.
    fn publication(&self, run: &Run, has_output: bool) -> Vec<(PathBuf, PathBuf)> {
        let mut moves = vec![(run.staging.join(NEW_FAILURES), run.names.beside("failures.csv"))];
        if has_output {
            moves.push((run.staging.join(NEW_VECTORS), run.vectors(self.options.layout)));
        }
        if has_output && self.options.layout == Layout::Folder {
            moves.push((run.staging.join(NEW_MANIFEST), run.names.beside("manifest.json")));
        }
        moves
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

    fn remove_staging(&mut self, run: Run) -> Result<(), SinkError> {
        self.steps.step("remove staging folder");
        let Run { store, staging, names, .. } = run;
        drop(store); // some systems do not remove open files
        staging.remove(DATA)?;
        sync_folder(parent_of(&names.main()))
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
        let watermark = Watermark(run.watermark);
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

    fn commit(&mut self, watermark: Watermark) -> Result<(), SinkError> {
        self.on_run("commit", |sink, run| sink.commit_run(run, watermark.0))
    }

    fn finish(&mut self) -> Result<Published, SinkError> {
        let published = self.on_run("finish", Self::finish_run)?;
        let run = self.phase.take("finish")?;
        self.remove_staging(*run)?;
        self.phase = Phase::Done;
        Ok(published)
    }
}

impl fmt::Debug for LmdbSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LmdbSink").field("options", &self.options).field("map_size", &self.map_size).finish()
    }
}

impl Run {
    fn new(store: Store, staging: Staging, names: OutputNames, settings: RunManifest, watermark: u64) -> Self {
        let taken = Taken::up_to(watermark, settings.dim, false);
        Self {
            store,
            staging,
            names,
            settings,
            watermark,
            staged: false,
            taken,
            pending: Pending::default(),
            last_key: Vec::new(),
        }
    }

    /// Accepts no more rows: the files exist.
    fn close(&mut self) {
        self.staged = true;
        self.taken.close();
    }

    /// Whether any file but the failures is published; see [`staging::remove_overwritten`].
    fn has_output(&self) -> Result<bool, SinkError> {
        Ok(self.store.count(self.store.vectors)? > 0 || self.store.count(self.store.failures)? == 0)
    }

    /// The vectors' final path.
    fn vectors(&self, layout: Layout) -> PathBuf {
        match layout {
            Layout::File => self.names.main(),
            Layout::Folder => self.names.part(parent_of(&self.names.main()), 0, FORMAT),
        }
    }

    /// Puts the pending rows into a transaction, and returns the greatest key after them.
    fn put_pending(&self, transaction: &mut RwTransaction<'_>, watermark: u64) -> lmdb::Result<Vec<u8>> {
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
        transaction.put(store.meta, &WATERMARK, &watermark.to_string(), WriteFlags::empty())?;
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
        let watermark = store.meta(WATERMARK)?.and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok());
        let settings = store.meta(MANIFEST)?.and_then(|json| serde_json::from_slice(&json).ok());
        match (settings, watermark) {
            (Some(settings), Some(watermark)) => {
                Ok(Some(Self { settings, watermark, staged: store.meta(STAGED)?.is_some() }))
            }
            _ => Err(SinkError::damaged(file, "it does not say which run wrote it")),
        }
    }
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
