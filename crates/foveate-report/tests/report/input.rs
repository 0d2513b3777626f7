//! What is wrong with a file is said: which, where, what, and what to do.

use std::path::Path;

use crate::common::{files, fixture, some};
use foveate_report::{Report, ReportError};

#[test]
fn a_folder_without_results_says_what_was_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("other.csv"), "a,b\n1,2\n").unwrap();
    for folder in [folder.path(), Path::new("does/not/exist")] {
        let error = Report::read(folder).unwrap_err();
        assert!(matches!(error, ReportError::Nothing { .. }), "{error:?}");
        let message = error.to_string();
        assert!(message.contains(&folder.display().to_string()), "{message}");
        assert!(message.contains("`foveate bench all --quick --out DIR`"), "{message}");
        for file in files() {
            assert!(message.contains(&file), "{message}");
        }
    }
}

/// Reads one file of the fixture after `change`, and returns the message.
fn message(file: &str, change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> String {
    let folder = some(&[file]);
    let path = folder.path().join(file);
    std::fs::write(&path, change(std::fs::read(&path).unwrap())).unwrap();
    let read = Report::read(folder.path()).and_then(|report| report.html());
    let message = read.map(|_| ()).unwrap_err().to_string();
    assert!(message.contains(file) && message.contains("Rerun `foveate "), "{message}");
    message
}

fn text(change: impl FnOnce(String) -> String) -> impl FnOnce(Vec<u8>) -> Vec<u8> {
    |bytes| change(String::from_utf8(bytes).unwrap()).into_bytes()
}

/// Columns of SCHEMA.md by file; those of every file under the empty name.
fn schema() -> Vec<(String, Vec<String>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../foveate-lab/SCHEMA.md");
    let page = std::fs::read_to_string(path).unwrap();
    let mut files: Vec<(String, Vec<String>)> = Vec::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            files.push((heading.trim_matches('`').to_owned(), Vec::new()));
        } else if let Some((name, _)) = line.strip_prefix("| `").and_then(|rest| rest.split_once('`')) {
            files.last_mut().unwrap().1.push(name.to_owned());
        }
    }
    files
}

/// The columns of a file that the report reads: those whose absence it says.
fn columns_read(file: &str) -> Vec<String> {
    let rows = std::fs::read_to_string(fixture().join(file)).unwrap();
    let header = rows.lines().next().unwrap();
    let is_read = |column: &&str| {
        let renamed: Vec<&str> = header.split(',').map(|name| if name == *column { "another" } else { name }).collect();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(file), rows.replacen(header, &renamed.join(","), 1)).unwrap();
        match Report::read(folder.path()) {
            Ok(_) => false,
            Err(error) => {
                let (message, expected) =
                    (error.to_string(), format!("{file}, line 1, column `{column}`: there is no such column"));
                assert!(message.contains(&expected), "{message}");
                true
            }
        }
    };
    header.split(',').filter(is_read).map(str::to_owned).collect()
}

/// `foveate-lab` tests that SCHEMA.md is what it writes; here, that what the report reads is in it.
#[test]
fn what_is_read_is_in_the_schema() {
    let schema = schema();
    let columns = |file: &str| &schema.iter().find(|(name, _)| name == file).unwrap().1;
    let described: Vec<&str> =
        schema.iter().map(|(name, _)| name.as_str()).filter(|name| name.ends_with(".csv")).collect();
    assert_eq!(described.len(), files().len());
    for file in described {
        let read = columns_read(file);
        assert!(read.len() > 10, "{file}: only {read:?}");
        for column in read {
            let known = columns(file).contains(&column) || columns("In every file").contains(&column);
            assert!(known, "{file}: `{column}` is in no schema");
        }
    }
}

#[test]
fn malformed_numbers_are_shown_with_line_and_column() {
    for (wrong, expected) in [
        ("many", "'many' is not a number"),
        ("NaN", "'NaN' is no finite number"),
        ("inf", "'inf' is no finite number"),
        ("-3", "-3 is below zero"),
        ("", "the number is missing"),
    ] {
        let message = message("sinks.csv", text(|text| text.replacen("402000", wrong, 1)));
        assert!(message.contains(&format!("sinks.csv, line 3, column `rows_per_second`: {expected}")), "{message}");
    }
}

type Change = Box<dyn FnOnce(Vec<u8>) -> Vec<u8>>;

#[test]
fn a_file_that_is_no_table_is_refused() {
    let cases: [(&str, Change, &str); 6] = [
        ("sinks.csv", Box::new(|_| Vec::new()), "line 1, column `sink`: there is no such column"),
        (
            "sinks.csv",
            Box::new(text(|text| text.lines().next().unwrap().to_owned() + "\n")),
            "line 2, the whole line: there are names of columns, but no rows",
        ),
        (
            "sinks.csv",
            Box::new(text(|text| text.replacen(",402000", "", 1))),
            "line 3, the whole line: 19 fields instead of 20",
        ),
        (
            "sinks.csv",
            Box::new(text(|text| text.replacen("dim", "rows", 1))),
            "line 1, column `rows`: there are two such columns",
        ),
        (
            "sinks.csv",
            Box::new(|mut bytes| {
                let at = bytes.len() - 10;
                bytes[at] = 0xff;
                bytes
            }),
            "line 5, the whole line: the text is not UTF-8",
        ),
        ("decoders.csv", Box::new(|_| b"\x89PNG\r\n\x1a\n".to_vec()), "line 1, the whole line: the text is not UTF-8"),
    ];
    for (file, change, expected) in cases {
        let message = message(file, change);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("plan.csv")).unwrap();
    let error = Report::read(folder.path()).unwrap_err();
    assert!(matches!(error, ReportError::File { .. }) && error.to_string().contains("plan.csv"), "{error}");
}

#[test]
fn an_output_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = crate::common::report().write(&file).unwrap_err();
    assert!(matches!(error, ReportError::File { .. }) && error.to_string().contains("file"), "{error}");
}
