use std::path::{Path, PathBuf};

use foveate_decode::DecodeError;
use foveate_encode::EncodeError;
use foveate_net::OptionsError;
use foveate_net::photo_server::LatencyError;
use foveate_pipeline::RunError;
use foveate_plan::PlanError;
use foveate_preprocess::PreprocessError;
use foveate_resize::ResizeError;
use foveate_sink::SinkError;
use foveate_source::SourceError;
use foveate_worker::EngineError;

/// The reason why an experiment could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// There is nothing to measure with.
    #[error("{0}")]
    Photos(String),
    /// An invalid setting.
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
    /// No preprocessor can be used.
    #[error("preprocess: {0}")]
    Preprocess(#[from] PreprocessError),
    /// A worker cannot be started.
    #[error("worker: {0}")]
    Worker(#[from] EngineError),
    /// The worker's download client cannot be created.
    #[error("download: {0}")]
    Client(#[from] OptionsError),
    /// Invalid latencies for the photo server.
    #[error(transparent)]
    Latency(#[from] LatencyError),
    /// The photo server cannot be started.
    #[error("photo server: {0}")]
    Server(#[source] std::io::Error),
    /// A run stopped.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The model cannot predict a setting.
    #[error("plan: {0}")]
    Plan(#[from] PlanError),
    /// The measured work is wrong, so the figures would be meaningless.
    #[error("the work is not right: {0}")]
    Work(String),
    /// An error on one of the experiment's files.
    #[error("cannot write {}: {cause}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: std::io::Error,
    },
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl LabError {
    /// Returns what makes an error of the file or folder `path` from its cause.
    pub(crate) fn file(path: &Path) -> impl Fn(std::io::Error) -> Self {
        move |cause| Self::File { path: path.to_owned(), cause }
    }
}
