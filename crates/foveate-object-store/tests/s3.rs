//! Tests against moto's S3, filled by boto3, and against misbehaving servers.

// Tests may unwrap, and one prints what it reads.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use foveate_object_store::{open, register};
use foveate_source::conformance::{check, read as read_all};
use foveate_source::store::{Object, Store, StoreOptions, StoreRegistry, Version};
use foveate_source::{AllowedObjects, Fetch, FetchError, Input, Item, Listing, Source, SourceError};
use foveate_testkit::{python, run, trials};

use foveate_testkit::brokers::{AwsServer, printed};

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
        without_credentials_the_places_that_were_searched_are_told,
        stores_that_fail_may_be_asked_again,
        a_body_cut_short_is_no_object,
        a_size_beyond_the_limit_is_not_read,
        a_store_that_refuses_will_refuse_again,
        of_a_refusal_the_status_and_the_code_are_told_and_nothing_else,
        options_that_make_no_sense_are_refused,
        the_backend_is_found_by_its_name,
        prefixes_patterns_and_lists_are_sources,
        a_listing_takes_as_many_pages_as_it_needs,
        an_object_that_changed_or_is_gone_is_its_own_failure,
        objects_come_in_the_order_in_which_they_were_asked_for,
        a_part_and_a_stream_have_the_objects_bytes,
        a_prefix_that_is_not_there_is_told,
        profiles_give_credentials_region_and_endpoint,
        requests_are_unsigned_or_paid_for_as_asked,
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

fn options(endpoint: &str) -> StoreOptions {
    let settings = [("endpoint", endpoint), ("region", "eu-central-1")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    StoreOptions { settings, ..StoreOptions::default() }
}

fn with(mut options: StoreOptions, name: &str, value: &str) -> StoreOptions {
    options.settings.insert(name.to_owned(), value.to_owned());
    options
}

fn allowed(options: &StoreOptions, allow: &[&str]) -> Result<AllowedObjects, SourceError> {
    let allow: Vec<String> = allow.iter().map(|text| (*text).to_owned()).collect();
    AllowedObjects::new(open(options)?, &allow)
}

fn reader(options: &StoreOptions, allow: &[&str]) -> Box<dyn Fetch> {
    allowed(options, allow).unwrap().fetch()
}

fn read(fetch: &mut dyn Fetch, locator: &str) -> Result<Vec<u8>, FetchError> {
    let item = Item { id: locator.to_owned(), locator: locator.as_bytes().to_vec(), ..Item::default() };
    let mut out = vec![1, 2, 3];
    let result = fetch.fetch(&item, &mut out);
    assert!(result.is_ok() || out.is_empty(), "bytes are left of a failed reading");
    result.map(|()| out)
}

fn objects_that_others_put_are_read_where_it_is_allowed() {
    let store = store();
    let mut all = reader(&options(&store.endpoint()), &["s3://photos"]);
    for key in KEYS {
        assert_eq!(read(&mut *all, &format!("s3://photos/{key}")).unwrap(), key.as_bytes(), "{key}");
    }
    let large = read(&mut *all, "s3://photos/public/large").unwrap();
    assert!(large.len() == 3_000_000 && large.iter().all(|byte| *byte == b'x'));

    let mut part = reader(&options(&store.endpoint()), &["s3://photos/public"]);
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
    let mut fetch = reader(&StoreOptions { max_bytes: 2_999_999, ..options(&store.endpoint()) }, &allow);
    let missing = read(&mut *fetch, "s3://photos/none.jpg").unwrap_err();
    assert_eq!((missing.to_string().as_str(), missing.is_transient()), ("not found: s3://photos/none.jpg", false));
    let no_bucket = read(&mut *fetch, "s3://no-such-bucket/a").unwrap_err();
    assert!(
        matches!(&no_bucket, FetchError::Denied(why) if why.contains("404 Not Found: NoSuchBucket")),
        "{no_bucket}"
    );
    let large = read(&mut *fetch, "s3://photos/public/large").unwrap_err();
    assert!(matches!(large, FetchError::TooLarge { bytes: 3_000_000, limit: 2_999_999 }), "{large}");
    let mut exact = reader(&StoreOptions { max_bytes: 3_000_000, ..options(&store.endpoint()) }, &allow);
    assert_eq!(read(&mut *exact, "s3://photos/public/large").unwrap().len(), 3_000_000);
}

fn many_threads_share_one_opening() {
    let store = store();
    let objects = allowed(&options(&store.endpoint()), &["s3://photos"]).unwrap();
    thread::scope(|scope| {
        for key in KEYS.iter().cycle().take(12) {
            let objects = &objects;
            scope.spawn(move || {
                let mut fetch = objects.fetch();
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
    program.env(READER, "-").env("AWS_ENDPOINT_URL", store.endpoint()).env("AWS_REGION", "eu-central-1");
    assert_eq!(printed(&mut program), "a.jpg");
}

fn without_credentials_the_places_that_were_searched_are_told() {
    let home = tempfile::tempdir().unwrap();
    let mut program = this_program();
    for (name, _) in CREDENTIALS {
        program.env_remove(name);
    }
    program.env(READER, "-").env("HOME", home.path()).env("AWS_EC2_METADATA_DISABLED", "true");
    let told = program.env("AWS_ENDPOINT_URL", format!("http://{}", mirror())).output().unwrap().stderr;
    let told = String::from_utf8_lossy(&told);
    assert!(
        told.contains("no credentials: ") && told.contains("searched were AWS_ACCESS_KEY_ID, the profile"),
        "{told}"
    );
}

fn read_as_programs_do() {
    let settings = std::env::var(READER).unwrap();
    let settings = settings.split_whitespace().filter_map(|text| text.split_once('='));
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let options = StoreOptions { settings, ..StoreOptions::default() };
    let bytes = read(&mut *reader(&options, &["s3://photos"]), "s3://photos/a.jpg").unwrap();
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
    let timeout = Duration::from_millis(1500);
    let hasty = StoreOptions { timeout, deadline: Some(timeout), max_bytes: 1000, ..options(&endpoint) };
    let begin = Instant::now();
    let error = read(&mut *reader(&hasty, &["s3://photos"]), "s3://photos/a").unwrap_err();
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
    let deadline = Some(Duration::from_secs(2));
    let options = StoreOptions { deadline, ..options(&format!("http://{nobody}")) };
    let error = read(&mut *reader(&options, &["s3://photos"]), "s3://photos/a").unwrap_err();
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
    assert!(matches!(error, FetchError::Denied(_)), "{error}");
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
        let remedy = match told.ends_with("ExpiredToken") {
            true => "renew the credentials (`aws sso login`)",
            false => "look at the credentials, their rights and the region",
        };
        let expected = format!("s3://photos/a: the store refuses it ({told}); {remedy}");
        assert_eq!(message, expected);
    }
}

fn options_that_make_no_sense_are_refused() {
    let refused =
        |options: &StoreOptions, allow: &[&str]| allowed(options, allow).err().map(|error| error.to_string()).unwrap();
    let message = "no bucket may be read; allow s3://bucket or s3://bucket/folder";
    assert_eq!(refused(&StoreOptions::default(), &[]), message);
    let message = "'photos' may not be allowed; write s3://bucket or s3://bucket/folder";
    assert_eq!(refused(&options("http://a"), &["photos"]), message);
    let message = "endpoint 'localhost:9000' has to begin with http:// or https://";
    assert_eq!(refused(&options("localhost:9000"), &["s3://photos"]), message);
    let message = "unknown setting 'regoin'; it has account, anonymous, conditional-writes, endpoint, profile, region, \
                   requester-pays, retry-for, virtual-hosted";
    assert_eq!(refused(&with(options("http://a"), "regoin", ""), &["s3://photos"]), message);
    let message = "retry-for '1h' has to be a number of seconds";
    assert_eq!(refused(&with(options("http://a"), "retry-for", "1h"), &["s3://photos"]), message);
    let message = "anonymous 'yes' has to be true or false";
    assert_eq!(refused(&with(options("http://a"), "anonymous", "yes"), &["s3://photos"]), message);
}

fn the_backend_is_found_by_its_name() {
    let registry = registry();
    assert!(registry.get("object-store").unwrap().schemes().contains(&"s3"));
}

fn registry() -> StoreRegistry {
    let mut registry = StoreRegistry::new("store", &["object-store"]);
    register(&mut registry).unwrap();
    registry
}

/// A listing of paths in a store.
fn listing(options: &StoreOptions, inputs: &[&str]) -> Result<Listing, SourceError> {
    let inputs = inputs.iter().map(|path| Input::Path(path.into()));
    Listing::builder().inputs(inputs).stores(registry().into(), options.clone()).build()
}

fn ids(listing: &mut Listing) -> Vec<String> {
    std::iter::from_fn(|| listing.next_item().unwrap()).map(|item| item.id).collect()
}

/// Runs a program in Python with boto3's client `s3`.
fn boto(store: &AwsServer, program: &str) {
    let client = FILL.split("for bucket").next().unwrap();
    printed(python(&["boto3"]).args(["-c", &format!("{client}\n{program}"), &store.endpoint()]));
}

fn prefixes_patterns_and_lists_are_sources() {
    let store = store();
    let options = options(&store.endpoint());
    let keys = ["a.jpg", "public-not/a.jpg", "public/a.jpg", "public/deep/b c+d.jpg", "public/ü#1?x=%2e%2E&~[1].jpg"];
    let all = keys.map(|key| format!("s3://photos/{key}"));
    for input in ["s3://photos/", "s3://photos"] {
        assert_eq!(ids(&mut listing(&options, &[input]).unwrap()), all);
    }
    let found = ids(&mut listing(&options, &["s3://photos/public/*.jpg"]).unwrap());
    assert_eq!(found, [all[2].clone(), all[4].clone()]);
    assert_eq!(ids(&mut listing(&options, &["s3://photos/public/**/*.jpg"]).unwrap()), all[2..]);
    // The object `public` hides the folder, as a file would.
    assert_eq!(ids(&mut listing(&options, &["s3://photos/public"]).unwrap()), ["s3://photos/public"]);
    let open = || Box::new(listing(&options, &["s3://photos/", "s3://photos/none.jpg"]).unwrap()) as Box<dyn Source>;
    check(open);
    for (item, bytes) in read_all(open().as_mut()).iter().filter(|(item, _)| item.fault.is_none()) {
        assert_eq!(bytes.as_deref().unwrap(), item.id.strip_prefix("s3://photos/").unwrap().as_bytes());
        assert!(item.version.is_known(), "{item}");
    }
    let list = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(list.path(), format!("{}\n{}\ns3://photos/none.jpg\n", all[2], all[3])).unwrap();
    let input = Input::List(list.path().into(), foveate_source::Separator::Line);
    let mut listed = Listing::builder().inputs([input]).stores(registry().into(), options).build().unwrap();
    let read = read_all(&mut listed);
    let bytes: Vec<_> = read.iter().map(|(_, bytes)| bytes.as_deref().map_err(String::as_str)).collect();
    assert_eq!(bytes[..2], [Ok(&b"public/a.jpg"[..]), Ok(b"public/deep/b c+d.jpg")]);
    assert_eq!(bytes[2], Err("not found: s3://photos/none.jpg"));
}

fn a_listing_takes_as_many_pages_as_it_needs() {
    let store = store();
    boto(&store, "for i in range(2100): s3.put_object(Bucket='private', Key=f'many/ü +&{i:05}.jpg', Body=b'')");
    let mut listed = listing(&options(&store.endpoint()), &["s3://private/many/"]).unwrap();
    let expected: Vec<_> = (0..2100).map(|i| format!("s3://private/many/ü +&{i:05}.jpg")).collect();
    assert_eq!(ids(&mut listed), expected);
}

fn an_object_that_changed_or_is_gone_is_its_own_failure() {
    let store = store();
    let mut listed = listing(&options(&store.endpoint()), &["s3://photos/public/"]).unwrap();
    boto(
        &store,
        "s3.put_object(Bucket='photos', Key='public/a.jpg', Body=b'public/b.jpg')
s3.delete_object(Bucket='photos', Key='public/deep/b c+d.jpg')",
    );
    let read = read_all(&mut listed);
    let told: Vec<_> = read.iter().map(|(_, bytes)| bytes.as_ref().map(Vec::len).map_err(String::as_str)).collect();
    assert_eq!(told[0], Err("s3://photos/public/a.jpg changed after it was listed"));
    assert_eq!(told[1], Err("not found: s3://photos/public/deep/b c+d.jpg"));
    assert!(told[2].is_ok(), "{told:?}");
}

fn unknown(address: String) -> Object {
    Object { address, version: Version::default() }
}

fn objects_come_in_the_order_in_which_they_were_asked_for() {
    let store = store();
    // Less memory than one object takes.
    let tight = StoreOptions { read_ahead_bytes: 4096, ..options(&store.endpoint()) };
    for options in [StoreOptions { requests: 3, ..options(&store.endpoint()) }, tight] {
        let store = open(&options).unwrap();
        let keys: Vec<_> = KEYS.iter().chain(&["public/large", "none"]).cycle().take(40).collect();
        let mut ahead = store.read_ahead();
        assert!(ahead.has_room());
        keys.iter().for_each(|key| ahead.ask(unknown(format!("s3://photos/{key}"))));
        for key in keys {
            match (*key, ahead.take()) {
                ("public/large", bytes) => assert_eq!(bytes.unwrap().0.len(), 3_000_000),
                ("none", bytes) => assert!(matches!(bytes, Err(FetchError::NotFound(_)))),
                (key, bytes) => assert_eq!(bytes.unwrap().0, key.as_bytes()),
            }
        }
        ahead.ask(unknown("s3://photos/public/large".to_owned()));
        drop(ahead);
    }
}

fn a_part_and_a_stream_have_the_objects_bytes() {
    let server = store();
    boto(
        &server,
        "s3.put_object(Bucket='photos', Key='big', Body=b''.join(i.to_bytes(4, 'big') for i in range(6_000_000)))",
    );
    let store: std::sync::Arc<dyn Store> = open(&options(&server.endpoint())).unwrap();
    let expected: Vec<u8> = (0..6_000_000_u32).flat_map(u32::to_be_bytes).collect();
    let listed = store.find("s3://photos/big").unwrap().unwrap();
    for object in [unknown("s3://photos/big".to_owned()), listed] {
        let blob = store.open(&object).unwrap();
        assert_eq!((blob.name(), blob.len()), ("s3://photos/big", Some(24_000_000)));
        assert!(blob.modified().is_some());
        for offset in [0, 23_999_999, 12_345_678] {
            let mut bytes = Vec::new();
            blob.stream(offset).unwrap().read_to_end(&mut bytes).unwrap();
            assert!(bytes == expected[offset as usize..], "from {offset}");
        }
        let mut part = [0; 5];
        blob.read_at(4_000_001, &mut part).unwrap();
        assert_eq!(part, expected[4_000_001..4_000_006]);
        assert!(matches!(blob.read_at(23_999_998, &mut part), Err(FetchError::Damaged(_))));
        assert_eq!(blob.stream(24_000_000).unwrap().read(&mut part).unwrap(), 0);
    }
    let blob = store.open(&unknown("s3://photos/big".to_owned())).unwrap();
    boto(&server, "s3.put_object(Bucket='photos', Key='big', Body=b'x' * 24_000_000)");
    let error = blob.stream(0).unwrap().read(&mut [0; 5]).unwrap_err();
    assert!(matches!(FetchError::from(error), FetchError::Changed(_)));
    assert!(matches!(store.open(&unknown("s3://photos/none".to_owned())), Err(FetchError::NotFound(_))));
}

fn a_prefix_that_is_not_there_is_told() {
    let store = store();
    let options = options(&store.endpoint());
    let fault = |input: &str| listing(&options, &[input]).unwrap().next_item().unwrap().unwrap().fault.unwrap();
    assert_eq!(fault("s3://photos/none/"), "no object has this name or prefix");
    assert_eq!(fault("s3://photos/none.jpg"), "no object has this name or prefix");
    assert_eq!(fault("s3://photos/none*.jpg"), "the pattern matches nothing");
    let error = listing(&options, &["s3://no-such-bucket/a/"]).unwrap_err();
    assert_eq!(error.to_string(), "cannot list s3://no-such-bucket/a/");
}

/// A store that answers every request with the request's headers.
fn mirror() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut request) = (stream.unwrap(), vec![0; 16384]);
            let len = stream.read(&mut request).unwrap();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n{HEADERS}\r\n");
            stream.write_all(&[head.as_bytes(), &request[..len]].concat()).unwrap();
        }
    });
    address
}

fn profiles_give_credentials_region_and_endpoint() {
    let home = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| {
        let path = home.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let keys = |id: &str| format!("aws_access_key_id = {id}\naws_secret_access_key = secret\n");
    let credentials = file("credentials", format!("[default]\n{}[other]\n{}", keys("DEFAULT"), keys("OTHER")));
    let section =
        |name: &str, region: &str| format!("[{name}]\nregion = {region}\nendpoint_url = http://{}\n", mirror());
    let config = file("config", section("default", "eu-west-1") + &section("profile other", "us-west-2"));
    let sent = |settings: &str, profile: Option<&str>| {
        let mut program = this_program();
        CREDENTIALS.iter().for_each(|(name, _)| _ = program.env_remove(name));
        program.env(READER, settings).env("AWS_CONFIG_FILE", &config).env("AWS_SHARED_CREDENTIALS_FILE", &credentials);
        program.envs(profile.map(|profile| ("AWS_PROFILE", profile)));
        printed(&mut program)
    };
    for (settings, profile, key, region) in [
        ("-", None, "DEFAULT", "eu-west-1"),
        ("-", Some("other"), "OTHER", "us-west-2"),
        ("profile=other", None, "OTHER", "us-west-2"),
        ("region=ap-south-1", Some("other"), "OTHER", "ap-south-1"),
    ] {
        let request = sent(settings, profile);
        let (scope, date) = (request.split("Credential=").nth(1).unwrap(), 8);
        assert!(scope.starts_with(&format!("{key}/")), "{settings} {profile:?}: {request}");
        assert!(scope[key.len() + 1 + date..].starts_with(&format!("/{region}/s3/")), "{settings}: {request}");
    }
}

fn requests_are_unsigned_or_paid_for_as_asked() {
    let request = |setting: Option<&str>| {
        let mut options = options(&format!("http://{}", mirror()));
        options.settings.extend(setting.map(|name| (name.to_owned(), "true".to_owned())));
        String::from_utf8(read(&mut *reader(&options, &["s3://photos"]), "s3://photos/a").unwrap())
            .unwrap()
            .to_lowercase()
    };
    let (usual, unsigned, paid) = (request(None), request(Some("anonymous")), request(Some("requester-pays")));
    assert!(usual.contains("authorization: ") && !unsigned.contains("authorization: "), "{usual}{unsigned}");
    assert!(!usual.contains("x-amz-request-payer") && paid.contains("x-amz-request-payer: requester"), "{paid}");
    assert!(request(Some("virtual-hosted")).starts_with("get /a http/1.1"));
}
