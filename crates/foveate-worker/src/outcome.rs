use std::time::Duration;

use base64::Engine as _;
use serde_json::Value;

/// What becomes of a request: exactly one of these.
pub type Outcome = Result<Output, Failure>;

/// What a task says of an image.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// An embedding, f32. Can go to a sink.
    Vector(Vec<f32>),
    /// Anything else: a class, boxes, ….
    Json(Value),
}

impl Output {
    /// An embedding's bytes, little-endian f32, as base64: what `encoding_format: base64` means elsewhere too.
    pub fn base64(vector: &[f32]) -> String {
        let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
        base64::engine::general_purpose::STANDARD.encode(bytes)
    }
}

/// Why there is no output.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{stage}: {reason}")]
pub struct Failure {
    /// The stage that failed: `parse`, `download`, `preprocess` (or what the task calls it: `decode`, `resize`),
    /// `process`, `sink`, `callback`, `shutdown`.
    pub stage: &'static str,
    /// The reason, one line.
    pub reason: String,
    /// Whether trying again later may help.
    pub transient: bool,
    /// What the other side asked for, if it did.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// The request itself is to blame.
    pub fn permanent(stage: &'static str, reason: impl Into<String>) -> Self {
        Self { stage, reason: reason.into(), transient: false, retry_after: None }
    }

    /// Trying again later may help.
    pub fn transient(stage: &'static str, reason: impl Into<String>) -> Self {
        Self { stage, reason: reason.into(), transient: true, retry_after: None }
    }
}
