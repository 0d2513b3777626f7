#![doc = include_str!("../README.md")]

mod backend;
mod encoder;
mod error;
mod model;
mod normalize;
mod options;
mod overlap;
mod resident;
mod spec;
mod threads;
mod times;

pub use backend::{EncoderBackend, EncoderRegistry};
pub use encoder::Encoder;
pub use error::{Cause, EncodeError};
pub use model::{AnyModel, Graph, GraphFormat, GraphSource, ModelForm};
pub use normalize::normalize_nchw;
pub use options::EncoderOptions;
pub use overlap::{Allocate, BATCH_SIZES, Batch, Collected, EncodeSpans, Overlap, Place, host_allocator};
pub use resident::Resident;
pub use spec::{DType, EncoderSpec, Pooling};
pub use threads::Threads;
pub use times::EncodeTimes;

#[cfg(feature = "conformance")]
pub mod conformance;
