//! Files of servers that answer as real ones do, well and badly.
#![allow(clippy::unwrap_used)] // tests may unwrap

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use foveate_source::conformance::{check, read};
use foveate_source::store::{Object, StoreOptions, StoreRegistry, Version, WebHeaders};
use foveate_source::{FetchError, Input, Item, Listing, Separator, Source};

const BODY: &[u8] = &[7; 1000];
const FACTS: &str = "ETag: \"a\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n";

/// A request.
struct WebRequest {
    method: String,
    path: String,
    headers: BTreeMap<String, String>,
    /// Number of earlier requests of this path.
    before: usize,
}

/// A server that answers every connection with `answer`, and the lines of its requests.
fn server(
    answer: impl Fn(&WebRequest, &mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static,
) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let (answer, asked) = (Arc::new(answer), Arc::clone(&lines));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, answer, asked) = (stream.unwrap(), Arc::clone(&answer), Arc::clone(&asked));
            thread::spawn(move || {
                let mut lines =
                    BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
                let Some(first) = lines.next() else { return };
                let split =
                    |line: String| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
                let headers = lines.filter_map(split).collect();
                let words: Vec<&str> = first.split(' ').collect();
                let request = {
                    let mut asked = asked.lock().unwrap();
                    let before = asked.iter().filter(|line: &&String| line.split(' ').nth(1) == Some(words[1])).count();
                    asked.push(format!("{} {}", words[0], words[1]));
                    WebRequest { method: words[0].to_owned(), path: words[1].to_owned(), headers, before }
                };
                // A client may go away.
                let _ = answer(&request, &mut stream);
            });
        }
    });
    (address, lines)
}

fn reply(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) -> std::io::Result<()> {
    let length = body.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}Connection: close\r\n\r\n")?;
    stream.write_all(body)
}

fn options() -> StoreOptions {
    StoreOptions { timeout: Duration::from_secs(2), max_bytes: 1_000_000, ..StoreOptions::default() }
}

fn listing(addresses: &[String], options: StoreOptions) -> Listing {
    let mut registry = StoreRegistry::new("store", &["web"]);
    foveate_source_web::register(&mut registry).unwrap();
    let mut list = tempfile::NamedTempFile::new().unwrap();
    list.write_all(addresses.join("\n").as_bytes()).unwrap();
    let inputs = [Input::List(list.path().to_owned(), Separator::Line)];
    Listing::builder().inputs(inputs).stores(registry.into(), options).build().unwrap()
}

/// The outcome and the version of each address.
fn outcomes(addresses: &[String], options: StoreOptions) -> Vec<(Result<Vec<u8>, String>, Version)> {
    let read = read(&mut listing(addresses, options));
    read.into_iter().map(|(item, outcome)| (outcome, item.version)).collect()
}

fn modified() -> Option<std::time::SystemTime> {
    Some(UNIX_EPOCH + Duration::from_secs(784_111_777))
}

#[test]
fn answers_of_all_framings_are_read_with_what_they_say() {
    let (address, _) = server(|request, stream| match request.path.as_str() {
        "/chunked" => {
            write!(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{FACTS}\r\n3e8\r\n")?;
            stream.write_all(BODY)?;
            stream.write_all(b"\r\n0\r\n\r\n")
        }
        "/closing" => {
            write!(stream, "HTTP/1.0 200 OK\r\nLast-Modified: soon\r\n\r\n")?;
            stream.write_all(BODY)
        }
        "/p//ok%20%zz.jpg?a=%" => reply(stream, "200 OK", FACTS, BODY),
        "/moved" => reply(stream, "302 Found", "Location: /b\u{fc}cher/a b.jpg\r\n", b""),
        "/b%C3%BCcher/a%20b.jpg" => reply(stream, "200 OK", "", BODY),
        other => panic!("{other}"),
    });
    let paths = ["/chunked", "/closing", "/p//ok%20%zz.jpg?a=%", "/moved", "/p/../p//ok %zz.jpg?a=%"];
    let mut addresses: Vec<_> = paths.iter().map(|path| format!("http://{address}{path}")).collect();
    addresses[1] = format!("  HTTP://{address}/closing  ");
    let tag = Some("\"a\"".to_owned());
    let expected = [
        Version { len: None, modified: modified(), tag: tag.clone() },
        Version::default(),
        Version { len: Some(1000), modified: modified(), tag: tag.clone() },
        Version { len: Some(1000), ..Version::default() },
        Version { len: Some(1000), modified: modified(), tag },
    ];
    for ((outcome, version), (expected, address)) in
        outcomes(&addresses, options()).into_iter().zip(expected.into_iter().zip(&addresses))
    {
        assert_eq!((outcome.as_deref(), version), (Ok(BODY), expected), "{address}");
    }
    check(|| Box::new(listing(&addresses, options())) as Box<dyn Source>);
}

#[test]
fn a_files_failure_is_its_own_and_a_sites_failure_names_the_site() {
    let (address, asked) = server(|request, stream| match request.path.as_str() {
        "/ok" => reply(stream, "200 OK", "", BODY),
        "/404" => reply(stream, "404 Not Found", "", b""),
        "/410" => reply(stream, "410 Gone", "", b""),
        "/403" => reply(stream, "403 Forbidden", "", b""),
        "/302" => reply(stream, "302 Found", "", b""),
        "/page" => reply(stream, "200 OK", "Content-Type: text/html\r\n", b"<html>Sign in</html>"),
        "/busy" if request.before < 2 => reply(stream, "429 Too Many Requests", "Retry-After: 1\r\n", b""),
        "/busy" => reply(stream, "200 OK", "", BODY),
        "/loop" => reply(stream, "301 Moved", "Location: /loop\r\n", b""),
        _ => reply(stream, "503 Service Unavailable", "", b""),
    });
    let names = ["ok", "404", "410", "403", "302", "page", "loop", "busy"];
    let addresses: Vec<_> = names.iter().map(|name| format!("http://{address}/{name}")).collect();
    let begin = Instant::now();
    let told: Vec<_> = outcomes(&addresses, options()).into_iter().map(|(outcome, _)| outcome.map(drop)).collect();
    assert!(begin.elapsed() >= Duration::from_secs(2), "Retry-After is obeyed");
    let expected = [
        Ok(()),
        Err(format!("not found: {address}: answered 404 Not Found")),
        Err(format!("not found: {address}: answered 410 Gone")),
        Err(format!("{address}: answered 403 Forbidden")),
        Err(format!("{address}: answered 302 Found without saying where")),
        Err(format!("{address}: answered with a web page (20 bytes of HTML), not with an image")),
        Err(format!("{address}: more than 10 redirects on the way to it")),
        Ok(()),
    ];
    assert_eq!(told, expected);
    let down: Vec<_> = (0..40).map(|number| format!("http://{address}/down/{number}")).collect();
    let settings = [("retry-for".to_owned(), "1".to_owned()), ("endpoint".to_owned(), "http://s3".to_owned())].into();
    asked.lock().unwrap().clear();
    for (outcome, _) in outcomes(&down, StoreOptions { settings, requests: 1, ..options() }) {
        assert_eq!(outcome, Err(format!("{address}: answered 503 Service Unavailable")));
    }
    let made = asked.lock().unwrap().len();
    assert!((42..60).contains(&made), "{made} requests: the first file alone is asked for again");
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = outcomes(&[format!("http://{closed}/a.jpg")], options()).remove(0).0.unwrap_err();
    assert!(error.starts_with(&format!("{closed}: ")) && error.contains("refused"), "{error}");
}

#[test]
fn signatures_that_expire_are_not_the_fault_of_files() {
    let (address, _) = server(|request, stream| match request.path.as_str() {
        "/secret?s" => reply(stream, "403 Forbidden", "", b""),
        _ if request.before == 0 && request.path != "/late?s" => reply(stream, "200 OK", "", BODY),
        "/a?s" => reply(stream, "200 OK", "", BODY),
        _ => reply(stream, "403 Forbidden", "", b""),
    });
    let url = |path: &str| format!("http://{address}{path}");
    let one = || StoreOptions { requests: 1, ..options() };
    // What was given before is given again, so the one file is refused.
    let told = outcomes(&[url("/a?s"), url("/secret?s"), url("/b?s")], one());
    assert!(told[0].0.is_ok() && told[1].0.is_err() && told[2].0.is_ok());
    let mut fetch = foveate_source_web::open(&one()).unwrap().fetch();
    let item = |path: &str| Item { locator: url(path).into(), ..Item::default() };
    fetch.fetch(&item("/c?s"), &mut Vec::new()).unwrap();
    let error = fetch.fetch(&item("/late?s"), &mut Vec::new()).unwrap_err();
    let FetchError::StoreGone(told) = error else { panic!("{error}") };
    assert!(told.starts_with(&format!("{address}: answered 403 Forbidden, as what it gave before; renew")), "{told}");
}

#[test]
fn a_server_that_never_answers_or_trickles_takes_bounded_time() {
    let (address, _) = server(|request, stream| {
        if request.path.ends_with("trickle") {
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")?;
            for _ in 0..200 {
                stream.write_all(b"x")?;
                thread::sleep(Duration::from_millis(100));
            }
        }
        thread::sleep(Duration::from_secs(20));
        Ok(())
    });
    let addresses = ["silent", "trickle"].map(|name| format!("http://{address}/{name}"));
    let begin = Instant::now();
    for (outcome, _) in outcomes(&addresses, options()) {
        let error = outcome.unwrap_err();
        assert!(error.contains("not done within 2s") || error.contains("bytes/s for 2s"), "{error}");
    }
    assert!(begin.elapsed() < Duration::from_secs(16), "{:?}", begin.elapsed());
}

#[test]
fn headers_are_sent_and_not_shown() {
    let (address, _) = server(|request, stream| {
        let has = |name: &str, value: &str| request.headers.get(name).map(String::as_str) == Some(value);
        match has("authorization", "Bearer SECRET") && has("user-agent", "shop/1") {
            true => reply(stream, "200 OK", "", BODY),
            false => reply(stream, "401 Unauthorized", "", b""),
        }
    });
    let headers = [("Authorization", "Bearer SECRET"), ("User-Agent", "shop/1")];
    let headers = WebHeaders::new(headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    let with = StoreOptions { headers, ..options() };
    assert!(!format!("{with:?}").contains("SECRET"));
    let addresses = [format!("http://{address}/a?token=SECRET")];
    let items = read(&mut listing(&addresses, with));
    assert!(items[0].1.is_ok() && !items[0].0.id.contains("SECRET"));
    let error = outcomes(&addresses, options()).remove(0).0.unwrap_err();
    assert_eq!(error, format!("{address}: answered 401 Unauthorized"));
    let headers = WebHeaders::new(vec![("Host".to_owned(), "SECRET".to_owned())]);
    let Err(error) = foveate_source_web::open(&StoreOptions { headers, ..options() }) else { panic!("opened") };
    assert_eq!(error.to_string(), "the header 'Host' is set by the client; leave it out");
}

#[test]
fn containers_are_read_in_parts_of_one_version() {
    let whole: Arc<Vec<u8>> = Arc::new((0..20_000_000_u32).map(|n| (n % 251) as u8).collect());
    let bytes = Arc::clone(&whole);
    let (address, _) = server(move |request, stream| {
        let range = request.headers.get("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let Some((start, end)) = range.filter(|_| !request.path.ends_with("whole")) else {
            return reply(stream, "200 OK", FACTS, &bytes[..1000]);
        };
        let (start, end): (usize, usize) = (start.parse().unwrap(), end.parse().unwrap());
        let tag = if request.path.ends_with("changing") { request.before } else { 0 };
        let headers = format!("Content-Range: bytes {start}-{end}/{}\r\nETag: \"{tag}\"\r\n", bytes.len());
        reply(stream, "206 Partial Content", &headers, &bytes[start..=end])
    });
    let store = foveate_source_web::open(&StoreOptions { max_bytes: 10_000_000, ..options() }).unwrap();
    let open =
        |name: &str| store.open(&Object { address: format!("http://{address}/{name}"), version: Version::default() });
    let blob = open("a.tar?token=SECRET").unwrap();
    assert_eq!((blob.name(), blob.len()), (format!("http://{address}/a.tar").as_str(), Some(20_000_000)));
    let mut out = [0; 7];
    blob.read_at(19_999_993, &mut out).unwrap();
    assert_eq!(out, whole[19_999_993..]);
    let mut read = Vec::new();
    blob.stream(3).unwrap().read_to_end(&mut read).unwrap();
    assert!(read == whole[3..]);
    let changing = open("changing").unwrap();
    let error = changing.read_at(0, &mut out).unwrap_err();
    assert!(matches!(error, FetchError::Changed(_)), "{error}");
    let Err(error) = open("whole") else { panic!("opened") };
    assert!(error.to_string().ends_with("copy the file, or serve it with range requests"), "{error}");
}

#[test]
fn memory_for_what_is_read_ahead_is_bounded() {
    let (address, asked) = server(|_, stream| reply(stream, "200 OK", "", &[7; 200_000]));
    let store = foveate_source_web::open(&StoreOptions { read_ahead_bytes: 600_000, ..options() }).unwrap();
    let mut ahead = store.read_ahead();
    for number in 0..50 {
        ahead.ask(Object { address: format!("http://{address}/{number}"), version: Version::default() });
    }
    for _ in 0..50 {
        assert_eq!(ahead.take().unwrap().0.len(), 200_000);
    }
    assert_eq!(asked.lock().unwrap().iter().filter(|line| line.starts_with("GET")).count(), 50);
}

#[test]
fn a_version_is_known_from_head_or_get() {
    let (address, asked) = server(|request, stream| match request.method.as_str() {
        "HEAD" if request.path == "/no-head" => reply(stream, "405 Method Not Allowed", "", b""),
        "HEAD" => write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n{FACTS}\r\n"),
        _ => reply(stream, "200 OK", FACTS, BODY),
    });
    for path in ["head", "no-head"] {
        let mut listing = listing(&[format!("http://{address}/{path}")], options());
        let item = listing.next_item().unwrap().unwrap();
        let version = listing.open_fetch().unwrap().version(&item);
        let tag = Some("\"a\"".to_owned());
        assert_eq!(version, Version { len: Some(1000), modified: modified(), tag });
    }
    assert_eq!(*asked.lock().unwrap(), ["HEAD /head", "HEAD /no-head", "GET /no-head"]);
}
