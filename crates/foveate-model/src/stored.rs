use safetensors::Dtype;

/// The place of a tensor in a file.
pub(crate) struct StoredTensor {
    pub(crate) name: String,
    pub(crate) offset: u64,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
}
