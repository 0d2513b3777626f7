//! The requests in flight that a store takes.

use std::io::Write;

use foveate::plan::Storage;
use serde::Serialize;

use super::words::Count;

/// Demand of a job on a store that takes time to answer.
#[derive(Serialize)]
pub(super) struct StoreNeeds {
    storage: Storage,
    /// Rate of the requests in flight.
    bytes_per_second: f64,
    /// Rate that the job would read if the store were no limit.
    needed_bytes_per_second: f64,
    /// The requests in flight that this takes; `None` if it is beyond the store's limit.
    needed_requests: Option<u32>,
}

impl StoreNeeds {
    /// Returns the needs of a job that reaches `unlimited` images per second if the store is no limit.
    pub(super) fn of(storage: Storage, bytes_per_image: f64, unlimited: f64) -> anyhow::Result<Self> {
        Ok(Self {
            storage,
            bytes_per_second: storage.images_per_second(bytes_per_image)? * bytes_per_image,
            needed_bytes_per_second: unlimited * bytes_per_image,
            needed_requests: storage.concurrency_for(bytes_per_image, unlimited).ok(),
        })
    }

    pub(super) fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let Storage { latency, stream_bytes_per_second, concurrency, .. } = self.storage;
        writeln!(
            out,
            "the store takes {:.1} ms to the first byte of a request and sends {:.1} MB/s after it; with {} in flight it \
             delivers {:.2} MB/s",
            latency * 1e3,
            stream_bytes_per_second / 1e6,
            Count(concurrency, "request"),
            self.bytes_per_second / 1e6
        )?;
        let needed = self.needed_bytes_per_second / 1e6;
        match (self.needed_requests, self.storage.link_bytes_per_second) {
            (Some(requests), _) => {
                let requests = Count(requests, "request");
                writeln!(out, "to be no limit, it has to deliver {needed:.2} MB/s: {requests} in flight")
            }
            (None, limit) => writeln!(
                out,
                "to be no limit, it would have to deliver {needed:.2} MB/s, more than its {:.2} MB/s",
                limit.unwrap_or(self.bytes_per_second) / 1e6
            ),
        }
    }
}
