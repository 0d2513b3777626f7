//! `foveate embed-text`.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use foveate::core::Stage;
use foveate::embed::{Backends, Settings, StorageSettings};
use foveate::encode::{DType, EncoderOptions};
use foveate::model::OpenOptions;
use foveate::pipeline::Cancel;
use foveate::pipeline::lane::Normalize;
use foveate::sink::{Existing, Failure, Rows, RunManifest, SinkError, VectorSink};
use foveate::texts::TextEmbedder;
use xxhash_rust::xxh3::xxh3_64;

use super::exit::Exit;
use super::summary::counted;
use super::texts::TextTable;
use super::{console, job, progress};
use crate::values::{one_of, parse_positive};

pub(crate) const EXAMPLES: &str = "\
Examples:
  foveate embed-text queries.txt -o queries.parquet --model path/to/siglip
  foveate embed-text a.csv -o a.parquet --column caption --model path/to/clip
  echo 'a red bicycle' | foveate embed-text - -o one.npy --model path/to/clip

A text for each line of a file, or for each row of a CSV, Parquet or Arrow file.
Parquet and Arrow outputs have a column `text`. The same command again continues
an interrupted run. `neighbors --queries` finds the images nearest to each.

Exit codes: 0 complete; 1 stopped by a fault; 2 the command line cannot work;
3 complete, and some texts failed; 130 interrupted.";

/// Texts that are stored together.
const BLOCK: usize = 4096;

/// Arguments of `embed-text` as typed.
#[derive(Args, Debug)]
pub(crate) struct EmbedTextArgs {
    /// A text file with a text in each line, a CSV, Parquet or Arrow file, or `-` for lines of standard input.
    #[arg(value_name = "FILE")]
    pub(crate) input: PathBuf,

    /// The output: `x.parquet`, `x.npy`, `x.arrow`, or a folder.
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: PathBuf,

    /// A model with a text tower: CLIP, SigLIP, PE-Core or TIPSv2.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: String,

    /// The column with the texts of a table. Default: `text`, `caption`, `title` or the like.
    #[arg(long, value_name = "NAME")]
    pub(crate) column: Option<String>,

    /// The column with the ids of a table. Default: `id`, `file` or the like, or else the row's number.
    #[arg(long, value_name = "NAME")]
    pub(crate) id_column: Option<String>,

    /// Device of the forward: `cpu` or `cuda:0`. There is no silent fallback.
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub(crate) device: String,

    /// Precision of the forward: f32, bf16 or i8; on a GPU f32, f16 or bf16.
    #[arg(long, default_value = "f32", value_parser = one_of(&DType::ALL, DType::name))]
    pub(crate) dtype: DType,

    /// Divide each vector by its length.
    #[arg(long, default_value = "off", value_parser = one_of(&Normalize::ALL, Normalize::name))]
    pub(crate) normalize: Normalize,

    /// Threads. Default: all cores.
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    pub(crate) threads: Option<usize>,

    #[command(flatten)]
    pub(crate) storage: StorageSettings,

    /// Start over instead of continuing an existing output.
    #[arg(long)]
    pub(crate) overwrite: bool,

    /// Print errors alone.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

pub(crate) fn run(args: &EmbedTextArgs) -> anyhow::Result<Exit> {
    let started = Instant::now();
    let cancel = Cancel::default();
    job::cancel_on_signal(&cancel)?;
    let table = TextTable::read(&args.input, args.column.as_deref(), args.id_column.as_deref())?;
    let backends = Backends::compiled();
    let settings = settings(args);
    let (backend, mut options) = settings.sink_and_options(&backends)?;
    let has_columns = backend.has_columns();
    if has_columns {
        options.columns = vec!["text".to_owned()];
    }
    let mut sink = backend.open(&options)?;

    let download = progress::Download::new(args.quiet);
    let hub = OpenOptions { progress: &download, ..OpenOptions::from_env() };
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let device = args.device.clone();
    let options = EncoderOptions { dtype: args.dtype, device, threads, ..EncoderOptions::default() };
    let embedder = TextEmbedder::open(&args.model, &options, &hub)?;
    download.clear();
    let mut manifest = embedder.manifest(args.normalize);
    manifest.fingerprint.insert(RunManifest::LISTING.to_owned(), table.hash());
    let existing = if args.overwrite { Existing::Overwrite } else { Existing::Resume };
    let begun = match sink.begin(&manifest, existing) {
        Err(SinkError::AlreadyComplete(done)) => {
            if !args.quiet {
                console::say!("{} is complete already", done.path.display());
            }
            return Ok(Exit::Complete);
        }
        begun => begun?,
    };
    let mut truncated = 0;
    let mut next = begun.index as usize;
    while next < table.texts.len() {
        if cancel.is_cancelled() {
            return Ok(Exit::Interrupted);
        }
        let end = table.texts.len().min(next + BLOCK);
        truncated += table.store(next..end, has_columns, &embedder, args.normalize, sink.as_mut())?;
        sink.commit((end as u64).into())?;
        next = end;
    }
    let published = sink.finish()?;
    if !args.quiet {
        let seconds = started.elapsed().as_secs_f64();
        let rows = counted(published.rows, "text");
        console::say!("{rows} embedded in {seconds:.1} s → {}", args.output.display());
        if truncated > 0 {
            console::say!("warning: {} cut to what the model takes", counted(truncated, "text"));
        }
        if published.failures > 0 {
            console::say!(
                "warning: {} without a vector; the failures file says why",
                counted(published.failures, "text")
            );
        }
    }
    Ok(if published.failures > 0 { Exit::Failures } else { Exit::Complete })
}

/// The settings of the output.
pub(crate) fn settings(args: &EmbedTextArgs) -> Settings {
    let mut settings = Settings::new(Vec::new(), &args.model, &args.output);
    settings.storage = args.storage.clone();
    settings
}

impl TextTable {
    /// Appends the vectors of some texts, and records the empty ones. Returns the number of those that were cut.
    fn store(
        &self,
        range: std::ops::Range<usize>,
        has_columns: bool,
        embedder: &TextEmbedder,
        normalize: Normalize,
        sink: &mut dyn VectorSink,
    ) -> anyhow::Result<u64> {
        let mut failures = Vec::new();
        let mut given = Vec::new();
        for at in range {
            match self.texts[at].trim() {
                "" => failures.push(self.failure(at, Stage::Read, "empty text")),
                _ => given.push(at),
            }
        }
        let texts: Vec<&str> = given.iter().map(|&at| self.texts[at].as_str()).collect();
        let embedded = embedder.embed(&texts, normalize)?;
        let mut index = Vec::new();
        let mut id = Vec::new();
        let mut vectors = Vec::with_capacity(embedded.vectors.len());
        let mut xxh3 = Vec::new();
        let mut columns = Vec::new();
        for (row, &at) in given.iter().enumerate() {
            if embedded.not_finite.contains(&row) {
                let reason = "the vector has a component that is infinite or not a number";
                failures.push(self.failure(at, Stage::Encode, reason));
                continue;
            }
            index.push(at as u64);
            id.push(self.ids[at].clone());
            vectors.extend(&embedded.vectors[row * embedded.dim..][..embedded.dim]);
            xxh3.push(xxh3_64(texts[row].as_bytes()));
            if has_columns {
                columns.push(Box::from([Some(self.texts[at].clone())]));
            }
        }
        failures.sort_by_key(|failure| failure.index);
        let none = vec![0; index.len()];
        sink.append(&Rows {
            index: &index,
            id: &id,
            vectors: &vectors,
            width: &none,
            height: &none,
            xxh3: &xxh3,
            columns: &columns,
        })?;
        sink.fail(&failures)?;
        Ok(embedded.truncated.len() as u64)
    }

    fn failure(&self, at: usize, stage: Stage, reason: &str) -> Failure {
        let bytes = Some(self.texts[at].len() as u64);
        Failure { index: at as u64, id: self.ids[at].clone(), stage, reason: reason.to_owned(), bytes }
    }
}
