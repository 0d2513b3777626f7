//! Prefixes as outputs.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use foveate_core::error_chain;
use foveate_object_store::outputs::register;
use foveate_sink::{Prefix, PrefixRegistry};
use foveate_testkit::python;

use crate::servers::{fill, google};
use foveate_testkit::brokers::{AwsServer, AzureServer, printed};

fn open(address: &str, settings: &[(&str, &str)]) -> Arc<dyn Prefix> {
    let mut registry = PrefixRegistry::new("store", &["object-store"]);
    register(&mut registry).unwrap();
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    registry.get("object-store").unwrap().open(address, &settings).unwrap()
}

/// Checks that a store does what every store must do.
fn check(prefix: &dyn Prefix) {
    let names = |start: &str| prefix.list(start).unwrap();
    assert!(names("").is_empty() && prefix.read("a").unwrap().is_none());
    assert!(prefix.create("a", "first".into()).unwrap());
    assert!(!prefix.create("a", "second".into()).unwrap());
    assert_eq!(prefix.read("a").unwrap().as_deref(), Some(&b"first"[..]));
    assert!(!prefix.exchange("a", b"second", "other".into()).unwrap());
    assert!(!prefix.exchange("none", b"", "other".into()).unwrap());
    assert!(prefix.exchange("a", b"first", "second".into()).unwrap());
    assert_eq!(prefix.read("a").unwrap().as_deref(), Some(&b"second"[..]));
    prefix.replace("a", "third".into()).unwrap();
    assert_eq!(prefix.read("a").unwrap().as_deref(), Some(&b"third"[..]));
    let large = Bytes::from(vec![7; 3 << 20]);
    assert!(prefix.create(".foveate/run/claim.json", Bytes::new()).unwrap());
    assert!(prefix.create("part-00000.parquet", large.clone()).unwrap());
    assert_eq!(prefix.read("part-00000.parquet").unwrap().as_deref(), Some(&large[..]));
    let lengths = [(".foveate/run/claim.json", 0), ("a", 5), ("part-00000.parquet", 3 << 20)];
    assert_eq!(names(""), BTreeMap::from(lengths.map(|(name, length)| (name.to_owned(), length))));
    assert_eq!(names("part").into_keys().collect::<Vec<_>>(), ["part-00000.parquet"]);
    for name in ["a", "a", ".foveate/run/claim.json", "part-00000.parquet"] {
        prefix.remove(name).unwrap();
    }
    assert!(names("").is_empty());
}

const BUCKET: &str = r#"
import boto3, sys
s3 = boto3.client("s3", endpoint_url=sys.argv[1], region_name="us-east-1")
s3.create_bucket(Bucket="vectors")
"#;

pub(crate) fn s3_takes_outputs() {
    let server = AwsServer::start();
    let endpoint = server.endpoint();
    printed(python(&["boto3"]).args(["-c", BUCKET, &endpoint]));
    let settings = [("endpoint", endpoint.as_str()), ("region", "us-east-1")];
    for address in ["s3://vectors", "s3://vectors/", "s3://vectors/deep/er", "s3://vectors/a b=c/ü%/"] {
        check(open(address, &settings).as_ref());
    }
    let unconditional = [&settings[..], &[("conditional-writes", "false")]].concat();
    check(open("s3://vectors/", &unconditional).as_ref());
    let gone = open("s3://nobody/v/", &settings);
    for error in [gone.list("").unwrap_err(), gone.create("a", Bytes::new()).unwrap_err()] {
        assert!(error_chain(&error).contains("there is no such bucket"), "{}", error_chain(&error));
    }
}

pub(crate) fn azure_takes_outputs() {
    let server = AzureServer::start();
    fill(&server, "vectors", &[]);
    check(open("az://vectors/deep/", &[("endpoint", &server.endpoint())]).as_ref());
}

/// The server has every object, as it says of requests to create one and to read one, which changes before it is
/// replaced, and none, as it says of a request to remove one.
pub(crate) fn google_is_asked_for_a_new_object() {
    let endpoint = google(|request| match request.split(' ').next() {
        Some("delete") => ("404 Not Found", ""),
        Some("get") => ("200 OK", "old"),
        _ if request.contains("x-goog-if-generation-match: ") => ("412 Precondition Failed", ""),
        _ => ("200 OK", ""),
    });
    let prefix = open("gs://vectors/deep/", &[("endpoint", &endpoint)]);
    assert!(!prefix.create("a", Bytes::new()).unwrap());
    assert!(!prefix.exchange("a", b"old", Bytes::new()).unwrap());
    prefix.replace("a", Bytes::new()).unwrap();
    prefix.remove("a").unwrap();
}
