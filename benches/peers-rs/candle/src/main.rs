//! Class tokens of candle-transformers' DINOv2-small: `foveate-peers-candle FILE` reads weights (by Meta's names) and
//! `pixels` from a safetensors file, and writes the vectors of all images as little-endian f32 to standard output.

use std::io::Write;

use candle_core::{DType, Device, Module, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::dinov2;

/// Components of a vector.
const DIM: usize = 384;
/// Outputs of the classifier at the model's end.
const CLASSES: usize = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("which file?")?;
    let mut tensors = candle_core::safetensors::load(path, &Device::Cpu)?;
    let pixels = tensors.remove("pixels").ok_or("no pixels")?;
    // The model ends in a classifier of the class token and the patches' mean. This one copies the class token.
    let mut identity = vec![0.0_f32; CLASSES * 2 * DIM];
    (0..DIM).for_each(|at| identity[at * 2 * DIM + at] = 1.0);
    tensors.insert("head.weight".to_owned(), Tensor::from_vec(identity, (CLASSES, 2 * DIM), &Device::Cpu)?);
    tensors.insert("head.bias".to_owned(), Tensor::zeros(CLASSES, DType::F32, &Device::Cpu)?);
    let model = dinov2::vit_small(VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu))?;
    let mut out = std::io::stdout().lock();
    for image in 0..pixels.dim(0)? {
        let vector: Vec<f32> = model.forward(&pixels.narrow(0, image, 1)?)?.flatten_all()?.to_vec1()?;
        vector[..DIM].iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))?;
    }
    Ok(())
}
