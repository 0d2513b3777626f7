//! Text towers: several texts at a time, their tokens one behind the other.

use std::ops::Range;
use std::time::Instant;

use foveate_core::VectorBuf;
use foveate_encode::{EncodeError, EncodeTimes, EncoderOptions, Threads};
use foveate_model::parts::Parts;
use foveate_model::{TextModel, WordTable};
use rayon::prelude::*;

use crate::encoder::{check, unusable};
use crate::network::CpuNetwork;

/// Tokens that go through the network together, but for half a text at each end. Weights are read once for all of
/// them, and hidden scores, which are computed too, stay a few percent of the work.
const PACK_TOKENS: usize = 128;

/// A text tower: on the CPU in f32, bf16 or i8, with its own threads; with the feature `cuda` on an NVIDIA GPU in f32,
/// f16 or bf16.
///
/// Texts are packed without padding. On the CPU, a vector has the same bits in any batch and on any number of threads;
/// on a GPU, its last bits may differ with the batch.
pub struct FusedTextEncoder {
    words: WordTable,
    dim: usize,
    forward: TextForward,
}

/// The forward of a text tower on one kind of device.
enum TextForward {
    Cpu(CpuTexts),
    #[cfg(feature = "cuda")]
    Cuda(crate::cuda::CudaTexts),
}

/// A text tower on the CPU.
struct CpuTexts {
    network: CpuNetwork,
    words: WordTable,
    /// `[vocabulary, hidden]`, scaled.
    table: Vec<f32>,
    /// `[context, hidden]`.
    positions: Vec<f32>,
    hidden: usize,
    dim: usize,
    /// `None` for one thread, which is then the caller's.
    threads: Option<Threads>,
}

/// Some texts and the place of their vectors.
struct TextPack<'a> {
    texts: Vec<&'a [u32]>,
    vectors: &'a mut [f32],
}

impl FusedTextEncoder {
    /// Packs the weights of `model` for this processor and starts `options.threads` threads (none for one); or copies
    /// them to the device `cuda` or `cuda:N`, with memory for `options.max_batch` texts at a time. Of the options,
    /// precision and settings count, too.
    ///
    /// # Errors
    /// As [`FusedEncoder::new`](crate::FusedEncoder::new), or as `CudaEncoder::new`.
    pub fn new(model: &TextModel, options: &EncoderOptions) -> Result<Self, EncodeError> {
        let network = &model.network;
        let Some(words) = network.words else { return Err(EncodeError::Unsupported("a network for images".into())) };
        let dim = network.projection.map_or(network.hidden_size, |projection| projection.outputs);
        let forward = match options.device.as_str() {
            "cpu" => TextForward::Cpu(CpuTexts::new(model, words, dim, options)?),
            #[cfg(feature = "cuda")]
            device if device.starts_with("cuda") => {
                TextForward::Cuda(crate::cuda::CudaTexts::new(model, words, options)?)
            }
            #[cfg(not(feature = "cuda"))]
            device if device.starts_with("cuda") => return Err(crate::without_cuda(options)),
            _ => return Err(crate::unknown_device(options)),
        };
        Ok(Self { words, dim, forward })
    }

    /// Length of a vector.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Computes the vectors of texts, `[n, dim]`, not normalized. Each text is its tokens' ids, padded only if the
    /// model sees the padding.
    ///
    /// # Errors
    /// [`EncodeError::Batch`] for a text without tokens, one longer than the context, and an id that the table lacks.
    pub fn encode(&mut self, texts: &[&[u32]], out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        let started = Instant::now();
        let mut needed = Vec::with_capacity(texts.len());
        for (i, ids) in texts.iter().enumerate() {
            self.check(ids).map_err(|problem| EncodeError::Batch(format!("text {i} {problem}")))?;
            // With a causal mask, no later token matters.
            let last = self.words.pooled.index(ids).filter(|_| self.words.causal).unwrap_or(ids.len() - 1);
            needed.push(&ids[..=last]);
        }
        let rows = out.reset(texts.len(), self.dim);
        match &mut self.forward {
            TextForward::Cpu(cpu) => cpu.encode(&needed, rows),
            #[cfg(feature = "cuda")]
            TextForward::Cuda(cuda) => cuda.encode(&needed, rows)?,
        }
        Ok(EncodeTimes::forward_since(started))
    }

    fn check(&self, ids: &[u32]) -> Result<(), String> {
        let WordTable { context, vocabulary, .. } = self.words;
        if ids.is_empty() {
            return Err("has no tokens".to_owned());
        }
        if ids.len() > context {
            return Err(format!("has {} tokens; the model takes {context}", ids.len()));
        }
        match ids.iter().find(|&&id| id as usize >= vocabulary) {
            Some(id) => Err(format!("has the token {id}; the model knows {vocabulary}")),
            None => Ok(()),
        }
    }
}

impl CpuTexts {
    fn new(model: &TextModel, words: WordTable, dim: usize, options: &EncoderOptions) -> Result<Self, EncodeError> {
        let (isa, precision) = check(options)?;
        let parts = Parts::of_text(model);
        let layers = parts.words().map_err(unusable)?;
        let network = &model.network;
        // At each end of a pack, half a text may be more than its share.
        let tokens = words.context.next_multiple_of(2) + PACK_TOKENS;
        let threads = options.threads.max(1);
        Ok(Self {
            network: CpuNetwork::of_text(&parts, network, tokens, isa, precision).map_err(unusable)?,
            words,
            table: layers.table.into_owned(),
            positions: layers.positions.into_owned(),
            hidden: network.hidden_size,
            dim,
            threads: (threads > 1).then(|| Threads::start(threads)).transpose()?,
        })
    }

    fn encode(&self, texts: &[&[u32]], rows: &mut [f32]) {
        match &self.threads {
            None => packs(texts, rows, self.dim, 1).iter_mut().for_each(|pack| self.run(pack)),
            Some(threads) => threads.run(|| {
                let mut packs = packs(texts, rows, self.dim, rayon::current_num_threads());
                packs.par_iter_mut().with_max_len(1).for_each(|pack| self.run(pack));
            }),
        }
    }

    fn run(&self, pack: &mut TextPack<'_>) {
        let hidden = self.hidden;
        let spans = spans(&pack.texts);
        let tokens = spans.last().map_or(0, |span| span.end);
        let (mut part, mut key_values) = self.network.part(0, tokens);
        part.seen = (0..tokens).map(|token| token..token + 1).collect();
        for (ids, span) in pack.texts.iter().zip(&spans) {
            for (i, &id) in ids.iter().enumerate() {
                let word = &self.table[id as usize * hidden..][..hidden];
                let position = &self.positions[i * hidden..][..hidden];
                let token = span.start + i;
                for (at, value) in part.x[token * hidden..][..hidden].iter_mut().enumerate() {
                    *value = word[at] + position[at];
                }
                part.seen[token] = span.start..if self.words.causal { token + 1 } else { span.end };
            }
        }
        for layer in 0..self.network.depth() {
            self.network.project(layer, &mut part, &mut key_values);
            self.network.advance(layer, &mut part, std::slice::from_ref(&key_values));
        }
        self.network.finish(&mut part, None);
        let mut pooled = vec![0.0; pack.texts.len() * hidden];
        for ((ids, span), pooled) in pack.texts.iter().zip(&spans).zip(pooled.chunks_exact_mut(hidden)) {
            let rows = &part.normed[span.start * hidden..span.end * hidden];
            match self.words.pooled.index(ids) {
                Some(index) => pooled.copy_from_slice(&rows[index * hidden..][..hidden]),
                None => mean(rows, pooled),
            }
        }
        self.network.projected(&pooled, pack.vectors);
    }
}

/// Divides texts into packs of about the same number of tokens, mostly at most [`PACK_TOKENS`], and as many for each
/// thread.
fn packs<'a>(texts: &[&'a [u32]], mut vectors: &'a mut [f32], dim: usize, threads: usize) -> Vec<TextPack<'a>> {
    let spans = spans(texts);
    let tokens = spans.last().map_or(0, |span| span.end);
    let share = tokens.div_ceil(tokens.div_ceil(PACK_TOKENS).next_multiple_of(threads)).max(1);
    let mut packs = Vec::new();
    let mut first = 0;
    while first < texts.len() {
        // A text belongs where its middle lies.
        let pack = (spans[first].start + spans[first].end) / 2 / share;
        let mut end = first + 1;
        while end < texts.len() && (spans[end].start + spans[end].end) / 2 / share == pack {
            end += 1;
        }
        let (own, rest) = vectors.split_at_mut((end - first) * dim);
        packs.push(TextPack { texts: texts[first..end].to_vec(), vectors: own });
        vectors = rest;
        first = end;
    }
    packs
}

/// The places of texts that lie one behind the other. Each begins at an even token, because bf16 computes two tokens at
/// a time, and a text's bits are the same at any place.
fn spans(texts: &[&[u32]]) -> Vec<Range<usize>> {
    let mut spans = Vec::with_capacity(texts.len());
    let mut start = 0;
    for ids in texts {
        spans.push(start..start + ids.len());
        start = (start + ids.len()).next_multiple_of(2);
    }
    spans
}

/// The mean of rows as long as `out`, summed in f64.
fn mean(rows: &[f32], out: &mut [f32]) {
    let width = out.len();
    let count = (rows.len() / width) as f64;
    for (at, value) in out.iter_mut().enumerate() {
        let sum: f64 = rows[at..].iter().step_by(width).map(|&value| f64::from(value)).sum();
        *value = (sum / count) as f32;
    }
}
