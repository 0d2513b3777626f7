//! The vocabulary every foveate crate shares: sizes, pixel buffers and views, batches, vectors, and the registry
//! of backends. No dependencies, no I/O, no model knowledge.
//!
//! The narrow waist of the engine is a **u8 NHWC RGB batch** `[n, h, w, 3]` ([`PixelBatch`]): decoders and resizers
//! know nothing of models, encoders know nothing of files.

mod batch;
mod fault;
mod pixels;
mod registry;
mod size;

pub use batch::{PixelBatch, VectorBuf};
pub use fault::{FaultScope, Stage};
pub use pixels::{ImageView, ImageViewMut, LimitError, PixelBuf, PixelLimits};
pub use registry::{Backend, Registry, RegistryError, UnknownBackend};
pub use size::{CHANNELS, Size};
