//! JPEG XL with jxl-oxide: the first frame, upright, in the colours that the file is coded in.

use std::io::{Error, ErrorKind};

use foveate_core::{PixelBuf, Size};
use foveate_decode::{DecodeError, ImageFormat};
use jxl_oxide::{AllocTracker, JxlImage, JxlThreadPool, PixelFormat};

use crate::read_image::{ReadImage, admit, budget};

const FORMAT: ImageFormat = ImageFormat::JpegXl;

pub(crate) fn decode(encoded: &[u8], out: &mut PixelBuf) -> Result<ReadImage, DecodeError> {
    let most = usize::try_from(budget(out.limits())).unwrap_or(usize::MAX);
    let builder = JxlImage::builder().pool(JxlThreadPool::none()).alloc_tracker(AllocTracker::with_limit(most));
    let image = builder.read(encoded).map_err(|error| fault(error.as_ref()))?;
    let size = Size::new(image.width(), image.height());
    // Three planes of 32-bit samples. The library itself refuses more than its limit.
    admit(FORMAT, size, size.pixels().saturating_mul(12), out)?;
    let channels = match image.pixel_format() {
        PixelFormat::Gray | PixelFormat::Graya => 1,
        PixelFormat::Rgb | PixelFormat::Rgba => 3,
        other => return Err(DecodeError::unsupported(FORMAT, format!("{other:?} samples"))),
    };
    if image.num_loaded_keyframes() == 0 {
        return Err(DecodeError::truncated(FORMAT, "it ends before its first frame does"));
    }
    let frame = image.render_frame(0).map_err(|error| fault(error.as_ref()))?;
    let mut stream = frame.stream_no_alpha();
    if (stream.width(), stream.height()) != (size.width, size.height) || stream.channels() != channels {
        return Err(DecodeError::corrupt(FORMAT, "its frame has another size than the image"));
    }
    let pixels = out.reset(size)?;
    if channels == 3 {
        stream.write_to_buffer(pixels);
    } else {
        let mut row = vec![0_u8; size.width as usize];
        for target in pixels.chunks_exact_mut(row.len() * 3) {
            stream.write_to_buffer(&mut row);
            for (pixel, gray) in target.as_chunks_mut::<3>().0.iter_mut().zip(&row) {
                *pixel = [*gray; 3];
            }
        }
    }
    Ok(ReadImage { size, is_clipped: false })
}

fn fault(error: &(dyn std::error::Error + Send + Sync + 'static)) -> DecodeError {
    let ends = error.downcast_ref::<Error>().is_some_and(|error| error.kind() == ErrorKind::UnexpectedEof);
    let text = error.to_string();
    if ends || text.contains("unexpected end") {
        return DecodeError::truncated(FORMAT, text);
    }
    if text.contains("out of memory") {
        return DecodeError::TooCostly(format!("{FORMAT} takes too much memory: {text}"));
    }
    DecodeError::corrupt(FORMAT, text)
}
