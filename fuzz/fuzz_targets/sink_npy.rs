#![no_main]

use foveate_sink_npy::NpyHeader;
use libfuzzer_sys::fuzz_target;

// The header of a .npy file, and the vectors behind it: no shape takes more memory than there are bytes.
fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    let Ok(header) = NpyHeader::read(&mut rest) else { return };
    assert_eq!(NpyHeader::read(&mut header.to_bytes().as_slice()).unwrap(), header);
    if let Ok(vectors) = header.read_vectors(&mut rest) {
        assert_eq!(vectors.len() as u64, header.rows * header.dim);
        assert!(vectors.len() * header.element.bytes() <= bytes.len());
    }
});
