#![no_main]

use foveate_sink::OutputManifest;
use foveate_sink::parts::fuzzing::objects;
use libfuzzer_sys::fuzz_target;

// manifest.json: a manifest that was read can be written, and reading it again gives the same manifest.
// So are a claim and a part's record, which are JSON too.
fuzz_target!(|bytes: &[u8]| {
    objects(bytes);
    let Ok(manifest) = OutputManifest::parse(bytes) else { return };
    assert_eq!(OutputManifest::parse(manifest.to_json().as_bytes()), Ok(manifest));
});
