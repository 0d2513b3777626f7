//! The page: the template `page.html` with a run's findings, figures and data.

use crate::checklist::{Check, checklist};
use crate::figures::{Plates, answers};
use crate::svg::{NARROW, STYLE, WIDE};
use crate::table::{Missing, Row, Run, Table, unit};
use crate::text::{Text, escape, text};

const TEMPLATE: &str = include_str!("page.html");
const SECTION: &str = "<section id=\"";

/// Returns the words of a figure's caption that hold for every run.
pub(crate) fn caption(name: &str) -> &'static str {
    let section = TEMPLATE.split(SECTION).find(|section| section.starts_with(&format!("{name}\""))).unwrap_or_default();
    section.split_once("<figcaption>").and_then(|(_, rest)| rest.split("{{").next()).unwrap_or_default()
}

/// Fills the template. A section without a figure or items is left out.
pub(crate) fn page(run: &Run, plates: &Plates) -> String {
    let section = |section: &str| {
        let name = section.split('"').next().unwrap_or_default();
        let plate = plates.drawn.iter().find(|(other, _)| *other == name).map(|(_, plate)| plate);
        let items = match name {
            "disturbed" => disturbed(run),
            "left-out" => left_out(run, plates),
            "checklist" => checklist(run).iter().map(checked).collect(),
            "how-many-workers" => workers(run),
            _ => String::new(),
        };
        let value = |key: &str| match (key, plate) {
            ("title", Some(plate)) => plate.title.markup("span"),
            ("more", Some(plate)) => plate.more.markup("span"),
            ("drawing", Some(plate)) => [WIDE, NARROW].map(|width| plate.draw(width, None)).concat(),
            _ => items.clone(),
        };
        let is_shown = plate.is_some() || !items.is_empty();
        if is_shown { format!("{SECTION}{}", fill(section, value)) } else { String::new() }
    };
    let value = |key: &str| match key {
        "style" => STYLE.to_owned(),
        "lead" => lead(run).markup("span"),
        "answers" => cards(run),
        _ => json(run),
    };
    let pieces = TEMPLATE.split_inclusive("</section>\n").map(|piece| match piece.split_once(SECTION) {
        Some((before, rest)) => fill(before, value) + &section(rest),
        None => fill(piece, value),
    });
    pieces.collect()
}

/// Replaces each `{{key}}` in `template`.
fn fill(template: &str, value: impl Fn(&str) -> String) -> String {
    let piece = |(at, piece): (usize, &str)| match piece.split_once("}}") {
        Some((key, rest)) if at > 0 => value(key) + rest,
        _ => piece.to_owned(),
    };
    template.split("{{").enumerate().map(piece).collect()
}

fn lead(run: &Run) -> Text {
    let Some(row) = run.0.iter().flat_map(Table::rows).next() else { return Text::default() };
    let [model, device, host, foveate] = ["model", "device", "host", "foveate"].map(|column| row.word(column));
    let [commit, date] = ["commit", "date"].map(|column| row.word(column));
    let built = if commit.plain().is_empty() { Text::default() } else { text![" at ", commit] };
    text![model, " on ", device, ", ", host, ", ", row.number("cores"), " cores, foveate ", foveate, built, ", ", date]
}

/// Formats the reasons to doubt the figures.
fn disturbed(run: &Run) -> String {
    let firsts = run.0.iter().filter_map(|table| table.rows().find(|row| !row.text("disturbed").is_empty()));
    let item = |row: Row<'_>| {
        format!("<li><code>{}</code>: {}</li>\n", row.table.schema.file, row.word("disturbed").markup("span"))
    };
    firsts.map(item).collect()
}

fn cards(run: &Run) -> String {
    let card = |(question, answer, more): (_, Text, Text)| {
        let (answer, more) = (answer.markup("span"), more.markup("span").replace('`', ""));
        format!("<li><h2>{question}</h2><p class=\"answer\">{answer}</p><p>{more}</p></li>\n")
    };
    answers(run).into_iter().map(card).collect()
}

/// Formats what each experiment says of the number of workers. Only runs that took turns compare settings, so tuning
/// decides where it ran; a sweep and a ladder have other settings beside it.
fn workers(run: &Run) -> String {
    let mut rows = String::new();
    let mut add = |file: &str, of: &str, meets: fn(&Row<'_>) -> bool, weight: &str| {
        let Some(row) = run.table(file).and_then(|table| table.rows().find(meets)) else { return };
        let [workers, threads, batch] = ["workers", "threads", "batch"].map(|column| Text::from(row.number(column)));
        let rate = Text::from(row.number("images_per_second"));
        let cells = [("Workers", workers), ("Forward threads", threads), ("Batch", batch), ("Rate", rate)];
        let cells = cells.map(|(name, cell)| format!("<td data-name=\"{name}\">{}</td>", cell.markup("span"))).concat();
        let photos = row.photos().markup("span");
        rows.push_str(&format!(
            "<tr><th scope=\"row\">{of}</th>{cells}<td data-name=\"On\">{photos}</td><td data-name=\"What it is\">{weight}</td></tr>\n"
        ));
    };
    let turns = "the answer: settings took turns with each other";
    add("tuning.csv", "Tuning", |row| row.is("chosen", "yes"), turns);
    let plateau = "the fewest within a twentieth of the best, with all else as asked for";
    add("worker_sweep.csv", "The sweep's plateau", |row| row.is("plateau", "yes"), plateau);
    let ladder = "for the fastest backends, batch and precision of the ladder";
    add(
        "headline.csv",
        "The ladder's last step",
        |row| row.is("change", "all combined") && row.not_run().is_none(),
        ladder,
    );
    rows
}

/// Formats a row of the checklist.
fn checked(check: &Check) -> String {
    let Check { question, good_if, verdict, advice, source, value } = check;
    let cells = [
        ("Figure", value.markup("span")),
        ("Good if", (*good_if).to_owned()),
        ("Verdict", format!("<span class=\"verdict {verdict}\">{verdict}</span>")),
        ("What follows", escape(advice)),
        ("From", (*source).to_owned()),
    ];
    let cells = cells.map(|(name, cell)| format!("<td data-name=\"{name}\">{cell}</td>")).concat();
    format!("<tr><th scope=\"row\">{question}</th>{cells}</tr>\n")
}

fn left_out(run: &Run, plates: &Plates) -> String {
    let files = run.missing().into_iter().map(|Missing { file, made_by }| {
        format!(
            "<li>No figure from <code>{file}</code>: it is not there. <code>foveate {made_by}</code> makes it.</li>\n"
        )
    });
    let figures = plates.left_out.iter().map(|why| format!("<li>No figure {}.</li>\n", escape(why)));
    figures.chain(files).collect()
}

/// Returns the files as JSON without markup: name, columns with units, and rows with their line.
fn json(run: &Run) -> String {
    let table = |Table { schema, header, lines, .. }: &Table| {
        let units: Vec<&str> = header.iter().map(|name| schema.column(name).map_or("", unit)).collect();
        serde_json::json!({ "file": schema.file, "columns": header, "units": units, "rows": lines }).to_string()
    };
    let tables = run.0.iter().map(table).collect::<Vec<_>>().join(",\n");
    format!("[{tables}]").replace('<', "\\u003c").replace('&', "\\u0026").replace('>', "\\u003e")
}
