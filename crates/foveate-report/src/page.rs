//! The page: what a run showed, first in a few words, then in figures, and where every number is from.

use std::collections::BTreeSet;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::canvas::{Drawing, escape};
use crate::figures::{Plate, headlines, worker};
use crate::shown::{Span, Text, Traced, text};
use crate::table::{Row, Table};
use crate::{NARROW, Report, ReportError, WIDE, font, ink};

/// Where numbers are shown, and which.
#[derive(Default)]
struct Ledger {
    place: String,
    /// Number by number: the name of its place and what it is. Each once a place.
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

    /// `text` as HTML, its numbers noted.
    fn html(&mut self, text: &Text) -> String {
        self.note(text.traced());
        let span = |span: &Span| match span {
            Span::Plain(text) => escape(text),
            Span::Traced(traced) => {
                let (key, tip, text) = (traced.key(), escape(&in_words(traced)), escape(&traced.text));
                format!("<span data-from=\"{key}\" title=\"{tip}\">{text}</span>")
            }
        };
        text.0.iter().map(span).collect()
    }

    fn drawing(&mut self, drawing: &Drawing) {
        self.note(&drawing.traced);
    }
}

/// Where a number is from, for people: the first field and how many more.
fn in_words(traced: &Traced) -> String {
    let Some(first) = traced.from.first() else { return String::new() };
    let more = match traced.from.len() {
        1 => String::new(),
        fields => format!(" and {} more", fields - 1),
    };
    format!("{}, line {}, {}{more}", first.file, first.line, first.column)
}

pub(crate) fn page(run: &Report, plates: &[Plate]) -> Result<String, ReportError> {
    let mut ledger = Ledger::default();
    let mut body = String::new();
    body.push_str(&summary(run, &mut ledger));
    for (at, plate) in plates.iter().enumerate() {
        body.push_str(&section(at + 1, plate, &mut ledger)?);
    }
    body.push_str(&configurations(run, &mut ledger));
    body.push_str(&checklist(run, &mut ledger));
    body.push_str(&machine(run, &mut ledger));
    body.push_str(&left_out(run));
    body.push_str(&origins(&ledger));
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>Where every second goes</title>\n<style>\n{}{}\n{}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        faces(),
        ink::page_sheet(),
        include_str!("page.css")
    ))
}

/// The fonts, in the page itself.
fn faces() -> String {
    let face = |weight: u32, font: &[u8]| {
        format!(
            "@font-face{{font-family:Roboto;font-weight:{weight};src:url(data:font/ttf;base64,{})}}\n",
            STANDARD.encode(font)
        )
    };
    face(400, font::REGULAR) + &face(500, font::MEDIUM)
}

fn summary(run: &Report, ledger: &mut Ledger) -> String {
    ledger.enter("Summary");
    let mut html = String::from("<header>\n<h1>Where every second goes</h1>\n");
    if let Some(row) = first_row(run) {
        let lead = text![
            row.word("model"),
            " on ",
            row.word("device"),
            ", ",
            row.word("host"),
            ", ",
            row.number("cores"),
            " cores, foveate ",
            row.word("foveate")
        ];
        let _ = writeln!(html, "<p class=\"lead\">{}</p>", ledger.html(&lead));
    }
    html.push_str("</header>\n<main>\n<ul class=\"cards\">\n");
    for card in headlines(run) {
        let (answer, more) = (ledger.html(&card.answer), ledger.html(&card.more));
        let _ =
            writeln!(html, "<li><h2>{}</h2><p class=\"answer\">{answer}</p><p>{more}</p></li>", escape(card.question));
    }
    html.push_str("</ul>\n");
    html
}

fn first_row(run: &Report) -> Option<Row<'_>> {
    run.tables().next().and_then(|table| table.rows().next())
}

fn section(number: usize, plate: &Plate, ledger: &mut Ledger) -> Result<String, ReportError> {
    ledger.enter(&format!("Figure {number}"));
    let title = ledger.html(&plate.title);
    let mut html = format!(
        "<section id=\"{}\">\n<p class=\"kind\">Figure <span class=\"tick\">{number}</span></p>\n<h2>{title}</h2>\n<figure>\n",
        plate.name
    );
    for (width, class) in [(WIDE, "wide"), (NARROW, "narrow")] {
        let drawing = plate.draw(width)?;
        ledger.drawing(&drawing);
        html.push_str(&drawing.inline(&plate.title, plate.description, class));
    }
    let _ = writeln!(html, "<figcaption>{}</figcaption>\n</figure>\n</section>", ledger.html(&plate.caption));
    Ok(html)
}

/// The worker's configurations in numbers.
fn configurations(run: &Report, ledger: &mut Ledger) -> String {
    let rows = worker::rows(run);
    if rows.is_empty() {
        return String::new();
    }
    ledger.enter("Configurations");
    let mut html = String::from(
        "<section id=\"configurations\">\n<h2>The worker's configurations</h2>\n<div class=\"table\">\n\
         <table class=\"stack\"><thead><tr><th scope=\"col\">Configuration</th>",
    );
    for (heading, _) in worker::COLUMNS {
        let _ = write!(html, "<th scope=\"col\" class=\"tick\">{heading}</th>");
    }
    html.push_str("</tr></thead><tbody>\n");
    for (name, values) in rows {
        let _ = write!(html, "<tr><th scope=\"row\">{}</th>", ledger.html(&name));
        for ((heading, _), value) in worker::COLUMNS.iter().zip(values) {
            let _ = write!(html, "<td class=\"number\" data-name=\"{heading}\">{}</td>", ledger.html(&value));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table>\n</div>\n</section>\n");
    html
}

fn checklist(run: &Report, ledger: &mut Ledger) -> String {
    let Some(table) = run.table("checklist.csv") else { return String::new() };
    ledger.enter("Checklist");
    let mut html = String::from(
        "<section id=\"checklist\">\n<h2>The checklist, with this run's figures</h2>\n<div class=\"table\">\n\
         <table class=\"stack\"><thead><tr><th scope=\"col\">Question</th><th scope=\"col\">Figure</th>\
         <th scope=\"col\">Verdict</th><th scope=\"col\">What follows</th><th scope=\"col\">From</th></tr></thead><tbody>\n",
    );
    for row in table.rows() {
        let value = match row.number("value") {
            Some(value) if row.is("unit", "x") => text![value, "×"],
            Some(value) => text![value, "\u{a0}", row.word("unit")],
            None => "–".into(),
        };
        let verdict = row.text("verdict");
        let class = ["good", "look"].into_iter().find(|class| *class == verdict).unwrap_or("unknown");
        let _ = writeln!(
            html,
            "<tr><th scope=\"row\">{}</th><td class=\"number\">{}</td><td><span class=\"verdict {class}\">{}</span></td>\
             <td>{}</td><td data-name=\"From\">{}</td></tr>",
            ledger.html(&row.word("question")),
            ledger.html(&value),
            escape(verdict),
            ledger.html(&row.word("advice")),
            ledger.html(&row.word("source"))
        );
    }
    html.push_str("</tbody></table>\n</div>\n</section>\n");
    html
}

/// What the files were made on and with; each of several answers once.
fn machine(run: &Report, ledger: &mut Ledger) -> String {
    ledger.enter("Machine");
    let mut html = String::from("<section id=\"machine\">\n<h2>Measured on, with</h2>\n<dl>\n");
    for (name, column) in [
        ("Model", "model"),
        ("Device", "device"),
        ("Processor", "host"),
        ("Cores", "cores"),
        ("foveate", "foveate"),
        ("Backends", "features"),
        ("Libraries", "libraries"),
        ("Date", "date"),
        ("Seed", "seed"),
    ] {
        let mut answers: Vec<Text> = Vec::new();
        for row in run.tables().flat_map(Table::rows) {
            let answer = row.word(column);
            if !answer.is_empty() && answers.iter().all(|other| other.plain() != answer.plain()) {
                answers.push(answer);
            }
        }
        if !answers.is_empty() {
            let answers = ledger.html(&Text::join(answers, "; "));
            let _ = writeln!(html, "<dt>{name}</dt><dd>{answers}</dd>");
        }
    }
    html.push_str("</dl>\n</section>\n");
    html
}

fn left_out(run: &Report) -> String {
    let missing = run.missing();
    if missing.is_empty() {
        return String::new();
    }
    let mut html = String::from("<section id=\"left-out\">\n<h2>Not in this report</h2>\n<ul>\n");
    for missing in missing {
        let (file, command) = (missing.file, escape(missing.command));
        let _ = writeln!(
            html,
            "<li>No figure from <code>{file}</code>: it is not there. <code>{command}</code> makes it.</li>"
        );
    }
    html.push_str("</ul>\n</section>\n");
    html
}

/// The table that says of every number which file, line and column it is from.
fn origins(ledger: &Ledger) -> String {
    let mut html = String::from(
        "</main>\n<footer>\n<section id=\"origins\">\n<h2>Where every number is from</h2>\n\
         <p>Point at a number to see its file, line and column. The first line of a file holds the names of its columns.</p>\n",
    );
    let mut rest = &ledger.entries[..];
    while let Some((place, _)) = rest.first() {
        let length = rest.iter().take_while(|(other, _)| other == place).count();
        let _ = write!(
            html,
            "<details><summary class=\"tick\">{place}</summary>\n<div class=\"table\" tabindex=\"0\"><table class=\"origins\"><thead><tr>\
             <th scope=\"col\">Shown</th><th scope=\"col\">File</th><th scope=\"col\">Line</th><th scope=\"col\">Column</th>\
             <th scope=\"col\">In the file</th><th scope=\"col\">How it follows</th></tr></thead><tbody>\n"
        );
        for (_, traced) in &rest[..length] {
            html.push_str(&origin_rows(traced));
        }
        html.push_str("</tbody></table></div></details>\n");
        rest = &rest[length..];
    }
    html.push_str("</section>\n</footer>\n");
    html
}

/// A number's fields: one row each, what is shown in the first.
fn origin_rows(traced: &Traced) -> String {
    let mut html = String::new();
    for (at, origin) in traced.from.iter().enumerate() {
        let (shown, how) = if at == 0 { (traced.text.as_str(), traced.how) } else { ("", "") };
        let _ = writeln!(
            html,
            "<tr data-origin=\"{origin}\"><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(shown),
            origin.file,
            origin.line,
            origin.column,
            escape(&origin.text),
            escape(how)
        );
    }
    html
}
