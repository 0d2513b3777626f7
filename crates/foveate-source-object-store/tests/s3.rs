//! Tests against moto's S3, filled by boto3, and against misbehaving servers.

// Tests may unwrap, and one prints what it reads.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "../../../tests/support/brokers.rs"]
mod brokers;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use foveate_source::{Fetch, FetchError, FetchOptions, FetchRegistry, Item};
use foveate_source_object_store::{open, register};
use foveate_testkit::{python, run, trials};

use brokers::{AwsServer, printed};

/// The AWS variables of this process, and of one that also finds the server there.
const CREDENTIALS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")];
/// Makes a process of this program read an object.
const READER: &str = "FOVEATE_TEST_READER";

fn main() -> ExitCode {
    if std::env::var_os(READER).is_some() {
        read_as_programs_do();
        return ExitCode::SUCCESS;
    }
    // A process cannot change its own environment, where the credentials come from.
    if CREDENTIALS.iter().any(|(name, value)| std::env::var_os(name).is_none_or(|found| found != *value)) {
        let status = this_program().args(std::env::args_os().skip(1)).status().unwrap();
        return if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    run(trials![
        objects_that_others_put_are_read_where_it_is_allowed,
        what_is_missing_or_too_large_is_told_apart,
        many_threads_share_one_opening,
        credentials_and_endpoint_come_from_the_environment,
        stores_that_fail_may_be_asked_again,
        a_body_cut_short_is_no_object,
        a_size_beyond_the_limit_is_not_read,
        a_store_that_refuses_will_refuse_again,
        of_a_refusal_the_status_and_the_code_are_told_and_nothing_else,
        options_that_make_no_sense_are_refused,
        the_backend_is_found_by_its_name,
    ])
}

/// Keys in the bucket `photos`, and one in `private`; each object's bytes are its key's.
const KEYS: [&str; 6] =
    ["public/a.jpg", "public/deep/b c+d.jpg", "public/ü#1?x=%2e%2E&~[1].jpg", "public-not/a.jpg", "a.jpg", "public"];

const FILL: &str = r#"
import boto3, sys
s3 = boto3.client("s3", endpoint_url=sys.argv[1], region_name="eu-central-1", aws_access_key_id="a", aws_secret_access_key="b")
for bucket in ["photos", "private"]:
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
for key in sys.argv[2:]:
    s3.put_object(Bucket="photos", Key=key, Body=key.encode())
s3.put_object(Bucket="photos", Key="public/large", Body=b"x" * 3_000_000)
s3.put_object(Bucket="private", Key="public/a.jpg", Body=b"private")
"#;

/// Starts a server with these objects.
fn store() -> AwsServer {
    let server = AwsServer::start();
    printed(python(&["boto3"]).args(["-c", FILL, &server.endpoint()]).args(KEYS));
    server
}

/// This program, with only the credentials in its AWS environment.
fn this_program() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("AWS_")) {
        command.env_remove(name);
    }
    command.envs(CREDENTIALS);
    command
}

fn options(endpoint: &str, allow: &[&str]) -> FetchOptions {
    FetchOptions {
        allow: allow.iter().map(|text| (*text).to_owned()).collect(),
        settings: [("endpoint".to_owned(), endpoint.to_owned()), ("region".to_owned(), "eu-central-1".to_owned())]
            .into(),
        ..FetchOptions::default()
    }
}

fn reader(options: &FetchOptions) -> Box<dyn Fetch> {
    open(options).unwrap()().unwrap()
}

fn read(fetch: &mut dyn Fetch, locator: &str) -> Result<Vec<u8>, FetchError> {
    let item = Item { index: 0, id: locator.to_owned(), locator: locator.as_bytes().to_vec(), fault: None };
    let mut out = vec![1, 2, 3];
    let result = fetch.fetch(&item, &mut out);
    assert!(result.is_ok() || out.is_empty(), "bytes are left of a failed reading");
    result.map(|()| out)
}

fn objects_that_others_put_are_read_where_it_is_allowed() {
    let store = store();
    let mut all = reader(&options(&store.endpoint(), &["s3://photos"]));
    for key in KEYS {
        assert_eq!(read(&mut *all, &format!("s3://photos/{key}")).unwrap(), key.as_bytes(), "{key}");
    }
    let large = read(&mut *all, "s3://photos/public/large").unwrap();
    assert!(large.len() == 3_000_000 && large.iter().all(|byte| *byte == b'x'));

    let mut part = reader(&options(&store.endpoint(), &["s3://photos/public"]));
    assert_eq!(read(&mut *part, "s3://photos/public/a.jpg").unwrap(), b"public/a.jpg");
    for key in ["photos/public-not/a.jpg", "photos/a.jpg", "photos/public", "private/public/a.jpg"] {
        let error = read(&mut *part, &format!("s3://{key}")).unwrap_err();
        let message = format!("s3://{key} is not in a bucket or folder that may be read");
        assert!(matches!(&error, FetchError::Refused(told) if *told == message), "{error}");
    }
    assert!(matches!(read(&mut *part, "s3://photos/public/../a.jpg"), Err(FetchError::Refused(_))));
}

fn what_is_missing_or_too_large_is_told_apart() {
    let store = store();
    let allow = ["s3://photos", "s3://no-such-bucket"];
    let mut fetch = reader(&FetchOptions { max_bytes: 2_999_999, ..options(&store.endpoint(), &allow) });
    let missing = read(&mut *fetch, "s3://photos/none.jpg").unwrap_err();
    assert_eq!((missing.to_string().as_str(), missing.is_transient()), ("not found: s3://photos/none.jpg", false));
    assert!(matches!(read(&mut *fetch, "s3://no-such-bucket/a"), Err(FetchError::NotFound(_))));
    let large = read(&mut *fetch, "s3://photos/public/large").unwrap_err();
    assert!(matches!(large, FetchError::TooLarge { bytes: 3_000_000, limit: 2_999_999 }), "{large}");
    let mut exact = reader(&FetchOptions { max_bytes: 3_000_000, ..options(&store.endpoint(), &allow) });
    assert_eq!(read(&mut *exact, "s3://photos/public/large").unwrap().len(), 3_000_000);
}

fn many_threads_share_one_opening() {
    let store = store();
    let opener = open(&options(&store.endpoint(), &["s3://photos"])).unwrap();
    thread::scope(|scope| {
        for key in KEYS.iter().cycle().take(12) {
            let opener = &opener;
            scope.spawn(move || {
                let mut fetch = opener().unwrap();
                for _ in 0..3 {
                    assert_eq!(read(&mut *fetch, &format!("s3://photos/{key}")).unwrap(), key.as_bytes());
                }
            });
        }
    });
}

fn credentials_and_endpoint_come_from_the_environment() {
    let store = store();
    let mut program = this_program();
    program.env(READER, "1").env("AWS_ENDPOINT_URL", store.endpoint()).env("AWS_REGION", "eu-central-1");
    assert_eq!(printed(&mut program), "a.jpg");
}

fn read_as_programs_do() {
    let allowed = FetchOptions { allow: vec!["s3://photos".to_owned()], ..FetchOptions::default() };
    let bytes = read(&mut *reader(&allowed), "s3://photos/a.jpg").unwrap();
    print!("{}", String::from_utf8(bytes).unwrap());
}

/// A store that answers every request with these bytes and then closes, or sends nothing and waits.
fn strange(reply: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(reply.as_bytes());
                if reply.is_empty() {
                    thread::sleep(Duration::from_secs(60));
                }
            });
        }
    });
    address
}

/// The error of a read that must end in time.
fn strange_error(reply: &'static str) -> FetchError {
    let endpoint = format!("http://{}", strange(reply));
    let hasty =
        FetchOptions { timeout: Duration::from_millis(1500), max_bytes: 1000, ..options(&endpoint, &["s3://photos"]) };
    let begin = Instant::now();
    let error = read(&mut *reader(&hasty), "s3://photos/a").unwrap_err();
    assert!(begin.elapsed() < Duration::from_secs(4), "{error} after {:?}", begin.elapsed());
    error
}

const HEADERS: &str = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nETag: \"a\"\r\nConnection: close\r\n";

fn stores_that_fail_may_be_asked_again() {
    for reply in [
        "",
        "HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        "garbage",
    ] {
        let error = strange_error(reply);
        assert!(error.is_transient() && error.to_string().starts_with("s3://photos/a: "), "{reply:?}: {error}");
    }
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let options =
        FetchOptions { timeout: Duration::from_secs(2), ..options(&format!("http://{nobody}"), &["s3://photos"]) };
    let error = read(&mut *reader(&options), "s3://photos/a").unwrap_err();
    assert!(matches!(&error, FetchError::Unreachable(_)), "{error}");
}

fn a_body_cut_short_is_no_object() {
    let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n{HEADERS}\r\nhalf of a picture");
    let error = strange_error(reply.leak());
    assert!(error.is_transient(), "{error}");
}

fn a_size_beyond_the_limit_is_not_read() {
    let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n{HEADERS}\r\n");
    let error = strange_error(reply.leak());
    assert!(matches!(error, FetchError::TooLarge { bytes: 1001, limit: 1000 }), "{error}");
}

fn a_store_that_refuses_will_refuse_again() {
    let reply = format!("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n{HEADERS}\r\n");
    let error = strange_error(reply.leak());
    assert!(matches!(error, FetchError::Refused(_)), "{error}");
    let message = error.to_string();
    assert!(message.starts_with("s3://photos/a: the store refuses it (") && message.contains("403"), "{message}");
    assert!(message.ends_with("; look at the credentials, their rights and the region"), "{message}");
}

fn of_a_refusal_the_status_and_the_code_are_told_and_nothing_else() {
    let code = |code: &str| format!("<Error><Code>{code}</Code><Token>SECRET</Token><Key>SECRET</Key></Error>");
    let long = "SECRET".repeat(11);
    for (status, body, told) in [
        ("403 Forbidden", code("InvalidAccessKeyId"), "403 Forbidden: InvalidAccessKeyId"),
        ("400 Bad Request", code("ExpiredToken"), "400 Bad Request: ExpiredToken"),
        ("403 Forbidden", code("SECRET 1"), "403 Forbidden"),
        ("403 Forbidden", code(&long), "403 Forbidden"),
        ("403 Forbidden", code(""), "403 Forbidden"),
        ("403 Forbidden", "<Code>SECRET".to_owned(), "403 Forbidden"),
        ("400 Bad Request", r#"{"token": "SECRET"}"#.to_owned(), "400 Bad Request"),
        ("418 SECRET", "SECRET: SECRET".to_owned(), "418 I'm a teapot"),
    ] {
        let length = body.len();
        let reply = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{HEADERS}\r\n{body}");
        let message = strange_error(reply.leak()).to_string();
        let expected = match status {
            "403 Forbidden" => format!(
                "s3://photos/a: the store refuses it ({told}); look at the credentials, their rights and the region"
            ),
            _ => format!("s3://photos/a: {told}"),
        };
        assert_eq!(message, expected);
    }
}

fn options_that_make_no_sense_are_refused() {
    let refused = |options: &FetchOptions| open(options).err().unwrap().to_string();
    let message = "no bucket may be read; allow s3://bucket or s3://bucket/folder";
    assert_eq!(refused(&FetchOptions::default()), message);
    let message = "'photos' may not be allowed; write s3://bucket or s3://bucket/folder";
    assert_eq!(refused(&options("http://a", &["photos"])), message);
    let message = "endpoint 'localhost:9000' has to begin with http:// or https://";
    assert_eq!(refused(&options("localhost:9000", &["s3://photos"])), message);
    let mut unknown = options("http://a", &["s3://photos"]);
    unknown.settings.insert("regoin".to_owned(), String::new());
    assert_eq!(refused(&unknown), "setting 'regoin'; there are endpoint, region");
}

fn the_backend_is_found_by_its_name() {
    let mut registry = FetchRegistry::new("store", &["object-store"]);
    register(&mut registry).unwrap();
    assert_eq!(registry.get("object-store").unwrap().schemes(), ["s3"]);
}
