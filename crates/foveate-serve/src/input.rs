//! Request bodies: JSON, a form with files, or one image.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use axum::http::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use foveate_queue::{Callback, ImageRef, Job};
use foveate_worker::{Encoding, Image};
use futures_util::stream;
use http_body_util::BodyExt;
use multer::{Field, Multipart};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::runtime::Handle;

use crate::limits::MAX_INPUTS;
use crate::memory::Claim;
use crate::problem::Problem;
use crate::request_log::Figures;
use crate::serving::Serving;

/// How long a refused client may continue to send.
const LINGER: Duration = Duration::from_secs(2);
/// Most bytes of a URL or an object key.
const MAX_ADDRESS: usize = 2048;
/// A text of this many characters of base64 and no others is taken for base64, not for a mistyped URL. No image is
/// smaller.
const MIN_BASE64: usize = 32;
const WEB: [&str; 2] = ["http://", "https://"];
/// Accepts nonzero trailing bits, because the OpenAPI document cannot describe which strings have them.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// A parsed request.
#[derive(Debug)]
pub(crate) struct Asked {
    /// At least one, at most [`crate::Api::max_images`].
    pub(crate) images: Vec<Image>,
    pub(crate) model: Option<String>,
    pub(crate) task: Option<String>,
    pub(crate) dimensions: Option<u64>,
    pub(crate) encoding: Encoding,
    /// True if the client wants the other outcomes if some inputs fail.
    pub(crate) partial: bool,
    pub(crate) metadata: Option<String>,
    pub(crate) callback: Option<Callback>,
    /// The room of the images.
    pub(crate) claim: Claim,
}

/// The kind of a body.
enum Form {
    Json,
    Multipart { boundary: String },
    Image,
}

/// Reads and parses a body.
pub(crate) async fn ask(
    serving: &Serving,
    headers: &HeaderMap,
    body: &mut Body,
    figures: &mut Figures,
) -> Result<Asked, Problem> {
    let form = form(headers)?;
    let (body, mut claim) = tokio::time::timeout(serving.api.read_timeout, read(serving, headers, body))
        .await
        .map_err(|_| too_slow(serving))??;
    figures.bytes = body.len();
    if !matches!(form, Form::Image) {
        // Parsing needs as much again, for unescaped text or the parts of a form.
        claim.grow_to(2 * body.len() as u64)?;
    }
    let asked = match form {
        // Decoding many megabytes takes a while.
        Form::Json => tokio::task::block_in_place(|| json(&body, serving.memory.claim(), serving.api.max_images))?,
        Form::Multipart { boundary } => {
            let form = multipart(body, boundary, serving.memory.claim(), serving.api.max_images);
            tokio::task::block_in_place(|| Handle::current().block_on(form))?
        }
        Form::Image if body.is_empty() => return Err(Problem::malformed("the body is empty")),
        // The body is the image, so its claim is the image's.
        Form::Image => return Ok(Asked { images: vec![Image::Bytes(body)], ..Asked::new(claim) }),
    };
    if let Some(bytes) = asked.metadata.as_ref().map(String::len).filter(|bytes| *bytes > Job::MAX_METADATA) {
        return Err(Problem::impossible(
            format!("metadata of {bytes} bytes; there may be {}", Job::MAX_METADATA),
            "send less",
        ));
    }
    match asked.images.is_empty() {
        true => Err(Problem::malformed("there is no image in it")),
        false => Ok(asked),
    }
}

fn too_many(most: usize) -> Problem {
    Problem::malformed(format!("more than {most} images in one request"))
}

impl Asked {
    fn new(claim: Claim) -> Self {
        let (model, task, dimensions, metadata, callback) = (None, None, None, None, None);
        let (encoding, partial) = (Encoding::Float, false);
        Self { images: Vec::new(), model, task, dimensions, encoding, partial, metadata, callback, claim }
    }
}

fn form(headers: &HeaderMap) -> Result<Form, Problem> {
    let unsupported = |detail: String| {
        let remedy = "send application/json, multipart/form-data, or an image as image/* or application/octet-stream";
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail, remedy)
    };
    if let Some(encoding) = headers.get(CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
        return Err(unsupported(format!("a body that is encoded ({encoding:?}) is not understood")));
    }
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "application/json" => Ok(Form::Json),
        "multipart/form-data" => match multer::parse_boundary(content_type) {
            Ok(boundary) => Ok(Form::Multipart { boundary }),
            Err(error) => Err(Problem::malformed(format!("Content-Type: {error}"))),
        },
        "application/octet-stream" => Ok(Form::Image),
        image if image.starts_with("image/") => Ok(Form::Image),
        "" => Err(unsupported("there is no Content-Type".to_owned())),
        other => Err(unsupported(format!("a body of type '{other}' is not understood"))),
    }
}

/// Reads the whole body within its limits. Claims room for the bytes that came, because announcing bytes costs a client
/// nothing.
async fn read(serving: &Serving, headers: &HeaderMap, body: &mut Body) -> Result<(Vec<u8>, Claim), Problem> {
    let most = serving.api.max_body_bytes;
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|bytes| bytes > most) {
        return Err(too_large(most));
    }
    let (mut bytes, mut claim) = (Vec::new(), serving.memory.claim());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Problem::malformed(format!("the body ended early: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if (bytes.len() + data.len()) as u64 > most {
            return Err(too_large(most));
        }
        let needed = bytes.len() + data.len();
        if needed > bytes.capacity() {
            // Grows to twice the size, but not beyond the announced one.
            let size = (2 * bytes.len()).min(announced.unwrap_or(most) as usize).max(needed);
            claim.grow_to(size as u64)?;
            bytes.reserve_exact(size - bytes.len());
        }
        bytes.extend_from_slice(&data);
    }
    Ok((bytes, claim))
}

/// Reads on after a problem, for a while, because clients that are still sending miss the answer if the connection
/// closes. Does not read what a client sends only after a 100 Continue.
pub(crate) async fn linger(serving: &Serving, headers: &HeaderMap, body: &mut Body) {
    if headers.contains_key(EXPECT) {
        return;
    }
    let rest = async {
        let mut left = 2 * serving.api.max_body_bytes;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, |data| data.len() as u64));
            if left == 0 {
                break;
            }
        }
    };
    // Slower clients may miss the answer.
    let _ = tokio::time::timeout(LINGER.min(serving.api.read_timeout), rest).await;
}

fn too_large(most: u64) -> Problem {
    let detail = format!("the body is larger than {most} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail, "send fewer images, or their URLs")
}

fn too_slow(serving: &Serving) -> Problem {
    let detail = format!("the body was not there within {} s", serving.api.read_timeout.as_secs_f64());
    Problem::new(StatusCode::REQUEST_TIMEOUT, detail, "send fewer images, or their URLs")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire<'a> {
    #[serde(borrow)]
    input: Inputs<'a>,
    model: Option<String>,
    task: Option<String>,
    dimensions: Option<u64>,
    encoding_format: Option<Format>,
    partial_results: Option<bool>,
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    callback: Option<CallTo<'a>>,
    /// Clients of other services send it; it has no effect.
    #[serde(rename = "user")]
    _user: Option<String>,
}

/// An enum of one variant, because serde accepts a list for a struct.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum CallTo<'a> {
    Url(#[serde(borrow)] Cow<'a, str>),
}

/// One input or several.
struct Inputs<'a>(Vec<Input<'a>>);

enum Input<'a> {
    Text(Cow<'a, str>),
    Named(Named<'a>),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Named<'a> {
    Url(#[serde(borrow)] Cow<'a, str>),
    Image(#[serde(borrow)] Cow<'a, str>),
    Object(#[serde(borrow)] Cow<'a, str>),
}

/// Hand-written, because serde's untagged enums first buffer the value, at many times its size in JSON.
struct InputsVisitor;

impl<'de> Visitor<'de> for InputsVisitor {
    type Value = Inputs<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        InputVisitor.expecting(f)?;
        f.write_str(", or an array of them")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Inputs(vec![InputVisitor.visit_str(text)?]))
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Inputs(vec![InputVisitor.visit_borrowed_str(text)?]))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        Ok(Inputs(vec![InputVisitor.visit_map(map)?]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut inputs = Vec::new();
        while let Some(input) = seq.next_element()? {
            if inputs.len() == MAX_INPUTS {
                return Err(de::Error::custom(format_args!("more than {MAX_INPUTS} inputs")));
            }
            inputs.push(input);
        }
        Ok(Inputs(inputs))
    }
}

struct InputVisitor;

impl<'de> Visitor<'de> for InputVisitor {
    type Value = Input<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an image (a URL, {\"url\": …}, {\"image\": base64 or a data: URL} or {\"object\": \"s3://…\"})")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Input::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Input::Text(Cow::Borrowed(text)))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        Named::deserialize(MapAccessDeserializer::new(map)).map(Input::Named)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Inputs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(InputsVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Input<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(InputVisitor)
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    Float,
    Base64,
}

impl From<Format> for Encoding {
    fn from(format: Format) -> Self {
        match format {
            Format::Float => Self::Float,
            Format::Base64 => Self::Base64,
        }
    }
}

fn json(body: &[u8], mut claim: Claim, max_images: usize) -> Result<Asked, Problem> {
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(Problem::malformed("a list; expected an object with the list as input"));
    }
    let wire: Wire<'_> = serde_json::from_slice(body).map_err(|error| Problem::malformed(error.to_string()))?;
    let Inputs(inputs) = wire.input;
    if inputs.len() > max_images {
        return Err(too_many(max_images));
    }
    let mut decoded = 0;
    let mut images = Vec::with_capacity(inputs.len());
    for (i, input) in inputs.iter().enumerate() {
        let image = image(input, &mut |bytes| {
            decoded += bytes;
            claim.grow_to(decoded)
        });
        images.push(image.map_err(|problem| within(&format!("input {i}"), problem))?);
    }
    let callback = wire.callback.map(|CallTo::Url(url)| address(&url, &WEB)).transpose();
    let callback = callback.map_err(|problem| within("callback", problem))?;
    Ok(Asked {
        images,
        model: wire.model,
        task: wire.task,
        dimensions: wire.dimensions,
        encoding: wire.encoding_format.map(Encoding::from).unwrap_or_default(),
        partial: wire.partial_results.unwrap_or_default(),
        metadata: wire.metadata.map(|json| json.get().to_owned()),
        callback: callback.map(|url| Callback { url }),
        claim,
    })
}

fn within(part: &str, problem: Problem) -> Problem {
    Problem { detail: format!("{part}: {}", problem.detail), ..problem }
}

/// An image; `admit` claims room for its bytes.
fn image(input: &Input<'_>, admit: &mut dyn FnMut(u64) -> Result<(), Problem>) -> Result<Image, Problem> {
    let web = |text: &str| match hint(text) {
        Some(problem) => Err(problem),
        None => Ok(Image::At(ImageRef::Url(address(text, &WEB)?))),
    };
    match input {
        Input::Text(text) | Input::Named(Named::Url(text)) if !text.starts_with("data:") => web(text),
        Input::Named(Named::Object(key)) => Ok(Image::At(ImageRef::Object(address(key, &["s3://"])?))),
        Input::Named(Named::Image(text)) if text.starts_with("http") && text.contains(':') => web(text),
        Input::Text(text) | Input::Named(Named::Url(text) | Named::Image(text)) => bytes(text, admit).map(Image::Bytes),
    }
}

/// The problem of a text that names its image in another way than a URL.
fn hint(text: &str) -> Option<Problem> {
    let problem = |detail, remedy| Some(Problem { remedy, ..Problem::malformed(detail) });
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=-_\r\n".contains(&byte);
    match text {
        _ if text.starts_with("s3://") => problem(
            "a key in an object store where a URL is expected",
            r#"send it as {"object": "s3://…"}, if the operator allows its bucket"#,
        ),
        _ if text.len() >= MIN_BASE64 && text.bytes().all(is_base64) => problem(
            "base64 where a URL is expected",
            r#"send it as {"image": "…"}, or with 'data:image/jpeg;base64,' before it"#,
        ),
        _ => None,
    }
}

/// An address with one of these prefixes. Nothing else is checked before it is requested.
fn address(text: &str, kinds: &[&str]) -> Result<String, Problem> {
    let rest = kinds.iter().find_map(|kind| text.strip_prefix(kind));
    let is_one = rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_graphic()));
    if !is_one {
        let kinds = kinds.join(" or ");
        return Err(Problem::malformed(format!(
            "an address begins with {kinds} and has visible ASCII characters alone"
        )));
    }
    if text.len() > MAX_ADDRESS {
        return Err(Problem::malformed(format!("an address of more than {MAX_ADDRESS} characters")));
    }
    Ok(text.to_owned())
}

/// Base64, by itself or in a `data:` URL.
fn bytes(text: &str, admit: &mut dyn FnMut(u64) -> Result<(), Problem>) -> Result<Vec<u8>, Problem> {
    let encoded = match text.strip_prefix("data:") {
        None => text,
        Some(rest) => {
            let (head, encoded) = rest.split_once(',').unwrap_or_default();
            let is_base64 = head.ends_with(";base64") && head.bytes().all(|byte| byte.is_ascii_graphic());
            if !is_base64 {
                return Err(Problem::malformed("a data: URL looks like 'data:image/jpeg;base64,…' here"));
            }
            encoded
        }
    };
    admit(base64::decoded_len_estimate(encoded.len()) as u64)?;
    match BASE64.decode(encoded) {
        Ok(bytes) if !bytes.is_empty() => Ok(bytes),
        Ok(_) => Err(Problem::malformed("an image of no bytes")),
        Err(error) => Err(Problem::malformed(format!("not base64: {error}"))),
    }
}

/// A form: any number of files as `image`, and the other fields as in JSON.
async fn multipart(body: Vec<u8>, boundary: String, mut claim: Claim, max_images: usize) -> Result<Asked, Problem> {
    // All parts together are no larger than the body.
    claim.grow_to(body.len() as u64)?;
    let whole = stream::iter([Ok::<_, Infallible>(Bytes::from(body))]);
    let mut parts = Multipart::new(whole, boundary);
    let mut asked = Asked::new(claim);
    while let Some(part) = parts.next_field().await.map_err(|error| broken(&error))? {
        read_part(part, &mut asked, max_images).await?;
    }
    Ok(asked)
}

async fn read_part(part: Field<'_>, asked: &mut Asked, max_images: usize) -> Result<(), Problem> {
    let name = part.name().unwrap_or_default().to_owned();
    if name == "image" && asked.images.len() == max_images {
        return Err(too_many(max_images));
    }
    let bytes = part.bytes().await.map_err(|error| broken(&error))?;
    if name == "image" {
        if bytes.is_empty() {
            return Err(Problem::malformed("an image of no bytes"));
        }
        asked.images.push(Image::Bytes(bytes.to_vec()));
        return Ok(());
    }
    let text = std::str::from_utf8(&bytes);
    let text = || text.map_err(|_| Problem::malformed(format!("part '{name}' is not UTF-8")));
    match name.as_str() {
        "model" => asked.model = Some(text()?.to_owned()),
        "task" => asked.task = Some(text()?.to_owned()),
        "encoding_format" => asked.encoding = read_as::<Format>(&name, &Value::from(text()?).to_string())?.into(),
        "partial_results" => asked.partial = read_as(&name, text()?)?,
        "metadata" => {
            let json = read_as::<&RawValue>(&name, text()?)?.get();
            // In a form, a number or a word could also mean text.
            if !json.starts_with('{') {
                return Err(Problem::malformed("part 'metadata' is no JSON object"));
            }
            asked.metadata = Some(json.to_owned());
        }
        "user" => {}
        other => {
            let known = "image, model, task, encoding_format, partial_results, metadata and user";
            return Err(Problem::malformed(format!("no part is called '{other}'; there is {known}")));
        }
    }
    Ok(())
}

fn read_as<'a, T: Deserialize<'a>>(name: &str, json: &'a str) -> Result<T, Problem> {
    serde_json::from_str(json).map_err(|error| within(&format!("part '{name}'"), Problem::malformed(error.to_string())))
}

fn broken(error: &multer::Error) -> Problem {
    Problem::malformed(format!("the form cannot be read: {error}"))
}
