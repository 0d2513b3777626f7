//! Shared parts of the tests: a server, and boto3 as the other client.

#![allow(dead_code, reason = "not every test uses everything")]

use foveate_queue::QueueOptions;
use foveate_testkit::brokers::{AwsServer, printed};
use foveate_testkit::python;
use serde_json::Value;

/// The output of boto3 after a step of the script, by line. The server is moto, which brings boto3.
pub(crate) fn boto3(endpoint: &str, arguments: &[&str]) -> Vec<Value> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop.py");
    let lines = printed(python(&["boto3"]).arg(script).arg(endpoint).args(arguments));
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The options of the queue `queue`, which is created if it does not exist.
pub(crate) fn options(server: &AwsServer, queue: &str) -> QueueOptions {
    QueueOptions { create: true, settings: server.settings(), ..QueueOptions::new(format!("sqs://{queue}")) }
}
