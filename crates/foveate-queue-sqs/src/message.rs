//! Messages, receipts and dead letters in SQS' terms.

use std::collections::HashMap;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use aws_sdk_sqs::error::BuildError;
use aws_sdk_sqs::types::{Message, MessageAttributeValue, MessageSystemAttributeName};
use foveate_queue::{DeadLetter, Delivery, Receipt, one_line};
use sha2::{Digest, Sha256};

/// Attributes of messages, and of dead letters.
pub(crate) const ID: &str = "foveate-id";
/// Deliveries of the messages that this one is a copy of, as far as they count.
pub(crate) const RECEIVED: &str = "received";
/// The delay before a copy is delivered, in seconds. FIFO queues delay no single message, so the first delivery of such
/// a copy is hidden for the delay.
pub(crate) const DELAY: &str = "delay";
/// The time at which a message began to fail, in seconds since 1970.
pub(crate) const FAILING_SINCE: &str = "failing-since";
pub(crate) const STAGE: &str = "stage";
pub(crate) const REASON: &str = "reason";
const MAX_STAGE: usize = 100;
const MAX_REASON: usize = 1000;

const STRING: &str = "String";

/// A message's attribute.
pub(crate) fn attribute<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    message.message_attributes()?.get(name)?.string_value()
}

/// The number of times that SQS delivered a message.
pub(crate) fn receive_count(message: &Message) -> u32 {
    system_number(message, &MessageSystemAttributeName::ApproximateReceiveCount).unwrap_or(1)
}

/// The time at which SQS took a message.
pub(crate) fn sent(message: &Message) -> Option<SystemTime> {
    let millis = system_number(message, &MessageSystemAttributeName::SentTimestamp)?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_millis(millis))
}

fn system_number<T: FromStr>(message: &Message, name: &MessageSystemAttributeName) -> Option<T> {
    message.attributes()?.get(name)?.parse().ok()
}

pub(crate) type Attributes = Vec<(&'static str, String)>;

/// The share of attributes in a message's size.
pub(crate) fn size(attributes: &Attributes) -> usize {
    attributes.iter().map(|(name, value)| name.len() + STRING.len() + value.len()).sum()
}

pub(crate) fn to_sdk(attributes: &Attributes) -> Result<HashMap<String, MessageAttributeValue>, BuildError> {
    let mut values = HashMap::new();
    for (name, text) in attributes {
        let value = MessageAttributeValue::builder().data_type(STRING).string_value(text).build()?;
        values.insert((*name).to_owned(), value);
    }
    Ok(values)
}

/// A dead letter's id, stage and reason, as far as they fit in addition to the body.
pub(crate) fn dead_attributes(delivery: &Delivery, why: &DeadLetter, largest: usize) -> Attributes {
    let stage = one_line(&why.stage, MAX_STAGE);
    let reason = one_line(&why.reason, MAX_REASON);
    let mut attributes = Attributes::new();
    for (name, value) in [(ID, delivery.id.clone()), (STAGE, stage), (REASON, reason)] {
        let taken = delivery.body.len() + size(&attributes) + name.len() + STRING.len();
        let room = largest.saturating_sub(taken);
        let value = if name == REASON { one_line(&value, room) } else { value };
        if !value.is_empty() && value.len() <= room {
            attributes.push((name, value));
        }
    }
    attributes
}

/// The body, if SQS takes it: non-empty text of characters that XML allows.
pub(crate) fn text(body: &[u8]) -> Result<&str, &'static str> {
    let text = std::str::from_utf8(body).map_err(|_| "it carries text alone, in UTF-8")?;
    if text.is_empty() {
        return Err("it carries no empty messages");
    }
    if text.contains(|c| matches!(c, '\0'..'\t' | '\x0b' | '\x0c' | '\x0e'..' ' | '\u{fffe}' | '\u{ffff}')) {
        return Err("it carries no control characters but tabs and ends of lines");
    }
    Ok(text)
}

/// A FIFO queue's deduplication id.
pub(crate) fn token(id: &str) -> String {
    let fits = id.len() <= 128 && !id.is_empty() && id.chars().all(|c| c.is_ascii_graphic());
    if fits { id.to_owned() } else { hex(&Sha256::digest(id)) }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SQS' id of the message, which stays, and its handle of this delivery.
pub(crate) fn receipt(message_id: &str, handle: &str) -> Receipt {
    Receipt(format!("{message_id}:{handle}"))
}

/// Splits a receipt into the message's id and the delivery's handle.
pub(crate) fn parts(receipt: &Receipt) -> Option<(&str, &str)> {
    receipt.0.split_once(':').filter(|(id, handle)| !id.is_empty() && !handle.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_that_sqs_cannot_carry_are_known() {
        assert_eq!(text("{\"a\": \"ż🦀\u{e000}\"}\r\n\t".as_bytes()), Ok("{\"a\": \"ż🦀\u{e000}\"}\r\n\t"));
        assert!(text(b"\xff").unwrap_err().contains("UTF-8"));
        assert!(text(b"").unwrap_err().contains("empty"));
        for c in ["\0", "\x08", "\x0b", "\x1f", "\u{fffe}", "\u{ffff}"] {
            assert!(text(c.as_bytes()).unwrap_err().contains("control"), "{c:?}");
        }
    }

    #[test]
    fn what_fifo_queues_cannot_carry_is_hashed() {
        assert_eq!(token("a/b:c-1"), "a/b:c-1");
        assert_eq!(token("a b"), hex(&Sha256::digest("a b")));
        for id in ["ż", "", &"i".repeat(129)] {
            assert!(token(id).len() == 64);
        }
    }

    #[test]
    fn a_dead_letter_says_what_fits() {
        let delivery = Delivery {
            id: "id".to_owned(),
            key: "1".to_owned(),
            body: vec![b'x'; 100],
            receipt: Receipt(String::new()),
            received: 1,
            sent: None,
            failing_since: None,
        };
        let why = DeadLetter { stage: "decode".to_owned(), reason: "no\nimage".to_owned() };
        let all = dead_attributes(&delivery, &why, 10_000);
        assert_eq!(all, [(ID, "id".to_owned()), (STAGE, "decode".to_owned()), (REASON, "no image".to_owned())]);
        for largest in 100..200 {
            let attributes = dead_attributes(&delivery, &why, largest);
            assert!(100 + size(&attributes) <= largest);
            assert!(
                attributes.iter().all(|attribute| attribute.0 == REASON || all.contains(attribute)),
                "{attributes:?}"
            );
        }
        assert_eq!(dead_attributes(&delivery, &why, 100 + size(&all)), all);
    }
}
