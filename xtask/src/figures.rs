//! Figures in the documentation that come from the example reports: links whose title says which field of which CSV
//! file each is. `[33.7](../examples/report/headline.csv "images_per_second where change=all combined")`
//!
//! A title is `COLUMN`, with `where NAME=VALUE, NAME^START` for the first row with these values, or values that begin
//! so. `median COLUMN`, `least COLUMN` and `most COLUMN` are of all these rows, without signs. `TITLE ÷ TITLE` is a
//! ratio; a title may be a number. `steps to N where …` are the steps of a headline in words.
//!
//! A number that looks measured (with the unit of a rate, a time or a ratio, or alone in a cell of a table) must be
//! such a link in README.md and docs/. `<!-- no figures: WHY -->` exempts the lines up to the next empty one.
//!
//! README's table of forwards shows every measured row of its CSV file, whoever is ahead.
//!
//! Where a row was disturbed, the paragraph says so, or the one before it or the note under the table. A table whose
//! rows come from several machines names each, by its processor or by its number of cores.

mod links;
mod stale;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

use crate::rules::TidyFinding;
use crate::tree::{TextFile, Tree, paths};

use links::{CsvTable, figures};

pub(crate) use stale::{list as stale, refuse as refuse_stale, unlisted};

/// Arguments of `cargo xtask figures`.
#[derive(clap::Args)]
pub(crate) struct FigureArgs {
    /// List the recorded files that were measured before the last change of what they measure; changes nothing
    #[arg(long)]
    stale: bool,
}

/// Writes every figure of the documentation anew, or lists the stale files.
pub(crate) fn run(root: &Path, args: &FigureArgs) -> Result<()> {
    if !args.stale {
        return update(root);
    }
    for line in stale(root)? {
        println!("{line}");
    }
    Ok(())
}

/// The comparison of forwards of which README's table shows all.
const FORWARDS: &str = "benches/runs/forward.csv";

/// Each figure is what its field says, to the last digit shown, and no forward is left out.
pub(crate) fn check(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for TextFile { path, text, .. } in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for figure in figures(text) {
            let problem = match figure.said(path, &|csv| tree.file(csv).map(|csv| csv.text.clone())) {
                Ok(said) if said == figure.shown => continue,
                Ok(said) => {
                    format!("{} is {said} in {}: `cargo xtask figures` writes it anew", figure.shown, figure.csv)
                }
                Err(problem) => format!("{}: {problem:#}", figure.title),
            };
            findings.push(TidyFinding::new(path, problem));
        }
        findings.extend(unsaid(tree, path, text));
        if path == "README.md" || path.starts_with("docs/") {
            for (line, number) in unsourced(text) {
                let problem = format!(
                    "line {line}: '{number}' has no source: link the CSV field, or say why it is none with `{EXEMPT}WHY -->`"
                );
                findings.push(TidyFinding::new(path, problem));
            }
        }
    }
    findings.extend(left_out(tree, "README.md", FORWARDS));
    findings
}

/// Begins a comment that exempts a paragraph or a table.
const EXEMPT: &str = "<!-- no figures: ";

/// Units of rates, times and ratios. Sizes, counts and shares of other things are often no measurements.
const UNITS: [&str; 10] = ["images/s", "rows/s", "/s", "MB/s", "GB/s", "ms", "µs", "x", "times as", "%"];

/// Returns the numbers that look measured and are no links to a field, with their lines.
fn unsourced(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut is_code = false;
    let mut is_exempt = false;
    let mut was_table = false;
    for (at, line) in text.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        is_exempt = !line.is_empty() && (is_exempt || line.starts_with(EXEMPT));
        let is_table = line.starts_with('|');
        if !(is_fence || is_code || is_exempt) {
            let plain = without_code_and_links(line);
            // A table's first line has its headings.
            if is_table && was_table {
                let cells = plain.split('|').skip(2).filter(|cell| is_number(cell));
                found.extend(cells.map(|cell| (at + 1, cell.trim().to_owned())));
            }
            found.extend(measured(&plain).into_iter().map(|number| (at + 1, number)));
        }
        was_table = is_table;
    }
    found
}

/// Blanks out code spans, and links with their texts.
fn without_code_and_links(line: &str) -> String {
    let mut plain = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(['`', '[']) {
        let (before, from) = rest.split_at(at);
        plain += before;
        rest = if let Some(code) = from.strip_prefix('`') {
            code.split_once('`').map_or("", |(_, after)| after)
        } else {
            let link = from.split_once("](").and_then(|(_, target)| target.split_once(')'));
            plain += if link.is_some() { "…" } else { "" };
            link.map_or(&from[1..], |(_, after)| after)
        };
    }
    plain + rest
}

/// Returns true for a cell that holds a number with decimals or digits alone, perhaps in bold.
fn is_number(cell: &str) -> bool {
    let cell = cell.trim().trim_matches(['*', '~', '<', '>', '+', '-', '−']);
    cell.starts_with(|c: char| c.is_ascii_digit()) && cell.chars().all(|c| c.is_ascii_digit() || ".,–% ".contains(c))
}

/// Returns the numbers of a line that are followed by a unit of measurements.
fn measured(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(start) = line[from..].find(|c: char| c.is_ascii_digit()).map(|at| from + at) {
        let rest = &line[start..];
        let end = start + rest.find(|c: char| !(c.is_ascii_digit() || ".,–".contains(c))).unwrap_or(rest.len());
        let is_word = line[..start].ends_with(|c: char| c.is_alphanumeric() || "-/._=×".contains(c));
        let after = line[end..].strip_prefix([' ', '\u{a0}']).unwrap_or(&line[end..]);
        for unit in UNITS.iter().filter(|_| !is_word) {
            let Some(behind) = after.strip_prefix(unit) else { continue };
            let is_size = *unit == "x" && behind.trim_start().starts_with(|c: char| c.is_ascii_digit());
            if !is_size && !behind.starts_with(|c: char| c.is_alphanumeric()) {
                found.push(format!("{} {unit}", &line[start..end]));
                break;
            }
        }
        from = end;
    }
    found
}

/// Returns the measured forwards that the tables of the document at `path` leave out.
fn left_out(tree: &Tree, path: &str, csv: &str) -> Option<TidyFinding> {
    let table = CsvTable::parse(&tree.file(csv)?.text);
    let tables: String = tree.file(path)?.text.split_inclusive('\n').filter(|line| line.starts_with('|')).collect();
    let mut shown = Vec::new();
    for figure in figures(&tables).iter().filter(|figure| figure.path(path) == csv) {
        shown.extend(table.picked(figure.title).ok().and_then(|(_, rows)| rows.first().copied()));
    }
    let mut left_out = Vec::new();
    for row in table.rows.iter().filter(|row| table.cell(row, "status") == Some("ok") && !shown.contains(row)) {
        left_out.push(row.iter().collect::<Vec<_>>().join(","));
    }
    let rows = left_out.join("; ");
    (!rows.is_empty())
        .then(|| TidyFinding::new(path, format!("no figure in a table is of these rows of {csv}: {rows}")))
}

/// Writes every figure of the documentation anew.
pub(crate) fn update(root: &Path) -> Result<()> {
    for path in paths(root)?.into_iter().filter(|path| path.ends_with(".md")) {
        let Ok(text) = std::fs::read_to_string(root.join(&path)) else { continue };
        let mut anew = text.clone();
        for figure in figures(&text).into_iter().rev() {
            let said = figure.said(&path, &|path| std::fs::read_to_string(root.join(path)).ok());
            let said = said.with_context(|| format!("{path}: {}", figure.title))?;
            anew.replace_range(figure.at.clone(), &said);
        }
        if anew != text {
            std::fs::write(root.join(&path), anew).with_context(|| format!("cannot write {path}"))?;
        }
    }
    Ok(())
}

/// Returns what the text around the figures of a document does not say of their rows: that they were disturbed, or
/// which machines a table compares.
fn unsaid(tree: &Tree, path: &str, text: &str) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    let blocks: Vec<&str> = text.split("\n\n").collect();
    for (at, block) in blocks.iter().enumerate() {
        let is_table = block.lines().any(|line| line.starts_with('|'));
        // The paragraph before a block introduces it; the one after a table is its note.
        let around = &blocks[at.saturating_sub(1)..(at + 1 + usize::from(is_table)).min(blocks.len())];
        let around = around.join("\n").replace('\n', " ");
        let mut machines = BTreeSet::new();
        let mut disturbed = None;
        for figure in figures(block) {
            let csv = figure.path(path);
            let Some(file) = tree.file(&csv) else { continue };
            let table = CsvTable::parse(&file.text);
            for field in figure.title.split(" ÷ ") {
                for row in table.rows_of(field) {
                    let machine = table.cell(row, "host").zip(table.cell(row, "cores"));
                    machines.extend(machine.map(|(host, cores)| (host.to_owned(), cores.to_owned())));
                    if table.cell(row, "disturbed").is_some_and(|reason| !reason.is_empty()) {
                        disturbed = Some(csv.clone());
                    }
                }
            }
        }
        let line = 1 + text[..block.as_ptr() as usize - text.as_ptr() as usize].matches('\n').count();
        if let Some(csv) = disturbed.filter(|_| !around.contains("disturbed")) {
            let message = format!(
                "line {line}: rows of {csv} were disturbed: say so in the paragraph or under the table, or measure them anew"
            );
            findings.push(TidyFinding::new(path, message));
        }
        let mut unnamed = machines.iter().filter(|(host, cores)| !around.contains(host) && !says_cores(&around, cores));
        if let Some((host, cores)) = unnamed.next().filter(|_| is_table && machines.len() > 1) {
            let message = format!("line {line}: a table of several machines: name the one with {cores} cores ({host})");
            findings.push(TidyFinding::new(path, message));
        }
    }
    findings
}

/// Returns true if `text` names a machine of so many cores.
fn says_cores(text: &str, cores: &str) -> bool {
    const WORDS: [&str; 9] = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight"];
    let word = cores.parse().ok().and_then(|cores: usize| WORDS.get(cores)).copied().unwrap_or(cores);
    [cores, word].iter().any(|cores| text.contains(&format!("{cores} cores")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::assert_finds;
    use crate::tree::fake::{self, add_file};

    const CSV: &str =
        "change,photos,rate,error\nslow,\"large, 1 MP\",10.04,-0.2\nfast,\"large, 1 MP\",25,0.1\nfast,small,50,0.4\n";

    fn with(text: &str) -> Tree {
        let mut tree = fake::tree();
        add_file(&mut tree, "docs/page.md", text);
        add_file(&mut tree, "examples/run/a.csv", CSV);
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
    fn the_text_tells_what_its_rows_are() {
        let csv = "of,rate,host,cores,disturbed\na,1,Xeon,2,\nb,2,Xeon,16,\nc,3,Xeon,2,\"others, busy\"\n";
        let with = |text: &str| {
            let mut tree = with(text);
            add_file(&mut tree, "examples/run/b.csv", csv);
            tree
        };
        let figure = |of: &str, rate| format!("[{rate}](../examples/run/b.csv \"rate where of={of}\")");
        let [quiet, large, disturbed] = [("a", 1), ("b", 2), ("c", 3)].map(|(of, rate)| figure(of, rate));
        for right in [
            format!("It is {quiet}, and {large} elsewhere."),
            format!("It is {disturbed}, but the machine was disturbed."),
            format!("Disturbed runs, and so disturbed rows:\n\n- {disturbed}"),
            format!("| a |\n|---|\n| {disturbed} |\n\nThe row was disturbed."),
            format!("| two cores | 16 cores |\n|---|---|\n| {quiet} | {large} |"),
        ] {
            assert!(check(&with(&right)).is_empty(), "{right}");
        }
        for (wrong, why) in [
            (format!("It is {disturbed}."), "rows of examples/run/b.csv were disturbed"),
            (format!("It is {disturbed}.\n\nAnother paragraph: disturbed."), "line 1: rows of"),
            (format!("| 2 cores | more |\n|---|---|\n| {quiet} | {large} |"), "name the one with 16 cores (Xeon)"),
        ] {
            assert_finds(check, &with(&wrong), why);
        }
    }

    #[test]
    fn no_forward_is_left_out() {
        let row = |of: &str, rate| format!("| {of} | [{rate}](benches/runs/forward.csv \"rate where of={of}\") |\n");
        let with = |readme: &str| {
            let mut tree = fake::tree();
            let csv = "of,status,rate\nours,ok,1\nrival,ok,2\nabsent,n/a (no module),\n";
            add_file(&mut tree, "benches/runs/forward.csv", csv);
            add_file(&mut tree, "README.md", readme);
            tree
        };
        let ours = row("ours", 1);
        let rival = row("rival", 2);
        assert!(check(&with(&format!("{ours}{rival}"))).is_empty());
        for incomplete in [format!("{ours}{}", &rival[1..]), ours, "| ours | – |\n| rival | – |\n".to_owned()] {
            assert_finds(check, &with(&incomplete), "rival,ok,2");
        }
    }
}
