#![doc = include_str!("../README.md")]

mod address;
mod answer;
mod client;
mod coded_file;
mod coding;
mod connect;
mod download;
mod error;
mod inline;
mod options;
#[cfg(feature = "photo-server")]
pub mod photo_server;
mod resolve;
mod target;
#[cfg(test)]
mod tests;
mod time_left;
mod turns;
pub mod webhook;

pub use answer::AnswerFacts;
pub use client::{Client, Reply};
pub use coded_file::CodedFile;
pub use coding::Codings;
pub use download::DownloadRoom;
pub use error::{NetError, OptionsError, Rule};
pub use inline::{ImageAddress, decode_base64, decode_data, decode_form, is_base64};
pub use options::{ClientOptions, RequestHeaders};
pub use target::{MAX_ADDRESS, check, server, site};
pub use turns::{KeyTurn, TurnUse, Turns};
