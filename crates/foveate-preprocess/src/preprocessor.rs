use foveate_core::{BatchMemory, Size};

use crate::{ItemFault, PreprocessError, StageClock};

/// Makes an encoder's input of encoded images. One per thread; it owns what it needs between calls.
pub trait Preprocessor: Send {
    /// Prepares `images`, at most as many as `out` has room for. Of those that succeed, the first lies at the start of
    /// `out` and each next one behind it, `[h, w, 3]` u8 RGB of the [`output`](foveate_resize::Geometry::output) size, in the order of `images`.
    /// `prepared` is cleared and gets one entry for each image: its size upright and before resizing, or what was wrong
    /// with it. All is done when this returns, on a device too.
    ///
    /// # Errors
    /// Only what concerns every image: a library that is missing, a device that failed, memory that is on no place that
    /// this one can write to.
    fn preprocess(
        &mut self,
        images: &[&[u8]],
        out: &mut dyn BatchMemory,
        prepared: &mut Vec<Result<Size, ItemFault>>,
        clock: &dyn StageClock,
    ) -> Result<(), PreprocessError>;
}
