//! The inputs of a request in JSON: addresses, images, texts, objects that hold one, and messages with parts.

use std::borrow::Cow;
use std::fmt;

use axum::http::StatusCode;
use foveate_net::{ImageAddress, MAX_ADDRESS, NetError};
use foveate_queue::{ImageRef, Job};
use foveate_worker::Image;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::limits::MAX_INPUTS;
use crate::memory::MemoryClaim;
use crate::problem::ApiProblem;
use crate::settings::IgnoredFields;

/// The description of an input, for errors.
const EXPECTED: &str = r#"an image (a URL, {"url": …}, {"image": base64 or a data: URL}, {"image_url": …}, {"object": "s3://…"}), or a text"#;
/// Most images of an input that are kept, and most texts. A second one is a reason to refuse it, and further ones only
/// take memory.
const KEPT: usize = 2;
/// The reason to refuse what may be the token ids that OpenAI's API takes.
const NO_TOKENS: &str = "token ids and nested arrays are not understood; send each text as a string";

/// A text that names an image, or holds its bytes, or is embedded itself.
#[derive(Debug)]
pub(crate) struct ImageText<'a> {
    pub(crate) text: Cow<'a, str>,
    pub(crate) means: TextMeans,
}

/// The meaning that a text may have, by its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TextMeans {
    /// An address, or base64 if it looks like it; otherwise a text.
    Address,
    /// An address, or base64.
    Bytes,
    /// An object in a store.
    Object,
    /// A text, whatever it looks like.
    Words {
        /// Its place, for names of ignored fields.
        path: String,
    },
}

/// The use of texts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TextUse {
    Embed,
    /// Refuse them, with this remedy.
    Refuse(&'static str),
}

impl TextUse {
    fn input(self, text: &str, refusal: &str) -> Result<Image, ApiProblem> {
        match self {
            Self::Refuse(remedy) => Err(ApiProblem::new(StatusCode::BAD_REQUEST, refusal, remedy)),
            Self::Embed if text.len() > Job::MAX_TEXT => {
                let detail = format!("a text of {} bytes; there may be {}", text.len(), Job::MAX_TEXT);
                Err(ApiProblem::impossible(detail, "send its beginning: models take fewer words"))
            }
            Self::Embed => Ok(Image::Text(text.to_owned())),
        }
    }
}

impl ImageText<'_> {
    pub(crate) fn is_words(&self) -> bool {
        matches!(self.means, TextMeans::Words { .. })
    }

    /// The image or text. An image's bytes are claimed in addition to `decoded` others.
    pub(crate) fn input(
        &self,
        texts: TextUse,
        claim: &mut MemoryClaim,
        decoded: &mut u64,
    ) -> Result<Image, ApiProblem> {
        let text = &*self.text;
        let mut admit = |bytes: u64| {
            *decoded += bytes;
            claim.grow_to(*decoded)
        };
        if self.is_words() {
            admit(text.len() as u64)?;
            return texts.input(text, "a text");
        }
        let address = ImageAddress::parse(text);
        if text.len() > MAX_ADDRESS && matches!(address, Some(ImageAddress::Web(_) | ImageAddress::Object(_))) {
            return Err(ApiProblem::malformed(format!("an address of more than {MAX_ADDRESS} characters")));
        }
        let bytes = match address {
            Some(ImageAddress::Object(address)) => return Ok(Image::At(ImageRef::Object(address))),
            _ if self.means == TextMeans::Object => {
                return Err(ApiProblem::malformed("an object's address begins with s3://, gs:// or az://"));
            }
            Some(ImageAddress::Web(url)) => return Ok(Image::At(ImageRef::Url(url))),
            Some(ImageAddress::Data) => foveate_net::decode_data(text, admit)?,
            None if self.means == TextMeans::Bytes || foveate_net::is_base64(text) => {
                foveate_net::decode_base64(text, admit)?
            }
            None => {
                let refusal = "a text that is neither an address (https://…, data:…, s3://…) nor an image in base64";
                admit(text.len() as u64)?;
                return texts.input(text, refusal);
            }
        };
        match bytes.is_empty() {
            true => Err(ApiProblem::malformed("an image of no bytes")),
            false => Ok(Image::Bytes(bytes)),
        }
    }
}

impl From<NetError> for ApiProblem {
    fn from(error: NetError) -> Self {
        Self::malformed(error.reason)
    }
}

/// Reads the inputs of a request: one or several, each with its images, at most [`KEPT`]. Hand-written, because serde's
/// untagged enums first buffer the value, at many times its size in JSON.
pub(crate) struct InputsSeed<'i> {
    /// The meaning of a string.
    pub(crate) means: TextMeans,
    /// Their place, for names of ignored fields.
    pub(crate) path: &'i str,
    pub(crate) ignored: &'i mut IgnoredFields,
}

/// Reads one input.
struct InputSeed<'i> {
    path: &'i str,
    ignored: &'i mut IgnoredFields,
    means: TextMeans,
}

impl<'de> DeserializeSeed<'de> for InputsSeed<'_> {
    type Value = Option<Vec<Vec<ImageText<'de>>>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl InputsSeed<'_> {
    fn one(&mut self) -> InputSeed<'_> {
        InputSeed { path: self.path, ignored: self.ignored, means: self.means.clone() }
    }
}

impl<'de> Visitor<'de> for InputsSeed<'_> {
    type Value = Option<Vec<Vec<ImageText<'de>>>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{EXPECTED}, or an array of them")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E: de::Error>(mut self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(vec![self.one().visit_str(text)?]))
    }

    fn visit_borrowed_str<E: de::Error>(mut self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Some(vec![self.one().visit_borrowed_str(text)?]))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, map: A) -> Result<Self::Value, A::Error> {
        Ok(Some(vec![self.one().visit_map(map)?]))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut inputs = Vec::new();
        while let Some(input) = seq.next_element_seed(self.one())? {
            if inputs.len() == MAX_INPUTS {
                return Err(de::Error::custom(format_args!("more than {MAX_INPUTS} inputs")));
            }
            inputs.push(input);
        }
        Ok(Some(inputs))
    }
}

impl<'de> DeserializeSeed<'de> for InputSeed<'_> {
    type Value = Vec<ImageText<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for InputSeed<'_> {
    type Value = Vec<ImageText<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(vec![ImageText { text: Cow::Owned(text.to_owned()), means: self.means }])
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(vec![ImageText { text: Cow::Borrowed(text), means: self.means }])
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Self::Value, E> {
        Err(E::custom(NO_TOKENS))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Self::Value, A::Error> {
        Err(de::Error::custom(NO_TOKENS))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut images = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            let path = format!("{}.{name}", self.path);
            let means = match name.as_str() {
                "url" | "image_url" => TextMeans::Address,
                "image" | "image_base64" | "base64" | "bytes" => TextMeans::Bytes,
                "object" => TextMeans::Object,
                "text" => TextMeans::Words { path: path.clone() },
                "content" => {
                    let content = PartsSeed { path: &path, ignored: self.ignored };
                    images.extend(map.next_value_seed(content)?);
                    shorten(&mut images);
                    continue;
                }
                // The other fields say what it is.
                "type" | "role" => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                _ => {
                    self.ignored.add(&path).map_err(de::Error::custom)?;
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            images.extend(map.next_value_seed(InputSeed { path: &path, ignored: self.ignored, means })?);
            shorten(&mut images);
        }
        Ok(images)
    }
}

/// Reads the content of a message: a text, or parts.
struct PartsSeed<'i> {
    path: &'i str,
    ignored: &'i mut IgnoredFields,
}

impl<'de> DeserializeSeed<'de> for PartsSeed<'_> {
    type Value = Vec<ImageText<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PartsSeed<'_> {
    type Value = Vec<ImageText<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, or an array of parts ({\"type\": \"image_url\", \"image_url\": {\"url\": …}})")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(vec![ImageText {
            text: Cow::Owned(text.to_owned()),
            means: TextMeans::Words { path: self.path.to_owned() },
        }])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut images = Vec::new();
        loop {
            let part = InputSeed { path: self.path, ignored: self.ignored, means: TextMeans::Address };
            match seq.next_element_seed(part)? {
                Some(part) => images.extend(part),
                None => return Ok(images),
            }
            shorten(&mut images);
        }
    }
}

/// Drops what is beyond the images and texts that are kept.
fn shorten(inputs: &mut Vec<ImageText<'_>>) {
    let mut images = 0;
    let mut texts = 0;
    inputs.retain(|input| {
        let count = if input.is_words() { &mut texts } else { &mut images };
        *count += 1;
        *count <= KEPT
    });
}
