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
    let frame = signed(bytes);
    for columns in [0, 2] {
        let _ = row_log(bytes, columns);
        if let Some(rows) = row_log(&frame, columns) {
            // Each row takes 28 bytes besides its text, and 4 for each column.
            assert!(rows > 0 && rows * (28 + 4 * columns) <= bytes.len());
            assert_eq!(row_log(&[frame.as_slice(), &frame].concat(), columns), Some(rows * 2));
        }
    }
});
