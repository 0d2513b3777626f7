//! Figures in the documentation that come from the example reports: links whose title says which field of which CSV
//! file each is. `[33.7](../examples/report/headline.csv "images_per_second where change=all combined")`
//!
//! A title is `COLUMN`, with `where NAME=VALUE, NAME^START` for the first row with these values, or values that begin
//! so. `median COLUMN`, `least COLUMN` and `most COLUMN` are of all these rows, without signs. `TITLE ÷ TITLE` is a
//! ratio; a title may be a number.
//!
//! A number that looks measured (with the unit of a rate, a time or a ratio, or alone in a cell of a table) must be
//! such a link in README.md and docs/. `<!-- no figures: WHY -->` exempts the lines up to the next empty one.
//!
//! The documents that compare forwards show every measured row of that comparison's CSV file in their tables, whoever
//! is ahead.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result};

use crate::rules::Finding;
use crate::tree::{Tree, paths};

/// The comparison of forwards, and the documents whose tables show all of it.
const FORWARDS: &str = "benches/runs/forward.csv";
const WITH_FORWARDS: [&str; 2] = ["README.md", "docs/backends.md"];

/// Each figure is what its field says, to the last digit shown, and no forward is left out.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for figure in figures(&file.text) {
            let read = |path: &str| tree.file(path).map(|csv| csv.text.clone());
            let said = figure.value(&file.path, &read).map(|value| figure.shown_as(value));
            let message = match said {
                Ok(said) if said == figure.shown => continue,
                Ok(said) => {
                    format!("{} is {said} in {}: `cargo xtask report` writes it anew", figure.shown, figure.csv)
                }
                Err(problem) => format!("{}: {problem:#}", figure.title),
            };
            findings.push(Finding::new(&file.path, message));
        }
    }
    findings.extend(WITH_FORWARDS.into_iter().filter_map(|path| left_out(tree, path)));
    let guides = tree.files.iter().filter(|file| file.path == "README.md" || is_guide(&file.path));
    for file in guides {
        findings.extend(unsourced(&file.text).into_iter().map(|(line, number)| {
            let message = format!(
                "line {line}: '{number}' has no source: link the CSV field, or say why it is none with `{EXEMPT}WHY -->`"
            );
            Finding::new(&file.path, message)
        }));
    }
    findings
}

fn is_guide(path: &str) -> bool {
    path.strip_prefix("docs/").is_some_and(|name| name.ends_with(".md"))
}

/// Begins a comment that exempts a paragraph or a table.
const EXEMPT: &str = "<!-- no figures: ";

/// Units of rates, times and ratios. Sizes, counts and shares of other things are often no measurements.
const UNITS: [&str; 10] = ["images/s", "rows/s", "/s", "MB/s", "GB/s", "ms", "µs", "x", "times as", "%"];

/// Returns the numbers that look measured and are no links to a field, with their lines.
fn unsourced(text: &str) -> Vec<(usize, String)> {
    let (mut found, mut is_code, mut is_exempt, mut was_table) = (Vec::new(), false, false, false);
    for (at, line) in text.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        is_exempt = !line.is_empty() && (is_exempt || line.starts_with(EXEMPT));
        let is_table = line.starts_with('|');
        if !(is_fence || is_code || is_exempt) {
            let plain = without_code_and_links(line);
            // A table's first line has its headings.
            let cells = plain.split('|').skip(2).filter(|_| is_table && was_table).filter(|cell| is_number(cell));
            found.extend(cells.map(|cell| (at + 1, cell.trim().to_owned())));
            found.extend(measured(&plain).into_iter().map(|number| (at + 1, number)));
        }
        was_table = is_table;
    }
    found
}

/// Blanks out code spans, and links with their texts.
fn without_code_and_links(line: &str) -> String {
    let (mut plain, mut is_code) = (String::new(), false);
    let mut rest = line;
    while let Some(at) = rest.find(['`', '[']) {
        let link = rest[at..].starts_with('[').then(|| rest[at..].find("](").zip(rest[at..].find(')'))).flatten();
        if !is_code {
            plain.push_str(&rest[..at]);
        }
        let next = match link.filter(|_| !is_code) {
            Some((middle, _)) => {
                plain.push('…');
                middle + rest[at + middle..].find(')').map_or(1, |end| end + 1)
            }
            None => {
                is_code ^= rest[at..].starts_with('`');
                1
            }
        };
        rest = &rest[at + next..];
    }
    if !is_code {
        plain.push_str(rest);
    }
    plain
}

/// Returns true for a cell that holds a number with decimals or digits alone, perhaps in bold.
fn is_number(cell: &str) -> bool {
    let cell = cell.trim().trim_matches(['*', '~', '<', '>', '+', '-', '−']);
    cell.starts_with(|c: char| c.is_ascii_digit()) && cell.chars().all(|c| c.is_ascii_digit() || ".,–% ".contains(c))
}

/// Returns the numbers of a line that are followed by a unit of measurements.
fn measured(line: &str) -> Vec<String> {
    let (mut found, mut from) = (Vec::new(), 0);
    while let Some(start) = line[from..].find(|c: char| c.is_ascii_digit()).map(|at| from + at) {
        let end = line[start..]
            .find(|c: char| !(c.is_ascii_digit() || ".,–".contains(c)))
            .map_or(line.len(), |at| start + at);
        let is_word = line[..start].ends_with(|c: char| c.is_alphanumeric() || "-/._=×".contains(c));
        let after = line[end..].strip_prefix([' ', '\u{a0}']).unwrap_or(&line[end..]);
        let unit = UNITS.iter().find(|unit| {
            let behind = after.strip_prefix(**unit);
            let is_size = |behind: &str| **unit == "x" && behind.trim_start().starts_with(|c: char| c.is_ascii_digit());
            behind.is_some_and(|behind| !behind.starts_with(|c: char| c.is_alphanumeric()) && !is_size(behind))
        });
        if let Some(unit) = unit.filter(|_| !is_word) {
            found.push(format!("{} {unit}", &line[start..end]));
        }
        from = end;
    }
    found
}

/// Returns the measured forwards that the tables of the document at `path` leave out.
fn left_out(tree: &Tree, path: &str) -> Option<Finding> {
    let rows = table(&tree.file(FORWARDS)?.text);
    let tables: String = tree.file(path)?.text.split_inclusive('\n').filter(|line| line.starts_with('|')).collect();
    let figures = figures(&tables);
    let fields = figures.iter().filter(|figure| figure.path(path) == FORWARDS).map(|figure| figure.title);
    let shown: Vec<&Vec<String>> = fields.filter_map(|field| picked(&rows, field).ok()?.1.first().copied()).collect();
    let status = rows.first()?.iter().position(|name| name == "status")?;
    let is_left_out = |row: &&Vec<String>| row[status] == "ok" && !shown.iter().any(|shown| std::ptr::eq(*shown, *row));
    let left_out: Vec<String> = rows[1..].iter().filter(is_left_out).map(|row| row.join(",")).collect();
    let message = || format!("no figure in a table is of these rows of {FORWARDS}: {}", left_out.join("; "));
    (!left_out.is_empty()).then(|| Finding::new(path, message()))
}

/// Writes every figure of the documentation anew.
pub(crate) fn update(root: &Path) -> Result<()> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    for path in paths(root)?.into_iter().filter(|path| path.ends_with(".md")) {
        let Some(text) = read(&path) else { continue };
        let mut anew = text.clone();
        for figure in figures(&text).into_iter().rev() {
            let value = figure.value(&path, &read).with_context(|| format!("{path}: {}", figure.title))?;
            anew.replace_range(figure.at.clone(), &figure.shown_as(value));
        }
        if anew != text {
            std::fs::write(root.join(&path), anew).with_context(|| format!("cannot write {path}"))?;
        }
    }
    Ok(())
}

/// A link with a figure.
struct Figure<'a> {
    /// Where the text stands that is shown.
    at: Range<usize>,
    shown: &'a str,
    csv: &'a str,
    title: &'a str,
}

/// Returns the links to CSV files that have a title.
fn figures(text: &str) -> Vec<Figure<'_>> {
    let figure = |(at, _): (usize, &str)| {
        let (start, rest) = (text[..at].rfind('[')? + 1, &text[at + 2..]);
        let (csv, title) = rest[..rest.find(')')?].split_once(" \"")?;
        let title = title.strip_suffix('"').filter(|_| csv.ends_with(".csv"))?;
        Some(Figure { at: start..at, shown: &text[start..at], csv, title })
    };
    text.match_indices("](").filter_map(figure).collect()
}

impl Figure<'_> {
    /// Returns the path of the CSV file, of the document at `path`.
    fn path(&self, path: &str) -> String {
        let folder: Vec<&str> = path.split('/').rev().skip(1).collect();
        let up = self.csv.matches("../").count();
        let kept = folder.into_iter().skip(up).collect::<Vec<_>>().into_iter().rev();
        kept.chain([self.csv.trim_start_matches("../")]).collect::<Vec<_>>().join("/")
    }

    /// Returns the value that the title asks for, of the file beside the document at `path`.
    fn value(&self, path: &str, read: &dyn Fn(&str) -> Option<String>) -> Result<f64> {
        let csv = self.path(path);
        let table = table(&read(&csv).with_context(|| format!("there is no {csv}"))?);
        let mut values = self.title.split(" ÷ ").map(|field| self::value(&table, field));
        let first = values.next().context("no field")??;
        values.try_fold(first, |value, by| Ok(value / by?))
    }

    /// Formats `value` with the decimals, the exponent, the groups of thousands and the unit of what is shown.
    fn shown_as(&self, value: f64) -> String {
        let is_group =
            |at: usize, c: char| ", ".contains(c) && self.shown[at + 1..].starts_with(|c: char| c.is_ascii_digit());
        let is_number = |(at, c): (usize, char)| c.is_ascii_digit() || "+-.e".contains(c) || is_group(at, c);
        let end = self.shown.char_indices().find(|&at| !is_number(at)).map_or(self.shown.len(), |(at, _)| at);
        let (number, unit) = self.shown.split_at(end);
        let value = if unit.trim() == "%" { 100.0 * value } else { value };
        let mantissa = number.split('e').next().unwrap_or_default();
        let decimals = mantissa.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        if number.contains('e') {
            return format!("{value:.decimals$e}{unit}");
        }
        let plain = format!("{value:.decimals$}");
        match number.find([',', ' ']) {
            Some(at) => grouped(&plain, &number[at..=at]) + unit,
            None => plain + unit,
        }
    }
}

/// Puts `between` before every third digit from the point on.
fn grouped(number: &str, between: &str) -> String {
    let (whole, rest) = number.split_at(number.find('.').unwrap_or(number.len()));
    let digit = |(at, c): (usize, char)| {
        let is_first = at == 0 || (whole.len() - at) % 3 != 0;
        format!("{}{c}", if is_first { "" } else { between })
    };
    whole.char_indices().map(digit).collect::<String>() + rest
}

/// Returns the value of one field of a title, or of a number.
fn value(table: &[Vec<String>], field: &str) -> Result<f64> {
    if let Ok(number) = field.parse() {
        return Ok(number);
    }
    let what = field.split_once(" where ").map_or(field, |(what, _)| what);
    let of = what.split_once(' ').map_or("", |(of, _)| of);
    let (column, rows) = picked(table, field)?;
    let mut values: Vec<f64> = rows.iter().filter_map(|row| row[column].parse().ok()).collect();
    if !of.is_empty() {
        values = values.iter().map(|value: &f64| value.abs()).collect();
        values.sort_by(f64::total_cmp);
    }
    let middle = values.len().saturating_sub(1);
    let picked = match of {
        "" => values.first().copied(),
        "least" => values.first().copied(),
        "most" => values.last().copied(),
        "median" => values.get(middle / 2).zip(values.get(middle.div_ceil(2))).map(|(a, b)| f64::midpoint(*a, *b)),
        other => anyhow::bail!("'{other}' is not median, least or most"),
    };
    picked.context("no such row")
}

/// Returns the column of a field of a title, and the rows that meet its conditions.
fn picked<'a>(table: &'a [Vec<String>], field: &str) -> Result<(usize, Vec<&'a Vec<String>>)> {
    let (what, conditions) = field.split_once(" where ").unwrap_or((field, ""));
    let column = what.split_once(' ').map_or(what, |(_, column)| column);
    let header = table.first().context("an empty file")?;
    let at = |name: &str| header.iter().position(|known| known == name).with_context(|| format!("no column {name}"));
    let column = at(column)?;
    let mut rows: Vec<&Vec<String>> = table[1..].iter().collect();
    for condition in conditions.split(", ").filter(|condition| !condition.is_empty()) {
        let split = condition.find(['=', '^']).with_context(|| format!("no = or ^ in '{condition}'"))?;
        let (name, wanted) = (at(&condition[..split])?, &condition[split + 1..]);
        let is_start = condition[split..].starts_with('^');
        rows.retain(|row| if is_start { row[name].starts_with(wanted) } else { row[name] == wanted });
    }
    Ok((column, rows))
}

/// Splits a CSV file into rows of fields.
fn table(csv: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut field, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    for c in csv.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut field)),
            '\n' if !quoted => {
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
            }
            '\r' if !quoted => {}
            c => field.push(c),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::assert_finds;
    use crate::tree::TextFile;
    use crate::tree::fake::{self, add_file};

    const CSV: &str =
        "change,photos,rate,error\nslow,\"large, 1 MP\",10.04,-0.2\nfast,\"large, 1 MP\",25,0.1\nfast,small,50,0.4\n";

    fn with(text: &str) -> Tree {
        let mut tree = fake::tree();
        let file = |path: &str, text: &str| TextFile { path: path.to_owned(), text: text.to_owned() };
        tree.files.extend([file("docs/page.md", text), file("examples/run/a.csv", CSV)]);
        tree
    }

    #[test]
    fn figures_are_what_their_fields_say() {
        for right in [
            "[10.0](../examples/run/a.csv \"rate where change=slow\")",
            "[50](../examples/run/a.csv \"rate where change=fast, photos^sm\")",
            "[2.5x](../examples/run/a.csv \"rate where change=fast ÷ rate where change=slow\")",
            "[20 %](../examples/run/a.csv \"median error\") and [40 %](../examples/run/a.csv \"most error\")",
            "[rows](../examples/run/a.csv)",
        ] {
            assert!(check(&with(right)).is_empty(), "{right}");
        }
        for (wrong, why) in [
            ("[11.0](../examples/run/a.csv \"rate where change=slow\")", "11.0 is 10.0 in"),
            ("[1](../examples/run/b.csv \"rate\")", "there is no examples/run/b.csv"),
            ("[1](../examples/run/a.csv \"speed\")", "no column speed"),
            ("[1](../examples/run/a.csv \"rate where change=none\")", "no such row"),
        ] {
            assert_finds(check, &with(wrong), why);
        }
    }

    #[test]
    fn what_looks_measured_needs_a_source() {
        let link = "[7](a.csv \"rate\")";
        for right in [
            "It has 3 workers, at most `64 MB/s`, [12 ms](x.md) and version 1.2.",
            "```\n12 ms\n```",
            "| a | ms |\n|---|---|\n| 12 | as fast |",
            &format!("| a | b |\n|---|---|\n| 256 px | {link} |\nand {link} ms"),
            "<!-- no figures: limits -->\n| a | b |\n|---|---|\n| x | 12 |\n\n",
        ] {
            assert_eq!(unsourced(right), [], "{right}");
        }
        for (wrong, line, number) in [
            ("It takes 12 ms.", 1, "12 ms"),
            ("a\nIt is 1.9x as fast", 2, "1.9 x"),
            ("| a | b |\n|---|---|\n| x | **3.4** |", 3, "**3.4**"),
            ("<!-- no figures: limits -->\n12 ms\n\n13 ms", 4, "13 ms"),
            ("`code` and 5 % of it", 1, "5 %"),
        ] {
            assert_eq!(unsourced(wrong), [(line, number.to_owned())], "{wrong}");
        }
    }

    #[test]
    fn no_forward_is_left_out() {
        let row = |of: &str, rate| format!("| {of} | [{rate}](benches/runs/forward.csv \"rate where of={of}\") |\n");
        let with = |readme: &str| {
            let mut tree = fake::tree();
            let csv = "of,status,rate\nours,ok,1\nrival,ok,2\nabsent,n/a (no module),\n";
            add_file(&mut tree, FORWARDS, csv);
            add_file(&mut tree, "README.md", readme);
            tree
        };
        let (ours, rival) = (row("ours", 1), row("rival", 2));
        assert!(check(&with(&format!("{ours}{rival}"))).is_empty());
        for incomplete in [format!("{ours}{}", &rival[1..]), ours, "| ours | – |\n| rival | – |\n".to_owned()] {
            assert_finds(check, &with(&incomplete), "rival,ok,2");
        }
    }

    #[test]
    fn a_figure_keeps_its_decimals_and_unit() {
        let figure = |shown| Figure { at: 0..0, shown, csv: "", title: "" };
        assert_eq!(
            ["7", "7.0", "7.00x", "7 %", "7.0e-3 s"].map(|shown| figure(shown).shown_as(1.234)),
            ["1", "1.2", "1.23x", "123 %", "1.2e0 s"]
        );
        assert_eq!(
            ["1,000", "1 000 rows", "12 rows"].map(|shown| figure(shown).shown_as(1_234_567.0)),
            ["1,234,567", "1 234 567 rows", "1234567 rows"]
        );
    }
}
