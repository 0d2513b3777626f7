//! The page: the template `page.html` with a run's findings, figures and data.

use crate::checklist::{Check, checklist};
use crate::figures::{KeyResult, Plates, answers};
use crate::svg::{NARROW, STYLE, WIDE};
use crate::table::{CsvTable, Missing, RunTables, TableRow, unit};
use crate::text::{Text, escape, text};

const TEMPLATE: &str = include_str!("page.html");
const SECTION: &str = "<section id=\"";

/// Returns the words of a figure's caption that hold for every run.
pub(crate) fn caption(name: &str) -> &'static str {
    let section = TEMPLATE.split(SECTION).find(|section| section.starts_with(&format!("{name}\""))).unwrap_or_default();
    section.split_once("<figcaption>").and_then(|(_, rest)| rest.split("{{").next()).unwrap_or_default()
}

/// Fills the template. A section without a figure or items is left out.
pub(crate) fn page(run: &RunTables, plates: &Plates) -> String {
    let mut page = String::new();
    for piece in TEMPLATE.split_inclusive("</section>\n") {
        let (before, section) = piece.split_once(SECTION).unwrap_or((piece, ""));
        page += &fill(before, |key| match key {
            "style" => STYLE.to_owned(),
            "lead" => lead(run).markup("span"),
            "answers" => cards(run),
            _ => json(run),
        });
        let name = section.split('"').next().unwrap_or_default();
        let plate = plates.drawn.iter().find(|(other, _)| *other == name).map(|(_, plate)| plate);
        let items = match name {
            "disturbed" => disturbed(run),
            "left-out" => left_out(run, plates),
            "checklist" => checklist(run).iter().map(checked).collect(),
            "how-many-workers" => workers(run),
            _ => String::new(),
        };
        if plate.is_some() || !items.is_empty() {
            page += SECTION;
            page += &fill(section, |key| match (key, plate) {
                ("title", Some(plate)) => plate.title.markup("span"),
                ("more", Some(plate)) => plate.more.markup("span"),
                ("drawing", Some(plate)) => [WIDE, NARROW].map(|width| plate.draw(width, None)).concat(),
                _ => items.clone(),
            });
        }
    }
    page
}

/// Replaces each `{{key}}` in `template`.
fn fill(template: &str, value: impl Fn(&str) -> String) -> String {
    let mut pieces = template.split("{{");
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        match piece.split_once("}}") {
            Some((key, rest)) => filled += &(value(key) + rest),
            None => filled += piece,
        }
    }
    filled
}

fn lead(run: &RunTables) -> Text {
    let Some(row) = run.0.iter().flat_map(CsvTable::rows).next() else { return Text::default() };
    let [model, device, host, foveate] = ["model", "device", "host", "foveate"].map(|column| row.word(column));
    let [commit, date] = ["commit", "date"].map(|column| row.word(column));
    let built = if commit.plain().is_empty() { Text::default() } else { text![" at ", commit] };
    text![model, " on ", device, ", ", host, ", ", row.number("cores"), " cores, foveate ", foveate, built, ", ", date]
}

/// Formats the reasons to doubt the figures.
fn disturbed(run: &RunTables) -> String {
    let mut items = String::new();
    for table in &run.0 {
        if let Some(row) = table.rows().find(|row| !row.text("disturbed").is_empty()) {
            let why = row.word("disturbed").markup("span");
            items += &format!("<li><code>{}</code>: {why}</li>\n", table.schema.file);
        }
    }
    items
}

fn cards(run: &RunTables) -> String {
    let mut cards = String::new();
    for KeyResult { question, answer, more } in answers(run) {
        let answer = answer.markup("span");
        let more = more.markup("span").replace('`', "");
        cards += &format!("<li><h2>{question}</h2><p class=\"answer\">{answer}</p><p>{more}</p></li>\n");
    }
    cards
}

/// Formats what each experiment says of the number of workers. Only runs that took turns compare settings, so tuning
/// decides where it ran; a sweep and a ladder vary other settings at the same time.
fn workers(run: &RunTables) -> String {
    let tuned = row_of(run, "tuning.csv", |row| row.is("chosen", "yes"));
    let plateau = row_of(run, "worker_sweep.csv", |row| row.is("plateau", "yes"));
    let combined = row_of(run, "headline.csv", |row| row.is("change", "all combined") && row.not_run().is_none());
    let experiments = [
        ("Tuning", tuned, "the answer: settings took turns with each other"),
        ("The sweep's plateau", plateau, "the fewest within a twentieth of the best, with all else as asked for"),
        ("The ladder's last step", combined, "for the fastest backends, batch and precision of the ladder"),
    ];
    let mut rows = String::new();
    for (of, row, weight) in experiments {
        let Some(row) = row else { continue };
        let [workers, threads, batch] = ["workers", "threads", "batch"].map(|column| Text::from(row.number(column)));
        let rate = Text::from(row.number("images_per_second"));
        let cells = [("Workers", workers), ("Forward threads", threads), ("Batch", batch), ("Rate", rate)];
        let cells = cells.map(|(name, cell)| format!("<td data-name=\"{name}\">{}</td>", cell.markup("span"))).concat();
        let photos = row.photos().markup("span");
        rows.push_str(&format!(
            "<tr><th scope=\"row\">{of}</th>{cells}<td data-name=\"On\">{photos}</td><td data-name=\"What it is\">{weight}</td></tr>\n"
        ));
    }
    rows
}

/// Returns the first row of a file that meets a condition.
fn row_of<'a>(run: &'a RunTables, file: &str, meets: impl Fn(&TableRow<'a>) -> bool) -> Option<TableRow<'a>> {
    run.table(file)?.rows().find(meets)
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

fn left_out(run: &RunTables, plates: &Plates) -> String {
    let files = run.missing().into_iter().map(|Missing { file, made_by }| {
        format!(
            "<li>No figure from <code>{file}</code>: it is not there. <code>foveate {made_by}</code> makes it.</li>\n"
        )
    });
    let figures = plates.left_out.iter().map(|why| format!("<li>No figure {}.</li>\n", escape(why)));
    figures.chain(files).collect()
}

/// Returns the files as JSON without markup: name, columns with units, and rows with their line.
fn json(run: &RunTables) -> String {
    let mut tables = Vec::new();
    for CsvTable { schema, header, lines, .. } in &run.0 {
        let units: Vec<&str> = header.iter().map(|name| schema.column(name).map_or("", unit)).collect();
        let table = serde_json::json!({ "file": schema.file, "columns": header, "units": units, "rows": lines });
        tables.push(table.to_string());
    }
    format!("[{}]", tables.join(",\n")).replace('<', "\\u003c").replace('&', "\\u0026").replace('>', "\\u003e")
}
