//! `schema/job.v4.json` and [`Job::parse`] accept the same messages. The reference is another implementation of JSON
//! Schema, Python's `jsonschema`.

#![expect(clippy::unwrap_used, reason = "tests, their helpers included")]

use std::io::Write;
use std::process::{ExitCode, Stdio};

use foveate_queue::Job;
use foveate_testkit::{python, run, trials};

fn main() -> ExitCode {
    run(trials![the_schema_and_the_parser_agree,])
}

const SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/schema/job.v4.json");
const JUDGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schema.py");

const FIELDS: [&str; 10] = [
    "id",
    "idempotency_key",
    "task",
    "text",
    "callback",
    "callback_failures",
    "metadata",
    "traceparent",
    "calback",
    "Version",
];
const VALUES: [&str; 26] = [
    "null",
    "true",
    "0",
    "1",
    "1.0",
    "1e0",
    "2",
    "4",
    "5",
    "-1",
    "1e400",
    "\"\"",
    "\"a\"",
    r#""a\n""#,
    r#""\u0085""#,
    r#""\u007f""#,
    "\"ż🦀\"",
    "[]",
    "[1]",
    r#"["https://example.com"]"#,
    "{}",
    r#"{"url": "https://example.com"}"#,
    r#"{"url": null}"#,
    r#"{"object": "s3://bucket/key"}"#,
    r#"{"url": "https://example.com", "object": "s3://bucket/key"}"#,
    r#"{"url": "https://example.com", "other": 1}"#,
];

/// Messages of one line each: every field with every kind of value, and some that are not objects.
fn messages() -> Vec<String> {
    let mut messages = vec![String::new(), "null".to_owned(), "1".to_owned(), "\"version\"".to_owned()];
    messages.push(r#"[1, "id", "embed", {"url": "u"}]"#.to_owned());
    messages.push(r#"{"version": 1, "image": {"url": "u"}} trailing"#.to_owned());
    messages.push(r#"{"version": 1, "image": {"url": "u"}, "metadata": NaN}"#.to_owned());
    for (version, image) in [("", ""), (r#""version": 1"#, ""), ("", r#""image": {"url": "u"}"#)] {
        messages.push(format!("{{{version}{image}}}"));
    }
    for value in VALUES {
        messages.push(format!(r#"{{"version": {value}, "image": {{"url": "u"}}}}"#));
        messages.push(format!(r#"{{"version": 1, "image": {value}}}"#));
        messages.push(format!(r#"{{"version": 4, "text": {value}}}"#));
        messages.push(format!(r#"{{"version": 4, "text": "a cat", "image": {value}}}"#));
        for field in FIELDS {
            messages.push(format!(r#"{{"version": 1, "image": {{"object": "o"}}, "{field}": {value}}}"#));
        }
    }
    for id in ["i".repeat(256), "i".repeat(257), "ż".repeat(256), "🦀".repeat(256), "🦀".repeat(257)] {
        messages.push(format!(r#"{{"version": 1, "id": "{id}", "image": {{"url": "u"}}}}"#));
    }
    messages
}

/// The verdict of `jsonschema` on each message.
fn judged(messages: &[String]) -> Vec<bool> {
    let mut command = python(&["jsonschema"]);
    command.args([JUDGE, SCHEMA]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut judge = command.spawn().unwrap();
    judge.stdin.take().unwrap().write_all((messages.join("\n") + "\n").as_bytes()).unwrap_or_default();
    let output = judge.wait_with_output().unwrap();
    assert!(output.status.success());
    output.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).map(|line| line == b"1").collect()
}

fn the_schema_and_the_parser_agree() {
    let messages = messages();
    let judged = judged(&messages);
    assert_eq!(judged.len(), messages.len());
    for (message, good) in messages.iter().zip(&judged) {
        let parsed = Job::parse(message.as_bytes());
        assert_eq!(parsed.is_ok(), *good, "{message}: {parsed:?}, but the schema says {good}");
    }
    let good = judged.iter().filter(|&&good| good).count();
    assert!((20..messages.len() / 2).contains(&good), "{good} of {} are good", messages.len());
}
