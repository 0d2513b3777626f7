//! The settings that decide the output's bytes, as the manifest records them.

use std::collections::BTreeMap;

use foveate_decode::DecodeHint;
use foveate_preprocess::DecodeScale;
use foveate_resize::Geometry;
use foveate_sink::RunManifest;
use foveate_source::Source;

use super::{BackendNames, Settings};
use crate::models::OpenModel;
use crate::recipe;

/// Everything that the manifest records.
pub(crate) struct JobDescription<'a> {
    pub(super) options: &'a Settings,
    pub(super) names: &'a BackendNames,
    pub(super) model: &'a OpenModel,
    pub(super) geometry: &'a Geometry,
    /// The source of the vectors' last bits, of [`EncoderSpec::kernels`](foveate_encode::EncoderSpec::kernels).
    pub(super) kernels: Option<&'a str>,
    /// Releases that decide the pixels, of [`Health::pixels`](foveate_core::Health::pixels).
    pub(super) pixels: Option<&'a str>,
}

impl JobDescription<'_> {
    /// Builds the manifest. Everything that decides the output's bytes is in the fingerprint, the rest in `info`.
    pub(super) fn manifest(&self, source: &dyn Source) -> RunManifest {
        let options = self.options;
        let mut manifest = self.embedding();
        let mut set = |name: &str, value: String| manifest.fingerprint.insert(name.to_owned(), value);
        set(RunManifest::LISTING, source.listing_hash());
        set(RunManifest::ITEMS, source.part());
        for (name, column) in [("image_column", &options.inputs.image_column), ("id_column", &options.rows.id_column)] {
            if let Some(column) = column {
                set(name, column.clone());
            }
        }
        set("shard", options.shard.map_or_else(|| "none".to_owned(), |shard| shard.to_string()));
        set("max_bytes", options.inputs.max_bytes.to_string());
        manifest
    }

    /// Builds the same manifest without the inputs.
    pub(crate) fn embedding(&self) -> RunManifest {
        let Self { options, names, model, geometry, kernels, pixels } = self;
        let preprocess = model.preprocess();
        let mut fingerprint = BTreeMap::new();
        let mut set = |name: &str, value: String| fingerprint.insert(name.to_owned(), value);
        set("foveate", crate::VERSION.to_owned());
        set("model", model.name().to_owned());
        set("weights_sha256", model.weights_hash().to_owned());
        set("recipe", options.model.network.preprocess.name().to_owned());
        set("geometry", recipe::describe(geometry));
        set("mean", format!("{:?}", preprocess.mean));
        set("std", format!("{:?}", preprocess.std));
        set("orientation", options.images.orientation.name().to_owned());
        let decoders: Vec<_> = names.batched.iter().chain(&names.decoders).map(String::as_str).collect();
        set("decoder", decoders.join(","));
        set("decode_scale", options.model.decode_scale().name().to_owned());
        if options.model.decode_scale() == DecodeScale::Low {
            // Earlier rows under `low` have other pixels at 5/8 to 7/8.
            set("decode_scale_most", format!("{}/8", DecodeHint::LOW_EIGHTHS));
        }
        set("allow_truncated", options.images.allow_truncated.to_string());
        set("max_pixels", options.model.network.max_pixels.to_string());
        set("resizer", names.resizer.clone());
        set("encoder", names.encoder.clone());
        for (name, value) in super::by_name(&options.model.encoder_option) {
            set(&format!("encoder.{name}"), value);
        }
        for (name, value) in super::by_name(&options.model.decoder_option) {
            set(&format!("decoder.{name}"), value);
        }
        set("device", options.kind_of_devices());
        if let Some(kernels) = kernels {
            set(RunManifest::KERNELS, (*kernels).to_owned());
        }
        if let Some(pixels) = pixels {
            set(RunManifest::PIXELS, (*pixels).to_owned());
        }
        set("dtype", options.model.dtype().name().to_owned());
        set("pooling", options.model.pooling(model).name().to_owned());
        set("normalize", options.model.normalize.name().to_owned());
        let mut info = BTreeMap::new();
        if let Some(revision) = model.revision() {
            info.insert("model_revision".to_owned(), revision.to_owned());
        }
        if model.is_seeded() {
            info.insert("warning".to_owned(), "seeded weights: the vectors have no meaning".to_owned());
        }
        RunManifest { dim: 0, fingerprint, info }
    }
}
