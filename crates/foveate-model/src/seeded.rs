use std::borrow::Cow;
use std::collections::HashMap;

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use crate::hash::hex;
use crate::{ModelError, Network, Weights};

/// Values of one tensor that one task generates.
const CHUNK: usize = 1 << 14;

/// Weights computed from the tensors' names and shapes, so that a model of any size needs no file. The forward runs at
/// its real speed; the vectors have no meaning.
///
/// Value `i` (row-major) of tensor `name` is, with all integer arithmetic modulo 2⁶⁴,
/// `f32(center + amp · (2u − 1))`, `u = (mix(fnv1a64(name) + (i + 1) · 0x9E3779B97F4A7C15) >> 11) · 2⁻⁵³`,
/// where `mix` is SplitMix64's finalizer. `center` and `amp` depend on the kind of tensor and its fan-in, such that
/// activations keep a healthy scale. The same formula in any language gives the same bits.
pub struct SeededWeights {
    shapes: HashMap<String, Vec<usize>>,
    hash: String,
}

impl SeededWeights {
    /// Creates weights for every tensor of `network`.
    pub fn new(network: &Network) -> Self {
        // Names and shapes determine the values, so hashing them with a version of the formula identifies the weights.
        let mut hash = Sha256::new();
        hash.update(b"foveate seeded weights 1\n");
        let mut shapes = HashMap::new();
        for tensor in network.tensors() {
            hash.update(format!("{} {:?}\n", tensor.name, tensor.shape));
            shapes.insert(tensor.name, tensor.shape);
        }
        Self { shapes, hash: hex(&hash.finalize()) }
    }
}

impl Weights for SeededWeights {
    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Cow<'_, [f32]>, ModelError> {
        let found = self.shapes.get(name).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
        if found != shape {
            return Err(ModelError::TensorShape {
                name: name.to_owned(),
                expected: shape.to_vec(),
                found: found.clone(),
            });
        }
        Ok(Cow::Owned(generate(name, shape)))
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.shapes.get(name).cloned()
    }

    /// SHA-256 of a description of the weights: the formula's version, then names and shapes.
    fn hash(&self) -> &str {
        &self.hash
    }

    fn is_seeded(&self) -> bool {
        true
    }
}

fn generate(name: &str, shape: &[usize]) -> Vec<f32> {
    let (center, amp) = distribution(name, shape);
    let seed = fnv1a64(name);
    let mut values = vec![0.0; shape.iter().product()];
    values.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, values)| {
        for (i, value) in values.iter_mut().enumerate() {
            let index = (chunk * CHUNK + i) as u64;
            let bits = mix(seed.wrapping_add((index + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)));
            let u = (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64);
            *value = (center + amp * (2.0 * u - 1.0)) as f32;
        }
    });
    values
}

/// Returns centre and half-width of the uniform distribution of a tensor's values.
fn distribution(name: &str, shape: &[usize]) -> (f64, f64) {
    let fan_in = shape.iter().skip(1).product::<usize>() as f64;
    let is_norm = name.contains("norm");
    if name.ends_with("lambda1") || is_norm && name.ends_with("weight") {
        return (1.0, 0.5);
    }
    if is_norm && name.ends_with("bias") {
        return (0.0, 0.35);
    }
    for (end, half_width) in [
        ("position_embeddings", 0.5),
        ("cls_token", 0.87),
        ("register_tokens", 0.87),
        ("mask_token", 0.87),
        ("head.probe", 0.87),
        ("bias", 0.17),
    ] {
        if name.ends_with(end) {
            return (0.0, half_width);
        }
    }
    let gains =
        [("patch_embeddings", 1.5), (".query.", 1.2), (".key.", 1.2), (".value.", 1.4), ("attention.output", 1.4)];
    // The linear layers of the MLP and the projection are left.
    let gain = gains.iter().find(|(part, _)| name.contains(part)).map_or(0.8, |(_, gain)| *gain);
    (0.0, gain * 3f64.sqrt() / fan_in.sqrt())
}

fn fnv1a64(name: &str) -> u64 {
    name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
}

/// SplitMix64's finalizer.
fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
