//! Texts in the space of the vectors that are searched.

use anyhow::anyhow;
use foveate::encode::EncoderOptions;
use foveate::model::LogitScale;
use foveate::pipeline::Cancel;
use foveate::pipeline::lane::Normalize;
use foveate::texts::TextEmbedder;

use super::model::{comparable, model_name, not_open, open_options};
use super::vectors::Loaded;
use crate::cli::exit::Usage;
use crate::cli::search_args::{SearchArgs, WordsArgs};
use crate::cli::summary::counted;
use crate::cli::{console, progress};

/// Texts that are embedded between two looks at the signals.
const TOGETHER: usize = 256;

/// The text tower of the vectors' model.
pub(super) struct QueryEmbedder {
    embedder: TextEmbedder,
    normalize: Normalize,
}

impl QueryEmbedder {
    /// Opens the text tower of the model that is asked for, or that the vectors' manifest names and that is here.
    ///
    /// # Errors
    /// If there is none, or if the vectors are of another one.
    pub(super) fn open(tower: &WordsArgs, args: &SearchArgs, loaded: &Loaded) -> anyhow::Result<Self> {
        let asked = tower.model.as_deref();
        let name = model_name(asked, loaded)?;
        let download = progress::Download::new(args.quiet);
        let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let device = tower.device.clone();
        let options = EncoderOptions { dtype: tower.dtype, device, threads, ..EncoderOptions::default() };
        let opened = TextEmbedder::open(&name, &options, &open_options(asked, &download));
        let embedder = opened.map_err(|error| not_open(asked, &name, error.into()))?;
        download.clear();
        let settings = loaded.manifest.as_ref().map(|manifest| &manifest.fingerprint);
        let is_unit = settings.and_then(|settings| settings.get("normalize")).is_some_and(|name| name == "l2");
        let normalize = if is_unit { Normalize::L2 } else { Normalize::Off };
        comparable(&embedder.manifest(normalize), &name, loaded)?;
        Ok(Self { embedder, normalize })
    }

    /// The way from cosines to the model's logits.
    pub(super) fn logits(&self) -> Result<LogitScale, Usage> {
        self.embedder.logits().ok_or_else(|| {
            let why = "the model's weights have no logit_scale, so that scores are no probabilities";
            anyhow!("{why}; name a whole checkpoint with --model").into()
        })
    }

    /// Embeds texts, `[n, dim]`, and says how many were cut. Returns `None` if that was interrupted.
    pub(super) fn embed<T: AsRef<str>>(&self, texts: &[T], cancel: &Cancel) -> anyhow::Result<Option<Vec<f32>>> {
        let mut vectors = Vec::with_capacity(texts.len() * self.embedder.dim());
        let mut truncated = 0;
        for some in texts.chunks(TOGETHER) {
            if cancel.is_cancelled() {
                return Ok(None);
            }
            let embedded = self.embedder.embed(some, self.normalize).map_err(|error| Usage::from(anyhow!(error)))?;
            truncated += embedded.truncated.len() as u64;
            if let Some(&at) = embedded.not_finite.first() {
                let why = "has no finite vector; --dtype f32 or bf16 computes it";
                return Err(Usage::from(anyhow!("the text '{}' {why}", some[at].as_ref())).into());
            }
            vectors.extend(embedded.vectors);
        }
        if truncated > 0 {
            console::say!("warning: {} longer than the model takes; the end was cut", counted(truncated, "text"));
        }
        Ok(Some(vectors))
    }
}

/// The mean of vectors, `[n, dim]`, of which each has the length 1 first, with the length 1. It is zeros if they cancel
/// each other out.
pub(super) fn direction(vectors: &[f32], dim: usize) -> Vec<f32> {
    let mut mean = vec![0.0; dim];
    for vector in vectors.chunks_exact(dim) {
        for (sum, x) in mean.iter_mut().zip(unit(vector)) {
            *sum += x;
        }
    }
    unit(&mean)
}

/// A vector of length 1, or zeros.
fn unit(vector: &[f32]) -> Vec<f32> {
    let mut unit = vector.to_vec();
    Normalize::L2.apply(&mut unit, vector.len().max(1));
    unit
}
