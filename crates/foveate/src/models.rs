//! Models as the facade opens them: a checkpoint, or a whole network in a file that an encoder reads itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use foveate_core::Backend;
use foveate_encode::{
    AnyModel, DType, EncodeError, EncoderBackend, EncoderOptions, EncoderRegistry, Graph, GraphFormat, GraphSource,
    ModelForm, Pooling,
};
use foveate_model::{Model, ModelError, OpenOptions, PixelLibrary, Preprocess, sha256_file};

/// The form that a checkpoint can be converted to.
const MADE_OF_CHECKPOINTS: ModelForm = ModelForm::Graph(GraphFormat::Onnx);

/// A model for any encoder that takes its form.
#[derive(Clone, Debug)]
pub enum OpenModel {
    /// A checkpoint.
    Checkpoint(Arc<Model>),
    /// A network in a file.
    Graph(Arc<GraphFile>),
}

/// A network in a file, with the settings from the files beside it.
#[derive(Clone, Debug)]
pub struct GraphFile {
    /// The network.
    pub graph: Graph,
    /// Preprocessing recipe.
    pub preprocess: Preprocess,
    /// SHA-256 of the file, and of its external weights if there are any.
    pub hash: String,
}

impl OpenModel {
    /// Opens the model that `spec` names: a file `x.onnx`, `x.pt`, `x.ts` or `x.torchscript` with its
    /// preprocessor_config.json beside it or in the folder above, or anything that [`Model::open`] finds.
    pub fn open(spec: &str, options: &OpenOptions<'_>) -> Result<Self, ModelError> {
        let path = Path::new(spec);
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        match GraphFormat::of_extension(extension) {
            Some(format) if path.is_file() => Ok(Self::Graph(Arc::new(GraphFile::open(spec, path, format)?))),
            _ => Ok(Self::Checkpoint(Arc::new(Model::open(spec, options)?))),
        }
    }

    /// Returns the name that the user asked for.
    pub fn name(&self) -> &str {
        match self {
            Self::Checkpoint(model) => &model.name,
            Self::Graph(file) => &file.graph.name,
        }
    }

    /// Returns the commit of a model from the hub.
    pub fn revision(&self) -> Option<&str> {
        match self {
            Self::Checkpoint(model) => model.revision.as_deref(),
            Self::Graph(_) => None,
        }
    }

    /// Returns the preprocessing recipe.
    pub fn preprocess(&self) -> &Preprocess {
        match self {
            Self::Checkpoint(model) => &model.preprocess,
            Self::Graph(file) => &file.preprocess,
        }
    }

    /// Returns the pooling that gives the vectors of the model's reference.
    pub fn own_pooling(&self) -> Pooling {
        match self {
            Self::Checkpoint(model) => model.network.pooling,
            Self::Graph(_) => Pooling::Cls,
        }
    }

    /// Returns the SHA-256 that identifies the weights, in lower-case hex.
    pub fn weights_hash(&self) -> &str {
        match self {
            Self::Checkpoint(model) => model.weights.hash(),
            Self::Graph(file) => &file.hash,
        }
    }

    /// Returns true if the weights were generated, so that the vectors are meaningless.
    pub fn is_seeded(&self) -> bool {
        matches!(self, Self::Checkpoint(model) if model.weights.is_seeded())
    }

    /// Returns the first encoder that takes the model as it is; not every encoder takes a network in a file.
    pub fn usual_encoder(&self, encoders: &EncoderRegistry<Model>) -> Option<String> {
        let form = self.form();
        encoders.iter().find(|backend| backend.takes(form)).map(|backend| backend.name().to_owned())
    }

    /// Returns true if `backend` takes the model, as it is or converted to a graph.
    pub fn is_taken_by(&self, backend: &EncoderBackend<Model>) -> bool {
        let as_graph = matches!(self, Self::Checkpoint(_)) && backend.takes(MADE_OF_CHECKPOINTS);
        as_graph || backend.takes(self.form())
    }

    fn form(&self) -> ModelForm {
        match self {
            Self::Checkpoint(_) => ModelForm::Checkpoint,
            Self::Graph(file) => ModelForm::Graph(file.graph.format),
        }
    }

    /// Returns the model in a form that `backend`, one of `encoders`, takes. For a backend that takes ONNX, a
    /// checkpoint is written as a graph in memory, with the precision and the pooling in `options`.
    ///
    /// # Errors
    /// [`EncodeError::Form`] if the backend takes no form that this model is available in; it names the encoders that
    /// do. [`EncodeError::Model`] if the checkpoint cannot be written as a graph.
    pub fn for_backend(
        &self,
        backend: &EncoderBackend<Model>,
        encoders: &EncoderRegistry<Model>,
        options: &EncoderOptions,
    ) -> Result<AnyModel<Model>, EncodeError> {
        match self {
            Self::Checkpoint(model) if backend.takes(ModelForm::Checkpoint) => {
                Ok(AnyModel::Checkpoint(Arc::clone(model)))
            }
            Self::Checkpoint(model) if backend.takes(MADE_OF_CHECKPOINTS) => {
                Ok(AnyModel::Graph(as_onnx(model, options)?))
            }
            Self::Graph(file) if backend.takes(self.form()) => Ok(AnyModel::Graph(file.graph.clone())),
            _ => Err(self.not_taken_by(backend, encoders)),
        }
    }

    /// Returns a checkpoint as an ONNX file in f32; see [`Model::to_onnx`].
    ///
    /// # Errors
    /// [`EncodeError::Model`] if it cannot be written as a graph, [`EncodeError::Unsupported`] for a network in a file.
    pub fn to_onnx(&self, pooling: Pooling) -> Result<Vec<u8>, EncodeError> {
        match self {
            Self::Checkpoint(model) => {
                model.to_onnx(DType::F32, pooling).map_err(|error| EncodeError::Model(error.into()))
            }
            Self::Graph(_) => Err(EncodeError::Unsupported("a network in a file as another one".to_owned())),
        }
    }

    fn not_taken_by(&self, backend: &EncoderBackend<Model>, encoders: &EncoderRegistry<Model>) -> EncodeError {
        let form = self.form();
        let takers = encoders.iter().filter(|other| self.is_taken_by(other)).map(|other| other.name().to_owned());
        EncodeError::Form { backend: backend.name().to_owned(), form, takers: takers.collect() }
    }
}

/// Converts the checkpoint to a graph that is freed once a session is made of it.
fn as_onnx(model: &Model, options: &EncoderOptions) -> Result<Graph, EncodeError> {
    if !matches!(options.dtype, DType::F32 | DType::F16) {
        let dtype = options.dtype.name();
        let what =
            format!("{dtype} from a checkpoint: ONNX graphs are made in f32 and f16; `fused` computes in {dtype}");
        return Err(EncodeError::Unsupported(what));
    }
    let file = model.to_onnx(options.dtype, options.pooling).map_err(|error| EncodeError::Model(error.into()))?;
    let (mean, std) = of_unit_samples(&model.preprocess);
    Ok(Graph {
        name: model.name.clone(),
        format: GraphFormat::Onnx,
        source: GraphSource::Memory(file.into()),
        input: model.preprocess.crop,
        mean,
        std,
        registers: Some(model.network.num_register_tokens),
    })
}

impl GraphFile {
    fn open(spec: &str, path: &Path, format: GraphFormat) -> Result<Self, ModelError> {
        let preprocess = Self::preprocess(path)?;
        let (mean, std) = of_unit_samples(&preprocess);
        let graph = Graph {
            name: spec.to_owned(),
            format,
            source: GraphSource::File(path.to_owned()),
            input: preprocess.crop,
            mean,
            std,
            registers: Self::registers(path),
        };
        Ok(Self { graph, preprocess, hash: Self::hash(path)? })
    }

    fn preprocess(path: &Path) -> Result<Preprocess, ModelError> {
        const NAME: &str = "preprocessor_config.json";
        let Some(file) = neighbour(path, NAME) else {
            let problem = format!("no {NAME} beside it or in the folder above: put the model's own there");
            return Err(ModelError::Malformed { path: path.to_owned(), problem });
        };
        let json = std::fs::read(&file).map_err(|cause| ModelError::Read { path: file.clone(), cause })?;
        Preprocess::from_json(&json, &file, PixelLibrary::Pillow)
    }

    /// Reads the number of register tokens. The model's config.json may be missing, and may describe any architecture.
    fn registers(path: &Path) -> Option<usize> {
        let config = std::fs::read(neighbour(path, "config.json")?).ok()?;
        let config: serde_json::Value = serde_json::from_slice(&config).ok()?;
        usize::try_from(config.get("num_register_tokens")?.as_u64()?).ok()
    }

    /// Hashes the file. Exporters put weights beyond two gigabytes into a second file, named like the graph plus
    /// `.data` or `_data`.
    fn hash(path: &Path) -> Result<String, ModelError> {
        let mut hash = sha256_file(path)?;
        for suffix in [".data", "_data"] {
            let mut data = path.as_os_str().to_owned();
            data.push(suffix);
            if Path::new(&data).is_file() {
                hash = format!("{hash}+{}", sha256_file(Path::new(&data))?);
            }
        }
        Ok(hash)
    }
}

/// Returns the file called `name` beside `path`, or in the folder above (`onnx/model.onnx` below the model's other
/// files).
fn neighbour(path: &Path, name: &str) -> Option<PathBuf> {
    path.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Returns mean and standard deviation for samples scaled to 0..=1, whatever the recipe's rescaling factor.
fn of_unit_samples(preprocess: &Preprocess) -> ([f32; 3], [f32; 3]) {
    let scale = preprocess.rescale_factor * 255.0;
    let mean = preprocess.mean.map(|value| (f64::from(value) / scale) as f32);
    let std = preprocess.std.map(|value| (f64::from(value) / scale) as f32);
    (mean, std)
}

#[cfg(test)]
mod tests {
    use foveate_encode::Encoder;

    use super::*;

    #[test]
    fn a_network_in_a_file_goes_to_an_encoder_that_takes_it() {
        fn refuse<M>(_: &M, _: &EncoderOptions) -> Result<Box<dyn Encoder>, EncodeError> {
            Err(EncodeError::Engine("never opened".into()))
        }
        let mut encoders = EncoderRegistry::new("encoder", &["plain", "graphs"]);
        encoders.register(EncoderBackend::new("plain", "takes checkpoints").taking_checkpoints(refuse)).unwrap();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/models/tiny/model.baked224.onnx");
        let model = OpenModel::open(path, &OpenOptions::from_env()).unwrap();
        assert_eq!(model.usual_encoder(&encoders), None);
        let refused = |encoders: &EncoderRegistry<Model>| {
            let plain = encoders.get("plain").unwrap();
            model.for_backend(plain, encoders, &EncoderOptions::default()).unwrap_err().to_string()
        };
        assert_eq!(refused(&encoders), "'plain' does not take ONNX graphs");

        let graphs = EncoderBackend::new("graphs", "takes files").taking_graphs(GraphFormat::Onnx, refuse);
        encoders.register(graphs).unwrap();
        assert_eq!(refused(&encoders), "'plain' does not take ONNX graphs; encoders that do: graphs");
        assert_eq!(model.usual_encoder(&encoders).as_deref(), Some("graphs"));
        let graphs = encoders.get("graphs").unwrap();
        let graph = model.for_backend(graphs, &encoders, &EncoderOptions::default()).unwrap();
        assert_eq!(graph.form(), ModelForm::Graph(GraphFormat::Onnx));
        let refused = encoders.get("plain").unwrap().open(&graph, &EncoderOptions::default());
        assert!(matches!(refused, Err(EncodeError::Form { .. })), "the form is refused before the backend sees it");
    }

    #[test]
    fn samples_that_are_not_rescaled_have_the_same_meaning() {
        let recipe = Preprocess {
            resampler: PixelLibrary::Pillow,
            shortest_edge: None,
            longest_edge: None,
            ties_to_even: false,
            resample: 3,
            crop: foveate_core::Size::square(224),
            mean: [127.5, 0.0, 51.0],
            std: [255.0, 1.0, 127.5],
            rescale_factor: 1.0,
        };
        assert_eq!(of_unit_samples(&recipe), ([0.5, 0.0, 0.2], [1.0, 1.0 / 255.0, 0.5]));
        let usual = Preprocess { mean: [0.5; 3], std: [0.25; 3], rescale_factor: 1.0 / 255.0, ..recipe };
        assert_eq!(of_unit_samples(&usual), ([0.5; 3], [0.25; 3]));
    }
}
