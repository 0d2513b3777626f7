#![doc = include_str!("../README.md")]

mod by_format;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod format;
pub mod heif;
pub mod jpeg;
mod orientation;
pub mod raw;
mod sniff;

use foveate_core::{Health, PixelBuf, Region, Registry, Size, named_backend};

pub use by_format::ByFormat;
pub use error::DecodeError;
pub use format::{FormatSet, ImageFormat};
pub use orientation::{Orientation, orientation};
pub use sniff::{DEEP_GRAY_BYTES, may_have_deep_gray, sniff};

/// Turns the bytes of one image into RGB8 pixels. One instance per thread, reused for every image.
pub trait Decoder: Send {
    /// Decodes `encoded` into `out` as RGB8 `[h, w, 3]`, **as stored** (EXIF orientation is not applied, ICC profiles
    /// are ignored, alpha is dropped the way Pillow's `convert("RGB")` does). `out`'s limits are checked before any
    /// pixel memory is taken, by [`PixelBuf::admit`] if the decoder takes some before [`PixelBuf::reset`]. `out` is
    /// empty after an error.
    ///
    /// Without a hint the image has its native size, exactly. [`DecodeHint::min_side`] *permits* a smaller one.
    fn decode(&mut self, encoded: &[u8], hint: DecodeHint, out: &mut PixelBuf) -> Result<Decoded, DecodeError>;

    /// The backend's capabilities; selects its conformance tests.
    fn capability(&self) -> Capability;

    /// The same decoder handing out rows, if it can.
    fn rows(&mut self) -> Option<&mut dyn RowDecoder> {
        None
    }
}

/// A decoder that can hand out an image in strips, so that it never exists whole in memory.
pub trait RowDecoder {
    /// Decodes `encoded` to the pixels of [`Decoder::decode`], or to its error, and gives the rows that `sink` wants to
    /// it from top to bottom. `strip` is scratch memory with the image's limits.
    ///
    /// Returns `None` if the decoder has no rows for this image or if the sink wants none. The sink must forget the
    /// rows that came before an error.
    fn decode_rows(
        &mut self,
        encoded: &[u8],
        hint: DecodeHint,
        strip: &mut PixelBuf,
        sink: &mut dyn RowSink,
    ) -> Result<Option<Decoded>, DecodeError>;
}

/// Receives an image's rows.
pub trait RowSink {
    /// Announces the size of the decoded image, before any row. Returns the wanted part, or `None` if the image must
    /// be whole.
    fn begin(&mut self, size: Size) -> Option<Region>;

    /// Takes the next wanted rows, RGB8 without padding. Their samples outside of the wanted columns mean nothing.
    fn rows(&mut self, samples: &[u8]);
}

/// Deviations from exact decoding at native size that the caller permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeHint {
    /// Permission to return a smaller image (DCT scaling) whose **shorter** side is still at least this many pixels.
    pub min_side: Option<u32>,
    /// Permission to decode only the frequencies that the smaller image shows, with pixels that differ from those of
    /// libjpeg-turbo at the same scale, of at most [`DecodeHint::LOW_EIGHTHS`] eighths. An image that may not be that
    /// small keeps its native size. No effect without `min_side`; decoders without this feature ignore it.
    pub low_frequencies: bool,
}

impl DecodeHint {
    /// The largest scale of images with low frequencies alone. At 5/8 to 7/8 they lose frequencies that the resized
    /// image shows, and recall.
    pub const LOW_EIGHTHS: u32 = 4;
}

/// A decoded image's properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The container, found by content.
    pub format: ImageFormat,
    /// Size stored in the file, before any scaling and before orientation.
    pub native: Size,
    /// True if the file has gray in more than 8 bits, or in floats, of which the pixels are what is left after clipping
    /// to 0..=255. Different pictures may have the same pixels then.
    pub is_clipped: bool,
}

/// A decoder backend's capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Containers it reads.
    pub formats: FormatSet,
    /// True if it honours [`DecodeHint::min_side`].
    pub scaled: bool,
    /// True if it honours [`DecodeHint::low_frequencies`].
    pub low_frequencies: bool,
    /// True if its JPEG pixels equal libjpeg-turbo's (islow DCT, fancy upsampling) exactly.
    pub exact_jpeg: bool,
}

/// Treatment of questionable input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderOptions {
    /// Accepts a truncated JPEG, PNG or GIF, or uncompressed BMP or TIFF, and keeps the part that could be decoded;
    /// otherwise it is [`DecodeError::Truncated`]. Truncated files of other kinds are always refused.
    pub allow_truncated: bool,
    /// Most scans of one progressive JPEG; half a megabyte of scans can keep a decoder busy for a minute.
    pub max_scans: u32,
}

impl Default for DecoderOptions {
    fn default() -> Self {
        Self { allow_truncated: false, max_scans: 500 }
    }
}

type Open = dyn Fn(&DecoderOptions) -> Result<Box<dyn Decoder>, DecodeError> + Send + Sync;

/// A named way to make decoders.
pub struct DecoderBackend {
    name: &'static str,
    about: &'static str,
    open: Box<Open>,
    health: fn() -> Health,
}

impl DecoderBackend {
    /// A backend called `name`; `open` makes one decoder, for one thread.
    pub fn new<F>(name: &'static str, about: &'static str, open: F) -> Self
    where
        F: Fn(&DecoderOptions) -> Result<Box<dyn Decoder>, DecodeError> + Send + Sync + 'static,
    {
        Self { name, about, open: Box::new(open), health: Health::all_rust }
    }

    /// Makes [`foveate_core::Backend::health`] call `health`; without it, the backend counts as pure Rust.
    #[must_use]
    pub fn with_health(self, health: fn() -> Health) -> Self {
        Self { health, ..self }
    }

    /// Makes a decoder for one thread.
    pub fn open(&self, options: &DecoderOptions) -> Result<Box<dyn Decoder>, DecodeError> {
        (self.open)(options)
    }
}

named_backend!(DecoderBackend);

/// The decoders compiled into a program.
pub type DecoderRegistry = Registry<DecoderBackend>;
