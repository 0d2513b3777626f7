//! Photos on a web server of this machine, whose answers take their time.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use foveate_core::lock;
use foveate_net::Client;
use foveate_net::photo_server::{Latency, PhotoServer, PhotoServerOptions};
use foveate_source::blob::Blob;
use foveate_source::store::{Object, ReadAhead, Store, Version};
use foveate_source::{Fetch, FetchError, Item, SourceError};
use tokio::runtime::Runtime;

use crate::{LabError, StoreOpener};

/// Most requests in flight: more would measure this machine's cores.
const MOST: usize = 16;
/// 99 % of the answers take at most this many times the median.
const TAIL: f64 = 1.2;

/// A client of the server, which runs as long as its clients exist.
#[derive(Clone)]
struct Web {
    server: Arc<PhotoServer>,
    client: Arc<Client>,
    runtime: Arc<Runtime>,
    requests: usize,
}

/// Serves `photos`. Returns their addresses, and an opener of the store that they are in.
pub(crate) fn serve(photos: Vec<Arc<[u8]>>, latency: Duration) -> Result<(Vec<String>, StoreOpener), LabError> {
    let count = photos.len();
    let latency = Latency::new(latency, latency.mul_f64(TAIL))?;
    let options = PhotoServerOptions { latency, ..PhotoServerOptions::default() };
    let server = PhotoServer::start(photos, options).map_err(LabError::Server)?;
    let client = Client::new(foveate_net::ClientOptions {
        allow_private: vec![server.address().ip().to_string()],
        per_host: MOST,
        ..foveate_net::ClientOptions::default()
    })?;
    let addresses = (0..count).map(|n| server.url(&format!("/photo/{n}"))).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = Arc::new(runtime.map_err(LabError::Server)?);
    let web = Web { server: Arc::new(server), client: Arc::new(client), runtime, requests: 1 };
    Ok((addresses, Arc::new(move |requests| Ok(Arc::new(Web { requests, ..web.clone() })))))
}

impl Web {
    fn get(&self, address: &str, out: &mut Vec<u8>) -> Result<(), FetchError> {
        let got = self.runtime.block_on(self.client.get(address, &mut |_| true, out));
        got.map(drop).map_err(|error| FetchError::Unreachable(error.to_string()))
    }
}

impl Store for Web {
    fn list(&self, _: &str, _: &mut dyn FnMut(Object) -> Result<(), SourceError>) -> Result<(), SourceError> {
        Err(SourceError::Invalid("a web server has no listing".to_owned()))
    }

    fn find(&self, _: &str) -> Result<Option<Object>, FetchError> {
        Ok(None)
    }

    fn open(&self, _: &Object) -> Result<Arc<dyn Blob>, FetchError> {
        Ok(Arc::new(self.clone()))
    }

    fn read_ahead(&self) -> Box<dyn ReadAhead> {
        let (asked, jobs) = channel::<Job>();
        let jobs = Arc::new(Mutex::new(jobs));
        // Without threads, every object is refused.
        for _ in 0..if self.requests > MOST { 0 } else { self.requests } {
            let web = self.clone();
            let jobs = Arc::clone(&jobs);
            thread::spawn(move || web.work(&jobs));
        }
        Box::new(Ahead { asked, coming: VecDeque::new(), room: 2 * self.requests })
    }

    fn fetch(&self) -> Box<dyn Fetch> {
        Box::new(self.clone())
    }
}

/// An address, and where its bytes go.
type Job = (String, SyncSender<Result<Bytes, FetchError>>);

impl Web {
    /// Answers requests until all senders are gone.
    fn work(&self, jobs: &Mutex<Receiver<Job>>) {
        loop {
            let next = lock(jobs).recv();
            let Ok((address, answer)) = next else { return };
            let mut bytes = Vec::new();
            let read = self.get(&address, &mut bytes).map(|()| bytes.into());
            // A run that stopped takes no more of them.
            let _ = answer.send(read);
        }
    }
}

/// Objects that were asked for, in order.
struct Ahead {
    asked: Sender<Job>,
    coming: VecDeque<Receiver<Result<Bytes, FetchError>>>,
    room: usize,
}

impl ReadAhead for Ahead {
    fn has_room(&self) -> bool {
        self.coming.len() < self.room
    }

    fn ask(&mut self, object: Object) {
        let (answer, coming) = sync_channel(1);
        // If nobody reads it, taking it says so.
        let _ = self.asked.send((object.address, answer));
        self.coming.push_back(coming);
    }

    fn take(&mut self) -> Result<(Bytes, Version), FetchError> {
        let next = self.coming.pop_front().and_then(|coming| coming.recv().ok());
        let read = next.unwrap_or_else(|| Err(FetchError::Refused(format!("more than {MOST} requests in flight"))));
        read.map(|bytes| (bytes, Version::default()))
    }
}

impl Fetch for Web {
    fn fetch(&mut self, item: &Item, out: &mut Vec<u8>) -> Result<(), FetchError> {
        self.get(&item.id, out)
    }

    fn version(&mut self, _: &Item) -> Version {
        Version::default()
    }
}

impl Blob for Web {
    fn name(&self) -> &str {
        "a photo on a web server"
    }

    fn len(&self) -> Option<u64> {
        None
    }

    fn modified(&self) -> Option<SystemTime> {
        None
    }

    /// Waits for an answer without a body, which takes as long as a photo's first byte.
    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), FetchError> {
        let answered = self.get(&self.server.url("/missing/0"), &mut Vec::new());
        debug_assert!(answered.is_err());
        Ok(())
    }

    fn stream(&self, _: u64) -> Result<Box<dyn Read + Send>, FetchError> {
        Err(FetchError::Refused("a photo on a web server is read as a whole".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn objects_come_in_order_and_each_request_takes_its_time() {
        const LATENCY: Duration = Duration::from_millis(20);
        let photos: Vec<Arc<[u8]>> = (0..6_u8).map(|n| [n; 3].into()).collect();
        let (addresses, open) = serve(photos, LATENCY).unwrap();
        let object = |address: &String| Object { address: address.clone(), version: Default::default() };
        let mut ahead = open(2).unwrap().read_ahead();
        let started = Instant::now();
        addresses.iter().map(object).for_each(|object| ahead.ask(object));
        assert!(!ahead.has_room());
        let bytes: Vec<Bytes> = addresses.iter().map(|_| ahead.take().unwrap().0).collect();
        assert!(bytes.iter().enumerate().all(|(n, bytes)| **bytes == [n as u8; 3]), "{bytes:?}");
        // Two at a time; 99 % of the answers take at least the median ÷ the tail.
        assert!(started.elapsed() >= LATENCY.mul_f64(3.0 / TAIL));
        let mut refused = open(MOST + 1).unwrap().read_ahead();
        refused.ask(object(&addresses[0]));
        assert!(refused.take().unwrap_err().to_string().contains("more than 16 requests"));
    }
}
