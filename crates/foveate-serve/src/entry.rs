//! The entry for one input in an answer.

use foveate_worker::{Encoding, Failure, Outcome, Output};
use serde::Serialize;
use serde_json::value::RawValue;

/// The outcome of one input.
#[derive(Debug, Serialize)]
pub(crate) struct AnswerEntry {
    object: &'static str,
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    embedding: Option<Box<RawValue>>,
    /// The output of a task that does not embed.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
}

#[derive(Debug, Serialize)]
struct Error {
    stage: &'static str,
    reason: String,
    retryable: bool,
}

impl AnswerEntry {
    fn new(object: &'static str, index: usize) -> Self {
        Self { object, index, embedding: None, output: None, error: None }
    }

    pub(crate) fn of(index: usize, outcome: &Outcome, encoding: Encoding) -> Self {
        match outcome {
            Ok(Output::Vector(embedding)) => {
                Self { embedding: Some(raw(embedding.to_json(encoding))), ..Self::new("embedding", index) }
            }
            Ok(output) => Self { output: Some(raw(output.to_json(encoding))), ..Self::new("output", index) },
            Err(failure) => Self::failed(index, failure),
        }
    }

    /// An input that failed.
    pub(crate) fn failed(index: usize, failure: &Failure) -> Self {
        let Failure { stage, reason, transient, .. } = failure.clone();
        Self { error: Some(Error { stage: stage.name(), reason, retryable: transient }), ..Self::new("error", index) }
    }
}

fn raw(json: String) -> Box<RawValue> {
    RawValue::from_string(json).unwrap_or_else(|error| unreachable!("written as JSON: {error}"))
}
