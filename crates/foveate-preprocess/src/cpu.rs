use std::sync::Arc;
use std::time::Instant;

use foveate_core::{BatchMemory, FaultScope, PixelBuf, Size, Stage, catch_panic, error_chain};
use foveate_decode::{DecodeError, Decoder, ImageFormat, Orientation, orientation, sniff};
use foveate_resize::{ResizeError, Resizer};

use crate::clock::timed;
use crate::strips::ResizerStrips;
use crate::{
    DecoderOpener, Granularity, ItemFault, OrientationPolicy, PreprocessError, PreprocessOptions, Preprocessor,
    PreprocessorOpener, ResizerOpener, StageClock,
};

/// Decodes, turns upright and resizes on the CPU, one image at a time.
///
/// An upright image never exists whole in memory if the decoder hands out rows and the resizer takes them. The output
/// is the same.
pub struct CpuPreprocessor {
    open_decoder: DecoderOpener,
    open_resizer: ResizerOpener,
    options: PreprocessOptions,
    decoder: Box<dyn Decoder>,
    resizer: Box<dyn Resizer>,
    pixels: PixelBuf,
    turned: PixelBuf,
}

/// The reason why an image was not prepared.
enum CpuFault {
    Item(Stage, String),
    Run(PreprocessError),
}

impl CpuPreprocessor {
    /// Opens a decoder and a resizer.
    ///
    /// # Errors
    /// If one of them cannot be opened.
    pub fn open(
        open_decoder: DecoderOpener,
        open_resizer: ResizerOpener,
        options: PreprocessOptions,
    ) -> Result<Self, PreprocessError> {
        let pixels = PixelBuf::new(options.limits).with_budget(options.budget.clone());
        Ok(Self {
            decoder: open_decoder()?,
            resizer: open_resizer()?,
            turned: pixels.second(),
            pixels,
            open_decoder,
            open_resizer,
            options,
        })
    }

    /// Returns an opener that makes such a preprocessor for each thread.
    pub fn opener(
        open_decoder: DecoderOpener,
        open_resizer: ResizerOpener,
        options: PreprocessOptions,
    ) -> PreprocessorOpener {
        PreprocessorOpener::new(Granularity::Image, options.geometry.format(), move || {
            let opened = Self::open(Arc::clone(&open_decoder), Arc::clone(&open_resizer), options.clone())?;
            Ok(Box::new(opened))
        })
    }

    /// Prepares one image; a panic counts as this image's fault.
    fn one(&mut self, bytes: &[u8], out: &mut [u8], clock: &dyn StageClock) -> Result<Size, CpuFault> {
        let done = catch_panic(|| self.try_one(bytes, out, clock));
        self.turned.shrink();
        self.pixels.shrink();
        done.unwrap_or_else(|message| {
            self.start_over().map_err(CpuFault::Run)?;
            let reason = format!("decoder or resizer panicked: {message}");
            Err(CpuFault::Item(Stage::Decode, reason))
        })
    }

    fn try_one(&mut self, bytes: &[u8], out: &mut [u8], clock: &dyn StageClock) -> Result<Size, CpuFault> {
        if let Some(size) = self.try_in_strips(bytes, out, clock)? {
            return Ok(size);
        }
        if timed(clock, Stage::Decode, || self.decode(bytes))? {
            clock.clipped();
        }
        timed(clock, Stage::Resize, || self.resize(out))?;
        Ok(self.pixels.size())
    }

    /// Resizes strips of the image as they are decoded; `None` if it must be whole.
    fn try_in_strips(
        &mut self,
        bytes: &[u8],
        out: &mut [u8],
        clock: &dyn StageClock,
    ) -> Result<Option<Size>, CpuFault> {
        let (Some(decoder), Some(resizer)) = (self.decoder.rows(), self.resizer.rows()) else { return Ok(None) };
        let Ok(format) = sniff(bytes) else { return Ok(None) };
        if turn(&self.options, bytes, format) != Orientation::Normal {
            return Ok(None);
        }
        let mut strips = ResizerStrips::new(resizer, self.options.geometry);
        let start = Instant::now();
        let decoded = decoder.decode_rows(bytes, self.options.hint, &mut self.pixels, &mut strips);
        let both = start.elapsed();
        if let Ok(None) = decoded {
            return Ok(None);
        }
        // The stages take turns. A trace shows them one after the other, each with its sum.
        let decoding = both.saturating_sub(strips.resizing);
        clock.span(Stage::Decode, start, decoding);
        decoded.map_err(decode_fault)?;
        let size = strips.finish(out).map_err(resize_fault);
        clock.span(Stage::Resize, start + decoding, start.elapsed().saturating_sub(decoding));
        size.map(Some)
    }

    /// Decodes an image, upright. Returns true if its gray was clipped.
    fn decode(&mut self, bytes: &[u8]) -> Result<bool, CpuFault> {
        let decoded = self.decoder.decode(bytes, self.options.hint, &mut self.pixels).map_err(decode_fault)?;
        let turn = turn(&self.options, bytes, decoded.format);
        let turned = turn.apply(&mut self.pixels, &mut self.turned);
        turned.map_err(|error| CpuFault::Item(Stage::Decode, error_chain(&error)))?;
        Ok(decoded.is_clipped)
    }

    fn resize(&mut self, out: &mut [u8]) -> Result<(), CpuFault> {
        let plan = self.options.geometry.plan(self.pixels.size());
        self.resizer.resize_into(self.pixels.view(), &plan, out).map_err(resize_fault)
    }

    fn start_over(&mut self) -> Result<(), PreprocessError> {
        self.decoder = (self.open_decoder)()?;
        self.resizer = (self.open_resizer)()?;
        self.pixels = PixelBuf::new(self.options.limits).with_budget(self.options.budget.clone());
        self.turned = self.pixels.second();
        Ok(())
    }
}

impl Preprocessor for CpuPreprocessor {
    fn preprocess(
        &mut self,
        images: &[&[u8]],
        out: &mut dyn BatchMemory,
        prepared: &mut Vec<Result<Size, ItemFault>>,
        clock: &dyn StageClock,
    ) -> Result<(), PreprocessError> {
        let image_len = self.options.geometry.format().bytes();
        let room = out.bytes();
        let slots = out.host_mut().filter(|_| images.len() * image_len <= room).ok_or_else(|| {
            PreprocessError::Unsupported(format!(
                "no room for {} images of {image_len} bytes on the host",
                images.len()
            ))
        })?;
        let mut slots = slots.chunks_exact_mut(image_len.max(1));
        prepared.clear();
        let mut slot = slots.next();
        for bytes in images {
            let Some(free) = slot.as_deref_mut() else { break };
            prepared.push(match self.one(bytes, free, clock) {
                Ok(size) => {
                    slot = slots.next();
                    Ok(size)
                }
                Err(CpuFault::Item(stage, reason)) => Err(ItemFault { stage, reason }),
                Err(CpuFault::Run(error)) => return Err(error),
            });
        }
        Ok(())
    }
}

fn decode_fault(error: DecodeError) -> CpuFault {
    match error.scope() {
        FaultScope::Item => CpuFault::Item(Stage::Decode, error_chain(&error)),
        FaultScope::Run => CpuFault::Run(error.into()),
    }
}

fn resize_fault(error: ResizeError) -> CpuFault {
    match error.scope() {
        FaultScope::Item => CpuFault::Item(Stage::Resize, error_chain(&error)),
        FaultScope::Run => CpuFault::Run(error.into()),
    }
}

/// Returns the turn that makes the image upright.
fn turn(options: &PreprocessOptions, bytes: &[u8], format: ImageFormat) -> Orientation {
    match options.orientation {
        OrientationPolicy::Apply => orientation(bytes, format),
        OrientationPolicy::Ignore => Orientation::Normal,
    }
}
