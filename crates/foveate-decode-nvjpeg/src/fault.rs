use foveate_cuda::CudaError;
use foveate_preprocess::PreprocessError;

/// Converts a device's error while it is in use.
pub(crate) fn fault(error: CudaError) -> PreprocessError {
    PreprocessError::Engine(error.into())
}
