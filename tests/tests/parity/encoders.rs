//! Every compiled encoder × `transformers`' vectors, from the golden input pixels.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use foveate::models::OpenModel;
use foveate_core::{PixelBatch, SampleType, Size};
use foveate_encode::conformance::noise;
use foveate_encode::{DType, EncodeError, Encoder, EncoderOptions, Pooling};
use foveate_model::{Model, OpenOptions};
use foveate_testkit::encoders::odd_widths as odd_model;
use foveate_testkit::{Trial, by_length, data};
use foveate_tests::backends::encoders;
use foveate_tests::data::fixture;
use foveate_tests::embed::encode;
use foveate_tests::goldens::{Goldens, photos_in, png};
use foveate_tests::numerics::{BF16, HALF, I8, STRICT, Tier};
use foveate_tests::trial::{Outcome, ensure, trial};

use crate::reference;

pub(super) const TINY: [&str; 3] = ["tiny", "tiny-reg", "tiny-swiglu"];
pub(super) const SEEDED: [&str; 2] = ["dinov2-small", "dinov2-small-with-registers"];
const BATCH: usize = 8;
/// Width of the fixture models' tokens.
const HIDDEN: usize = 64;
/// Folders of the fixture models' golden vectors and crops: in the repository, and more of them in the shared data.
const SOURCES: [&str; 2] = ["committed", "shared"];
const RECIPES: [&str; 2] = ["hf_pil", "squash"];
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
        for (model, source) in TINY.into_iter().flat_map(|model| SOURCES.map(|source| (model, source))) {
            for recipe in RECIPES {
                trials.push(tiny(name, model, source, recipe));
            }
        }
        trials.extend(TINY.map(|model| conformance(name, model)));
        trials.push(other_sizes(name));
        for model in SEEDED {
            trials.push(seeded(name, model, "committed"));
        }
        // The committed crops suffice in the short form.
        trials.extend(by_length(vec![], SEEDED.map(|model| seeded(name, model, "shared")).into()));
        for dtype in [DType::F16, DType::Bf16, DType::I8] {
            trials.push(reduced(name, dtype));
        }
        for (model, file) in GRAPHS {
            trials.push(graph(name, model, file, || fixture("models")));
        }
        // Too large for the repository.
        trials.extend(["tiny", "tiny-reg"].map(|model| graph(name, model, "model.onnx", || data("models"))));
        trials.push(odd_widths(name, false));
        trials.push(odd_widths(name, true));
        trials.push(trained(name));
        trials.push(refuses_half_a_model(name));
        trials.push(refuses_odd_inputs(name));
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
    open_for(backend, model, pooling, SampleType::U8)
}

/// The same for images with samples of this type.
pub(super) fn open_for(
    backend: &str,
    model: Model,
    pooling: Pooling,
    sample: SampleType,
) -> Result<Box<dyn Encoder>, Outcome> {
    let options = EncoderOptions { pooling, sample, max_batch: BATCH, ..EncoderOptions::default() };
    unless_unsupported(open_as(backend, &OpenModel::Checkpoint(Arc::new(model)), &options))
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

/// The folder of golden vectors and crops. The trial ends here if the shared data is missing.
fn source(name: &str) -> PathBuf {
    if name == "shared" { data("goldens/hf") } else { fixture("goldens") }
}

/// Golden input pixels of a recipe: the photos' names and their crops.
fn inputs(goldens: &Path, recipe: &str) -> Result<(Vec<String>, Vec<Vec<u8>>), Outcome> {
    let folder = goldens.join(format!("crop_{recipe}"));
    let photos = photos_in(&folder)?;
    let crops = photos.iter().map(|photo| Ok(png(&folder.join(format!("{photo}.png")))?.as_slice().to_vec()));
    let crops = crops.collect::<Result<_, Outcome>>()?;
    Ok((photos, crops))
}

/// Compares with every golden of a fixture model: class token and mean, as `transformers` computes them in f32 and in
/// f64.
fn tiny(backend: &str, model: &'static str, place: &'static str, recipe: &'static str) -> Trial {
    let backend = backend.to_owned();
    trial(format!("encode::{backend}::{model}::{place}::{recipe}"), move || {
        let folder = source(place);
        let encoder = |pooling| open(&backend, tiny_model(model)?, pooling);
        check_tiny(&folder, model, recipe, STRICT, encoder)?;
        both_poolings(&backend, model, recipe)
    })
}

fn check_tiny(
    folder: &Path,
    model: &str,
    recipe: &str,
    tier: Tier,
    open: impl Fn(Pooling) -> Result<Box<dyn Encoder>, Outcome>,
) -> Result<(), Outcome> {
    let goldens = Goldens::read(&folder.join(format!("embeddings_{model}.safetensors")));
    for (pooling, name) in [(Pooling::Cls, "cls"), (Pooling::Mean, "patch_mean")] {
        let keys = ["f32", "f64"].map(|dtype| format!("{recipe}.{name}.{dtype}"));
        let keys: Vec<String> = keys.into_iter().filter(|key| goldens.tensors.contains_key(key)).collect();
        ensure(!keys.is_empty(), || format!("no goldens {recipe}.{name} of {model}"))?;
        for key in keys {
            check(open(pooling)?, folder, recipe, &goldens, &key, tier)?;
        }
    }
    Ok(())
}

/// Checks that `cls+mean` is the concatenation of both. The tolerance allows an engine to compute less, in another
/// order, for one of them alone.
fn both_poolings(backend: &str, model: &str, recipe: &str) -> Result<(), Outcome> {
    let (_, crops) = inputs(&fixture("goldens"), recipe)?;
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

fn seeded(backend: &str, model: &'static str, place: &'static str) -> Trial {
    let backend = backend.to_owned();
    trial(format!("encode::{backend}::seeded-{model}::{place}"), move || {
        let folder = source(place);
        let goldens = Goldens::read(&match place {
            "shared" => data("goldens/seeded_embeddings.safetensors"),
            _ => folder.join("seeded_embeddings.safetensors"),
        });
        let encoder = open(&backend, seeded_model(model)?, Pooling::Cls)?;
        check(encoder, &folder, "hf_pil", &goldens, &format!("{model}.hf_pil.cls"), STRICT)?;
        let encoder = open(&backend, seeded_model(model)?, Pooling::Mean)?;
        check(encoder, &folder, "squash", &goldens, &format!("{model}.squash.patch_mean"), STRICT)
    })
}

fn check(
    mut encoder: Box<dyn Encoder>,
    folder: &Path,
    recipe: &str,
    goldens: &Goldens,
    key: &str,
    tier: Tier,
) -> Result<(), Outcome> {
    let (photos, crops) = inputs(folder, recipe)?;
    ensure(encoder.spec().input == Size::square(224), || format!("input size {}", encoder.spec().input))?;
    let vectors = encode(encoder.as_mut(), &crops, Size::square(224), BATCH)?;
    ensure(vectors.len() == photos.len(), || format!("{} vectors of {} photos", vectors.len(), photos.len()))?;
    for (photo, vector) in photos.iter().zip(&vectors) {
        ensure(vector.len() == encoder.spec().dim, || {
            format!("{} components, not {}", vector.len(), encoder.spec().dim)
        })?;
        tier.check(&format!("{key} of {photo}"), vector, goldens.vector(key, photo))?;
    }
    Ok(())
}

/// Checks a precision below f32, also with a full-size model.
fn reduced(backend: &str, dtype: DType) -> Trial {
    let backend = backend.to_owned();
    trial(format!("encode::{backend}::{}", dtype.name()), move || {
        let open = |model, pooling| {
            let options = EncoderOptions { dtype, pooling, max_batch: BATCH, ..EncoderOptions::default() };
            let encoder = unless_unsupported(open_as(&backend, &OpenModel::Checkpoint(Arc::new(model)), &options))?;
            ensure(encoder.spec().dtype == dtype, || format!("it computes in {:?}", encoder.spec().dtype))?;
            Ok(encoder)
        };
        let tier = match (dtype, &*backend) {
            (DType::I8, _) => I8,
            (DType::Bf16, "fused") => BF16,
            _ => HALF,
        };
        let folder = fixture("goldens");
        for (model, recipe) in TINY.into_iter().flat_map(|model| RECIPES.map(|recipe| (model, recipe))) {
            check_tiny(&folder, model, recipe, tier, |pooling| open(tiny_model(model)?, pooling))?;
        }
        let goldens = Goldens::read(&folder.join("seeded_embeddings.safetensors"));
        for model in SEEDED {
            let encoder = open(seeded_model(model)?, Pooling::Cls)?;
            check(encoder, &folder, "hf_pil", &goldens, &format!("{model}.hf_pil.cls"), tier)?;
        }
        for model in [false, true].map(|swiglu| Arc::new(odd_model(swiglu))) {
            let checkpoint = OpenModel::Checkpoint(model.clone());
            let base = EncoderOptions { dtype, ..EncoderOptions::default() };
            foveate_encode::conformance::check_with(&base, model.network.hidden_size, |options| {
                open_as(&backend, &checkpoint, options).unwrap()
            });
            against_reference(&backend, &model, &noise(model.preprocess.crop, 9), dtype, tier)?;
        }
        Ok(())
    })
}

/// Checks a whole network from a file that `transformers` exported, with the goldens and the suite of the trait.
fn graph(backend: &str, model: &'static str, file: &'static str, models: fn() -> PathBuf) -> Trial {
    let backend = backend.to_owned();
    trial(format!("encode::{backend}::{model}::{file}"), move || {
        let path = models().join(model).join(file);
        let graph = OpenModel::open(&path.display().to_string(), &OpenOptions::from_env())?;
        for recipe in RECIPES {
            check_tiny(&fixture("goldens"), model, recipe, STRICT, |pooling| {
                let options = EncoderOptions { pooling, max_batch: BATCH, ..EncoderOptions::default() };
                unless_unsupported(open_as(&backend, &graph, &options))
            })?;
        }
        foveate_encode::conformance::check(HIDDEN, |options| open_as(&backend, &graph, options).unwrap());
        Ok(())
    })
}

/// Uses widths that are no multiples of a SIMD register's, so that every padding and every narrow tile is used.
fn odd_widths(backend: &str, swiglu: bool) -> Trial {
    let (backend, mlp) = (backend.to_owned(), if swiglu { "swiglu" } else { "gelu" });
    trial(format!("encode::{backend}::odd-widths-{mlp}"), move || {
        let model = Arc::new(odd_model(swiglu));
        let open =
            |options: &EncoderOptions| open_as(&backend, &OpenModel::Checkpoint(model.clone()), options).unwrap();
        foveate_encode::conformance::check(model.network.hidden_size, open);
        against_reference(&backend, &model, &noise(model.preprocess.crop, 9), DType::F32, STRICT)
    })
}

/// Compares trained weights with the f64 forward, because the ViT-Tiny's goldens are of its own recipe's crops, from
/// files.
fn trained(backend: &str) -> Trial {
    let backend = backend.to_owned();
    trial(format!("encode::{backend}::vit-tiny"), move || {
        let model = Model::from_folder(&data("weights/vit-tiny-patch16-224"))?;
        let (_, crops) = inputs(&fixture("goldens"), "hf_pil")?;
        against_reference(&backend, &Arc::new(model), &crops[0], DType::F32, STRICT)
    })
}

/// Compares the vector of one image with the f64 forward.
fn against_reference(
    backend: &str,
    model: &Arc<Model>,
    pixels: &[u8],
    dtype: DType,
    tier: Tier,
) -> Result<(), Outcome> {
    let size = model.preprocess.crop;
    let image = PixelBatch::new(pixels, size).ok_or_else(|| Outcome::failed("no whole number of images"))?;
    let golden = reference::class_and_mean(model, image)?;
    let options = EncoderOptions { dtype, pooling: Pooling::ClsMean, max_batch: BATCH, ..EncoderOptions::default() };
    let mut encoder = open_as(backend, &OpenModel::Checkpoint(model.clone()), &options)?;
    let vectors = encode(encoder.as_mut(), &[pixels.to_vec()], size, BATCH)?;
    tier.check("the forward in f64", &vectors[0], &golden)
}

/// The suite of the trait: batch invariance, poolings, refusals.
fn conformance(backend: &str, model: &'static str) -> Trial {
    let backend = backend.to_owned();
    trial(format!("encode::{backend}::{model}::conformance"), move || {
        conforms(&backend, tiny_model(model)?);
        Ok(())
    })
}

fn conforms(backend: &str, model: Model) {
    let model = OpenModel::Checkpoint(Arc::new(model));
    foveate_encode::conformance::check(HIDDEN, |options| open_as(backend, &model, options).unwrap());
}

/// The same with inputs of one patch, of other sides and of more patches than the checkpoint has positions.
fn other_sizes(backend: &str) -> Trial {
    let backend = backend.to_owned();
    trial(format!("encode::{backend}::other-sizes"), move || {
        for (width, height) in [(14, 14), (98, 42), (224, 336), (518, 518)] {
            let mut model = tiny_model("tiny-reg")?;
            model.preprocess.crop = Size::new(width, height);
            conforms(&backend, model);
        }
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

/// Checks that an input of no whole number of patches is refused.
fn refuses_odd_inputs(backend: &str) -> Trial {
    let backend = backend.to_owned();
    trial(format!("encode::{backend}::refuses-odd-inputs"), move || {
        let mut model = tiny_model("tiny")?;
        model.preprocess.crop = Size::new(224, 225);
        let opened = open_as(&backend, &OpenModel::Checkpoint(Arc::new(model)), &EncoderOptions::default());
        ensure(matches!(opened, Err(EncodeError::Model(_))), || format!("{:?}", opened.map(|_| "opened")))
    })
}
