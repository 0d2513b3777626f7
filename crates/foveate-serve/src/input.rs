//! Requests: JSON, a form with files, or one image.

use std::fmt;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use foveate_queue::Job;
use foveate_worker::Image;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use tokio::runtime::Handle;

use crate::asked::Asked;
use crate::body::{self, BodyKind};
use crate::form;
use crate::image_text::{ImageText, InputsSeed, TextMeans, TextUse};
use crate::problem::ApiProblem;
use crate::request_log::RequestFigures;
use crate::serving::Serving;
use crate::settings::{IgnoredFields, RequestFields};
use crate::similar::SimilarFields;

/// Fields that list inputs: this API's and OpenAI's, Voyage's, Cohere's, and vLLM's.
const INPUTS: [&str; 9] = ["input", "inputs", "image", "images", "image_url", "url", "messages", "text", "texts"];
/// Those of them whose strings are texts.
const TEXTS: [&str; 2] = ["text", "texts"];

/// Reads and parses a body. A request that searches has the fields of `similar`, too.
pub(crate) async fn ask(
    serving: &Serving,
    headers: &HeaderMap,
    body: &mut Body,
    similar: Option<SimilarFields>,
    figures: &mut RequestFigures,
) -> Result<Asked, ApiProblem> {
    let (body, mut claim) = body::read(serving, headers, body).await?;
    figures.bytes = body.len();
    let kind = BodyKind::of(headers, &body)?;
    if !matches!(kind, BodyKind::Image) {
        // Parsing needs as much again, for unescaped text or the parts of a form.
        claim.grow_to(2 * body.len() as u64)?;
    }
    let mut asked = Asked::new(serving, serving.memory.claim());
    asked.settings.similar = similar;
    match kind {
        // Decoding many megabytes takes a while.
        BodyKind::Json => tokio::task::block_in_place(|| json(&body, &mut asked, serving))?,
        BodyKind::Multipart { boundary } => {
            let form = form::multipart(body, boundary, &mut asked, serving);
            tokio::task::block_in_place(|| Handle::current().block_on(form))?
        }
        // The body is the image, so its claim is the image's.
        BodyKind::Image => asked = Asked { images: vec![Image::Bytes(body)], claim, ..asked },
    }
    figures.ignored = asked.ignored.header();
    if let Some(bytes) = asked.settings.metadata.as_ref().map(String::len).filter(|bytes| *bytes > Job::MAX_METADATA) {
        return Err(ApiProblem::impossible(
            format!("metadata of {bytes} bytes; there may be {}", Job::MAX_METADATA),
            "send less",
        ));
    }
    let mut count = asked.images.len();
    if let Some(similar) = &mut asked.settings.similar {
        similar.settle()?;
        count += similar.size();
    }
    match count {
        0 => Err(ApiProblem::malformed("there is no image in it")),
        // Images alone were counted when they were read.
        _ if count > serving.api.max_images && count > asked.images.len() => {
            let detail = format!("more than {} images, texts, ids and vectors in one request", serving.api.max_images);
            Err(ApiProblem::impossible(detail, "send several requests"))
        }
        _ => Ok(asked),
    }
}

/// Reads a request in JSON.
fn json(body: &[u8], asked: &mut Asked, serving: &Serving) -> Result<(), ApiProblem> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(ApiProblem::malformed("a list; expected an object with the list as input"));
    }
    let mut parser = serde_json::Deserializer::from_slice(body);
    let request = RequestSeed { settings: &mut asked.settings, ignored: &mut asked.ignored };
    let lists = request.deserialize(&mut parser).and_then(|lists| parser.end().map(|()| lists));
    let mut lists = lists.map_err(|error| ApiProblem::malformed(error.to_string()))?;
    let texts = serving.texts(asked.settings.task.as_deref());
    // A search takes its texts after its images.
    lists.sort_by_key(|list| list.is_of_texts());
    match &lists[..] {
        [] => {
            let remedy = match (&asked.settings.similar, texts) {
                (Some(similar), _) if similar.size() > 0 => return Ok(()),
                (Some(_), _) => "send images as input, or text, id, ids, vector, positive or negative",
                (None, TextUse::Refuse(remedy)) => remedy,
                (None, TextUse::Embed) => "send images or texts as input",
            };
            return Err(ApiProblem::new(StatusCode::BAD_REQUEST, "missing field `input`", remedy));
        }
        [_] => {}
        [images, texts] if asked.settings.similar.is_some() && !images.is_of_texts() && texts.is_of_texts() => {}
        [first, second, ..] => {
            let detail = format!("inputs as '{}' and as '{}'", first.field, second.field);
            return Err(ApiProblem::impossible(detail, "send all of them as input"));
        }
    }
    let mut decoded = 0;
    for ImageList { field, inputs } in lists {
        if field == "messages" {
            // Other services give one vector to a conversation, not one to each image.
            let parts: Vec<ImageText<'_>> = inputs.into_iter().flatten().collect();
            let input = only(&parts, &mut asked.ignored);
            let input = input.and_then(|input| input.input(texts, &mut asked.claim, &mut decoded));
            asked.images.push(input.map_err(|problem| problem.within(field))?);
            continue;
        }
        if asked.images.len() + inputs.len() > serving.api.max_images {
            return Err(ApiProblem::too_many(serving.api.max_images));
        }
        for parts in &inputs {
            let input = only(parts, &mut asked.ignored);
            let input = input.and_then(|input| input.input(texts, &mut asked.claim, &mut decoded));
            let place = format!("input {}", asked.images.len());
            asked.images.push(input.map_err(|problem| problem.within(&place))?);
        }
    }
    Ok(())
}

/// The only image of an input, or else its only text. A text next to an image is ignored: it is no input.
fn only<'i, 'a>(parts: &'i [ImageText<'a>], ignored: &mut IgnoredFields) -> Result<&'i ImageText<'a>, ApiProblem> {
    let remedy = "send each of them as an element of input, which has a vector for each";
    let images: Vec<_> = parts.iter().filter(|part| !part.is_words()).collect();
    match (&images[..], parts) {
        ([image], _) => {
            for part in parts {
                if let TextMeans::Words { path } = &part.means {
                    ignored.add(path).map_err(ApiProblem::malformed)?;
                }
            }
            Ok(image)
        }
        ([], [text]) => Ok(text),
        ([], []) => Err(ApiProblem::malformed("there is no image in it")),
        ([], _) => Err(ApiProblem::impossible("several texts where one vector is asked for", remedy)),
        _ => Err(ApiProblem::impossible("several images where one vector is asked for", remedy)),
    }
}

/// A field with inputs, each with its own images and texts.
struct ImageList<'a> {
    field: &'static str,
    inputs: Vec<Vec<ImageText<'a>>>,
}

impl ImageList<'_> {
    fn is_of_texts(&self) -> bool {
        TEXTS.contains(&self.field)
    }
}

/// Reads the fields of a request.
struct RequestSeed<'r> {
    settings: &'r mut RequestFields,
    ignored: &'r mut IgnoredFields,
}

impl<'de> DeserializeSeed<'de> for RequestSeed<'_> {
    type Value = Vec<ImageList<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RequestSeed<'_> {
    type Value = Vec<ImageList<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with input")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut lists: Vec<ImageList<'de>> = Vec::new();
        let mut known: Vec<String> = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if known.contains(&name) {
                return Err(de::Error::custom(format_args!("duplicate field `{name}`")));
            }
            if let Some(field) = INPUTS.into_iter().find(|field| *field == name) {
                let means = match TEXTS.contains(&field) {
                    true => TextMeans::Words { path: name.clone() },
                    false => TextMeans::Address,
                };
                let inputs = map.next_value_seed(InputsSeed { means, path: field, ignored: self.ignored })?;
                lists.extend(inputs.map(|inputs| ImageList { field, inputs }));
                known.push(name);
                continue;
            }
            let value: &'de RawValue = map.next_value()?;
            let is_known = self.settings.set(&name, value.get());
            match is_known.map_err(|reason| de::Error::custom(format_args!("field `{name}`: {reason}")))? {
                true => known.push(name),
                // Of this value, what it says of the images is the default.
                false if name == "input_type" && value.get() == r#""image""# => {}
                false => self.ignored.add(&name).map_err(de::Error::custom)?,
            }
        }
        Ok(lists)
    }
}
