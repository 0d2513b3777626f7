//! Texts that stand for an image: its address, or its bytes in base64.

use std::borrow::Cow;
use std::fmt::Display;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::percent_decode_str;

use crate::NetError;
use crate::target::HttpTarget;

/// Schemes of addresses of objects in stores.
const STORES: [&str; 5] = ["s3", "gs", "az", "abfs", "abfss"];
/// Bits that are left over at the end have no meaning, and encoders leave any there.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// Characters that are decoded at once: whole groups of four.
const CHUNK: usize = 4096;
/// The shortest text that is taken for base64 without being called so. No image is smaller.
const MIN_BASE64: usize = 32;

/// An image's address, as a browser reads the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageAddress {
    /// An http or https URL, in its normal form if it has one. A [`Client`](crate::Client) refuses it otherwise.
    Web(String),
    /// A `data:` URL, for [`decode_data`].
    Data,
    /// An object in a store (`s3://bucket/key`). Its scheme is in lower case, and its key as it was.
    Object(String),
}

impl ImageAddress {
    /// Parses an address: any case of the scheme, spaces around it, backslashes, letters outside of ASCII. Returns
    /// `None` for a text that is no address of a known kind.
    pub fn parse(text: &str) -> Option<Self> {
        let text = trimmed(text);
        let (scheme, rest) = text.split_once(':')?;
        match scheme.to_ascii_lowercase().as_str() {
            "http" | "https" => Some(Self::Web(
                HttpTarget::parse(text).map_or_else(|_| text.to_owned(), |target| target.uri().to_string()),
            )),
            "data" => Some(Self::Data),
            scheme if STORES.contains(&scheme) && rest.starts_with("//") => {
                Some(Self::Object(format!("{scheme}:{rest}")))
            }
            _ => None,
        }
    }
}

/// Browsers ignore these around an address.
fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c <= ' ' || c == '\u{feff}')
}

/// Returns the bytes of a `data:` URL, in base64 or escaped. The media type and its parameters are ignored, because an
/// image's bytes tell its format. `admit` is called with the most bytes that there may be.
///
/// # Errors
/// A [`NetError`] if the URL has no comma or its base64 is damaged; what `admit` returns.
pub fn decode_data<E: From<NetError>>(address: &str, admit: impl FnOnce(u64) -> Result<(), E>) -> Result<Vec<u8>, E> {
    let text = trimmed(address).split('#').next().unwrap_or_default();
    let Some((head, body)) = text.split_once(',') else {
        let reason = "a data: URL looks like 'data:image/jpeg;base64,…'; this one has no comma";
        return Err(NetError::permanent(reason).into());
    };
    let mut head = percent_decode_str(head).decode_utf8_lossy().to_ascii_lowercase();
    head.retain(|c| !c.is_ascii_whitespace());
    if head.ends_with(";base64") || head == "data:base64" {
        return decode_base64(body, admit);
    }
    admit(body.len() as u64)?;
    Ok(percent_decode_str(body).collect())
}

/// Returns the bytes of a text in base64: of either alphabet, with line ends or without, padded or not, and with
/// characters that were escaped for a URL. `admit` is called with the most bytes that there may be.
///
/// # Errors
/// A [`NetError`] if it is no base64; what `admit` returns.
pub fn decode_base64<E: From<NetError>>(text: &str, admit: impl FnOnce(u64) -> Result<(), E>) -> Result<Vec<u8>, E> {
    admit(base64::decoded_len_estimate(text.len()) as u64)?;
    let mut bytes = Vec::with_capacity(base64::decoded_len_estimate(text.len()));
    let mut chunk = Vec::with_capacity(CHUNK);
    for byte in percent_decode_str(text).filter(|byte| !byte.is_ascii_whitespace()) {
        if chunk.len() == CHUNK {
            if chunk.contains(&b'=') {
                return Err(not_base64("'=' before its end").into());
            }
            BASE64.decode_vec(&chunk, &mut bytes).map_err(not_base64)?;
            chunk.clear();
        }
        chunk.push(match byte {
            b'-' => b'+',
            b'_' => b'/',
            byte => byte,
        });
    }
    BASE64.decode_vec(&chunk, &mut bytes).map_err(not_base64)?;
    Ok(bytes)
}

/// Decodes a form's text (`a+b%2Fc` is `a b/c`); `None` if it is not UTF-8.
pub fn decode_form(text: &str) -> Option<String> {
    percent_decode_str(&text.replace('+', " ")).decode_utf8().ok().map(Cow::into_owned)
}

fn not_base64(error: impl Display) -> NetError {
    NetError::permanent(format!("not base64: {error}"))
}

/// Returns true if a text is probably an image in base64 that does not say so, and no mistyped address.
pub fn is_base64(text: &str) -> bool {
    text.len() >= MIN_BASE64 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=-_%\r\n".contains(&byte))
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

    use super::*;

    fn any(_: u64) -> Result<(), NetError> {
        Ok(())
    }

    #[test]
    fn base64_is_read_however_it_is_written() {
        for length in [1, 2, 3, 57, 3071, 3072, 3073, 9000] {
            let bytes: Vec<u8> = (0..length).map(|i: usize| (i * 7 + 250) as u8).collect();
            let plain = STANDARD.encode(&bytes);
            let lines: Vec<String> =
                plain.as_bytes().chunks(76).map(|line| String::from_utf8(line.to_vec()).unwrap()).collect();
            let escaped = plain.replace('+', "%2B").replace('/', "%2f").replace('=', "%3D");
            for text in [
                plain.clone(),
                lines.join("\r\n") + "\n",
                URL_SAFE_NO_PAD.encode(&bytes),
                plain.trim_end_matches('=').to_owned(),
                escaped,
            ] {
                assert_eq!(decode_base64(&text, any).unwrap(), bytes, "{length}: {text:.100}");
            }
        }
        let padded = format!("{}=={}", "A".repeat(4094), "A".repeat(8));
        for damaged in ["A", "AAAA=", "AA=A", "AA==AAAA", "AAA.", "ÄÄÄÄ", "%0", &padded] {
            assert!(decode_base64(damaged, any).unwrap_err().reason.starts_with("not base64: "), "{damaged:.10}");
        }
        let refused = decode_base64("AAAA", |bytes| Err(NetError::permanent(format!("{bytes} are too many"))));
        assert_eq!(refused.unwrap_err().reason, "3 are too many");
    }

    #[test]
    fn data_urls_are_read_as_browsers_read_them() {
        for url in [
            "data:image/png;base64,iVBORw==",
            "DATA:IMAGE/PNG;BASE64,iVBORw",
            " data:;base64,iVBO\nRw==#part ",
            "data:image/png;charset=utf-8;name=a.png; base64,iVBORw%3D%3D",
            "data:image/png%3Bbase64,iVBORw==",
            "data:base64,iVBORw==",
            "data:image/png,%89PNG",
            "data:,%89PNG",
        ] {
            assert_eq!(decode_data(url, any).unwrap(), b"\x89PNG", "{url}");
            assert_eq!(ImageAddress::parse(url), Some(ImageAddress::Data), "{url}");
        }
        assert_eq!(decode_data("data:,", any).unwrap(), b"");
        assert!(decode_data("data:image/png;base64", any).unwrap_err().reason.contains("no comma"));
    }

    #[test]
    fn addresses_have_one_kind_and_one_spelling() {
        let web = |url: &str| Some(ImageAddress::Web(url.to_owned()));
        for (text, expected) in [
            (" HTTPS://EXAMPLE.com/a b.jpg\n", web("https://example.com/a%20b.jpg")),
            ("https:\\\\bücher.example\\ü.jpg", web("https://xn--bcher-kva.example/%C3%BC.jpg")),
            ("http:example.com", web("http://example.com/")),
            ("http://", web("http://")),
            ("https://u:p@example.com/a", web("https://u:p@example.com/a")),
            ("S3://Bucket/A b+%2F.jpg", Some(ImageAddress::Object("s3://Bucket/A b+%2F.jpg".to_owned()))),
            ("gs://bucket/a", Some(ImageAddress::Object("gs://bucket/a".to_owned()))),
            ("cat.jpg", None),
            ("file:///etc/passwd", None),
            ("ftp://example.com/a", None),
            ("C:\\photos\\a.jpg", None),
            ("a photo: of a cat", None),
            ("", None),
        ] {
            assert_eq!(ImageAddress::parse(text), expected, "{text}");
        }
    }
}
