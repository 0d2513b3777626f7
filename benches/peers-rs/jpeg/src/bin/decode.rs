//! Decodes photos some number of times, for counting its instructions: `decode DECODER MIN_SIDE TIMES FILE…`. MIN_SIDE
//! is 0 for the whole size, or permits a scaled one.

use std::error::Error;

use foveate_core::{PixelBuf, PixelLimits};
use foveate_decode::{DecodeHint, Decoder, DecoderOptions, jpeg};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, min_side, times, files @ ..] = &arguments[..] else { return Err("DECODER MIN_SIDE TIMES FILE…".into()) };
    let (min_side, times): (u32, u32) = (min_side.parse()?, times.parse()?);
    let files = files.iter().map(std::fs::read).collect::<Result<Vec<_>, _>>()?;
    let options = DecoderOptions::default();
    let mut ours: Option<Box<dyn Decoder>> = match name.as_str() {
        "exact" => Some(Box::new(foveate_decode_exact::ExactDecoder::new(options))),
        "turbojpeg" => Some(Box::new(foveate_decode_turbojpeg::TurboJpegDecoder::new(options)?)),
        "zune" => Some(Box::new(foveate_decode_zune::ZuneDecoder::new(options))),
        "image" => Some(Box::new(foveate_decode_image::GenericDecoder::new(options))),
        _ => None,
    };
    let hint = DecodeHint { min_side: (min_side > 0).then_some(min_side), ..DecodeHint::default() };
    let (mut pixels, mut buffer) = (PixelBuf::new(PixelLimits { max_pixels: 100_000_000 }), Vec::new());
    for _ in 0..times {
        for file in &files {
            if let Some(decoder) = &mut ours {
                decoder.decode(file, hint, &mut pixels)?;
            } else {
                let side = jpeg::inspect(file, options.max_scans)?.size.min_side();
                let divisor = [8, 4, 2].into_iter().find(|by| min_side > 0 && side.div_ceil(*by) >= min_side);
                foveate_peers_jpeg::decode_into(file, divisor.unwrap_or(1), &mut buffer)?;
            }
        }
    }
    Ok(())
}
