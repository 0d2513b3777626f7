//! The page: a run's results, first in a few words, then in figures, and every number's origin.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, display, html};

use crate::canvas::Drawing;
use crate::figures::{NARROW, Plate, WIDE, headlines, worker};
use crate::run::Run;
use crate::shown::{Span, Text, Traced, text};
use crate::table::{Row, Table};
use crate::{ReportError, font, ink};

/// The numbers on the page, and where it shows them.
#[derive(Default)]
struct Ledger {
    place: String,
    /// The name of the place and the number. Each number appears once per place.
    entries: Vec<(String, Traced)>,
    /// Place, words and fields of the entries.
    noted: BTreeSet<(String, String, String)>,
}

impl Ledger {
    fn enter(&mut self, place: &str) {
        place.clone_into(&mut self.place);
    }

    fn note<'a>(&mut self, shown: impl IntoIterator<Item = &'a Traced>) {
        for traced in shown {
            if self.noted.insert((self.place.clone(), traced.text.clone(), traced.key())) {
                self.entries.push((self.place.clone(), traced.clone()));
            }
        }
    }

    /// Renders `text` as HTML, and records its numbers.
    fn html(&mut self, text: &Text) -> Markup {
        self.note(text.traced());
        html! {
            @for span in &text.0 {
                @match span {
                    Span::Plain(text) => (text),
                    Span::Traced(traced) => span data-from=(traced.key()) title=(in_words(traced)) { (traced.text) },
                }
            }
        }
    }

    fn drawing(&mut self, drawing: &Drawing) {
        self.note(&drawing.traced);
    }
}

/// Describes a number's origin: the first field and how many more.
fn in_words(traced: &Traced) -> String {
    let Some(first) = traced.from.first() else { return String::new() };
    let more = match traced.from.len() {
        1 => String::new(),
        fields => format!(" and {} more", fields - 1),
    };
    format!("{}, line {}, {}{more}", first.file, first.line, first.column)
}

/// Elements without content, closed so that the page is also valid XML.
const METADATA: PreEscaped<&str> =
    PreEscaped("<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>");

pub(crate) fn page(run: &Run, plates: &[Plate]) -> Result<String, ReportError> {
    let mut ledger = Ledger::default();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                (METADATA)
                title { "Where every second goes" }
                style { (PreEscaped(faces())) (PreEscaped(ink::page_sheet())) (PreEscaped(include_str!("page.css"))) }
            }
            body {
                (header(run, &mut ledger))
                main {
                    (disturbances(run, &mut ledger))
                    (summary(run, &mut ledger))
                    @for (at, plate) in plates.iter().enumerate() { (section(at + 1, plate, &mut ledger)?) }
                    (configurations(run, &mut ledger))
                    (checklist(run, &mut ledger))
                    (machine(run, &mut ledger))
                    (left_out(run))
                }
                footer { (origins(&ledger)) }
            }
        }
    };
    Ok(page.into_string())
}

/// Returns the fonts, embedded in the page.
fn faces() -> String {
    let face = |weight: u32, font: &[u8]| {
        format!(
            "@font-face{{font-family:Roboto;font-weight:{weight};src:url(data:font/ttf;base64,{})}}\n",
            STANDARD.encode(font)
        )
    };
    face(400, font::REGULAR) + &face(500, font::MEDIUM)
}

fn header(run: &Run, ledger: &mut Ledger) -> Markup {
    ledger.enter("Summary");
    let lead = first_row(run).map(|row| {
        text![
            row.word("model"),
            " on ",
            row.word("device"),
            ", ",
            row.word("host"),
            ", ",
            row.number("cores"),
            " cores, foveate ",
            row.word("foveate")
        ]
    });
    html! {
        header {
            h1 { "Where every second goes" }
            @if let Some(lead) = lead { p.lead { (ledger.html(&lead)) } }
        }
    }
}

/// Renders the reasons to doubt the figures, before all of them.
fn disturbances(run: &Run, ledger: &mut Ledger) -> Markup {
    let firsts = run.tables().filter_map(|table| table.rows().find(|row| !row.is("disturbed", "")));
    let disturbed: Vec<Row<'_>> = firsts.collect();
    html! {
        @if !disturbed.is_empty() {
            section #disturbed {
                h2 { "This run was disturbed" }
                p { "The machine did something else meanwhile. Measure again while it does not; until then, doubt these:" }
                ul { @for row in disturbed {
                    li { code { (row.file()) } ": " (ledger.html(&row.word("disturbed"))) }
                } }
            }
        }
    }
}

fn summary(run: &Run, ledger: &mut Ledger) -> Markup {
    html! {
        ul.cards {
            @for card in headlines(run) {
                li {
                    h2 { (card.question) }
                    p.answer { (ledger.html(&card.answer)) }
                    p { (ledger.html(&card.more)) }
                }
            }
        }
    }
}

fn first_row(run: &Run) -> Option<Row<'_>> {
    run.tables().next().and_then(|table| table.rows().next())
}

fn section(number: usize, plate: &Plate, ledger: &mut Ledger) -> Result<Markup, ReportError> {
    ledger.enter(&format!("Figure {number}"));
    Ok(html! {
        section id=(plate.name) {
            p.kind { "Figure " span.tick { (number) } }
            h2 { (ledger.html(&plate.title)) }
            figure {
                @for (width, class) in [(WIDE, "wide"), (NARROW, "narrow")] {
                    (drawing(plate, width, class, ledger)?)
                }
                figcaption { (ledger.html(&plate.caption)) }
            }
        }
    })
}

fn drawing(plate: &Plate, width: f32, class: &str, ledger: &mut Ledger) -> Result<Markup, ReportError> {
    let drawing = plate.draw(width)?;
    ledger.drawing(&drawing);
    Ok(PreEscaped(drawing.inline(&plate.title, plate.description, class)))
}

/// Renders the worker's configurations as a table.
fn configurations(run: &Run, ledger: &mut Ledger) -> Markup {
    let rows = worker::rows(run);
    ledger.enter("Configurations");
    html! {
        @if !rows.is_empty() {
            section #configurations {
                h2 { "The worker's configurations" }
                .table { table.stack {
                    thead { tr {
                        th scope="col" { "Configuration" }
                        @for (heading, _) in worker::COLUMNS { th.tick scope="col" { (heading) } }
                    } }
                    tbody { @for (name, values) in rows { tr {
                        th scope="row" { (ledger.html(&name)) }
                        @for ((heading, _), value) in worker::COLUMNS.iter().zip(values) {
                            td.number data-name=(heading) { (ledger.html(&value)) }
                        }
                    } } }
                } }
            }
        }
    }
}

fn checklist(run: &Run, ledger: &mut Ledger) -> Markup {
    ledger.enter("Checklist");
    html! {
        @if let Some(table) = run.table("checklist.csv") {
            section #checklist {
                h2 { "The checklist, with this run's figures" }
                .table { table.stack {
                    thead { tr {
                        @for heading in ["Question", "Figure", "Good if", "Verdict", "What follows", "From"] {
                            th scope="col" { (heading) }
                        }
                    } }
                    tbody { @for row in table.rows() { (check(&row, ledger)) } }
                } }
            }
        }
    }
}

fn check(row: &Row<'_>, ledger: &mut Ledger) -> Markup {
    let value = match row.number("value") {
        Some(value) if row.is("unit", "x") => text![value, "×"],
        Some(value) => text![value, "\u{a0}", row.word("unit")],
        None => "–".into(),
    };
    let verdict = row.text("verdict");
    let class = ["good", "look"].into_iter().find(|class| *class == verdict).unwrap_or("unknown");
    html! {
        tr {
            th scope="row" { (ledger.html(&row.word("question"))) }
            td.number { (ledger.html(&value)) }
            td data-name="Good if" { (ledger.html(&row.word("good_if"))) }
            td { span.verdict.(class) { (verdict) } }
            td { (ledger.html(&row.word("advice"))) }
            td data-name="From" { (ledger.html(&row.word("source"))) }
        }
    }
}

/// Renders the machine and the versions behind the files; equal values appear once.
fn machine(run: &Run, ledger: &mut Ledger) -> Markup {
    const ANSWERS: [(&str, &str); 9] = [
        ("Model", "model"),
        ("Device", "device"),
        ("Processor", "host"),
        ("Cores", "cores"),
        ("foveate", "foveate"),
        ("Backends", "features"),
        ("Libraries", "libraries"),
        ("Date", "date"),
        ("Seed", "seed"),
    ];
    ledger.enter("Machine");
    html! {
        section #machine {
            h2 { "Measured on, with" }
            dl {
                @for (name, column) in ANSWERS {
                    @let answers = answers(run, column);
                    @if !answers.is_empty() {
                        dt { (name) }
                        dd { (ledger.html(&Text::join(answers, "; "))) }
                    }
                }
                @if let Some(control) = run.table("control.csv") {
                    @let rates = control.rows().filter_map(|row| row.number("images_per_second"));
                    dt { "Images/s of the usual job, after each experiment" }
                    dd { (ledger.html(&Text::join(rates.map(Text::from), "; "))) }
                }
            }
        }
    }
}

/// Returns the distinct values in a context column.
fn answers(run: &Run, column: &'static str) -> Vec<Text> {
    let mut answers: Vec<Text> = Vec::new();
    for row in run.tables().flat_map(Table::rows) {
        let answer = row.word(column);
        if !answer.is_empty() && answers.iter().all(|other| other.plain() != answer.plain()) {
            answers.push(answer);
        }
    }
    answers
}

fn left_out(run: &Run) -> Markup {
    let missing = run.missing();
    html! {
        @if !missing.is_empty() {
            section #left-out {
                h2 { "Not in this report" }
                ul {
                    @for missing in missing {
                        li {
                            "No figure from " code { (missing.file) } ": it is not there. "
                            code { "foveate " (missing.made_by) } " makes it."
                        }
                    }
                }
            }
        }
    }
}

/// Renders the table of every number's file, line and column.
fn origins(ledger: &Ledger) -> Markup {
    html! {
        section #origins {
            h2 { "Where every number is from" }
            p {
                "Point at a number to see its file, line and column. "
                "The first line of a file holds the names of its columns."
            }
            @for entries in ledger.entries.chunk_by(|(place, _), (next, _)| place == next) {
                details {
                    summary.tick { (entries[0].0) }
                    .table tabindex="0" { table.origins {
                        thead { tr {
                            @for heading in ["Shown", "File", "Line", "Column", "In the file", "How it follows"] {
                                th scope="col" { (heading) }
                            }
                        } }
                        tbody { @for (_, traced) in entries { (origin_rows(traced)) } }
                    } }
                }
            }
        }
    }
}

/// Renders a number's fields, one row each; the first row shows the number.
fn origin_rows(traced: &Traced) -> Markup {
    html! {
        @for (at, origin) in traced.from.iter().enumerate() {
            tr data-origin=(display(origin)) {
                td { @if at == 0 { (traced.text) } }
                td { (origin.file) }
                td { (origin.line) }
                td { (origin.column) }
                td { (origin.text) }
                td { @if at == 0 { (traced.how) } }
            }
        }
    }
}
