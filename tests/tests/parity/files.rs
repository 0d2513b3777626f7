//! From the original file to the vector, through every compiled backend; and from the pixels that Pillow decoded, which
//! tests everything but the decoder.

use std::path::PathBuf;

use foveate::Recipe;
use foveate_core::{Backend, Registry};
use foveate_decode::{ByFormat, Decoder, DecoderOptions};
use foveate_encode::Pooling;
use foveate_model::Model;
use foveate_resize::Geometry;
use foveate_testkit::{Trial, by_length, data};
use foveate_tests::backends::{decoders, encoders, resizers};
use foveate_tests::data::fixture;
use foveate_tests::embed::{Preprocessor, encode, resize};
use foveate_tests::goldens::{Goldens, photos_with, pixels};
use foveate_tests::numerics::{
    FileTier, OTHER_PIXELS, OTHER_PIXELS_TRAINED, RESAMPLED_ALIKE, RESAMPLED_OTHERWISE, SAME_PIXELS, cosine,
};
use foveate_tests::trial::{Outcome, ensure, trial};

use crate::encoders::{SEEDED, TINY, open, open_for, seeded_model, tiny_model};

/// Backends by name: decoder, resizer, encoder.
#[derive(Clone)]
pub(super) struct Combination {
    decoder: String,
    resizer: String,
    encoder: String,
}

impl Combination {
    /// The default backends; every other backend in place of a default; and the decoder-resizer pairs that the
    /// literature compares. A wrong backend fails in one of them. Their number grows with the sum of the backends, not
    /// with the product.
    pub(super) fn chosen() -> Vec<Self> {
        const PAIRS: [(&str, &str); 4] =
            [("image", "image"), ("opencv", "opencv"), ("turbojpeg", "opencv"), ("zune", "fir")];
        fn names<B: Backend>(registry: &Registry<B>) -> Vec<String> {
            registry.iter().map(|backend| backend.name().to_owned()).collect()
        }
        let (decoders, resizers, encoders) = (names(&decoders()), names(&resizers()), names(&encoders()));
        let default = Self { decoder: decoders[0].clone(), resizer: resizers[0].clone(), encoder: encoders[0].clone() };
        let mut chosen = Vec::new();
        chosen.extend(decoders.iter().map(|name| Self { decoder: name.clone(), ..default.clone() }));
        chosen.extend(resizers.iter().skip(1).map(|name| Self { resizer: name.clone(), ..default.clone() }));
        chosen.extend(encoders.iter().skip(1).map(|name| Self { encoder: name.clone(), ..default.clone() }));
        for (decoder, resizer) in PAIRS.map(|(decoder, resizer)| (decoder.to_owned(), resizer.to_owned())) {
            if decoders.contains(&decoder) && resizers.contains(&resizer) && resizer != default.resizer {
                chosen.push(Self { decoder, resizer, ..default.clone() });
            }
        }
        chosen
    }

    /// The default backends with another encoder.
    pub(super) fn with_encoder(encoder: &str) -> Self {
        let default = Self::chosen().swap_remove(0);
        Self { encoder: encoder.to_owned(), ..default }
    }

    pub(super) fn name(&self) -> String {
        format!("{}+{}+{}", self.decoder, self.resizer, self.encoder)
    }

    /// Embeds the files at `paths` with `model`.
    pub(super) fn embed(
        &self,
        model: Model,
        recipe: Recipe,
        orient: bool,
        paths: &[PathBuf],
    ) -> Result<Vec<Vec<f32>>, Outcome> {
        let geometry = recipe.geometry(&model.preprocess)?;
        let mut preprocessor = self.preprocessor(geometry, orient)?;
        let inputs: Vec<Vec<u8>> = paths.iter().map(|path| preprocessor.input(path)).collect::<Result<_, _>>()?;
        let pooling = model.network.pooling;
        let mut encoder = open_for(&self.encoder, model, pooling, geometry.format().sample)?;
        encode(encoder.as_mut(), &inputs, geometry.format(), 8)
    }

    /// The tier that the decoder's and the resizer's pixels allow.
    fn tier(&self, subject: Subject, recipe: Recipe) -> Result<FileTier, Outcome> {
        let decoder = decoders().get(&self.decoder)?.open(&DecoderOptions::default())?;
        let resampled = self.resampling_tier(recipe)?;
        Ok(match subject {
            _ if resampled != SAME_PIXELS || decoder.capability().exact_jpeg => resampled,
            Subject::VitTiny => OTHER_PIXELS_TRAINED,
            Subject::Tiny(_) | Subject::Seeded(_) => OTHER_PIXELS,
        })
    }

    /// The tier that the resizer's samples allow, from exactly the pixels of the recipe's goldens.
    fn resampling_tier(&self, recipe: Recipe) -> Result<FileTier, Outcome> {
        let capability = resizers().get(&self.resizer)?.open()?.capability();
        Ok(match recipe {
            Recipe::Hf if capability.pillow_exact => SAME_PIXELS,
            Recipe::Hf if !capability.pillow_kernels => RESAMPLED_OTHERWISE,
            Recipe::Squash if capability.opencv_exact => SAME_PIXELS,
            Recipe::Hf | Recipe::Squash => RESAMPLED_ALIKE,
        })
    }

    /// The named decoder first, then the others for files that it cannot read, as in the program.
    fn preprocessor(&self, geometry: Geometry, orient: bool) -> Result<Preprocessor, Outcome> {
        let registry = decoders();
        let mut names: Vec<&str> = registry.iter().map(Backend::name).collect();
        names.sort_by_key(|name| *name != self.decoder);
        let opened = names.iter().map(|name| Ok(registry.get(name)?.open(&DecoderOptions::default())?));
        let opened = opened.collect::<Result<Vec<Box<dyn Decoder>>, Outcome>>()?;
        let resizer = resizers().get(&self.resizer)?.open()?;
        Ok(Preprocessor::new(Box::new(ByFormat::new(opened)), resizer, geometry, orient))
    }
}

/// A model with golden vectors, and their location.
#[derive(Clone, Copy)]
enum Subject {
    Tiny(&'static str),
    Seeded(&'static str),
    VitTiny,
}

impl Subject {
    fn all() -> impl Iterator<Item = Self> {
        TINY.into_iter().map(Self::Tiny).chain(SEEDED.into_iter().map(Self::Seeded)).chain([Self::VitTiny])
    }

    fn name(self) -> String {
        match self {
            Self::Tiny(name) => name.to_owned(),
            Self::Seeded(name) => format!("seeded-{name}"),
            Self::VitTiny => "vit-tiny".to_owned(),
        }
    }

    fn is_large(self) -> bool {
        matches!(self, Self::Seeded(_))
    }

    fn model(self) -> Result<Model, Outcome> {
        match self {
            Self::Tiny(name) => tiny_model(name),
            Self::Seeded(name) => seeded_model(name),
            Self::VitTiny => Ok(Model::from_folder(&data("weights/vit-tiny-patch16-224"))?),
        }
    }

    fn goldens(self) -> Goldens {
        match self {
            Self::Tiny(name) => Goldens::read(&fixture(&format!("goldens/embeddings_{name}.safetensors"))),
            Self::Seeded(_) => Goldens::read(&fixture("goldens/seeded_embeddings.safetensors")),
            Self::VitTiny => Goldens::read(&data("goldens/vit_tiny_embeddings.safetensors")),
        }
    }

    /// All variants: recipe, whether EXIF orientation is applied, and the goldens' key.
    fn variants(self) -> Vec<(Recipe, bool, String)> {
        match self {
            Self::Tiny(_) => vec![
                (Recipe::Hf, false, "hf_pil.cls.f32".to_owned()),
                (Recipe::Hf, true, "hf_pil_exif.cls.f32".to_owned()),
                (Recipe::Squash, false, "squash.cls.f32".to_owned()),
                (Recipe::Squash, true, "squash_exif.cls.f32".to_owned()),
            ],
            Self::Seeded(name) => vec![
                (Recipe::Hf, false, format!("{name}.hf_pil.cls")),
                (Recipe::Squash, false, format!("{name}.squash.cls")),
            ],
            Self::VitTiny => vec![(Recipe::Hf, false, "cls".to_owned())],
        }
    }
}

pub(super) fn trials() -> Vec<Trial> {
    let chosen = Combination::chosen();
    let default = &chosen[0];
    // A full-size model takes long. In the short form, other combinations are tested with the small models.
    let suits = |subject: &Subject, is_default: bool| by_length(is_default || !subject.is_large(), true);
    let mut trials = Vec::new();
    for of in &chosen {
        for subject in Subject::all().filter(|subject| suits(subject, of.name() == default.name())) {
            for (recipe, orient, key) in subject.variants() {
                let of = of.clone();
                trials.push(trial(format!("files::{}::{}::{key}", of.name(), subject.name()), move || {
                    from_files(&of, subject, recipe, orient, &key)
                }));
            }
        }
    }
    // The decoder does not matter here, so each of the others is tested once.
    for of in chosen.iter().filter(|of| of.decoder == default.decoder) {
        for subject in Subject::all().filter(|subject| suits(subject, of.name() == default.name())) {
            for (recipe, _, key) in subject.variants().into_iter().filter(|(_, orient, _)| !orient) {
                let of = of.clone();
                trials.push(trial(
                    format!("pixels::{}+{}::{}::{key}", of.resizer, of.encoder, subject.name()),
                    move || from_pixels(&of, subject, recipe, &key),
                ));
            }
        }
    }
    trials
}

fn from_files(of: &Combination, subject: Subject, recipe: Recipe, orient: bool, key: &str) -> Result<(), Outcome> {
    let (model, goldens) = (subject.model()?, subject.goldens());
    let mut photos = goldens.names.clone();
    if recipe == Recipe::Squash {
        // The goldens are of OpenCV's pixels, which differ for CMYK.
        let alike = opencv_equals_pillow()?;
        photos.retain(|photo| alike.contains(photo));
    }
    let path = |photo: &String| fixture("goldens/photos").join(format!("{photo}.jpg"));
    let paths: Vec<PathBuf> = photos.iter().map(path).collect();
    let vectors = of.embed(model, recipe, orient, &paths)?;
    judge(of.tier(subject, recipe)?, &photos, &vectors, &goldens, key)
}

/// Photos that OpenCV and Pillow decode to the same pixels.
fn opencv_equals_pillow() -> Result<Vec<String>, Outcome> {
    let entries: Vec<serde_json::Value> = serde_json::from_slice(&std::fs::read(fixture("goldens/decoded.json"))?)?;
    let alike = entries.iter().filter(|entry| entry["opencv_equals_pillow"] == true);
    let names = alike.filter_map(|entry| entry["file"].as_str()?.strip_suffix(".jpg").map(str::to_owned));
    let names: Vec<String> = names.collect();
    ensure(names.len() > 20, || format!("decoded.json lists only {} photos", names.len()))?;
    Ok(names)
}

fn from_pixels(of: &Combination, subject: Subject, recipe: Recipe, key: &str) -> Result<(), Outcome> {
    let (model, goldens, photos) = (subject.model()?, subject.goldens(), photos_with("decoded")?);
    let geometry = recipe.geometry(&model.preprocess)?;
    let mut resizer = resizers().get(&of.resizer)?.open()?;
    let input = |photo: &String| resize(resizer.as_mut(), &pixels("decoded", photo)?, geometry);
    let inputs: Vec<Vec<u8>> = photos.iter().map(input).collect::<Result<_, _>>()?;
    let mut encoder = open(&of.encoder, model, Pooling::Cls)?;
    let vectors = encode(encoder.as_mut(), &inputs, geometry.output(), 8)?;
    judge(of.resampling_tier(recipe)?, &photos, &vectors, &goldens, key)
}

fn judge(tier: FileTier, photos: &[String], vectors: &[Vec<f32>], goldens: &Goldens, key: &str) -> Result<(), Outcome> {
    ensure(photos.len() == vectors.len(), || format!("{} vectors of {} photos", vectors.len(), photos.len()))?;
    let cosines = photos
        .iter()
        .zip(vectors)
        .map(|(photo, vector)| Ok((photo.clone(), cosine(vector, goldens.vector(key, photo)))));
    tier.check(&cosines.collect::<Result<Vec<_>, Outcome>>()?)
}
