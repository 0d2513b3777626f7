#![no_main]

use foveate_sink::parts::fuzzing::segment;
use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Makes a frame of rows of a payload, because frames without the right checksum are rejected early.
fn signed(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0];
    frame.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    frame.extend_from_slice(&xxh3_64_with_seed(payload, 0).to_le_bytes());
    frame.extend_from_slice(payload);
    frame
}

// The frames of a segment.
fuzz_target!(|bytes: &[u8]| {
    let frame = signed(bytes);
    for columns in [0, 2] {
        let _ = segment(bytes, columns);
        if let Some(rows) = segment(&frame, columns) {
            // Each row takes 28 bytes besides its text, and 4 for each column.
            assert!(rows > 0 && rows * (28 + 4 * columns) <= bytes.len());
            assert_eq!(segment(&[frame.as_slice(), &frame].concat(), columns), Some(rows * 2));
        }
    }
});
