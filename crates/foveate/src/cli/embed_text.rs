//! `foveate embed-text`.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use foveate::core::Stage;
use foveate::embed::{Backends, Settings, StorageSettings};
use foveate::encode::{DType, EncoderOptions};
use foveate::model::OpenOptions;
use foveate::pipeline::Cancel;
use foveate::pipeline::lane::Normalize;
use foveate::sink::{Existing, Failure, Rows, RunManifest, SinkError, VectorSink};
use foveate::source::{FetchError, text_of};
use foveate::texts::TextEmbedder;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::exit::{Exit, Usage};
use super::summary::counted;
use super::tables::{column, column_named, id_column, names_of, open_table};
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

/// Names of a column with texts, in any case.
const TEXT_NAMES: [&str; 7] = ["text", "texts", "caption", "title", "query", "prompt", "sentence"];
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

    /// Precision of the forward: f32, bf16 or i8.
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

/// Texts with their ids, in the order of the input.
#[derive(Default)]
struct TextTable {
    ids: Vec<String>,
    texts: Vec<String>,
}

pub(crate) fn run(args: &EmbedTextArgs) -> anyhow::Result<Exit> {
    let started = Instant::now();
    let cancel = Cancel::default();
    job::cancel_on_signal(&cancel)?;
    let table = read(args).with_context(|| format!("cannot read {}", args.input.display()))?;
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
    let options = EncoderOptions { dtype: args.dtype, threads, ..EncoderOptions::default() };
    let mut embedder = TextEmbedder::open(&args.model, &options, &hub)?;
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
        truncated += table.store(next..end, has_columns, &mut embedder, args.normalize, sink.as_mut())?;
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
                "warning: {} without a word; the failures file has the lines",
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
    /// A digest of all ids and texts.
    fn hash(&self) -> String {
        let mut hash = Xxh3::new();
        for part in self.ids.iter().chain(&self.texts) {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        format!("{:032x}", hash.digest128())
    }

    /// Appends the vectors of some texts, and records the empty ones. Returns the number of those that were cut.
    fn store(
        &self,
        range: std::ops::Range<usize>,
        has_columns: bool,
        embedder: &mut TextEmbedder,
        normalize: Normalize,
        sink: &mut dyn VectorSink,
    ) -> anyhow::Result<u64> {
        let mut index = Vec::new();
        let mut id = Vec::new();
        let mut texts = Vec::new();
        let mut columns = Vec::new();
        let mut failures = Vec::new();
        for at in range {
            let text = &self.texts[at];
            if text.trim().is_empty() {
                failures.push(Failure {
                    index: at as u64,
                    id: self.ids[at].clone(),
                    stage: Stage::Read,
                    reason: "empty text".to_owned(),
                    bytes: Some(text.len() as u64),
                });
                continue;
            }
            index.push(at as u64);
            id.push(self.ids[at].clone());
            columns.push(Box::from([Some(text.clone())]));
            texts.push(text.as_str());
        }
        let embedded = embedder.embed(&texts, normalize)?;
        let none = vec![0; texts.len()];
        let xxh3: Vec<u64> = texts.iter().map(|text| xxh3_64(text.as_bytes())).collect();
        sink.append(&Rows {
            index: &index,
            id: &id,
            vectors: &embedded.vectors,
            width: &none,
            height: &none,
            xxh3: &xxh3,
            columns: if has_columns { &columns } else { &[] },
        })?;
        sink.fail(&failures)?;
        Ok(embedded.truncated.len() as u64)
    }
}

fn read(args: &EmbedTextArgs) -> anyhow::Result<TextTable> {
    let extension = args.input.extension().unwrap_or_default().to_ascii_lowercase();
    if ["csv", "tsv", "parquet", "arrow", "feather"].iter().any(|known| extension == *known) {
        return rows(args);
    }
    if args.column.is_some() || args.id_column.is_some() {
        let why = "--column and --id-column are for CSV, Parquet and Arrow files; this file is read line by line";
        return Err(Usage::from(anyhow::anyhow!(why)).into());
    }
    let bytes = if args.input == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes)?;
        bytes
    } else {
        std::fs::read(&args.input)?
    };
    let text = text_of(&bytes).context("it is neither UTF-8 nor UTF-16; convert it")?;
    let name = args.input.display();
    let mut table = TextTable::default();
    for (number, line) in (1..).zip(text.lines()) {
        table.ids.push(format!("{name}:{number}"));
        table.texts.push(line.to_owned());
    }
    Ok(table)
}

/// Reads a table with a column of texts.
fn rows(args: &EmbedTextArgs) -> anyhow::Result<TextTable> {
    let mut has_ids = false;
    let mut rows = open_table(&args.input, &mut |all| {
        let texts = match &args.column {
            Some(name) => column(all, name)?,
            None => column_named(all, &TEXT_NAMES).ok_or_else(|| {
                let known = TEXT_NAMES.join(", ");
                let all = names_of(all);
                FetchError::NoColumn(format!("--column names the column of texts, called {known}; it has {all}"))
            })?,
        };
        let ids = match &args.id_column {
            Some(name) => Some(column(all, name)?),
            None => id_column(all),
        };
        has_ids = ids.is_some();
        Ok(std::iter::once(texts).chain(ids).collect())
    })?;
    let name = args.input.display();
    let mut table = TextTable::default();
    while rows.advance()? {
        let number = table.texts.len() + 1;
        let id = if has_ids { rows.text(1)? } else { None };
        table.ids.push(id.unwrap_or_else(|| format!("{name}:{number}")));
        table.texts.push(rows.text(0)?.unwrap_or_default());
    }
    Ok(table)
}
