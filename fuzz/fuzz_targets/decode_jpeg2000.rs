#![no_main]

use foveate_decode::ImageFormat;
use foveate_decode_extra::ExtraDecoder;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    foveate_fuzz::check_format(ImageFormat::Jpeg2000, || Box::new(ExtraDecoder), bytes);
});
