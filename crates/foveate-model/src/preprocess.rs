use std::path::Path;

use foveate_core::Size;
use serde_json::{Map, Value};

use crate::ModelError;
use crate::keys::Keys;

/// Preprocessing recipe, from preprocessor_config.json.
///
/// With a `shortest_edge` the image is resized so that its shorter side has that length (the longer one is truncated),
/// or its longer one `longest_edge` if that makes it smaller, and `crop` is cut from its centre, on black where the
/// image is smaller. Without one the whole image is stretched to `crop`. Then samples are multiplied
/// by `rescale_factor`, `mean` is subtracted and the result is divided by `std`.
#[derive(Clone, Debug, PartialEq)]
pub struct Preprocess {
    /// The library whose pixels these are.
    pub resampler: PixelLibrary,
    /// Shorter side after resizing; `None` if the file asks for a stretch to `crop` instead.
    pub shortest_edge: Option<u32>,
    /// Most that the longer side becomes, with `shortest_edge`.
    pub longest_edge: Option<u32>,
    /// True if a crop with odd margins begins at the even one of the two rows or columns, else at the first.
    pub ties_to_even: bool,
    /// Pillow's number for the filter (0 nearest, 1 lanczos, 2 bilinear, 3 bicubic, 4 box, 5 hamming).
    pub resample: u8,
    /// Size cut from the centre, which is the model's input size.
    pub crop: Size,
    /// Mean of each channel, of samples scaled by `rescale_factor` (0..=1 for the usual 1/255).
    pub mean: [f32; 3],
    /// Standard deviation of each channel, of samples scaled by `rescale_factor`.
    pub std: [f32; 3],
    /// Factor applied to u8 samples first: 1/255 in every published model.
    pub rescale_factor: f64,
}

/// A library that resamples images with antialiasing. The libraries have the same filters; they differ in the order of
/// the two passes, and in the rounding between and behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PixelLibrary {
    /// Pillow: u8, and the vertical pass first for images that lose more by it.
    Pillow,
    /// Pillow with weights of 16 bits instead of 22: up to 6 samples in 10,000 are a step off. DINOv2's vectors have
    /// always been made this way here, and they stay the same.
    NearPillow,
    /// torchvision: u8, always the horizontal pass first.
    Torchvision,
    /// torchvision on samples that were scaled to 0..=1 before: f32, never rounded to u8.
    TorchvisionF32,
}

/// The class attributes that an image processor falls back to.
struct Defaults {
    /// The beginning of the classes' names.
    class: &'static str,
    resample: usize,
    mean: [f64; 3],
    std: [f64; 3],
    /// The shorter side if there is a crop, else both sides.
    size: u32,
    crop: Option<u32>,
    /// False if samples are not normalized unless the file says so.
    normalize: bool,
    /// True if the class scales samples to 0..=1 before it resizes.
    is_float: bool,
}

const HALF: [f64; 3] = [0.5; 3];

/// `BitImageProcessor`, which `transformers` uses for DINOv2, and `CLIPImageProcessor` share these.
const BIT: Defaults = Defaults {
    class: "Bit",
    resample: 3,
    mean: [0.481_454_66, 0.457_827_5, 0.408_210_73],
    std: [0.268_629_54, 0.261_302_58, 0.275_777_11],
    size: 224,
    crop: Some(224),
    normalize: true,
    is_float: false,
};
const VIT: Defaults = Defaults {
    class: "ViT",
    resample: 2,
    mean: HALF,
    std: HALF,
    size: 224,
    crop: None,
    normalize: true,
    is_float: false,
};

/// The classes of `transformers` (5.23) whose defaults are known.
const CLASSES: [Defaults; 6] = [
    BIT,
    Defaults { class: "CLIP", ..BIT },
    VIT,
    Defaults { class: "Siglip", resample: 3, ..VIT },
    Defaults { class: "DINOv3ViT", mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225], is_float: true, ..VIT },
    Defaults { class: "Tipsv2", size: 448, normalize: false, ..VIT },
];

const SIDES: std::ops::RangeInclusive<usize> = 1..=1 << 14;

impl Preprocess {
    /// Returns true if the recipe resizes samples of f32, which are never rounded to u8.
    pub fn is_float(&self) -> bool {
        self.resampler == PixelLibrary::TorchvisionF32
    }

    /// Parses a preprocessor_config.json. `path` is for messages.
    ///
    /// Absent keys take the defaults of the processor's class in `transformers`, which is `BitImageProcessor` (that of
    /// every published DINOv2) if none is named. With a class that is not known here, an absent key is an error.
    /// `resampler` is the one of the model's library.
    ///
    /// # Errors
    /// [`ModelError::Malformed`], naming the key, for a file that is not a recipe or not a supported one: a
    /// `longest_edge` alone (which `transformers` refuses as well), or no resize at all.
    pub fn from_json(json: &[u8], path: &Path, resampler: PixelLibrary) -> Result<Self, ModelError> {
        Self::from_keys(&Keys::parse(json, path)?, resampler)
    }

    /// Like [`Self::from_json`], from keys that are already parsed.
    pub(crate) fn from_map(map: Map<String, Value>, path: &Path, resampler: PixelLibrary) -> Result<Self, ModelError> {
        Self::from_keys(&Keys::new(map, path), resampler)
    }

    fn from_keys(keys: &Keys<'_>, resampler: PixelLibrary) -> Result<Self, ModelError> {
        let defaults = defaults(keys)?;
        let (resize, crop) = geometry(keys, defaults)?;
        let (shortest_edge, longest_edge) = match resize {
            ResizeStep::ShortestEdge { edge, longest } => (Some(edge), longest),
            ResizeStep::Stretch(_) => (None, None),
        };
        let (mean, std) = normalization(keys, defaults)?;
        let is_float = defaults.is_some_and(|defaults| defaults.is_float);
        Ok(Self {
            resampler: if is_float { PixelLibrary::TorchvisionF32 } else { resampler },
            shortest_edge,
            longest_edge,
            ties_to_even: false,
            resample: keys.integer("resample", defaults.map(|d| d.resample), 0..=5)? as u8,
            crop,
            mean,
            std,
            rescale_factor: if keys.flag("do_rescale", Some(true))? {
                keys.number("rescale_factor", Some(1.0 / 255.0), f64::MIN_POSITIVE..=1.0)?
            } else {
                1.0
            },
        })
    }

    /// Reads what timm's and open_clip's configs say alike; both resize with Pillow.
    pub(crate) fn of_pillow(keys: &Keys<'_>, shortest_edge: Option<u32>, crop: Size) -> Result<Self, ModelError> {
        Ok(Self {
            resampler: PixelLibrary::Pillow,
            shortest_edge,
            longest_edge: None,
            ties_to_even: true,
            resample: resample_of_name(keys)?,
            crop,
            mean: keys.per_channel("mean", Some(BIT.mean), f32::is_finite, "numbers")?,
            std: keys.per_channel("std", Some(BIT.std), |x| x.is_finite() && x > 0.0, "positive numbers")?,
            rescale_factor: 1.0 / 255.0,
        })
    }
}

/// Pillow's number for the name of a filter in timm's and open_clip's configs.
fn resample_of_name(keys: &Keys<'_>) -> Result<u8, ModelError> {
    match keys.text("interpolation")? {
        Some("lanczos") => Ok(1),
        Some("bilinear") => Ok(2),
        None | Some("bicubic") => Ok(3),
        Some(other) => {
            Err(keys.error("interpolation", format!("is '{other}'; supported are bicubic, bilinear and lanczos")))
        }
    }
}

fn defaults(keys: &Keys<'_>) -> Result<Option<&'static Defaults>, ModelError> {
    let class = match keys.text("image_processor_type")? {
        Some(class) => Some(class),
        None => keys.text("feature_extractor_type")?,
    };
    let Some(class) = class else { return Ok(Some(&BIT)) };
    Ok(CLASSES.iter().find(|defaults| class.starts_with(defaults.class)))
}

/// Reads the resize and the input size.
fn geometry(keys: &Keys<'_>, defaults: Option<&Defaults>) -> Result<(ResizeStep, Size), ModelError> {
    if !keys.flag("do_resize", Some(true))? {
        return Err(keys.error("do_resize", "is false; without a resize images have no common size"));
    }
    let crops = keys.flag("do_center_crop", defaults.map(|defaults| defaults.crop.is_some()))?;
    let crop = if crops { Some(crop_size(keys, defaults)?) } else { None };
    match (resize(keys, defaults)?, crop) {
        (resize @ ResizeStep::ShortestEdge { .. }, Some(crop)) => Ok((resize, crop)),
        (ResizeStep::ShortestEdge { .. }, None) => {
            Err(keys.error("do_center_crop", "is false; without a crop images have no common size"))
        }
        (ResizeStep::Stretch(size), Some(crop)) if size != crop => {
            Err(keys.error("crop_size", format!("is {crop}; after a stretch to {size} it must be the same")))
        }
        (resize @ ResizeStep::Stretch(size), _) => Ok((resize, size)),
    }
}

#[derive(Clone, Copy)]
enum ResizeStep {
    ShortestEdge { edge: u32, longest: Option<u32> },
    Stretch(Size),
}

impl Defaults {
    /// The meaning of a bare number.
    fn resize(&self, side: u32) -> ResizeStep {
        match self.crop {
            Some(_) => ResizeStep::ShortestEdge { edge: side, longest: None },
            None => ResizeStep::Stretch(Size::square(side)),
        }
    }
}

fn resize(keys: &Keys<'_>, defaults: Option<&Defaults>) -> Result<ResizeStep, ModelError> {
    let Some(value) = keys.get("size") else {
        return match defaults {
            Some(defaults) => Ok(defaults.resize(defaults.size)),
            None => Err(keys.error("size", "is missing and has no default; add it")),
        };
    };
    match value {
        Value::Object(size)
            if size.contains_key("shortest_edge") && size.keys().all(|key| key.ends_with("est_edge")) =>
        {
            let edge = keys.to_integer("size.shortest_edge", &size["shortest_edge"], SIDES)?;
            let longest = size.get("longest_edge").filter(|value| !value.is_null());
            let longest = longest.map(|value| keys.to_integer("size.longest_edge", value, SIDES)).transpose()?;
            Ok(ResizeStep::ShortestEdge { edge: edge as u32, longest: longest.map(|longest| longest as u32) })
        }
        Value::Object(size) if size.contains_key("longest_edge") => {
            Err(keys.error("size", format!("is {value}; transformers needs a shortest_edge as well: add it")))
        }
        // A bare number is the shorter edge for the Bit and CLIP classes, and a square for the others.
        Value::Number(_) => {
            let side = keys.to_integer("size", value, SIDES)? as u32;
            Ok(defaults.map_or(ResizeStep::Stretch(Size::square(side)), |defaults| defaults.resize(side)))
        }
        _ => Ok(ResizeStep::Stretch(height_and_width(keys, "size", value)?)),
    }
}

fn crop_size(keys: &Keys<'_>, defaults: Option<&Defaults>) -> Result<Size, ModelError> {
    match (keys.get("crop_size"), defaults.and_then(|defaults| defaults.crop)) {
        (Some(value @ Value::Number(_)), _) => Ok(Size::square(keys.to_integer("crop_size", value, SIDES)? as u32)),
        (Some(value), _) => height_and_width(keys, "crop_size", value),
        (None, Some(crop)) => Ok(Size::square(crop)),
        (None, None) => Err(keys.error("crop_size", "is missing and has no default; add it")),
    }
}

fn height_and_width(keys: &Keys<'_>, key: &str, value: &Value) -> Result<Size, ModelError> {
    match (value.get("height"), value.get("width"), value.as_object().map(Map::len)) {
        (Some(height), Some(width), Some(2)) => Ok(Size::new(
            keys.to_integer(&format!("{key}.width"), width, SIDES)? as u32,
            keys.to_integer(&format!("{key}.height"), height, SIDES)? as u32,
        )),
        _ => Err(keys.error(key, format!("is {value}, not a height and a width or a shortest_edge"))),
    }
}

fn normalization(keys: &Keys<'_>, defaults: Option<&Defaults>) -> Result<([f32; 3], [f32; 3]), ModelError> {
    if !keys.flag("do_normalize", Some(defaults.is_none_or(|defaults| defaults.normalize)))? {
        return Ok(([0.0; 3], [1.0; 3]));
    }
    let mean = keys.per_channel("image_mean", defaults.map(|d| d.mean), f32::is_finite, "numbers")?;
    let std = defaults.map(|d| d.std);
    let std = keys.per_channel("image_std", std, |x| x.is_finite() && x > 0.0, "positive numbers")?;
    Ok((mean, std))
}
