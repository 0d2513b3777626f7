//! The settings of an output, for more vectors like its own.

use std::collections::BTreeMap;

use foveate_encode::{DType, Pooling};
use foveate_pipeline::lane::Normalize;
use foveate_preprocess::OrientationPolicy;
use foveate_sink::{Difference, RunManifest};
use foveate_source::Input;

use super::{Backends, Settings};

/// Settings on which vectors depend beyond rounding.
const DECISIVE: [&str; 11] = [
    "weights_sha256",
    "recipe",
    "geometry",
    "mean",
    "std",
    "orientation",
    "decode_scale",
    "decode_scale_most",
    "dtype",
    "pooling",
    "normalize",
];

/// Those of them that vectors of texts share with the images of the same model.
const DECISIVE_OF_TEXTS: [&str; 3] = ["weights_sha256", "pooling", "normalize"];

/// Settings that choose inputs.
const OF_INPUTS: [&str; 6] =
    [RunManifest::LISTING, RunManifest::ITEMS, RunManifest::MERGED, "shard", "image_column", "id_column"];

/// Returns true if a setting names the model, whose weights have a hash, or limits what is read.
pub(super) fn is_name_or_limit(name: &str) -> bool {
    ["model", "allow_truncated", "max_pixels", "max_bytes"].contains(&name)
}

/// Returns true if an image's vector depends on a setting: outputs whose other settings differ belong together.
pub fn decides_vectors(name: &str) -> bool {
    !OF_INPUTS.contains(&name) && !is_name_or_limit(name) && !name.starts_with("sink.")
}

/// Returns the remedy for two jobs that differ in their [kernels](RunManifest::KERNELS) or in what decides their
/// [pixels](RunManifest::PIXELS) alone.
pub fn kernels_remedy(difference: &Difference) -> Option<&'static str> {
    let [setting] = difference.settings.as_slice() else { return None };
    match setting.split(':').next() {
        _ if difference.inputs.is_some() => None,
        Some(RunManifest::KERNELS) => Some(
            "use the same instruction set and library for both (FOVEATE_INSTRUCTIONS=avx512-bf16 gives a machine with \
             AMX the bits of the others), or embed anew with --overwrite",
        ),
        Some(RunManifest::PIXELS) => {
            Some("use the same release of the library for both, or embed anew with --overwrite")
        }
        _ => None,
    }
}

impl Settings {
    /// Returns a job whose vectors can be compared with those of an output with this
    /// [fingerprint](foveate_sink::RunManifest::fingerprint): the model and all settings, and the backends as far as
    /// `backends` has them. It runs on the CPU.
    pub fn like(fingerprint: &BTreeMap<String, String>, inputs: Vec<Input>, backends: &Backends) -> Self {
        let get = |name: &str| fingerprint.get(name).map(String::as_str);
        let first = get("decoder").and_then(|names| names.split(',').next());
        let mut options = Self::new(inputs, get("model").unwrap_or_default(), "");
        options.model.decoder = first.filter(|name| backends.decoders.get(name).is_ok()).map(str::to_owned);
        options.model.resizer = get("resizer").filter(|name| backends.resizers.get(name).is_ok()).map(str::to_owned);
        options.model.encoder = get("encoder").filter(|name| backends.encoders.get(name).is_ok()).map(str::to_owned);
        if options.model.encoder.is_some() {
            options.model.encoder_option = below(fingerprint, "encoder.");
        }
        options.model.network.preprocess = get("recipe").unwrap_or_default().parse().unwrap_or_default();
        options.model.decode_scale = get("decode_scale").unwrap_or_default().parse().ok();
        options.images.allow_truncated = get("allow_truncated") == Some("true");
        if let Some(pixels) = get("max_pixels").and_then(|pixels| pixels.parse().ok()) {
            options.model.network.max_pixels = pixels;
        }
        options.model.pooling = Pooling::ALL.into_iter().find(|known| get("pooling") == Some(known.name()));
        options.model.dtype = DType::ALL.into_iter().find(|known| get("dtype") == Some(known.name()));
        if get("orientation") == Some("ignore") {
            options.images.orientation = OrientationPolicy::Ignore;
        }
        if get("normalize") == Some("l2") {
            options.model.normalize = Normalize::L2;
        }
        options
    }
}

/// The same of a setting of texts and of images that are compared with each other.
pub fn decides_texts_and_images(name: &str) -> bool {
    DECISIVE_OF_TEXTS.contains(&name)
}

/// Says why vectors with these settings cannot be compared with those of an output with `others`; `None` if they can.
pub fn incomparable(settings: &BTreeMap<String, String>, others: &BTreeMap<String, String>) -> Option<String> {
    let is_mixed = settings.contains_key(RunManifest::TEXTS) != others.contains_key(RunManifest::TEXTS);
    let decisive = if is_mixed { &DECISIVE_OF_TEXTS[..] } else { &DECISIVE[..] };
    let name = *decisive.iter().find(|name| settings.get(**name) != others.get(**name))?;
    if let Some(what) = name.strip_suffix("_sha256") {
        return Some(format!("other {what}"));
    }
    let ours = settings.get(name).map_or("none", String::as_str);
    let theirs = others.get(name).map_or("none", String::as_str);
    Some(format!("{name} is {ours}, not {theirs}"))
}

/// The settings whose names begin with `prefix`, without it.
fn below(fingerprint: &BTreeMap<String, String>, prefix: &str) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    for (name, value) in fingerprint {
        if let Some(name) = name.strip_prefix(prefix) {
            settings.push((name.to_owned(), value.clone()));
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows made before `low` had a largest scale.
    #[test]
    fn rows_of_another_rule_for_low_are_not_comparable() {
        let settings = |most: Option<&str>| {
            let most = most.map(|most| ("decode_scale_most".to_owned(), most.to_owned()));
            [("decode_scale".to_owned(), "low".to_owned())].into_iter().chain(most).collect()
        };
        assert_eq!(incomparable(&settings(Some("4/8")), &settings(Some("4/8"))), None);
        let why = incomparable(&settings(Some("4/8")), &settings(None));
        assert_eq!(why.as_deref(), Some("decode_scale_most is 4/8, not none"));
    }
}
