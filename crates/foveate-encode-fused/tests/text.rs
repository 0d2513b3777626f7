//! Text towers: the vectors of the families' own libraries for 24 sentences, and equal bits in any batch.

// Tests may unwrap, and they print what they compared.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::process::ExitCode;

use foveate_core::VectorBuf;
use foveate_encode::{DType, EncoderOptions};
use foveate_encode_fused::FusedTextEncoder;
use foveate_model::{PooledWord, TextModel};
use foveate_testkit::encoders::{TEXT_FAMILIES, distance};
use foveate_testkit::{data, run, trials};
use npyz::npz::NpzArchive;

fn main() -> ExitCode {
    run(trials![
        vectors_are_those_of_the_families_libraries,
        a_text_has_the_same_bits_in_any_batch,
        towers_of_cards_compute,
        texts_that_a_model_cannot_take_are_named,
    ])
}

/// The ids of the goldens' sentences as the model sees them, and their vectors.
fn goldens(folder: &str, model: &TextModel) -> (Vec<Vec<u32>>, Vec<f64>) {
    let mut archive = NpzArchive::open(data("families").join(folder).join("golden.npz")).unwrap();
    let mut array = |name: &str| archive.by_name(name).unwrap().unwrap().into_vec::<i32>().unwrap();
    let ids = array("input_ids");
    let mask = array("attention_mask");
    let length = ids.len() / 24;
    let mut texts = Vec::new();
    for (ids, mask) in ids.chunks_exact(length).zip(mask.chunks_exact(length)) {
        let real = mask.iter().filter(|&&real| real != 0).count();
        let seen = if model.network.words.unwrap().pooled == PooledWord::Mean { real } else { length };
        texts.push(ids[..seen].iter().map(|&id| id as u32).collect());
    }
    let vectors = archive.by_name("text_vector").unwrap().unwrap().into_vec::<f32>().unwrap();
    (texts, vectors.into_iter().map(f64::from).collect())
}

fn encode(model: &TextModel, dtype: DType, threads: usize, texts: &[&[u32]]) -> VectorBuf {
    let options = EncoderOptions { dtype, threads, ..EncoderOptions::default() };
    let mut vectors = VectorBuf::new();
    FusedTextEncoder::new(model, &options).unwrap().encode(texts, &mut vectors).unwrap();
    vectors
}

fn vectors_are_those_of_the_families_libraries() {
    for folder in TEXT_FAMILIES {
        let model = TextModel::from_folder(&data("families").join(folder)).unwrap();
        let (texts, expected) = goldens(folder, &model);
        let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
        for (dtype, most) in [(DType::F32, 1e-6), (DType::Bf16, 1e-3), (DType::I8, 1e-2)] {
            let vectors = encode(&model, dtype, 2, &texts);
            let rows = expected.chunks_exact(vectors.dim()).enumerate();
            let worst = rows.map(|(i, row)| distance(vectors.row(i), row).0).fold(0.0, f64::max);
            println!("{folder}, {}: 1 - cosine {worst:.1e}", dtype.name());
            assert!(worst <= most, "{folder}, {}: {worst}", dtype.name());
        }
    }
}

fn a_text_has_the_same_bits_in_any_batch() {
    for folder in ["clip-gelu", "siglip", "tipsv2"] {
        let model = TextModel::from_folder(&data("families").join(folder)).unwrap();
        let texts = goldens(folder, &model).0;
        let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
        for dtype in [DType::F32, DType::Bf16, DType::I8] {
            let together = encode(&model, dtype, 3, &texts);
            for i in [0, 7, 23] {
                let alone = encode(&model, dtype, 1, &texts[i..=i]);
                assert_eq!(alone.row(0), together.row(i), "{folder}, {}, text {i}", dtype.name());
            }
        }
    }
}

/// The shapes of cards, whose weights are generated.
fn towers_of_cards_compute() {
    let model = TextModel::seeded("clip-vit-base-patch32").unwrap();
    let vectors = encode(&model, DType::I8, 2, &[&[49_406, 320, 2368, 49_407]]);
    assert_eq!(vectors.dim(), 512);
    assert!(vectors.row(0).iter().all(|value| value.is_finite()));
    assert!(TextModel::seeded("dinov2-small").unwrap_err().to_string().contains("no text tower"));
}

fn texts_that_a_model_cannot_take_are_named() {
    let model = TextModel::from_folder(&data("families/clip-gelu")).unwrap();
    let mut encoder = FusedTextEncoder::new(&model, &EncoderOptions::default()).unwrap();
    let cases: [(&[u32], &str); 3] =
        [(&[], "text 1 has no tokens"), (&[5; 78], "has 78 tokens"), (&[664], "has the token 664")];
    for (ids, expected) in cases {
        let message = encoder.encode(&[&[1], ids], &mut VectorBuf::new()).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    let images = TextModel::from_folder(&data("families/vit")).unwrap_err().to_string();
    assert!(images.contains("no text tower"), "{images}");
}
