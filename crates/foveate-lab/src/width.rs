//! The width of what is printed.

/// Columns of the terminal that printed text fits.
pub const WIDTH: usize = 120;

/// Breaks the lines of `text` that are longer than [`WIDTH`] at blanks. What is broken off begins with `indent` blanks.
pub fn fit(text: &str, indent: usize) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut rest = line.to_owned();
        while let Some((end, _)) = rest.char_indices().nth(WIDTH) {
            let blank = rest[..=end].rfind(' ').filter(|&at| !rest[..at].trim_start().is_empty());
            // A long path is not broken.
            let Some(at) = blank.or_else(|| rest[end..].find(' ').map(|at| end + at)) else { break };
            let next = format!("{:indent$}{}", "", rest[at..].trim_start());
            rest.truncate(at);
            lines.push(std::mem::replace(&mut rest, next));
        }
        lines.push(rest);
    }
    lines.join("\n")
}

/// Returns the first `width` characters of `text`, the last one `…` if some are missing.
pub(crate) fn cut(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => format!("{}…", text.chars().take(width.saturating_sub(1)).collect::<String>().trim_end()),
        false => text.to_owned(),
    }
}

/// A column of a printed table.
pub(crate) struct PrintedColumn {
    pub(crate) heading: String,
    pub(crate) kind: ColumnKind,
    /// One for each row.
    pub(crate) cells: Vec<String>,
}

/// The kinds of columns, in the order in which they are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ColumnKind {
    /// Aligned at the left, and shortened if the table is too wide.
    Words,
    /// Aligned at the right.
    Numbers,
    /// `yes` for some rows.
    Marks,
}

/// Width below which words are not shortened.
const SHORTEST: usize = 6;

/// Returns the lines of a table within [`WIDTH`]. Rows with a reason come below it, in full: their words, what their
/// numbers are, and the reason.
pub(crate) fn grid(mut columns: Vec<PrintedColumn>, reasons: &[Option<&str>]) -> Vec<String> {
    columns.sort_by_key(|column| column.kind);
    let mut ran = Vec::new();
    let mut below = Vec::new();
    for (row, reason) in reasons.iter().enumerate() {
        match reason {
            None => ran.push(row),
            Some(reason) => below.push(told(&columns, row, reason)),
        }
    }
    for PrintedColumn { cells, .. } in &mut columns {
        *cells = ran.iter().map(|&row| std::mem::take(&mut cells[row])).collect();
    }
    columns.retain(|column| column.cells.iter().any(|cell| !cell.is_empty()));
    let mut lines = Vec::new();
    loop {
        let mut rest = Vec::new();
        let mut numbers = columns.iter().filter(|column| column.kind != ColumnKind::Words).count();
        while least_width(&columns) > WIDTH && numbers > 1 {
            // Words come first.
            rest.extend(columns.pop());
            numbers -= 1;
        }
        lines.extend(block(&columns));
        if rest.is_empty() {
            break;
        }
        // Numbers without room come below, next to the same words.
        columns.retain(|column| column.kind == ColumnKind::Words);
        columns.extend(rest.into_iter().rev());
    }
    lines.extend(below);
    lines
}

/// Returns the width of columns whose headings are broken and whose words are shortened.
fn least_width(columns: &[PrintedColumn]) -> usize {
    let mut widths = Vec::new();
    for column in columns {
        widths.push(match column.kind {
            ColumnKind::Words => longest(&column.cells).max(column.heading.chars().count()).min(SHORTEST),
            _ => longest(&column.cells).max(longest(&broken(&column.heading, 0))),
        });
    }
    total(&widths)
}

/// Returns the lines of columns that fit next to each other.
fn block(columns: &[PrintedColumn]) -> Vec<String> {
    let mut heads: Vec<Vec<String>> = columns.iter().map(|column| vec![column.heading.clone()]).collect();
    let mut widths = widths_of(columns, &heads);
    if total(&widths) > WIDTH {
        heads = columns.iter().map(|column| broken(&column.heading, longest(&column.cells))).collect();
        widths = widths_of(columns, &heads);
    }
    let words = columns.iter().filter(|column| column.kind == ColumnKind::Words).count();
    while total(&widths) > WIDTH {
        let Some(widest) = widths[..words].iter_mut().max().filter(|width| **width > SHORTEST) else { break };
        *widest -= 1;
    }
    let mut lines: Vec<Vec<&str>> = Vec::new();
    // Headings stand right above the rows.
    for from_end in (1..=heads.iter().map(Vec::len).max().unwrap_or(0)).rev() {
        let parts = heads.iter().map(|head| head.len().checked_sub(from_end).map_or("", |part| &head[part]));
        lines.push(parts.collect());
    }
    for row in 0..columns.first().map_or(0, |column| column.cells.len()) {
        lines.push(columns.iter().map(|column| column.cells[row].as_str()).collect());
    }
    let mut printed = Vec::new();
    for line in lines {
        let mut cells = Vec::new();
        for ((text, column), &width) in line.into_iter().zip(columns).zip(&widths) {
            cells.push(match column.kind {
                ColumnKind::Numbers => format!("{text:>width$}"),
                _ => format!("{:<width$}", cut(text, width)),
            });
        }
        printed.push(cells.join("  ").trim_end().to_owned());
    }
    printed
}

/// Describes a row that has a reason in place of figures.
fn told(columns: &[PrintedColumn], row: usize, reason: &str) -> String {
    let mut told = Vec::new();
    for PrintedColumn { heading, kind, cells } in columns.iter().filter(|column| !column.cells[row].is_empty()) {
        match kind {
            ColumnKind::Words => told.push(cells[row].clone()),
            ColumnKind::Numbers => told.push(format!("{heading} {}", cells[row])),
            ColumnKind::Marks => {}
        }
    }
    told.push(reason.to_owned());
    fit(&told.join("  "), 2)
}

fn widths_of(columns: &[PrintedColumn], heads: &[Vec<String>]) -> Vec<usize> {
    columns.iter().zip(heads).map(|(column, head)| longest(&column.cells).max(longest(head))).collect()
}

fn total(widths: &[usize]) -> usize {
    widths.iter().map(|width| width + 2).sum::<usize>().saturating_sub(2)
}

fn longest(lines: &[String]) -> usize {
    lines.iter().map(|line| line.chars().count()).max().unwrap_or(0)
}

/// Breaks a heading at blanks, so that it is about as wide as the column.
fn broken(heading: &str, width: usize) -> Vec<String> {
    let width = heading.split(' ').map(|word| word.chars().count()).max().unwrap_or(0).max(width);
    let mut lines: Vec<String> = Vec::new();
    for word in heading.split(' ') {
        match lines.last_mut().filter(|line| line.chars().count() + 1 + word.chars().count() <= width) {
            Some(line) => *line += &format!(" {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_at_blanks_and_long_words_are_not() {
        assert_eq!(fit("a\n\nb", 2), "a\n\nb");
        let words = "word ".repeat(40);
        let fitted = fit(&format!("head      {words}"), 10);
        let lines: Vec<&str> = fitted.lines().collect();
        assert_eq!(lines.len(), 2, "{fitted}");
        assert!(lines[1].starts_with("          word") && lines.iter().all(|line| line.chars().count() <= WIDTH));
        assert_eq!(fitted.split_whitespace().count(), 41);
        let path = "/x".repeat(80);
        assert_eq!(fit(&format!("({path}) end"), 2), format!("({path})\n  end"));
        assert_eq!(fit(&path, 2), path);
    }

    fn column(heading: &str, kind: ColumnKind, cells: [&str; 3]) -> PrintedColumn {
        PrintedColumn { heading: heading.to_owned(), kind, cells: cells.map(str::to_owned).into() }
    }

    #[test]
    fn words_come_first_and_a_row_that_did_not_run_says_why() {
        let columns = vec![
            column("workers", ColumnKind::Numbers, ["1", "2", "16"]),
            column("rate (1/s)", ColumnKind::Numbers, ["10.0", "20.5", ""]),
            column("best", ColumnKind::Marks, ["", "yes", ""]),
            column("why", ColumnKind::Words, ["a", "b", "c"]),
        ];
        let expected = [
            "why  workers  rate (1/s)  best",
            "a          1        10.0",
            "b          2        20.5  yes",
            "c  workers 16  n/a (too many)",
        ];
        assert_eq!(grid(columns, &[None, None, Some("n/a (too many)")]), expected);
    }

    #[test]
    fn a_wide_table_breaks_its_headings_and_then_shortens_its_longest_words() {
        let numbers = |n: usize| (0..n).map(|_| column("images per second", ColumnKind::Numbers, ["1", "2", "3"]));
        let words = "w".repeat(60);
        let with =
            |n| grid(numbers(n).chain([column("name", ColumnKind::Words, [&words, "b", "c"])]).collect(), &[None; 3]);
        let broken = with(6);
        assert_eq!((broken.len(), &broken[2][..4]), (6, "name"), "{broken:#?}");
        assert!(broken[0].trim_start().starts_with("images") && broken[3].contains(&words), "{broken:#?}");
        let below = with(20);
        assert_eq!(below.iter().filter(|line| line.starts_with("name")).count(), 2, "in two parts: {below:#?}");
        assert!(below.iter().all(|line| line.chars().count() <= WIDTH), "{below:#?}");
        let shortened = with(8);
        assert!(shortened[3].contains("www…") && shortened.iter().all(|line| line.chars().count() <= WIDTH));
    }

    #[test]
    fn what_is_cut_says_so() {
        assert_eq!([cut("abcd", 4), cut("abcde", 4), cut("äöü ß", 5)], ["abcd", "abc…", "äöü ß"]);
    }
}
