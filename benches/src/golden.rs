//! The golden photos: the reference vectors of a configuration, and the largest allowed distance to them.

use std::path::{Path, PathBuf};

use foveate::DecodeScale;
use foveate::embed::{Backends, EmbedOptions};
use foveate::encode::DType;
use foveate::verify::quantile;
use foveate_testkit::find_data;
use foveate_tests::data::{fixture, root};
use foveate_tests::goldens::Goldens;
use foveate_tests::numerics::{
    self, FileTier, OTHER_PIXELS, OTHER_PIXELS_TRAINED, RESAMPLED_ALIKE, RESAMPLED_OTHERWISE, SAME_PIXELS,
};
use foveate_tests::trial::Outcome;

use crate::Result;
use crate::stored::Row;

/// JPEGs decoded at a fraction of their size: the resizer would have averaged away almost the same detail. Most golden
/// photos are too small for it. Worst: 1 - cosine is 6.0e-4 for models with random weights, 5.3e-3 for the ViT-Tiny;
/// the median is 1.7e-6.
pub const REDUCED: FileTier = FileTier { name: "reduced", min_cosine: 0.99, median_cosine: 0.9999 };

/// A forward in f16 or bf16, for models with random weights: the tier `half` of the encoders' own tests. Worst: 1.1e-4,
/// median 4.1e-5, both in bf16.
pub const HALF: FileTier =
    FileTier { name: "half", min_cosine: numerics::HALF.min_cosine, median_cosine: numerics::HALF.min_cosine };

/// As [`HALF`], for the ViT-Tiny. Worst: 1.4e-3, median 1.2e-4, both in bf16.
pub const HALF_TRAINED: FileTier = FileTier { name: "half-trained", min_cosine: 0.997, median_cosine: 0.9995 };

/// The location of a model's golden vectors.
struct Place {
    /// The suffix of the model's name.
    model: &'static str,
    file: fn() -> std::result::Result<PathBuf, String>,
    /// The key of the vectors by the `hf` recipe, without orientation.
    key: &'static str,
    /// Whether the weights are trained: such vectors are more sensitive to differences in pixels.
    trained: bool,
}

static PLACES: [Place; 6] = [
    Place { model: "seeded:dinov2-small", file: seeded, key: "dinov2-small.hf_pil.cls", trained: false },
    Place {
        model: "seeded:dinov2-small-with-registers",
        file: seeded,
        key: "dinov2-small-with-registers.hf_pil.cls",
        trained: false,
    },
    Place {
        model: "models/tiny",
        file: || Ok(fixture("goldens/embeddings_tiny.safetensors")),
        key: "hf_pil.cls.f32",
        trained: false,
    },
    Place {
        model: "models/tiny-reg",
        file: || Ok(fixture("goldens/embeddings_tiny-reg.safetensors")),
        key: "hf_pil.cls.f32",
        trained: false,
    },
    Place {
        model: "models/tiny-swiglu",
        file: || Ok(fixture("goldens/embeddings_tiny-swiglu.safetensors")),
        key: "hf_pil.cls.f32",
        trained: false,
    },
    Place {
        model: "vit-tiny-patch16-224",
        file: || find_data("goldens/vit_tiny_embeddings.safetensors").map_err(|missing| missing.to_string()),
        key: "cls",
        trained: true,
    },
];

fn seeded() -> std::result::Result<PathBuf, String> {
    Ok(fixture("goldens/seeded_embeddings.safetensors"))
}

/// Photos, and their vectors by `transformers` with one model.
pub struct GoldenSet {
    goldens: Goldens,
    place: &'static Place,
}

/// Cosines of vectors to their goldens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Closeness {
    /// Number of compared photos.
    pub photos: usize,
    /// The smallest cosine.
    pub min: f64,
    /// The median cosine.
    pub median: f64,
}

impl GoldenSet {
    /// The set of a model, if it has one.
    ///
    /// # Errors
    /// When its file is missing or damaged.
    pub fn of(model: &str) -> Result<Option<Self>> {
        let model = model.trim_end_matches('/');
        let Some(place) = PLACES.iter().find(|place| model.ends_with(place.model)) else { return Ok(None) };
        let goldens = Goldens::load(&(place.file)()?).map_err(message)?;
        Ok(Some(Self { goldens, place }))
    }

    /// The paths of the photos.
    pub fn photos(&self) -> Vec<PathBuf> {
        let path = |name: &String| root().join("tests/fixtures/goldens/photos").join(format!("{name}.jpg"));
        self.goldens.photos().iter().map(path).collect()
    }

    /// Compares the rows of these photos, whose ids are their paths.
    ///
    /// # Errors
    /// When a photo has no row.
    pub fn compare(&self, rows: &[Row]) -> Result<Closeness> {
        let mut cosines = Vec::new();
        for photo in self.goldens.photos() {
            let is_of = |row: &&Row| Path::new(&row.id).file_stem().is_some_and(|stem| stem == photo.as_str());
            let row = rows.iter().find(is_of).ok_or_else(|| format!("the golden photo {photo} has no vector"))?;
            let golden = self.goldens.vector(self.place.key, photo).map_err(message)?;
            if row.vector.len() != golden.len() {
                return Err(format!("{photo}: {} components, not {}", row.vector.len(), golden.len()).into());
            }
            cosines.push(numerics::cosine(&row.vector, golden));
        }
        let at = |q| quantile(&cosines, q).ok_or("no golden photos");
        Ok(Closeness { photos: cosines.len(), min: at(0.0)?, median: at(0.5)? })
    }
}

fn message(outcome: Outcome) -> String {
    match outcome {
        Outcome::Ignored(reason) | Outcome::Failed(reason) => reason,
    }
}

/// How close a configuration's vectors must be: the loosest of its parts' limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    /// The tiers' names.
    pub name: String,
    /// Smallest cosine of all photos.
    pub min_cosine: f64,
    /// Smallest median of the cosines.
    pub median_cosine: f64,
}

impl Threshold {
    /// The threshold of the backends in `options`, for the model of `goldens`.
    ///
    /// # Errors
    /// When one of them cannot be opened.
    pub fn of(options: &EmbedOptions, backends: &Backends, goldens: &GoldenSet) -> Result<Self> {
        let decoder = backends.open_decoders(options.decoder.as_deref(), &options.decoding)?.capability();
        let resizer = backends.open_resizer(options.resizer.as_deref())?.capability();
        let reduced = options.decode_scale == DecodeScale::Fast && decoder.scaled;
        let trained = goldens.place.trained;
        let deviations = [
            (!decoder.exact_jpeg, if trained { OTHER_PIXELS_TRAINED } else { OTHER_PIXELS }),
            (reduced, REDUCED),
            (!resizer.pillow_exact && resizer.pillow_kernels, RESAMPLED_ALIKE),
            (!resizer.pillow_exact && !resizer.pillow_kernels, RESAMPLED_OTHERWISE),
            (options.dtype != DType::F32, if trained { HALF_TRAINED } else { HALF }),
        ];
        let tiers: Vec<FileTier> = deviations.into_iter().filter_map(|(is, tier)| is.then_some(tier)).collect();
        Ok(Self::least(if tiers.is_empty() { &[SAME_PIXELS] } else { &tiers }))
    }

    fn least(tiers: &[FileTier]) -> Self {
        let least = |value: fn(&FileTier) -> f64| tiers.iter().map(value).fold(1.0, f64::min);
        Self {
            name: tiers.iter().map(|tier| tier.name).collect::<Vec<_>>().join("+"),
            min_cosine: least(|tier| tier.min_cosine),
            median_cosine: least(|tier| tier.median_cosine),
        }
    }

    /// Whether vectors are close enough; NaN is not.
    pub fn holds(&self, found: Closeness) -> bool {
        found.min >= self.min_cosine && found.median >= self.median_cosine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_with_goldens_are_known_by_the_end_of_their_name() {
        for model in ["seeded:dinov2-small", "../tests/fixtures/models/tiny/", "x/models/tiny-reg"] {
            let set = GoldenSet::of(model).unwrap().unwrap();
            assert!(set.photos().iter().all(|photo| photo.exists()) && set.photos().len() == 30);
        }
        assert!(GoldenSet::of("seeded:dinov2-base").unwrap().is_none());
    }

    #[test]
    fn vectors_of_other_photos_are_far_from_the_goldens() {
        let set = GoldenSet::of("seeded:dinov2-small").unwrap().unwrap();
        let rows = |shift: usize| -> Vec<Row> {
            let photos = set.goldens.photos();
            let of = |i: usize| set.goldens.vector(set.place.key, &photos[(i + shift) % photos.len()]).unwrap();
            let row = |(i, name): (usize, &String)| Row {
                id: format!("photos/{name}.jpg"),
                vector: of(i).iter().map(|&v| v as f32).collect(),
            };
            photos.iter().enumerate().map(row).collect()
        };
        let same = Threshold::least(&[SAME_PIXELS]);
        assert!(same.holds(set.compare(&rows(0)).unwrap()));
        assert!(!same.holds(set.compare(&rows(1)).unwrap()));
        assert!(set.compare(&rows(0)[1..]).is_err());
    }

    #[test]
    fn every_deviation_widens_the_threshold() {
        let threshold = Threshold::least(&[OTHER_PIXELS, HALF]);
        assert_eq!((threshold.name.as_str(), threshold.min_cosine), ("other-pixels+half", 0.999));
        assert!(!threshold.holds(Closeness { photos: 1, min: f64::NAN, median: 1.0 }));
    }
}
