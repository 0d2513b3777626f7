//! What the benches share: statistics, the host, photos, outputs read back, goldens, and contestants that take turns.

pub mod contest;
pub mod golden;
pub mod host;
pub mod photos;
pub mod stored;
mod values;

pub use foveate_profile::process::{peak_resident_bytes, processor_time, resident_bytes, thread_processor_time};
pub use values::{Spread, median};

/// What a bench ends with when it cannot go on.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
