//! Converts a photo to a 224 x 224 RGB tensor, with only one decoder and one resizer of foveate.
//!
//! `cargo run [PHOTO [TENSOR]]`; in Python, `numpy.fromfile("photo.rgb", "u1").reshape(224, 224, 3)`.

use std::error::Error;
use std::path::PathBuf;

use foveate_core::{ImageViewMut, PixelBuf, PixelLimits, Size};
use foveate_decode::{DecodeHint, Decoder, DecoderOptions};
use foveate_decode_turbojpeg::TurboJpegDecoder;
use foveate_resize::{CropTies, Filter, Geometry, Resizer};
use foveate_resize_fir::FirResizer;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../photos/rocket_original.jpg");
    let photo = arguments.next().unwrap_or_else(|| example.into());
    let tensor = arguments.next().unwrap_or_else(|| std::env::temp_dir().join("photo.rgb"));

    // DINOv2's recipe: the shorter side to 256, bicubic as Pillow does it, then the middle 224 x 224.
    let recipe = Geometry::ShortestEdgeCrop {
        edge: 256,
        longest: None,
        crop: Size::square(224),
        ties: CropTies::Down,
        filter: Filter::Bicubic,
    };

    // Decoders, resizers and buffers are made once per thread and used for every image.
    let mut decoder = TurboJpegDecoder::new(DecoderOptions::default())?;
    let mut resizer = FirResizer::new();
    let mut pixels = PixelBuf::new(PixelLimits::DEFAULT);
    let mut crop = vec![0; 224 * 224 * 3];

    // With `min_side: Some(256)` the decoder may shrink while it decodes: faster, but the pixels differ slightly.
    let decoded = decoder.decode(&std::fs::read(&photo)?, DecodeHint::default(), &mut pixels)?;
    let plan = recipe.plan(pixels.size());
    resizer.resize(pixels.view(), &plan, ImageViewMut::new(&mut crop, recipe.output()).ok_or("the crop's size")?)?;
    std::fs::write(&tensor, &crop)?;

    println!("{}: {} {} -> {}", photo.display(), decoded.native, decoded.format, tensor.display());
    assert_eq!(std::fs::metadata(&tensor)?.len(), 224 * 224 * 3);
    assert!(crop.iter().max() > crop.iter().min(), "a photo has more than one colour");
    Ok(())
}
