use foveate_core::{Health, Registry, named_backend};

use crate::encoder::Encoder;
use crate::error::EncodeError;
use crate::model::{AnyModel, Graph, GraphFormat, ModelForm};
use crate::options::EncoderOptions;

/// Opens an encoder for an `M`.
type Open<M> = Box<dyn Fn(&M, &EncoderOptions) -> Result<Box<dyn Encoder>, EncodeError> + Send + Sync>;

/// A named factory of encoders. `C` is the program's type of checkpoints.
pub struct EncoderBackend<C> {
    name: &'static str,
    about: &'static str,
    health: fn() -> Health,
    checkpoints: Option<Open<C>>,
    graphs: Option<(GraphFormat, Open<Graph>)>,
}

impl<C> EncoderBackend<C> {
    /// Creates a backend called `name` that takes no form of model yet, and counts as pure Rust.
    pub fn new(name: &'static str, about: &'static str) -> Self {
        Self { name, about, health: Health::all_rust, checkpoints: None, graphs: None }
    }

    /// Makes the backend take checkpoints.
    #[must_use]
    pub fn taking_checkpoints<F>(self, open: F) -> Self
    where
        F: Fn(&C, &EncoderOptions) -> Result<Box<dyn Encoder>, EncodeError> + Send + Sync + 'static,
    {
        Self { checkpoints: Some(Box::new(open)), ..self }
    }

    /// Makes the backend take graphs of `format`, and of no other.
    #[must_use]
    pub fn taking_graphs<F>(self, format: GraphFormat, open: F) -> Self
    where
        F: Fn(&Graph, &EncoderOptions) -> Result<Box<dyn Encoder>, EncodeError> + Send + Sync + 'static,
    {
        Self { graphs: Some((format, Box::new(open))), ..self }
    }

    /// Makes [`foveate_core::Backend::health`] return `health`.
    #[must_use]
    pub fn with_health(self, health: fn() -> Health) -> Self {
        Self { health, ..self }
    }

    /// Returns true if the backend takes models in this form.
    pub fn takes(&self, form: ModelForm) -> bool {
        match form {
            ModelForm::Checkpoint => self.checkpoints.is_some(),
            ModelForm::Graph(format) => self.graphs.as_ref().is_some_and(|(taken, _)| *taken == format),
        }
    }

    /// Opens an encoder.
    ///
    /// # Errors
    /// [`EncodeError::Form`] for a model in a form that the backend does not take, the backend's own errors otherwise.
    pub fn open(&self, model: &AnyModel<C>, options: &EncoderOptions) -> Result<Box<dyn Encoder>, EncodeError> {
        match (model, &self.checkpoints, &self.graphs) {
            (AnyModel::Checkpoint(checkpoint), Some(open), _) => open(checkpoint, options),
            (AnyModel::Graph(graph), _, Some((format, open))) if graph.format == *format => open(graph, options),
            _ => Err(EncodeError::Form { backend: self.name.to_owned(), form: model.form(), takers: Vec::new() }),
        }
    }
}

named_backend!(EncoderBackend<C>);

/// The encoders compiled into a program. `C` is the program's type of checkpoints.
pub type EncoderRegistry<C> = Registry<EncoderBackend<C>>;
