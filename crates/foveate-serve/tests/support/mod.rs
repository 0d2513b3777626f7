//! A server with a task that obeys its images, and a client that may send anything.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)] // each test uses a part of it; test helpers may panic

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, LazyLock, Mutex};
use std::time::{Duration, Instant};

use foveate_serve::{Api, Index, IndexFilter, IndexSource, Server, ServerOptions};
use foveate_worker::{Batching, Embedding, Engine, InTurn, Output, Received, Task, TaskError};
use serde_json::Value;

/// The signature of a PNG, which is all that the engine checks before the task.
pub const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// A file that holds an order for the task.
pub fn file(order: &str) -> Vec<u8> {
    [PNG, order.as_bytes()].concat()
}

/// Blocks its visitors until it is opened.
#[derive(Default)]
pub struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    /// The number of threads that have waited.
    pub came: AtomicUsize,
    /// The number of processed images.
    pub processed: AtomicUsize,
}

impl Gate {
    pub fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    pub fn wait(&self) {
        self.came.fetch_add(1, SeqCst);
        drop(self.opened.wait_while(self.open.lock().unwrap(), |open| !*open).unwrap());
    }
}

/// Obeys the file: `bad`, `machine`, `wait`; embeds anything else as its length and a fraction.
pub struct Obedient {
    pub gate: Arc<Gate>,
    /// True if it takes texts, too, whose tokens are words.
    pub texts: bool,
}

impl Task for Obedient {
    type Prepared = Vec<u8>;
    type Lane = InTurn<Vec<u8>>;

    fn prepare(&self, received: Received<'_>) -> Result<Vec<u8>, TaskError> {
        match received.file.strip_prefix(PNG) {
            Some(b"bad") => Err(TaskError::image("no end to it").at("decode")),
            Some(b"machine") => Err(TaskError::machine("no memory left")),
            _ => Ok(received.file.to_vec()),
        }
    }

    fn takes_texts(&self) -> bool {
        self.texts
    }

    fn prepare_text(&self, text: &str) -> Result<Vec<u8>, TaskError> {
        match text.trim() {
            "" => Err(TaskError::image("the text is empty").at("tokenize")),
            text => Ok(text.as_bytes().to_vec()),
        }
    }

    fn lane(self: Arc<Self>) -> Option<Self::Lane> {
        Some(InTurn::new(move |batch: &[Vec<u8>]| {
            if batch.iter().any(|bytes| bytes.ends_with(b"wait")) {
                self.gate.wait();
            }
            self.gate.processed.fetch_add(batch.len(), SeqCst);
            let vector = |bytes: &Vec<u8>| {
                let words = str::from_utf8(bytes).map_or(0, |text| text.split_whitespace().count());
                let vector = vec![bytes.len() as f32, 0.1];
                Output::Vector(Embedding { vector, tokens: words, ..Embedding::default() })
            };
            Ok(batch.iter().map(vector).collect())
        }))
    }
}

/// Answers with the metadata.
pub struct Echo;

impl Task for Echo {
    type Prepared = Value;
    type Lane = InTurn<Value>;

    fn prepare(&self, received: Received<'_>) -> Result<Value, TaskError> {
        Ok(serde_json::from_str(received.metadata.unwrap_or("null")).unwrap())
    }

    fn lane(self: Arc<Self>) -> Option<InTurn<Value>> {
        Some(InTurn::new(|batch| Ok(batch.iter().cloned().map(Output::Json).collect())))
    }
}

/// An engine with room for `room` images.
pub fn engine(gate: &Arc<Gate>, room: usize) -> Arc<Engine> {
    let batching = Batching { max: 1, delay: Duration::ZERO, lanes: 1 };
    let builder = Engine::builder().downloads(1).workers(1).max_in_flight(room);
    let builder =
        builder.task("embed", Obedient { gate: Arc::clone(gate), texts: false }, batching).task("echo", Echo, batching);
    Arc::new(builder.build().unwrap())
}

pub struct Fixture {
    pub server: Server,
    pub engine: Arc<Engine>,
    pub gate: Arc<Gate>,
    pub address: SocketAddr,
}

/// A server with room for `room` images, configured by `change`.
pub fn serve(room: usize, change: impl FnOnce(&mut ServerOptions, &mut Api)) -> Fixture {
    let gate = Arc::new(Gate::default());
    let engine = engine(&gate, room);
    start(gate, engine, change)
}

/// The same with a single task, which takes texts, too.
pub fn serve_texts(room: usize, change: impl FnOnce(&mut ServerOptions, &mut Api)) -> Fixture {
    let gate = Arc::new(Gate::default());
    let task = Obedient { gate: Arc::clone(&gate), texts: true };
    let engine = Engine::builder().max_in_flight(room).task("embed", task, Batching::default()).build().unwrap();
    start(gate, Arc::new(engine), change)
}

/// A server at a free port, on the engine's runtime.
pub fn options_for(engine: &Arc<Engine>) -> ServerOptions {
    ServerOptions::new("127.0.0.1:0".parse().unwrap(), engine.clone(), engine.runtime().clone())
}

fn start(gate: Arc<Gate>, engine: Arc<Engine>, change: impl FnOnce(&mut ServerOptions, &mut Api)) -> Fixture {
    let mut options = options_for(&engine);
    let mut api = Api::new(Arc::clone(&engine), "tiny");
    change(&mut options, &mut api);
    options.api = Some(api);
    let server = Server::start(options).unwrap();
    Fixture { address: server.address(), server, engine, gate }
}

/// Rows of two numbers, each with an id and the value of the column `kind`, and a gate before each search.
pub struct Rows(pub Vec<(&'static str, [f32; 2], Option<&'static str>)>, pub Option<Arc<Gate>>);

impl Index for Rows {
    fn rows(&self) -> usize {
        self.0.len()
    }

    fn dim(&self) -> usize {
        2
    }

    fn columns(&self) -> &[String] {
        static COLUMNS: LazyLock<[String; 1]> = LazyLock::new(|| ["kind".to_owned()]);
        &*COLUMNS
    }

    fn id(&self, row: u32) -> &str {
        self.0[row as usize].0
    }

    fn vector(&self, row: u32) -> &[f32] {
        &self.0[row as usize].1
    }

    fn row(&self, id: &str) -> Result<u32, String> {
        let place = self.0.iter().position(|row| row.0 == id);
        place.map(|row| row as u32).ok_or_else(|| format!("no row has the id '{id}'"))
    }

    /// By the inner product.
    fn nearest(&self, queries: &[&[f32]], k: usize, filter: &IndexFilter) -> Result<Vec<Vec<(u32, f64)>>, String> {
        if let Some(gate) = &self.1 {
            gate.wait();
        }
        let passes = |row: u32| filter.values().all(|of| of.contains(&self.0[row as usize].2.map(str::to_owned)));
        let mut found = Vec::new();
        for query in queries {
            let score = |row: u32| self.vector(row).iter().zip(*query).map(|(a, b)| f64::from(a * b)).sum();
            let mut rows: Vec<(u32, f64)> =
                (0..self.0.len() as u32).filter(|&row| passes(row)).map(|row| (row, score(row))).collect();
            rows.sort_by(|a, b| b.1.total_cmp(&a.1));
            rows.truncate(k);
            found.push(rows);
        }
        Ok(found)
    }
}

/// Rows in the directions of a clock's hours 12, 1, 3, 6 and 9, which are read again by `read`.
pub fn clock(read: impl Fn() -> Result<Arc<dyn Index>, String> + Send + Sync + 'static) -> IndexSource {
    let rows = [("12", [0.0, 1.0]), ("1", [0.5, 0.866]), ("3", [1.0, 0.0]), ("6", [0.0, -1.0]), ("9", [-1.0, 0.0])];
    let rows = rows.map(|(id, vector)| (id, vector, (vector[0] == 0.0).then_some("upright")));
    IndexSource { first: Arc::new(Rows(rows.to_vec(), None)), read: Arc::new(read) }
}

/// A parsed answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Sends raw bytes.
pub fn send(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

/// Reads until the other side closes the connection.
pub fn receive(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// A request with a body, and `Connection: close`.
pub fn request(line: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("{line} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n");
    [head.as_bytes(), body].concat()
}

pub fn get(address: SocketAddr, path: &str) -> Answer {
    Answer::parse(&receive(send(address, &request(&format!("GET {path}"), "", b""))))
}

pub fn post_with(address: SocketAddr, headers: &str, body: &[u8]) -> Answer {
    Answer::parse(&receive(send(address, &request("POST /v1/embeddings", headers, body))))
}

pub fn post(address: SocketAddr, body: &Value) -> Answer {
    post_with(address, "content-type: application/json\r\n", body.to_string().as_bytes())
}

/// Waits until a condition holds that other threads bring about.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}
