#![doc = include_str!("../README.md")]

#[cfg(test)]
mod abi;
#[allow(unsafe_code)]
pub mod blaslt;
#[allow(unsafe_code)]
mod buffer;
mod capture;
#[allow(unsafe_code)]
mod copies;
#[allow(unsafe_code)]
mod device;
#[allow(unsafe_code)]
mod driver;
mod error;
#[allow(unsafe_code)]
mod graph;
#[allow(unsafe_code)]
mod library;
#[allow(unsafe_code)]
mod module;
#[allow(unsafe_code)]
pub mod nvjpeg;
#[allow(unsafe_code)]
mod pinned;
mod pixels;
#[allow(unsafe_code)]
mod stream;
mod toolkit;

pub use buffer::{Buffer, Plain};
pub use device::{Device, health, ordinal, release};
pub use error::{Cause, CudaError};
pub use graph::Graph;
pub use module::{Arg, Kernel, Module};
pub use pinned::Pinned;
pub use pixels::DevicePixels;
pub use stream::{Event, Stream};
pub use toolkit::preload;
