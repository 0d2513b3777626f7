//! Notifications of object stores, as jobs: S3's (and those of Ceph, MinIO and others), plain or in SNS' envelope,
//! EventBridge's, and Google's, plain, in Pub/Sub's envelope or as CloudEvents.

use serde_json::Value;

/// Most envelopes around a notification.
const MAX_DEPTH: usize = 4;

/// The objects of a store that a message names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct StoreEvents {
    /// Addresses of objects that were written, each once.
    pub(super) written: Vec<String>,
    /// Other events: tests, removed objects, markers of folders.
    pub(super) others: usize,
}

impl StoreEvents {
    /// Reads a message; returns `None` if it is no notification of a store.
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        let mut events = Self::default();
        events.read(&serde_json::from_slice(body).ok()?, 0)?;
        Some(events)
    }

    fn read(&mut self, message: &Value, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        if let Value::Array(messages) = message {
            if messages.is_empty() {
                return None;
            }
            return messages.iter().try_for_each(|message| self.read(message, depth + 1));
        }
        if let Some(records) = message.get("Records").and_then(Value::as_array) {
            return records.iter().try_for_each(|record| self.read_record(record));
        }
        if text(message, "Event") == Some("s3:TestEvent") {
            self.others += 1;
            return Some(());
        }
        if let (Some("Notification"), Some(inner)) = (text(message, "Type"), text(message, "Message")) {
            return self.read(&serde_json::from_str(inner).ok()?, depth + 1);
        }
        // MinIO's, without the records.
        if let (Some(event), Some(key)) = (text(message, "EventName"), text(message, "Key")) {
            let (bucket, key) = key.split_once('/')?;
            return self.add(is_written(event), "s3", bucket, key);
        }
        if let (Some(event), Some("aws.s3")) = (text(message, "detail-type"), text(message, "source")) {
            let [bucket, key] = ["/detail/bucket/name", "/detail/object/key"].map(|at| message.pointer(at));
            return self.add(event == "Object Created", "s3", bucket?.as_str()?, key?.as_str()?);
        }
        if text(message, "kind") == Some("storage#object") {
            // A notification of a removed object has the object's last state.
            return self.add(
                message.get("timeDeleted").is_none(),
                "gs",
                text(message, "bucket")?,
                text(message, "name")?,
            );
        }
        if let Some(event) =
            text(message, "type").and_then(|event| event.strip_prefix("google.cloud.storage.object.v1."))
        {
            let decoded = text(message, "data_base64").and_then(decoded);
            let data = decoded.as_ref().or_else(|| message.get("data"))?;
            let [bucket, name] = ["bucket", "name"].map(|field| data.get(field).and_then(Value::as_str));
            return self.add(event == "finalized", "gs", bucket?, name?);
        }
        self.read_published(message.get("message").unwrap_or(message), depth)
    }

    /// Reads one of S3's records.
    fn read_record(&mut self, record: &Value) -> Option<()> {
        let event = record.get("eventName")?.as_str()?;
        let [bucket, key] = ["/s3/bucket/name", "/s3/object/key"].map(|at| record.pointer(at).and_then(Value::as_str));
        self.add(is_written(event), "s3", bucket?, &foveate_net::decode_form(key?)?)
    }

    /// Reads a message of Pub/Sub.
    fn read_published(&mut self, message: &Value, depth: usize) -> Option<()> {
        let attributes = message.get("attributes").unwrap_or(&Value::Null);
        let event = text(attributes, "eventType");
        if let (Some(bucket), Some(name)) = (text(attributes, "bucketId"), text(attributes, "objectId")) {
            return self.add(event? == "OBJECT_FINALIZE", "gs", bucket, name);
        }
        self.read(&decoded(message.get("data")?.as_str()?)?, depth + 1)
    }

    fn add(&mut self, is_written: bool, scheme: &str, bucket: &str, key: &str) -> Option<()> {
        if bucket.is_empty() || key.is_empty() {
            return None;
        }
        let address = format!("{scheme}://{bucket}/{key}");
        // A key that ends in a slash stands for a folder.
        if !is_written || key.ends_with('/') {
            self.others += 1;
        } else if !self.written.contains(&address) {
            self.written.push(address);
        }
        Some(())
    }
}

fn is_written(event: &str) -> bool {
    event.strip_prefix("s3:").unwrap_or(event).starts_with("ObjectCreated:")
}

/// JSON in base64.
fn decoded(text: &str) -> Option<Value> {
    let bytes = foveate_net::decode_base64(text, |_| Ok::<(), foveate_net::NetError>(())).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Returns the text of a message's field.
fn text<'a>(message: &'a Value, name: &str) -> Option<&'a str> {
    message.get(name).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::json;

    use super::*;

    fn parsed(message: &Value) -> Option<(Vec<String>, usize)> {
        StoreEvents::parse(message.to_string().as_bytes()).map(|events| (events.written, events.others))
    }

    fn record(event: &str, key: &str) -> Value {
        json!({
            "eventVersion": "2.1", "eventSource": "aws:s3", "awsRegion": "eu-west-1", "eventName": event,
            "s3": {"s3SchemaVersion": "1.0", "bucket": {"name": "photos", "arn": "arn:aws:s3:::photos"},
                   "object": {"key": key, "size": 7, "eTag": "d41d", "versionId": "v1", "sequencer": "0A"}},
        })
    }

    fn google(extra: &Value) -> Value {
        let mut object =
            json!({"kind": "storage#object", "id": "photos/a b+%2F.jpg/1", "bucket": "photos", "name": "a b+%2F.jpg"});
        object.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        object
    }

    #[test]
    fn each_form_of_a_notification_names_its_objects() {
        let s3 = |keys: &[&str]| keys.iter().map(|key| format!("s3://photos/{key}")).collect::<Vec<_>>();
        let gs = vec!["gs://photos/a b+%2F.jpg".to_owned()];
        let put = json!({"Records": [record("ObjectCreated:Put", "a+b%2B%2Fc%C3%BC.jpg")]});
        let attributes = json!({"eventType": "OBJECT_FINALIZE", "bucketId": "photos", "objectId": "a b+%2F.jpg"});
        let cloud = |event: &str| {
            let kind = format!("google.cloud.storage.object.v1.{event}");
            json!({"specversion": "1.0", "type": kind, "subject": "objects/a", "data": google(&json!({}))})
        };
        for (message, expected) in [
            (put.clone(), (s3(&["a b+/cü.jpg"]), 0)),
            (
                json!({"Records": [
                    record("ObjectCreated:CompleteMultipartUpload", "a.jpg"), record("s3:ObjectCreated:Copy", "b.jpg"),
                    record("ObjectRemoved:Delete", "c.jpg"), record("ObjectCreated:Put", "a.jpg"),
                    record("ObjectCreated:Put", "folder/"), record("ObjectTagging:Put", "d.jpg"),
                ]}),
                (s3(&["a.jpg", "b.jpg"]), 3),
            ),
            (json!({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "photos"}), (vec![], 1)),
            (
                json!({"Type": "Notification", "MessageId": "1", "Subject": "Amazon S3 Notification", "Message": put.to_string()}),
                (s3(&["a b+/cü.jpg"]), 0),
            ),
            (
                json!({"version": "0", "detail-type": "Object Created", "source": "aws.s3",
                       "detail": {"bucket": {"name": "photos"}, "object": {"key": "a b+%2F.jpg", "size": 7}}}),
                (s3(&["a b+%2F.jpg"]), 0),
            ),
            (
                json!({"version": "0", "detail-type": "Object Deleted", "source": "aws.s3",
                       "detail": {"bucket": {"name": "photos"}, "object": {"key": "a.jpg"}}}),
                (vec![], 1),
            ),
            (
                json!({"EventName": "s3:ObjectCreated:Put", "Key": "photos/a.jpg", "Records": [record("s3:ObjectCreated:Put", "a.jpg")]}),
                (s3(&["a.jpg"]), 0),
            ),
            (json!({"EventName": "s3:ObjectRemoved:Delete", "Key": "photos/a.jpg"}), (vec![], 1)),
            (google(&json!({"size": "7"})), (gs.clone(), 0)),
            (google(&json!({"timeDeleted": "2026-11-29T00:00:00Z"})), (vec![], 1)),
            (json!({"message": {"attributes": attributes, "data": "e30="}, "subscription": "s"}), (gs.clone(), 0)),
            (json!({"attributes": attributes}), (gs.clone(), 0)),
            (
                json!({"message": {"data": STANDARD.encode(google(&json!({})).to_string())}, "subscription": "s"}),
                (gs.clone(), 0),
            ),
            (
                json!({"message": {"attributes": {"eventType": "OBJECT_DELETE", "bucketId": "b", "objectId": "o"}}}),
                (vec![], 1),
            ),
            (cloud("finalized"), (gs.clone(), 0)),
            (cloud("deleted"), (vec![], 1)),
            (json!([cloud("finalized"), put]), (vec![gs[0].clone(), s3(&["a b+/cü.jpg"])[0].clone()], 0)),
        ] {
            assert_eq!(parsed(&message), Some(expected), "{message}");
        }
    }

    #[test]
    fn other_messages_are_no_notifications() {
        let mut deep = json!({"Records": []});
        for _ in 0..10 {
            deep = json!({"Type": "Notification", "Message": deep.to_string()});
        }
        for message in [
            json!({"version": 1, "image": {"url": "https://example.com/a.jpg"}}),
            json!({}),
            json!([]),
            json!("Records"),
            json!({"Records": [{"eventName": "ObjectCreated:Put"}]}),
            json!({"Records": [{"eventSource": "aws:ses", "ses": {}}]}),
            json!({"Records": [record("ObjectCreated:Put", "%ff")]}),
            json!({"Type": "Notification", "Message": "hello"}),
            json!({"message": {"data": "aGVsbG8="}}),
            deep,
        ] {
            assert_eq!(parsed(&message), None, "{message}");
        }
        assert_eq!(StoreEvents::parse(b"{"), None);
    }
}
