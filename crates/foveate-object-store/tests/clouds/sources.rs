//! Containers and buckets as sources.

use foveate_core::error_chain;
use foveate_object_store::register;
use foveate_source::conformance::{check, read};
use foveate_source::store::{StoreOptions, StoreRegistry};
use foveate_source::{Input, Listing, Source, SourceError};

use crate::servers::{fill, google};
use foveate_testkit::brokers::AzureServer;

fn listing(endpoint: &str, extra: &[(&str, &str)], input: &str) -> Listing {
    built(endpoint, extra, input).unwrap()
}

fn built(endpoint: &str, extra: &[(&str, &str)], input: &str) -> Result<Listing, SourceError> {
    let mut registry = StoreRegistry::new("store", &["object-store"]);
    register(&mut registry).unwrap();
    let all = [extra, &[("endpoint", endpoint)]].concat();
    let settings = all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let options = StoreOptions { settings, ..StoreOptions::default() };
    Listing::builder().inputs([Input::Path(input.into())]).stores(registry.into(), options).build()
}

pub(crate) fn azure_containers_are_sources() {
    let server = AzureServer::start();
    let keys = ["a.jpg", "deep/b c.jpg", "deep/ü.jpg", "deeper.jpg"];
    fill(&server, "photos", &keys);
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
    fill(&server, "photos", &keys);
    assert!(read(&mut stale).iter().all(|(_, bytes)| bytes.as_ref().is_err_and(|told| told.contains("changed"))));
}

/// The listing of a bucket with one object, in XML as Google's interface gives it.
const ONE: &str = "<ListBucketResult><Contents><Key>p/a.jpg</Key><LastModified>1994-11-06T08:49:37.000Z</LastModified>\
                   <ETag>\"a\"</ETag><Size>4</Size></Contents></ListBucketResult>";

pub(crate) fn googles_buckets_are_sources() {
    let endpoint = google(|request| match request.split(' ').nth(1).unwrap() {
        path if path.contains("list-type=2") => ("200 OK", ONE),
        "/photos/p%2fa%2ejpg" => ("200 OK", "body"),
        "/" => ("404 Not Found", ""), // the first look at the endpoint
        path => panic!("{path}"),
    });
    let open = || Box::new(listing(&endpoint, &[("anonymous", "true")], "gs://photos/p/")) as Box<dyn Source>;
    check(open);
    let found = read(open().as_mut());
    assert_eq!((found[0].0.id.as_str(), found[0].1.as_deref()), ("gs://photos/p/a.jpg", Ok(&b"body"[..])));
}

pub(crate) fn googles_requests_are_paid_for_by_a_project() {
    let endpoint = google(|request| match request.split(' ').nth(1).unwrap() {
        "/" => ("404 Not Found", ""), // the first look at the endpoint
        _ if !request.contains("x-goog-user-project: my-project\r\n") => ("400 Bad Request", ""),
        path if path.contains("list-type=2") => ("200 OK", ONE),
        _ => ("200 OK", "body"),
    });
    let settings = |payer| [("anonymous", "true"), ("requester-pays", payer)];
    let found = read(&mut listing(&endpoint, &settings("my-project"), "gs://photos/p/"));
    assert_eq!(found[0].1.as_deref(), Ok(&b"body"[..]));
    for (payer, input, why) in [
        ("true", "gs://photos/p/", "Google needs the project that pays as its value"),
        ("my-project", "s3://photos/p/", "it has to be true or false for S3"),
        ("true", "az://photos/p/", "only S3 and Google have such requests"),
    ] {
        let error = error_chain(&built(&endpoint, &settings(payer), input).unwrap_err());
        assert!(error.contains(why), "{error}");
    }
}
