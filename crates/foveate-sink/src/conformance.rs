//! The conformance suite for every sink, whatever it writes. Failures panic and state what was expected.
//!
//! A backend's test calls [`run`] with a [`Subject`]. A sink that announces its steps also calls
//! [`crash_at_every_step`]. [`PartSink`](crate::parts::PartSink) does so, by means of [`Steps`](crate::staging::Steps).
//! For a sink that writes to object stores, [`run_in_store`] and its companions do the same with a folder as the store.

#![expect(clippy::unwrap_used, reason = "a suite of tests: what goes wrong must panic")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use foveate_core::{Stage, error_chain};

use crate::commit::PLAN;
use crate::{
    Element, Existing, Failure, InputRecord, Layout, OutputNames, Prefix, Published, Rows, RunManifest, RunState,
    SinkError, SinkOptions, Stamp, VectorSink, Watermark,
};

/// Called with a step's name before every step that changes the disk.
pub type Probe = Box<dyn FnMut(&'static str) + Send>;

/// A finished output read back: id and vector of each row, in order.
pub type Stored = Vec<(String, Vec<f32>)>;

/// Values of [`COLUMNS`], row by row.
pub type StoredColumns = Vec<Vec<Option<String>>>;

/// The columns that items carry along in the suite's runs with columns.
pub const COLUMNS: [&str; 2] = ["caption", "a url"];

/// A sink under test.
pub struct Subject<'a> {
    /// Makes a sink.
    pub open: &'a dyn Fn(&SinkOptions) -> Box<dyn VectorSink>,
    /// Reads the published output, preferably without the sink's own code.
    pub read: &'a dyn Fn(&Published) -> Stored,
    /// Reads the columns of the published output, if the sink can store any.
    pub read_columns: Option<&'a dyn Fn(&Published) -> StoredColumns>,
    /// Extension of its single-file outputs.
    pub extension: &'static str,
    /// The layouts that it can write.
    pub layouts: &'a [Layout],
    /// Whether a folder gets one vector file per [`SinkOptions::part_items`], or a single one.
    pub cuts_parts: bool,
}

/// Runs the whole suite below `scratch`, an empty folder.
pub fn run(subject: &Subject<'_>, scratch: &Path) {
    for &layout in subject.layouts {
        let scratch_of = |name: &str| scratch.join(format!("{layout:?}{name}"));
        let bench = Bench { subject, layout, columns: &[], in_store: false, scratch: scratch_of("") };
        bench.holds_everywhere();
        bench.damaged_work_in_progress_is_never_published();
        bench.two_writers_are_one_too_many();
        bench.impossible_places_are_explained();
        if subject.read_columns.is_some() {
            Bench { columns: &COLUMNS, scratch: scratch_of("-columns"), ..bench }.columns_come_back();
        }
    }
}

/// Runs the suite with outputs in an object store, which is a folder below `scratch`.
pub fn run_in_store(subject: &Subject<'_>, scratch: &Path) {
    let bench = Bench { subject, layout: Layout::Folder, columns: &[], in_store: true, scratch: scratch.join("store") };
    bench.holds_everywhere();
    bench.another_division_is_refused();
    bench.two_writers_do_no_harm();
    bench.a_writer_of_other_bytes_is_refused();
    bench.requests_may_fail_or_lose_their_answer();
    bench.a_commit_that_comes_too_late_is_refused();
    if subject.read_columns.is_some() {
        Bench { columns: &COLUMNS, scratch: scratch.join("store-columns"), ..bench }.columns_come_back();
    }
}

/// Checks that a sink refuses columns by name when it is opened; `open` is its backend's.
pub fn columns_are_refused(open: impl FnOnce(&SinkOptions) -> Result<Box<dyn VectorSink>, SinkError>) {
    match open(&with_columns(SinkOptions::new("nowhere"), &COLUMNS)) {
        Err(SinkError::Unsupported(reason)) => assert!(reason.contains("(caption, a url)"), "{reason}"),
        Err(error) => panic!("not SinkError::Unsupported: {error}"),
        Ok(_) => panic!("columns were ignored"),
    }
}

fn with_columns(options: SinkOptions, columns: &[&str]) -> SinkOptions {
    SinkOptions { columns: columns.iter().map(|&name| name.to_owned()).collect(), ..options }
}

/// Checks that a sink refuses unknown settings by name when it is opened; `open` is its backend's.
pub fn unknown_settings_are_refused(open: impl FnOnce(&SinkOptions) -> Result<Box<dyn VectorSink>, SinkError>) {
    let settings = BTreeMap::from([("no-such-setting".to_owned(), "1".to_owned())]);
    let options = SinkOptions { settings, ..SinkOptions::new("nowhere") };
    match open(&options) {
        Err(SinkError::Unsupported(reason)) => assert!(reason.contains("'no-such-setting'"), "{reason}"),
        Err(error) => panic!("not SinkError::Unsupported: {error}"),
        Ok(_) => panic!("a setting that there is not was ignored"),
    }
}

/// Runs a Python script that opens the sink's output with independent libraries: `script ELEMENT FILE…`, for both
/// elements, as a file and as a folder, in one part and in several. The script knows the ten rows that this function
/// writes. Its exit code 77 means that a library is missing. Returns `Err(why)` if the script could not run.
pub fn read_elsewhere(subject: &Subject<'_>, script: &Path, scratch: &Path) -> Result<(), String> {
    for element in [Element::F32, Element::F16] {
        for &layout in subject.layouts {
            for part_items in [4, 100] {
                let name = format!("{}-{part_items}-{layout:?}", element.name());
                let extension = if layout == Layout::File { subject.extension } else { "d" };
                let output = scratch.join(name).with_extension(extension);
                let options = SinkOptions { element, layout, part_items, ..SinkOptions::new(output) };
                let files = write_ten_rows(subject, &options);
                let is_cut = subject.cuts_parts && layout == Layout::Folder && part_items == 4;
                assert_eq!(files.len(), if is_cut { 3 } else { 1 });
                run_script(script, element, &files)?;
            }
        }
    }
    Ok(())
}

fn write_ten_rows(subject: &Subject<'_>, options: &SinkOptions) -> Vec<PathBuf> {
    let mut sink = (subject.open)(options);
    let fingerprint = [("model".to_owned(), "tiny".to_owned())].into();
    sink.begin(&RunManifest { dim: 4, fingerprint, ..RunManifest::default() }, Existing::Refuse).unwrap();
    let index: Vec<u64> = (0..10).collect();
    let id: Vec<String> = index.iter().map(|i| format!("photos/{i},\n \"ż\".jpg")).collect();
    let vectors: Vec<f32> = (0..40).map(|i| i as f32 * 0.1).collect();
    let xxh3: Vec<u64> = index.iter().map(|i| i * 7).collect();
    let (width, height) = ([100; 10], [200; 10]);
    let rows =
        Rows { index: &index, id: &id, vectors: &vectors, width: &width, height: &height, xxh3: &xxh3, columns: &[] };
    sink.append(&rows).unwrap();
    sink.commit(Watermark::from(10)).unwrap();
    let mut files = sink.finish().unwrap().files;
    files.retain(|file| file.extension().is_some_and(|extension| extension == subject.extension));
    files
}

fn run_script(script: &Path, element: Element, files: &[PathBuf]) -> Result<(), String> {
    let ran = Command::new("python3").arg(script).arg(element.name()).args(files).output();
    let output = ran.map_err(|error| format!("there is no python3 ({error})"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(77) {
        return Err(said.trim().to_owned());
    }
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Fills a small disk, makes room and continues; then uses a disk that cannot be written. Both are mounted below
/// `scratch`, so this returns `Err(why)` where mounting is not permitted.
pub fn run_out_of_space(subject: &Subject<'_>, scratch: &Path) -> Result<(), String> {
    for &layout in subject.layouts {
        let disk = Disk::mount(&scratch.join(format!("{layout:?}")), "size=4m")?;
        let mut job = SampleRun::new();
        job.outcomes = (0..3000).map(|i| (format!("photos/{i:0100}.jpg"), i % 100 != 7)).collect();
        let calls = Calls { rows: 50, commit_every: 1 };
        let options = SinkOptions { part_items: 1000, ..options(&disk.folder, subject.extension, layout) };
        let ballast = disk.folder.join("ballast");
        let expected = {
            let folder = scratch.join(format!("{layout:?}-roomy"));
            fs::create_dir_all(&folder).unwrap();
            let options = SinkOptions { part_items: 1000, ..self::options(&folder, subject.extension, layout) };
            job.finish(&mut *(subject.open)(&options), Existing::Resume, &calls).unwrap();
            snapshot(&folder)
        };
        // From a disk that is full at once to one that almost suffices.
        let mut failures = 0;
        for room in (0..16).map(|page| page << 12).chain((2..40).map(|step| (step * 32) << 10)) {
            disk.fill_up_to(&ballast, room);
            match job.finish(&mut *(subject.open)(&options), Existing::Resume, &calls) {
                Err(SinkError::NoSpace { path, .. }) => {
                    failures += 1;
                    assert!(path.starts_with(&disk.folder), "{} is named", path.display());
                    assert!(!OutputNames::new(&options).main().exists(), "nothing is half-written");
                }
                Ok(_) => break,
                Err(error) => panic!("{layout:?}, {room} bytes free: {error}"),
            }
        }
        assert!(failures > 1, "the disk was full {failures} times only");
        fs::remove_file(&ballast).unwrap();
        if !OutputNames::new(&options).main().exists() {
            job.finish(&mut *(subject.open)(&options), Existing::Resume, &calls).unwrap();
        }
        same(&expected, &snapshot(&disk.folder), "after running out of space");
    }
    let disk = Disk::mount(&scratch.join("sealed"), "ro")?;
    for &layout in subject.layouts {
        let options = options(&disk.folder, subject.extension, layout);
        let error = (subject.open)(&options).begin(&SampleRun::new().manifest, Existing::Resume).unwrap_err();
        assert!(error.to_string().contains(&disk.folder.display().to_string()), "{error}");
        assert!(
            matches!(&error, SinkError::Io { source, .. } if source.kind() == std::io::ErrorKind::ReadOnlyFilesystem),
            "{error:?}"
        );
    }
    Ok(())
}

/// An in-memory file system, removed on drop.
struct Disk {
    folder: PathBuf,
}

impl Disk {
    fn mount(folder: &Path, options: &str) -> Result<Self, String> {
        fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(folder).output();
        match mount {
            Ok(output) if output.status.success() => Ok(Self { folder: folder.to_owned() }),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Err(format!("mount: {error}")),
        }
    }

    /// Leaves `room` bytes free (rounded to the page) by filling the rest with a file.
    fn fill_up_to(&self, ballast: &Path, room: usize) {
        let mut file = fs::File::create(ballast).unwrap();
        let block = [0; 4096];
        let mut taken = 0;
        while file.write_all(&block).is_ok() {
            taken += block.len();
        }
        file.set_len(taken.saturating_sub(room) as u64).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.folder).status();
    }
}

/// Crashes at each step of a run in turn: `open` makes a sink with a probe. After each crash, another run must give the
/// bytes of an uninterrupted run. `columns` are those of the run's items, such as [`COLUMNS`].
pub fn crash_at_every_step(
    open: &dyn Fn(&SinkOptions, Probe) -> Box<dyn VectorSink>,
    extension: &'static str,
    columns: &[&str],
    scratch: &Path,
) {
    let open = |options: &SinkOptions, probe: Probe| open(&with_columns(options.clone(), columns), probe);
    for layout in [Layout::File, Layout::Folder] {
        for overwrites in [false, true] {
            let job = SampleRun { columns: columns.len(), ..SampleRun::new() };
            let scratch = scratch.join(format!("{layout:?}-{overwrites}"));
            crashes(&open, (extension, layout), &job, (overwrites, false), &scratch);
        }
    }
}

/// The same for a sink that writes to an object store, with a crash before each request that changes the store.
pub fn crash_at_every_request(
    open: &dyn Fn(&SinkOptions) -> Box<dyn VectorSink>,
    extension: &'static str,
    columns: &[&str],
    scratch: &Path,
) {
    let open = |options: &SinkOptions, probe: Probe| {
        let probe = Some(Mutex::new(probe));
        let prefix = FolderPrefix { probe, ..FolderPrefix::new(&options.output) };
        open(&SinkOptions { prefix: Some(Arc::new(prefix)), ..with_columns(options.clone(), columns) })
    };
    for overwrites in [false, true] {
        let job = SampleRun { columns: columns.len(), ..SampleRun::new() };
        let scratch = scratch.join(format!("store-{overwrites}"));
        crashes(&open, (extension, Layout::Folder), &job, (overwrites, true), &scratch);
    }
}

/// The options with an object store at the place of the output.
fn in_store(options: SinkOptions) -> SinkOptions {
    let prefix = FolderPrefix::new(&options.output);
    SinkOptions { prefix: Some(Arc::new(prefix)), ..options }
}

/// A folder as a prefix of an object store.
struct FolderPrefix {
    folder: PathBuf,
    address: String,
    requests: AtomicUsize,
    /// The request that goes wrong, and how.
    fault: Option<(usize, Fault)>,
    /// The manifest that another writer puts there before this one's request to do so.
    rival: Option<Vec<u8>>,
    /// Called before each request that changes the store.
    probe: Option<Mutex<Probe>>,
}

impl std::fmt::Debug for FolderPrefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FolderPrefix").field("address", &self.address).finish_non_exhaustive()
    }
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Nothing is done.
    Fails,
    /// It is done, and fails nevertheless.
    LosesItsAnswer,
    /// It is done, its answer is lost, and it is repeated.
    IsRepeated,
}

impl FolderPrefix {
    fn new(folder: &Path) -> Self {
        let address = format!("{}/", folder.display());
        let requests = AtomicUsize::new(0);
        Self { folder: folder.to_owned(), address, requests, fault: None, rival: None, probe: None }
    }

    fn change<T>(&self, name: &'static str, act: impl Fn() -> std::io::Result<T>) -> Result<T, SinkError> {
        if let Some(probe) = &self.probe {
            probe.lock().unwrap()(name);
        }
        self.request(act)
    }

    fn request<T>(&self, act: impl Fn() -> std::io::Result<T>) -> Result<T, SinkError> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let fault = self.fault.filter(|(at, _)| *at == number).map(|(_, fault)| fault);
        let failed = || Err(SinkError::Store { action: "write to", source: format!("request {number}").into() });
        match fault {
            None => Ok(act().unwrap()),
            Some(Fault::Fails) => failed(),
            Some(Fault::LosesItsAnswer) => {
                act().unwrap();
                failed()
            }
            Some(Fault::IsRepeated) => {
                act().unwrap();
                Ok(act().unwrap())
            }
        }
    }

    fn let_rival_be_first(&self, name: &str) {
        if let Some(manifest) = self.rival.as_ref().filter(|_| name == "_manifest.json") {
            self.write(name, manifest).unwrap();
        }
    }

    fn write(&self, name: &str, content: &[u8]) -> std::io::Result<()> {
        let path = self.folder.join(name);
        fs::create_dir_all(path.parent().unwrap())?;
        fs::write(path, content)
    }
}

/// Nothing if it is not there.
fn if_there<T>(result: std::io::Result<T>) -> std::io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

impl Prefix for FolderPrefix {
    fn address(&self) -> &str {
        &self.address
    }

    fn create(&self, name: &str, content: Bytes) -> Result<bool, SinkError> {
        self.let_rival_be_first(name);
        self.change("create", || {
            let is_new = !self.folder.join(name).exists();
            if is_new { self.write(name, &content).map(|()| true) } else { Ok(false) }
        })
    }

    fn exchange(&self, name: &str, old: &[u8], content: Bytes) -> Result<bool, SinkError> {
        self.let_rival_be_first(name);
        self.change("exchange", || {
            let is_old = fs::read(self.folder.join(name))? == old;
            if is_old { self.write(name, &content).map(|()| true) } else { Ok(false) }
        })
    }

    fn replace(&self, name: &str, content: Bytes) -> Result<(), SinkError> {
        self.change("replace", || self.write(name, &content))
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, SinkError> {
        self.request(|| if_there(fs::read(self.folder.join(name))))
    }

    fn list(&self, start: &str) -> Result<BTreeMap<String, u64>, SinkError> {
        self.request(|| {
            let all = if self.folder.exists() { snapshot(&self.folder) } else { BTreeMap::new() };
            let all = all.into_iter().map(|(path, bytes)| (path.to_string_lossy().into_owned(), bytes.len() as u64));
            Ok(all.filter(|(name, _)| name.starts_with(start)).collect())
        })
    }

    fn remove(&self, name: &str) -> Result<(), SinkError> {
        self.change("remove", || if_there(fs::remove_file(self.folder.join(name))).map(drop))
    }
}

/// Any run of the suite's job takes more steps than this to begin, commit and publish.
const MANY_STEPS: usize = 15;

fn crashes(
    open: &dyn Fn(&SinkOptions, Probe) -> Box<dyn VectorSink>,
    (extension, layout): (&'static str, Layout),
    job: &SampleRun,
    (overwrites, in_store): (bool, bool),
    scratch: &Path,
) {
    let (work, copies) = (scratch.join("work"), scratch.join("copies"));
    fs::create_dir_all(&work).unwrap();
    let quiet = || -> Probe { Box::new(|_| {}) };
    let old = if overwrites {
        let mut sink = open(&options(&work, extension, layout), quiet());
        let mut job = job.clone();
        job.manifest.fingerprint.insert("model".into(), "old".into());
        job.outcomes.truncate(9);
        job.finish(&mut *sink, Existing::Resume, &Calls::default()).unwrap();
        snapshot(&work)
    } else {
        BTreeMap::new()
    };
    let steps = Arc::new(Mutex::new(Vec::new()));
    let probe = copying_probe(work.clone(), copies.clone(), Arc::clone(&steps));
    let existing = if overwrites { Existing::Overwrite } else { Existing::Resume };
    let calls = Calls { rows: 2, commit_every: 2 };
    let mut sink = open(&options(&work, extension, layout), probe);
    job.finish(&mut *sink, existing, &calls).unwrap();
    drop(sink);
    let expected = snapshot(&work);
    let steps = steps.lock().unwrap().clone();
    assert!(steps.len() >= MANY_STEPS, "only {} steps were seen", steps.len());
    for (number, step) in steps.iter().enumerate() {
        let copy = copies.join(number.to_string());
        let options = options(&copy, extension, layout);
        let main = OutputNames::new(&options).main();
        let complete = |found: &BTreeMap<PathBuf, Vec<u8>>| *found == old || *found == expected;
        let at = format!("{layout:?}, crash {number} before '{step}'");
        let staging = OutputNames::new(&options).staging();
        // While the output is put in place, readers refuse it.
        let is_in_place = staging.join(PLAN).exists();
        let found = without_staging(&copy);
        // In a store, new parts stand beside the old output, whose manifest does not name them.
        let keeps_old = in_store && !old.is_empty() && old.iter().all(|(name, bytes)| found.get(name) == Some(bytes));
        let is_whole = complete(&found) || keeps_old;
        assert!(!main.exists() || is_in_place || is_whole, "{at}: the main file stands beside others' files");
        if number % 2 == 1 {
            lose_power(&staging);
        }
        let again = job.finish(&mut *open(&options, quiet()), Existing::Resume, &Calls::default());
        match again {
            Ok(_) => {}
            Err(SinkError::AlreadyComplete(_)) if snapshot(&copy) == expected => {}
            Err(SinkError::OtherRun(other)) if overwrites && other.state == RunState::Complete => {
                job.finish(&mut *open(&options, quiet()), Existing::Overwrite, &Calls::default()).unwrap();
            }
            Err(error) => panic!("{at}: {error}"),
        }
        same(&expected, &snapshot(&copy), &at);
    }
}

fn copying_probe(work: PathBuf, copies: PathBuf, steps: Arc<Mutex<Vec<&'static str>>>) -> Probe {
    Box::new(move |step| {
        let mut steps = steps.lock().unwrap();
        copy_folder(&work, &copies.join(steps.len().to_string()));
        steps.push(step);
    })
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A power failure may leave any bytes in files that were not synced: those with a temporary name.
fn lose_power(staging: &Path) {
    let Ok(entries) = fs::read_dir(staging) else { return };
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.file_name().unwrap().to_string_lossy().starts_with("new-") {
            fs::write(&path, b"0123456789abcdef {noise").unwrap();
        }
    }
}

/// Every file below a folder, by relative path.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut files, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for path in fs::read_dir(&next).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(path.strip_prefix(folder).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    files
}

fn without_staging(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let staged = |path: &Path| {
        let mut names = path.components().map(|name| name.as_os_str().to_string_lossy().into_owned());
        names.any(|name| name == ".foveate" || name.ends_with(".partial"))
    };
    snapshot(folder).into_iter().filter(|(path, _)| !staged(path)).collect()
}

fn same(expected: &BTreeMap<PathBuf, Vec<u8>>, found: &BTreeMap<PathBuf, Vec<u8>>, when: &str) {
    let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(expected), names(found), "files, {when}");
    for (path, bytes) in expected {
        assert!(bytes == &found[path], "{} has other bytes, {when}", path.display());
    }
}

const DIM: usize = 3;
const PART: u64 = 5;

fn options(folder: &Path, extension: &str, layout: Layout) -> SinkOptions {
    let output = match layout {
        Layout::File => folder.join(format!("x.{extension}")),
        Layout::Folder => folder.join("x"),
    };
    SinkOptions { layout, part_items: PART, ..SinkOptions::new(output) }
}

/// How a job is divided into calls.
struct Calls {
    /// Outcomes per round of `append` and `fail`.
    rows: usize,
    /// Rounds per commit.
    commit_every: usize,
}

impl Default for Calls {
    fn default() -> Self {
        Self { rows: 4, commit_every: 1 }
    }
}

/// A run with every kind of outcome: parts that are full, mixed, and without rows.
#[derive(Clone)]
struct SampleRun {
    manifest: RunManifest,
    first: u64,
    /// The id of each item, and whether it gets a vector.
    outcomes: Vec<(String, bool)>,
    /// How many of [`COLUMNS`] each item carries along.
    columns: usize,
}

impl SampleRun {
    fn new() -> Self {
        let awkward =
            ["plain.jpg", "a,b.jpg", "say \"hi\".jpg", "two\nlines.jpg", "żółw 🐢.jpg", " blanks ", "cr\r\n,"];
        let failed = [3, 10, 11, 12, 13, 14, 21];
        let outcomes = (0..24).map(|i| {
            let id = awkward.get(i).map_or_else(|| format!("photos/{i:04}.jpg"), |&id| id.to_owned());
            (id, !failed.contains(&i))
        });
        let text = |pairs: &[(&str, &str)]| pairs.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
        let manifest = RunManifest {
            dim: DIM,
            fingerprint: text(&[("model", "tiny"), ("recipe", "hf")]),
            info: text(&[("version", "0.1.0")]),
        };
        Self { manifest, first: 0, outcomes: outcomes.collect(), columns: 0 }
    }

    fn end(&self) -> u64 {
        self.first + self.outcomes.len() as u64
    }

    fn vector(index: u64) -> Vec<f32> {
        (0..DIM as u64).map(|c| (index * 10 + c) as f32 * 0.37 - 4.0).collect()
    }

    /// Values of every kind: null, empty, long, and with characters that formats escape.
    fn values(&self, index: u64) -> Vec<Option<String>> {
        let value = |column: u64| match (index + column) % 5 {
            0 => None,
            1 => Some(String::new()),
            2 => Some("a long caption ".repeat(20)),
            _ => Some(format!("żółw,\n\"{index}\"\0{column}")),
        };
        (0..self.columns as u64).map(value).collect()
    }

    /// A source's place after the items below `index`.
    fn watermark(&self, index: u64) -> Watermark {
        Watermark { index, place: if index == self.first { 0 } else { index << 32 | 7 } }
    }

    fn rows(&self) -> Stored {
        let items = (self.first..).zip(&self.outcomes);
        items.filter(|(_, (_, stored))| *stored).map(|(i, (id, _))| (id.clone(), Self::vector(i))).collect()
    }

    fn failures(&self) -> u64 {
        self.outcomes.iter().filter(|(_, stored)| !stored).count() as u64
    }

    /// The calls that deliver the outcomes from `from` on.
    fn steps(&self, from: u64, calls: &Calls) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut at = from;
        let mut rounds = 0;
        while at < self.end() {
            let to = self.end().min(at + calls.rows as u64);
            steps.push(Step::Append(at, to));
            steps.push(Step::Fail(at, to));
            at = to;
            rounds += 1;
            if rounds % calls.commit_every == 0 || at == self.end() {
                steps.push(Step::Commit(at));
            }
        }
        steps
    }

    fn take(&self, sink: &mut dyn VectorSink, step: &Step) -> Result<(), SinkError> {
        match *step {
            Step::Append(from, to) => {
                self.append(sink, from, to)?;
                sink.record(&self.inputs(from, to))
            }
            Step::Fail(from, to) => self.fail(sink, from, to),
            Step::Commit(index) => sink.commit(self.watermark(index)),
        }
    }

    fn inputs(&self, from: u64, to: u64) -> Vec<InputRecord> {
        let record = |index: u64| InputRecord {
            id: self.outcomes[(index - self.first) as usize].0.clone(),
            stamp: Some(Stamp { bytes: index, modified_ns: -1 }),
            xxh3: index.is_multiple_of(2).then_some(index),
            place: self.watermark(index + 1).place,
        };
        (from..to).map(record).collect()
    }

    fn range(&self, from: u64, to: u64, stored: bool) -> (Vec<u64>, Vec<String>) {
        let items = (from..to).map(|index| (index, &self.outcomes[(index - self.first) as usize]));
        items.filter(|(_, outcome)| outcome.1 == stored).map(|(index, outcome)| (index, outcome.0.clone())).unzip()
    }

    fn append(&self, sink: &mut dyn VectorSink, from: u64, to: u64) -> Result<(), SinkError> {
        let (index, id) = self.range(from, to, true);
        let vectors: Vec<f32> = index.iter().flat_map(|&index| Self::vector(index)).collect();
        let width: Vec<u32> = index.iter().map(|&index| 100 + index as u32).collect();
        let height: Vec<u32> = index.iter().map(|&index| 200 + index as u32).collect();
        let xxh3: Vec<u64> = index.iter().map(|&index| u64::MAX - index).collect();
        let columns: Vec<_> = index.iter().map(|&index| self.values(index).into_boxed_slice()).collect();
        sink.append(&Rows {
            index: &index,
            id: &id,
            vectors: &vectors,
            width: &width,
            height: &height,
            xxh3: &xxh3,
            columns: &columns,
        })
    }

    fn fail(&self, sink: &mut dyn VectorSink, from: u64, to: u64) -> Result<(), SinkError> {
        let (index, id) = self.range(from, to, false);
        let failures: Vec<Failure> = index
            .into_iter()
            .zip(id)
            .map(|(index, id)| Failure {
                index,
                id,
                stage: Stage::Decode,
                reason: format!("broken, \"badly\" ({index})"),
                bytes: (index % 2 == 0).then_some(index),
            })
            .collect();
        sink.fail(&failures)
    }

    /// Begins, delivers the missing outcomes and finishes.
    fn finish(&self, sink: &mut dyn VectorSink, existing: Existing, calls: &Calls) -> Result<Published, SinkError> {
        let found = sink.begin(&self.manifest, existing)?;
        assert_eq!(found, self.watermark(found.index), "the place that was committed with the index");
        for step in self.steps(found.index, calls) {
            self.take(sink, &step)?;
        }
        sink.finish()
    }
}

enum Step {
    Append(u64, u64),
    Fail(u64, u64),
    Commit(u64),
}

struct Bench<'a> {
    subject: &'a Subject<'a>,
    layout: Layout,
    columns: &'a [&'a str],
    /// The output is in an object store.
    in_store: bool,
    scratch: PathBuf,
}

impl Bench<'_> {
    fn folder(&self, name: &str) -> PathBuf {
        let folder = self.scratch.join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn options(&self, folder: &Path) -> SinkOptions {
        let options = with_columns(options(folder, self.subject.extension, self.layout), self.columns);
        if self.in_store { in_store(options) } else { options }
    }

    /// Where a run goes on that has committed the items below `index`.
    fn kept(&self, index: u64) -> u64 {
        if self.in_store { index - index % PART } else { index }
    }

    fn job(&self) -> SampleRun {
        SampleRun { columns: self.columns.len(), ..SampleRun::new() }
    }

    fn sink(&self, folder: &Path) -> Box<dyn VectorSink> {
        (self.subject.open)(&self.options(folder))
    }

    fn complete(&self, folder: &Path, job: &SampleRun, calls: &Calls) -> Published {
        job.finish(&mut *self.sink(folder), Existing::Resume, calls).unwrap()
    }

    /// The bytes of an uninterrupted run.
    fn reference(&self, name: &str) -> BTreeMap<PathBuf, Vec<u8>> {
        let folder = self.folder(name);
        self.complete(&folder, &self.job(), &Calls::default());
        snapshot(&folder)
    }

    fn check(&self, job: &SampleRun, published: &Published, expected: &Stored) {
        assert_eq!(published.rows, expected.len() as u64, "rows");
        assert_eq!(published.failures, job.failures(), "failures");
        assert!(published.files.iter().all(|file| file.is_file()), "every published file is there");
        assert_eq!(&(self.subject.read)(published), expected);
        Self::check_failures(job, published);
    }

    fn check_failures(job: &SampleRun, published: &Published) {
        let name = |file: &&PathBuf| file.file_name().unwrap().to_string_lossy().into_owned();
        let failures = published.files.iter().find(|file| name(file).contains("failures"));
        let text = fs::read_to_string(failures.expect("a failures file is always published")).unwrap();
        assert!(text.starts_with("id,stage,reason,bytes\n"), "{text}");
        for (index, (id, _)) in (job.first..).zip(&job.outcomes).filter(|(_, (_, stored))| !stored) {
            let bytes = if index % 2 == 0 { index.to_string() } else { String::new() };
            let quoted = format!("\"{}\"", id.replace('"', "\"\""));
            let id = if id.contains(['\n', '\r', ',', '"']) || id.starts_with(' ') { &quoted } else { id };
            let line = format!("{id},decode,\"broken, \"\"badly\"\" ({index})\",{bytes}\n");
            assert!(text.contains(&line), "{line} is not in {text}");
        }
    }

    /// What holds for files and for objects in a store.
    fn holds_everywhere(&self) {
        self.rows_come_back_in_order();
        self.halves_round_to_nearest_even();
        self.no_rows_is_a_valid_output();
        self.only_failures_are_no_output();
        self.bytes_do_not_depend_on_calls();
        self.an_interruption_after_any_call_is_made_good();
        self.many_interruptions_are_made_good();
        self.another_run_is_refused_by_name();
        self.existing_outputs_are_respected();
        self.misuse_is_an_error();
        self.shards_share_a_folder();
    }

    fn rows_come_back_in_order(&self) {
        let job = SampleRun::new();
        let published = self.complete(&self.folder("fresh"), &job, &Calls::default());
        self.check(&job, &published, &job.rows());
    }

    fn halves_round_to_nearest_even(&self) {
        let job = SampleRun::new();
        let options = SinkOptions { element: Element::F16, ..self.options(&self.folder("f16")) };
        let published = job.finish(&mut *(self.subject.open)(&options), Existing::Resume, &Calls::default()).unwrap();
        let half = |value: f32| half::f16::from_f64(f64::from(value)).to_f32();
        let mut expected = job.rows();
        expected.iter_mut().flat_map(|(_, vector)| vector).for_each(|value| *value = half(*value));
        self.check(&job, &published, &expected);
    }

    fn no_rows_is_a_valid_output(&self) {
        let job = SampleRun { outcomes: Vec::new(), ..SampleRun::new() };
        let published = self.complete(&self.folder("empty"), &job, &Calls::default());
        self.check(&job, &published, &Vec::new());
    }

    fn only_failures_are_no_output(&self) {
        let mut job = SampleRun::new();
        job.outcomes.iter_mut().for_each(|(_, stored)| *stored = false);
        let (folder, overwritten) = (self.folder("failures"), self.folder("failures-overwrite"));
        self.complete(&overwritten, &SampleRun::new(), &Calls::default());
        // The second run of the same job starts over.
        for (folder, existing) in
            [(&folder, Existing::Resume), (&folder, Existing::Resume), (&overwritten, Existing::Overwrite)]
        {
            let mut sink = self.sink(folder);
            let published = job.finish(&mut *sink, existing, &Calls::default()).unwrap();
            assert_eq!((published.rows, published.failures), (0, job.failures()));
            assert_eq!(published.files.len(), 1, "{:?}", published.files);
            Self::check_failures(&job, &published);
            assert_eq!(snapshot(folder).len(), 1, "{:?}", snapshot(folder).keys());
        }
    }

    /// Columns take part in whatever concerns rows.
    fn columns_come_back(&self) {
        let job = self.job();
        let published = self.complete(&self.folder("fresh"), &job, &Calls::default());
        self.check(&job, &published, &job.rows());
        let stored = (job.first..).zip(&job.outcomes).filter(|(_, (_, stored))| *stored);
        let expected: StoredColumns = stored.map(|(index, _)| job.values(index)).collect();
        assert!((self.subject.read_columns.unwrap())(&published) == expected, "columns do not come back");
        self.bytes_do_not_depend_on_calls();
        self.an_interruption_after_any_call_is_made_good();
        self.other_columns_are_refused();
    }

    fn other_columns_are_refused(&self) {
        let (job, folder) = (self.job(), self.folder("other-columns"));
        self.begin_some(&job, &folder);
        let before = snapshot(&folder);
        for (columns, difference) in
            [(&["caption", "b"][..], "caption,a url → caption,b"), (&[], "caption,a url → (none)")]
        {
            let options = with_columns(self.options(&folder), columns);
            let error = (self.subject.open)(&options).begin(&job.manifest, Existing::Resume).unwrap_err();
            assert!(error.to_string().contains(&format!("sink.columns: {difference}")), "{error}");
        }
        same(&before, &snapshot(&folder), "after a refusal");
        let misuse = |result: Result<(), SinkError>| assert!(matches!(result, Err(SinkError::Misuse(_))), "{result:?}");
        let mut sink = self.sink(&folder);
        let Watermark { index, .. } = sink.begin(&job.manifest, Existing::Resume).unwrap();
        misuse(SampleRun { columns: 0, ..job.clone() }.append(&mut *sink, index, job.end()));
        misuse(SampleRun { columns: 1, ..job.clone() }.append(&mut *sink, index, job.end()));
    }

    fn bytes_do_not_depend_on_calls(&self) {
        let expected = self.reference("calls");
        for (rows, commit_every) in [(1, 1), (1, 7), (2, 3), (5, 1), (7, 2), (100, 1)] {
            let folder = self.folder(&format!("calls-{rows}-{commit_every}"));
            self.complete(&folder, &self.job(), &Calls { rows, commit_every });
            same(&expected, &snapshot(&folder), &format!("{rows} per call, {commit_every} calls per commit"));
        }
    }

    fn an_interruption_after_any_call_is_made_good(&self) {
        let expected = self.reference("uninterrupted");
        let job = self.job();
        let calls = Calls { rows: 3, commit_every: 2 };
        let steps = job.steps(0, &calls);
        for stop in 0..=steps.len() {
            let folder = self.folder(&format!("interrupted-{stop}"));
            let mut sink = self.sink(&folder);
            sink.begin(&job.manifest, Existing::Resume).unwrap();
            steps[..stop].iter().for_each(|step| job.take(&mut *sink, step).unwrap());
            drop(sink);
            let committed = steps[..stop].iter().rev().find_map(|step| match step {
                Step::Commit(watermark) => Some(*watermark),
                _ => None,
            });
            let mut sink = self.sink(&folder);
            let found = sink.begin(&job.manifest, Existing::Resume).unwrap();
            assert_eq!(found, job.watermark(self.kept(committed.unwrap_or(0))), "watermark after {stop} calls");
            let failures = job.range(0, found.index, false).0.len() as u64;
            assert_eq!(sink.failures().unwrap(), failures, "failures after {stop} calls");
            drop(sink);
            let published = self.complete(&folder, &job, &calls);
            self.check(&job, &published, &job.rows());
            same(&expected, &snapshot(&folder), &format!("interrupted after {stop} calls"));
        }
    }

    /// Flips a bit in each file of an interrupted run's work in progress, at several places.
    fn damaged_work_in_progress_is_never_published(&self) {
        let expected = self.reference("undamaged");
        let (job, folder) = (self.job(), self.folder("to-be-damaged"));
        let mut sink = self.sink(&folder);
        sink.begin(&job.manifest, Existing::Resume).unwrap();
        let steps = job.steps(0, &Calls { rows: 2, commit_every: 1 });
        steps[..steps.len() - 3].iter().for_each(|step| job.take(&mut *sink, step).unwrap());
        drop(sink);
        for (path, bytes) in snapshot(&folder) {
            for at in (0..bytes.len()).step_by(bytes.len() / 8 + 1) {
                let copy = self.folder("damaged");
                fs::remove_dir_all(&copy).unwrap();
                copy_folder(&folder, &copy);
                let mut damaged = bytes.clone();
                damaged[at] ^= 1;
                fs::write(copy.join(&path), damaged).unwrap();
                let at = format!("byte {at} of {}", path.display());
                match job.finish(&mut *self.sink(&copy), Existing::Resume, &Calls::default()) {
                    Ok(_) => same(&expected, &snapshot(&copy), &at),
                    Err(error) => assert!(matches!(error, SinkError::Damaged { .. }), "{at}: {error}"),
                }
            }
        }
    }

    fn many_interruptions_are_made_good(&self) {
        let expected = self.reference("patient");
        let (job, folder) = (SampleRun::new(), self.folder("restless"));
        loop {
            let mut sink = self.sink(&folder);
            let Watermark { index: from, .. } = sink.begin(&job.manifest, Existing::Resume).unwrap();
            let steps = job.steps(from, &Calls { rows: 2, commit_every: 1 });
            if from == self.kept(job.end()) {
                steps.iter().for_each(|step| job.take(&mut *sink, step).unwrap());
                sink.finish().unwrap();
                break;
            }
            // Some rounds are committed, a part at least in a store; the next one is appended and lost.
            let rounds = if self.in_store { 3 } else { 1 };
            steps.iter().take(3 * rounds + 2).for_each(|step| job.take(&mut *sink, step).unwrap());
        }
        same(&expected, &snapshot(&folder), "after many interruptions");
    }

    fn another_run_is_refused_by_name(&self) {
        let (mut job, folder) = (SampleRun::new(), self.folder("other"));
        self.begin_some(&job, &folder);
        let before = snapshot(&folder);
        job.manifest.fingerprint.insert("model".into(), "large".into());
        let error = self.sink(&folder).begin(&job.manifest, Existing::Resume).unwrap_err();
        assert!(matches!(&error, SinkError::OtherRun(other) if other.state == RunState::Interrupted), "{error}");
        assert!(error.to_string().contains("model: tiny → large"), "{error}");
        assert!(!error.to_string().contains("recipe"), "{error}");
        let half = SinkOptions { element: Element::F16, ..self.options(&folder) };
        let error = (self.subject.open)(&half).begin(&SampleRun::new().manifest, Existing::Resume).unwrap_err();
        assert!(error.to_string().contains("f32 → f16"), "{error}");
        same(&before, &snapshot(&folder), "after a refusal");
        // Facts that do not affect the bytes are not compared.
        let mut job = SampleRun::new();
        job.manifest.info.insert("version".into(), "0.2.0".into());
        self.complete(&folder, &job, &Calls::default());
    }

    /// Leaves a run that was interrupted between commits.
    fn begin_some(&self, job: &SampleRun, folder: &Path) {
        let mut sink = self.sink(folder);
        sink.begin(&job.manifest, Existing::Resume).unwrap();
        for step in job.steps(0, &Calls::default()).iter().take(7) {
            job.take(&mut *sink, step).unwrap();
        }
    }

    fn existing_outputs_are_respected(&self) {
        let (job, folder) = (SampleRun::new(), self.folder("existing"));
        let begin = |existing| self.sink(&folder).begin(&job.manifest, existing);
        self.begin_some(&job, &folder);
        assert!(matches!(begin(Existing::Refuse), Err(SinkError::Interrupted(_))));
        assert_eq!(begin(Existing::Overwrite).unwrap(), Watermark::from(0));
        self.complete(&folder, &job, &Calls::default());
        let complete = snapshot(&folder);
        assert!(matches!(begin(Existing::Refuse), Err(SinkError::Exists(_))));
        let Err(SinkError::AlreadyComplete(done)) = begin(Existing::Resume) else { panic!("it is complete") };
        assert_eq!((done.published.rows, done.published.failures), (job.rows().len() as u64, job.failures()));
        assert!(done.published.files.iter().all(|file| file.is_file()), "{:?}", done.published.files);
        let inputs: Vec<_> = done.inputs.unwrap().read().unwrap().map(Result::unwrap).collect();
        let recorded = |input| InputRecord { place: 0, ..input };
        assert_eq!(inputs, job.inputs(0, job.end()).into_iter().map(recorded).collect::<Vec<_>>());
        let mut other = job.manifest.clone();
        other.fingerprint.insert("model".to_owned(), "another".to_owned());
        let refused = self.sink(&folder).begin(&other, Existing::Resume).unwrap_err();
        assert!(refused.to_string().contains("model: tiny → another"), "{refused}");
        same(&complete, &snapshot(&folder), "after a complete output was kept");
        let shorter = SampleRun { outcomes: SampleRun::new().outcomes[..6].to_vec(), ..SampleRun::new() };
        let published = shorter.finish(&mut *self.sink(&folder), Existing::Overwrite, &Calls::default()).unwrap();
        self.check(&shorter, &published, &shorter.rows());
        let fresh = self.folder("existing-fresh");
        self.complete(&fresh, &shorter, &Calls::default());
        // In a store, the parts have numbers that those of the old output had not.
        match self.in_store {
            true => assert_eq!(snapshot(&fresh).len(), snapshot(&folder).len(), "after overwriting"),
            false => same(&snapshot(&fresh), &snapshot(&folder), "after overwriting"),
        }
    }

    fn misuse_is_an_error(&self) {
        let (job, folder) = (SampleRun::new(), self.folder("misuse"));
        let misuse = |result: Result<(), SinkError>, what: &str| {
            assert!(matches!(result, Err(SinkError::Misuse(_))), "{what}: {result:?}");
        };
        let mut sink = self.sink(&folder);
        let sink = &mut *sink;
        misuse(job.append(sink, 0, 2), "append before begin");
        misuse(sink.commit(Watermark::from(0)), "commit before begin");
        misuse(sink.finish().map(drop), "finish before begin");
        let mut flat = job.manifest.clone();
        flat.dim = 0;
        misuse(sink.begin(&flat, Existing::Resume).map(drop), "vectors without components");
        sink.begin(&job.manifest, Existing::Resume).unwrap();
        misuse(sink.begin(&job.manifest, Existing::Resume).map(drop), "begin twice");
        job.append(sink, 0, 6).unwrap();
        misuse(job.append(sink, 2, 7), "rows out of order");
        misuse(sink.commit(Watermark::from(3)), "a watermark below rows");
        misuse(sink.finish().map(drop), "finish with rows not committed");
        let ids = ["a".to_owned()];
        let short =
            Rows { index: &[7], id: &ids, vectors: &[0.0], width: &[1], height: &[1], xxh3: &[1], columns: &[] };
        misuse(sink.append(&short), "a vector that is too short");
        let uneven =
            Rows { index: &[7], id: &[], vectors: &[0.0; DIM], width: &[1], height: &[1], xxh3: &[1], columns: &[] };
        misuse(sink.append(&uneven), "columns of different length");
        job.fail(sink, 0, 6).unwrap();
        misuse(job.fail(sink, 0, 6), "failures out of order");
        sink.commit(Watermark::from(6)).unwrap();
        misuse(sink.commit(Watermark::from(5)), "a watermark that goes back");
        // None of these calls did any harm.
        for step in job.steps(6, &Calls::default()) {
            job.take(sink, &step).unwrap();
        }
        let published = sink.finish().unwrap();
        self.check(&job, &published, &job.rows());
        misuse(sink.finish().map(drop), "finish twice");
        misuse(job.append(sink, 20, 24), "append after finish");
    }

    fn two_writers_are_one_too_many(&self) {
        let (job, folder) = (SampleRun::new(), self.folder("locked"));
        let mut first = self.sink(&folder);
        first.begin(&job.manifest, Existing::Resume).unwrap();
        for existing in [Existing::Resume, Existing::Refuse, Existing::Overwrite] {
            let result = self.sink(&folder).begin(&job.manifest, existing);
            assert!(matches!(result, Err(SinkError::Locked(_))), "{existing:?}: {result:?}");
        }
        for step in job.steps(0, &Calls::default()) {
            job.take(&mut *first, &step).unwrap();
        }
        let published = first.finish().unwrap();
        self.check(&job, &published, &job.rows());
    }

    /// A whole run would mix with a shard that was begun.
    fn another_division_is_refused(&self) {
        let (job, folder) = (SampleRun::new(), self.folder("division"));
        let shard = SinkOptions { shard: Some((0, 2)), ..self.options(&folder) };
        (self.subject.open)(&shard).begin(&job.manifest, Existing::Resume).unwrap();
        let refused = self.sink(&folder).begin(&job.manifest, Existing::Resume).map(drop);
        assert!(matches!(refused, Err(SinkError::BadOutput { .. })), "{refused:?}");
    }

    /// They make the same objects, whoever is first. Nothing is left of either.
    fn two_writers_do_no_harm(&self) {
        let (job, expected) = (SampleRun::new(), self.reference("one-writer"));
        let as_folder = Bench { in_store: false, scratch: self.scratch.join("local"), ..*self };
        same(&as_folder.reference("folder"), &expected, "in a store and in a folder");
        let steps = job.steps(0, &Calls { rows: 2, commit_every: 1 });
        for lead in [0, 7, steps.len()] {
            let folder = self.folder(&format!("two-writers-{lead}"));
            let (mut first, mut second) = (self.sink(&folder), self.sink(&folder));
            first.begin(&job.manifest, Existing::Resume).unwrap();
            steps[..lead].iter().for_each(|step| job.take(&mut *first, step).unwrap());
            let Watermark { index, .. } = second.begin(&job.manifest, Existing::Resume).unwrap();
            job.steps(index, &Calls::default()).iter().for_each(|step| job.take(&mut *second, step).unwrap());
            steps[lead..].iter().for_each(|step| job.take(&mut *first, step).unwrap());
            first.finish().unwrap();
            let published = second.finish().unwrap();
            self.check(&job, &published, &job.rows());
            same(&expected, &snapshot(&folder), &format!("{lead} calls before the second writer"));
        }
    }

    fn a_writer_of_other_bytes_is_refused(&self) {
        let (job, mut other, folder) = (SampleRun::new(), SampleRun::new(), self.folder("other-bytes"));
        other.outcomes[0].1 = false;
        let (mut first, mut second) = (self.sink(&folder), self.sink(&folder));
        second.begin(&other.manifest, Existing::Resume).unwrap();
        let published = job.finish(&mut *first, Existing::Resume, &Calls::default()).unwrap();
        let before = snapshot(&folder);
        let refused = other.steps(0, &Calls::default()).iter().find_map(|step| other.take(&mut *second, step).err());
        let Some(SinkError::Differs(path)) = refused else { panic!("{refused:?}") };
        assert!(path.to_string_lossy().contains("part-00000"), "{}", path.display());
        drop(second);
        same(&before, &snapshot(&folder), "after a refusal");
        self.check(&job, &published, &job.rows());
    }

    fn requests_may_fail_or_lose_their_answer(&self) {
        for existing in [Existing::Resume, Existing::Overwrite] {
            for fault in [Fault::Fails, Fault::LosesItsAnswer, Fault::IsRepeated] {
                self.one_request_goes_wrong(existing, fault);
            }
        }
    }

    /// Each request of a run in turn, which replaces another output if it overwrites.
    fn one_request_goes_wrong(&self, existing: Existing, fault: Fault) {
        let (job, mut old) = (SampleRun::new(), SampleRun::new());
        old.manifest.fingerprint.insert("model".into(), "old".into());
        let begun = |name: String| {
            let folder = self.folder(&name);
            if existing == Existing::Overwrite {
                self.complete(&folder, &old, &Calls::default());
            }
            folder
        };
        let calm = begun(format!("calm-{existing:?}-{fault:?}"));
        job.finish(&mut *self.sink(&calm), existing, &Calls::default()).unwrap();
        for number in 0.. {
            let at = format!("{existing:?}, {fault:?} at {number}");
            let folder = begun(at.clone());
            let options = self.options(&folder);
            let prefix = Arc::new(FolderPrefix { fault: Some((number, fault)), ..FolderPrefix::new(&options.output) });
            let faulty = SinkOptions { prefix: Some(prefix.clone()), ..options.clone() };
            let first = job.finish(&mut *(self.subject.open)(&faulty), existing, &Calls::default());
            let is_over = prefix.requests.load(Ordering::Relaxed) <= number;
            let is_complete = first.as_ref().is_ok_and(|published| published.leftover.is_none());
            assert!(is_complete || fault != Fault::IsRepeated, "{at}: {first:?}");
            match job.finish(&mut *self.sink(&folder), Existing::Resume, &Calls::default()) {
                Ok(_) | Err(SinkError::AlreadyComplete(_)) => {}
                // It did not begin.
                Err(SinkError::OtherRun(_)) if existing == Existing::Overwrite => {
                    job.finish(&mut *self.sink(&folder), existing, &Calls::default()).unwrap();
                }
                Err(error) => panic!("{at}: {error}"),
            }
            same(&snapshot(&calm), &snapshot(&folder), &at);
            if is_over {
                break;
            }
        }
    }

    /// Another writer replaces the manifest, or creates it, just before this one does.
    fn a_commit_that_comes_too_late_is_refused(&self) {
        let (job, mut other) = (SampleRun::new(), SampleRun::new());
        other.manifest.info.insert("version".into(), "0.2.0".into());
        let folder = self.folder("rival");
        self.complete(&folder, &other, &Calls::default());
        let rival = snapshot(&folder).remove(Path::new("x/_manifest.json"));
        for existing in [Existing::Resume, Existing::Overwrite] {
            let folder = self.folder(&format!("late-{existing:?}"));
            if existing == Existing::Overwrite {
                self.complete(&folder, &job, &Calls::default());
            }
            let options = self.options(&folder);
            let prefix = FolderPrefix { rival: rival.clone(), ..FolderPrefix::new(&options.output) };
            let options = SinkOptions { prefix: Some(Arc::new(prefix)), ..options };
            let late = job.finish(&mut *(self.subject.open)(&options), existing, &Calls::default());
            assert!(matches!(late, Err(SinkError::Replaced(_))), "{existing:?}: {late:?}");
            let found = snapshot(&folder);
            assert_eq!(found.get(Path::new("x/_manifest.json")), rival.as_ref(), "the first writer's stays");
            assert!(!found.keys().any(|path| path.ends_with(PLAN)), "readers need not wait");
            job.finish(&mut *self.sink(&folder), Existing::Overwrite, &Calls::default()).unwrap();
        }
    }

    fn shards_share_a_folder(&self) {
        let folder = self.folder("shards");
        let whole = SampleRun::new();
        let cut = 11;
        let halves = [(0, &whole.outcomes[..cut]), (cut as u64, &whole.outcomes[cut..])];
        let mut stored = Vec::new();
        for (shard, (first, outcomes)) in (0..).zip(halves) {
            let job = SampleRun { first, outcomes: outcomes.to_vec(), ..SampleRun::new() };
            let options = SinkOptions { shard: Some((shard, 2)), first_index: first, ..self.options(&folder) };
            let mut sink = (self.subject.open)(&options);
            assert_eq!(sink.begin(&job.manifest, Existing::Resume).unwrap(), Watermark::from(first));
            drop(sink);
            let published =
                job.finish(&mut *(self.subject.open)(&options), Existing::Resume, &Calls::default()).unwrap();
            self.check(&job, &published, &job.rows());
            stored.extend((self.subject.read)(&published));
            let named = |file: &PathBuf| file.to_string_lossy().contains(&format!("-0000{shard}-of-00002"));
            assert!(published.files.iter().all(named), "{:?}", published.files);
        }
        assert_eq!(stored, whole.rows());
    }

    fn impossible_places_are_explained(&self) {
        let folder = self.folder("places");
        let begin = |output: PathBuf| {
            let options = SinkOptions { output, ..self.options(&folder) };
            error_chain(&(self.subject.open)(&options).begin(&SampleRun::new().manifest, Existing::Resume).unwrap_err())
        };
        match self.layout {
            Layout::File => {
                fs::write(folder.join("file"), "").unwrap();
                assert!(begin(folder.join(format!("file/x.{}", self.subject.extension))).contains("is not a folder"));
                fs::remove_file(folder.join("file")).unwrap();
                let taken = folder.join(format!("taken.{}", self.subject.extension));
                fs::create_dir(&taken).unwrap();
                assert!(begin(taken).contains("it is a folder"));
            }
            Layout::Folder => {
                fs::write(folder.join("taken"), "").unwrap();
                assert!(begin(folder.join("taken")).contains("it is a file"));
                fs::remove_file(folder.join("taken")).unwrap();
            }
        }
        assert!(snapshot(&folder).is_empty(), "nothing was made");
    }
}
