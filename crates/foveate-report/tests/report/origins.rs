//! Every number in the page names its origin, and the origin holds it.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{fixture, report, tree};
use roxmltree::Node;

/// Returns the fixture's fields by `file:line:column`.
fn fields() -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    for file in crate::common::files() {
        let mut reader = csv::Reader::from_path(fixture().join(&file)).unwrap();
        let header = reader.headers().unwrap().clone();
        for record in reader.records() {
            let record = record.unwrap();
            let line = record.position().unwrap().line();
            for (column, text) in header.iter().zip(&record) {
                fields.insert(format!("{file}:{line}:{column}"), text.to_owned());
            }
        }
    }
    fields
}

fn words(node: Node<'_, '_>) -> String {
    node.descendants().filter(Node::is_text).filter_map(|node| node.text()).collect()
}

/// Parses the number in a shown text, without commas; percentages become shares.
fn value(shown: &str) -> Option<f64> {
    let digits: String = shown.replace('−', "-").chars().filter(|c| *c != ',').collect();
    let end = digits.find(|c: char| !(c.is_ascii_digit() || "+-.e".contains(c))).unwrap_or(digits.len());
    let number: f64 = digits[..end].parse().ok()?;
    Some(if shown.ends_with('%') { number / 100.0 } else { number })
}

#[test]
fn what_is_shown_is_what_the_file_says() {
    let (html, fields) = (report().html().unwrap(), fields());
    let tree = tree(&html);
    let mut numbers = 0;
    for node in tree.descendants().filter(|node| node.has_tag_name("span") || node.has_tag_name("tspan")) {
        let Some(from) = node.attribute("data-from") else { continue };
        let origins: Vec<&str> = from.split(' ').collect();
        for origin in &origins {
            assert!(fields.contains_key(*origin), "{origin} is no field");
        }
        let (shown, field) = (words(node), &fields[origins[0]]);
        match (origins.len(), field.parse::<f64>()) {
            (1, Ok(field)) if !shown.ends_with('…') => {
                numbers += 1;
                let shown = value(&shown).unwrap_or_else(|| panic!("'{shown}' from {from}"));
                assert!((shown.abs() - field.abs()).abs() <= field.abs() * 0.0051, "{shown} is not {field} of {from}");
            }
            (1, Err(_)) => {
                let start = shown.trim_end_matches('…');
                assert!(field.starts_with(start), "'{shown}' is not '{field}' of {from}");
            }
            _ => {}
        }
    }
    assert!(numbers > 300, "{numbers} numbers alone");
}

#[test]
fn derived_numbers_follow_from_their_fields() {
    let (html, fields) = (report().html().unwrap(), fields());
    let tree = tree(&html);
    let mut checked = BTreeSet::new();
    for Entry { shown, how, fields } in entries(&tree, &fields).into_iter().filter(|entry| !entry.how.is_empty()) {
        let expected = match how.as_str() {
            "first ÷ second" => fields[0] / fields[1],
            "number of rows" => fields.len() as f64,
            "median of the errors without their signs" => median(&fields),
            "ends − starts of the encoders' stretches, summed, ÷ the last end and the number of encoders" => {
                let (last, stretches) = fields.split_last().unwrap();
                stretches.chunks(2).map(|stretch| stretch[1] - stretch[0]).sum::<f64>() / last
            }
            other => panic!("nobody checks '{other}'"),
        };
        let shown = value(&shown).unwrap();
        assert!((shown - expected).abs() <= expected.abs() * 0.0051, "{how}: {shown} instead of {expected}");
        checked.insert(how);
    }
    assert_eq!(checked.len(), 4, "{checked:?}");
}

/// A number in the table of origins, how it follows, and the fields that it follows from.
struct Entry {
    shown: String,
    how: String,
    fields: Vec<f64>,
}

fn entries(tree: &roxmltree::Document<'_>, fields: &BTreeMap<String, String>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for row in tree.descendants().filter(|node| node.attribute("data-origin").is_some()) {
        let cells: Vec<String> = row.children().filter(|node| node.has_tag_name("td")).map(words).collect();
        let field = fields[row.attribute("data-origin").unwrap()].parse().unwrap_or(f64::NAN);
        // The first row of a number shows it, the others are its further fields.
        match entries.last_mut() {
            Some(entry) if cells[0].is_empty() => entry.fields.push(field),
            _ => entries.push(Entry { shown: cells[0].clone(), how: cells[5].clone(), fields: vec![field] }),
        }
    }
    entries
}

fn median(errors: &[f64]) -> f64 {
    let mut sizes: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    (sizes[sizes.len() / 2] + sizes[(sizes.len() - 1) / 2]) / 2.0
}

#[test]
fn the_table_has_every_number_and_says_what_the_files_say() {
    let (html, fields) = (report().html().unwrap(), fields());
    let tree = tree(&html);
    let mut listed = BTreeSet::new();
    for row in tree.descendants().filter(|node| node.attribute("data-origin").is_some()) {
        let origin = row.attribute("data-origin").unwrap();
        let cells: Vec<String> = row.children().filter(|node| node.has_tag_name("td")).map(words).collect();
        assert_eq!(origin, format!("{}:{}:{}", cells[1], cells[2], cells[3]));
        assert_eq!(cells[4], fields[origin], "{origin}");
        listed.insert(origin);
    }
    for node in tree.descendants() {
        for origin in
            node.attribute("data-from").into_iter().flat_map(|from| from.split(' ')).filter(|from| !from.is_empty())
        {
            assert!(listed.contains(origin), "{origin} is shown and not in the table");
        }
    }
}

/// Digits appear only in numbers with an origin, beside axes, and in figure numbers.
#[test]
fn no_number_is_without_an_origin() {
    let html = report().html().unwrap();
    let tree = tree(&html);
    let body = tree.descendants().find(|node| node.has_tag_name("body")).unwrap();
    for node in body.descendants().filter(Node::is_text) {
        let text = node.text().unwrap();
        if !text.contains(|c: char| c.is_ascii_digit()) {
            continue;
        }
        let excused = node.ancestors().any(|node| {
            let class = node.attribute("class").unwrap_or_default();
            node.attribute("data-from").is_some_and(|from| !from.is_empty())
                || class.split(' ').any(|class| class == "tick" || class == "origins")
        });
        assert!(excused, "'{text}' says not where it is from: {:?}", node.parent());
    }
}
