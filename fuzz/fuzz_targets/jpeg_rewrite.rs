#![no_main]

use foveate_decode::jpeg::{Ending, Process, completed, inspect, with_plain_header, without_unused_scans};
use libfuzzer_sys::fuzz_target;

// A rewritten JPEG has the same frame, no more scans, and is complete; rewriting it again changes nothing.
fuzz_target!(|bytes: &[u8]| {
    let Ok(structure) = inspect(bytes, 500) else { return };
    let (mut once, mut twice) = (Vec::new(), Vec::new());
    for bytes in [bytes, &completed(bytes, &structure)] {
        with_plain_header(bytes, &structure, &mut once).unwrap();
        let plain = inspect(&once, 500).unwrap();
        assert_eq!((plain.size, plain.scans, plain.sampling), (structure.size, structure.scans, structure.sampling));
        with_plain_header(&once, &plain, &mut twice).unwrap();
        assert!(once == twice, "a plain header is not plain");

        if without_unused_scans(bytes, &structure, &mut once).unwrap() {
            let fewer = inspect(&once, 500).unwrap();
            assert!((fewer.process, fewer.ending) == (Process::Progressive, Ending::Complete));
            assert!((fewer.size, fewer.sampling) == (structure.size, structure.sampling));
            assert!(fewer.scans < structure.scans && once.len() < bytes.len());
        }
    }
});
