use std::time::Duration;

use crate::latency::Latency;

/// How a server answers.
#[derive(Clone, Debug, PartialEq)]
pub struct PhotoServerOptions {
    /// Time until anything but a callback is answered.
    pub latency: Latency,
    /// Time until a callback is answered.
    pub callback_latency: Latency,
    /// How long the bytes of `/slow/` take.
    pub drip: Duration,
    /// Decides every latency.
    pub seed: u64,
}

impl Default for PhotoServerOptions {
    /// At once, but for the 10 seconds of `/slow/`.
    fn default() -> Self {
        Self { latency: Latency::NONE, callback_latency: Latency::NONE, drip: Duration::from_secs(10), seed: 0 }
    }
}
