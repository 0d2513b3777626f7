use safetensors::Dtype;

/// Where a tensor is in a file.
pub(crate) struct Stored {
    pub(crate) name: String,
    pub(crate) offset: u64,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
}
