#![no_main]

use foveate_sink::parts::fuzzing::row_log;
use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::xxh3_64;

/// Makes a frame of a payload, because frames without the right checksum are rejected early.
fn signed(payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_le_bytes().to_vec();
    frame.extend_from_slice(&xxh3_64(payload).to_le_bytes());
    frame.extend_from_slice(payload);
    frame
}

// The rows of a part that is not complete yet.
fuzz_target!(|bytes: &[u8]| {
    let _ = row_log(bytes);
    let frame = signed(bytes);
    if let Some(rows) = row_log(&frame) {
        // Each row takes 28 bytes besides its id.
        assert!(rows > 0 && rows * 28 <= bytes.len());
        assert_eq!(row_log(&[frame.as_slice(), &frame].concat()), Some(rows * 2));
    }
});
