//! Vectors as files hold them: outputs of foveate, and files of other programs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use foveate::embed::{Backends, Settings, decides_texts_and_images, decides_vectors, store_address};
use foveate::search::{Collector, Components, Metric, Vectors};
use foveate::sink::{OutputManifest, RecordedHash, RecordedInputs, RunManifest, Shape, StoredRun, sidecar};
use xxhash_rust::xxh3::xxh3_64;

use crate::cli::exit::Usage;
use crate::cli::foreign::args::IdSource;
use crate::cli::foreign::{may_have_vectors, read_ids, read_vectors};
use crate::cli::labels::Labels;
use crate::cli::search_args::{LabelArgs, SearchArgs};
use crate::cli::side_table::read_side_table;
use crate::cli::summary::counted;
use crate::cli::tables::{column, is_csv};
use crate::cli::{console, inspect, merge};

/// The commands in their messages.
pub(in crate::cli) const SEARCH: &str = "search";

/// Vectors with what is known of their images.
#[derive(Default)]
pub(super) struct Loaded {
    pub(super) ids: Vec<Box<str>>,
    /// `[n, dim]`
    pub(super) vectors: Components,
    pub(super) dim: usize,
    /// XXH3-64 of the images' files; 0 if it is not known.
    pub(super) hashes: Vec<Option<RecordedHash>>,
    /// Width and height of the images; 0 if they are not known.
    pub(super) sizes: Vec<(u32, u32)>,
    /// Inputs of the runs.
    pub(super) records: Vec<RecordedInputs>,
    /// The settings that made them, if known.
    pub(super) manifest: Option<OutputManifest>,
    /// Ids are numbers of other programs' rows, which name no images.
    pub(super) has_numbers: bool,
    /// Values of the columns that the arguments name. The last rows may have none.
    pub(super) columns: BTreeMap<String, Vec<Option<Box<str>>>>,
}

/// File of the ids beside our NumPy arrays.
const IDS: &str = "ids.csv";

/// Place of vectors.
enum Input {
    /// An output of foveate, with a name for messages.
    Ours(String, Box<StoredRun>),
    /// A file of another program.
    Foreign(PathBuf),
}

/// Reads `args.inputs`, and `others` if there are any. All are of the same model and settings, as far as that is known.
/// Very many vectors are in a file beside `output`, or in the system's folder of temporary files.
pub(super) fn load(
    args: &SearchArgs,
    others: &[PathBuf],
    output: Option<&Path>,
    metric: impl Into<Metric>,
) -> anyhow::Result<(Loaded, Option<Loaded>)> {
    // A table's pages, which are large and then cut to size, would leave twice their memory behind.
    foveate::worker::return_large_allocations();
    let folder = output.map_or_else(std::env::temp_dir, |output| {
        let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty() && folder.is_dir());
        folder.unwrap_or(Path::new(".")).to_owned()
    });
    let backends = Backends::compiled();
    let ours = find(args, &args.inputs, &backends)?;
    let theirs = find(args, others, &backends)?;
    check(ours.iter().chain(&theirs), metric.into())?;
    let mut ids = GivenIds::read(args)?;
    let loaded = Loaded::read(args, ours, &backends, &folder, &mut ids)?;
    ids.wanted = None;
    let plain = SearchArgs { columns: Vec::new(), ..args.clone() };
    let others =
        if theirs.is_empty() { None } else { Some(Loaded::read(&plain, theirs, &backends, &folder, &mut ids)?) };
    ids.check_end()?;
    if let Some(others) = &others
        && !others.ids.is_empty()
        && !loaded.ids.is_empty()
        && others.dim != loaded.dim
    {
        let a = loaded.dim;
        let b = others.dim;
        return Err(
            Usage::from(anyhow!("cannot search: vectors of {a} and of {b} dimensions are of two models")).into()
        );
    }
    Ok((loaded, others))
}

/// Reads one of several inputs.
pub(super) fn load_alone(args: &SearchArgs, input: &Path) -> anyhow::Result<Loaded> {
    let backends = Backends::compiled();
    let found = find(args, &[input.to_owned()], &backends)?;
    check(found.iter(), Metric::Cosine)?;
    Loaded::read(args, found, &backends, &std::env::temp_dir(), &mut GivenIds::read(args)?)
}

fn find(args: &SearchArgs, inputs: &[PathBuf], backends: &Backends) -> anyhow::Result<Vec<Input>> {
    let mut options = Settings::new(Vec::new(), "", "");
    options.inputs.store_option = args.store_option.clone();
    let mut found = Vec::new();
    for input in inputs {
        let alone = match store_address(input).is_none() && input.exists() && stored(input)?.is_empty() {
            true => without_manifest(input, backends)?,
            false => Vec::new(),
        };
        if alone.is_empty() {
            let runs = merge::find(input, &options, backends, SEARCH)?.into_iter();
            found.extend(runs.map(|(name, run)| Input::Ours(name, Box::new(run))));
        }
        found.extend(alone);
    }
    Ok(found)
}

fn stored(path: &Path) -> anyhow::Result<Vec<StoredRun>> {
    StoredRun::find(path).map_err(inspect::remedied)
}

/// The tables at a path that have no manifest beside them: itself, or those in a folder, by name. Files of a folder of
/// ours are left to others.
fn without_manifest(input: &Path, backends: &Backends) -> anyhow::Result<Vec<Input>> {
    let mut paths = vec![input.to_owned()];
    if input.is_dir() {
        let entries = fs::read_dir(input).with_context(|| format!("cannot read {}", input.display()))?;
        paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
        paths.retain(|path| path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with(['_', '.'])));
        paths.sort();
    }
    let mut found = Vec::new();
    for path in paths {
        if !path.is_file() {
            continue;
        }
        // A copy of one of our files says what it is.
        if let Some(reader) = backends.sink_of_extension(&path).and_then(|sink| sink.reader()) {
            if input.is_dir() && !stored(&path)?.is_empty() {
                return Ok(Vec::new());
            }
            if let Some(run) = StoredRun::alone(&path, reader).map_err(inspect::remedied)? {
                found.push(Input::Ours(path.display().to_string(), Box::new(run)));
                continue;
            }
        }
        if sidecar(&path, IDS).exists() {
            let why = format!("cannot search {}: {}", path.display(), inspect::missing_records(&path));
            return Err(Usage::from(anyhow!(why)).into());
        }
        // Tables of text in a folder are rather the captions beside its vectors.
        if may_have_vectors(&path) && !(input.is_dir() && is_csv(&path)) {
            found.push(Input::Foreign(path));
        }
    }
    Ok(found)
}

/// Ids that the command line names.
struct GivenIds {
    /// Those of other programs' rows, in their order (`--ids`).
    of_rows: Option<std::vec::IntoIter<String>>,
    /// Those that are searched (`--ids-from`); `None` for all.
    wanted: Option<HashSet<String>>,
}

impl GivenIds {
    fn read(args: &SearchArgs) -> Result<Self, Usage> {
        let read = |paths: &[PathBuf]| -> Result<Option<Vec<String>>, Usage> {
            let ids = paths.iter().map(|path| read_ids(path, None)).collect::<Result<Vec<_>, _>>()?;
            Ok((!paths.is_empty()).then(|| ids.concat()))
        };
        let wanted = read(&args.ids_from)?.map(HashSet::from_iter);
        Ok(Self { of_rows: read(&args.foreign.ids)?.map(Vec::into_iter), wanted })
    }

    fn check_end(&self) -> Result<(), Usage> {
        match self.of_rows.as_ref().map(|ids| ids.len()) {
            None | Some(0) => Ok(()),
            Some(more) => {
                Err(anyhow!("--ids has {more} more ids than there are rows; name the ids of these vectors").into())
            }
        }
    }
}

/// Checks that all that is known to be of foveate has the same model and settings. A cosine is that of vectors of any
/// length.
fn check<'a>(inputs: impl Iterator<Item = &'a Input>, metric: Metric) -> anyhow::Result<()> {
    let ours = inputs.filter_map(|input| match input {
        Input::Ours(name, run) => Some((name.clone(), run.as_ref())),
        Input::Foreign(_) => None,
    });
    let (names, runs): (Vec<_>, Vec<_>) = ours.unzip();
    let texts = runs.iter().filter(|run| run.manifest.fingerprint.contains_key(RunManifest::TEXTS)).count();
    let is_mixed = texts > 0 && texts < runs.len();
    // Lengths do not change a cosine, and other kernels only the last bits.
    Ok(merge::check_same_job(&names, &runs, SEARCH, |name| {
        let is_length = metric == Metric::Cosine && name == "normalize";
        let decides = if is_mixed { decides_texts_and_images(name) } else { decides_vectors(name) };
        decides && !is_length && ![RunManifest::KERNELS, RunManifest::PIXELS].contains(&name)
    })?)
}

/// Most bytes of vectors in memory. More are in a file.
const MOST: usize = 1 << 30;

/// Vectors that are being read.
struct Reading<'a> {
    args: &'a SearchArgs,
    loaded: Loaded,
    vectors: Collector,
    /// The width of a vector that has another one than those before.
    other: Option<usize>,
    /// The reason that vectors cannot be kept.
    fault: Option<io::Error>,
    /// Other programs' rows so far.
    numbered: u64,
    ids: &'a mut GivenIds,
}

impl<'a> Reading<'a> {
    fn new(args: &'a SearchArgs, folder: &Path, ids: &'a mut GivenIds) -> Self {
        let vectors = Collector::new(folder, MOST);
        Self { args, loaded: Loaded::default(), vectors, other: None, fault: None, numbered: 0, ids }
    }

    fn is_wanted(&self, id: &str) -> bool {
        self.ids.wanted.as_ref().is_none_or(|wanted| wanted.contains(id))
    }

    fn add_run(&mut self, run: StoredRun, backends: &Backends) -> anyhow::Result<()> {
        let reader = inspect::reader(&run, backends)?;
        self.loaded.manifest.get_or_insert(run.manifest.clone());
        self.loaded.records.extend(run.inputs().ok().flatten());
        let has = Shape::of(&run.manifest)?.columns;
        let mut places = Vec::new();
        let wanted = if self.args.all_columns { has.clone() } else { self.args.columns.clone() };
        for name in &wanted {
            let place = has.iter().position(|column| column == name);
            let known = if has.is_empty() { "none".to_owned() } else { has.join(", ") };
            places.push(place.ok_or_else(|| {
                Usage::from(anyhow!(
                    "the vectors carry no column '{name}' along; they carry {known} (`merge --join` adds)"
                ))
            })?);
        }
        let rows = run.recorded_rows(reader, &mut |record, row| {
            if !self.is_wanted(row.id) {
                return Ok(());
            }
            self.add(row.id, row.vector);
            self.loaded.hashes.push(record.hash());
            self.loaded.sizes.push((row.width, row.height));
            for (name, &place) in wanted.iter().zip(&places) {
                let values = self.loaded.columns.entry(name.clone()).or_default();
                // An output before this one may be without the column.
                values.resize(self.loaded.ids.len() - 1, None);
                values.push(row.columns[place].as_deref().map(Box::from));
            }
            Ok(())
        });
        rows.map_err(inspect::remedied)
    }

    fn add_foreign(&mut self, path: &Path) -> anyhow::Result<()> {
        let args = self.args;
        let source = read_vectors(path, &args.foreign, &mut |own, vector| {
            self.numbered += 1;
            let id = if let Some(ids) = &mut self.ids.of_rows {
                ids.next().ok_or_else(|| {
                    Usage::from(anyhow!("--ids has fewer ids than there are rows; name the ids of these vectors"))
                })?
            } else {
                own.map_or_else(|| (self.numbered - 1).to_string(), str::to_owned)
            };
            if self.is_wanted(&id) {
                self.add(&id, vector);
            }
            Ok(())
        })?;
        self.loaded.has_numbers |= matches!(source, IdSource::Numbers(_));
        if !args.quiet {
            console::say!("note: {}: {source}", path.display());
        }
        for name in &args.columns {
            let key = args.foreign.id_column.as_deref();
            let table = read_side_table(path, key, "read columns of", &mut |all| Ok(vec![column(all, name)?]))?;
            let values = self.loaded.columns.entry(name.clone()).or_default();
            for id in &self.loaded.ids[values.len()..] {
                values.push(table.row(id).and_then(|(_, row)| row[0].as_deref().map(Box::from)));
            }
        }
        self.loaded.hashes.resize(self.loaded.ids.len(), None);
        self.loaded.sizes.resize(self.loaded.ids.len(), (0, 0));
        Ok(())
    }

    /// Adds a row. A missing vector is one that is not finite.
    fn add(&mut self, id: &str, vector: &[f32]) {
        let mut extend = |components: &[f32]| {
            if let Err(error) = self.vectors.extend(components) {
                self.fault.get_or_insert(error);
            }
        };
        if self.loaded.dim == 0 {
            self.loaded.dim = vector.len();
            self.loaded.ids.iter().for_each(|_| extend(&vec![f32::NAN; vector.len()]));
        }
        self.loaded.ids.push(id.into());
        match vector.len() {
            0 => extend(&vec![f32::NAN; self.loaded.dim]),
            width if width == self.loaded.dim => extend(vector),
            width => self.other = Some(width),
        }
    }

    /// Checks what was added last.
    fn check(&self, name: &str) -> anyhow::Result<()> {
        let Some(other) = self.other else { return Ok(()) };
        let why = format!("{name} has vectors of {other} dimensions, and those before have {}", self.loaded.dim);
        Err(Usage::from(anyhow!("cannot search: {why}; search vectors of one model")).into())
    }

    fn finish(self, folder: &Path) -> anyhow::Result<Loaded> {
        if let Some(id) = twice(&self.loaded.ids) {
            let remedy = "name each output once; `foveate merge` keeps one row of each id";
            return Err(Usage::from(anyhow!("cannot search: there are two rows with the id '{id}'; {remedy}")).into());
        }
        if let Some(wanted) = &self.ids.wanted {
            let found = self.loaded.ids.len();
            let of = counted(wanted.len() as u64, "id");
            if found == 0 && !wanted.is_empty() {
                let one = wanted.iter().min().map_or("", String::as_str);
                let why = format!("none of the {of} in --ids-from is there, such as '{one}'; name whole ids");
                return Err(Usage::from(anyhow!("cannot search: {why}")).into());
            }
            if found < wanted.len() {
                console::say!("warning: {} of {of} in --ids-from are not there", wanted.len() - found);
            }
        }
        let fault = self.fault.map_or(Ok(()), Err);
        let vectors = fault
            .and_then(|()| self.vectors.finish())
            .with_context(|| format!("cannot keep the vectors in a file in {}; make room there", folder.display()))?;
        Ok(Loaded { vectors, ..self.loaded })
    }
}

/// An id that is there twice.
fn twice(ids: &[Box<str>]) -> Option<&str> {
    let mut hashes: Vec<u64> = ids.iter().map(|id| xxh3_64(id.as_bytes())).collect();
    hashes.sort_unstable();
    let hash = hashes.windows(2).find(|pair| pair[0] == pair[1])?[0];
    ids.iter().find(|id| xxh3_64(id.as_bytes()) == hash).map(AsRef::as_ref)
}

impl Loaded {
    fn read(
        args: &SearchArgs,
        inputs: Vec<Input>,
        backends: &Backends,
        folder: &Path,
        ids: &mut GivenIds,
    ) -> anyhow::Result<Self> {
        let mut reading = Reading::new(args, folder, ids);
        for input in inputs {
            match input {
                Input::Ours(name, run) => {
                    reading.add_run(*run, backends)?;
                    reading.check(&name)?;
                }
                Input::Foreign(path) => {
                    reading.add_foreign(&path)?;
                    reading.check(&path.display().to_string())?;
                }
            }
        }
        reading.finish(folder)
    }

    pub(super) fn vectors(&self, metric: impl Into<Metric>) -> anyhow::Result<Vectors<'_>> {
        // Without a row, there is no width.
        Ok(Vectors::new(&self.vectors, self.dim.max(1), metric.into())?)
    }

    /// Of each file that is there more than once, the first row, and the others.
    pub(super) fn copies(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut copies = BTreeMap::<_, Vec<_>>::new();
        let mut firsts = HashMap::new();
        for (row, hash) in (0..).zip(&self.hashes) {
            let Some(hash @ RecordedHash::Content(_)) = hash else { continue };
            let first = *firsts.entry(hash).or_insert(row);
            if first != row {
                copies.entry(first).or_default().push(row);
            }
        }
        copies
    }

    /// The labels of a page: those of a file, which were read before, or of a column.
    ///
    /// # Errors
    /// Usage if no image has one.
    pub(super) fn page_labels(&self, read: Option<Labels>, args: &LabelArgs) -> Result<Option<Labels>, Usage> {
        let labels = read.or_else(|| self.own_labels(args));
        if let Some(labels) = &labels {
            labels.tell(self.ids.iter().map(AsRef::as_ref))?;
        }
        Ok(labels)
    }

    /// The labels in a column of these vectors, if the arguments name one.
    pub(super) fn own_labels(&self, args: &LabelArgs) -> Option<Labels> {
        let name = args.label_column.as_ref().filter(|_| args.labels.is_none())?;
        let values = self.columns.get(name).into_iter().flatten();
        let rows = self.ids.iter().zip(values).filter_map(|(id, value)| Some((&**id, value.as_deref()?)));
        Some(Labels::of_column(name, rows))
    }

    /// Pixels of an image; 0 if they are not known.
    pub(super) fn area(&self, row: u32) -> u64 {
        let (width, height) = self.sizes[row as usize];
        u64::from(width) * u64::from(height)
    }

    /// Says whose model is not known, if any is.
    pub(super) fn tell(&self, args: &SearchArgs) {
        if self.manifest.is_none() && !args.quiet && !self.ids.is_empty() {
            console::say!("note: these vectors do not say what made them; compare only those of one model");
        }
    }
}
