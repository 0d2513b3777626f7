//! `foveate align`.

use std::collections::HashMap;

use foveate::search::{Metric, Vectors};
use foveate_sink_parquet::Column;
use serde_json::json;

use super::place::ALIGN;
use super::query_texts::QueryEmbedder;
use super::sheet::{Card, MOST, PictureInputs, Row, Sheet, begin_page, pictures};
use super::table::Table;
use super::vectors::{Loaded, load};
use super::{BLOCK, announce, begin};
use crate::cli::console;
use crate::cli::exit::Exit;
use crate::cli::summary::counted;
use crate::cli::words_args::AlignArgs;

/// An image with its text's score.
struct AlignedRow {
    row: u32,
    score: f64,
}

pub(crate) fn align(args: &AlignArgs) -> anyhow::Result<Exit> {
    begin_page(&args.search, &args.page, false)?;
    let mut search = args.search.clone();
    search.columns.extend(args.column.clone());
    let others: Vec<_> = args.texts.iter().cloned().collect();
    let (loaded, texts) = load(&search, &others, Some(&args.table.output), Metric::Cosine)?;
    let cancel = begin()?;
    announce(&args.search, &loaded, loaded.ids.len(), |_| loaded.ids.len() as u64 * 64);
    let vectors = loaded.vectors(Metric::Cosine)?;
    let mut aligned = Vec::new();
    if let Some(texts) = &texts {
        let of_texts = texts.vectors(Metric::Cosine)?;
        let rows: HashMap<&str, u32> = texts.ids.iter().map(AsRef::as_ref).zip(0..).collect();
        for row in vectors.finite() {
            let Some(&text) = rows.get(&*loaded.ids[row as usize]) else { continue };
            if !of_texts.lengths()[text as usize].is_nan() {
                aligned.push(AlignedRow { row, score: vectors.score(row, &of_texts, text) });
            }
        }
    } else {
        let words = QueryEmbedder::open(&args.words, &args.search, &loaded)?;
        let captioned: Vec<u32> = vectors.finite().filter(|&row| caption(args, &loaded, row).is_some()).collect();
        for rows in captioned.chunks(BLOCK) {
            let texts: Vec<&str> = rows.iter().filter_map(|&row| caption(args, &loaded, row)).collect();
            let Some(embedded) = words.embed(&texts, &cancel)? else { return Ok(Exit::Interrupted) };
            let of_texts = Vectors::new(&embedded, loaded.dim.max(1), Metric::Cosine)?;
            for (&row, text) in rows.iter().zip(0..) {
                aligned.push(AlignedRow { row, score: vectors.score(row, &of_texts, text) });
            }
        }
    }
    let with_text = aligned.len();
    let mean = aligned.iter().map(|found| found.score).sum::<f64>() / with_text.max(1) as f64;
    aligned.retain(|found| args.threshold.is_none_or(|threshold| found.score >= threshold));
    write_scores(args, &loaded, &aligned)?;
    if let Some(path) = &args.page.html {
        let sheet = sheet(args, &loaded, &mut aligned);
        let inputs = PictureInputs { images: &args.page.images, manifest: loaded.manifest.as_ref(), others: &[] };
        let found = pictures(&args.search, &inputs, &cancel, &sheet.ids())?;
        if cancel.is_cancelled() {
            return Ok(Exit::Interrupted);
        }
        sheet.write(args.replace.file(path), &found, None)?;
    }
    let output = args.table.output.display();
    let rows = loaded.ids.len();
    let without = rows - with_text;
    if args.search.json {
        console::summary(json!({
            "status": "complete", "output": output.to_string(), "rows": rows, "written": aligned.len(),
            "without_text": without, "mean_score": mean,
        }));
    } else if !args.search.quiet {
        console::summary(format_args!(
            "{output} has {} of {}; their mean cosine to the texts was {mean:.3}",
            aligned.len(),
            counted(with_text as u64, "image")
        ));
    }
    if without > 0 {
        console::say!("warning: {} of {rows} images have no text or no finite vector, and no row", without);
    }
    Ok(Exit::Complete)
}

/// The text of an image, unless it is blank.
fn caption<'a>(args: &AlignArgs, loaded: &'a Loaded, row: u32) -> Option<&'a str> {
    let values = loaded.columns.get(args.column.as_ref()?)?;
    values.get(row as usize)?.as_deref().filter(|text| !text.trim().is_empty())
}

fn write_scores(args: &AlignArgs, loaded: &Loaded, aligned: &[AlignedRow]) -> anyhow::Result<()> {
    let mut table = Table::create(args.replace.file(&args.table.output), &ALIGN)?;
    // A table without rows has a block, too.
    for begin in (0..aligned.len().max(1)).step_by(BLOCK) {
        let rows = &aligned[begin..(begin + BLOCK).min(aligned.len())];
        table.write(vec![
            Column::Text(rows.iter().map(|found| loaded.ids[found.row as usize].to_string()).collect()),
            Column::Score(rows.iter().map(|found| found.score as f32).collect()),
        ])?;
    }
    table.finish()
}

/// The images that fit their texts least, and those that fit best.
fn sheet(args: &AlignArgs, loaded: &Loaded, aligned: &mut [AlignedRow]) -> Sheet {
    aligned.sort_by(|a, b| a.score.total_cmp(&b.score).then(a.row.cmp(&b.row)));
    let shown = (MOST / 2).min(aligned.len().div_ceil(2)).min(100);
    let mut rows = Vec::new();
    let best = aligned.iter().rev().take(shown).collect::<Vec<_>>();
    for (heading, found) in [("Least alike", aligned.iter().take(shown).collect()), ("Most alike", best)] {
        let mut cards = Vec::new();
        for AlignedRow { row, score } in found {
            let mut card = Card::scored(loaded, (*row, *score), false);
            if let Some(text) = caption(args, loaded, *row) {
                card.caption = format!("{} {text}", card.caption);
            }
            cards.push(card);
        }
        rows.push(Row { heading: heading.to_owned(), sets: vec![cards] });
    }
    let lead = format!("The {shown} images that fit their texts least, and as many that fit best.");
    Sheet { title: "Images and texts", lead, rows }
}
