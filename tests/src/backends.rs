//! The facade's registries, with the backends that its own tests are built without: see `native` in this package's
//! manifest.

use foveate::backends;
use foveate_decode::DecoderRegistry;
use foveate_encode::EncoderRegistry;
use foveate_model::Model;
use foveate_resize::ResizerRegistry;

/// Every decoder.
#[allow(unused_mut)] // without `native`
pub fn decoders() -> DecoderRegistry {
    let mut decoders = backends::decoders();
    // An error says that the facade has it.
    #[cfg(feature = "native")]
    let _ = foveate_decode_opencv::register(&mut decoders);
    decoders
}

/// Every resizer.
#[allow(unused_mut)]
pub fn resizers() -> ResizerRegistry {
    let mut resizers = backends::resizers();
    #[cfg(feature = "native")]
    let _ = foveate_resize_opencv::register(&mut resizers);
    resizers
}

/// Every encoder.
#[allow(unused_mut)]
pub fn encoders() -> EncoderRegistry<Model> {
    let mut encoders = backends::encoders();
    #[cfg(feature = "native")]
    let _ = foveate_encode_tch::register(&mut encoders);
    encoders
}
