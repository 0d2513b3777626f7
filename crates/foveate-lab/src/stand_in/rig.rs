//! A rig whose forward is a stand-in.

use foveate_decode::{DecodeError, Decoder};
use foveate_encode::{EncodeError, Encoder, EncoderSpec};
use foveate_pipeline::Config;
use foveate_preprocess::{DecoderOpener, PreprocessOptions, PreprocessorOpener, ResizerOpener};
use foveate_resize::{ResizeError, Resizer};
use foveate_sink::{SinkError, SinkOptions, VectorSink};
use foveate_source::{Input, Source, SourceError};

use super::StandIn;
use crate::{Candidate, Context, Memory, Rig, Setting, StoreOpener};

/// Another rig's stages with a stand-in in place of every encoder. Only experiments take a rig, so a stand-in's
/// vectors reach no output but the scratch files that experiments remove.
pub struct StandInRig {
    inner: Box<dyn Rig>,
    stand_in: StandIn,
    /// Inputs and outputs of the model.
    spec: EncoderSpec,
}

impl StandInRig {
    /// Replaces the encoders of `inner`. Opens the usual one once, to learn the model's inputs and outputs.
    ///
    /// # Errors
    /// Fails if the usual encoder cannot be opened.
    pub fn new(inner: Box<dyn Rig>, stand_in: StandIn) -> Result<Self, EncodeError> {
        let spec = inner.open_encoder(&Setting { batch: 1, ..inner.base() })?.spec().clone();
        Ok(Self { inner, stand_in, spec })
    }
}

impl Rig for StandInRig {
    fn base(&self) -> Setting {
        let base = self.inner.base();
        Setting { encoder: self.stand_in.encoder_name(), dtype: self.stand_in.dtype().unwrap_or(base.dtype), ..base }
    }

    fn context(&self) -> Context {
        Context { device: self.stand_in.to_string(), ..self.inner.context() }
    }

    fn encoders(&self) -> Vec<Candidate> {
        vec![Candidate { name: self.stand_in.encoder_name(), library: "none: it sleeps".to_owned(), problem: None }]
    }

    fn open_encoder(&self, setting: &Setting) -> Result<Box<dyn Encoder>, EncodeError> {
        let known = self.base().dtype;
        let asked = setting.dtype;
        if asked != known {
            let why = format!("the curve of {} is for {}, not {}", self.stand_in, known.name(), asked.name());
            return Err(EncodeError::Unsupported(why));
        }
        Ok(self.stand_in.open(EncoderSpec { dtype: asked, max_batch: setting.batch, ..self.spec.clone() }))
    }

    fn setting_on_cpu(&self, setting: &Setting) -> Setting {
        self.inner.setting_on_cpu(setting)
    }

    fn open_on_cpu(&self, setting: &Setting) -> Result<Box<dyn Encoder>, EncodeError> {
        self.inner.open_on_cpu(setting)
    }

    fn photos(&self) -> Result<Box<dyn Source>, SourceError> {
        self.inner.photos()
    }

    fn list(&self, inputs: Vec<Input>) -> Result<Box<dyn Source>, SourceError> {
        self.inner.list(inputs)
    }

    fn store_opener(&self, scheme: &str) -> StoreOpener {
        self.inner.store_opener(scheme)
    }

    fn decoders(&self) -> Vec<Candidate> {
        self.inner.decoders()
    }

    fn batched_decoders(&self) -> Vec<Candidate> {
        let mut candidates = self.inner.batched_decoders();
        for candidate in &mut candidates {
            candidate.problem = Some("there is no device behind a stand-in".to_owned());
        }
        candidates
    }

    fn resizers(&self) -> Vec<Candidate> {
        self.inner.resizers()
    }

    fn sinks(&self) -> Vec<Candidate> {
        self.inner.sinks()
    }

    fn open_decoder(&self, name: &str) -> Result<Box<dyn Decoder>, DecodeError> {
        self.inner.open_decoder(name)
    }

    fn decoder_opener(&self, setting: &Setting) -> DecoderOpener {
        self.inner.decoder_opener(setting)
    }

    fn open_resizer(&self, name: &str) -> Result<Box<dyn Resizer>, ResizeError> {
        self.inner.open_resizer(name)
    }

    fn resizer_opener(&self, setting: &Setting) -> ResizerOpener {
        self.inner.resizer_opener(setting)
    }

    fn preprocessors(&self, setting: &Setting) -> PreprocessorOpener {
        self.inner.preprocessors(setting)
    }

    fn preprocess(&self, setting: &Setting) -> PreprocessOptions {
        self.inner.preprocess(setting)
    }

    fn memory_of_forward(&self, _: &Setting) -> Result<Memory, String> {
        Err("there is no model behind a stand-in".to_owned())
    }

    fn open_sink(&self, name: &str, options: &SinkOptions) -> Result<Box<dyn VectorSink>, SinkError> {
        self.inner.open_sink(name, options)
    }

    fn config(&self, setting: &Setting) -> Config {
        self.inner.config(setting)
    }
}
