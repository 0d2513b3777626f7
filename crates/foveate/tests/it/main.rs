//! The binary as users run it, and what it stands on. Few programs, because each takes long to link.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

#[path = "../common/mod.rs"]
mod common;

mod arguments;
#[cfg(feature = "cache")]
mod cache;
mod cli;
mod console;
mod hub;
mod inspect;
mod kill;
mod lab;
#[cfg(target_os = "linux")]
mod large_images;
mod telemetry;
mod web;
