//! The images of a request in JSON: texts, objects that name one, and messages with parts.

use std::borrow::Cow;
use std::fmt;

use axum::http::StatusCode;
use foveate_net::{ImageAddress, MAX_ADDRESS, NetError};
use foveate_queue::ImageRef;
use foveate_worker::Image;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::limits::MAX_INPUTS;
use crate::memory::MemoryClaim;
use crate::problem::ApiProblem;
use crate::settings::IgnoredFields;

/// The description of an input, for errors.
const EXPECTED: &str =
    r#"an image (a URL, {"url": …}, {"image": base64 or a data: URL}, {"image_url": …}, {"object": "s3://…"})"#;
/// Most images of an input that are kept. A second one is a reason to refuse it, and further ones only take memory.
const KEPT: usize = 2;

/// A text that names an image, or holds its bytes.
#[derive(Debug)]
pub(crate) struct ImageText<'a> {
    pub(crate) text: Cow<'a, str>,
    pub(crate) means: TextMeans,
}

/// The meaning that a text may have, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextMeans {
    /// An address, or base64 if it looks like it.
    Address,
    /// An address, or base64.
    Bytes,
    /// An object in a store.
    Object,
}

impl ImageText<'_> {
    /// The image. Its bytes are claimed in addition to `decoded` others.
    pub(crate) fn image(&self, claim: &mut MemoryClaim, decoded: &mut u64) -> Result<Image, ApiProblem> {
        let text = &*self.text;
        let admit = |bytes: u64| {
            *decoded += bytes;
            claim.grow_to(*decoded)
        };
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
                return Err(ApiProblem::new(
                    StatusCode::BAD_REQUEST,
                    "a text that is neither an address (https://…, data:…, s3://…) nor an image in base64",
                    r#"name an image: this server embeds no texts; or send its bytes as {"image": base64}"#,
                ));
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
        InputSeed { path: self.path, ignored: self.ignored, means: TextMeans::Address }
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

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut images = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            let path = format!("{}.{name}", self.path);
            let means = match name.as_str() {
                "url" | "image_url" => TextMeans::Address,
                "image" | "image_base64" | "base64" | "bytes" => TextMeans::Bytes,
                "object" => TextMeans::Object,
                "content" => {
                    let content = PartsSeed { path: &path, ignored: self.ignored };
                    images.extend(map.next_value_seed(content)?);
                    images.truncate(KEPT);
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
            images.truncate(KEPT);
        }
        Ok(images)
    }
}

/// Reads the content of a message: text, which is ignored, or parts.
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

    fn visit_str<E: de::Error>(self, _: &str) -> Result<Self::Value, E> {
        self.ignored.add(self.path).map_err(E::custom)?;
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut images = Vec::new();
        loop {
            let part = InputSeed { path: self.path, ignored: self.ignored, means: TextMeans::Address };
            match seq.next_element_seed(part)? {
                Some(part) => images.extend(part),
                None => return Ok(images),
            }
            images.truncate(KEPT);
        }
    }
}
