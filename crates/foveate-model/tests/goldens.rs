//! Compares the numerics that need no engine with `transformers` and the reference formula; and tests a real model.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use foveate_core::Size;
use foveate_model::{Card, Grid, Interpolation, Model, PositionTable, SeededWeights, Weights, interpolate_positions};
use foveate_testkit::{data, run, trials};
use safetensors::SafeTensors;
use serde_json::Value;

fn main() -> ExitCode {
    run(trials![
        positions_are_interpolated_as_transformers_does,
        positions_are_interpolated_to_other_shapes_too,
        the_filters_are_those_of_torch_when_shrinking_and_when_growing,
        the_real_vit_tiny_is_what_its_files_say,
        positions_of_the_stored_grid_come_back_as_they_are,
        a_constant_stays_constant_at_any_size,
        seeded_weights_have_the_bits_of_the_reference,
        every_kind_of_seeded_tensor_has_the_bits_of_the_reference,
    ])
}

fn fixture(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures")).join(path)
}

fn f32s(file: &SafeTensors<'_>, key: &str) -> Option<Vec<f32>> {
    let tensor = file.tensor(key).ok()?;
    Some(tensor.data().as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect())
}

/// Compares the interpolated positions of a tiny model with every golden in `goldens`; returns their number.
fn check_positions(name: &str, goldens: &Path) -> usize {
    let model = Model::from_folder(&fixture("models").join(name)).unwrap();
    let table = model.network.positions.unwrap();
    let stored = model.weights.tensor("embeddings.position_embeddings", &[1, table.rows(), 64]).unwrap();
    let bytes = std::fs::read(goldens).unwrap();
    let goldens = SafeTensors::deserialize(&bytes).unwrap();
    let mut checked = 0;
    for (key, height, width) in [("pos_embed.hf_224", 16, 16), ("pos_embed.hf_224x336", 16, 24)] {
        let Some(theirs) = f32s(&goldens, key) else { continue };
        // The class token's row stays as it is.
        let ours = interpolate_positions(table, &stored[64..], 64, Grid { height, width });
        assert_eq!(ours.len() + 64, theirs.len());
        let worst = ours.iter().zip(&theirs[64..]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst <= 2e-7, "{name} {key}: off by {worst:e}");
        checked += 1;
    }
    checked
}

fn positions_are_interpolated_as_transformers_does() {
    let checked = ["tiny", "tiny-reg", "tiny-swiglu"]
        .map(|name| check_positions(name, &fixture(&format!("goldens/unit_{name}.safetensors"))));
    assert_eq!(checked, [2, 1, 1]);
}

fn positions_are_interpolated_to_other_shapes_too() {
    for name in ["tiny", "tiny-reg", "tiny-swiglu"] {
        assert_eq!(check_positions(name, &data(&format!("goldens/hf/unit_{name}.safetensors"))), 2);
    }
}

/// A ramp of unit vectors along the columns, whose interpolation returns the filter's weights themselves.
fn the_filters_are_those_of_torch_when_shrinking_and_when_growing() {
    let bytes = std::fs::read(data("goldens/hf/unit_1d.safetensors")).unwrap();
    let goldens = SafeTensors::deserialize(&bytes).unwrap();
    for (kind, with_registers) in [("aa", true), ("noaa", false)] {
        for (from, to) in [(16, 37), (37, 16), (37, 24), (7, 16)] {
            let Some(theirs) = f32s(&goldens, &format!("torch_bicubic_{kind}.{from}to{to}")) else {
                panic!("no golden for {kind} {from} to {to}");
            };
            let table = table(from, with_registers);
            let unit = |at: usize| (0..from).map(move |i| f32::from(u8::from(i == at)));
            let stored: Vec<f32> = (0..from * from).flat_map(|patch| unit(patch % from)).collect();
            let ours = interpolate_positions(table, &stored, from, Grid { height: from, width: to });
            for row in ours.chunks_exact(to * from) {
                let worst = row.iter().zip(&theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(row.len() == theirs.len() && worst <= 2e-7, "{kind} {from} to {to}: off by {worst:e}");
            }
        }
    }
}

fn the_real_vit_tiny_is_what_its_files_say() {
    let Model { network, preprocess, .. } = Model::from_folder(&data("weights/vit-tiny-patch16-224")).unwrap();
    assert_eq!((network.hidden_size, network.num_attention_heads, network.num_hidden_layers), (192, 3, 12));
    assert_eq!((network.patch_size, network.positions.unwrap().grid.width, network.mlp_hidden), (16, 14, 768));
    assert_eq!((preprocess.shortest_edge, preprocess.crop, preprocess.resample), (Some(248), Size::square(224), 3));
    assert_eq!((preprocess.mean, preprocess.std), ([0.5; 3], [0.5; 3]));
}

fn positions_of_the_stored_grid_come_back_as_they_are() {
    for name in ["tiny-reg", "tiny-swiglu"] {
        let model = Model::from_folder(&fixture("models").join(name)).unwrap();
        let table = model.network.positions.unwrap();
        let stored = model.weights.tensor("embeddings.position_embeddings", &[1, table.rows(), 64]).unwrap();
        assert_eq!(interpolate_positions(table, &stored[64..], 64, table.grid), stored[64..]);
    }
}

/// Positions of a square grid, to be interpolated as DINOv2 does.
fn table(side: usize, with_registers: bool) -> PositionTable {
    let interpolation = if with_registers { Interpolation::BicubicAntialias } else { Interpolation::Bicubic };
    PositionTable { grid: Grid { height: side, width: side }, class_row: true, interpolation }
}

fn a_constant_stays_constant_at_any_size() {
    for with_registers in [false, true] {
        let table = table(7, with_registers);
        let stored: Vec<f32> = (0..49).flat_map(|_| [3.0, -1.5]).collect();
        for (height, width) in [(1, 1), (1, 40), (5, 3), (7, 8), (64, 1)] {
            let positions = interpolate_positions(table, &stored, 2, Grid { height, width });
            assert_eq!(positions.len(), height * width * 2);
            assert!(positions.chunks(2).all(|p| (p[0] - 3.0).abs() < 1e-5 && (p[1] + 1.5).abs() < 1e-5));
        }
    }
}

fn seeded_weights_have_the_bits_of_the_reference() {
    let report: Value = serde_json::from_slice(&std::fs::read(fixture("goldens/seeded_report.json")).unwrap()).unwrap();
    let check = |key: &str| -> Vec<f32> {
        report["check"][key].as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
    };
    let weights = SeededWeights::new(&Card::get("dinov2-small").unwrap().network);
    let fc1 = weights.tensor("encoder.layer.0.mlp.fc1.weight", &[1536, 384]).unwrap();
    assert_eq!(fc1[..4], check("encoder.layer.0.mlp.fc1.weight[0..4]"));
    let sum: f64 = fc1.iter().map(|&x| f64::from(x)).sum();
    assert!((sum - report["check"]["sum"].as_f64().unwrap()).abs() < 1e-9, "{sum}");
    let positions = weights.tensor("embeddings.position_embeddings", &[1, 1370, 384]).unwrap();
    assert_eq!(positions[..4], check("embeddings.position_embeddings[0..4]"));
}

/// SHA-256 of the little-endian bytes of every tensor of a kind, computed with the reference in numpy.
fn every_kind_of_seeded_tensor_has_the_bits_of_the_reference() {
    use sha2::{Digest, Sha256};
    for (card, name, expected) in KINDS {
        let weights = SeededWeights::new(&Card::get(card).unwrap().network);
        let shape = weights.shape(name).unwrap();
        let mut hash = Sha256::new();
        weights.tensor(name, &shape).unwrap().iter().for_each(|value| hash.update(value.to_le_bytes()));
        let found: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, *expected, "{card} {name}");
    }
}

const KINDS: &[(&str, &str, &str)] = &[
    ("dinov2-small", "embeddings.cls_token", "f0f3b6b9ef29d46c"),
    ("dinov2-small", "embeddings.mask_token", "912c9d2d320cf5b8"),
    ("dinov2-small", "embeddings.position_embeddings", "6613729e3f6194ff"),
    ("dinov2-with-registers-small", "embeddings.register_tokens", "0f3db0dd02107e31"),
    ("dinov2-small", "embeddings.patch_embeddings.projection.weight", "61c8643548fdd93a"),
    ("dinov2-small", "embeddings.patch_embeddings.projection.bias", "c62ec70c01594bdf"),
    ("dinov2-small", "encoder.layer.11.norm1.weight", "923e530fd0505ab0"),
    ("dinov2-small", "encoder.layer.11.norm1.bias", "2b8c0acad4efd77a"),
    ("dinov2-small", "encoder.layer.11.attention.attention.query.weight", "ed35d24e1f0c5683"),
    ("dinov2-small", "encoder.layer.11.attention.attention.key.bias", "e0db2aad1cfbcf34"),
    ("dinov2-small", "encoder.layer.11.attention.attention.key.weight", "2e2c06dbe5bc1b69"),
    ("dinov2-small", "encoder.layer.11.attention.attention.value.weight", "56282d4aa9782ed7"),
    ("dinov2-small", "encoder.layer.11.attention.output.dense.weight", "35cd5f6aafddb093"),
    ("dinov2-small", "encoder.layer.11.layer_scale2.lambda1", "0c43e3625c4ef1d0"),
    ("dinov2-small", "encoder.layer.11.mlp.fc2.weight", "7f77179dfc2173e8"),
    ("dinov2-giant", "encoder.layer.39.mlp.weights_in.weight", "0ddd5f096ca1d74a"),
    ("dinov2-giant", "encoder.layer.39.mlp.weights_out.weight", "7d838d0f28005fd1"),
    ("dinov2-small", "layernorm.weight", "18a3937836d25735"),
    ("dinov2-small", "layernorm.bias", "9b6797cabef041d4"),
];
