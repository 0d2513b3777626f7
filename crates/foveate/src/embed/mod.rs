//! The main job as a library call: from names and paths to a [`Pipeline`](foveate_pipeline::Pipeline) that is ready to
//! run.

mod again;
mod apart;
mod changes_file;
mod error;
mod fingerprint;
mod open;
mod output;
mod registries;
mod run;
mod settings;
mod update;

pub use again::{decides_texts_and_images, decides_vectors, incomparable, kernels_remedy};
pub use apart::ApartFrom;
pub use error::EmbedError;
pub(crate) use open::OpenedJob;
pub use output::store_address;
pub(crate) use registries::BackendNames;
pub use registries::Backends;
pub use run::{EmbedRun, OutputPlace};
pub(crate) use settings::by_name;
pub use settings::{
    AheadSettings, CacheSettings, EngineSettings, ImageSettings, InputSettings, ModelSettings, NetworkSettings,
    RowSettings, Settings, StorageSettings, WebSettings, has_cpu,
};
pub use update::UpdatePreview;
