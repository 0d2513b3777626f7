#![no_main]

use foveate_sink::OutputManifest;
use foveate_sink::parts::fuzzing::records;
use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::xxh3_64;

// manifest.json: a manifest that was read can be written, and reading it again gives the same manifest.
// A claim and a plan are lines with a checksum.
fuzz_target!(|bytes: &[u8]| {
    let signed = [format!("{:016x} ", xxh3_64(bytes)).as_bytes(), bytes, b"\n"].concat();
    records(&signed);
    let Ok(manifest) = OutputManifest::parse(bytes) else { return };
    assert_eq!(OutputManifest::parse(manifest.to_json().as_bytes()), Ok(manifest));
});
