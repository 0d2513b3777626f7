use foveate_cuda::CudaError;
use foveate_preprocess::PreprocessError;

/// What a failing device means while it is in use.
pub(crate) fn fault(error: CudaError) -> PreprocessError {
    PreprocessError::Engine(error.into())
}
