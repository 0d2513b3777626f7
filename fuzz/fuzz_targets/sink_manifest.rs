#![no_main]

use foveate_sink::OutputManifest;
use libfuzzer_sys::fuzz_target;

// manifest.json: a manifest that was read can be written, and reading it again gives the same manifest.
fuzz_target!(|bytes: &[u8]| {
    let Ok(manifest) = OutputManifest::parse(bytes) else { return };
    assert_eq!(OutputManifest::parse(manifest.to_json().as_bytes()), Ok(manifest));
});
