//! Texts to vectors in the space of a two-tower model's images.

use std::path::Path;
use std::sync::Mutex;

#[cfg(feature = "worker")]
use foveate_core::error_chain;
use foveate_core::{VectorBuf, lock};
use foveate_encode::{EncodeError, EncoderOptions};
use foveate_encode_fused::FusedTextEncoder;
use foveate_model::{LogitScale, ModelError, OpenOptions, PooledWord, TextLibrary, TextModel};
use foveate_pipeline::lane::Normalize;
use foveate_sink::RunManifest;
use foveate_text::{TextError, TextRules, TextTokenizer, TokenIds};
#[cfg(feature = "worker")]
use foveate_worker::{EmbedTexts, TaskError, TextTokens};

/// Texts that are computed together; enough for a GPU.
const BATCH: usize = 256;

/// A text tower with its tokenizer. Threads share it and take turns.
pub struct TextEmbedder {
    encoder: Mutex<FusedTextEncoder>,
    tokenizer: TextTokenizer,
    model: TextIdentity,
    dim: usize,
    /// True if the model sees the padding.
    is_padded: bool,
}

/// The facts about an open text tower for manifests.
struct TextIdentity {
    name: String,
    revision: Option<String>,
    weights_sha256: String,
    /// That of the images in the same space.
    pooling: &'static str,
    library: &'static str,
    dtype: &'static str,
    logits: Option<LogitScale>,
    /// `cpu` or `cuda`.
    device: String,
}

/// The reason that texts have no vectors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextsError {
    /// The model cannot be opened, or has no text tower.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Generated weights have no tokenizer.
    #[error("{0} has generated weights and no tokenizer, so that its texts mean nothing; name a model with weights")]
    Seeded(String),
    /// The tokenizer is missing, or cannot take a text.
    #[error(transparent)]
    Tokenizer(#[from] TextError),
    /// The computation failed.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// A text, counted from 1, is empty.
    #[error("text {0} is empty; name what to search for")]
    Empty(usize),
}

/// The vectors of some texts.
#[derive(Debug, Default)]
pub struct EmbeddedTexts {
    /// `[n, dim]`, in the order of the texts.
    pub vectors: Vec<f32>,
    /// Components of a vector.
    pub dim: usize,
    /// Indices of the texts whose end did not fit the model's context.
    pub truncated: Vec<usize>,
    /// Indices of the texts whose vectors have a component that is infinite or not a number: f16 overflowed.
    pub not_finite: Vec<usize>,
}

impl TextEmbedder {
    /// Opens the text tower of the model `spec` in `options.dtype` on `options.device`: `cuda:N`, or `cpu` with
    /// `options.threads` threads.
    ///
    /// # Errors
    /// [`TextsError`], if the model has no text tower, no tokenizer or no weights.
    pub fn open(spec: &str, options: &EncoderOptions, hub: &OpenOptions<'_>) -> Result<Self, TextsError> {
        let model = TextModel::open(spec, hub)?;
        let Some(folder) = &model.folder else { return Err(TextsError::Seeded(model.name)) };
        let Some(words) = model.network.words else { return Err(ModelError::Lacks("text tower").into()) };
        let options = EncoderOptions { max_batch: BATCH, ..options.clone() };
        let encoder = FusedTextEncoder::new(&model, &options)?;
        Ok(Self {
            dim: encoder.dim(),
            encoder: Mutex::new(encoder),
            tokenizer: TextTokenizer::open(folder, rules(model.library, words.context, folder))?,
            is_padded: words.pooled != PooledWord::Mean,
            model: TextIdentity {
                weights_sha256: model.weights.hash().to_owned(),
                name: model.name,
                revision: model.revision,
                pooling: model.pooling.name(),
                library: model.library.name(),
                dtype: options.dtype.name(),
                logits: model.logits,
                device: options.device.split(':').next().unwrap_or_default().to_owned(),
            },
        })
    }

    /// Components of a vector.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The way from cosines of images and texts to the model's logits, if its weights have it.
    pub fn logits(&self) -> Option<LogitScale> {
        self.model.logits
    }

    /// Returns the record of everything that decides the vectors.
    pub fn manifest(&self, normalize: Normalize) -> RunManifest {
        let TextIdentity { name, revision, weights_sha256, pooling, library, dtype, device, .. } = &self.model;
        let mut manifest = RunManifest { dim: self.dim(), ..RunManifest::default() };
        for (setting, value) in [
            ("foveate", crate::VERSION),
            ("model", name.as_str()),
            ("weights_sha256", weights_sha256.as_str()),
            (RunManifest::TEXTS, *library),
            ("encoder", "fused"),
            ("device", device.as_str()),
            ("dtype", *dtype),
            ("pooling", *pooling),
            ("normalize", normalize.name()),
        ] {
            manifest.fingerprint.insert(setting.to_owned(), value.to_owned());
        }
        if let Some(revision) = revision {
            manifest.info.insert("model_revision".to_owned(), revision.clone());
        }
        manifest
    }

    /// Computes the vectors of texts.
    ///
    /// # Errors
    /// [`TextsError::Empty`] for a text without a character but white space; [`TextsError::Tokenizer`] and
    /// [`TextsError::Encode`].
    pub fn embed<T: AsRef<str>>(&self, texts: &[T], normalize: Normalize) -> Result<EmbeddedTexts, TextsError> {
        let mut embedded = EmbeddedTexts { dim: self.dim(), ..EmbeddedTexts::default() };
        let mut rows = VectorBuf::new();
        for (batch, some) in texts.chunks(BATCH).enumerate() {
            let mut ids = Vec::with_capacity(some.len());
            for (i, text) in some.iter().map(AsRef::as_ref).enumerate() {
                let at = batch * BATCH + i;
                if text.trim().is_empty() {
                    return Err(TextsError::Empty(at + 1));
                }
                let tokens = self.tokens(text)?;
                if tokens.truncated {
                    embedded.truncated.push(at);
                }
                ids.push(tokens.ids);
            }
            let ids: Vec<&[u32]> = ids.iter().map(Vec::as_slice).collect();
            lock(&self.encoder).encode(&ids, &mut rows)?;
            for row in 0..rows.rows() {
                if !rows.row(row).iter().all(|value| value.is_finite()) {
                    embedded.not_finite.push(batch * BATCH + row);
                }
            }
            normalize.apply(rows.as_mut_slice(), embedded.dim);
            embedded.vectors.extend_from_slice(rows.as_slice());
        }
        Ok(embedded)
    }

    /// The tokens of a text, with the padding that the model sees.
    fn tokens(&self, text: &str) -> Result<TokenIds, TextError> {
        let mut tokens = self.tokenizer.encode(text)?;
        if !self.is_padded {
            tokens.ids.truncate(tokens.real);
        }
        Ok(tokens)
    }
}

#[cfg(feature = "worker")]
impl EmbedTexts for TextEmbedder {
    fn tokenize(&self, text: &str) -> Result<TextTokens, TaskError> {
        if text.trim().is_empty() {
            return Err(TaskError::image("the text is empty").at("tokenize"));
        }
        let tokens = self.tokens(text).map_err(|error| TaskError::image(error_chain(&error)).at("tokenize"))?;
        Ok(TextTokens { ids: tokens.ids, real: tokens.real })
    }

    fn embed_tokens(&self, texts: &[&[u32]], vectors: &mut VectorBuf) -> Result<(), TaskError> {
        let encoded = lock(&self.encoder).encode(texts, vectors);
        encoded.map(drop).map_err(|error| TaskError::machine(error_chain(&error)))
    }
}

/// The rules of the tokenizer in `folder`. SigLIP 2 is read like SigLIP and has another tokenizer.
fn rules(library: TextLibrary, context: usize, folder: &Path) -> TextRules {
    match library {
        TextLibrary::Clip => TextRules::clip(context),
        TextLibrary::OpenClip => TextRules::open_clip(context),
        TextLibrary::Tips => TextRules::tips(context),
        TextLibrary::Siglip => {
            let config = std::fs::read_to_string(folder.join("tokenizer_config.json")).unwrap_or_default();
            match config.contains("Siglip2Tokenizer") || config.contains("GemmaTokenizer") {
                true => TextRules::siglip2(context),
                false => TextRules::siglip(context),
            }
        }
    }
}
