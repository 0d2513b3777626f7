//! The numerics that do not need an engine, against what `transformers` and the reference formula gave.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use foveate_dinov2::{Model, interpolate_positions};
use safetensors::SafeTensors;

fn fixture(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures")).join(path)
}

fn f32s(file: &SafeTensors<'_>, key: &str) -> Vec<f32> {
    let bytes = file.tensor(key).unwrap();
    bytes.data().as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
}

#[test]
fn positions_are_interpolated_as_transformers_does() {
    for name in ["tiny", "tiny-reg", "tiny-swiglu"] {
        let model = Model::from_folder(&fixture("models").join(name)).unwrap();
        let stored_shape = [1, 1 + model.config.stored_grid().patches(), 64];
        let stored = model.weights.tensor("embeddings.position_embeddings", &stored_shape).unwrap();
        let bytes = std::fs::read(fixture(&format!("goldens/unit_{name}.safetensors"))).unwrap();
        let goldens = SafeTensors::deserialize(&bytes).unwrap();
        for (key, height, width) in [("pos_embed.hf_224", 16, 16), ("pos_embed.hf_224x336", 16, 24)] {
            let ours = interpolate_positions(&model.config, &stored, height, width);
            let theirs = f32s(&goldens, key);
            assert_eq!(ours.len(), theirs.len());
            let worst = ours.iter().zip(&theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            println!("{name} {key}: {worst:e}");
            assert!(worst <= 1e-6, "{name} {key}: {worst}");
        }
    }
}
