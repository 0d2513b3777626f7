//! The conformance suite: the behaviour required of every [`Decoder`], for backends' tests (cargo feature
//! `conformance`).
//!
//! ```ignore
//! #[test]
//! fn conforms() {
//!     foveate_decode::conformance::check(&|options| Ok(Box::new(MyDecoder::new(*options))));
//! }
//! ```
//!
//! [`Decoder::capability`] gates the suite: the backend must refuse a format that it does not read as unsupported, and
//! must return the sample's pixels for a format that it reads.

use foveate_core::{FaultScope, LimitError, PixelBuf, PixelLimits, Size, error_chain};

use crate::{Capability, DecodeError, DecodeHint, Decoded, Decoder, DecoderOptions, ImageFormat};

/// Small files that show the same picture, made for this suite: 24 × 16 pixels, red grows to the right, green
/// downwards, blue towards the upper left ([`expected`](samples::expected)).
pub mod samples {
    use foveate_core::Size;

    /// Size of every sample.
    pub const SIZE: Size = Size::new(24, 16);
    /// Baseline JPEG, 4:4:4, quality 90.
    pub const JPEG: &[u8] = include_bytes!("../samples/gradient.jpg");
    /// Progressive JPEG, 4:2:0, quality 90, ten scans.
    pub const JPEG_PROGRESSIVE: &[u8] = include_bytes!("../samples/gradient_420_progressive.jpg");
    /// Grayscale JPEG.
    pub const JPEG_GRAY: &[u8] = include_bytes!("../samples/gray.jpg");
    /// CMYK JPEG with Adobe's inverted inks.
    pub const JPEG_CMYK: &[u8] = include_bytes!("../samples/cmyk.jpg");
    /// PNG, RGB.
    pub const PNG: &[u8] = include_bytes!("../samples/gradient.png");
    /// PNG, gray.
    pub const PNG_GRAY: &[u8] = include_bytes!("../samples/gray.png");
    /// PNG, RGBA: the upper half fully transparent, with colours under it.
    pub const PNG_TRANSPARENT: &[u8] = include_bytes!("../samples/transparent.png");
    /// WebP, lossless.
    pub const WEBP: &[u8] = include_bytes!("../samples/gradient.webp");
    /// GIF with 64 colours.
    pub const GIF: &[u8] = include_bytes!("../samples/palette.gif");
    /// BMP, 24 bit.
    pub const BMP: &[u8] = include_bytes!("../samples/gradient.bmp");
    /// TIFF, LZW.
    pub const TIFF: &[u8] = include_bytes!("../samples/gradient.tif");
    /// AVIF, lossless: GBR planes.
    pub const AVIF: &[u8] = include_bytes!("../samples/gradient.avif");
    /// JPEG XL, lossless: a codestream.
    pub const JPEG_XL: &[u8] = include_bytes!("../samples/gradient.jxl");
    /// PPM.
    pub const PNM: &[u8] = include_bytes!("../samples/gradient.ppm");
    /// TGA in run lengths.
    pub const TGA: &[u8] = include_bytes!("../samples/gradient.tga");
    /// QOI.
    pub const QOI: &[u8] = include_bytes!("../samples/gradient.qoi");
    /// A BMP in an icon.
    pub const ICO: &[u8] = include_bytes!("../samples/gradient.ico");
    /// PCX, 24 bit.
    pub const PCX: &[u8] = include_bytes!("../samples/gradient.pcx");
    /// JPEG 2000, lossless, in a container.
    pub const JPEG_2000: &[u8] = include_bytes!("../samples/gradient.jp2");

    /// The JPEG samples as libjpeg-turbo (islow DCT, fancy upsampling) decodes them, RGB8.
    pub const LIBJPEG: [(&[u8], &[u8]); 4] = [
        (JPEG, include_bytes!("../samples/gradient.rgb")),
        (JPEG_PROGRESSIVE, include_bytes!("../samples/gradient_420_progressive.rgb")),
        (JPEG_GRAY, include_bytes!("../samples/gray.rgb")),
        (JPEG_CMYK, include_bytes!("../samples/cmyk.rgb")),
    ];

    /// Size of the samples for decoding at reduced scale.
    pub const WAVES_SIZE: Size = Size::new(157, 101);
    /// Long waves in all channels: baseline JPEG, 4:2:0, quality 92.
    pub const WAVES: &[u8] = include_bytes!("../samples/waves_420.jpg");
    /// The same as progressive JPEG, 4:4:4.
    pub const WAVES_PROGRESSIVE: &[u8] = include_bytes!("../samples/waves_444_progressive.jpg");

    /// The picture that all colour samples show, RGB8.
    pub fn expected() -> Vec<u8> {
        let mut picture = Vec::new();
        for y in 0..SIZE.height {
            for x in 0..SIZE.width {
                picture.extend([x * 10 + 5, y * 15 + 8, 255 - x * 5 - y * 6].map(|sample| sample as u8));
            }
        }
        picture
    }
}

/// Largest difference of one sample between a JPEG decoder without [`Capability::exact_jpeg`] and libjpeg-turbo, on the
/// samples of this suite. The standard leaves chroma upsampling open and lets the inverse DCT and the colour transform
/// round either way.
pub const JPEG_TOLERANCE: u8 = 5;

/// Largest difference of one sample between a JPEG sample decoded at reduced scale and the mean over the same area of
/// the full-size decode, on pictures without fine detail. For luma, libjpeg's reduced transforms give exactly these
/// means, up to rounding; chroma is interpolated differently. Measured with libjpeg-turbo: 5, at 1/2 of the 4:2:0
/// sample.
pub const SCALED_TOLERANCE: u8 = 6;

/// The same with [`DecodeHint::low_frequencies`], whose pixels are not means of areas. Measured: 8, at 1/8 of the 4:2:0
/// sample.
pub const LOW_TOLERANCE: u8 = 9;

/// Makes one decoder.
pub type Make<'a> = &'a dyn Fn(&DecoderOptions) -> Result<Box<dyn Decoder>, DecodeError>;

/// Runs the whole suite.
///
/// # Panics
/// If the decoder breaks a rule of the trait; the message says which.
pub fn check(make: Make<'_>) {
    let suite = Suite { make, capability: open(make, &DecoderOptions::default()).capability() };
    suite.lossless_formats_are_exact();
    suite.jpeg_is_close_to_libjpeg();
    suite.gray_becomes_three_equal_channels();
    suite.alpha_is_dropped();
    suite.what_is_no_image_is_refused();
    suite.formats_it_does_not_read_are_unsupported();
    suite.limits_hold_before_memory_is_taken();
    suite.truncated_jpegs_follow_the_policy();
    suite.what_is_there_of_a_truncated_jpeg_is_right();
    suite.standard_huffman_tables_are_supplied();
    suite.scans_are_limited();
    suite.results_do_not_depend_on_history();
    suite.hints_permit_and_never_demand();
    suite.reduced_jpegs_show_the_same_picture();
    suite.damaged_files_do_no_damage();
}

fn open(make: Make<'_>, options: &DecoderOptions) -> Box<dyn Decoder> {
    make(options).unwrap_or_else(|error| panic!("the decoder cannot be made: {error}"))
}

struct Suite<'a> {
    make: Make<'a>,
    capability: Capability,
}

/// The colour samples of each format; the first of each format is the plain one.
const COLOR: [(ImageFormat, &[u8]); 16] = [
    (ImageFormat::Jpeg, samples::JPEG),
    (ImageFormat::Jpeg, samples::JPEG_PROGRESSIVE),
    (ImageFormat::Png, samples::PNG),
    (ImageFormat::Png, samples::PNG_TRANSPARENT),
    (ImageFormat::WebP, samples::WEBP),
    (ImageFormat::Gif, samples::GIF),
    (ImageFormat::Bmp, samples::BMP),
    (ImageFormat::Tiff, samples::TIFF),
    (ImageFormat::Avif, samples::AVIF),
    (ImageFormat::JpegXl, samples::JPEG_XL),
    (ImageFormat::Jpeg2000, samples::JPEG_2000),
    (ImageFormat::Pnm, samples::PNM),
    (ImageFormat::Tga, samples::TGA),
    (ImageFormat::Qoi, samples::QOI),
    (ImageFormat::Ico, samples::ICO),
    (ImageFormat::Pcx, samples::PCX),
];

impl Suite<'_> {
    fn decoder(&self) -> Box<dyn Decoder> {
        open(self.make, &DecoderOptions::default())
    }

    fn reads(&self, format: ImageFormat) -> bool {
        self.capability.formats.contains(format)
    }

    fn readable(&self) -> impl Iterator<Item = (ImageFormat, &'static [u8])> {
        COLOR.into_iter().filter(|(format, _)| self.reads(*format))
    }

    fn lossless_formats_are_exact(&self) {
        for (format, bytes) in self.readable() {
            let (decoded, pixels) = decode(&mut *self.decoder(), bytes).unwrap_or_else(|e| panic!("{format}: {e}"));
            assert_eq!(
                decoded,
                Decoded { format, native: samples::SIZE, is_clipped: false },
                "{format}: what is said of the image"
            );
            assert_eq!(pixels.size(), samples::SIZE, "{format}: size of the image");
            let tolerance = match format {
                ImageFormat::Jpeg => 24,
                ImageFormat::Gif => 32,
                _ => 0,
            };
            assert_close(&format.to_string(), pixels.as_slice(), &samples::expected(), tolerance);
        }
    }

    fn jpeg_is_close_to_libjpeg(&self) {
        let tolerance = if self.capability.exact_jpeg { 0 } else { JPEG_TOLERANCE };
        for (bytes, expected) in samples::LIBJPEG.into_iter().filter(|_| self.reads(ImageFormat::Jpeg)) {
            match decode(&mut *self.decoder(), bytes) {
                Ok((_, pixels)) => assert_close("JPEG against libjpeg", pixels.as_slice(), expected, tolerance),
                Err(DecodeError::Unsupported { .. }) if bytes == samples::JPEG_CMYK => {}
                Err(error) => panic!("a JPEG sample is refused: {error}"),
            }
        }
    }

    fn gray_becomes_three_equal_channels(&self) {
        let files = [(ImageFormat::Jpeg, samples::JPEG_GRAY), (ImageFormat::Png, samples::PNG_GRAY)];
        for (format, bytes) in files.into_iter().filter(|(format, _)| self.reads(*format)) {
            let (_, pixels) = decode(&mut *self.decoder(), bytes).unwrap_or_else(|e| panic!("gray {format}: {e}"));
            assert_eq!(pixels.as_slice().len(), 24 * 16 * 3, "gray {format}: RGB8");
            let gray = pixels.as_slice().chunks_exact(3).all(|p| p[0] == p[1] && p[1] == p[2]);
            assert!(gray, "gray {format}: channels differ");
        }
    }

    fn alpha_is_dropped(&self) {
        if self.reads(ImageFormat::Png) {
            let (_, pixels) = decode(&mut *self.decoder(), samples::PNG_TRANSPARENT).expect("a PNG with alpha");
            assert_eq!(pixels.as_slice(), samples::expected(), "alpha is to be dropped, not blended");
        }
    }

    fn what_is_no_image_is_refused(&self) {
        let mut decoder = self.decoder();
        for bytes in [&b"<!doctype html><title>404</title>"[..], b"", b"8BPS\0\x01", &[0xFF, 0xD8, 0xFF]] {
            match (bytes, decode(&mut *decoder, bytes)) {
                ([], Err(DecodeError::Empty)) => {}
                ([b'<', ..], Err(DecodeError::NotAnImage { what: Some("HTML") })) => {}
                ([b'8', ..], Err(DecodeError::UnsupportedFormat { name: "Photoshop" })) => {}
                ([0xFF, ..], Err(_)) => {}
                (_, other) => panic!("{bytes:?}: {other:?}"),
            }
        }
    }

    fn formats_it_does_not_read_are_unsupported(&self) {
        for (format, bytes) in COLOR.into_iter().filter(|(format, _)| !self.reads(*format)) {
            match decode(&mut *self.decoder(), bytes) {
                Err(DecodeError::Unsupported { format: named, .. }) => assert_eq!(named, format),
                other => panic!("{format} is not in the capability, but: {other:?}"),
            }
        }
    }

    fn limits_hold_before_memory_is_taken(&self) {
        let pixels = samples::SIZE.pixels();
        for (format, bytes) in self.readable() {
            let [at_limit, above] = [pixels, pixels - 1].map(|max_pixels| {
                let mut out = PixelBuf::new(PixelLimits { max_pixels });
                self.decoder().decode(bytes, DecodeHint::default(), &mut out).map(|_| out.size())
            });
            assert_eq!(at_limit.ok(), Some(samples::SIZE), "{format}: exactly at the limit");
            match above {
                Err(DecodeError::Limit(LimitError::TooManyPixels { size, .. })) => assert_eq!(size, samples::SIZE),
                other => panic!("{format}: one pixel above the limit: {other:?}"),
            }
        }
        if self.reads(ImageFormat::Jpeg) {
            let bomb = jpeg_of(Size::square(60_000));
            let verdict = decode(&mut *self.decoder(), &bomb);
            assert!(matches!(verdict, Err(DecodeError::Limit(_))), "60000x60000: {verdict:?}");
        }
    }

    fn truncated_jpegs_follow_the_policy(&self) {
        if !self.reads(ImageFormat::Jpeg) {
            return;
        }
        let lenient = DecoderOptions { allow_truncated: true, ..DecoderOptions::default() };
        for bytes in [samples::JPEG, samples::JPEG_PROGRESSIVE] {
            for cut in [2, 20, 60] {
                let bytes = &bytes[..bytes.len() - cut];
                let strict = decode(&mut *self.decoder(), bytes);
                assert!(matches!(strict, Err(DecodeError::Truncated { .. })), "cut by {cut}: {strict:?}");
                let (_, pixels) = decode(&mut *open(self.make, &lenient), bytes)
                    .unwrap_or_else(|error| panic!("cut by {cut}, with allow_truncated: {error}"));
                assert_eq!(pixels.size(), samples::SIZE);
            }
        }
    }

    fn what_is_there_of_a_truncated_jpeg_is_right(&self) {
        if !self.reads(ImageFormat::Jpeg) {
            return;
        }
        let lenient = DecoderOptions { allow_truncated: true, ..DecoderOptions::default() };
        let [whole, cut] = [samples::JPEG, &samples::JPEG[..samples::JPEG.len() - 20]]
            .map(|bytes| decode(&mut *open(self.make, &lenient), bytes).expect("most of the sample").1);
        assert_eq!(cut.size(), whole.size());
        // The cut is in the second and last block row.
        let upper = whole.as_slice().len() / 2;
        assert!(cut.as_slice()[..upper] == whole.as_slice()[..upper], "the rows before the cut differ");
        assert!(cut.as_slice() != whole.as_slice(), "the cut shows nowhere");
    }

    /// Motion JPEG frames omit the standard Huffman tables.
    fn standard_huffman_tables_are_supplied(&self) {
        if !self.reads(ImageFormat::Jpeg) {
            return;
        }
        let mut bare = samples::JPEG.to_vec();
        while let Some(at) = bare.windows(2).position(|pair| pair == [0xFF, 0xC4]) {
            let length = usize::from(u16::from_be_bytes([bare[at + 2], bare[at + 3]]));
            bare.drain(at..at + 2 + length);
        }
        assert!(bare.len() < samples::JPEG.len());
        let [whole, bare] =
            [samples::JPEG, &bare[..]].map(|bytes| decode(&mut *self.decoder(), bytes).expect("the sample").1);
        assert!(whole.as_slice() == bare.as_slice(), "other pixels without the tables");
    }

    fn scans_are_limited(&self) {
        if self.reads(ImageFormat::Jpeg) {
            let options = DecoderOptions { max_scans: 9, ..DecoderOptions::default() };
            let verdict = decode(&mut *open(self.make, &options), samples::JPEG_PROGRESSIVE);
            assert!(matches!(verdict, Err(DecodeError::TooCostly(_))), "ten scans where nine are allowed: {verdict:?}");
        }
    }

    /// Same bytes, same pixels: from another instance, after errors, and into a buffer that held another image.
    fn results_do_not_depend_on_history(&self) {
        let mut used = self.decoder();
        let mut out = PixelBuf::default();
        for (format, bytes) in self.readable().chain(self.readable()) {
            let (_, fresh) = decode(&mut *self.decoder(), bytes).unwrap_or_else(|e| panic!("{format}: {e}"));
            let damaged = used.decode(&bytes[..bytes.len() / 2], DecodeHint::default(), &mut out);
            assert!(damaged.is_ok() || out.size().is_empty(), "{format}: an error left pixels in the buffer");
            out.reset(Size::new(50, 40)).expect("a small image").fill(0xA5);
            used.decode(bytes, DecodeHint::default(), &mut out).unwrap_or_else(|e| panic!("{format}, reused: {e}"));
            assert_eq!(out.as_slice(), fresh.as_slice(), "{format}: a used decoder gives other pixels");
        }
    }

    fn hints_permit_and_never_demand(&self) {
        for (format, bytes) in self.readable() {
            for (min_side, low_frequencies) in with_both([1, 4, 7, 8, 15, 16, 17, 1000]) {
                let mut out = PixelBuf::default();
                let hint = DecodeHint { min_side: Some(min_side), low_frequencies };
                let decoded = self.decoder().decode(bytes, hint, &mut out).unwrap_or_else(|e| panic!("{format}: {e}"));
                assert_eq!(decoded.native, samples::SIZE, "{format}: the native size does not depend on the hint");
                if !self.capability.scaled || min_side >= samples::SIZE.min_side() {
                    assert_eq!(out.size(), samples::SIZE, "{format}: hint {min_side}");
                } else {
                    assert!(out.size().min_side() >= min_side, "{format}: hint {min_side} gave {}", out.size());
                    assert!(out.size().pixels() <= samples::SIZE.pixels(), "{format}: a hint enlarged the image");
                }
            }
        }
    }

    /// For every requested side: one scale of N/8 for both sides, rounded up, whose shorter side suffices and whose
    /// pixels are means of the full-size picture's. If no smaller scale suffices, the pixels equal the full-size
    /// decode.
    fn reduced_jpegs_show_the_same_picture(&self) {
        if !self.reads(ImageFormat::Jpeg) || !self.capability.scaled {
            return;
        }
        let native = samples::WAVES_SIZE;
        for (bytes, low_frequencies) in with_both([samples::WAVES, samples::WAVES_PROGRESSIVE]) {
            let (_, whole) = decode(&mut *self.decoder(), bytes).expect("the sample");
            let mut decoder = self.decoder();
            let mut out = PixelBuf::default();
            let mut sizes = Vec::new();
            for min_side in 1..=native.min_side() + 1 {
                let hint = DecodeHint { min_side: Some(min_side), low_frequencies };
                let decoded = decoder.decode(bytes, hint, &mut out).unwrap_or_else(|e| panic!("hint {min_side}: {e}"));
                assert_eq!(decoded.native, native, "hint {min_side}: the native size");
                let size = out.size();
                let eighths = (1..=8).find(|eighths| size == reduced(native, *eighths));
                let eighths = eighths.unwrap_or_else(|| panic!("hint {min_side}: {size} is no N/8 of {native}"));
                assert!(size.min_side() >= min_side.min(native.min_side()), "hint {min_side} gave {size}");
                let found = difference_to_means(&out, &whole, eighths);
                let tolerance = match (eighths, low_frequencies) {
                    (8, _) => 0,
                    (_, false) => SCALED_TOLERANCE,
                    (_, true) => LOW_TOLERANCE,
                };
                assert!(found <= tolerance, "hint {min_side}: at {eighths}/8 a sample is off by {found}");
                let is_larger = low_frequencies && self.capability.low_frequencies && eighths > DecodeHint::LOW_EIGHTHS;
                assert!(!is_larger || size == native, "hint {min_side}: low frequencies at {eighths}/8");
                sizes.push(size);
            }
            assert!(sizes.is_sorted_by_key(|size| size.pixels()), "a larger hint gave a smaller picture: {sizes:?}");
            assert!(sizes[0] != native, "it says that it decodes at reduced scale, and never does");
        }
    }

    /// Every sample cut at every length, and with every byte inverted in turn. Whatever the outcome, the next file
    /// decodes normally.
    fn damaged_files_do_no_damage(&self) {
        let lenient = DecoderOptions { allow_truncated: true, ..DecoderOptions::default() };
        // Large enough for any sample, and small enough that a damaged header cannot cost much time.
        let limits = PixelLimits { max_pixels: 1 << 20 };
        let mut decoder = open(self.make, &lenient);
        let mut out = PixelBuf::new(limits);
        for (format, bytes) in self.readable() {
            let (_, whole) = decode(&mut *self.decoder(), bytes).unwrap_or_else(|e| panic!("{format}: {e}"));
            for is_cut in [true, false] {
                let what = if is_cut { "cut at" } else { "with a wrong byte" };
                for at in 0..bytes.len() {
                    let mut damaged = bytes.to_vec();
                    if is_cut {
                        damaged.truncate(at);
                    } else {
                        damaged[at] ^= 0xFF;
                    }
                    attempt(&mut *decoder, &damaged, &mut out);
                    let next = decoder.decode(bytes, DecodeHint::default(), &mut out);
                    next.unwrap_or_else(|error| panic!("{format}: after one {what} {at}: {error}"));
                    assert!(out.as_slice() == whole.as_slice(), "{format}: other pixels after one {what} {at}");
                }
            }
        }
    }
}

/// Each item without and with [`DecodeHint::low_frequencies`].
fn with_both<T: Copy, const N: usize>(items: [T; N]) -> impl Iterator<Item = (T, bool)> {
    items.into_iter().flat_map(|item| [(item, false), (item, true)])
}

/// Decodes and checks the conditions that hold for every outcome.
fn attempt(decoder: &mut dyn Decoder, bytes: &[u8], out: &mut PixelBuf) {
    match decoder.decode(bytes, DecodeHint::default(), out) {
        Ok(decoded) => assert_eq!(out.size(), decoded.native, "without a hint the size is the native one"),
        Err(error) => {
            assert!(out.size().is_empty(), "the buffer is not empty after: {error}");
            assert_eq!(error.scope(), FaultScope::Item, "a bad file is no reason to stop a run: {error}");
            assert!(!error_chain(&error).is_empty());
        }
    }
}

fn decode(decoder: &mut dyn Decoder, bytes: &[u8]) -> Result<(Decoded, PixelBuf), DecodeError> {
    let mut out = PixelBuf::default();
    let decoded = decoder.decode(bytes, DecodeHint::default(), &mut out);
    assert!(decoded.is_ok() || out.size().is_empty(), "an error left pixels in the buffer");
    decoded.map(|decoded| (decoded, out))
}

fn reduced(native: Size, eighths: u32) -> Size {
    Size::new((native.width * eighths).div_ceil(8), (native.height * eighths).div_ceil(8))
}

/// Largest difference between a picture at scale `eighths`/8 and the means over the same areas of the `whole` picture.
/// Skips the last row and column, whose areas reach beyond the picture.
fn difference_to_means(small: &PixelBuf, whole: &PixelBuf, eighths: u32) -> u8 {
    let size = small.size();
    let native = whole.size();
    let mut worst = 0;
    for y in 0..size.height {
        for x in 0..size.width {
            let [columns, rows] = [x, y].map(|at| at * 8 / eighths..((at + 1) * 8).div_ceil(eighths));
            if columns.end > native.width || rows.end > native.height {
                continue;
            }
            let count = (columns.len() * rows.len()) as u32;
            for (channel, found) in small.view().pixel(x, y).into_iter().enumerate() {
                let mut sum = 0;
                for y in rows.clone() {
                    sum += columns.clone().map(|x| u32::from(whole.view().pixel(x, y)[channel])).sum::<u32>();
                }
                worst = worst.max(found.abs_diff(((sum + count / 2) / count) as u8));
            }
        }
    }
    worst
}

/// The JPEG sample with another size in its frame header.
fn jpeg_of(size: Size) -> Vec<u8> {
    let mut bytes = samples::JPEG.to_vec();
    let frame = bytes.windows(2).position(|pair| pair == [0xFF, 0xC0]).expect("the sample has a frame header");
    bytes[frame + 5..frame + 7].copy_from_slice(&(size.height as u16).to_be_bytes());
    bytes[frame + 7..frame + 9].copy_from_slice(&(size.width as u16).to_be_bytes());
    bytes
}

fn assert_close(what: &str, found: &[u8], expected: &[u8], tolerance: u8) {
    assert_eq!(found.len(), expected.len(), "{what}: number of samples");
    let worst = found.iter().zip(expected).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0);
    assert!(worst <= tolerance, "{what}: a sample is off by {worst}, {tolerance} are allowed");
}
