//! What the tests share: a server, and boto3 as the other client.

#![allow(dead_code, reason = "not every test uses everything")]

#[path = "../../../../tests/support/brokers.rs"]
pub(crate) mod brokers;

use std::process::Command;

use brokers::{AwsServer, python};
use foveate_queue::QueueOptions;
use serde_json::Value;

/// What boto3 prints after a step of the script, by line; `None` without boto3.
pub(crate) fn boto3(endpoint: &str, arguments: &[&str]) -> Option<Vec<Value>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop.py");
    let output = python(Command::new("python3").arg(script).arg(endpoint).args(arguments))?;
    let lines = String::from_utf8(output.stdout).unwrap();
    Some(lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// The queue of this name, to be made where it is not.
pub(crate) fn options(server: &AwsServer, queue: &str) -> QueueOptions {
    QueueOptions { create: true, settings: server.settings(), ..QueueOptions::new(format!("sqs://{queue}")) }
}
