//! `foveate eval`.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use anyhow::anyhow;
use foveate::search::{Evaluation, Figure, Metric, Vectors, difference};
use serde_json::json;

use super::vectors::{Loaded, load_alone};
use super::{begin, unless_cancelled, with_search};
use crate::cli::console;
use crate::cli::exit::{Exit, Usage};
use crate::cli::labels::Labels;
use crate::cli::search_args::{EvalArgs, LabelArgs};

/// Most neighbours of a row that count for mAP@R.
const MOST: usize = 1000;

/// An output's vectors of the rows that are evaluated, in the order of their ids in the first output.
struct Side {
    name: String,
    /// `[n, dim]`
    vectors: Vec<f32>,
    dim: usize,
}

pub(crate) fn eval(args: &EvalArgs) -> anyhow::Result<Exit> {
    let cancel = begin()?;
    let LabelArgs { labels, label_column } = &args.labels;
    if labels.is_none() && label_column.is_none() {
        return Err(Usage::from(anyhow!("no labels; --labels names a file, or --label-column a column")).into());
    }
    let labels = labels.as_deref().map(|path| Labels::read_column(path, label_column.as_deref())).transpose()?;
    let search = args.search.with(&args.labels);
    let mut outputs = Vec::new();
    for input in &args.search.inputs {
        outputs.push((input.display().to_string(), load_alone(&search, input)?));
    }
    let first = &outputs[0].1;
    let labels = labels.or_else(|| first.own_labels(&args.labels));
    let Some(labels) = labels else { unreachable!("a file or a column is named") };
    labels.tell(first.ids.iter().map(AsRef::as_ref))?;
    let (labels, sides) = common(&outputs, &labels);
    let labelled = labels.len();
    if labelled == 0 {
        return Err(Usage::from(anyhow!("no image that all outputs have has a label; embed the same images")).into());
    }
    drop(outputs);
    let mut evaluations = Vec::new();
    for side in &sides {
        let vectors = Vectors::new(&side.vectors, side.dim, Metric::Cosine)?;
        let found = with_search(&args.search, &cancel, None, |search| search.evaluate(&vectors, &labels, MOST));
        let Some(found) = unless_cancelled(found)? else { return Ok(Exit::Interrupted) };
        evaluations.push(found);
    }
    if args.search.json {
        let of = |(side, found): (&Side, &Evaluation)| {
            let figures = found.figures().map(|(name, figure)| (name.to_owned(), shown(figure)));
            let changes = figures_of(found, &evaluations[0]).map(|(name, change)| (name.to_owned(), shown(&change)));
            let is_first = std::ptr::eq(found, &evaluations[0]);
            json!({
                "output": side.name, "labelled": labelled, "classes": found.classes, "rows": found.recall_1.rows,
                "figures": serde_json::Map::from_iter(figures),
                "changes": (!is_first).then(|| serde_json::Map::from_iter(changes)),
            })
        };
        let all: Vec<_> = sides.iter().zip(&evaluations).map(of).collect();
        console::summary(serde_json::Value::from(all));
        return Ok(Exit::Complete);
    }
    print(&sides, &evaluations, labelled)?;
    Ok(Exit::Complete)
}

/// The labels of the images that all outputs have, as numbers, and their vectors.
fn common(outputs: &[(String, Loaded)], labels: &Labels) -> (Vec<Option<u32>>, Vec<Side>) {
    let places: Vec<HashMap<&str, usize>> =
        outputs.iter().map(|(_, loaded)| loaded.ids.iter().map(AsRef::as_ref).zip(0..).collect()).collect();
    let mut numbers = HashMap::new();
    let mut of_rows = Vec::new();
    let mut rows = Vec::new();
    for id in &outputs[0].1.ids {
        let Some(label) = labels.of(id) else { continue };
        let others: Option<Vec<usize>> = places.iter().map(|places| places.get(id.as_ref()).copied()).collect();
        let Some(others) = others else { continue };
        let next = numbers.len() as u32;
        of_rows.push(Some(*numbers.entry(label).or_insert(next)));
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

/// Gains over `first`, row by row.
fn figures_of(found: &Evaluation, first: &Evaluation) -> impl Iterator<Item = (&'static str, Figure)> {
    let pairs = found.figures().into_iter().zip(first.figures());
    pairs.map(|((name, now), (_, before))| (name, difference(now, before))).collect::<Vec<_>>().into_iter()
}

fn shown(figure: &Figure) -> serde_json::Value {
    json!({"mean": figure.mean, "low": figure.low, "high": figure.high})
}

fn print(sides: &[Side], evaluations: &[Evaluation], labelled: usize) -> anyhow::Result<()> {
    let mut out = console::stdout();
    let first = &evaluations[0];
    for (number, (side, found)) in sides.iter().zip(evaluations).enumerate() {
        writeln!(out, "{}", side.name)?;
        let changes = figures_of(found, first).map(|(_, change)| change);
        for ((name, figure), change) in found.figures().into_iter().zip(changes) {
            write!(out, "  {name:<14} {:.3}  ({:.3}–{:.3})", figure.mean, figure.low, figure.high)?;
            if number > 0 {
                write!(out, "   {:+.3} ({:+.3} to {:+.3})", change.mean, change.low, change.high)?;
            }
            writeln!(out)?;
        }
    }
    writeln!(
        out,
        "\n{labelled} labelled images{}, {} of them with a label that is there twice, {} labels; 95 % intervals{}",
        if sides.len() > 1 { " in all outputs" } else { "" },
        first.recall_1.rows,
        first.classes,
        if sides.len() > 1 { format!("; changes from {}, image by image", sides[0].name) } else { String::new() }
    )?;
    Ok(())
}
