//! Addresses on the web: what a user sees of servers as they are.
#![cfg(all(unix, feature = "web"))]
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::common::{PHOTOS, Ran, embed, run, tree};
use tempfile::TempDir;

/// Headers, and the body.
type SiteFile = (String, Vec<u8>);

/// A site whose files and headers change, and the requests that it got.
#[derive(Clone)]
struct Site {
    address: SocketAddr,
    files: Arc<Mutex<BTreeMap<String, SiteFile>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Site {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let site = Self { address, files: Arc::default(), asked: Arc::default() };
        let served = site.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (served, stream) = (served.clone(), stream.unwrap());
                // A client may go away.
                thread::spawn(move || drop(served.answer(stream)));
            }
        });
        site
    }

    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
        let Some(first) = lines.next() else { return Ok(()) };
        let headers: Vec<String> = lines.collect();
        let (method, path) = (first.split(' ').next().unwrap(), first.split(' ').nth(1).unwrap());
        self.asked.lock().unwrap().push(format!("{method} {path} {}", headers.join("|")));
        let Some((headers, body)) = self.files.lock().unwrap().get(path).cloned() else {
            return write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        };
        // The body ends by closing unless a length is among the headers.
        write!(stream, "HTTP/1.1 200 OK\r\n{headers}Connection: close\r\n\r\n")?;
        if method == "HEAD" { Ok(()) } else { stream.write_all(&body) }
    }

    fn put(&self, path: &str, headers: &str, body: Vec<u8>) {
        self.files.lock().unwrap().insert(path.to_owned(), (headers.to_owned(), body));
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests for bytes since the last call.
    fn gets(&self) -> usize {
        std::mem::take(&mut *self.asked.lock().unwrap()).iter().filter(|line| line.starts_with("GET")).count()
    }
}

fn photo(number: usize) -> Vec<u8> {
    let mut paths: Vec<PathBuf> = fs::read_dir(PHOTOS).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    fs::read(&paths[number]).unwrap()
}

fn list(folder: &TempDir, addresses: &[String]) -> PathBuf {
    let path = folder.path().join("list.txt");
    fs::write(&path, addresses.join("\n")).unwrap();
    path
}

fn update(output: &Path, list: &Path, more: &[&str]) -> Ran {
    run(embed(output).arg("--from-list").arg(list).arg("--json").args(more))
}

#[test]
fn an_address_whose_picture_changed_is_not_taken_for_unchanged() {
    let (site, folder) = (Site::start(), tempfile::tempdir().unwrap());
    let facts = [
        ("/tag.jpg", "ETag: \"1\"\r\n"),
        ("/time.jpg", "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n"),
        ("/nothing.jpg", "Last-Modified: yesterday\r\n"),
        ("/same.jpg", ""),
    ];
    for (number, (path, headers)) in facts.iter().enumerate() {
        site.put(path, headers, photo(number));
    }
    let list = list(&folder, &facts.map(|(path, _)| site.url(path)));
    let output = folder.path().join("out.parquet");
    update(&output, &list, &[]).expect(0);
    assert_eq!(update(&output, &list, &[]).expect(0).json()["status"], "already complete");
    site.gets();
    let ran = update(&output, &list, &["--update"]).expect(0);
    assert_eq!(ran.json()["update"]["kept"], 4);
    let compared = &ran.json()["update"]["compared"];
    assert_eq!([&compared["etag"], &compared["time"], &compared["content"]], [1, 1, 2]);
    assert_eq!(site.gets(), 2, "what can be compared is not read");

    site.put("/tag.jpg", "ETag: \"2\"\r\n", photo(4));
    site.put("/time.jpg", "Last-Modified: Sun, 06 Nov 1994 08:49:38 GMT\r\n", photo(5));
    site.put("/nothing.jpg", "", photo(6));
    let ran = update(&output, &list, &[]).expect(2);
    assert!(ran.stderr.contains("3 photos changed"), "{}", ran.stderr);
    let ran = update(&output, &list, &["--update"]).expect(0);
    assert_eq!([&ran.json()["update"]["kept"], &ran.json()["update"]["changed"]], [1, 3]);
    assert_eq!(ran.json()["session"]["computed"], 3);
}

#[test]
fn headers_go_to_the_site_and_into_no_file_or_message() {
    let (site, folder) = (Site::start(), tempfile::tempdir().unwrap());
    site.put("/a.jpg", "", photo(0));
    let list = list(&folder, &[site.url("/a.jpg"), site.url("/none.jpg")]);
    let output = folder.path().join("out");
    let ran =
        update(&output, &list, &["--http-header", "Authorization=Bearer SECRET", "--http-header", "User-Agent=me"]);
    let ran = ran.expect(0);
    assert!(site.asked.lock().unwrap().iter().all(|line| line.contains("Bearer SECRET") && line.contains("me")));
    assert!(!ran.stderr.contains("SECRET") && !ran.stdout.contains("SECRET"));
    for (path, content) in tree(&output) {
        assert!(!content.windows(6).any(|part| part == b"SECRET"), "{path:?}");
    }
    let failures = fs::read_to_string(output.join("_failures.csv")).unwrap();
    assert!(failures.contains(&format!("not found: {}: answered 404 Not Found", site.address)), "{failures}");
    let ran = update(&output, &list, &["--http-header", "Host=SECRET"]).expect(2);
    assert!(ran.stderr.contains("the header 'Host' is set by the client") && !ran.stderr.contains("SECRET"));
}
