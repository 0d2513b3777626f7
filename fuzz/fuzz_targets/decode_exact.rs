#![no_main]

use foveate_decode_exact::ExactDecoder;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    foveate_fuzz::check_decoder(|options| Box::new(ExactDecoder::new(options)), bytes);
    foveate_fuzz::check_reduced(|options| Box::new(ExactDecoder::new(options)), bytes);
    foveate_fuzz::check_rows(|options| Box::new(ExactDecoder::new(options)), bytes);
});
