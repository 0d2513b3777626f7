use std::fmt;
use std::sync::Arc;

use foveate_core::Size;
use foveate_decode::{DecodeError, Decoder};
use foveate_resize::{ResizeError, Resizer};

use crate::{PreprocessError, Preprocessor};

/// Makes what a thread needs for itself; asked again after a panic, which leaves a decoder in an unknown state.
pub type Opener<T, E> = Arc<dyn Fn() -> Result<T, E> + Send + Sync>;
/// Makes decoders.
pub type DecoderOpener = Opener<Box<dyn Decoder>, DecodeError>;
/// Makes resizers.
pub type ResizerOpener = Opener<Box<dyn Resizer>, ResizeError>;

/// How many images a preprocessor wants in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granularity {
    /// One. Several threads prepare the images of a batch side by side, each with a preprocessor of its own.
    Image,
    /// All of a batch: a device works on them at once, and needs them gathered first.
    Batch,
}

/// Makes a preprocessor for each thread that needs one. All of them prepare an image alike.
#[derive(Clone)]
pub struct PreprocessorOpener {
    granularity: Granularity,
    output: Size,
    open: Opener<Box<dyn Preprocessor>, PreprocessError>,
}

impl PreprocessorOpener {
    /// Preprocessors that `open` makes, which give images of the size `output`.
    pub fn new<F>(granularity: Granularity, output: Size, open: F) -> Self
    where
        F: Fn() -> Result<Box<dyn Preprocessor>, PreprocessError> + Send + Sync + 'static,
    {
        Self { granularity, output, open: Arc::new(open) }
    }

    /// How many images they want in one call.
    pub fn granularity(&self) -> Granularity {
        self.granularity
    }

    /// The size of every image that they give.
    pub fn output(&self) -> Size {
        self.output
    }

    /// Makes one.
    ///
    /// # Errors
    /// When its decoder, resizer or device cannot be opened.
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
