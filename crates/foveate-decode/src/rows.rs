use foveate_core::{PixelBuf, Size};

use crate::{DecodeError, DecodeHint, Decoded};

/// A decoder that can hand out an image in strips, so that it never exists whole in memory.
pub trait RowDecoder {
    /// Decodes `encoded` to the pixels of [`Decoder::decode`](crate::Decoder::decode), or to its error, and gives them
    /// to `sink` from top to bottom. `strip` is scratch memory with the image's limits.
    ///
    /// Returns `None` if the decoder has no rows for this image or if the sink refuses its size. The sink must forget
    /// the rows that came before an error.
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
    /// Announces the size of the decoded image, before any row; returns whether to go on.
    fn begin(&mut self, size: Size) -> bool;

    /// Takes the next rows, RGB8 without padding.
    fn rows(&mut self, samples: &[u8]);
}
