//! A file's fault is reported: which file, the place, the problem, and the remedy.

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
        assert!(message.contains("`foveate bench all` makes them"), "{message}");
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
    assert!(message.contains(file) && message.contains("makes it anew"), "{message}");
    message
}

fn text(change: impl FnOnce(String) -> String) -> impl FnOnce(Vec<u8>) -> Vec<u8> {
    |bytes| change(String::from_utf8(bytes).unwrap()).into_bytes()
}

/// Ensures that the tests here read files as the programs write them.
#[test]
fn the_fixture_has_the_columns_of_the_schema() {
    assert_eq!(foveate_schema::ALL.len(), files().len());
    for schema in foveate_schema::ALL {
        let rows = std::fs::read_to_string(fixture().join(schema.file)).unwrap();
        let columns: Vec<&str> = schema.all_columns().map(|column| column.name).collect();
        assert_eq!(rows.lines().next().unwrap().split(',').collect::<Vec<_>>(), columns, "{}", schema.file);
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
            "line 3, the whole line: 24 fields instead of 25",
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
