#![no_main]

use foveate_sink::parts::fuzzing::journal;
use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::xxh3_64;

/// Gives each line its checksum, because lines without one are rejected early.
fn signed(records: &[u8]) -> Vec<u8> {
    let mut lines = Vec::new();
    for record in records.split(|&byte| byte == b'\n').filter(|record| !record.is_empty()) {
        lines.extend_from_slice(format!("{:016x} ", xxh3_64(record)).as_bytes());
        lines.extend_from_slice(record);
        lines.push(b'\n');
    }
    lines
}

// The journal of a run: a truncated one contains what its complete lines say, and nothing more.
fuzz_target!(|bytes: &[u8]| {
    let _ = journal(bytes);
    let whole = signed(bytes);
    let Ok(watermark) = journal(&whole) else { return };
    let torn = journal(&whole[..whole.len() * 2 / 3]).expect("a torn journal is still a journal");
    assert!(torn <= watermark);
});
