use std::path::PathBuf;

use foveate_decode::DecodeError;
use foveate_encode::EncodeError;
use foveate_net::OptionsError;
use foveate_photo_server::LatencyError;
use foveate_pipeline::RunError;
use foveate_plan::PlanError;
use foveate_preprocess::PreprocessError;
use foveate_resize::ResizeError;
use foveate_sink::SinkError;
use foveate_source::SourceError;
use foveate_worker::EngineError;

/// Why an experiment could not be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// There is nothing to measure with.
    #[error("{0}")]
    Photos(String),
    /// A setting that makes no sense.
    #[error("{0}")]
    Setting(String),
    /// The inputs cannot be listed.
    #[error("list: {0}")]
    Source(#[from] SourceError),
    /// A decoder cannot be used.
    #[error("decode: {0}")]
    Decode(#[from] DecodeError),
    /// A resizer cannot be used.
    #[error("resize: {0}")]
    Resize(#[from] ResizeError),
    /// An encoder cannot be used.
    #[error("encode: {0}")]
    Encode(#[from] EncodeError),
    /// An output cannot be written.
    #[error("write: {0}")]
    Sink(#[from] SinkError),
    /// Nothing prepares images.
    #[error("preprocess: {0}")]
    Preprocess(#[from] PreprocessError),
    /// A worker cannot be started.
    #[error("worker: {0}")]
    Worker(#[from] EngineError),
    /// Its downloads cannot be made.
    #[error("download: {0}")]
    Client(#[from] OptionsError),
    /// The photo server is to have latencies that are none.
    #[error(transparent)]
    Latency(#[from] LatencyError),
    /// The photo server cannot be started.
    #[error("photo server: {0}")]
    Server(#[source] std::io::Error),
    /// A run stopped.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The model cannot say anything of a setting.
    #[error("plan: {0}")]
    Plan(#[from] PlanError),
    /// The work that was measured was not done right: the figures would mean nothing.
    #[error("the work is not right: {0}")]
    Work(String),
    /// A file of the experiment itself.
    #[error("cannot write {}: {cause}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}
