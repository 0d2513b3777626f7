#![no_main]

use foveate_decode_zune::ZuneDecoder;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    foveate_fuzz::check_decoder(|options| Box::new(ZuneDecoder::new(options)), bytes);
});
