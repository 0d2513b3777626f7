//! AVIF: the primary image of a HEIF container, as stored. Alpha is dropped, and so not even decoded.

use foveate_core::{PixelBuf, Size};
use foveate_decode::{DecodeError, ImageFormat, heif};

use crate::av1;
use crate::read_image::{ReadImage, admit};
use crate::yuv::YuvImage;

const FORMAT: ImageFormat = ImageFormat::Avif;

pub(crate) fn decode(encoded: &[u8], out: &mut PixelBuf) -> Result<ReadImage, DecodeError> {
    let still = heif::still_image(encoded).map_err(|reason| DecodeError::corrupt(FORMAT, reason))?;
    let size = still.size;
    // Three planes, in the decoder and in our copies, of two bytes for a sample.
    admit(FORMAT, size, size.pixels().saturating_mul(12), out)?;
    let mut canvas: Option<YuvImage> = None;
    let count = still.tiles.len();
    for (index, tile) in still.tiles.into_iter().enumerate() {
        let tile = av1::decode(tile, out.limits()).map_err(|reason| DecodeError::corrupt(FORMAT, reason))?;
        if count == 1 {
            if tile.size() != size {
                let reason = format!("its image is {}, and the container says {size}", tile.size());
                return Err(DecodeError::corrupt(FORMAT, reason));
            }
            canvas = Some(tile);
            break;
        }
        let whole = canvas.get_or_insert_with(|| tile.blank(size));
        let left = (index % still.columns) as u32 * tile.size().width;
        let top = (index / still.columns) as u32 * tile.size().height;
        if !whole.paste(&tile, Size::new(left, top)) {
            return Err(DecodeError::corrupt(FORMAT, "its tiles do not fit together"));
        }
    }
    let mut image = canvas.ok_or_else(|| DecodeError::corrupt(FORMAT, "it has no tiles"))?;
    image.color = still.color.unwrap_or(image.color);
    let pixels = out.reset(size)?;
    image.to_rgb(pixels).map_err(|reason| DecodeError::unsupported(FORMAT, reason))?;
    Ok(ReadImage { size, is_clipped: false })
}
