#![no_main]

use foveate_decode::jpeg::{Ending, Structure, completed, inspect};
use foveate_decode::{ImageFormat, orientation, sniff};
use libfuzzer_sys::fuzz_target;

// The parsers besides the decoders: the format, a JPEG's markers, the orientation in EXIF and XMP.
fuzz_target!(|bytes: &[u8]| {
    let _ = sniff(bytes);
    for format in ImageFormat::ALL {
        orientation(bytes, format);
    }
    if let Ok(structure) = inspect(bytes, 500) {
        // A completed file is complete, and otherwise has the same structure.
        let whole = Structure { ending: Ending::Complete, needs_standard_tables: false, ..structure };
        assert_eq!(inspect(&completed(bytes, &structure), 500).unwrap(), whole);
    }
});
