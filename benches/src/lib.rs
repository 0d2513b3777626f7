//! Shared parts of the benches: statistics, the host, photos, outputs read back, goldens, and contestants.

pub mod contest;
pub mod golden;
pub mod host;
pub mod photos;
pub mod stored;
mod values;

pub use foveate_profile::process::{peak_resident_bytes, processor_time, resident_bytes, thread_processor_time};
pub use values::{Spread, median, spread};

/// The result of a bench's functions.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
