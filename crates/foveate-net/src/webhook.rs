//! Signed callbacks after the [Standard Webhooks](https://www.standardwebhooks.com) specification, version 1.0.0
//! (symmetric signatures, `v1`). Receivers find libraries in most languages.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::OptionsError;

/// The header of a message's id, which is the same for every attempt, so that receivers recognize repetitions.
pub const ID: &str = "webhook-id";
/// The header of the time of the attempt, in seconds since 1970.
pub const TIMESTAMP: &str = "webhook-timestamp";
/// The header of the signatures.
pub const SIGNATURE: &str = "webhook-signature";

const PREFIX: &str = "whsec_";

/// Secrets shared with the receivers: usually one, two while one replaces the other. `Debug` does not show them.
#[derive(Clone)]
pub struct Secrets(Vec<Vec<u8>>);

impl Secrets {
    /// Reads secrets of the form `whsec_BASE64`, separated by white space, each of 24 to 64 bytes.
    ///
    /// # Errors
    /// [`OptionsError`], which does not repeat the secrets.
    pub fn parse(text: &str) -> Result<Self, OptionsError> {
        let secrets: Vec<Vec<u8>> = text.split_whitespace().map(secret).collect::<Result<_, _>>()?;
        if secrets.is_empty() {
            Err(OptionsError::Setting("no webhook secret is given".to_owned()))
        } else {
            Ok(Self(secrets))
        }
    }

    /// The value of [`SIGNATURE`]: `v1,BASE64` for each secret, separated by spaces. `timestamp` is in seconds since
    /// 1970. An attacker must not choose `id`; [`message_id`] makes a safe one.
    pub fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let timestamp = timestamp.to_string();
        let mut signatures = Vec::new();
        for secret in &self.0 {
            // HMAC takes keys of any length.
            let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key");
            for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
                mac.update(part);
            }
            signatures.push(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())));
        }
        signatures.join(" ")
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

fn secret(text: &str) -> Result<Vec<u8>, OptionsError> {
    let problem = match text.strip_prefix(PREFIX).map(|encoded| STANDARD.decode(encoded)) {
        None => "does not begin with whsec_",
        Some(Err(_)) => "is not base64 after whsec_",
        Some(Ok(secret)) if (24..=64).contains(&secret.len()) => return Ok(secret),
        Some(Ok(_)) => "does not have 24 to 64 bytes",
    };
    let remedy = "make one: echo whsec_$(openssl rand -base64 32)";
    Err(OptionsError::Setting(format!("a webhook secret {problem}; {remedy}")))
}

/// A message's id from a text that identifies the message. It is safe in a header. It has no full stops, which would
/// let an attacker shift the boundaries of the signed parts.
pub fn message_id(key: &str) -> String {
    use std::fmt::Write as _;
    let digest = Sha256::digest(key.as_bytes());
    digest[..16].iter().fold("msg_".to_owned(), |mut id, byte| {
        let _ = write!(id, "{byte:02x}");
        id
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const OTHER: &str = "whsec_Zm92ZWF0ZSBzaWducyBpdHMgY2FsbGJhY2tzIHR3aWNl";
    const MESSAGE: &str = "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W";
    const BODY: &str = r#"{"id":"photo-1","vector":[0.5,-1.25]}"#;

    #[test]
    fn signatures_are_those_of_the_reference() {
        // The output of the specification's own library for Python, standardwebhooks 1.1.0.
        let signature = "v1,4CXWxHFqJzamo2RVZhl7CDg8su+PNzGi4Ar1Sol+AeI=";
        assert_eq!(Secrets::parse(SECRET).unwrap().sign(MESSAGE, 1674087231, BODY.as_bytes()), signature);
        let both = Secrets::parse(&format!("{OTHER}\n{SECRET}\n")).unwrap().sign(MESSAGE, 1674087231, BODY.as_bytes());
        assert!(both.starts_with("v1,") && both.ends_with(&format!(" {signature}")), "{both}");
        assert_ne!(both.split(' ').next(), Some(signature));
    }

    #[test]
    fn secrets_are_checked_and_not_repeated() {
        let short = format!("whsec_{}", STANDARD.encode([7; 23]));
        let long = format!("whsec_{}", STANDARD.encode([7; 65]));
        for (text, problem) in [
            ("hunter2hunter2hunter2hunter2", "does not begin with whsec_"),
            ("whsec_hunter2hunter2!", "is not base64 after whsec_"),
            (&short, "does not have 24 to 64 bytes"),
            (&long, "does not have 24 to 64 bytes"),
        ] {
            let error = Secrets::parse(&format!("{SECRET} {text}")).unwrap_err().to_string();
            assert_eq!(error, format!("a webhook secret {problem}; make one: echo whsec_$(openssl rand -base64 32)"));
        }
        assert_eq!(Secrets::parse(" \n").unwrap_err().to_string(), "no webhook secret is given");
        assert_eq!(format!("{:?}", Secrets::parse(SECRET).unwrap()), "Secrets(1)");
    }

    #[test]
    fn message_ids_are_stable_and_plain() {
        assert_eq!(message_id("a"), "msg_ca978112ca1bbdcafac231b39a23dc4d");
        assert_ne!(message_id("a"), message_id("b"));
        assert!(message_id("ä.\n ").bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'));
    }
}
