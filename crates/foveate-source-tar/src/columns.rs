//! The values of columns, out of sidecars.

use std::collections::BTreeMap;

use foveate_source::text_of;
use serde_json::value::RawValue;

use crate::name::Sidecar;

/// Takes the values of `columns` that `sidecar` has out of its `bytes`, and marks those columns as `seen`. A damaged
/// one has none.
pub(crate) fn take(
    sidecar: Sidecar,
    bytes: &[u8],
    columns: &[String],
    values: &mut [Option<String>],
    seen: &mut [bool],
) {
    let Some(text) = text_of(bytes) else { return };
    let text = text.as_str();
    match sidecar {
        Sidecar::Text(name) => {
            let line = text.strip_suffix('\n').map_or(text, |line| line.strip_suffix('\r').unwrap_or(line));
            for at in (0..columns.len()).filter(|&at| columns[at] == name) {
                seen[at] = true;
                values[at] = Some(line.to_owned()).filter(|line| !line.is_empty());
            }
        }
        Sidecar::Json => {
            let fields = fields(text).or_else(|| fields(&without_nan(text))).unwrap_or_default();
            for (at, column) in columns.iter().enumerate() {
                if let Some(value) = fields.get(column) {
                    seen[at] = true;
                    values[at] = value.clone().or(values[at].take());
                }
            }
        }
    }
}

/// The fields of an object: strings as they are, everything else as JSON.
fn fields(json: &str) -> Option<BTreeMap<String, Option<String>>> {
    let object: BTreeMap<String, &RawValue> = serde_json::from_str(json).ok()?;
    let mut fields = BTreeMap::new();
    for (name, raw) in object {
        let value = match raw.get() {
            "null" => None,
            text if text.starts_with('"') => serde_json::from_str(text).ok(),
            other => Some(other.to_owned()),
        };
        fields.insert(name, value);
    }
    Some(fields)
}

/// Replaces the numbers that Python writes and JSON does not have by null.
fn without_nan(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for (number, part) in strings_apart(json).enumerate() {
        match number % 2 {
            0 => out.push_str(&part.replace("-Infinity", "null").replace("Infinity", "null").replace("NaN", "null")),
            _ => out.push_str(part),
        }
    }
    out
}

/// The text outside of strings and the strings with their quotes, in turn.
fn strings_apart(json: &str) -> impl Iterator<Item = &str> {
    let mut rest = json;
    let mut in_string = true;
    std::iter::from_fn(move || {
        in_string = !in_string;
        let end = if in_string { string_end(rest) } else { rest.find('"').unwrap_or(rest.len()) };
        let (part, after) = rest.split_at(end);
        rest = after;
        (!part.is_empty() || !rest.is_empty()).then_some(part)
    })
}

/// The length of the string that `text` begins with.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    let end = text.bytes().enumerate().skip(1).find(|&(_, byte)| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |(quote, _)| quote + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(json: &[u8], columns: &[&str]) -> Vec<Option<String>> {
        let columns: Vec<String> = columns.iter().map(|&column| column.to_owned()).collect();
        let mut values = vec![None; columns.len()];
        take(Sidecar::Json, json, &columns, &mut values, &mut vec![false; columns.len()]);
        values
    }

    #[test]
    fn strings_come_as_they_are_and_the_rest_as_json() {
        let json = br#" {"s": "\u00e4\"\n", "n": 1.50, "big": 123456789012345678901, "o": {"b": 1, "a": []}, "z": null,
            "t": true, "half": "\ud800"} "#;
        let found = values(json, &["s", "n", "big", "o", "z", "t", "half", "none"]);
        let some = |text: &str| Some(text.to_owned());
        let objects = some(r#"{"b": 1, "a": []}"#);
        assert_eq!(found[..4], [some("ä\"\n"), some("1.50"), some("123456789012345678901"), objects]);
        assert_eq!(found[4..], [None, some("true"), None, None]);
    }

    #[test]
    fn pythons_numbers_are_null() {
        let json = br#"{"a": NaN, "b": "NaN \" NaN", "c": [-Infinity, "\\"], "NaN": Infinity, "e": "x"}"#;
        let found = values(json, &["a", "b", "c", "NaN", "e"]);
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(found, [None, some("NaN \" NaN"), some(r#"[null, "\\"]"#), None, some("x")]);
    }

    #[test]
    fn damaged_sidecars_have_no_values() {
        for json in [&b""[..], b"{", b"[1]", b"{\"a\": 1} x", b"{\"a\": \xff}", b"\"", b"{\"a\": \"NaN\\", b"NaN"] {
            assert_eq!(values(json, &["a"]), [None], "{json:?}");
        }
    }

    #[test]
    fn texts_lose_one_line_end() {
        for (text, expected) in
            [("\u{feff}7", "7"), ("7", "7"), ("7\n", "7"), ("7\r\n", "7"), ("7\n\n", "7\n"), ("a\r", "a\r")]
        {
            let mut values = [None, None];
            let columns = ["cls".to_owned(), "txt".to_owned()];
            take(Sidecar::Text("cls"), text.as_bytes(), &columns, &mut values, &mut [false; 2]);
            assert_eq!(values, [Some(expected.to_owned()), None]);
        }
        let mut values = [None];
        let mut seen = [false];
        take(Sidecar::Text("cls"), b"\n", &["cls".to_owned()], &mut values, &mut seen);
        assert_eq!((values, seen), ([None], [true]), "an empty one is no value");
    }
}
