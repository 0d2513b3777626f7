//! The backend table. Besides lib.rs, which leaves out whole modules, it is the only place in this crate with
//! `cfg(feature = …)`. A new backend needs one line here, one feature in Cargo.toml, and its crate.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use foveate_core::{Backend, BoxError, Registry};
use foveate_decode::DecoderRegistry;
use foveate_encode::EncoderRegistry;
use foveate_model::Model;
use foveate_pipeline::Recall;
use foveate_preprocess::PreprocessorRegistry;
use foveate_resize::ResizerRegistry;
use foveate_sink::{PrefixRegistry, SinkRegistry};
use foveate_source::container::ContainerRegistry;
use foveate_source::store::StoreRegistry;

/// Generates one function per kind of backend. The function returns every known name and the registry of the
/// compiled-in backends.
///
/// The order is the order of preference. The first compiled-in backend is the default, and decoders fall back to each
/// other in this order. Backends of the default build come before those that a feature adds, so adding a backend alone
/// changes no output.
macro_rules! table {
    ($($(#[$doc:meta])* $function:ident: $registry:ty = $kind:literal [$($feature:literal => $($backend:ident)::+),* $(,)?];)+) => {
        $(
            $(#[$doc])*
            // Nothing is registered if no backend of this kind is compiled in.
            #[allow(unused_mut)]
            pub fn $function() -> $registry {
                let mut registry = <$registry>::new($kind, &[$($feature),*]);
                $(
                    #[cfg(feature = $feature)]
                    $($backend)::+::register(&mut registry).unwrap_or_else(|error| unreachable!("{error}"));
                )*
                registry
            }
        )+
    };
}

table! {
    /// Decoders: `--decoder`.
    decoders: DecoderRegistry = "decoder" [
        "exact" => foveate_decode_exact,
        "turbojpeg" => foveate_decode_turbojpeg,
        "zune" => foveate_decode_zune,
        "webp" => foveate_decode_webp,
        "image" => foveate_decode_image,
        "extra" => foveate_decode_extra,
        "opencv" => foveate_decode_opencv,
    ];
    /// Preprocessors, which decode and resize whole batches on a device: also `--decoder`.
    preprocessors: PreprocessorRegistry = "decoder" [
        "nvjpeg" => foveate_decode_nvjpeg,
    ];
    /// Resizers: `--resizer`.
    resizers: ResizerRegistry = "resizer" [
        "fir" => foveate_resize_fir,
        "opencv" => foveate_resize_opencv,
        "image" => foveate_resize_image,
    ];
    /// Encoders: `--encoder`.
    encoders: EncoderRegistry<Model> = "encoder" [
        "fused" => foveate_encode_fused,
        "ort" => foveate_encode_ort,
        "tch" => foveate_encode_tch,
        "candle" => foveate_encode_candle,
    ];
    /// Container formats, by the ends of files' names.
    containers: ContainerRegistry = "container" [
        "tar" => foveate_source_tar,
        "zip" => foveate_source_zip,
        "parquet" => foveate_source_parquet,
    ];
    /// Stores, by the schemes of addresses; also `--object-store`.
    stores: StoreRegistry = "store" [
        "web" => foveate_source_web,
        "object-store" => foveate_object_store,
    ];
    /// Stores for outputs, by the schemes of addresses.
    prefixes: PrefixRegistry = "store for outputs" [
        "object-store" => foveate_object_store::outputs,
    ];
    /// Sinks: `--sink`, or by the output's extension.
    sinks: SinkRegistry = "sink" [
        "parquet" => foveate_sink_parquet,
        "npy" => foveate_sink_npy,
        "arrow" => foveate_sink_arrow,
        "lmdb" => foveate_sink_lmdb,
    ];
}

#[cfg(feature = "worker")]
table! {
    /// Queues: the scheme of the address in `--queue`.
    queues: foveate_queue::QueueRegistry = "queue" [
        "nats" => foveate_queue_nats,
        "sqs" => foveate_queue_sqs,
    ];
}

/// Looks at registries of any kind.
pub trait Visit {
    /// Looks at one.
    fn visit<B: Backend>(&mut self, registry: &Registry<B>);
}

/// Shows every registry of this build to `visitor`.
pub fn visit_all(visitor: &mut impl Visit) {
    visitor.visit(&decoders());
    visitor.visit(&preprocessors());
    visitor.visit(&resizers());
    visitor.visit(&encoders());
    visitor.visit(&sinks());
    visitor.visit(&containers());
    visitor.visit(&stores());
    #[cfg(feature = "worker")]
    visitor.visit(&queues());
}

/// The settings that decide vectors, by name.
type Settings = BTreeMap<String, String>;

/// Opens the cache in a folder, of at most `bytes`.
#[cfg(feature = "cache")]
pub(crate) fn cache(folder: &Path, bytes: u64, settings: &Settings) -> Result<Arc<dyn Recall>, BoxError> {
    Ok(Arc::new(crate::cache::Cache::open(folder, bytes, settings)?))
}

/// Refuses a cache, which this build does not have.
#[cfg(not(feature = "cache"))]
pub(crate) fn cache(_: &Path, _: u64, _: &Settings) -> Result<Arc<dyn Recall>, BoxError> {
    Err("this build has no cache of vectors; rebuild with `-F cache`".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_registry_lists_only_known_names_once() {
        struct Check;
        impl Visit for Check {
            fn visit<B: Backend>(&mut self, registry: &Registry<B>) {
                let names: Vec<_> = registry.iter().map(Backend::name).collect();
                assert!(names.iter().all(|name| registry.known().contains(name)), "{names:?}");
            }
        }
        visit_all(&mut Check);
    }
}
