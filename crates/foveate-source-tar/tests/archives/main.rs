//! Archives of every kind, sound and damaged.
#![allow(clippy::unwrap_used)] // helpers of tests may panic, too

mod common;
mod damage;
mod listing;
mod sound;
