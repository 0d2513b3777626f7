use std::error::Error;

use serde::{Deserialize, Serialize};
use serde_json::Number;
use serde_json::value::RawValue;

/// One image or text to be processed, as a message: JSON, described by `schema/job.v4.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The caller's own id, which callbacks and rows carry. Without it, the message's id is used.
    pub id: Option<String>,
    /// The base of the callback's idempotency key, together with the task. Without it, the id is used. A sender
    /// whose clients choose the ids makes it from the client and the id, because two clients may choose the same one.
    pub idempotency_key: Option<String>,
    /// The name of one of the worker's tasks.
    pub task: String,
    /// The image or the text.
    pub input: JobInput,
    /// The address to which the result is posted.
    pub callback: Option<Callback>,
    /// True if the callback is also told if the job ends in the dead letters.
    pub callback_failures: bool,
    /// The caller's own JSON, which the task receives and the callback returns unchanged.
    pub metadata: Option<String>,
    /// The trace that the work belongs to, as [W3C Trace Context](https://www.w3.org/TR/trace-context/) writes it.
    pub traceparent: Option<String>,
}

/// The input of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobInput {
    /// The address of an image.
    Image(ImageRef),
    /// A text, at most [`Job::MAX_TEXT`] bytes.
    Text(String),
}

impl From<ImageRef> for JobInput {
    fn from(image: ImageRef) -> Self {
        Self::Image(image)
    }
}

/// The address of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageRef {
    /// A URL, http or https.
    Url(String),
    /// A key in an object store: `s3://bucket/key`.
    Object(String),
}

impl ImageRef {
    /// The address, of either kind.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Url(address) | Self::Object(address) => address,
        }
    }
}

/// The address to which a result is posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callback {
    /// An http or https URL.
    pub url: String,
}

/// The reason why a message is not a job, or a job cannot be a message. A retry does not help.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// The message is not JSON, or violates the schema.
    #[error("not a job: {0}")]
    Schema(#[source] Box<dyn Error + Send + Sync>),
    /// The message is a list.
    #[error("not a job: a list instead of an object")]
    List,
    /// The id or the idempotency key is too long or has control characters.
    #[error("not a job: {field} has 1 to {max} characters and no control characters", max = Job::MAX_ID)]
    Id {
        /// Which of the two.
        field: &'static str,
    },
    /// There must be an image or a text, and not both.
    #[error("not a job: it has {0}; give it one of them")]
    Input(&'static str),
    /// The text is too large.
    #[error("not a job: a text of {0} bytes; there may be {max}", max = Job::MAX_TEXT)]
    LargeText(usize),
    /// The metadata are too large.
    #[error("not a job: metadata of {0} bytes; there may be {max}", max = Job::MAX_METADATA)]
    LargeMetadata(usize),
    /// The metadata of a job to be sent are not JSON.
    #[error("the metadata are not JSON: {0}")]
    Metadata(#[source] Box<dyn Error + Send + Sync>),
    /// The version is unknown to this program.
    #[error("job of version {0}; this worker knows versions 1 to {known}", known = Job::VERSION)]
    Version(String),
}

/// The message on the wire. `null` means absent.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobJson<'a> {
    version: Number,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<String>,
    task: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    image: Option<ImageRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    callback: Option<WireCallback>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    callback_failures: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
}

/// An enum of one variant, because serde accepts a list for a struct.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WireCallback {
    Url(String),
}

impl Job {
    /// The latest version of messages. Jobs without its fields are written as version 1, for older workers.
    pub const VERSION: u64 = 4;
    /// The task of a job that names none.
    pub const DEFAULT_TASK: &str = "embed";
    /// Most characters of an id.
    pub const MAX_ID: usize = 256;
    /// Most bytes of metadata. A worker holds many jobs at once.
    pub const MAX_METADATA: usize = 64 << 10;
    /// Most bytes of a text. The longest context of a known model has 77 tokens.
    pub const MAX_TEXT: usize = 64 << 10;

    /// A job for the default task, without id, callback or metadata.
    pub fn new(input: impl Into<JobInput>) -> Self {
        let task = Self::DEFAULT_TASK.to_owned();
        Self {
            id: None,
            idempotency_key: None,
            task,
            input: input.into(),
            callback: None,
            callback_failures: false,
            metadata: None,
            traceparent: None,
        }
    }

    /// Parses a message. Unknown fields are refused, because a misspelt field would be lost silently.
    ///
    /// # Errors
    /// [`JobError`], when the message is not a job.
    pub fn parse(body: &[u8]) -> Result<Self, JobError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: Number,
        }
        // serde accepts a list for a struct, as with the callback.
        if body.trim_ascii_start().first() == Some(&b'[') {
            return Err(JobError::List);
        }
        // The version first: a later version may have other fields.
        let Versioned { version } = serde_json::from_slice(body).map_err(|error| JobError::Schema(error.into()))?;
        if !(1..=Self::VERSION).any(|known| version.as_f64() == Some(known as f64)) {
            return Err(JobError::Version(version.to_string()));
        }
        let JobJson {
            version: _,
            id,
            idempotency_key,
            task,
            image,
            text,
            callback,
            callback_failures,
            metadata,
            traceparent,
        } = serde_json::from_slice(body).map_err(|error| JobError::Schema(error.into()))?;
        for (field, value) in [("id", &id), ("idempotency_key", &idempotency_key)] {
            if value.as_deref().is_some_and(|value| !Self::is_id(value)) {
                return Err(JobError::Id { field });
            }
        }
        let input = match (image, text) {
            (Some(image), None) => JobInput::Image(image),
            (None, Some(text)) => JobInput::Text(text),
            (None, None) => return Err(JobError::Input("neither `image` nor `text`")),
            (Some(_), Some(_)) => return Err(JobError::Input("both `image` and `text`")),
        };
        Self::check_sizes(&input, metadata.map(RawValue::get))?;
        Ok(Self {
            id,
            idempotency_key,
            task: task.unwrap_or_else(|| Self::DEFAULT_TASK.to_owned()),
            input,
            callback: callback.map(|WireCallback::Url(url)| Callback { url }),
            callback_failures: callback_failures.unwrap_or_default(),
            metadata: metadata.map(|json| json.get().to_owned()),
            traceparent,
        })
    }

    /// Returns true if a job may have this id, or this idempotency key.
    pub fn is_id(id: &str) -> bool {
        (1..=Self::MAX_ID).contains(&id.chars().count()) && !id.chars().any(char::is_control)
    }

    fn check_sizes(input: &JobInput, metadata: Option<&str>) -> Result<(), JobError> {
        let bytes = metadata.map_or(0, str::len);
        match input {
            JobInput::Text(text) if text.len() > Self::MAX_TEXT => Err(JobError::LargeText(text.len())),
            _ if bytes > Self::MAX_METADATA => Err(JobError::LargeMetadata(bytes)),
            _ => Ok(()),
        }
    }

    /// Writes the message.
    ///
    /// # Errors
    /// [`JobError::Metadata`] when `metadata` is not JSON, [`JobError::LargeMetadata`] or [`JobError::LargeText`] when
    /// it or the text is too large.
    pub fn to_json(&self) -> Result<Vec<u8>, JobError> {
        Self::check_sizes(&self.input, self.metadata.as_deref())?;
        let metadata = self.metadata.as_deref().map(serde_json::from_str).transpose();
        let metadata = metadata.map_err(|error| JobError::Metadata(error.into()))?;
        let Self { id, idempotency_key, task, input, callback, callback_failures, traceparent, .. } = self.clone();
        let callback = callback.map(|Callback { url }| WireCallback::Url(url));
        let mut version = if callback_failures { 2 } else { 1 };
        if idempotency_key.is_some() {
            version = 3;
        }
        let mut image = None;
        let mut text = None;
        match input {
            JobInput::Image(reference) => image = Some(reference),
            JobInput::Text(words) => {
                version = 4;
                text = Some(words);
            }
        }
        let callback_failures = callback_failures.then_some(true);
        let wire = JobJson {
            version: version.into(),
            id,
            idempotency_key,
            task: Some(task),
            image,
            text,
            callback,
            callback_failures,
            metadata,
            traceparent,
        };
        serde_json::to_vec(&wire).map_err(|error| JobError::Metadata(error.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"{"version":1,"id":"a","task":"classify","image":{"object":"s3://b/k"},"callback":{"url":"https://x/y"},"metadata":{"k":[1,2.50]},"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}"#;

    #[test]
    fn metadata_and_texts_are_bounded() {
        let of = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
        let job = |metadata| Job { metadata: Some(metadata), ..Job::new(ImageRef::Url("https://a/b".to_owned())) };
        let largest = job(of(Job::MAX_METADATA));
        let body = largest.to_json().unwrap();
        assert_eq!(Job::parse(&body).unwrap(), largest);
        let text = |bytes| Job::new(JobInput::Text("x".repeat(bytes)));
        assert_eq!(Job::parse(&text(Job::MAX_TEXT).to_json().unwrap()).unwrap(), text(Job::MAX_TEXT));
        let error = text(Job::MAX_TEXT + 1).to_json().unwrap_err();
        assert_eq!(error.to_string(), "not a job: a text of 65537 bytes; there may be 65536");
        let larger = String::from_utf8(body).unwrap().replace("\"xx", "\"xxx");
        for error in [Job::parse(larger.as_bytes()).unwrap_err(), job(of(Job::MAX_METADATA + 1)).to_json().unwrap_err()]
        {
            assert_eq!(error.to_string(), "not a job: metadata of 65537 bytes; there may be 65536");
        }
    }

    #[test]
    fn a_message_survives_the_round_trip_byte_for_byte() {
        let job = Job::parse(FULL.as_bytes()).unwrap();
        assert_eq!(job.metadata.as_deref(), Some(r#"{"k":[1,2.50]}"#));
        assert_eq!(String::from_utf8(job.to_json().unwrap()).unwrap(), FULL);
        let text = String::from_utf8(Job { callback_failures: true, ..job.clone() }.to_json().unwrap()).unwrap();
        assert!(text.starts_with(r#"{"version":2,"#), "{text}");
        assert_eq!(Job::parse(text.as_bytes()).unwrap(), Job { callback_failures: true, ..job.clone() });
        let keyed = Job { idempotency_key: Some("of a client".to_owned()), ..job };
        let text = String::from_utf8(keyed.to_json().unwrap()).unwrap();
        assert!(text.starts_with(r#"{"version":3,"#), "{text}");
        assert_eq!(Job::parse(text.as_bytes()).unwrap(), keyed);
        let words = Job { input: JobInput::Text("a cat".to_owned()), ..keyed };
        let text = String::from_utf8(words.to_json().unwrap()).unwrap();
        assert!(text.starts_with(r#"{"version":4,"#) && text.contains(r#","text":"a cat","#), "{text}");
        assert_eq!(Job::parse(text.as_bytes()).unwrap(), words);
    }

    #[test]
    fn what_is_no_job_is_told_why() {
        let refused = |body: &str| Job::parse(body.as_bytes()).unwrap_err().to_string();
        assert_eq!(
            refused(r#"{"version":5,"image":{"sound":"x"}}"#),
            "job of version 5; this worker knows versions 1 to 4"
        );
        assert!(refused("").starts_with("not a job: EOF"));
        assert_eq!(refused(r#" [1, "id", "embed", {"url": "u"}]"#), "not a job: a list instead of an object");
        assert!(refused(r#"{"version":1}"#).contains("it has neither `image` nor `text`"));
        let both = r#"{"version":4,"image":{"url":"u"},"text":"a cat"}"#;
        assert!(refused(both).contains("it has both `image` and `text`"));
        assert!(refused(r#"{"version":1,"image":{"url":"u"},"calback":{}}"#).contains("unknown field `calback`"));
        assert!(refused(r#"{"version":1,"image":{"url":"u","object":"o"}}"#).starts_with("not a job: "));
        assert!(
            refused("{\"version\":1,\"image\":{\"url\":\"u\"},\"id\":\"a\\nb\"}").contains("no control characters")
        );
        assert!(refused(r#"{"version":1,"image":{"url":"u"},"id":""}"#).contains("id has 1 to 256 characters"));
        let keyed = r#"{"version":3,"image":{"url":"u"},"idempotency_key":""}"#;
        assert!(refused(keyed).contains("idempotency_key has 1 to 256 characters"));
    }
}
