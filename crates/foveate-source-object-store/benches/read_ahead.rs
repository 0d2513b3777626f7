//! Reading ahead beside a plain loop of as many parallel GETs, from `s3s-fs` (crates.io; in `PATH`) behind a proxy that
//! delays each answer by 100 ms. Prints CSV: medians of the rounds, in which the candidates take turns.
//!
//! ```text
//! cargo bench -p foveate-source-object-store --bench read_ahead
//! ```

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use foveate_source::store::{Object, Store, StoreOptions, Version};
use foveate_source_object_store::open;
use futures_util::{StreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

const DELAY: Duration = Duration::from_millis(100);
const SIZE: usize = 300_000;
const FILES: usize = 200;
const ROUNDS: usize = 3;
/// Reads of one candidate in one round, for each request in flight.
const GENERATIONS: usize = 15;

/// A name, the requests in flight, and objects per second of reading so many.
type Candidate<'a> = (String, usize, Box<dyn Fn(usize) -> f64 + 'a>);

fn main() {
    rustls::crypto::ring::default_provider().install_default().unwrap();
    let root = tempfile::tempdir().unwrap();
    let server = Server::start(root.path());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let proxy = runtime.block_on(proxy(server.address));
    let store = |requests| {
        let settings = [("endpoint", format!("http://{proxy}")), ("anonymous", "true".into()), ("region", "x".into())];
        let settings = settings.map(|(name, value)| (name.to_owned(), value)).into();
        open(&StoreOptions { requests, settings, ..StoreOptions::default() }).unwrap()
    };
    let mut candidates: Vec<Candidate<'_>> = Vec::new();
    for requests in [32, 64, 128, 256] {
        let (plain, ahead) = (reqwest::Client::builder().http1_only().build().unwrap(), store(Some(requests)));
        let runtime = &runtime;
        candidates.push((
            format!("plain,{requests}"),
            requests,
            Box::new(move |n| loop_of_gets(runtime, &plain, proxy, requests, n)),
        ));
        candidates.push((format!("ahead,{requests}"), requests, Box::new(move |n| read_ahead(ahead.as_ref(), n))));
    }
    let measured = store(None);
    candidates.push(("ahead,measured".to_owned(), 512, Box::new(move |n| read_ahead(measured.as_ref(), n))));
    let mut rates = vec![Vec::new(); candidates.len()];
    for _ in 0..ROUNDS {
        for ((_, requests, run), rates) in candidates.iter().zip(&mut rates) {
            rates.push(run(requests * GENERATIONS));
        }
    }
    println!("reader,requests,objects_per_s,least,most");
    for ((name, ..), mut rates) in candidates.iter().zip(rates) {
        rates.sort_by(f64::total_cmp);
        println!("{name},{:.0},{:.0},{:.0}", rates[ROUNDS / 2], rates[0], rates[ROUNDS - 1]);
    }
}

fn name(number: usize) -> String {
    format!("{:04}.jpg", number % FILES)
}

fn read_ahead(store: &dyn Store, count: usize) -> f64 {
    let mut ahead = store.read_ahead();
    let (begin, mut asked) = (Instant::now(), 0);
    for taken in 0..count {
        while asked < count && ahead.has_room() {
            let version = Version { len: Some(SIZE as u64), ..Version::default() };
            ahead.ask(Object { address: format!("s3://photos/{}", name(asked)), version });
            asked += 1;
        }
        check(taken, &ahead.take().unwrap());
    }
    count as f64 / begin.elapsed().as_secs_f64()
}

fn loop_of_gets(runtime: &Runtime, client: &reqwest::Client, server: SocketAddr, requests: usize, count: usize) -> f64 {
    let get = |number| {
        let request = client.get(format!("http://{server}/photos/{}", name(number)));
        tokio::spawn(async move { check(number, &request.send().await.unwrap().bytes().await.unwrap()) })
    };
    let begin = Instant::now();
    runtime.block_on(async {
        stream::iter(0..count).map(get).buffer_unordered(requests).for_each(async |got| got.unwrap()).await
    });
    count as f64 / begin.elapsed().as_secs_f64()
}

fn check(number: usize, bytes: &[u8]) {
    assert!(bytes.len() == SIZE && bytes[0] == (number % FILES) as u8, "other bytes than expected");
}

/// `s3s-fs` with the objects.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(root: &std::path::Path) -> Self {
        std::fs::create_dir(root.join("photos")).unwrap();
        for number in 0..FILES {
            std::fs::write(root.join("photos").join(name(number)), vec![number as u8; SIZE]).unwrap();
        }
        let port = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let mut command = Command::new("s3s-fs");
        command.args(["--host", "127.0.0.1", "--port", &port.to_string()]).arg(root).env("RUST_LOG", "off");
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.expect("s3s-fs is in PATH: cargo install s3s-fs --features binary");
        let address = (Ipv4Addr::LOCALHOST, port).into();
        while std::net::TcpStream::connect(address).is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a proxy that delays the first byte of each answer.
async fn proxy(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(async move { forward(client, TcpStream::connect(server).await.unwrap()).await });
        }
    });
    address
}

async fn forward(client: TcpStream, server: TcpStream) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    // When the request came whose answer has not begun.
    let asked = Arc::new(Mutex::new(None));
    let asks = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(len @ 1..) = from_client.read(&mut buffer).await {
            asks.lock().unwrap().get_or_insert_with(tokio::time::Instant::now);
            if to_server.write_all(&buffer[..len]).await.is_err() {
                break;
            }
        }
    });
    let mut buffer = vec![0; 256 << 10];
    while let Ok(len @ 1..) = from_server.read(&mut buffer).await {
        let asked = asked.lock().unwrap().take();
        if let Some(asked) = asked {
            tokio::time::sleep_until(asked + DELAY).await;
        }
        if to_client.write_all(&buffer[..len]).await.is_err() {
            break;
        }
    }
}
