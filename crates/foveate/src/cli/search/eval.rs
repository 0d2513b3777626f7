//! `foveate eval`.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use anyhow::anyhow;
#[cfg(feature = "text")]
use foveate::pipeline::Cancel;
use foveate::search::{Figure, Metric, Vectors, difference};
use serde_json::{Value, json};

#[cfg(feature = "text")]
use super::query_texts::QueryEmbedder;
use super::vectors::{Loaded, load_alone};
use super::{begin, unless_cancelled, with_search};
use crate::cli::console;
use crate::cli::exit::{Exit, Usage};
use crate::cli::labels::Labels;
use crate::cli::search_args::{EvalArgs, LabelArgs};
#[cfg(feature = "text")]
use crate::cli::texts::{TextTable, is_table};

/// Most neighbours of a row that count for mAP@R.
const MOST: usize = 1000;

/// An output's vectors of the rows that are evaluated, in the order of their ids in the first output.
struct Side {
    name: String,
    /// `[n, dim]`
    vectors: Vec<f32>,
    dim: usize,
}

/// What was measured of an output, by name.
type Figures = Vec<(&'static str, Figure)>;

pub(crate) fn eval(args: &EvalArgs) -> anyhow::Result<Exit> {
    let cancel = begin()?;
    let LabelArgs { labels, label_column } = &args.labels;
    #[cfg(feature = "text")]
    if let Some(path) = &args.captions {
        return captions(args, path, &cancel);
    }
    if labels.is_none() && label_column.is_none() {
        let why = "no labels; --labels names a file, --label-column a column, or --captions a file of texts";
        return Err(Usage::from(anyhow!(why)).into());
    }
    let labels = labels.as_deref().map(|path| Labels::read_column(path, label_column.as_deref())).transpose()?;
    let outputs = read_outputs(args)?;
    let first = &outputs[0].1;
    let labels = labels.or_else(|| first.own_labels(&args.labels));
    let Some(labels) = labels else { unreachable!("a file or a column is named") };
    labels.tell(first.ids.iter().map(AsRef::as_ref))?;
    let (names, sides) = common(&outputs, &labels);
    if names.is_empty() {
        return Err(Usage::from(anyhow!("no image that all outputs have has a label; embed the same images")).into());
    }
    drop(outputs);
    let mut numbers = HashMap::new();
    let mut of_rows = Vec::with_capacity(names.len());
    for name in &names {
        let next = numbers.len() as u32;
        of_rows.push(Some(*numbers.entry(name).or_insert(next)));
    }
    let mut evaluations = Vec::new();
    let mut counts = Vec::new();
    for side in &sides {
        let vectors = Vectors::new(&side.vectors, side.dim, Metric::Cosine)?;
        let found = with_search(&args.search, &cancel, None, |search| search.evaluate(&vectors, &of_rows, MOST));
        let Some(found) = unless_cancelled(found)? else { return Ok(Exit::Interrupted) };
        counts.push(json!({"labelled": names.len(), "classes": found.classes, "rows": found.recall_1.rows}));
        evaluations.push(found.figures().map(|(name, figure)| (name, figure.clone())).to_vec());
    }
    let told = format!(
        "{} labelled images{}, {} of them with a label that is there twice, {} labels",
        names.len(),
        if sides.len() > 1 { " in all outputs" } else { "" },
        counts[0]["rows"],
        counts[0]["classes"],
    );
    tell(args, &sides, &evaluations, &counts, &told)?;
    Ok(Exit::Complete)
}

fn read_outputs(args: &EvalArgs) -> anyhow::Result<Vec<(String, Loaded)>> {
    let search = args.search.with(&args.labels);
    let mut outputs = Vec::new();
    for input in &args.search.inputs {
        outputs.push((input.display().to_string(), load_alone(&search, input)?));
    }
    Ok(outputs)
}

/// Measures how well captions find their images. The texts of each output are embedded by its own model.
#[cfg(feature = "text")]
fn captions(args: &EvalArgs, path: &Path, cancel: &Cancel) -> anyhow::Result<Exit> {
    if !is_table(path) {
        let why = "--captions is a CSV, Parquet or Arrow file with a column of images and one of texts";
        return Err(Usage::from(anyhow!("cannot read {}: {why}", path.display())).into());
    }
    let table = TextTable::read(path, None, None)?;
    let mut texts_of: HashMap<&str, Vec<&str>> = HashMap::new();
    for (id, text) in table.ids.iter().zip(&table.texts) {
        if !text.trim().is_empty() {
            texts_of.entry(id).or_default().push(text);
        }
    }
    // An image's caption is known by the name that the table has for it.
    let labels = Labels::of_column(&path.display().to_string(), texts_of.keys().map(|&id| (id, id)));
    let outputs = read_outputs(args)?;
    labels.tell(outputs[0].1.ids.iter().map(AsRef::as_ref))?;
    let (names, sides) = common(&outputs, &labels);
    let mut texts: Vec<&str> = Vec::new();
    let mut of_texts = Vec::new();
    for (image, name) in (0..).zip(&names) {
        let own = &texts_of[name.as_str()];
        texts.extend(own);
        of_texts.extend(std::iter::repeat_n(image, own.len()));
    }
    if texts.is_empty() {
        return Err(Usage::from(anyhow!("no image that all outputs have has a caption; embed the same images")).into());
    }
    let mut evaluations = Vec::new();
    let counts = vec![json!({"images": names.len(), "captions": texts.len()}); sides.len()];
    for (side, (_, loaded)) in sides.iter().zip(&outputs) {
        let words = QueryEmbedder::open(&args.words, &args.search, loaded)?;
        let Some(embedded) = words.embed(&texts, cancel)? else { return Ok(Exit::Interrupted) };
        let of_captions = Vectors::new(&embedded, side.dim, Metric::Cosine)?;
        let vectors = Vectors::new(&side.vectors, side.dim, Metric::Cosine)?;
        let found =
            with_search(&args.search, cancel, None, |search| search.retrieval(&of_captions, &vectors, &of_texts));
        let Some(found) = unless_cancelled(found)? else { return Ok(Exit::Interrupted) };
        evaluations.push(found);
    }
    tell(args, &sides, &evaluations, &counts, &format!("{} images, {} captions", names.len(), texts.len()))?;
    Ok(Exit::Complete)
}

/// Prints what was measured, and the changes from the first output.
fn tell(args: &EvalArgs, sides: &[Side], evaluations: &[Figures], counts: &[Value], told: &str) -> anyhow::Result<()> {
    if !args.search.json {
        return print(sides, evaluations, told);
    }
    let mut all = Vec::new();
    for (number, (side, found)) in sides.iter().zip(evaluations).enumerate() {
        let mut figures = serde_json::Map::new();
        let mut changes = serde_json::Map::new();
        for ((name, figure), (_, before)) in found.iter().zip(&evaluations[0]) {
            figures.insert((*name).to_owned(), shown(figure));
            changes.insert((*name).to_owned(), shown(&difference(figure, before)));
        }
        let mut object = counts[number].clone();
        object["output"] = side.name.clone().into();
        object["figures"] = figures.into();
        object["changes"] = if number > 0 { changes.into() } else { Value::Null };
        all.push(object);
    }
    console::summary(Value::from(all));
    Ok(())
}

/// The labels of the images that all outputs have, and their vectors.
fn common(outputs: &[(String, Loaded)], labels: &Labels) -> (Vec<String>, Vec<Side>) {
    let places: Vec<HashMap<&str, usize>> =
        outputs.iter().map(|(_, loaded)| loaded.ids.iter().map(AsRef::as_ref).zip(0..).collect()).collect();
    let mut of_rows = Vec::new();
    let mut rows = Vec::new();
    for id in &outputs[0].1.ids {
        let Some(label) = labels.of(id) else { continue };
        let others: Option<Vec<usize>> = places.iter().map(|places| places.get(id.as_ref()).copied()).collect();
        let Some(others) = others else { continue };
        of_rows.push(label.to_owned());
        rows.push(others);
    }
    let mut sides = Vec::new();
    for (number, (name, loaded)) in outputs.iter().enumerate() {
        let vectors = rows.iter().flat_map(|rows| &loaded.vectors[rows[number] * loaded.dim..][..loaded.dim]);
        let name = Path::new(name).file_name().map_or_else(|| name.clone(), |name| name.to_string_lossy().into_owned());
        sides.push(Side { name, vectors: vectors.copied().collect(), dim: loaded.dim.max(1) });
    }
    (of_rows, sides)
}

fn shown(figure: &Figure) -> serde_json::Value {
    json!({"mean": figure.mean, "low": figure.low, "high": figure.high})
}

fn print(sides: &[Side], evaluations: &[Figures], told: &str) -> anyhow::Result<()> {
    let mut out = console::stdout();
    let width = evaluations[0].iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (number, (side, found)) in sides.iter().zip(evaluations).enumerate() {
        writeln!(out, "{}", side.name)?;
        for ((name, figure), (_, before)) in found.iter().zip(&evaluations[0]) {
            write!(out, "  {name:<width$}  {:.3}  ({:.3}–{:.3})", figure.mean, figure.low, figure.high)?;
            if number > 0 {
                let change = difference(figure, before);
                write!(out, "   {:+.3} ({:+.3} to {:+.3})", change.mean, change.low, change.high)?;
            }
            writeln!(out)?;
        }
    }
    let changes = match sides {
        [_] => String::new(),
        [first, ..] => format!("; changes from {}, image by image", first.name),
        [] => String::new(),
    };
    writeln!(out, "\n{told}; 95 % intervals{changes}")?;
    Ok(())
}
