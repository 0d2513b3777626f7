//! TensorRT's engines: each takes minutes to build for one graph, one precision and a range of batches, and is kept on
//! disk.

use std::path::{Path, PathBuf};

use foveate_encode::{DType, EncodeError, GraphSource};
use ort::session::Session;
use ort::value::ValueType;

use crate::files;

/// The setting that names the folder.
pub(crate) const ENGINE_CACHE: &str = "engine_cache";

/// TensorRT's settings for a graph, and the folders of its caches.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EngineCaches {
    pub(crate) dtype: DType,
    /// The folder for engines of this graph, precision and range of batches.
    pub(crate) engines: String,
    /// The folder for timings of kernels per kind of GPU, shared by all graphs.
    pub(crate) timings: String,
    /// The smallest, the usual and the largest input, in the spelling of ONNX Runtime's options; `None` for a graph
    /// whose shapes are all fixed.
    pub(crate) shapes: Option<[String; 3]>,
}

impl EngineCaches {
    /// Creates the folders for the graph of the session `outline`, for batches of 1 to `max_batch` images in `dtype`,
    /// below the folder `setting` or the user's cache.
    pub(crate) fn new(
        outline: &Session,
        source: &GraphSource,
        dtype: DType,
        tf32: bool,
        max_batch: usize,
        setting: Option<&str>,
    ) -> Result<Self, EncodeError> {
        let root = setting.map(PathBuf::from).or_else(default_folder).ok_or_else(|| {
            EncodeError::Unsupported(format!("there is no folder for TensorRT's engines; name one as '{ENGINE_CACHE}'"))
        })?;
        let input = outline.inputs().first().map(|input| (input.name(), input.dtype()));
        let shapes = match input {
            Some((name, ValueType::Tensor { shape, .. })) => shapes(name, shape, max_batch),
            _ => None,
        };
        let hash = files::hash(source).map_err(|error| EncodeError::Model(error.into()))?;
        let folder = root.join(name(&hash, dtype, tf32, max_batch));
        std::fs::create_dir_all(&folder).map_err(|error| {
            let problem = format!("the folder {} of TensorRT's engines cannot be made: {error}", folder.display());
            EncodeError::Unsupported(format!("{problem}; name another as '{ENGINE_CACHE}'"))
        })?;
        Ok(Self { dtype, engines: text(&folder)?, timings: text(&root)?, shapes })
    }
}

/// ONNX Runtime takes paths as text.
fn text(path: &Path) -> Result<String, EncodeError> {
    let text = path.to_str().map(ToOwned::to_owned);
    text.ok_or_else(|| EncodeError::Unsupported(format!("'{ENGINE_CACHE}' in a folder that is no UTF-8: {path:?}")))
}

fn default_folder() -> Option<PathBuf> {
    folder_of_user(&|name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from))
}

/// The platform's cache folder for programs.
fn folder_of_user(variable: &dyn Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let named = variable("XDG_CACHE_HOME").or_else(|| variable("LOCALAPPDATA"));
    let cache = named.or_else(|| variable("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("foveate").join("tensorrt"))
}

/// Names a folder by the properties that ONNX Runtime's file names lack. ONNX Runtime names an engine by the names in
/// its graph, its own version and TensorRT's, the precision and the GPU's architecture, but not by the weights.
fn name(hash: &str, dtype: DType, tf32: bool, max_batch: usize) -> String {
    let tf32 = if tf32 { "-tf32" } else { "" };
    format!("{}-{}{tf32}-{max_batch}", &hash[..16], dtype.name())
}

/// Returns `name:1x224x224x3`, then twice the largest batch, because most batches are full. Only the batch size may be
/// variable.
fn shapes(name: &str, shape: &[i64], max_batch: usize) -> Option<[String; 3]> {
    let (&images, image) = shape.split_first()?;
    let open = images < 0 && image.iter().all(|&length| length > 0);
    let image: String = image.iter().map(|length| format!("x{length}")).collect();
    open.then(|| [1, max_batch, max_batch].map(|images| format!("{name}:{images}{image}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_leave_the_number_of_images_open() {
        let expected = ["pixels:1x224x224x3", "pixels:64x224x224x3", "pixels:64x224x224x3"].map(str::to_owned);
        assert_eq!(shapes("pixels", &[-1, 224, 224, 3], 64), Some(expected));
        assert_eq!(shapes("pixels", &[8, 3, 224, 224], 64), None);
        assert_eq!(shapes("pixels", &[-1, 3, -1, -1], 64), None);
        assert_eq!(shapes("pixels", &[], 64), None);
    }

    #[test]
    fn an_engine_is_of_one_model_precision_and_range() {
        let hash = "0123456789abcdef0123";
        assert_eq!(name(hash, DType::F16, false, 32), "0123456789abcdef-f16-32");
        assert_eq!(name(hash, DType::F32, true, 1), "0123456789abcdef-f32-tf32-1");
    }

    #[test]
    fn folders_are_those_of_the_platform() {
        let folder = |variables: &[(&str, &str)]| {
            let get = |name: &str| Some(PathBuf::from(variables.iter().find(|(known, _)| *known == name)?.1));
            folder_of_user(&get)
        };
        assert_eq!(folder(&[("HOME", "/home/ann")]).unwrap(), Path::new("/home/ann/.cache/foveate/tensorrt"));
        let both = [("HOME", "/home/ann"), ("XDG_CACHE_HOME", "/x")];
        assert_eq!(folder(&both).unwrap(), Path::new("/x/foveate/tensorrt"));
        assert_eq!(folder(&[]), None);
    }
}
