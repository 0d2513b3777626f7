//! Every compiled encoder × `transformers`' vectors, from the golden input pixels.

use std::sync::Arc;

use foveate::backends::encoders;
use foveate::models::OpenModel;
use foveate_core::{PixelBatch, Size};
use foveate_dinov2::{Model, OpenOptions, SeededWeights};
use foveate_encode::conformance::noise;
use foveate_encode::{DType, EncodeError, Encoder, EncoderOptions, Pooling};
use foveate_testkit::{Trial, data};
use foveate_tests::data::fixture;
use foveate_tests::embed::encode;
use foveate_tests::goldens::{Goldens, photos_with, pixels};
use foveate_tests::numerics::{HALF, STRICT, Tier};
use foveate_tests::trial::{Outcome, ensure, trial};

use crate::reference;

pub(super) const TINY: [&str; 3] = ["tiny", "tiny-reg", "tiny-swiglu"];
pub(super) const SEEDED: [&str; 2] = ["dinov2-small", "dinov2-small-with-registers"];
const BATCH: usize = 8;
/// Networks in files: their models, and their names in the models' folders. The first kind of ONNX file interpolates
/// the positions itself; the second has them baked in.
const GRAPHS: [(&str, &str); 7] = [
    ("tiny", "model.baked224.onnx"),
    ("tiny-reg", "model.baked224.onnx"),
    ("tiny-swiglu", "model.baked224.onnx"),
    ("tiny-swiglu", "model.onnx"),
    ("tiny", "model.torchscript.pt"),
    ("tiny-reg", "model.torchscript.pt"),
    ("tiny-swiglu", "model.torchscript.pt"),
];

pub(super) fn trials() -> Vec<Trial> {
    let (names, mut trials) = super::backends("encode", &encoders());
    for name in &names {
        for model in TINY {
            for recipe in ["hf_pil", "squash"] {
                trials.push(tiny(name, model, recipe));
            }
            trials.push(conformance(name, model));
        }
        for model in SEEDED {
            trials.push(seeded(name, model));
        }
        for dtype in [DType::F16, DType::Bf16] {
            trials.push(reduced(name, dtype));
        }
        for (model, file) in GRAPHS {
            trials.push(graph(name, model, file));
        }
        trials.push(odd_widths(name, false));
        trials.push(odd_widths(name, true));
        trials.push(trained(name));
        trials.push(refuses_half_a_model(name));
    }
    trials
}

/// The model of a fixture folder.
pub(super) fn tiny_model(name: &str) -> Result<Model, Outcome> {
    Ok(Model::from_folder(&fixture("models").join(name))?)
}

/// The model card that the goldens call `name`, with generated weights.
pub(super) fn seeded_model(name: &str) -> Result<Model, Outcome> {
    let card = match name {
        "dinov2-small-with-registers" => "dinov2-with-registers-small",
        other => other,
    };
    Ok(Model::seeded(card)?)
}

pub(super) fn open(backend: &str, model: Model, pooling: Pooling) -> Result<Box<dyn Encoder>, Outcome> {
    let options = EncoderOptions { pooling, max_batch: BATCH, ..EncoderOptions::default() };
    Ok(open_as(backend, &OpenModel::Dinov2(Arc::new(model)), &options)?)
}

fn open_as(backend: &str, model: &OpenModel, options: &EncoderOptions) -> Result<Box<dyn Encoder>, EncodeError> {
    let registry = encoders();
    let backend = registry.get(backend).map_err(|error| EncodeError::Engine(error.into()))?;
    backend.open(&model.for_backend(backend, &registry, options)?, options)
}

/// An encoder's lack of support is not a failure.
fn unless_unsupported(opened: Result<Box<dyn Encoder>, EncodeError>) -> Result<Box<dyn Encoder>, Outcome> {
    opened.map_err(|error| match error {
        EncodeError::Unsupported(_) | EncodeError::Form { .. } => Outcome::Ignored(error.to_string()),
        other => other.into(),
    })
}

/// Golden input pixels of a recipe: the photos' names and their crops.
fn inputs(recipe: &str) -> Result<(Vec<String>, Vec<Vec<u8>>), Outcome> {
    let kind = format!("crop_{recipe}");
    let photos = photos_with(&kind)?;
    let crops = photos.iter().map(|photo| Ok(pixels(&kind, photo)?.as_slice().to_vec()));
    let crops = crops.collect::<Result<_, Outcome>>()?;
    Ok((photos, crops))
}

fn tiny(backend: &str, model: &'static str, recipe: &'static str) -> Trial {
    let backend = backend.to_owned();
    trial(format!("encode::{backend}::{model}::{recipe}"), move || {
        let goldens = Goldens::load(&fixture(&format!("goldens/embeddings_{model}.safetensors")))?;
        let mut keys =
            vec![(Pooling::Cls, format!("{recipe}.cls.f32")), (Pooling::Mean, format!("{recipe}.patch_mean.f32"))];
        if recipe == "hf_pil" {
            keys.push((Pooling::Cls, "hf_pil.cls.f64".to_owned()));
        }
        for (pooling, key) in keys {
            let encoder = open(&backend, tiny_model(model)?, pooling)?;
            check(encoder, recipe, &goldens, &key, STRICT)?;
        }
        both_poolings(&backend, model, recipe)
    })
}

/// Checks that `cls+mean` is the concatenation of both. The tolerance allows an engine to compute less, in another
/// order, for one of them alone.
fn both_poolings(backend: &str, model: &str, recipe: &str) -> Result<(), Outcome> {
    let (_, crops) = inputs(recipe)?;
    let crops = &crops[..2];
    let vectors = |pooling| -> Result<_, Outcome> {
        let mut encoder = open(backend, tiny_model(model)?, pooling)?;
        encode(encoder.as_mut(), crops, Size::square(224), BATCH)
    };
    let (cls, mean, both) = (vectors(Pooling::Cls)?, vectors(Pooling::Mean)?, vectors(Pooling::ClsMean)?);
    for ((cls, mean), both) in cls.iter().zip(&mean).zip(&both) {
        let apart: Vec<f64> = cls.iter().chain(mean).map(|&value| f64::from(value)).collect();
        STRICT.check("cls+mean", both, &apart)?;
    }
    Ok(())
}

fn seeded(backend: &str, model: &'static str) -> Trial {
    let backend = backend.to_owned();
    trial(format!("encode::{backend}::seeded-{model}"), move || {
        let goldens = Goldens::load(&fixture("goldens/seeded_embeddings.safetensors"))?;
        let encoder = open(&backend, seeded_model(model)?, Pooling::Cls)?;
        check(encoder, "hf_pil", &goldens, &format!("{model}.hf_pil.cls"), STRICT)?;
        let encoder = open(&backend, seeded_model(model)?, Pooling::Mean)?;
        check(encoder, "squash", &goldens, &format!("{model}.squash.patch_mean"), STRICT)
    })
}

fn check(mut encoder: Box<dyn Encoder>, recipe: &str, goldens: &Goldens, key: &str, tier: Tier) -> Result<(), Outcome> {
    let (photos, crops) = inputs(recipe)?;
    ensure(encoder.spec().input == Size::square(224), || format!("input size {}", encoder.spec().input))?;
    let vectors = encode(encoder.as_mut(), &crops, Size::square(224), BATCH)?;
    ensure(vectors.len() == photos.len(), || format!("{} vectors of {} photos", vectors.len(), photos.len()))?;
    for (photo, vector) in photos.iter().zip(&vectors) {
        ensure(vector.len() == encoder.spec().dim, || {
            format!("{} components, not {}", vector.len(), encoder.spec().dim)
        })?;
        tier.check(&format!("{key} of {photo}"), vector, goldens.vector(key, photo)?)?;
    }
    Ok(())
}

/// Checks f16 or bf16, also with a full-size model.
fn reduced(backend: &str, dtype: DType) -> Trial {
    let backend = backend.to_owned();
    trial(format!("encode::{backend}::{}", dtype.name()), move || {
        let options = EncoderOptions { dtype, max_batch: BATCH, ..EncoderOptions::default() };
        let open = |model| unless_unsupported(open_as(&backend, &OpenModel::Dinov2(Arc::new(model)), &options));
        for model in TINY {
            let goldens = Goldens::load(&fixture(&format!("goldens/embeddings_{model}.safetensors")))?;
            let encoder = open(tiny_model(model)?)?;
            ensure(encoder.spec().dtype == dtype, || format!("it computes in {:?}", encoder.spec().dtype))?;
            check(encoder, "hf_pil", &goldens, "hf_pil.cls.f64", HALF)?;
        }
        let goldens = Goldens::load(&fixture("goldens/seeded_embeddings.safetensors"))?;
        for model in SEEDED {
            check(open(seeded_model(model)?)?, "hf_pil", &goldens, &format!("{model}.hf_pil.cls"), HALF)?;
        }
        Ok(())
    })
}

/// Checks a whole network from a file that `transformers` exported.
fn graph(backend: &str, model: &'static str, file: &'static str) -> Trial {
    let backend = backend.to_owned();
    trial(format!("encode::{backend}::{model}::{file}"), move || {
        let path = fixture("models").join(model).join(file);
        let graph = OpenModel::open(&path.display().to_string(), &OpenOptions::from_env())?;
        let goldens = Goldens::load(&fixture(&format!("goldens/embeddings_{model}.safetensors")))?;
        for (pooling, key) in [(Pooling::Cls, "hf_pil.cls.f64"), (Pooling::Mean, "hf_pil.patch_mean.f32")] {
            let options = EncoderOptions { pooling, max_batch: BATCH, ..EncoderOptions::default() };
            let encoder = unless_unsupported(open_as(&backend, &graph, &options))?;
            check(encoder, "hf_pil", &goldens, key, STRICT)?;
        }
        Ok(())
    })
}

/// Uses widths that are no multiples of a SIMD register's, so that every padding and every narrow tile is used.
fn odd_widths(backend: &str, swiglu: bool) -> Trial {
    let (backend, mlp) = (backend.to_owned(), if swiglu { "swiglu" } else { "gelu" });
    trial(format!("encode::{backend}::odd-widths-{mlp}"), move || {
        let mut model = tiny_model("tiny-reg")?;
        model.preprocess.crop = Size::new(49, 35);
        model.config.hidden_size = 78;
        model.config.num_attention_heads = 3;
        model.config.mlp_hidden = 403;
        model.config.patch_size = 7;
        model.config.image_size = 28;
        model.config.qkv_bias = false;
        model.config.use_swiglu_ffn = swiglu;
        model.weights = Box::new(SeededWeights::new(&model.config));
        let noise = noise(model.preprocess.crop, 9);
        against_reference(&backend, model, &noise)
    })
}

/// Compares trained weights with the f64 forward, because the ViT-Tiny's goldens are of its own recipe's crops, from
/// files.
fn trained(backend: &str) -> Trial {
    let backend = backend.to_owned();
    trial(format!("encode::{backend}::vit-tiny"), move || {
        let model = Model::from_folder(&data("weights/vit-tiny-patch16-224"))?;
        let (_, crops) = inputs("hf_pil")?;
        against_reference(&backend, model, &crops[0])
    })
}

/// Compares the vector of one image with the f64 forward.
fn against_reference(backend: &str, model: Model, pixels: &[u8]) -> Result<(), Outcome> {
    let size = model.preprocess.crop;
    let image = PixelBatch::new(pixels, size).ok_or_else(|| Outcome::failed("no whole number of images"))?;
    let golden = reference::class_and_mean(&model, image)?;
    let mut encoder = open(backend, model, Pooling::ClsMean)?;
    let vectors = encode(encoder.as_mut(), &[pixels.to_vec()], size, BATCH)?;
    STRICT.check("the forward in f64", &vectors[0], &golden)
}

/// The suite of the trait: batch invariance, poolings, refusals.
fn conformance(backend: &str, model: &'static str) -> Trial {
    let backend = backend.to_owned();
    trial(format!("encode::{backend}::{model}::conformance"), move || {
        const HIDDEN: usize = 64;
        let make = |options: &EncoderOptions| {
            open_as(&backend, &OpenModel::Dinov2(Arc::new(tiny_model(model).unwrap())), options).unwrap()
        };
        foveate_encode::conformance::check(HIDDEN, make);
        Ok(())
    })
}

/// Checks that a checkpoint without one of its tensors is an error that names it.
fn refuses_half_a_model(backend: &str) -> Trial {
    let backend = backend.to_owned();
    trial(format!("encode::{backend}::refuses-half-a-model"), move || {
        let folder = tempfile::tempdir()?;
        for file in ["config.json", "preprocessor_config.json", "model.safetensors"] {
            std::fs::copy(fixture("models/tiny").join(file), folder.path().join(file))?;
        }
        let path = folder.path().join("model.safetensors");
        let mut bytes = std::fs::read(&path)?;
        // Renames one tensor in place, which keeps the header valid.
        let name = b"encoder.layer.1.mlp.fc2.weight";
        let at = bytes.windows(name.len()).position(|window| window == name).unwrap();
        bytes[at..at + 7].copy_from_slice(b"uncoder");
        std::fs::write(&path, bytes)?;
        let opened = Model::from_folder(folder.path())
            .map_err(Outcome::from)
            .and_then(|model| open(&backend, model, Pooling::Cls));
        match opened {
            Ok(_) => Err(Outcome::failed("an incomplete checkpoint was accepted")),
            Err(Outcome::Failed(message)) if message.contains("encoder.layer.1.mlp.fc2.weight") => Ok(()),
            Err(other) => Err(Outcome::failed(format!("the error does not name the tensor: {other:?}"))),
        }
    })
}
