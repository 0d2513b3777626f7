//! Requests as forms: any number of files, and the other fields as in JSON.

use std::borrow::Cow;
use std::convert::Infallible;

use axum::body::Bytes;
use foveate_net::{ImageAddress, is_base64};
use foveate_worker::Image;
use futures_util::stream;
use multer::{Field, Multipart};
use serde_json::Value;

use crate::asked::Asked;
use crate::image_text::{ImageText, TextMeans};
use crate::problem::ApiProblem;
use crate::serving::Serving;
use crate::settings::RequestFields;

/// Names of parts with a file, alone or with `[]` or `[0]` after it.
const FILES: [&str; 4] = ["image", "images", "file", "files"];
/// Names of parts with an address.
const ADDRESSES: [&str; 3] = ["input", "url", "image_url"];

/// Reads a form.
pub(crate) async fn multipart(
    body: Vec<u8>,
    boundary: String,
    asked: &mut Asked,
    serving: &Serving,
) -> Result<(), ApiProblem> {
    // All parts together are no larger than the body.
    asked.claim.grow_to(body.len() as u64)?;
    let whole = stream::iter([Ok::<_, Infallible>(Bytes::from(body))]);
    let mut parts = Multipart::new(whole, boundary);
    // Texts need no more room than their parts, which are claimed.
    let mut decoded = 0;
    while let Some(part) = parts.next_field().await.map_err(|error| broken(&error))? {
        read_part(part, asked, serving, &mut decoded).await?;
    }
    Ok(())
}

async fn read_part(part: Field<'_>, asked: &mut Asked, serving: &Serving, decoded: &mut u64) -> Result<(), ApiProblem> {
    let max_images = serving.api.max_images;
    let name = part.name().unwrap_or_default().to_owned();
    let is_file = part.file_name().is_some();
    let has_type = part.content_type().is_some();
    let kind = name.split('[').next().unwrap_or_default();
    let is_image = FILES.contains(&kind) || ADDRESSES.contains(&kind);
    if is_image && asked.images.len() == max_images {
        return Err(ApiProblem::too_many(max_images));
    }
    let bytes = part.bytes().await.map_err(|error| broken(&error))?;
    if is_image {
        if bytes.is_empty() {
            return Err(ApiProblem::malformed("an image of no bytes"));
        }
        // A part without a name of a file may hold the file all the same.
        let text = std::str::from_utf8(&bytes).ok().filter(|text| {
            let is_address = ImageAddress::parse(text).is_some() || is_base64(text);
            !is_file && !has_type && (is_address || ADDRESSES.contains(&kind))
        });
        let image = match text {
            Some(text) => {
                let text = ImageText { text: Cow::Borrowed(text), means: TextMeans::Address };
                let texts = serving.texts(asked.settings.task.as_deref());
                text.input(texts, &mut asked.claim, decoded)
                    .map_err(|problem| problem.within(&format!("part '{name}'")))?
            }
            None => Image::Bytes(bytes.to_vec()),
        };
        asked.images.push(image);
        return Ok(());
    }
    let Ok(text) = std::str::from_utf8(&bytes) else { return unknown(&name, is_file, asked) };
    let json = match RequestFields::TEXTS.contains(&name.as_str()) {
        true => Value::from(text).to_string(),
        false => text.to_owned(),
    };
    // In a form, a number or a word could also mean text.
    if name == "metadata" && !json.trim_start().starts_with('{') {
        return Err(ApiProblem::malformed("part 'metadata' is no JSON object"));
    }
    let is_known = asked.settings.set(&name, &json);
    match is_known.map_err(|reason| ApiProblem::malformed(format!("part '{name}': {reason}")))? {
        true if json.trim() == "null" => Err(ApiProblem::malformed(format!("part '{name}' is null; leave it out"))),
        true => Ok(()),
        false => unknown(&name, is_file, asked),
    }
}

/// Notes a part of another name. A file is not left out: its sender wants a vector for it.
fn unknown(name: &str, is_file: bool, asked: &mut Asked) -> Result<(), ApiProblem> {
    if is_file {
        return Err(ApiProblem::malformed(format!(
            "part '{name:.100}' is a file; files are called image, images, file or files"
        )));
    }
    asked.ignored.add(name).map_err(ApiProblem::malformed)
}

fn broken(error: &multer::Error) -> ApiProblem {
    ApiProblem::malformed(format!("the form cannot be read: {error}"))
}
