//! Links whose title says which field of which CSV file they show.

use std::ops::Range;

use anyhow::{Context, Result, bail, ensure};
use csv::StringRecord;

/// A link with a figure.
pub(super) struct FigureLink<'a> {
    /// Place of the text that is shown.
    pub(super) at: Range<usize>,
    pub(super) shown: &'a str,
    pub(super) csv: &'a str,
    pub(super) title: &'a str,
}

/// Returns the links to CSV files that have a title.
pub(super) fn figures(text: &str) -> Vec<FigureLink<'_>> {
    text.match_indices("](").filter_map(|(at, _)| figure(text, at)).collect()
}

/// Returns the figure of a link whose text ends at `at`.
fn figure(text: &str, at: usize) -> Option<FigureLink<'_>> {
    let start = text[..at].rfind('[')? + 1;
    let rest = &text[at + 2..];
    let (csv, title) = rest[..rest.find(')')?].split_once(" \"")?;
    let title = title.strip_suffix('"').filter(|_| csv.ends_with(".csv"))?;
    Some(FigureLink { at: start..at, shown: &text[start..at], csv, title })
}

impl FigureLink<'_> {
    /// Returns the path of the CSV file, of the document at `path`.
    pub(super) fn path(&self, path: &str) -> String {
        let mut folders: Vec<&str> = path.split('/').collect();
        folders.truncate(folders.len().saturating_sub(1 + self.csv.matches("../").count()));
        folders.push(self.csv.trim_start_matches("../"));
        folders.join("/")
    }

    /// Returns what the link has to show, of a file that `read` reads: a number in the form of the shown one, a commit,
    /// a date, or the steps of a headline.
    pub(super) fn said(&self, path: &str, read: &dyn Fn(&str) -> Option<String>) -> Result<String> {
        let csv = self.path(path);
        let table = CsvTable::parse(&read(&csv).with_context(|| format!("there is no {csv}"))?);
        if let Some(conditions) = self.title.strip_prefix("steps ") {
            return table.steps(conditions);
        }
        if TEXTS.contains(&what(self.title)) {
            let (column, rows) = table.picked(self.title)?;
            return Ok(rows.first().context("no such row")?[column].to_owned());
        }
        let mut fields = self.title.split(" ÷ ");
        let mut value = table.value(fields.next().unwrap_or_default())?;
        for field in fields {
            value /= table.value(field)?;
        }
        Ok(self.shown_as(value))
    }

    /// Formats `value` with the decimals, the exponent, the groups of thousands and the unit of what is shown.
    fn shown_as(&self, value: f64) -> String {
        let mut end = self.shown.len();
        for (at, c) in self.shown.char_indices() {
            let is_group = ", ".contains(c) && self.shown[at + 1..].starts_with(|c: char| c.is_ascii_digit());
            if !is_group && !c.is_ascii_digit() && !"+-.e".contains(c) {
                end = at;
                break;
            }
        }
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
    let mut text = String::new();
    for (at, digit) in whole.char_indices() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            text += between;
        }
        text.push(digit);
    }
    text + rest
}

/// Columns whose fields are shown as they are.
const TEXTS: [&str; 2] = ["commit", "date"];

/// A CSV file. What is no such file has no columns and no rows.
pub(super) struct CsvTable {
    header: StringRecord,
    pub(super) rows: Vec<StringRecord>,
}

/// Rows of a headline that are no steps of its ladder.
const NO_STEPS: [&str; 3] = ["baseline", "preprocessing alone", "CPU only"];

impl CsvTable {
    pub(super) fn parse(text: &str) -> Self {
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let header = reader.headers().cloned().unwrap_or_default();
        Self { header, rows: reader.into_records().flatten().collect() }
    }

    pub(super) fn cell<'a>(&self, row: &'a StringRecord, column: &str) -> Option<&'a str> {
        row.get(self.column(column).ok()?)
    }

    fn column(&self, name: &str) -> Result<usize> {
        self.header.iter().position(|known| known == name).with_context(|| format!("no column {name}"))
    }

    /// Returns the rows that a field of a title is of: the first with a number, or all of a median, a least or a most.
    pub(super) fn rows_of(&self, field: &str) -> Vec<&StringRecord> {
        let Ok((column, mut rows)) = self.picked(field) else { return Vec::new() };
        rows.retain(|row| row[column].parse::<f64>().is_ok());
        if !what(field).contains(' ') {
            rows.truncate(1);
        }
        rows
    }

    /// Describes the steps of a headline up to a number: what each changed, and its factor. `which` is `to N where …`.
    fn steps(&self, which: &str) -> Result<String> {
        let (last, conditions) = which.split_once(" where ").unwrap_or((which, ""));
        let last: usize = last.strip_prefix("to ").and_then(|last| last.parse().ok()).context("no number of a step")?;
        let (step, rows) = self.picked(&format!("step where {conditions}"))?;
        let mut said = Vec::new();
        let mut workers = "";
        for row in rows {
            let [change, status, decoder, resizer, encoder, scale, now, batch, dtype, drift] = [
                "change",
                "status",
                "decoder",
                "resizer",
                "encoder",
                "decode_scale",
                "workers",
                "batch",
                "dtype",
                "drift",
            ]
            .map(|column| self.cell(row, column).unwrap_or_default());
            let is_later = row[step].parse().map_or(true, |step: usize| step > last);
            if is_later || NO_STEPS.contains(&change) || status != "ok" {
                continue;
            }
            let changed = match change {
                "decoder" => format!("`{decoder}`"),
                "resizer" => format!("`{resizer}`"),
                "smaller scale" => format!("decode_scale={scale}"),
                "workers" => format!("{now} workers"),
                "batch" => format!("batches of {batch}"),
                "encoder" => format!("`{encoder}` in {dtype}"),
                "all combined" if now == workers => "all of them".to_owned(),
                "all combined" => format!("{now} workers for all of them"),
                other => other.to_owned(),
            };
            workers = now;
            let times = self.cell(row, "times_previous").unwrap_or_default();
            let times: f64 = times.parse().context("times_previous")?;
            let loses = if times < 1.0 { ", a loss" } else { "" };
            let drift = drift.parse::<f64>().ok().filter(|drift| *drift > 0.0);
            let drift = drift.map_or_else(String::new, |drift| format!(", drift {drift:.1e}"));
            said.push(format!("{changed} ({times:.2}x{loses}{drift})"));
        }
        ensure!(!said.is_empty(), "no such step");
        Ok(said.join(", "))
    }

    /// Returns the value of one field of a title, or of a number.
    fn value(&self, field: &str) -> Result<f64> {
        if let Ok(number) = field.parse() {
            return Ok(number);
        }
        let (column, _) = self.picked(field)?;
        let mut values: Vec<f64> = self.rows_of(field).iter().filter_map(|row| row[column].parse().ok()).collect();
        let of = what(field).split_once(' ').map_or("", |(of, _)| of);
        if !of.is_empty() {
            values.iter_mut().for_each(|value| *value = value.abs());
            values.sort_by(f64::total_cmp);
        }
        ensure!(!values.is_empty(), "no such row");
        let last = values.len() - 1;
        Ok(match of {
            "" | "least" => values[0],
            "most" => values[last],
            "median" => f64::midpoint(values[last / 2], values[last.div_ceil(2)]),
            other => bail!("'{other}' is not median, least or most"),
        })
    }

    /// Returns the column of a field of a title, and the rows that meet its conditions.
    pub(super) fn picked(&self, field: &str) -> Result<(usize, Vec<&StringRecord>)> {
        let column = what(field);
        let column = self.column(column.split_once(' ').map_or(column, |(_, column)| column))?;
        let conditions = field.split_once(" where ").map_or("", |(_, conditions)| conditions);
        let mut rows: Vec<&StringRecord> = self.rows.iter().collect();
        for condition in conditions.split(", ").filter(|condition| !condition.is_empty()) {
            let split = condition.find(['=', '^']).with_context(|| format!("no = or ^ in '{condition}'"))?;
            let name = self.column(&condition[..split])?;
            let wanted = &condition[split + 1..];
            let is_start = condition[split..].starts_with('^');
            rows.retain(|row| if is_start { row[name].starts_with(wanted) } else { row[name] == *wanted });
        }
        Ok((column, rows))
    }
}

/// The part of a field before its conditions.
fn what(field: &str) -> &str {
    field.split_once(" where ").map_or(field, |(what, _)| what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_what_the_rows_changed() {
        let csv = "step,change,decoder,decode_scale,workers,batch,status,times_previous\n\
                   0,baseline,image,exact,1,32,ok,\n1,decoder,exact,exact,1,32,ok,1.36\n\
                   2,resizer,,,,,n/a (none is faster),\n3,smaller scale,exact,fast,1,32,ok,1.352\n\
                   4,batch,exact,fast,1,256,ok,0.913\n5,all combined,exact,fast,4,256,ok,2\n6,CPU only,exact,fast,4,256,ok,0.1\n";
        let said = CsvTable::parse(csv).steps("to 5").unwrap();
        assert_eq!(
            said,
            "`exact` (1.36x), decode_scale=fast (1.35x), batches of 256 (0.91x, a loss), 4 workers for all of them (2.00x)"
        );
        assert!(CsvTable::parse(csv).steps("to 9 where change=baseline").is_err());
    }

    #[test]
    fn a_commit_is_shown_as_it_is() {
        let csv = "commit,rate\n1234567890e4,7\n";
        let figure = |title| FigureLink { at: 0..0, shown: "1", csv: "runs.csv", title };
        let said = |title| figure(title).said("README.md", &|_| Some(csv.to_owned()));
        assert_eq!([said("commit").unwrap(), said("rate").unwrap()], ["1234567890e4", "7"]);
        assert!(said("commit where rate=8").is_err());
    }

    #[test]
    fn a_figure_keeps_its_decimals_and_unit() {
        let figure = |shown| FigureLink { at: 0..0, shown, csv: "", title: "" };
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
