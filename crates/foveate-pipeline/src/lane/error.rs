use foveate_encode::EncodeError;

/// The reason why a batch has no vectors. The other batches in flight are lost with it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaneError {
    /// The encoder failed.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The encoder violated its contract.
    #[error("the encoder gave {rows}x{dim} values for {images} images; this is a defect, please report it")]
    Shape {
        /// Vectors that it returned.
        rows: usize,
        /// Components per vector.
        dim: usize,
        /// Images that it was given.
        images: usize,
    },
}
