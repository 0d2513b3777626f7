//! Outputs, against moto and Azurite, and against a server with Google's protocol.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/support/brokers.rs"]
mod brokers;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::thread;

use foveate_core::error_chain;
use foveate_object_store::outputs::register;
use foveate_sink::{Prefix, PrefixRegistry};
use foveate_testkit::{python, run, trials};

use brokers::{AwsServer, AzureServer, printed};

/// Where the credentials come from; a process cannot change its own environment. Azure's are the emulator's.
const ACCOUNT: [(&str, &str); 5] = [
    (
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        r#"{"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": true}"#,
    ),
    ("AWS_ACCESS_KEY_ID", "testing"),
    ("AWS_SECRET_ACCESS_KEY", "testing-secret"),
    ("AZURE_STORAGE_ACCOUNT_NAME", "devstoreaccount1"),
    (
        "AZURE_STORAGE_ACCOUNT_KEY",
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
    ),
];

fn main() -> ExitCode {
    if ACCOUNT.iter().any(|(name, value)| std::env::var_os(name).is_none_or(|found| found != *value)) {
        let mut program = Command::new(std::env::current_exe().unwrap());
        let status = program.envs(ACCOUNT).args(std::env::args_os().skip(1)).status().unwrap();
        return if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    run(trials![s3_takes_outputs, azure_takes_outputs, google_is_asked_for_a_new_object])
}

fn open(address: &str, settings: &[(&str, &str)]) -> Arc<dyn Prefix> {
    let mut registry = PrefixRegistry::new("store", &["object-store"]);
    register(&mut registry).unwrap();
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    registry.get("object-store").unwrap().open(address, &settings).unwrap()
}

/// What every store does.
fn check(prefix: &dyn Prefix) {
    let names = |start: &str| prefix.list(start).unwrap();
    assert!(names("").is_empty() && prefix.read("a").unwrap().is_none());
    assert!(prefix.create("a", b"first").unwrap());
    assert!(!prefix.create("a", b"second").unwrap());
    assert_eq!(prefix.read("a").unwrap().as_deref(), Some(&b"first"[..]));
    prefix.replace("a", b"third").unwrap();
    assert_eq!(prefix.read("a").unwrap().as_deref(), Some(&b"third"[..]));
    let large = vec![7; 3 << 20];
    assert!(prefix.create(".foveate/run/claim.json", b"").unwrap());
    assert!(prefix.create("part-00000.parquet", &large).unwrap());
    assert_eq!(prefix.read("part-00000.parquet").unwrap(), Some(large));
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

fn s3_takes_outputs() {
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
    for error in [gone.list("").unwrap_err(), gone.create("a", b"").unwrap_err()] {
        assert!(error_chain(&error).contains("there is no such bucket"), "{}", error_chain(&error));
    }
}

const CONTAINER: &str = r#"
import base64, email.utils, hashlib, hmac, os, sys, urllib.request
account, key = os.environ["AZURE_STORAGE_ACCOUNT_NAME"], base64.b64decode(os.environ["AZURE_STORAGE_ACCOUNT_KEY"])
headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
names = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
kind, resource = "application/octet-stream", f"/{account}/{account}/vectors\nrestype:container"
text = "\n".join(["PUT", "", "", "", "", kind, "", "", "", "", "", "", names + resource])
signature = base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()
headers |= {"Authorization": f"SharedKey {account}:{signature}", "Content-Type": kind}
urllib.request.urlopen(urllib.request.Request(f"{sys.argv[1]}/vectors?restype=container", b"", headers, method="PUT"))
"#;

fn azure_takes_outputs() {
    let server = AzureServer::start();
    printed(python(&[]).envs(ACCOUNT).args(["-c", CONTAINER, &server.endpoint()]));
    check(open("az://vectors/deep/", &[("endpoint", &server.endpoint())]).as_ref());
}

/// A server that has every object, as it says of a request to create one.
fn google() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut request) = (stream.unwrap(), [0; 8192]);
            let len = stream.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..len]).to_lowercase();
            let is_conditional = request.contains("x-goog-if-generation-match: 0\r\n");
            let status = if is_conditional { "412 Precondition Failed" } else { "200 OK" };
            write!(stream, "HTTP/1.1 {status}\r\nETag: \"a\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                .unwrap();
        }
    });
    address
}

fn google_is_asked_for_a_new_object() {
    let endpoint = format!("http://{}", google());
    let prefix = open("gs://vectors/deep/", &[("endpoint", &endpoint)]);
    assert!(!prefix.create("a", b"").unwrap());
    prefix.replace("a", b"").unwrap();
    prefix.remove("a").unwrap();
}
