//! Links whose title says which field of which CSV file they show.

use std::ops::Range;

use anyhow::{Context, Result, ensure};

/// A link with a figure.
pub(super) struct Figure<'a> {
    /// Where the text stands that is shown.
    pub(super) at: Range<usize>,
    pub(super) shown: &'a str,
    pub(super) csv: &'a str,
    pub(super) title: &'a str,
}

/// Returns the links to CSV files that have a title.
pub(super) fn figures(text: &str) -> Vec<Figure<'_>> {
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
    pub(super) fn path(&self, path: &str) -> String {
        let folder: Vec<&str> = path.split('/').rev().skip(1).collect();
        let up = self.csv.matches("../").count();
        let kept = folder.into_iter().skip(up).collect::<Vec<_>>().into_iter().rev();
        kept.chain([self.csv.trim_start_matches("../")]).collect::<Vec<_>>().join("/")
    }

    /// Returns what the link has to show: a number in the form of the shown one, or the steps of a headline.
    pub(super) fn said(&self, path: &str, read: &dyn Fn(&str) -> Option<String>) -> Result<String> {
        match self.title.strip_prefix("steps ") {
            Some(conditions) => {
                let csv = self.path(path);
                let table = table(&read(&csv).with_context(|| format!("there is no {csv}"))?);
                steps(&table, conditions)
            }
            None => Ok(self.shown_as(self.value(path, read)?)),
        }
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
    pub(super) fn shown_as(&self, value: f64) -> String {
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

pub(super) fn cell<'a>(table: &[Vec<String>], row: &'a [String], column: &str) -> Option<&'a str> {
    let at = table.first()?.iter().position(|known| known == column)?;
    row.get(at).map(String::as_str)
}

/// Returns the rows that a field of a title is of: the first with a number, or all of a median, a least or a most.
pub(super) fn rows_of<'a>(table: &'a [Vec<String>], field: &str) -> Vec<&'a Vec<String>> {
    let Ok((column, mut rows)) = picked(table, field) else { return Vec::new() };
    rows.retain(|row| row[column].parse::<f64>().is_ok());
    let what = field.split_once(" where ").map_or(field, |(what, _)| what);
    if !what.contains(' ') {
        rows.truncate(1);
    }
    rows
}

/// Rows of a headline that are no steps of its ladder.
const NO_STEPS: [&str; 3] = ["baseline", "preprocessing alone", "CPU only"];

/// Describes the steps of a headline up to a number: what each changed, and its factor. `which` is `to N where …`.
fn steps(table: &[Vec<String>], which: &str) -> Result<String> {
    let (last, conditions) = which.split_once(" where ").unwrap_or((which, ""));
    let last: usize = last.strip_prefix("to ").and_then(|last| last.parse().ok()).context("no number of a step")?;
    let (step, mut rows) = picked(table, &format!("step where {conditions}"))?;
    rows.retain(|row| row[step].parse().is_ok_and(|step: usize| step <= last));
    let mut said = Vec::new();
    let mut workers = "";
    for row in rows {
        let of = |column: &str| cell(table, row, column).unwrap_or_default();
        let changed = match of("change") {
            change if NO_STEPS.contains(&change) || of("status") != "ok" => continue,
            "decoder" | "resizer" => format!("`{}`", of(of("change"))),
            "smaller scale" => format!("decode_scale={}", of("decode_scale")),
            "workers" => format!("{} workers", of("workers")),
            "batch" => format!("batches of {}", of("batch")),
            "encoder" => format!("`{}` in {}", of("encoder"), of("dtype")),
            "all combined" if of("workers") == workers => "all of them".to_owned(),
            "all combined" => format!("{} workers for all of them", of("workers")),
            other => other.to_owned(),
        };
        workers = of("workers");
        let times: f64 = of("times_previous").parse().context("times_previous")?;
        let loses = if times < 1.0 { ", a loss" } else { "" };
        let drift = of("drift").parse::<f64>().ok().filter(|drift| *drift > 0.0);
        let drift = drift.map_or_else(String::new, |drift| format!(", drift {drift:.1e}"));
        said.push(format!("{changed} ({times:.2}x{loses}{drift})"));
    }
    ensure!(!said.is_empty(), "no such step");
    Ok(said.join(", "))
}

/// Returns the value of one field of a title, or of a number.
fn value(table: &[Vec<String>], field: &str) -> Result<f64> {
    if let Ok(number) = field.parse() {
        return Ok(number);
    }
    let what = field.split_once(" where ").map_or(field, |(what, _)| what);
    let of = what.split_once(' ').map_or("", |(of, _)| of);
    let (column, _) = picked(table, field)?;
    let mut values: Vec<f64> = rows_of(table, field).iter().filter_map(|row| row[column].parse().ok()).collect();
    if !of.is_empty() {
        values = values.iter().map(|value: &f64| value.abs()).collect();
        values.sort_by(f64::total_cmp);
    }
    let middle = values.len().saturating_sub(1);
    let picked = match of {
        "" | "least" => values.first().copied(),
        "most" => values.last().copied(),
        "median" => values.get(middle / 2).zip(values.get(middle.div_ceil(2))).map(|(a, b)| f64::midpoint(*a, *b)),
        other => anyhow::bail!("'{other}' is not median, least or most"),
    };
    picked.context("no such row")
}

/// Returns the column of a field of a title, and the rows that meet its conditions.
pub(super) fn picked<'a>(table: &'a [Vec<String>], field: &str) -> Result<(usize, Vec<&'a Vec<String>>)> {
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

/// Splits a CSV file into rows of fields, its names first. What is no such file has no rows.
pub(super) fn table(csv: &str) -> Vec<Vec<String>> {
    let records = csv::ReaderBuilder::new().has_headers(false).from_reader(csv.as_bytes()).into_records();
    records.flatten().map(|record| record.iter().map(str::to_owned).collect()).collect()
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
        let said = steps(&table(csv), "to 5").unwrap();
        assert_eq!(
            said,
            "`exact` (1.36x), decode_scale=fast (1.35x), batches of 256 (0.91x, a loss), 4 workers for all of them (2.00x)"
        );
        assert!(steps(&table(csv), "to 9 where change=baseline").is_err());
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
