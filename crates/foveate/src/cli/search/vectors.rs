//! Vectors as files hold them: outputs of foveate, and Parquet and NumPy files of other programs.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use foveate::embed::{Backends, EmbedOptions, store_address};
use foveate::search::{Metric, Vectors};
use foveate::sink::{OutputManifest, StoredRun};
use foveate_sink_npy::read_array;
use foveate_sink_parquet::{VectorColumns, read_vectors};

use crate::cli::exit::Usage;
use crate::cli::search_args::SearchArgs;
use crate::cli::{console, inspect, merge};

/// The commands in their messages.
pub(in crate::cli) const SEARCH: &str = "search";

/// Vectors in memory.
#[derive(Default)]
pub(super) struct Loaded {
    pub(super) ids: Vec<Box<str>>,
    /// `[n, dim]`
    pub(super) vectors: Vec<f32>,
    pub(super) dim: usize,
    /// XXH3-64 of the images' files; 0 if it is not known.
    pub(super) hashes: Vec<u64>,
    /// Width and height of the images; 0 if they are not known.
    pub(super) sizes: Vec<(u32, u32)>,
    /// How they were made, if that is known.
    pub(super) manifest: Option<OutputManifest>,
}

/// Where vectors are.
enum Input {
    /// An output of foveate, with a name for messages.
    Ours(String, Box<StoredRun>),
    /// A file of another program.
    Foreign(PathBuf),
}

/// Reads `args.inputs`, and `others` if there are any. All are of the same model and settings, as far as that is known.
pub(super) fn load(args: &SearchArgs, others: &[PathBuf]) -> anyhow::Result<(Loaded, Option<Loaded>)> {
    let backends = Backends::compiled();
    let (ours, theirs) = (find(args, &args.inputs, &backends)?, find(args, others, &backends)?);
    check(ours.iter().chain(&theirs))?;
    let loaded = Loaded::read(args, ours, &backends)?;
    let others = if theirs.is_empty() { None } else { Some(Loaded::read(args, theirs, &backends)?) };
    if let Some(others) = &others
        && !others.ids.is_empty()
        && !loaded.ids.is_empty()
        && others.dim != loaded.dim
    {
        let (a, b) = (loaded.dim, others.dim);
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
    check(found.iter())?;
    Loaded::read(args, found, &backends)
}

fn find(args: &SearchArgs, inputs: &[PathBuf], backends: &Backends) -> anyhow::Result<Vec<Input>> {
    let store_settings = args.store_option.iter().cloned().collect();
    let options = EmbedOptions { store_settings, ..EmbedOptions::new(Vec::new(), "", "") };
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
        let Some(reader) = backends.sink_of_extension(&path).filter(|_| path.is_file()).and_then(|sink| sink.reader())
        else {
            continue;
        };
        if input.is_dir() && !stored(&path)?.is_empty() {
            return Ok(Vec::new());
        }
        // A copy of one of our files says what it is.
        let ours = StoredRun::alone(&path, reader).map_err(inspect::remedied)?;
        let is_table = has_extension(&path, "parquet") || has_extension(&path, "npy");
        match ours {
            Some(run) => found.push(Input::Ours(path.display().to_string(), Box::new(run))),
            None if is_table => found.push(Input::Foreign(path)),
            None => {}
        }
    }
    Ok(found)
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found.eq_ignore_ascii_case(extension))
}

/// Checks that all that is known to be of foveate has the same model and settings.
fn check<'a>(inputs: impl Iterator<Item = &'a Input>) -> anyhow::Result<()> {
    let ours = inputs.filter_map(|input| match input {
        Input::Ours(name, run) => Some((name.clone(), run.as_ref())),
        Input::Foreign(_) => None,
    });
    let (names, runs): (Vec<_>, Vec<_>) = ours.unzip();
    Ok(merge::check_same_job(&names, &runs, SEARCH)?)
}

impl Loaded {
    fn read(args: &SearchArgs, inputs: Vec<Input>, backends: &Backends) -> anyhow::Result<Self> {
        let mut loaded = Self::default();
        for input in inputs {
            match input {
                Input::Ours(_, run) => loaded.add_run(*run, backends)?,
                Input::Foreign(path) => loaded.add_foreign(args, &path)?,
            }
        }
        Ok(loaded)
    }

    fn add_run(&mut self, mut run: StoredRun, backends: &Backends) -> anyhow::Result<()> {
        let reader = inspect::reader(&run, backends)?;
        self.vectors.reserve_exact(run.manifest.rows as usize * run.manifest.dim);
        let (manifest, mut other) = (run.manifest.clone(), None);
        let rows = run.rows(reader, &mut |row| {
            if !self.add(row.id, row.vector) {
                other = Some(row.vector.len());
            }
            self.hashes.push(row.xxh3);
            self.sizes.push((row.width, row.height));
            Ok(())
        });
        rows.map_err(inspect::remedied)?;
        self.manifest.get_or_insert(manifest);
        self.of_one_width(other, "an output of foveate")
    }

    fn add_foreign(&mut self, args: &SearchArgs, path: &Path) -> anyhow::Result<()> {
        let (mut other, first) = (None, self.ids.len());
        let mut add = |id: &str, vector: &[f32]| {
            if !self.add(id, vector) {
                other = Some(vector.len());
            }
        };
        let read = if has_extension(path, "parquet") {
            let columns = VectorColumns { vector: args.vector_column.as_deref(), id: args.id_column.as_deref() };
            read_vectors(path, columns, &mut add)
        } else {
            let mut number = first;
            read_array(path, &mut |vector| {
                add(&number.to_string(), vector);
                number += 1;
            })
        };
        read.map_err(|error| match error {
            foveate::sink::SinkError::Unsupported(why) => {
                let remedy = match has_extension(path, "parquet") {
                    true => "--vector-column and --id-column name columns",
                    false => "save it as `numpy.save` saves float32",
                };
                Usage::from(anyhow!("cannot read {}: {why}; {remedy}", path.display())).into()
            }
            error => anyhow!(error).context(format!("cannot read {}", path.display())),
        })?;
        self.hashes.resize(self.ids.len(), 0);
        self.sizes.resize(self.ids.len(), (0, 0));
        self.of_one_width(other, &path.display().to_string())
    }

    /// Adds a row. A missing vector is one that is not finite. Returns false if the vector has another width.
    fn add(&mut self, id: &str, vector: &[f32]) -> bool {
        if self.dim == 0 {
            self.dim = vector.len();
            self.vectors.extend(std::iter::repeat_n(f32::NAN, self.ids.len() * self.dim));
        }
        self.ids.push(id.into());
        if vector.is_empty() {
            self.vectors.extend(std::iter::repeat_n(f32::NAN, self.dim));
        } else if vector.len() == self.dim {
            self.vectors.extend_from_slice(vector);
        } else {
            return false;
        }
        true
    }

    fn of_one_width(&self, other: Option<usize>, name: &str) -> anyhow::Result<()> {
        let Some(other) = other else { return Ok(()) };
        let why = format!("{name} has vectors of {other} dimensions, and those before have {}", self.dim);
        Err(Usage::from(anyhow!("cannot search: {why}; search vectors of one model")).into())
    }

    pub(super) fn vectors(&self, metric: impl Into<Metric>) -> anyhow::Result<Vectors<'_>> {
        // Without a row, there is no width.
        Ok(Vectors::new(&self.vectors, self.dim.max(1), metric.into())?)
    }

    /// Of each file that is there more than once, the first row, and the others.
    pub(super) fn copies(&self) -> BTreeMap<u32, Vec<u32>> {
        let (mut copies, mut firsts) = (BTreeMap::<_, Vec<_>>::new(), HashMap::new());
        for (row, hash) in (0..).zip(&self.hashes).filter(|&(_, &hash)| hash != 0) {
            let first = *firsts.entry(hash).or_insert(row);
            if first != row {
                copies.entry(first).or_default().push(row);
            }
        }
        copies
    }

    /// Says whose model is not known, if any is.
    pub(super) fn tell(&self, args: &SearchArgs) {
        if self.manifest.is_none() && !args.quiet && !self.ids.is_empty() {
            console::say!("note: these vectors do not say what made them; compare only those of one model");
        }
    }
}
