//! A local hub: an HTTP server that answers the routes for fetching a model as huggingface.co does, and misbehaves on
//! request. Large files are served by a redirect to a second address, as the hub does with its storage.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};

/// Files above this size are in large-file storage.
const LARGE: usize = 4096;

/// A request that the server received.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// `GET` or `HEAD`.
    pub method: String,
    /// The path, with the query.
    pub path: String,
    /// The header `Range`.
    pub range: Option<String>,
    /// The header `Authorization`.
    pub authorization: Option<String>,
    /// True if it went to the storage's address.
    pub to_storage: bool,
}

/// The server's misbehaviour.
#[derive(Clone, Default)]
pub struct Behaviour {
    /// Every request without this token gets a 401.
    pub token: Option<String>,
    /// The first so many downloads of large files break off halfway.
    pub break_off: usize,
    /// Every download of a large file breaks off after so many bytes of the requested range.
    pub break_always: Option<usize>,
    /// One byte of every large file is flipped on the way.
    pub flip: bool,
    /// `Range` is ignored: every response is the whole file.
    pub no_ranges: bool,
    /// Large files have neither `X-Linked-Etag` nor a checksum as `ETag`.
    pub no_checksum: bool,
    /// Every response has this status.
    pub status: Option<u16>,
    /// Every response of the storage has this status.
    pub storage_status: Option<u16>,
}

#[derive(Default)]
struct HubState {
    /// Files by `repository` and name.
    files: HashMap<(String, String), Vec<u8>>,
    behaviour: Behaviour,
    log: Vec<Request>,
}

/// A running server; it stops when dropped.
pub struct HubServer {
    /// `http://127.0.0.1:PORT`.
    pub endpoint: String,
    /// The commit of every repository.
    pub commit: String,
    state: Arc<Mutex<HubState>>,
    stopped: Arc<AtomicBool>,
    addresses: [std::net::SocketAddr; 2],
}

impl HubServer {
    /// Starts a hub without files.
    pub fn start() -> Self {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let addresses = [0, 1].map(|i: usize| listeners[i].local_addr().unwrap());
        let state = Arc::new(Mutex::new(HubState::default()));
        let stopped = Arc::new(AtomicBool::new(false));
        let commit = "1234567890abcdef1234567890abcdef12345678".to_owned();
        let storage = format!("http://{}", addresses[1]);
        for (is_storage, listener) in [false, true].into_iter().zip(listeners) {
            let site = HubSite { state: state.clone(), commit: commit.clone(), storage: storage.clone(), is_storage };
            let stopped = stopped.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    if stopped.load(Ordering::SeqCst) {
                        break;
                    }
                    let site = site.clone();
                    std::thread::spawn(move || site.serve(&stream.unwrap()));
                }
            });
        }
        Self { endpoint: format!("http://{}", addresses[0]), commit, state, stopped, addresses }
    }

    /// Serves every file of `folder` as `repository`.
    pub fn add_folder(&self, repository: &str, folder: &Path) -> &Self {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            self.add(repository, path.file_name().unwrap().to_str().unwrap(), std::fs::read(&path).unwrap());
        }
        self
    }

    /// Serves a file of `repository`.
    pub fn add(&self, repository: &str, file: &str, bytes: impl Into<Vec<u8>>) -> &Self {
        self.state.lock().unwrap().files.insert((repository.to_owned(), file.to_owned()), bytes.into());
        self
    }

    /// Removes a file of `repository`.
    pub fn remove(&self, repository: &str, file: &str) -> &Self {
        self.state.lock().unwrap().files.remove(&(repository.to_owned(), file.to_owned())).unwrap();
        self
    }

    /// Behaves so from now on.
    pub fn behave(&self, behaviour: Behaviour) -> &Self {
        self.state.lock().unwrap().behaviour = behaviour;
        self
    }

    /// The requests since the last call.
    pub fn requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.state.lock().unwrap().log)
    }
}

impl Drop for HubServer {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        // A connection wakes each listener, which then sees the stop flag.
        self.addresses.iter().for_each(|address| drop(TcpStream::connect(address)));
    }
}

/// One of the two addresses.
#[derive(Clone)]
struct HubSite {
    state: Arc<Mutex<HubState>>,
    commit: String,
    storage: String,
    is_storage: bool,
}

impl HubSite {
    fn serve(&self, mut stream: &TcpStream) {
        let Some(request) = self.read_request(stream) else { return };
        self.state.lock().unwrap().log.push(request.clone());
        let answer = if self.is_storage { self.storage_answer(&request) } else { self.hub_answer(&request) };
        let mut head = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", answer.status);
        for (name, value) in &answer.headers {
            head += &format!("{name}: {value}\r\n");
        }
        let body: &[u8] = if request.method == "HEAD" { &[] } else { &answer.body };
        // The client may have closed the connection.
        let _ = write!(stream, "{head}\r\n").and_then(|()| stream.write_all(body));
    }

    fn read_request(&self, stream: &TcpStream) -> Option<Request> {
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        let first = lines.next()?;
        let mut words = first.split(' ');
        let method = words.next()?.to_owned();
        let path = words.next()?.to_owned();
        let headers: HashMap<String, String> = lines
            .take_while(|line| !line.is_empty())
            .filter_map(|line| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned())))
            .collect();
        let range = headers.get("range").cloned();
        let authorization = headers.get("authorization").cloned();
        Some(Request { method, path, range, authorization, to_storage: self.is_storage })
    }

    /// `/{owner}/{name}/resolve/{revision}/{file}`
    fn hub_answer(&self, request: &Request) -> HubAnswer {
        let state = self.state.lock().unwrap();
        let behaviour = &state.behaviour;
        if let Some(status) = behaviour.status {
            return HubAnswer::error(status, "");
        }
        let expected = behaviour.token.as_ref().map(|token| format!("Bearer {token}"));
        if expected.is_some() && request.authorization != expected {
            return HubAnswer::error(401, "GatedRepo");
        }
        let parts: Vec<&str> = request.path.trim_start_matches('/').split('/').collect();
        let [owner, name, "resolve", revision, file] = parts.as_slice() else {
            return HubAnswer::error(404, "");
        };
        let repository = format!("{owner}/{name}");
        if !state.files.keys().any(|(known, _)| *known == repository) {
            return HubAnswer::error(404, "RepoNotFound");
        }
        if !["main", "refs%2Fpr%2F1"].contains(revision) && revision.len() != 40 {
            return HubAnswer::error(404, "RevisionNotFound");
        }
        let Some(bytes) = state.files.get(&(repository.clone(), (*file).to_owned())) else {
            return HubAnswer::error(404, "EntryNotFound");
        };
        let mut answer = HubAnswer { status: 200, headers: Vec::new(), body: Vec::new() };
        answer.header("X-Repo-Commit", &self.commit);
        if bytes.len() <= LARGE {
            answer.header("ETag", format!("\"{}\"", git_blob_hash(bytes)));
            return answer.with_body(bytes.clone());
        }
        if behaviour.no_checksum {
            answer.header("ETag", "\"5d41402abc4b2a76b9719d911017c592\"");
            return answer.with_body(bytes.clone());
        }
        answer.header("X-Linked-Etag", format!("\"{}\"", hex(&Sha256::digest(bytes))));
        answer.header("X-Linked-Size", bytes.len());
        answer.header("Location", format!("{}/{repository}/{file}?signature=abc", self.storage));
        answer.status = 302;
        answer.with_body(b"redirecting".to_vec())
    }

    /// `/{owner}/{name}/{file}?signature=…`
    fn storage_answer(&self, request: &Request) -> HubAnswer {
        let mut state = self.state.lock().unwrap();
        if let Some(status) = state.behaviour.storage_status {
            return HubAnswer::error(status, "");
        }
        let path = request.path.trim_start_matches('/').trim_end_matches("?signature=abc");
        let (repository, file) = path.rsplit_once('/').unwrap();
        let mut bytes = state.files[&(repository.to_owned(), file.to_owned())].clone();
        let behaviour = &mut state.behaviour;
        if behaviour.flip {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        }
        let total = bytes.len();
        let start = request.range.as_ref().filter(|_| !behaviour.no_ranges).map(|range| {
            range.strip_prefix("bytes=").and_then(|range| range.strip_suffix('-')).unwrap().parse::<usize>().unwrap()
        });
        let mut answer = HubAnswer { status: 200, headers: Vec::new(), body: Vec::new() };
        answer.header("ETag", "\"5d41402abc4b2a76b9719d911017c592\"");
        if let Some(start) = start {
            if start >= total {
                return HubAnswer::error(416, "");
            }
            answer.status = 206;
            answer.header("Content-Range", format!("bytes {start}-{}/{total}", total - 1));
            bytes.drain(..start);
        }
        answer = answer.with_body(bytes);
        if behaviour.break_off > 0 {
            behaviour.break_off -= 1;
            answer.body.truncate(answer.body.len() / 2);
        }
        answer.body.truncate(behaviour.break_always.unwrap_or(usize::MAX));
        answer
    }
}

struct HubAnswer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl HubAnswer {
    fn error(status: u16, code: &str) -> Self {
        let mut answer = Self { status, headers: Vec::new(), body: Vec::new() };
        answer.header("X-Error-Code", code);
        answer.with_body(b"no".to_vec())
    }

    fn header(&mut self, name: &'static str, value: impl ToString) {
        self.headers.push((name, value.to_string()));
    }

    fn with_body(mut self, body: Vec<u8>) -> Self {
        self.header("Content-Length", body.len());
        self.body = body;
        self
    }
}

fn git_blob_hash(bytes: &[u8]) -> String {
    let mut hash = sha1::Sha1::new();
    hash.update(format!("blob {}\0", bytes.len()));
    hash.update(bytes);
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
