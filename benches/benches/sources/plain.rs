//! The store's ceiling: a plain loop of parallel requests, which checks lengths and keeps nothing.

use foveate_benches::contest::{serve, timed};
use foveate_benches::{Result, processor_time};
use futures_util::{StreamExt, TryStreamExt, stream};
use reqwest::Client;
use reqwest::header::RANGE;
use tokio::runtime::Runtime;

/// Bytes of one range, and ranges in flight: as foveate reads containers.
const PART: u64 = 8 << 20;
const PARALLEL: usize = 8;

/// Answers `gets LIST REQUESTS COUNT` and `ranges LIST`. A list has lines of a path and a length.
pub(crate) fn contend(endpoint: &str) -> Result<()> {
    // The TLS library has to be chosen, though nothing is encrypted here.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let client = Client::builder().http1_only().build()?;
    serve(concat!("reqwest in foveate-benches ", env!("CARGO_PKG_VERSION")), |words| {
        let requests = |list: &str| -> Result<Vec<Request>> {
            std::fs::read_to_string(list)?.lines().map(|line| Request::parse(endpoint, line)).collect()
        };
        match *words {
            ["gets", list, parallel, count] => {
                let requests = requests(list)?.into_iter().cycle().take(count.parse()?).collect();
                run(&runtime, &client, requests, parallel.parse()?)
            }
            ["ranges", list] => {
                let parts = requests(list)?.iter().flat_map(Request::parts).collect();
                run(&runtime, &client, parts, PARALLEL)
            }
            _ => Err("what?".into()),
        }
    })
}

#[derive(Clone)]
struct Request {
    url: String,
    len: u64,
    /// Where the requested part begins; `None` for the whole object.
    start: Option<u64>,
}

impl Request {
    fn parse(endpoint: &str, line: &str) -> Result<Self> {
        let (path, len) = line.split_once(' ').ok_or("a line has a path and a length")?;
        let path = path.strip_prefix("s3:/").ok_or("a path begins with s3:/")?;
        Ok(Self { url: format!("{endpoint}{path}"), len: len.parse()?, start: None })
    }

    fn parts(&self) -> Vec<Self> {
        let part = |start| Self { url: self.url.clone(), len: PART.min(self.len - start), start: Some(start) };
        (0..self.len).step_by(PART as usize).map(part).collect()
    }

    async fn send(self, client: Client) -> std::result::Result<(), String> {
        let mut request = client.get(&self.url);
        if let Some(start) = self.start {
            request = request.header(RANGE, format!("bytes={start}-{}", start + self.len - 1));
        }
        let body = async { request.send().await?.error_for_status()?.bytes().await };
        match body.await {
            Ok(body) if body.len() as u64 == self.len => Ok(()),
            Ok(body) => Err(format!("{}: {} bytes instead of {}", self.url, body.len(), self.len)),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Wall time, processor time, requests and bytes.
fn run(runtime: &Runtime, client: &Client, requests: Vec<Request>, parallel: usize) -> Result<Vec<f64>> {
    let (count, bytes) = (requests.len() as f64, requests.iter().map(|request| request.len).sum::<u64>());
    let send = |request: Request| {
        let sent = tokio::spawn(request.send(client.clone()));
        async { sent.await.map_err(|error| error.to_string())? }
    };
    let times = timed(processor_time, || {
        let all = async { stream::iter(requests).map(send).buffer_unordered(parallel).try_collect::<()>().await };
        Ok(runtime.block_on(all)?)
    })?;
    Ok([&times[..], &[count, bytes as f64]].concat())
}
