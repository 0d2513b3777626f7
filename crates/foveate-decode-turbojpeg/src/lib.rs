#![doc = include_str!("../README.md")]

mod messages;
mod scale;

use foveate_core::{Health, LimitError, PixelBuf, Size};
use foveate_decode::jpeg::{self, Process, Structure};
use foveate_decode::{
    Capability, DecodeError, DecodeHint, Decoded, Decoder, DecoderBackend, DecoderOptions, DecoderRegistry, FormatSet,
    ImageFormat, sniff,
};
use turbojpeg::{Decompressor, Image, PixelFormat, ScalingFactor};

/// The backend's name on the command line.
pub const NAME: &str = "turbojpeg";

/// The library inside turbojpeg-sys; a test compares this with Cargo.lock.
const VENDORED: &str = "libjpeg-turbo 3.1.0, vendored";

/// Adds the backend to `registry`.
///
/// # Errors
/// If the name is taken.
pub fn register(registry: &mut DecoderRegistry) -> Result<(), foveate_core::RegistryError> {
    let open =
        |options: &DecoderOptions| TurboJpegDecoder::new(*options).map(|decoder| Box::new(decoder) as Box<dyn Decoder>);
    let about = "JPEG with libjpeg-turbo, exact or reduced while decoding";
    registry.register(DecoderBackend::new(NAME, about, open).with_health(health))
}

/// Reports the library and whether it has SIMD. Only the build knows the latter, so without `require-simd` the answer
/// is "it depends".
fn health() -> Health {
    let simd = if cfg!(feature = "require-simd") { "SIMD" } else { "SIMD only if nasm was there when it was built" };
    // The build of turbojpeg-sys can be pointed at another library.
    let library = match option_env!("TURBOJPEG_SOURCE") {
        None | Some("vendor") => format!("{VENDORED}, {simd}"),
        Some(source) => format!("libjpeg-turbo from TURBOJPEG_SOURCE={source}"),
    };
    match Decompressor::new() {
        Ok(_) => Health::library(library),
        Err(error) => Health::broken(format!("{library}: {error}"), "rebuild with `-F turbojpeg`"),
    }
}

/// Decodes JPEG with libjpeg-turbo, straight into the caller's buffer: exactly, or with [`DecodeHint::min_side`] at
/// 1/2, 1/4 or 1/8 of the size.
///
/// One library handle serves all images, and only the library itself allocates memory per image.
#[derive(Debug)]
pub struct TurboJpegDecoder {
    options: DecoderOptions,
    library: Decompressor,
    /// Pixels of a CMYK image.
    inks: Vec<u8>,
    warning: Option<String>,
}

impl TurboJpegDecoder {
    /// A decoder that treats questionable files as `options` say.
    ///
    /// # Errors
    /// [`DecodeError::Unavailable`] if the library returns no handle.
    pub fn new(options: DecoderOptions) -> Result<Self, DecodeError> {
        Ok(Self { options, library: open_library()?, inks: Vec::new(), warning: None })
    }

    /// The library's warning about the file decoded last: damaged or missing data (such pixels are gray, or wrong), or
    /// junk between segments. `None` for nearly all files.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Decodes `encoded` to `size`, the picture's size at `eighths`/8; its `structure` must have been admitted.
    fn pixels(
        &mut self,
        encoded: &[u8],
        structure: &Structure,
        (eighths, size): (u32, Size),
        out: &mut PixelBuf,
    ) -> Result<(), DecodeError> {
        self.library
            .set_scaling_factor(ScalingFactor::new(eighths as usize, 8))
            .map_err(|error| messages::fault(&error, structure.size))?;
        out.admit(size, structure.coefficient_bytes())?;
        let rgb = out.reset(size)?;
        if structure.components < 4 {
            return self.decompress(encoded, structure, image(size, PixelFormat::RGB, rgb));
        }
        let mut inks = std::mem::take(&mut self.inks);
        let wanted = rgb.len() / 3 * 4;
        let reserved = inks.try_reserve_exact(wanted.saturating_sub(inks.len()));
        reserved.map_err(|_| LimitError::OutOfMemory { size })?;
        inks.resize(wanted, 0);
        let outcome = self.decompress(encoded, structure, image(size, PixelFormat::CMYK, &mut inks));
        for (pixel, stored) in rgb.as_chunks_mut().0.iter_mut().zip(inks.as_chunks().0) {
            *pixel = jpeg::cmyk_to_rgb(*stored);
        }
        self.inks = inks;
        outcome
    }

    fn decompress(
        &mut self,
        encoded: &[u8],
        structure: &Structure,
        image: Image<&mut [u8]>,
    ) -> Result<(), DecodeError> {
        let outcome = attempt(&mut self.library, encoded, image);
        if outcome.is_err() {
            // A fatal error in the header leaves the handle in the middle of that file, and the crate offers no reset:
            // it would refuse the next file for its "second" SOI marker.
            self.library = open_library()?;
        }
        self.warning = outcome.map_err(|error| messages::fault(&error, structure.size))?;
        match &self.warning {
            Some(warning) => messages::check(warning, &self.options),
            None => Ok(()),
        }
    }

    fn shrink(&mut self) {
        if self.inks.capacity() > PixelBuf::KEEP_BYTES {
            self.inks = Vec::new();
        }
    }
}

impl Decoder for TurboJpegDecoder {
    fn decode(&mut self, encoded: &[u8], hint: DecodeHint, out: &mut PixelBuf) -> Result<Decoded, DecodeError> {
        out.clear();
        self.warning = None;
        let format = sniff(encoded)?;
        if format != ImageFormat::Jpeg {
            return Err(DecodeError::unsupported(format, "turbojpeg reads JPEG only"));
        }
        let structure = jpeg::inspect(encoded, self.options.max_scans)?;
        structure.admit_with(out.limits(), &self.options, &READ)?;
        let encoded = jpeg::completed(encoded, &structure);
        let scale = scale::choose(structure.size, hint);
        let outcome = self.pixels(&encoded, &structure, scale, out).inspect_err(|_| out.clear());
        self.shrink();
        outcome.map(|()| Decoded { format, native: structure.size, is_clipped: false })
    }

    fn capability(&self) -> Capability {
        Capability {
            formats: FormatSet::of(&[ImageFormat::Jpeg]),
            scaled: true,
            low_frequencies: false,
            exact_jpeg: true,
        }
    }
}

/// The processes that this decoder reads.
const READ: [Process; 4] = [Process::Baseline, Process::Extended, Process::Progressive, Process::Arithmetic];

fn open_library() -> Result<Decompressor, DecodeError> {
    Decompressor::new().map_err(|error| DecodeError::Unavailable(messages::text(&error).into()))
}

fn image(size: Size, format: PixelFormat, pixels: &mut [u8]) -> Image<&mut [u8]> {
    let width = size.width as usize;
    let height = size.height as usize;
    Image { pixels, width, pitch: width * format.size(), height, format }
}

/// Decompresses into `image`. `Ok` means that the pixels are there, and holds the library's first warning, if any.
///
/// The crate reports warnings as errors. After a warning about the header it has not started on the pixels; all other
/// warnings come with pixels. Reading the header again tells the two cases apart.
fn attempt(
    library: &mut Decompressor,
    encoded: &[u8],
    image: Image<&mut [u8]>,
) -> Result<Option<String>, turbojpeg::Error> {
    match library.decompress(encoded, image) {
        Ok(()) => Ok(None),
        Err(error) if messages::is_warning(&error) && library.read_header(encoded).is_ok() => {
            Ok(Some(messages::text(&error)))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use foveate_decode::conformance::samples;

    use super::*;

    /// The JPEG sample with its JFIF segment replaced by other bytes.
    fn with_header(bytes: &[u8]) -> Vec<u8> {
        let jfif = 2 + usize::from(u16::from_be_bytes([samples::JPEG[4], samples::JPEG[5]]));
        [&samples::JPEG[..2], bytes, &samples::JPEG[2 + jfif..]].concat()
    }

    #[test]
    fn the_library_is_the_one_that_health_names() {
        let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).unwrap();
        let vendoring = "name = \"turbojpeg-sys\"\nversion = \"1.2.0\"";
        assert!(lock.contains(vendoring), "another turbojpeg-sys, perhaps with another libjpeg-turbo than {VENDORED}");
        let health = health();
        assert_eq!(health.problem, None);
        assert!(health.library.is_some_and(|library| library.starts_with("libjpeg-turbo")));
    }

    /// The crate gives no pixels after such warnings: another decoder takes the file.
    #[test]
    fn a_header_with_warnings_is_unsupported() {
        let headers: [(&[u8], &str); 4] = [
            (b"\xFF\xFE\0\x02junk", "extraneous bytes"),
            (b"\xFF\xE0\0\x10JFIF\0\x09\0\0\0\x01\0\x01\0\0", "JFIF revision"),
            (b"\xFF\xE2\0\x12ICC_PROFILE\0\x07\x02ab", "bad ICC marker"),
            (b"\xFF\xEE\0\x0EAdobe\0\x64\0\0\0\0\x07", "Adobe color transform"),
        ];
        let mut decoder = TurboJpegDecoder::new(DecoderOptions::default()).expect("a handle");
        let mut out = PixelBuf::default();
        for (header, expected) in headers {
            let error = decoder.decode(&with_header(header), DecodeHint::default(), &mut out).expect_err(expected);
            assert!(matches!(error, DecodeError::Unsupported { .. }), "{error}");
            assert!(foveate_core::error_chain(&error).contains(expected), "{error}");
        }
        decoder.decode(samples::JPEG, DecodeHint::default(), &mut out).expect("the sample");
        assert_eq!(decoder.warning(), None);
    }

    #[test]
    fn damaged_data_has_pixels_and_a_warning() {
        let bytes = samples::JPEG;
        let damaged = [&bytes[..bytes.len() - 20], b"\xFF\xD9"].concat();
        let mut decoder = TurboJpegDecoder::new(DecoderOptions::default()).expect("a handle");
        let mut out = PixelBuf::default();
        decoder.decode(&damaged, DecodeHint::default(), &mut out).expect("pixels");
        assert_eq!(decoder.warning(), Some("Corrupt JPEG data: premature end of data segment"));
        assert_eq!(out.size(), samples::SIZE);
    }

    #[test]
    fn memory_beyond_the_usual_is_given_back() {
        let mut decoder = TurboJpegDecoder::new(DecoderOptions::default()).expect("a handle");
        decoder.inks = Vec::with_capacity(PixelBuf::KEEP_BYTES + 1);
        decoder.shrink();
        assert_eq!(decoder.inks.capacity(), 0);
    }
}
