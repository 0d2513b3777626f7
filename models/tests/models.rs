//! The list of the README, and the tiny checkpoints through the CPU encoder.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use foveate_encode::{EncoderOptions, conformance};
use foveate_encode_fused::FusedEncoder;
use foveate_model::{Card, Model};
use foveate_testkit::encoders::encode;

#[test]
fn the_readme_lists_the_cards() {
    let readme = include_str!("../README.md");
    for name in Card::names() {
        let card = Card::get(name).unwrap();
        let Card { repository, dimension, licence, .. } = &card;
        let family = card.family.name;
        let input = card.preprocess.crop.width;
        let gated = if card.gated { "yes" } else { "" };
        let pinned = match (&card.revision, &card.sha256) {
            (Some(_), Some(_)) => "commit, hash",
            (Some(_), None) => "commit",
            _ => "",
        };
        let row = format!("| `{repository}` | {family} | {dimension} | {input} | {licence} | {gated} | {pinned} |");
        assert!(readme.contains(&row), "README.md lacks: {row}");
    }
    assert_eq!(readme.matches("\n| `").count(), Card::names().count(), "README.md lists others, too");
}

/// The beginning of each tiny checkpoint's vector of noise. The parity tests prove the encoder with the same weights in
/// f32 and the vectors of the families' own libraries; this test needs no data but this folder's.
const VECTORS: [(&str, [f32; 8]); 7] = [
    ("clip", [-0.955898, -2.46737, 0.882179, -1.61891, -0.442145, 1.06714, -0.56796, 0.967746]),
    ("dinov3", [0.542718, 2.02679, 0.235779, -0.641749, 0.94805, 0.0430876, -0.401031, -0.793073]),
    // By `transformers` 5.24 from these very files.
    ("ijepa", [-1.487209, 0.276049, -0.625366, 0.528157, 1.320005, -0.047478, 0.430228, -1.0575]),
    ("pe-core", [-0.21487, 0.918099, 0.300167, 0.173344, 5.03902, 1.25293, 0.503977, 0.484841]),
    ("siglip", [-0.048693, 1.5554, -1.04598, -0.184247, 0.743086, 3.18284, -0.677378, 0.607218]),
    ("tipsv2", [0.58569, 3.62977, -0.725385, -0.872653, 0.661295, 2.34281, 1.58228, 1.37499]),
    ("vit", [0.0548503, -0.188092, 0.312681, -0.155457, 1.32712, 0.975611, 0.719106, -0.747853]),
];

#[test]
fn tiny_checkpoints_give_their_vectors() {
    for (name, expected) in VECTORS {
        let model = Model::from_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tiny").join(name)).unwrap();
        let pixels = conformance::noise(model.preprocess.crop, 1);
        let options = EncoderOptions { pooling: model.network.pooling, ..EncoderOptions::default() };
        let vectors = encode(&mut FusedEncoder::new(&model, &options).unwrap(), &pixels);
        let found = &vectors.row(0)[..8];
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-4), "{name}: {found:?}");
    }
}
