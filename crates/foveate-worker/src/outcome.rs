use std::time::Duration;

use base64::Engine as _;
use serde::Serialize;
use serde_json::Value;

use crate::{Setting, Stage};

/// The one outcome of a request.
pub type Outcome = Result<Output, Failure>;

/// A task's result for an image.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// An embedding, which a sink can store.
    Vector(Embedding),
    /// Any other result, such as a class or boxes.
    Json(Value),
}

/// A vector and its image or text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Embedding {
    /// The components.
    pub vector: Vec<f32>,
    /// Width of the upright image in pixels, or 0 for a text and if unknown.
    pub width: u32,
    /// Height of the upright image in pixels, or 0 for a text and if unknown.
    pub height: u32,
    /// XXH3-64 of the file's bytes or the text's UTF-8, or 0 if unknown.
    pub xxh3: u64,
    /// Tokens of the text without padding, or 0 for an image.
    pub tokens: usize,
}

/// The encoding of vectors in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// An array of the shortest numbers that read back as the same f32.
    #[default]
    Float,
    /// The little-endian f32 as base64.
    Base64,
}

/// Serializes f32 as the shortest numbers that read back as the same; `serde_json::Value` has f64 only.
#[derive(Serialize)]
#[serde(untagged)]
enum VectorJson<'a> {
    Float(&'a [f32]),
    Base64(String),
}

impl Embedding {
    /// The vector as JSON text.
    pub fn to_json(&self, encoding: Encoding) -> String {
        text(&self.components(encoding))
    }

    fn components(&self, encoding: Encoding) -> VectorJson<'_> {
        match encoding {
            Encoding::Float => VectorJson::Float(&self.vector),
            Encoding::Base64 => {
                let bytes: Vec<u8> = self.vector.iter().flat_map(|value| value.to_le_bytes()).collect();
                VectorJson::Base64(base64::engine::general_purpose::STANDARD.encode(bytes))
            }
        }
    }
}

impl Output {
    /// The output as JSON text: an embedding as `{"embedding", "dim", "width", "height", "xxh3"}`, other results
    /// unchanged.
    pub fn to_json(&self, encoding: Encoding) -> String {
        #[derive(Serialize)]
        struct EmbeddingJson<'a> {
            embedding: VectorJson<'a>,
            dim: usize,
            width: u32,
            height: u32,
            xxh3: String,
        }
        match self {
            Self::Json(value) => value.to_string(),
            Self::Vector(embedding) => text(&EmbeddingJson {
                embedding: embedding.components(encoding),
                dim: embedding.vector.len(),
                width: embedding.width,
                height: embedding.height,
                xxh3: format!("{:016x}", embedding.xxh3),
            }),
        }
    }
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| unreachable!("numbers and text: {error}"))
}

/// The reason why there is no output.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{stage}: {reason}")]
pub struct Failure {
    /// The stage that failed.
    pub stage: Stage,
    /// The reason in one line.
    pub reason: String,
    /// True if a retry may succeed.
    pub transient: bool,
    /// The pause before a retry that the server asked for.
    pub retry_after: Option<Duration>,
    /// The worker's own setting that caused the failure, if one did.
    pub setting: Option<Setting>,
    /// True if the stage was not tried: its circuit breaker is open, or there is no room for it. Such a failure is
    /// transient, and says nothing about the image.
    pub untried: bool,
    /// True if another machine answered; see [`foveate_net::NetError::reached`].
    pub reached: Option<bool>,
}

impl Failure {
    /// A failure that every retry would repeat.
    pub fn permanent(stage: Stage, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { stage, reason, transient: false, retry_after: None, setting: None, untried: false, reached: None }
    }

    /// A failure that the worker's own setting causes.
    pub fn of_setting(setting: Setting, stage: Stage, reason: impl Into<String>) -> Self {
        Self { setting: Some(setting), ..Self::permanent(stage, reason) }
    }

    /// A failure that a retry may not meet.
    pub fn transient(stage: Stage, reason: impl Into<String>) -> Self {
        Self { transient: true, ..Self::permanent(stage, reason) }
    }

    /// A stage that was not tried.
    pub fn untried(stage: Stage, reason: impl Into<String>) -> Self {
        Self { untried: true, ..Self::transient(stage, reason) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_survive_json_to_the_bit() {
        let vector = vec![0.1f32, -1.0e-30, f32::MAX, 3.0, 1.0 / 3.0];
        let embedding = Embedding { vector: vector.clone(), width: 3, height: 2, xxh3: 0xab, tokens: 0 };
        let text = Output::Vector(embedding.clone()).to_json(Encoding::Float);
        assert!(text.starts_with(r#"{"embedding":[0.1,-1e-30,"#), "{text}");
        let value: Value = serde_json::from_str(&text).unwrap();
        let back: Vec<f32> = serde_json::from_value(value["embedding"].clone()).unwrap();
        assert_eq!(back, vector);
        assert_eq!((value["dim"].as_u64(), value["xxh3"].as_str()), (Some(5), Some("00000000000000ab")));
        let base64 = embedding.to_json(Encoding::Base64);
        let bytes = base64::engine::general_purpose::STANDARD.decode(base64.trim_matches('"')).unwrap();
        assert_eq!(bytes, vector.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>());
    }
}
