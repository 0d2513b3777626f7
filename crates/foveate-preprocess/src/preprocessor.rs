use foveate_core::{BatchMemory, Size};

use crate::{ItemFault, PreprocessError, StageClock};

/// Turns encoded images into an encoder's input. One per thread; it owns its state between calls.
pub trait Preprocessor: Send {
    /// Prepares `images`, at most as many as fit into `out`. Successful images are packed from the start of `out`
    /// without gaps, in the order of `images`. Each is `[h, w, 3]` u8 RGB of the
    /// [`output`](foveate_resize::Geometry::output) size.
    ///
    /// `prepared` is cleared and gets one entry per image: its upright size before resizing, or its fault. All work is
    /// complete on return, on a device too.
    ///
    /// # Errors
    /// Only errors that affect every image: a missing library, a failed device, or memory that this preprocessor cannot
    /// write.
    fn preprocess(
        &mut self,
        images: &[&[u8]],
        out: &mut dyn BatchMemory,
        prepared: &mut Vec<Result<Size, ItemFault>>,
        clock: &dyn StageClock,
    ) -> Result<(), PreprocessError>;
}
