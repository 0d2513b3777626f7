//! The fields of a request other than its images: those of this API, and those of others that mean the same.

use std::collections::BTreeSet;

use axum::http::HeaderValue;
use foveate_worker::Encoding;
use serde::{Deserialize, de};
use serde_json::value::RawValue;

use crate::similar::SimilarFields;

/// Most names in the header of ignored fields.
const MAX_NAMES: usize = 16;
/// Most bytes of a name there.
const MAX_NAME: usize = 64;

/// A request's settings.
#[derive(Debug, Default)]
pub(crate) struct RequestFields {
    pub(crate) model: Option<String>,
    pub(crate) task: Option<String>,
    pub(crate) dimensions: Option<u64>,
    pub(crate) encoding: Encoding,
    /// True for vectors of length 1, false for others; `None` if the client does not say.
    pub(crate) normalize: Option<bool>,
    /// True if the client wants the other outcomes if some inputs fail.
    pub(crate) partial: bool,
    pub(crate) metadata: Option<String>,
    /// The fields of a request that searches.
    pub(crate) similar: Option<SimilarFields>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum VectorFormat {
    Float,
    Base64,
}

/// The type of a vector's elements, which base64 does not change.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum ElementType {
    Float,
    Float32,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Modality {
    Image,
}

impl From<VectorFormat> for Encoding {
    fn from(format: VectorFormat) -> Self {
        match format {
            VectorFormat::Float => Self::Float,
            VectorFormat::Base64 => Self::Base64,
        }
    }
}

impl RequestFields {
    /// Fields whose values are text, which forms do not quote.
    pub(crate) const TEXTS: [&str; 10] = [
        "model",
        "task",
        "encoding_format",
        "embedding_type",
        "output_encoding",
        "output_dtype",
        "embed_dtype",
        "modality",
        "user",
        "id",
    ];

    /// Sets the field of this name to a value in JSON; `null` means that it is absent. Returns false if there is no
    /// such field.
    ///
    /// # Errors
    /// The reason why it cannot have the value.
    pub(crate) fn set(&mut self, name: &str, json: &str) -> Result<bool, String> {
        // The place is one within the value.
        self.read(name, json).map_err(|error| error.to_string().split(" at line ").take(1).collect())
    }

    fn read(&mut self, name: &str, json: &str) -> Result<bool, serde_json::Error> {
        match name {
            "model" => self.model = serde_json::from_str(json)?,
            "task" => self.task = serde_json::from_str(json)?,
            // The second name is Cohere's and Voyage's.
            "dimensions" | "output_dimension" => self.dimensions = serde_json::from_str(json)?,
            // OpenAI's name, Jina's and Voyage's.
            "encoding_format" | "embedding_type" | "output_encoding" => {
                self.encoding =
                    serde_json::from_str::<Option<VectorFormat>>(json)?.map(Encoding::from).unwrap_or_default();
            }
            // Cohere's: its answers have a list for each type, and this one has one of them.
            "embedding_types" => match serde_json::from_str::<Option<Vec<VectorFormat>>>(json)?.as_deref() {
                None => {}
                Some([format]) => self.encoding = (*format).into(),
                Some(formats) => {
                    return Err(de::Error::custom(format_args!("{} types; answers have one", formats.len())));
                }
            },
            // Voyage's and vLLM's.
            "output_dtype" | "embed_dtype" => {
                let _: Option<ElementType> = serde_json::from_str(json)?;
            }
            // TEI's and Jina's.
            "normalize" | "normalized" => self.normalize = serde_json::from_str(json)?,
            // Infinity's.
            "modality" => {
                let _: Option<Modality> = serde_json::from_str(json)?;
            }
            "partial_results" => self.partial = serde_json::from_str::<Option<bool>>(json)?.unwrap_or_default(),
            "metadata" => {
                let json: Option<&RawValue> = serde_json::from_str(json)?;
                self.metadata = json.map(|json| json.get().to_owned());
            }
            // A client that expects to be called back must not wait in vain.
            "callback" if json != "null" => {
                let why = "this server calls nobody back; `foveate enqueue` puts images on a queue, whose workers do";
                return Err(de::Error::custom(why));
            }
            // Clients of other services send it; it has no effect.
            "user" => {
                let _: Option<String> = serde_json::from_str(json)?;
            }
            _ => return self.similar.as_mut().map_or(Ok(false), |similar| similar.read(name, json)),
        }
        Ok(true)
    }
}

/// The fields that have no meaning here.
#[derive(Debug, Default)]
pub(crate) struct IgnoredFields {
    names: BTreeSet<String>,
    /// True if there may be none.
    is_strict: bool,
}

impl IgnoredFields {
    pub(crate) fn new(is_strict: bool) -> Self {
        Self { names: BTreeSet::new(), is_strict }
    }

    /// Adds a field.
    ///
    /// # Errors
    /// The message for the client, if there may be none.
    pub(crate) fn add(&mut self, name: &str) -> Result<(), String> {
        if self.is_strict {
            return Err(format!("unknown field `{name:.100}`, and this server ignores none"));
        }
        if self.names.len() < MAX_NAMES {
            // The names go into a header, separated by commas.
            let safe = name.chars().take(MAX_NAME).map(|c| if c.is_ascii_graphic() && c != ',' { c } else { '?' });
            self.names.insert(safe.collect());
        }
        Ok(())
    }

    /// The names, separated by commas; `None` if there are none.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        HeaderValue::try_from(names.join(", ")).ok().filter(|header| !header.is_empty())
    }
}
