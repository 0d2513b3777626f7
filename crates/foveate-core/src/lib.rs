#![doc = include_str!("../README.md")]

mod batch;
mod budget;
mod column;
mod fault;
mod memory;
mod pixels;
mod registry;
mod size;
mod sync;

pub use batch::{InputFormat, PixelBatch, SampleType, VectorBuf};
pub use budget::PixelBudget;
pub use column::ColumnKind;
pub use fault::{BoxError, FaultScope, Stage, catch_panic, catches_panics, error_chain, panic_message};
pub use memory::BatchMemory;
pub use pixels::{ImageView, ImageViewMut, LimitError, PixelBuf, PixelLimits};
pub use registry::{Backend, Health, Problem, Registry, RegistryError, UnknownBackend, known_settings};
pub use size::{CHANNELS, Region, Size};
pub use sync::lock;
