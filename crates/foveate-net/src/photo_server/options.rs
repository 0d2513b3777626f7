use std::net::Ipv4Addr;
use std::time::Duration;

use crate::photo_server::latency::Latency;

/// A server's way to answer.
#[derive(Clone, Debug, PartialEq)]
pub struct PhotoServerOptions {
    /// Latency of every answer except those to callbacks.
    pub latency: Latency,
    /// Latency of the answers to callbacks.
    pub callback_latency: Latency,
    /// Time over which the bytes of `/slow/` are sent.
    pub drip: Duration,
    /// Seed of every latency.
    pub seed: u64,
    /// The loopback address that it listens at.
    pub address: Ipv4Addr,
}

impl Default for PhotoServerOptions {
    /// Answers without latency, except for the 10 seconds of `/slow/`.
    fn default() -> Self {
        Self {
            latency: Latency::NONE,
            callback_latency: Latency::NONE,
            drip: Duration::from_secs(10),
            seed: 0,
            address: Ipv4Addr::LOCALHOST,
        }
    }
}
