use std::str::FromStr;

use foveate_model::{PixelLibrary, Preprocess};
use foveate_resize::{CropTies, Filter, Geometry};

/// The way from an image of any size to the model's input. The two recipes give different embeddings: never mix their
/// vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Recipe {
    /// The model's own recipe as its library applies it: size, crop, filter, and the order of the filter's passes.
    #[default]
    Hf,
    /// The whole image stretched to the input size with OpenCV's bilinear filter: faster, with different embeddings.
    Squash,
}

impl Recipe {
    /// Every recipe. Each model offers all of them.
    pub const ALL: [Self; 2] = [Self::Hf, Self::Squash];

    /// Returns the name on the command line and in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hf => "hf",
            Self::Squash => "squash",
        }
    }

    /// Describes this recipe's geometry for a model's preprocessing settings in one line, or says why it has none.
    pub fn describe(self, preprocess: &Preprocess) -> String {
        self.geometry(preprocess).map_or_else(|error| error.to_string(), |geometry| describe(&geometry))
    }

    /// Returns this recipe's geometry for a model's preprocessing settings.
    ///
    /// # Errors
    /// [`RecipeError::Resample`] for a filter that no resizer has.
    pub fn geometry(self, preprocess: &Preprocess) -> Result<Geometry, RecipeError> {
        match self {
            Self::Squash => Ok(Geometry::Stretch { output: preprocess.crop, filter: Filter::OpenCvLinear }),
            Self::Hf => {
                let filter = filter(preprocess)?;
                let crop = preprocess.crop;
                let ties = if preprocess.ties_to_even { CropTies::ToEven } else { CropTies::Down };
                Ok(match preprocess.shortest_edge {
                    Some(edge) => {
                        Geometry::ShortestEdgeCrop { edge, longest: preprocess.longest_edge, crop, filter, ties }
                    }
                    None => Geometry::Stretch { output: crop, filter },
                })
            }
        }
    }
}

/// A recipe that does not exist or cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecipeError {
    /// No recipe has this name.
    #[error("no recipe '{0}'; there are: {known}", known = Recipe::ALL.map(Recipe::name).join(", "))]
    Unknown(String),
    /// The model needs a filter, by Pillow's number, that is not supported.
    #[error("preprocessor_config.json: resample {0} is not supported ({1})")]
    Resample(u8, &'static str),
}

/// Maps Pillow's `Resampling` numbers to a library's filters.
fn filter(preprocess: &Preprocess) -> Result<Filter, RecipeError> {
    match (preprocess.resample, preprocess.resampler) {
        (1, PixelLibrary::Pillow) => Ok(Filter::PillowLanczos3),
        (2, PixelLibrary::Pillow) => Ok(Filter::PillowBilinear),
        (3, PixelLibrary::Pillow) => Ok(Filter::PillowBicubic),
        (4, PixelLibrary::Pillow | PixelLibrary::NearPillow) => Ok(Filter::Box),
        (1, PixelLibrary::NearPillow) => Ok(Filter::Lanczos3),
        (2, PixelLibrary::NearPillow) => Ok(Filter::Bilinear),
        (3, PixelLibrary::NearPillow) => Ok(Filter::Bicubic),
        (2, PixelLibrary::Torchvision) => Ok(Filter::TorchBilinear),
        (3, PixelLibrary::Torchvision) => Ok(Filter::TorchBicubic),
        (2, PixelLibrary::TorchvisionF32) => Ok(Filter::TorchBilinearF32),
        (other, PixelLibrary::Pillow | PixelLibrary::NearPillow) => {
            Err(RecipeError::Resample(other, "1, 2, 3 or 4 are"))
        }
        (other, PixelLibrary::Torchvision) => {
            Err(RecipeError::Resample(other, "2 and 3 are, as this model's library resizes"))
        }
        (other, PixelLibrary::TorchvisionF32) => {
            Err(RecipeError::Resample(other, "2 is, as this model's library resizes"))
        }
    }
}

/// Describes a geometry in one line, for manifests: everything that decides its pixels.
pub(crate) fn describe(geometry: &Geometry) -> String {
    match geometry {
        Geometry::ShortestEdgeCrop { edge, longest, crop, filter, ties } => {
            let longest = longest.map_or_else(String::new, |longest| format!(", longest at most {longest}"));
            let ties = match ties {
                CropTies::Down => "",
                CropTies::ToEven => " with ties to even",
            };
            format!("shortest edge {edge}{longest}, {filter:?}, centre crop {crop}{ties}")
        }
        Geometry::Stretch { output, filter } => format!("stretch to {output}, {filter:?}"),
        other => format!("{other:?}"),
    }
}

impl FromStr for Recipe {
    type Err = RecipeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|recipe| recipe.name() == text);
        known.ok_or_else(|| RecipeError::Unknown(text.to_owned()))
    }
}
