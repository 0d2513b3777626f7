//! Tests against a store that resets, stalls, lies and refuses.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use foveate_core::{FaultScope, error_chain};
use foveate_object_store::{open, register};
use foveate_source::conformance::{check, read};
use foveate_source::store::{Object, Store, StoreOptions, StoreRegistry, Version};
use foveate_source::{Content, Delivery, FetchError, Input, Item, Listing, Separator, Source, SourceError};
use foveate_testkit::proxy::{Act, proxy};
use foveate_testkit::{run, trials};

fn main() -> ExitCode {
    run(trials![
        each_object_has_one_outcome,
        a_store_that_refuses_everything_is_at_fault_and_not_its_objects,
        an_object_that_is_refused_alone_is_at_fault,
        a_refusal_before_anything_was_given_is_left_open,
        a_failed_page_is_asked_for_again,
        a_store_that_goes_away_while_names_are_looked_up_ends_the_listing,
        a_long_listing_is_made_of_ranges_side_by_side,
        a_listing_without_order_or_end_is_refused,
        a_key_that_the_library_cannot_ask_for_is_one_failure,
        a_broken_body_continues_where_it_broke,
        a_store_that_never_answers_or_trickles_takes_bounded_time,
        an_endpoint_that_is_not_there_is_told_at_once,
        a_store_that_is_busy_is_asked_again,
        a_server_that_asks_for_a_wait_gets_it,
        a_length_beyond_the_limit_takes_no_memory,
        streams_break_as_their_store_does,
        a_streams_bytes_are_read_before_their_part_is_whole,
    ])
}

/// A request.
struct Request {
    path: String,
    headers: BTreeMap<String, String>,
    /// The number of earlier requests for this path.
    before: usize,
}

impl Request {
    fn read(stream: &TcpStream, counts: &Mutex<BTreeMap<String, usize>>) -> Option<Self> {
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
        let path = lines.next()?.split(' ').nth(1)?.to_owned();
        let header = |line: String| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
        let headers = lines.filter_map(header).collect();
        let mut counts = counts.lock().unwrap();
        let count = counts.entry(path.clone()).or_default();
        *count += 1;
        Some(Self { path, headers, before: *count - 1 })
    }

    /// The first byte asked for.
    fn start(&self) -> usize {
        let range = self.headers.get("range").map(|range| range.trim_start_matches("bytes="));
        range.and_then(|range| range.split('-').next()?.parse().ok()).unwrap_or(0)
    }
}

/// A server that answers every connection with `answer`.
fn server(answer: impl Fn(&Request, &mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (answer, counts) = (Arc::new(answer), Arc::new(Mutex::new(BTreeMap::new())));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, answer, counts) = (stream.unwrap(), Arc::clone(&answer), Arc::clone(&counts));
            thread::spawn(move || {
                if let Some(request) = Request::read(&stream, &counts) {
                    // A client may go away.
                    let _ = answer(&request, &mut stream);
                }
            });
        }
    });
    address
}

const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// The start of an answer with `len` bytes from `start` on.
fn head(start: usize, len: usize, tag: &str) -> String {
    let (status, range) = match start {
        0 => ("200 OK", String::new()),
        _ => ("206 Partial Content", format!("Content-Range: bytes {start}-{}/{}\r\n", start + len - 1, start + len)),
    };
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {len}\r\n{range}ETag: \"{tag}\"\r\nLast-Modified: {DATE}\r\nConnection: \
         close\r\n\r\n"
    )
}

fn refuse(stream: &mut TcpStream, status: &str, code: &str) -> std::io::Result<()> {
    let body = format!("<Error><Code>{code}</Code></Error>");
    let length = body.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}

/// The content of every sound object of the test.
const BODY: &[u8] = &[7; 1000];

fn sound(request: &Request, stream: &mut TcpStream) -> std::io::Result<()> {
    let start = request.start();
    stream.write_all(head(start, BODY.len() - start, "a").as_bytes())?;
    stream.write_all(&BODY[start..])
}

/// A page of a listing.
fn page(stream: &mut TcpStream, keys: &[&str], next: Option<&str>) -> std::io::Result<()> {
    let object = |key: &&str| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>1994-11-06T08:49:37.000Z</LastModified><ETag>&quot;a&quot;</ETag>\
             <Size>{}</Size></Contents>",
            if key.ends_with('/') { 0 } else { 1000 }
        )
    };
    let objects: String = keys.iter().map(object).collect();
    let next = next.map(|token| format!("<NextContinuationToken>{token}</NextContinuationToken>")).unwrap_or_default();
    let body = format!("<ListBucketResult>{objects}{next}</ListBucketResult>");
    let length = body.len();
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}

fn options(server: SocketAddr) -> StoreOptions {
    let settings = [("endpoint", format!("http://{server}")), ("anonymous", "true".into()), ("region", "x".into())];
    StoreOptions {
        timeout: Duration::from_secs(2),
        deadline: Some(Duration::from_secs(6)),
        max_bytes: 1_000_000,
        settings: settings.map(|(name, value)| (name.to_owned(), value)).into(),
        ..StoreOptions::default()
    }
}

fn listing(server: SocketAddr, input: &str) -> Result<Listing, SourceError> {
    listed([Input::Path(input.into())], options(server))
}

fn listed(inputs: impl IntoIterator<Item = Input>, options: StoreOptions) -> Result<Listing, SourceError> {
    let mut registry = StoreRegistry::new("store", &["object-store"]);
    register(&mut registry).unwrap();
    Listing::builder().inputs(inputs).stores(registry.into(), options).build()
}

fn fetch(store: &dyn Store, address: &str) -> Result<Vec<u8>, FetchError> {
    let item = Item { locator: address.as_bytes().to_vec(), ..Item::default() };
    let mut out = Vec::new();
    store.fetch().fetch(&item, &mut out).map(|()| out)
}

fn each_object_has_one_outcome() {
    const KEYS: [&str; 9] = [
        "p/0-sound.jpg",
        "p/1-changed.jpg",
        "p/2-longer.jpg",
        "p/3-shorter.jpg",
        "p/4-gone.jpg",
        "p/5-forbidden.jpg",
        "p/6-other-tag.jpg",
        "p/7-more-than-told.jpg",
        "p/8-sound.jpg",
    ];
    let server = server(|request, stream| match request.path.rsplit('/').next().unwrap() {
        "1-changed.jpg" => refuse(stream, "412 Precondition Failed", "PreconditionFailed"),
        "2-longer.jpg" => write!(stream, "{}{}", head(0, 1001, "a"), "x".repeat(1001)),
        "3-shorter.jpg" => write!(stream, "{}{}", head(0, 999, "a"), "x".repeat(999)),
        "4-gone.jpg" => refuse(stream, "404 Not Found", "NoSuchKey"),
        "5-forbidden.jpg" => refuse(stream, "403 Forbidden", "AccessDenied"),
        "6-other-tag.jpg" => write!(stream, "{}{}", head(0, 1000, "b"), "x".repeat(1000)),
        "7-more-than-told.jpg" => {
            sound(request, stream)?;
            stream.write_all(&[1; 1000])
        }
        list if list.contains("list-type=2") => page(stream, &KEYS, None),
        _ if request.headers.get("if-match").is_some_and(|tag| tag == "\"a\"") => sound(request, stream),
        _ => refuse(stream, "400 Bad Request", "NoCondition"),
    });
    // Twice the same, however busy the machine is.
    let patient = || StoreOptions { timeout: Duration::from_secs(20), deadline: None, ..options(server) };
    let open = || Box::new(listed([Input::Path("s3://b/p/".into())], patient()).unwrap()) as Box<dyn Source>;
    check(open);
    let outcomes = read(open().as_mut());
    assert_eq!(
        outcomes.iter().map(|(item, _)| item.id.as_str()).collect::<Vec<_>>(),
        KEYS.map(|key| format!("s3://b/{key}"))
    );
    let expected = [
        None,
        Some("s3://b/p/1-changed.jpg changed after it was listed"),
        Some("s3://b/p/2-longer.jpg changed after it was listed"),
        Some("s3://b/p/3-shorter.jpg changed after it was listed"),
        Some("not found: s3://b/p/4-gone.jpg"),
        Some(
            "s3://b/p/5-forbidden.jpg: the store refuses it (403 Forbidden: AccessDenied); look at the credentials, \
             their rights and the region",
        ),
        Some("s3://b/p/6-other-tag.jpg changed after it was listed"),
        None,
        None,
    ];
    for ((item, outcome), expected) in outcomes.iter().zip(expected) {
        match expected {
            None => assert!(outcome.as_deref() == Ok(BODY), "{item}: {outcome:?}"),
            Some(message) => assert_eq!(outcome.as_ref().unwrap_err(), message),
        }
    }
}

/// The answers of stores to requests with bad credentials, wrong clocks, for other regions, and when they are busy.
const REFUSALS: [(&str, &str); 17] = [
    ("400 Bad Request", "ExpiredToken"),
    ("403 Forbidden", "AccessDenied"),
    ("403 Forbidden", "InvalidAccessKeyId"),
    ("403 Forbidden", "SignatureDoesNotMatch"),
    ("403 Forbidden", "RequestTimeTooSkewed"),
    ("301 Moved Permanently", "PermanentRedirect"),
    ("503 Slow Down", "SlowDown"),
    ("404 Not Found", "NoSuchBucket"),
    ("401 Unauthorized", "InvalidAuthenticationInfo"), // Azure's
    ("403 Forbidden", "AuthenticationFailed"),
    ("403 Forbidden", "AuthorizationFailure"),
    ("404 Not Found", "ContainerNotFound"),
    ("503 Server Busy", "ServerBusy"),
    ("401 Unauthorized", "AuthenticationRequired"), // Google's
    ("429 Too Many Requests", "rateLimitExceeded"),
    ("400 Bad Request", ""), // a gateway's
    ("500 Internal Server Error", ""),
];

/// Objects of every kind of store.
fn objects(kind: &str, count: usize) -> tempfile::NamedTempFile {
    let addresses: Vec<_> = (0..count).map(|number| format!("{kind}://b/{number:02}")).collect();
    let mut list = tempfile::NamedTempFile::new().unwrap();
    list.write_all(addresses.join("\n").as_bytes()).unwrap();
    list
}

/// The outcomes of `count` objects behind a proxy, up to the first that is at fault with the whole store.
fn outcomes(
    kind: &str,
    count: usize,
    act: impl Fn(usize, &[u8]) -> Act + Send + 'static,
) -> Vec<Result<(), FetchError>> {
    let endpoint = proxy(&format!("http://{}", server(sound)), act);
    let list = objects(kind, count);
    let mut options = StoreOptions { requests: 4, deadline: None, ..options(([127, 0, 0, 1], 1).into()) };
    let settings = [("endpoint", endpoint.as_str()), ("account", "a"), ("retry-for", "1")];
    options.settings.extend(settings.map(|(name, value)| (name.to_owned(), value.to_owned())));
    options.timeout = Duration::from_secs(20);
    let mut listed = listed([Input::List(list.path().to_owned(), Separator::Line)], options).unwrap();
    let mut outcomes = Vec::new();
    while let Some(Delivery { content, .. }) = listed.deliver().unwrap() {
        let outcome = match content {
            Content::Read(bytes) => {
                assert_eq!(bytes, BODY);
                Ok(())
            }
            Content::Failed(error) => Err(error),
            Content::Unread => panic!("an object is read ahead"),
        };
        outcomes.push(outcome);
        if outcomes.last().unwrap().as_ref().is_err_and(|error| error.scope() == FaultScope::Run) {
            break;
        }
    }
    outcomes
}

const KINDS: [&str; 3] = ["s3", "az", "gs"];

fn a_store_that_refuses_everything_is_at_fault_and_not_its_objects() {
    thread::scope(|scope| {
        for ((status, code), kind) in REFUSALS.into_iter().flat_map(|refusal| KINDS.map(|kind| (refusal, kind))) {
            scope.spawn(move || {
                let outcomes = outcomes(kind, 40, move |number, _| match number {
                    ..20 => Act::Pass,
                    _ => Act::Refuse(status, code),
                });
                let (last, before) = outcomes.split_last().unwrap();
                // How many come before depends on the order in which requests arrive.
                assert!(before.iter().all(Result::is_ok), "{kind} {code}: {outcomes:?}");
                let told = match last {
                    Err(FetchError::StoreGone(told)) => told,
                    other => panic!("{kind} {code}: {other:?}"),
                };
                // A redirect's body is not read.
                assert!(status.starts_with("301") || told.contains(&status[..3]), "{kind} {code}: {told}");
            });
        }
    });
}

fn an_object_that_is_refused_alone_is_at_fault() {
    thread::scope(|scope| {
        for ((status, code), kind) in REFUSALS.into_iter().flat_map(|refusal| KINDS.map(|kind| (refusal, kind))) {
            let is_of_store = matches!(&status[..3], "404" | "429" | "500" | "503");
            // The last one, which no other follows.
            for number in if is_of_store { vec![] } else { vec![5, 11] } {
                scope.spawn(move || {
                    let name = format!("/{number:02} ");
                    let outcomes = outcomes(kind, 12, move |_, request| {
                        let is_refused = request.windows(name.len()).any(|part| part == name.as_bytes());
                        if is_refused { Act::Refuse(status, code) } else { Act::Pass }
                    });
                    assert_eq!(outcomes.len(), 12);
                    for (at, outcome) in outcomes.iter().enumerate() {
                        let is_due = match outcome {
                            Ok(()) => at != number,
                            Err(FetchError::Forbidden(_)) => at == number,
                            Err(_) => false,
                        };
                        assert!(is_due, "{kind} {code}, object {at}: {outcome:?}");
                    }
                });
            }
        }
    });
}

fn a_refusal_before_anything_was_given_is_left_open() {
    for kind in KINDS {
        let outcomes = outcomes(kind, 3, |_, _| Act::Refuse("403 Forbidden", "AccessDenied"));
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Err(FetchError::Denied(_)))), "{outcomes:?}");
    }
}

fn a_failed_page_is_asked_for_again() {
    let server = server(|request, stream| match (request.path.contains("continuation-token=second"), request.before) {
        (false, 0) => refuse(stream, "500 Internal Server Error", "InternalError"),
        (false, _) => page(stream, &["p/a.jpg", "p/b.jpg"], Some("second")),
        (true, 0) => refuse(stream, "503 Slow Down", "SlowDown"),
        (true, 1) => write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n<ListBucketResult>"),
        (true, _) => page(stream, &["p/c.jpg"], None),
    });
    let mut listed = listing(server, "s3://b/p/").unwrap();
    let ids: Vec<_> = std::iter::from_fn(|| listed.next_item().unwrap()).map(|item| item.id).collect();
    assert_eq!(ids, ["s3://b/p/a.jpg", "s3://b/p/b.jpg", "s3://b/p/c.jpg"]);
}

fn a_store_that_goes_away_while_names_are_looked_up_ends_the_listing() {
    let server = server(|request, stream| match request.path.rsplit('/').next().unwrap() {
        "05.jpg" => Ok(()),                                                     // a reset
        name if name.len() > 6 => refuse(stream, "404 Not Found", "NoSuchKey"), // the range itself
        _ => sound(request, stream),
    });
    for input in ["s3://b/{00..09}.jpg", "s3://b/05.jpg"] {
        let deadline = Some(Duration::from_millis(500));
        let error = listed([Input::Path(input.into())], StoreOptions { deadline, ..options(server) }).unwrap_err();
        assert_eq!(error.to_string(), "cannot look up s3://b/05.jpg");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.starts_with("s3://b/05.jpg: "), "{cause}");
    }
}

/// The value of a query's field; a plus is a space.
fn field(path: &str, name: &str) -> Option<String> {
    let value = path.split(['?', '&']).find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?.replace('+', " ");
    let mut parts = value.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
        bytes.extend(part[2..].bytes());
    }
    Some(String::from_utf8(bytes).unwrap())
}

/// Lists `keys` from a store that gives 100 at a time, each page after 10 ms. Returns the requests, and the most that
/// were answered at a time. `begin` says after which key the store begins that is asked to begin after one.
fn list_slowly(keys: &[String], begin: fn(String) -> String) -> (usize, usize) {
    let (all, counts) = (keys.to_vec(), Arc::new(Mutex::new([0; 3])));
    let shared = Arc::clone(&counts);
    let count = move |by: fn(&mut [usize; 3])| by(&mut shared.lock().unwrap());
    let server = server(move |request, stream| {
        if !request.path.contains("list-type") {
            return refuse(stream, "404 Not Found", "NoSuchKey"); // the first look at the endpoint
        }
        count(|[requests, now, most]| (*requests, *now, *most) = (*requests + 1, *now + 1, (*now + 1).max(*most)));
        thread::sleep(Duration::from_millis(10));
        count(|[_, now, _]| *now -= 1);
        let after = field(&request.path, "continuation-token");
        let after = after.or_else(|| field(&request.path, "start-after").map(begin));
        let start = after.map_or(0, |after| all.partition_point(|key| *key <= after));
        let most = field(&request.path, "max-keys").map_or(100, |most| most.parse().unwrap());
        let end = (start + most).min(all.len());
        let keys: Vec<_> = all[start..end].iter().map(String::as_str).collect();
        page(stream, &keys, keys.last().copied().filter(|_| end < all.len()))
    });
    let patient = StoreOptions { timeout: Duration::from_secs(20), deadline: None, ..options(server) };
    let mut listed = listed([Input::Path("s3://b/p/".into())], patient).unwrap();
    let ids: Vec<_> = std::iter::from_fn(|| listed.next_item().unwrap()).map(|item| item.id).collect();
    let expected: Vec<_> = keys.iter().map(|key| format!("s3://b/{key}")).collect();
    assert!(ids == expected, "{} keys, {} expected", ids.len(), expected.len());
    let [requests, _, most] = *counts.lock().unwrap();
    (requests, most)
}

fn a_long_listing_is_made_of_ranges_side_by_side() {
    fn keys(count: usize, mut key: impl FnMut(usize) -> String) -> Vec<String> {
        let mut keys: Vec<_> = (0..count).map(|number| format!("p/{}.jpg", key(number))).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
    let numbered = |count| keys(count, |number| format!("2024/img_{number:07}"));
    // Few pages are few requests.
    for (count, pages) in [(1, 1), (100, 1), (301, 4)] {
        assert_eq!(list_slowly(&numbered(count), |key| key), (pages, 1));
    }
    let mut random = fastrand::Rng::with_seed(7);
    let layouts = [
        numbered(10_000),
        keys(10_000, |_| format!("{:032x}", random.u128(..))),
        // A large folder between small ones.
        keys(10_000, |number| match number % 10 {
            0 => format!("{}/{number}", char::from(b'a' + (number / 10 % 26) as u8)),
            _ => format!("m/of one shop/{number}"),
        }),
        keys(10_000, |number| format!("~{}/{number}~", ["ünï", "日本", "a", "🦊"][number % 4])),
        keys(10_000, |number| "x".repeat(number % 200) + &number.to_string()),
    ];
    for keys in layouts {
        let (requests, most) = list_slowly(&keys, |key| key);
        // How many looks for a middle there are depends on the order of the answers.
        assert!(most > 1 && requests <= 300, "{}: {requests} requests for 100 pages, {most} at a time", keys[0]);
    }
    // Stores that begin elsewhere give the same list.
    for begin in [|_| String::new(), |key: String| key.replace("img", "imh"), |key: String| key.replace("img", "imf")] {
        assert!(list_slowly(&numbered(2_000), begin).0 < 60);
    }
}

fn a_listing_without_order_or_end_is_refused() {
    let disorder = "the store does not list in the order of keys; list its objects once and name them in a file";
    let unordered = server(|_, stream| page(stream, &["p/b.jpg", "p/a.jpg"], None));
    assert_eq!(listing(unordered, "s3://b/p/").unwrap_err().to_string(), format!("s3://b/p/a.jpg: {disorder}"));
    let endless = server(|_, stream| page(stream, &[], Some("again")));
    assert_eq!(listing(endless, "s3://b/p/").unwrap_err().to_string(), format!("s3://b/p/: {disorder}"));
}

fn a_key_that_the_library_cannot_ask_for_is_one_failure() {
    const KEYS: [&str; 8] =
        ["p/", "p/./a.jpg", "p//b.jpg", "p/a&amp;b.jpg", "p/c%2Fd.jpg", "p/sub-e.jpg", "p/sub/", "p/sub/f&#10;.jpg"];
    let server = server(|request, stream| match request.path.contains("list-type=2") {
        true => page(stream, &KEYS, None),
        false => sound(request, stream),
    });
    let open = || Box::new(listing(server, "s3://b/p/").unwrap()) as Box<dyn Source>;
    check(open);
    assert_eq!(listing(server, "s3://b/p/").unwrap().stats().faults, 3, "known at the start");
    let outcomes: Vec<_> = read(open().as_mut()).into_iter().map(|(item, read)| (item.id, read.map(drop))).collect();
    let unspeakable = |key: &str| {
        let why = "has a key with an empty, . or .. part or a control character; copy it to another key";
        Err(format!("'s3://b/{key}' {why}"))
    };
    let expected = [
        ("p/./a.jpg", unspeakable("p/./a.jpg")),
        ("p//b.jpg", unspeakable("p//b.jpg")),
        ("p/a&b.jpg", Ok(())),
        ("p/c%2Fd.jpg", Ok(())),
        ("p/sub-e.jpg", Ok(())),
        ("p/sub/f\n.jpg", unspeakable("p/sub/f\\n.jpg")),
    ];
    assert_eq!(outcomes, expected.map(|(key, outcome)| (format!("s3://b/{key}"), outcome)));
}

fn a_broken_body_continues_where_it_broke() {
    let server = server(|request, stream| {
        let start = request.start();
        assert!(start == 0 || request.headers["if-match"] == "\"a\"", "a part without a condition");
        // Each answer brings 300 bytes and breaks.
        let end = BODY.len().min(start + 300);
        stream.write_all(head(start, BODY.len() - start, "a").as_bytes())?;
        stream.write_all(&BODY[start..end])
    });
    let store = open(&options(server)).unwrap();
    assert_eq!(fetch(store.as_ref(), "s3://b/k").unwrap(), BODY);
}

fn a_store_that_never_answers_or_trickles_takes_bounded_time() {
    let server = server(|request, stream| {
        if request.path.ends_with("trickle") {
            let start = request.start();
            stream.write_all(head(start, 100_000 - start, "a").as_bytes())?;
            for _ in 0..100 {
                stream.write_all(b"x")?;
                thread::sleep(Duration::from_millis(100));
            }
        }
        thread::sleep(Duration::from_secs(20));
        Ok(())
    });
    let store = open(&options(server)).unwrap();
    for key in ["trickle", "silent"] {
        let begin = Instant::now();
        let error = fetch(store.as_ref(), &format!("s3://b/{key}")).unwrap_err();
        assert!(matches!(error, FetchError::Unreachable(_)) && error.to_string().contains("in time"), "{error}");
        assert!(begin.elapsed() < Duration::from_secs(15), "{key}: {:?}", begin.elapsed());
    }
}

fn an_endpoint_that_is_not_there_is_told_at_once() {
    let refusing = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (endpoint, why) in [
        (format!("http://{refusing}"), "Connection refused"),
        ("http://no-such-host.invalid".to_owned(), "failed to lookup address information"),
    ] {
        let mut options = options(refusing);
        options.deadline = None;
        options.settings.insert("endpoint".to_owned(), endpoint.clone());
        let begun = Instant::now();
        let error = listed([Input::Path("s3://b/p/".into())], options).unwrap_err();
        let told = error_chain(&error);
        assert!(
            told.starts_with(&format!("cannot list s3://b/p/: the endpoint {endpoint} cannot be reached: ")),
            "{told}"
        );
        assert!(told.contains(why), "{told}");
        // Attempts to read take half a minute.
        assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    }
}

fn a_store_that_is_busy_is_asked_again() {
    let server = server(|request, stream| match request.before {
        0 => refuse(stream, "503 Slow Down", "SlowDown"),
        1 => refuse(stream, "429 Too Many Requests", "TooManyRequests"),
        2 => refuse(stream, "500 Internal Server Error", "InternalError"),
        3 => Ok(()), // a reset
        _ => sound(request, stream),
    });
    let store = open(&StoreOptions { deadline: None, ..options(server) }).unwrap();
    let mut ahead = store.read_ahead();
    for key in 0..20 {
        ahead.ask(Object { address: format!("s3://b/{key}"), version: Version::default() });
    }
    for _ in 0..20 {
        assert_eq!(ahead.take().unwrap().0, BODY);
    }
}

fn a_server_that_asks_for_a_wait_gets_it() {
    let server = server(|request, stream| match request.before {
        0 => write!(stream, "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n"),
        _ => sound(request, stream),
    });
    let store = open(&StoreOptions { deadline: None, ..options(server) }).unwrap();
    let began = Instant::now();
    assert_eq!(fetch(store.as_ref(), "s3://b/k").unwrap(), BODY);
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
}

fn a_length_beyond_the_limit_takes_no_memory() {
    let server = server(|_, stream| write!(stream, "{}", head(0, 10_000_000_000, "a")));
    let store = open(&options(server)).unwrap();
    let error = fetch(store.as_ref(), "s3://b/k").unwrap_err();
    assert!(matches!(error, FetchError::TooLarge { bytes: 10_000_000_000, limit: 1_000_000 }), "{error}");
    let mut ahead = store.read_ahead();
    let version = Version { len: Some(1_000_001), ..Version::default() };
    ahead.ask(Object { address: "s3://b/k".to_owned(), version });
    assert!(matches!(ahead.take(), Err(FetchError::TooLarge { bytes: 1_000_001, .. })));
}

fn streams_break_as_their_store_does() {
    let server = server(|request, stream| match request.before {
        0 => sound(request, stream),
        _ => refuse(stream, "503 Slow Down", "SlowDown"),
    });
    let store = open(&options(server)).unwrap();
    let blob = store.open(&Object { address: "s3://b/k".to_owned(), version: Version::default() }).unwrap();
    let error = FetchError::from(blob.stream(0).unwrap().read(&mut [0; 9]).unwrap_err());
    assert!(
        matches!(&error, FetchError::Unreachable(told) if told == "s3://b/k: 503 Service Unavailable: SlowDown"),
        "{error}"
    );
}

fn a_streams_bytes_are_read_before_their_part_is_whole() {
    const WHOLE: usize = (16 << 20) + 1000;
    let (read, is_read) = std::sync::mpsc::channel();
    let (is_read, asked) = (Mutex::new(is_read), Arc::new(Mutex::new(Vec::new())));
    let asks = Arc::clone(&asked);
    let server = server(move |request, stream| {
        let Some(range) = request.headers.get("range") else { return refuse(stream, "404 Not Found", "NoSuchKey") };
        let range = range.trim_start_matches("bytes=");
        asks.lock().unwrap().push(range.to_owned());
        let end: usize = range.split('-').nth(1).unwrap().parse().unwrap();
        let body = vec![7; end + 1 - request.start()];
        let head = format!("Content-Length: {}\r\nContent-Range: bytes {range}/{WHOLE}\r\nETag: \"a\"", body.len());
        let status = "HTTP/1.1 206 Partial Content";
        write!(stream, "{status}\r\n{head}\r\nLast-Modified: {DATE}\r\nConnection: close\r\n\r\n")?;
        stream.write_all(&body[..1000])?;
        if request.start() == 0 {
            let _: Result<(), _> = is_read.lock().unwrap().recv();
        }
        stream.write_all(&body[1000..])
    });
    let store = open(&options(server)).unwrap();
    let version = Version { len: Some(WHOLE as u64), ..Version::default() };
    let mut stream = store.open(&Object { address: "s3://b/k".to_owned(), version }).unwrap().stream(0).unwrap();
    stream.read_exact(&mut [0; 1000]).unwrap();
    read.send(()).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.len() == WHOLE - 1000 && rest.iter().all(|&byte| byte == 7));
    let mut asked = asked.lock().unwrap().clone();
    asked.sort();
    assert_eq!(asked, ["0-8388607", "16777216-16778215", "8388608-16777215"]);
}
