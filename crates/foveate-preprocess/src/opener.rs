use std::fmt;
use std::sync::Arc;

use foveate_core::InputFormat;
use foveate_decode::{DecodeError, Decoder};
use foveate_resize::{ResizeError, Resizer};

use crate::{PreprocessError, Preprocessor};

/// Makes a thread's own instance; called again after a panic, which leaves a decoder in an unknown state.
pub type Opener<T, E> = Arc<dyn Fn() -> Result<T, E> + Send + Sync>;
/// Makes decoders.
pub type DecoderOpener = Opener<Box<dyn Decoder>, DecodeError>;
/// Makes resizers.
pub type ResizerOpener = Opener<Box<dyn Resizer>, ResizeError>;

/// The number of images that a preprocessor takes per call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granularity {
    /// One. Several threads prepare a batch's images in parallel, each with its own preprocessor.
    Image,
    /// A whole batch: a device works on all images at once, so they must be gathered first.
    Batch,
}

/// Makes a preprocessor for each thread. All of them prepare an image identically.
#[derive(Clone)]
pub struct PreprocessorOpener {
    granularity: Granularity,
    output: InputFormat,
    open: Opener<Box<dyn Preprocessor>, PreprocessError>,
}

impl PreprocessorOpener {
    /// Wraps `open`, whose preprocessors produce images in this format; a [`Size`](foveate_core::Size) means samples of
    /// u8.
    pub fn new<F>(granularity: Granularity, output: impl Into<InputFormat>, open: F) -> Self
    where
        F: Fn() -> Result<Box<dyn Preprocessor>, PreprocessError> + Send + Sync + 'static,
    {
        Self { granularity, output: output.into(), open: Arc::new(open) }
    }

    /// The number of images that its preprocessors take per call.
    pub fn granularity(&self) -> Granularity {
        self.granularity
    }

    /// Size and samples of every prepared image.
    pub fn output(&self) -> InputFormat {
        self.output
    }

    /// Makes a preprocessor.
    ///
    /// # Errors
    /// If its decoder, resizer or device cannot be opened.
    pub fn open(&self) -> Result<Box<dyn Preprocessor>, PreprocessError> {
        (self.open)()
    }
}

impl fmt::Debug for PreprocessorOpener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { granularity, output, .. } = self;
        f.debug_struct("PreprocessorOpener")
            .field("granularity", granularity)
            .field("output", output)
            .finish_non_exhaustive()
    }
}
