//! `foveate label`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use anyhow::anyhow;
use foveate::search::{ClassScore, Classifier, Metric, Vectors};
use foveate::source::FetchError;
use foveate_sink_parquet::Column;
use serde_json::json;

use super::clusters::grouped;
use super::place::LABEL;
use super::query_texts::{QueryEmbedder, direction};
use super::sheet::{PictureInputs, Sheet, begin_page, pictures};
use super::table::Table;
use super::vectors::{Loaded, load};
use super::{BLOCK, announce, begin, unless_cancelled, warn_of_skipped, with_search};
use crate::cli::console;
use crate::cli::exit::{Exit, Usage};
use crate::cli::labels::LABEL_NAMES;
use crate::cli::summary::counted;
use crate::cli::tables::{column_named, names_of};
use crate::cli::texts::{TextColumns, TextTable, is_table};
use crate::cli::words_args::LabelImagesArgs;

/// The prompt of a label, as in the zero-shot pipeline of `transformers`.
const TEMPLATE: &str = "This is a photo of {}.";

/// Most labels of an image with a threshold and without `-k`.
const K_FROM_THRESHOLD: usize = 10;

/// Labels with the texts that stand for them.
struct LabelSet {
    names: Vec<String>,
    /// The texts of each label, at least one.
    prompts: Vec<Vec<String>>,
}

/// The labels of a row, best first; `None` for one that is not finite.
type RowLabels = Option<Vec<ClassScore>>;

pub(crate) fn label(args: &LabelImagesArgs) -> anyhow::Result<Exit> {
    if args.none.is_some() && args.threshold.is_none() {
        return Err(Usage::from(anyhow!("--none names images below --threshold; add one, such as 0.5")).into());
    }
    let set = LabelSet::read(args)?;
    begin_page(&args.search, &args.page, false)?;
    let output = args.table.output.display();
    let (loaded, _) = load(&args.search, &[], Some(&args.table.output), Metric::Cosine)?;
    let cancel = begin()?;
    let labels = set.names.len();
    let k = args.k.unwrap_or(if args.threshold.is_some() { K_FROM_THRESHOLD } else { 1 }).min(labels);
    announce(&args.search, &loaded, loaded.ids.len() * k, |_| (loaded.ids.len() * (48 + 16 * k)) as u64);
    let words = QueryEmbedder::open(&args.words, &args.search, &loaded)?;
    let logits = words.logits()?;
    let Some(of_prompts) = words.embed(&set.prompts.concat(), &cancel)? else { return Ok(Exit::Interrupted) };
    let directions = set.vectors(&of_prompts, loaded.dim.max(1));
    let of_labels = Vectors::new(&directions, loaded.dim.max(1), Metric::Cosine)?;
    let vectors = loaded.vectors(Metric::Cosine)?;
    let threshold = args.threshold.unwrap_or(0.0);
    let classifier = Classifier { scale: logits.scale, bias: logits.bias, k, threshold };
    let found = with_search(&args.search, &cancel, None, |search| search.classify(&vectors, &of_labels, &classifier));
    let Some(found) = unless_cancelled(found)? else { return Ok(Exit::Interrupted) };
    write_labels(args, &loaded, &set, &found)?;

    let mut members = vec![Vec::new(); labels];
    for (row, found) in (0..).zip(&found) {
        if let Some(best) = found.iter().flatten().next() {
            members[best.class as usize].push((row, f64::from(best.probability)));
        }
    }
    if let Some(path) = &args.page.html {
        for members in &mut members {
            members.sort_by(|a, b| b.1.total_cmp(&a.1));
        }
        let sheet = sheet(&loaded, &set, &members);
        let inputs = PictureInputs { images: &args.page.images, manifest: loaded.manifest.as_ref(), others: &[] };
        let found = pictures(&args.search, &inputs, &cancel, &sheet.ids())?;
        if cancel.is_cancelled() {
            return Ok(Exit::Interrupted);
        }
        sheet.write(args.replace.file(path), &found, None)?;
    }
    let skipped = found.iter().filter(|found| found.is_none()).count();
    let labelled: usize = members.iter().map(Vec::len).sum();
    let without = found.len() - labelled - skipped;
    if args.search.json {
        let counts: serde_json::Map<_, _> =
            set.names.iter().zip(&members).map(|(name, members)| (name.clone(), members.len().into())).collect();
        console::summary(json!({
            "status": "complete", "output": output.to_string(), "rows": loaded.ids.len(), "labelled": labelled,
            "without": without, "not_finite": skipped, "first": counts, "logit_scale": logits.scale,
            "logit_bias": logits.bias,
        }));
    } else if !args.search.quiet {
        let rows = loaded.ids.len();
        console::summary(format_args!("{output} has labels of {labelled} of {rows} images; {without} have none"));
    }
    warn_of_skipped(skipped);
    Ok(Exit::Complete)
}

impl LabelSet {
    /// Reads labels with their prompts, or makes these by the templates.
    fn read(args: &LabelImagesArgs) -> Result<Self, Usage> {
        let path = args.labels.display();
        let mut has_prompts = false;
        let table = if is_table(&args.labels) {
            TextTable::of_rows(&args.labels, &mut |all| {
                let Some(label) = column_named(all, &LABEL_NAMES) else {
                    let known = LABEL_NAMES.join(", ");
                    let all = names_of(all);
                    return Err(FetchError::NoColumn(format!(
                        "it needs a column of labels, called {known}; it has {all}"
                    )));
                };
                let prompt = column_named(all, &["prompt"]);
                has_prompts = prompt.is_some();
                Ok(TextColumns { texts: prompt.unwrap_or(label), ids: prompt.map(|_| label) })
            })?
        } else {
            TextTable::read(&args.labels, None, None)?
        };
        if has_prompts && !args.template.is_empty() {
            return Err(anyhow!("{path} has prompts, to which no --template is applied; leave one of them out").into());
        }
        let mut templates = args.template.clone();
        if templates.is_empty() {
            templates.push(TEMPLATE.to_owned());
        }
        if let Some(template) = templates.iter().find(|template| template.matches("{}").count() != 1) {
            return Err(anyhow!("the template '{template}' needs one {{}}, where the label goes").into());
        }
        let mut numbers = HashMap::new();
        let mut names = Vec::new();
        let mut prompts_of: Vec<Vec<String>> = Vec::new();
        let mut blank = 0;
        for (row, (id, text)) in (1..).zip(table.ids.into_iter().zip(table.texts)) {
            let name = if has_prompts { id } else { text.trim().to_owned() };
            if text.trim().is_empty() {
                blank += 1;
                continue;
            }
            let number = match numbers.entry(name.clone()) {
                Entry::Occupied(before) if has_prompts => *before.get(),
                Entry::Occupied(_) => {
                    return Err(anyhow!(
                        "{path} has the label '{name}' twice, the second time in row {row}; leave one"
                    )
                    .into());
                }
                Entry::Vacant(entry) => {
                    names.push(name.clone());
                    prompts_of.push(Vec::new());
                    *entry.insert(names.len() - 1)
                }
            };
            if has_prompts {
                prompts_of[number].push(text);
            } else {
                prompts_of[number].extend(templates.iter().map(|template| template.replace("{}", &name)));
            }
        }
        if names.is_empty() {
            return Err(anyhow!("{path} has no label; write one in each line").into());
        }
        if blank > 0 && !args.search.quiet {
            console::say!("note: {path} has {} without a label, left out", counted(blank, "row"));
        }
        Ok(Self { names, prompts: prompts_of })
    }

    /// The vectors of labels, `[labels, dim]`: each the mean direction of its prompts.
    fn vectors(&self, all: &[f32], dim: usize) -> Vec<f32> {
        let mut vectors = Vec::with_capacity(self.names.len() * dim);
        let mut begin = 0;
        for prompts in &self.prompts {
            let end = begin + prompts.len() * dim;
            vectors.extend(direction(&all[begin..end], dim));
            begin = end;
        }
        vectors
    }
}

fn write_labels(args: &LabelImagesArgs, loaded: &Loaded, set: &LabelSet, found: &[RowLabels]) -> anyhow::Result<()> {
    let mut table = Table::create(args.replace.file(&args.table.output), &LABEL)?;
    // A table without rows has a block, too.
    for begin in (0..found.len().max(1)).step_by(BLOCK) {
        let mut id = Vec::new();
        let mut label = Vec::new();
        let mut rank = Vec::new();
        let mut score = Vec::new();
        let mut cosine = Vec::new();
        for row in begin..(begin + BLOCK).min(found.len()) {
            let Some(found) = &found[row] else { continue };
            for (one, number) in found.iter().zip(1..) {
                id.push(loaded.ids[row].to_string());
                label.push(set.names[one.class as usize].clone());
                rank.push(number);
                score.push(one.probability);
                cosine.push(one.score);
            }
            if let Some(none) = args.none.as_ref().filter(|_| found.is_empty()) {
                id.push(loaded.ids[row].to_string());
                label.push(none.clone());
                rank.push(1);
                score.push(f32::NAN);
                cosine.push(f32::NAN);
            }
        }
        let scores = [Column::Score(score), Column::Score(cosine)];
        table
            .write([Column::Text(id), Column::Text(label), Column::Count(rank)].into_iter().chain(scores).collect())?;
    }
    table.finish()
}

fn sheet(loaded: &Loaded, set: &LabelSet, members: &[Vec<(u32, f64)>]) -> Sheet {
    let mut headings = Vec::new();
    for (name, members) in set.names.iter().zip(members) {
        headings.push(format!("{name}: {}", counted(members.len() as u64, "image")));
    }
    let rows = grouped(loaded, members, &headings);
    let lead = format!(
        "{} of {} labels, frequent ones first: the surest images of each, which are marked, and the least sure.",
        rows.len(),
        members.len()
    );
    Sheet { title: "Labels", lead, rows }
}
