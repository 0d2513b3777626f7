//! Signed callbacks after the [Standard Webhooks](https://www.standardwebhooks.com) specification, version 1.0.0
//! (symmetric signatures, `v1`), for which receivers find libraries in most languages.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::OptionsError;

/// The header of a message's id: the same each time it is sent, so that receivers know it again.
pub const ID: &str = "webhook-id";
/// The header of when it is sent, in seconds since 1970.
pub const TIMESTAMP: &str = "webhook-timestamp";
/// The header of its signatures.
pub const SIGNATURE: &str = "webhook-signature";

const PREFIX: &str = "whsec_";

/// Secrets that receivers share: usually one, two while one takes the other's place. Never shown.
#[derive(Clone)]
pub struct Secrets(Vec<Vec<u8>>);

impl Secrets {
    /// Reads secrets of the form `whsec_BASE64`, separated by white space, each of 24 to 64 bytes.
    ///
    /// # Errors
    /// [`OptionsError`], which does not repeat them.
    pub fn parse(text: &str) -> Result<Self, OptionsError> {
        let secrets: Vec<Vec<u8>> = text.split_whitespace().map(secret).collect::<Result<_, _>>()?;
        match secrets.is_empty() {
            true => Err(OptionsError("no webhook secret is given".to_owned())),
            false => Ok(Self(secrets)),
        }
    }

    /// The value of [`SIGNATURE`]: `v1,BASE64` for each secret, separated by spaces. `id` must not be the choice of a
    /// stranger ([`message_id`] makes it a safe one); `timestamp` is in seconds since 1970.
    pub fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let timestamp = timestamp.to_string();
        let sign = |secret: &Vec<u8>| {
            // HMAC takes keys of any length.
            let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key");
            for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
                mac.update(part);
            }
            format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
        };
        self.0.iter().map(sign).collect::<Vec<_>>().join(" ")
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

fn secret(text: &str) -> Result<Vec<u8>, OptionsError> {
    let error = |problem: &str| {
        let remedy = "make one: echo whsec_$(openssl rand -base64 32)";
        OptionsError(format!("a webhook secret {problem}; {remedy}"))
    };
    let encoded = text.strip_prefix(PREFIX).ok_or_else(|| error("does not begin with whsec_"))?;
    let secret = STANDARD.decode(encoded).map_err(|_| error("is not base64 after whsec_"))?;
    match secret.len() {
        24..=64 => Ok(secret),
        _ => Err(error("does not have 24 to 64 bytes")),
    }
}

/// A message's id from any text that is the same for the same message: safe in a header, and without the full stops
/// by which a stranger could move the borders of what is signed.
pub fn message_id(key: &str) -> String {
    use std::fmt::Write as _;
    let digest = Sha256::digest(key.as_bytes());
    digest[..16].iter().fold("msg_".to_owned(), |mut id, byte| {
        let _ = write!(id, "{byte:02x}");
        id
    })
}
