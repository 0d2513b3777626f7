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

/// What turbojpeg-sys brings along; a test holds this to Cargo.lock.
const VENDORED: &str = "libjpeg-turbo 3.1.0, vendored";

/// Memory beyond this is given back after the picture that needed it.
const KEEP_BYTES: usize = 64 << 20;

/// Adds the backend to `registry`.
///
/// # Errors
/// When the name is taken.
pub fn register(registry: &mut DecoderRegistry) -> Result<(), foveate_core::RegistryError> {
    let open =
        |options: &DecoderOptions| TurboJpegDecoder::new(*options).map(|decoder| Box::new(decoder) as Box<dyn Decoder>);
    let about = "JPEG with libjpeg-turbo, exact or reduced while decoding";
    registry.register(DecoderBackend::new(NAME, about, open).with_health(health))
}

/// The library, and whether it has SIMD: which only the build knows, so without `require-simd` the answer is that it
/// depends.
fn health() -> Health {
    let simd = if cfg!(feature = "require-simd") { "SIMD" } else { "SIMD only if nasm was there when it was built" };
    // The build of turbojpeg-sys can be told to take another library.
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
/// One library handle serves all images, and no memory is taken for each beyond what the library takes itself.
#[derive(Debug)]
pub struct TurboJpegDecoder {
    options: DecoderOptions,
    library: Decompressor,
    /// Pixels of a CMYK image.
    inks: Vec<u8>,
    /// The file, where the library cannot be given the bytes as they are.
    rewritten: Vec<u8>,
    warning: Option<String>,
}

impl TurboJpegDecoder {
    /// A decoder that treats doubtful files as `options` say.
    ///
    /// # Errors
    /// [`DecodeError::Unavailable`] when the library gives no handle.
    pub fn new(options: DecoderOptions) -> Result<Self, DecodeError> {
        Ok(Self { options, library: open_library()?, inks: Vec::new(), rewritten: Vec::new(), warning: None })
    }

    /// What the library had to say against the file decoded last, although it has pixels: data that is damaged or
    /// missing (such pixels are gray, or wrong), junk between segments. `None` for nearly all files.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Decodes `encoded`, whose `structure` has been admitted, to `size`: the picture's own at `eighths` of 8.
    fn pixels(
        &mut self,
        encoded: &[u8],
        structure: &Structure,
        (eighths, size): (u32, Size),
        out: &mut PixelBuf,
    ) -> Result<(), DecodeError> {
        let failed = |error| messages::fault(&error, structure.size);
        self.library.set_scaling_factor(ScalingFactor::new(eighths as usize, 8)).map_err(failed)?;
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
        mut image: Image<&mut [u8]>,
    ) -> Result<(), DecodeError> {
        let mut outcome = attempt(&mut self.library, encoded, image.as_deref_mut());
        if let Err(error) = &outcome
            && messages::is_warning(error)
        {
            let warning = messages::text(error);
            jpeg::with_plain_header(encoded, structure, &mut self.rewritten)?;
            outcome = attempt(&mut self.library, &self.rewritten, image).map(|_| Some(warning));
        }
        if outcome.is_err() {
            // A fatal error in the header leaves the handle in the middle of that file, and the crate offers no reset:
            // the next file would be refused for its "second" SOI marker.
            self.library = open_library()?;
        }
        self.warning = outcome.map_err(|error| messages::fault(&error, structure.size))?;
        match &self.warning {
            Some(warning) => messages::check(warning, &self.options),
            None => Ok(()),
        }
    }

    fn shrink(&mut self) {
        for buffer in [&mut self.inks, &mut self.rewritten] {
            if buffer.capacity() > KEEP_BYTES {
                *buffer = Vec::new();
            }
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
        outcome.map(|()| Decoded { format, native: structure.size })
    }

    fn capability(&self) -> Capability {
        Capability { formats: FormatSet::of(&[ImageFormat::Jpeg]), scaled: true, exact_jpeg: true }
    }
}

/// The processes that are read.
const READ: [Process; 4] = [Process::Baseline, Process::Extended, Process::Progressive, Process::Arithmetic];

fn open_library() -> Result<Decompressor, DecodeError> {
    Decompressor::new().map_err(|error| DecodeError::Unavailable(messages::text(&error)))
}

fn image(size: Size, format: PixelFormat, pixels: &mut [u8]) -> Image<&mut [u8]> {
    let (width, height) = (size.width as usize, size.height as usize);
    Image { pixels, width, pitch: width * format.size(), height, format }
}

/// Decompresses into `image`: the pixels are there if this is `Ok`, with the library's first warning if it had one.
///
/// The crate reports warnings as errors. After a warning about the header it has not even begun with the pixels; all
/// other warnings come with pixels. Which it was, reading the header again tells.
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
