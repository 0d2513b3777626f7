//! Errors before a job starts.

use std::path::PathBuf;

use foveate_core::{BoxError, UnknownBackend};
use foveate_encode::EncodeError;
use foveate_model::ModelError;
use foveate_pipeline::RunError;
use foveate_preprocess::PreprocessError;
use foveate_sink::SinkError;
use foveate_source::SourceError;

use crate::{DecodeScale, RecipeError, Shard};

/// The reason that a job cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// A backend that this build does not contain.
    #[error(transparent)]
    UnknownBackend(#[from] UnknownBackend),
    /// A build without any backend of a kind.
    #[error("this build has no {0} at all; rebuild with the default features")]
    NoBackend(&'static str),
    /// The model cannot be opened.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The inputs cannot be listed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The encoder cannot be started.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The decoder or the resizer cannot be opened.
    #[error(transparent)]
    Preprocess(#[from] PreprocessError),
    /// The output cannot be opened.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// An output's content cannot be compared with the inputs.
    #[error(transparent)]
    Update(#[from] Box<RunError>),
    /// There is nothing to try again.
    #[error("{} is no complete output whose failures could be tried again", .0.display())]
    NoOutput(PathBuf),
    /// Shards of another number in the same place.
    #[error("cannot write shard {shard} beside {}, which is of another number of shards", .file.display())]
    ShardCount {
        /// This run's shard.
        shard: Shard,
        /// A file of the other run.
        file: PathBuf,
    },
    /// A list of devices that names none.
    #[error("'{0}' names no device")]
    NoDevice(String),
    /// A device that the encoder does not have on this machine.
    #[error("device {device} unavailable: encoder {encoder} runs on {}", .has.join(", "))]
    Device {
        /// The device asked for.
        device: String,
        /// The encoder that would have run there.
        encoder: String,
        /// The devices that it has.
        has: Vec<String>,
    },
    /// No sink of this build writes files of the output's extension.
    #[error("no sink writes '.{extension}' files; compiled in: {}{}", .known.join(", "), feature_of(extension))]
    Extension {
        /// The output's extension.
        extension: String,
        /// The extensions that sinks have, each with its dot.
        known: Vec<String>,
    },
    /// An output in a store that this build does not have, or that cannot be written.
    #[error("cannot write to {}: this build can write to {}", .output.display(), or_nothing(.known))]
    OutputStore {
        /// The output.
        output: PathBuf,
        /// The beginnings that it could have.
        known: Vec<String>,
    },
    /// A single file as an output in a store.
    #[error("cannot write {}: an output in a store is a prefix with part files", .0.display())]
    OutputFile(PathBuf),
    /// A sink that cannot store the columns that are asked for.
    #[error("sink {sink} cannot store columns; {} can", or_none(.able))]
    NoColumns {
        /// The sink.
        sink: String,
        /// The compiled-in sinks that can.
        able: Vec<String>,
    },
    /// An output whose name promises another format than its sink writes.
    #[error("cannot write {} with sink {sink}, whose files end in .{extension}", .output.display())]
    OtherFormat {
        /// The output.
        output: PathBuf,
        /// The sink asked for.
        sink: String,
        /// Its extension.
        extension: &'static str,
    },
    /// A scale at which the decoder cannot decode.
    #[error("decoder {decoder} cannot decode at scale '{scale}', {} can; use one of these, or `exact` as scale", or_none(.able))]
    DecodeScale {
        /// The decoder.
        decoder: String,
        /// The scale asked for.
        scale: DecodeScale,
        /// The compiled-in decoders that can.
        able: Vec<String>,
    },
    /// A setting for a decoder that has none.
    #[error("decoder setting '{0}': this decoder has no settings")]
    DecoderSetting(String),
    /// The cache cannot be opened.
    #[error(transparent)]
    Cache(BoxError),
    /// A cache with an encoder whose rows depend on the batch: the output would depend on what the cache holds.
    #[error(
        "a cache needs an encoder that gives an image the same bits in any batch; {0} on {1} does not: leave out the \
         cache, or use the encoder fused on the CPU"
    )]
    CacheOfBatches(String, String),
    /// The model's preprocessing settings cannot be applied.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
}

/// The remedy for a format that other builds write.
fn feature_of(extension: &str) -> String {
    let is_known = crate::backends::sinks().known().contains(&extension);
    if is_known { format!("; rebuild with `-F {extension}`") } else { String::new() }
}

fn or_nothing(schemes: &[String]) -> String {
    if schemes.is_empty() { "no store".to_owned() } else { schemes.join(", ") }
}

fn or_none(names: &[String]) -> String {
    if names.is_empty() { "none in this build".to_owned() } else { names.join(", ") }
}
