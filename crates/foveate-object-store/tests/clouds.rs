//! Tests against Azurite, an emulator of Azure Blob Storage, and against a server with Google's protocol.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/support/brokers.rs"]
mod brokers;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, ExitCode};
use std::thread;

use foveate_object_store::register;
use foveate_source::conformance::{check, read};
use foveate_source::store::{StoreOptions, StoreRegistry};
use foveate_source::{Input, Listing, Source};
use foveate_testkit::{python, run, trials};

use brokers::{AzureServer, printed};

/// The emulator's public account.
const ACCOUNT: [(&str, &str); 2] = [
    ("AZURE_STORAGE_ACCOUNT_NAME", "devstoreaccount1"),
    (
        "AZURE_STORAGE_ACCOUNT_KEY",
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
    ),
];

fn main() -> ExitCode {
    // A process cannot change its own environment, where the credentials come from.
    if ACCOUNT.iter().any(|(name, value)| std::env::var_os(name).is_none_or(|found| found != *value)) {
        let mut program = Command::new(std::env::current_exe().unwrap());
        let status = program.envs(ACCOUNT).args(std::env::args_os().skip(1)).status().unwrap();
        return if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    run(trials![azure_containers_are_sources, googles_buckets_are_sources])
}

fn listing(endpoint: &str, extra: &[(&str, &str)], input: &str) -> Listing {
    let mut registry = StoreRegistry::new("store", &["object-store"]);
    register(&mut registry).unwrap();
    let all = [extra, &[("endpoint", endpoint)]].concat();
    let settings = all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let options = StoreOptions { settings, ..StoreOptions::default() };
    Listing::builder().inputs([Input::Path(input.into())]).stores(registry.into(), options).build().unwrap()
}

/// Puts objects into the container `photos`, each with its key's bytes, in requests with a shared key.
const FILL: &str = r#"
import base64, email.utils, hashlib, hmac, os, sys, urllib.error, urllib.parse, urllib.request
account, key = os.environ["AZURE_STORAGE_ACCOUNT_NAME"], base64.b64decode(os.environ["AZURE_STORAGE_ACCOUNT_KEY"])
def put(path, body, query="", headers={}):
    headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-08-06", **headers}
    names = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    resource = f"/{account}/{account}/{path}" + ("\n" + query.replace("=", ":") if query else "")
    length = str(len(body)) if body else ""
    kind = "application/octet-stream"
    text = "\n".join(["PUT", "", "", length, "", kind, "", "", "", "", "", "", names + resource])
    signature = base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()
    headers = {**headers, "Authorization": f"SharedKey {account}:{signature}", "Content-Type": kind}
    urllib.request.urlopen(urllib.request.Request(f"{sys.argv[1]}/{path}?{query}", body, headers, method="PUT"))
try:
    put("photos", b"", "restype=container")
except urllib.error.HTTPError as error:
    assert error.code == 409, "it exists only the second time"
for name in sys.argv[2:]:
    put("photos/" + urllib.parse.quote(name), name.encode(), headers={"x-ms-blob-type": "BlockBlob"})
"#;

fn azure_containers_are_sources() {
    let server = AzureServer::start();
    let keys = ["a.jpg", "deep/b c.jpg", "deep/ü.jpg", "deeper.jpg"];
    let fill = || printed(python(&[]).envs(ACCOUNT).args(["-c", FILL, &server.endpoint()]).args(keys));
    fill();
    let all = || Box::new(listing(&server.endpoint(), &[], "az://photos/")) as Box<dyn Source>;
    check(all);
    let ids = |input: &str, source: &mut Listing| -> Vec<String> {
        let found = std::iter::from_fn(|| source.next_item().unwrap()).inspect(|item| assert_eq!(item.fault, None));
        found.map(|item| item.id.strip_prefix("az://photos/").unwrap_or(input).to_owned()).collect()
    };
    for (input, expected) in
        [("az://photos", &keys[..]), ("az://photos/deep", &keys[1..3]), ("az://photos/*.jpg", &["a.jpg", "deeper.jpg"])]
    {
        assert_eq!(ids(input, &mut listing(&server.endpoint(), &[], input)), expected, "{input}");
    }
    for (item, bytes) in read(all().as_mut()) {
        assert_eq!(bytes.as_deref(), Ok(&item.id.as_bytes()["az://photos/".len()..]));
    }
    let mut stale = listing(&server.endpoint(), &[], "az://photos/");
    fill();
    assert!(read(&mut stale).iter().all(|(_, bytes)| bytes.as_ref().is_err_and(|told| told.contains("changed"))));
}

/// A server with one object, which has its listing in XML as Google's interface gives it.
fn google() -> SocketAddr {
    const HEAD: &str =
        "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nConnection: close\r\n";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut request) = (stream.unwrap(), [0; 8192]);
            let len = stream.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..len]).into_owned();
            let body = match request.split(' ').nth(1).unwrap() {
                path if path.contains("list-type=2") => {
                    "<ListBucketResult><Contents><Key>p/a.jpg</Key><LastModified>\
                    1994-11-06T08:49:37.000Z</LastModified><ETag>\"a\"</ETag><Size>4</Size></Contents>\
                    </ListBucketResult>"
                }
                "/photos/p%2Fa%2Ejpg" => "body",
                path => panic!("{path}"),
            };
            write!(stream, "{HEAD}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        }
    });
    address
}

fn googles_buckets_are_sources() {
    let endpoint = format!("http://{}", google());
    let open = || Box::new(listing(&endpoint, &[("anonymous", "true")], "gs://photos/p/")) as Box<dyn Source>;
    check(open);
    let read = read(open().as_mut());
    assert_eq!((read[0].0.id.as_str(), read[0].1.as_deref()), ("gs://photos/p/a.jpg", Ok(&b"body"[..])));
}
