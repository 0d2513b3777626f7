//! `foveate similar`.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use anyhow::anyhow;
use foveate::Embedder;
use foveate::collect::MemorySink;
use foveate::embed::{Backends, Settings};
#[cfg(feature = "text")]
use foveate::encode::DType;
#[cfg(feature = "text")]
use foveate::pipeline::lane::Normalize;
use foveate::pipeline::{Cancel, Progress};
use foveate::search::{Neighbors, Vectors};
use foveate::source::Input;
use foveate_sink_parquet::Column;
use serde_json::json;

use super::model::{comparable, model_name, not_open, open_options};
use super::place::SIMILAR;
#[cfg(feature = "text")]
use super::query_texts::{QueryEmbedder, direction};
use super::sheet::{Card, PictureInputs, Row, Sheet, begin_sheet, pictures};
use super::table::Table;
use super::vectors::{Loaded, load};
use super::{begin, unless_cancelled, with_search};
use crate::cli::exit::{Exit, Usage};
use crate::cli::search_args::SimilarArgs;
#[cfg(feature = "text")]
use crate::cli::search_args::WordsArgs;
#[cfg(feature = "text")]
use crate::cli::texts::TextTable;
use crate::cli::{console, job, progress};

/// A vector without a larger component points nowhere.
#[cfg(feature = "text")]
const LEAST_COMPONENT: f32 = 1e-5;

/// Images to search for.
#[derive(Default)]
struct Queries {
    ids: Vec<String>,
    /// The row of those that are among the vectors.
    rows: Vec<Option<u32>>,
    /// `[n, dim]`
    vectors: Vec<f32>,
    /// True if an image has no vector.
    is_short: bool,
    /// The queries behind the images.
    texts: usize,
}

/// An image that was found: its row and the score.
type Found = Vec<(u32, f64)>;

pub(crate) fn similar(args: &SimilarArgs) -> anyhow::Result<Exit> {
    let labels = begin_sheet(&args.search, &args.sheet, !args.query.is_empty())?;
    let (loaded, _) = load(&args.search.with(&args.sheet.labels), &[], args.output.as_deref(), args.metric)?;
    let labels = loaded.page_labels(labels, &args.sheet.labels)?;
    let cancel = begin()?;
    loaded.tell(&args.search);
    let mut queries = Queries::default();
    queries.add_rows(args, &loaded)?;
    if !args.query.is_empty() && !queries.add_images(args, &loaded, &cancel)? {
        return Ok(Exit::Interrupted);
    }
    #[cfg(feature = "text")]
    if !queries.add_texts(args, &loaded, &cancel)? {
        return Ok(Exit::Interrupted);
    }
    let vectors = loaded.vectors(args.metric)?;
    let asked = Vectors::new(&queries.vectors, loaded.dim.max(1), args.metric.into())?;
    // An image of the collection is not its own neighbour.
    let k = args.k as usize + usize::from(!args.id.is_empty());
    let found = with_search(&args.search, &cancel, None, |search| search.nearest(&asked, &vectors, k));
    let Some(found) = unless_cancelled(found)? else { return Ok(Exit::Interrupted) };
    let found = queries.found(&found, args.k as usize);
    tell(args, &loaded, &queries, &found)?;
    if let Some(path) = &args.sheet.page.html {
        let sheet = sheet(args, &loaded, &queries, &found);
        let manifest = loaded.manifest.as_ref();
        let inputs = PictureInputs { images: &args.sheet.page.images, manifest, others: &args.query };
        let found = pictures(&args.search, &inputs, &cancel, &sheet.ids())?;
        if cancel.is_cancelled() {
            return Ok(Exit::Interrupted);
        }
        sheet.write(args.replace.file(path), &found, labels.as_ref())?;
    }
    Ok(if queries.is_short { Exit::Failures } else { Exit::Complete })
}

impl Queries {
    /// Adds rows of the collection.
    fn add_rows(&mut self, args: &SimilarArgs, loaded: &Loaded) -> anyhow::Result<()> {
        if args.id.is_empty() {
            return Ok(());
        }
        let rows: HashMap<&str, u32> = loaded.ids.iter().map(AsRef::as_ref).zip(0..).collect();
        for id in &args.id {
            let row = row_of(id, &rows)?;
            self.ids.push(loaded.ids[row as usize].to_string());
            self.rows.push(Some(row));
            self.vectors.extend(&loaded.vectors[row as usize * loaded.dim..][..loaded.dim]);
        }
        Ok(())
    }

    /// Embeds images, and adds their vectors. Returns false if that was interrupted.
    fn add_images(&mut self, args: &SimilarArgs, loaded: &Loaded, cancel: &Cancel) -> anyhow::Result<bool> {
        let backends = Arc::new(Backends::compiled());
        let inputs = args.query.iter().cloned().map(Input::Path).collect();
        let name = model_name(args.model.as_deref(), loaded)?;
        let mut options = match &loaded.manifest {
            Some(manifest) => Settings::like(&manifest.fingerprint, inputs, &backends),
            None => Settings::new(inputs, &name, ""),
        };
        options.inputs.web = args.search.web.clone();
        options.inputs.store_option = args.search.store_option.clone();
        options.model.network.model = name.clone();
        options.engine.threads = args.search.threads;
        let listing = job::list(&options, |_| ())?;
        let download = progress::Download::new(args.search.quiet);
        let opened = Embedder::open(&options, &backends, &open_options(args.model.as_deref(), &download));
        let mut embedder = opened.map_err(|error| not_open(args.model.as_deref(), &name, error.into()))?;
        download.clear();
        comparable(embedder.manifest(), &name, loaded)?;
        let sink = MemorySink::default();
        let run = embedder.run(Box::new(listing), Box::new(sink.clone()), cancel, &Progress::default())?;
        if !run.is_complete() {
            return Ok(false);
        }
        let collected = sink.take();
        for failure in &collected.failures {
            console::say!("warning: {} is no query: {}: {}", failure.id, failure.stage, failure.reason);
        }
        self.is_short = !collected.failures.is_empty();
        for row in collected.rows {
            self.ids.push(row.id);
            self.rows.push(None);
            self.vectors.extend(row.vector);
        }
        Ok(true)
    }

    /// Embeds texts, and adds their vectors: those of the command line, then those of files. With `--minus`, each less
    /// the direction of these. Returns false if that was interrupted.
    #[cfg(feature = "text")]
    fn add_texts(&mut self, args: &SimilarArgs, loaded: &Loaded, cancel: &Cancel) -> anyhow::Result<bool> {
        let mut texts = args.text.clone();
        for path in &args.texts {
            texts.extend(TextTable::read(path, None, None)?.texts);
        }
        if texts.is_empty() {
            return match args.minus.as_slice() {
                [] => Ok(true),
                _ => Err(Usage::from(anyhow!("--minus is taken from texts; name them with --text or --texts")).into()),
            };
        }
        let tower = WordsArgs { model: args.model.clone(), device: "cpu".to_owned(), dtype: DType::F32 };
        let words = QueryEmbedder::open(&tower, &args.search, loaded)?;
        let Some(mut vectors) = words.embed(&texts, cancel)? else { return Ok(false) };
        let Some(minus) = words.embed(&args.minus, cancel)? else { return Ok(false) };
        self.texts = texts.len();
        if args.minus.is_empty() {
            self.ids.extend(texts);
        } else {
            let less = direction(&minus, loaded.dim);
            for (text, vector) in texts.iter().zip(vectors.chunks_exact_mut(loaded.dim)) {
                Normalize::L2.apply(vector, loaded.dim);
                vector.iter_mut().zip(&less).for_each(|(x, less)| *x -= less);
                if vector.iter().all(|x| x.abs() < LEAST_COMPONENT) {
                    let minus = args.minus.join("' and '");
                    return Err(Usage::from(anyhow!("'{text}' less '{minus}' leaves nothing; name other words")).into());
                }
                self.ids.push(format!("{text} − {}", args.minus.join(" − ")));
            }
        }
        self.rows.resize(self.ids.len(), None);
        self.vectors.extend(vectors);
        Ok(true)
    }

    /// The neighbours of each query, without itself.
    fn found(&self, found: &Neighbors, k: usize) -> Vec<Found> {
        let mut others = Vec::new();
        for (query, own) in self.rows.iter().enumerate() {
            others.push(found.of(query).filter(|&(row, _)| Some(row) != *own).take(k).collect());
        }
        others
    }
}

/// The row with an id, or the only one whose id ends so after a slash.
fn row_of(id: &str, rows: &HashMap<&str, u32>) -> Result<u32, Usage> {
    if let Some(&row) = rows.get(id) {
        return Ok(row);
    }
    let mut ends = Vec::new();
    for &known in rows.keys() {
        if known.strip_suffix(id).is_some_and(|before| before.ends_with(['/', '\\'])) {
            ends.push(known);
        }
    }
    ends.sort_unstable();
    if let [one] = ends.as_slice() {
        return Ok(rows[one]);
    }
    // Without an end, ids with the name that was meant.
    let name = id.rsplit(['/', '\\']).next().unwrap_or(id).to_lowercase();
    if ends.is_empty() && !name.is_empty() {
        ends.extend(rows.keys().copied().filter(|of| of.to_lowercase().contains(&name)));
        ends.sort_unstable();
    }
    ends.truncate(3);
    let hint = match ends.is_empty() {
        true => "--query embeds an image".to_owned(),
        false => format!("did you mean {}?", ends.join(" or ")),
    };
    Err(anyhow!("no vector has the id '{id}'; {hint}").into())
}

fn tell(args: &SimilarArgs, loaded: &Loaded, queries: &Queries, found: &[Found]) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for (query, found) in found.iter().enumerate() {
        for (rank, (row, score)) in (1_u32..).zip(found.clone()) {
            rows.push((query, row as usize, rank, score));
        }
    }
    if let Some(output) = &args.output {
        let mut table = Table::create(args.replace.file(output), &SIMILAR)?;
        table.write(vec![
            Column::Text(rows.iter().map(|&(query, ..)| queries.ids[query].clone()).collect()),
            Column::Text(rows.iter().map(|&(_, row, ..)| loaded.ids[row].to_string()).collect()),
            Column::Count(rows.iter().map(|&(.., rank, _)| rank).collect()),
            Column::Score(rows.iter().map(|&(.., score)| score as f32).collect()),
        ])?;
        return table.finish();
    }
    let mut out = console::stdout();
    if args.search.json {
        let mut all = Vec::new();
        for (id, found) in queries.ids.iter().zip(found) {
            let found = found.iter().map(|&(row, score)| json!({"id": loaded.ids[row as usize], "score": score}));
            all.push(json!({"query": id, "similar": found.collect::<Vec<_>>()}));
        }
        writeln!(out, "{}", serde_json::Value::from(all))?;
        return Ok(());
    }
    for (id, found) in queries.ids.iter().zip(found) {
        writeln!(out, "{id}")?;
        for &(row, score) in found {
            writeln!(out, "  {score:.4}  {}", loaded.ids[row as usize])?;
        }
    }
    Ok(())
}

fn sheet(args: &SimilarArgs, loaded: &Loaded, queries: &Queries, found: &[Found]) -> Sheet {
    let mut rows = Vec::new();
    let images = queries.ids.len() - queries.texts;
    for (query, (id, found)) in queries.ids.iter().zip(found).enumerate() {
        let mut cards = Vec::new();
        if query < images {
            cards.push(Card { id: id.clone(), caption: "query".to_owned(), is_marked: true, ..Card::default() });
        }
        cards.extend(found.iter().map(|&found| Card::scored(loaded, found, false)));
        rows.push(Row { heading: id.clone(), sets: vec![cards] });
    }
    let fitting = super::sheet::MOST / (args.k as usize + 1);
    let lead =
        format!("The {} most similar of {} images, for {} queries.", args.k, loaded.ids.len(), queries.ids.len());
    Sheet { title: "Similar images", lead, rows: rows.into_iter().take(fitting.max(1)).collect() }
}
