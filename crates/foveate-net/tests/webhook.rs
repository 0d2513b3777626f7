//! Signatures, verified by the specification's own library.
#![allow(clippy::unwrap_used)] // tests may unwrap

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use foveate_net::webhook::{Secrets, message_id};
use foveate_testkit::{python, run, trials};

const SECRETS: [&str; 2] =
    ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_Zm92ZWF0ZSBzaWducyBpdHMgY2FsbGJhY2tzIHR3aWNl"];
const BODY: &str = r#"{"id":"photo-1","vector":[0.5,-1.25]}"#;

/// Verifies as a receiver does.
const RECEIVER: &str = r#"
import sys
from standardwebhooks import Webhook, WebhookVerificationError
secret, id, timestamp, signature, body = sys.argv[1:]
headers = {"webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": signature}
Webhook(secret).verify(body, headers)
for wrong in [body + " ", body.replace("1", "2")]:
    try:
        Webhook(secret).verify(wrong, headers)
    except WebhookVerificationError:
        continue
    sys.exit("a changed body was verified")
"#;

fn main() -> ExitCode {
    run(trials![the_reference_library_verifies_what_we_sign])
}

fn the_reference_library_verifies_what_we_sign() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let (id, timestamp) = (message_id("job 17.1"), now.to_string());
    let signature = Secrets::parse(&SECRETS.join(" ")).unwrap().sign(&id, now, BODY.as_bytes());
    for secret in SECRETS {
        let mut receiver = python(&["standardwebhooks"]);
        receiver.args(["-c", RECEIVER, secret, &id, &timestamp, &signature, BODY]);
        let output = receiver.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
