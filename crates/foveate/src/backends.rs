//! The backend table. Besides lib.rs, which leaves out whole modules, it is the only place in this crate with
//! `cfg(feature = …)`. A new backend needs one line here, one feature in Cargo.toml, and its crate.

use foveate_decode::DecoderRegistry;
use foveate_dinov2::Model;
use foveate_encode::EncoderRegistry;
use foveate_preprocess::PreprocessorRegistry;
use foveate_resize::ResizerRegistry;
use foveate_sink::SinkRegistry;

/// Generates one function per kind of backend. The function returns every known name and the registry of the
/// compiled-in backends.
///
/// The order is the order of preference. The first compiled-in backend is the default, and decoders fall back to each
/// other in this order. Backends of the default build come before those that a feature adds, so adding a backend alone
/// changes no output.
macro_rules! table {
    ($($(#[$doc:meta])* $function:ident: $registry:ty = $kind:literal [$($feature:literal => $backend:ident),+ $(,)?];)+) => {
        $(
            $(#[$doc])*
            // Nothing is registered if no backend of this kind is compiled in.
            #[allow(unused_mut)]
            pub fn $function() -> $registry {
                let mut registry = <$registry>::new($kind, &[$($feature),+]);
                $(
                    #[cfg(feature = $feature)]
                    $backend::register(&mut registry).unwrap_or_else(|error| unreachable!("{error}"));
                )+
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
        "image" => foveate_decode_image,
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
    /// Sinks: `--sink`, or by the output's extension.
    sinks: SinkRegistry = "sink" [
        "parquet" => foveate_sink_parquet,
        "npy" => foveate_sink_npy,
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
    /// Stores, which read the objects named by jobs: `--object-store`.
    stores: foveate_source::FetchRegistry = "store" [
        "object-store" => foveate_source_object_store,
    ];
}

#[cfg(test)]
mod tests {
    use foveate_core::Backend;

    #[test]
    fn every_registry_lists_only_known_names_once() {
        fn check<B: Backend>(registry: foveate_core::Registry<B>) {
            let names: Vec<_> = registry.iter().map(Backend::name).collect();
            assert!(names.iter().all(|name| registry.known().contains(name)), "{names:?}");
        }
        check(super::decoders());
        check(super::preprocessors());
        check(super::resizers());
        check(super::encoders());
        check(super::sinks());
        #[cfg(feature = "worker")]
        check(super::queues());
        #[cfg(feature = "worker")]
        check(super::stores());
    }
}
