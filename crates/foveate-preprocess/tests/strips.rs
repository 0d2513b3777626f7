//! Images that are resized in strips give the pixels and the errors of whole images.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use foveate_core::{PixelBuf, Size};
use foveate_decode::conformance::samples;
use foveate_decode::{Capability, DecodeError, DecodeHint, Decoded, Decoder};
use foveate_decode_exact::ExactDecoder;
use foveate_preprocess::{CpuPreprocessor, ItemFault, PreprocessOptions, Preprocessor, Untimed};
use foveate_resize::{Filter, Geometry};
use foveate_resize_fir::FirResizer;

/// Decodes whole images only.
struct Whole(ExactDecoder);

impl Decoder for Whole {
    fn decode(&mut self, encoded: &[u8], hint: DecodeHint, out: &mut PixelBuf) -> Result<Decoded, DecodeError> {
        self.0.decode(encoded, hint, out)
    }

    fn capability(&self) -> Capability {
        self.0.capability()
    }
}

fn open(options: &PreprocessOptions, whole: bool) -> CpuPreprocessor {
    let decoder = move || -> Result<Box<dyn Decoder>, DecodeError> {
        let exact = ExactDecoder::new(Default::default());
        Ok(if whole { Box::new(Whole(exact)) } else { Box::new(exact) })
    };
    let resizer = || Ok(Box::new(FirResizer::new()) as _);
    CpuPreprocessor::open(Arc::new(decoder), Arc::new(resizer), options.clone()).expect("Rust alone")
}

fn prepared(preprocessor: &mut CpuPreprocessor, jpeg: &[u8], output: Size) -> (Result<Size, ItemFault>, Vec<u8>) {
    let (mut out, mut outcomes) = (vec![0; output.rgb_len().expect("a small output")], Vec::new());
    preprocessor.preprocess(&[jpeg], &mut out, &mut outcomes, &Untimed).expect("room");
    let outcome = outcomes.remove(0);
    // After a failure, the content is unspecified.
    if outcome.is_err() {
        out.clear();
    }
    (outcome, out)
}

fn recipes() -> Vec<PreprocessOptions> {
    let crop = |edge, width, height, filter| {
        PreprocessOptions::new(Geometry::ShortestEdgeCrop {
            edge,
            longest: None,
            crop: Size::new(width, height),
            filter,
            ties: foveate_resize::CropTies::Down,
        })
    };
    let squash = |side, filter| PreprocessOptions::new(Geometry::Stretch { output: Size::square(side), filter });
    let hf = || crop(256, 224, 224, Filter::Bicubic);
    let reduced = |low_frequencies| PreprocessOptions {
        hint: DecodeHint { min_side: Some(96), low_frequencies },
        ..crop(96, 80, 71, Filter::Bicubic)
    };
    vec![
        hf(),
        crop(32, 41, 17, Filter::Lanczos3),
        squash(37, Filter::Bilinear),
        squash(224, Filter::Box),
        reduced(false),
        reduced(true),
    ]
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "jpg") {
            found.push(path);
        }
    }
}

#[test]
fn strips_are_the_whole_image() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let mut found = Vec::new();
    files(&fixtures.join("conformance"), &mut found);
    files(&fixtures.join("goldens/photos"), &mut found);
    let read = |path: &PathBuf| std::fs::read(path).expect("a file of the repository");
    let mut jpegs: Vec<Vec<u8>> = found.iter().map(read).collect();
    assert!(jpegs.len() > 50, "only {} files", jpegs.len());
    jpegs.extend([samples::JPEG, samples::JPEG_GRAY, samples::JPEG_PROGRESSIVE, samples::WAVES].map(<[u8]>::to_vec));
    // Cut off within the data, and damaged there.
    for at in (0..jpegs.len()).step_by(3) {
        let mut bytes = jpegs[at].clone();
        let middle = bytes.len() / 2;
        jpegs.push(bytes[..middle].to_vec());
        bytes[middle..].iter_mut().step_by(97).for_each(|byte| *byte ^= 0x55);
        jpegs.push(bytes);
    }
    for options in recipes() {
        let (mut strips, mut whole) = (open(&options, false), open(&options, true));
        let output = options.geometry.output();
        for (at, jpeg) in jpegs.iter().enumerate() {
            let expected = prepared(&mut whole, jpeg, output);
            assert!(prepared(&mut strips, jpeg, output) == expected, "image {at}: {:?}, {options:?}", expected.0);
        }
    }
}

/// A large picture comes in many strips, which never add up to it in memory.
#[test]
fn a_large_image_is_never_whole() {
    struct Watched(ExactDecoder);

    impl Decoder for Watched {
        fn decode(&mut self, _: &[u8], _: DecodeHint, _: &mut PixelBuf) -> Result<Decoded, DecodeError> {
            panic!("the image is decoded whole")
        }

        fn capability(&self) -> Capability {
            self.0.capability()
        }

        fn rows(&mut self) -> Option<&mut dyn foveate_decode::RowDecoder> {
            self.0.rows()
        }
    }

    // The sample's header claims a larger size; libjpeg decodes the missing part as gray.
    let mut jpeg = samples::JPEG.to_vec();
    let frame = jpeg.windows(2).position(|pair| pair == [0xFF, 0xC0]).expect("a frame header");
    jpeg[frame + 5..frame + 9].copy_from_slice(&[0x0B, 0xB8, 0x0F, 0xA0]);
    let options = recipes().remove(0);
    let decoder = || Ok(Box::new(Watched(ExactDecoder::new(Default::default()))) as _);
    let resizer = || Ok(Box::new(FirResizer::new()) as _);
    let mut watched = CpuPreprocessor::open(Arc::new(decoder), Arc::new(resizer), options.clone()).expect("Rust alone");
    let strips = prepared(&mut watched, &jpeg, options.geometry.output());
    assert_eq!(strips.0, Ok(Size::new(4000, 3000)));
    assert!(strips == prepared(&mut open(&options, true), &jpeg, options.geometry.output()));
}
