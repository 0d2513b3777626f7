use std::sync::{Arc, Mutex};

use foveate_core::{BatchMemory, Size, VectorBuf, error_chain};
use foveate_encode::{Allocate, Encoder, EncoderSpec};
use foveate_pipeline::lane::{Landed, Lane, Normalize, batch_memory};
use foveate_pipeline::{KnownVector, Recall};
use foveate_preprocess::{Granularity, ItemFault, PreprocessError, Preprocessor, PreprocessorOpener, Untimed};
use foveate_sink::ContentId;
use xxhash_rust::xxh3::xxh3_64;

use crate::{Embedding, File, Output, Received, Task, TaskError, TaskLane, lock};

/// The text tower of the model whose images a task embeds. Threads share it.
pub trait EmbedTexts: Send + Sync {
    /// Returns the tokens of a text, cut to what the model takes.
    ///
    /// # Errors
    /// [`TaskError`], about this text: an empty one has no vector.
    fn tokenize(&self, text: &str) -> Result<TextTokens, TaskError>;

    /// Computes the vectors of texts, `[n, dim]` f32, not normalized.
    ///
    /// # Errors
    /// [`TaskError`], about all of them.
    fn embed_tokens(&self, texts: &[&[u32]], vectors: &mut VectorBuf) -> Result<(), TaskError>;
}

/// A text as its model takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextTokens {
    /// The tokens' ids, with the padding that the model sees.
    pub ids: Vec<u32>,
    /// Tokens without padding.
    pub real: usize,
}

/// Embeds images with a model, and texts if it has the model's text tower: the built-in task.
pub struct Embed {
    opener: PreprocessorOpener,
    spec: EncoderSpec,
    memory: Allocate,
    /// Preprocessors that no thread is using.
    preprocessors: Mutex<Vec<Box<dyn Preprocessor>>>,
    /// Lanes that no thread has taken yet.
    lanes: Mutex<Vec<Lane<Vec<BatchPlace>>>>,
    pixels: Arc<Pixels>,
    cache: Option<Arc<dyn Recall>>,
    texts: Option<Arc<dyn EmbedTexts>>,
    normalize: Normalize,
}

/// A pool of image buffers.
type Pixels = Mutex<Vec<Vec<u8>>>;

/// One place of a batch whose images are under way.
enum BatchPlace {
    /// An image, whose vector is the next row.
    Image(About),
    Text(Embedding),
    Failed(TaskError),
}

#[derive(Clone, Copy)]
struct About {
    size: Size,
    xxh3: u64,
    /// Its key in the cache, if there is one.
    content: Option<ContentId>,
}

/// An image or text that will join a batch.
pub struct EmbedInput(PreparedInput);

enum PreparedInput {
    /// Preprocessed alone.
    Crop(Crop),
    /// To be preprocessed together with its batch.
    File {
        file: File,
        about: About,
    },
    Text {
        tokens: TextTokens,
        xxh3: u64,
    },
}

/// An image of the encoder's input size, `[h, w, 3]` u8 RGB.
struct Crop {
    pixels: Vec<u8>,
    about: About,
    home: Arc<Pixels>,
}

impl Drop for Crop {
    fn drop(&mut self) {
        lock(&self.home).push(std::mem::take(&mut self.pixels));
    }
}

impl Embed {
    /// Embeds images that the preprocessors of `opener` prepare, alone or as whole batches. Each of `encoders` is one
    /// lane; all of them must give the same vectors.
    ///
    /// # Errors
    /// If no preprocessor can be opened.
    ///
    /// # Panics
    /// If `encoders` is empty.
    pub fn new(
        opener: PreprocessorOpener,
        encoders: Vec<Box<dyn Encoder>>,
        normalize: Normalize,
    ) -> Result<Self, PreprocessError> {
        let mut lanes: Vec<_> = encoders.into_iter().map(|encoder| Lane::new(encoder, normalize)).collect();
        let spec = lanes.first().expect("at least one encoder").spec().clone();
        Ok(Self {
            preprocessors: Mutex::new(vec![opener.open()?]),
            memory: batch_memory(&mut lanes, opener.granularity()),
            opener,
            spec,
            lanes: Mutex::new(lanes),
            pixels: Arc::default(),
            cache: None,
            texts: None,
            normalize,
        })
    }

    /// Takes vectors from a cache of the same settings, and adds to it.
    #[must_use]
    pub fn cache(self, cache: Option<Arc<dyn Recall>>) -> Self {
        Self { cache, ..self }
    }

    /// Embeds texts, too, normalized as the images are. Its vectors are as long as those of images.
    #[must_use]
    pub fn texts(self, texts: Arc<dyn EmbedTexts>) -> Self {
        Self { texts: Some(texts), ..self }
    }

    /// The encoders' input and output.
    pub fn spec(&self) -> &EncoderSpec {
        &self.spec
    }

    fn text_tower(&self) -> Result<&dyn EmbedTexts, TaskError> {
        self.texts.as_deref().ok_or_else(|| TaskError::image("a text, and there is no text tower"))
    }

    fn image_len(&self) -> usize {
        self.spec.format().bytes()
    }

    /// Preprocesses images with an idle preprocessor. A preprocessor that panicked or failed is not used again.
    fn preprocess(
        &self,
        images: &[&[u8]],
        out: &mut dyn BatchMemory,
    ) -> Result<Vec<Result<Size, ItemFault>>, TaskError> {
        let free = lock(&self.preprocessors).pop();
        let mut preprocessor = free.map_or_else(|| self.opener.open(), Ok).map_err(|error| machine(&error))?;
        let mut prepared = Vec::with_capacity(images.len());
        preprocessor.preprocess(images, out, &mut prepared, &Untimed).map_err(|error| machine(&error))?;
        lock(&self.preprocessors).push(preprocessor);
        if prepared.len() != images.len() {
            return Err(TaskError::machine(format!("{} images prepared of {}", prepared.len(), images.len())));
        }
        Ok(prepared)
    }

    /// Returns what is known of a file before it is decoded.
    fn about(&self, file: &File) -> About {
        let content = self.cache.is_some().then(|| ContentId::of(file));
        About { size: Size::default(), xxh3: xxh3_64(file), content }
    }

    fn crop(&self, file: &File) -> Result<Crop, TaskError> {
        let mut pixels = lock(&self.pixels).pop().unwrap_or_default();
        pixels.resize(self.image_len(), 0);
        let mut crop = Crop { pixels, about: self.about(file), home: Arc::clone(&self.pixels) };
        let mut prepared = self.preprocess(&[file], &mut crop.pixels)?;
        crop.about.size = prepared.remove(0).map_err(fault)?;
        Ok(crop)
    }
}

impl Task for Embed {
    type Prepared = EmbedInput;
    type Lane = EmbedLane;

    fn known(&self, Received { file, .. }: &Received<'_>) -> Option<Output> {
        let KnownVector { size, vector } = self.cache.as_ref()?.recall(ContentId::of(file))?;
        let embedding = Embedding { vector, width: size.width, height: size.height, xxh3: xxh3_64(file), tokens: 0 };
        (embedding.vector.len() == self.spec.dim).then_some(Output::Vector(embedding))
    }

    fn prepare(&self, Received { file, .. }: Received<'_>) -> Result<EmbedInput, TaskError> {
        Ok(EmbedInput(match self.opener.granularity() {
            Granularity::Image => PreparedInput::Crop(self.crop(&file)?),
            Granularity::Batch => PreparedInput::File { about: self.about(&file), file },
        }))
    }

    fn takes_texts(&self) -> bool {
        self.texts.is_some()
    }

    fn prepare_text(&self, text: &str) -> Result<EmbedInput, TaskError> {
        let tokens = self.text_tower()?.tokenize(text)?;
        Ok(EmbedInput(PreparedInput::Text { tokens, xxh3: xxh3_64(text.as_bytes()) }))
    }

    fn lane(self: Arc<Self>) -> Option<EmbedLane> {
        let lane = lock(&self.lanes).pop()?;
        Some(EmbedLane { embed: self, lane, memory: Vec::new(), vectors: Vec::new() })
    }
}

/// An encoder and its batches under way.
pub struct EmbedLane {
    embed: Arc<Embed>,
    lane: Lane<Vec<BatchPlace>>,
    /// Buffers of finished batches.
    memory: Vec<Box<dyn BatchMemory>>,
    vectors: Vec<VectorBuf>,
}

impl EmbedLane {
    /// Copies the images of a batch into `memory`, one after another, and computes the vectors of its texts. Returns
    /// each one's place.
    fn fill(&self, batch: &[EmbedInput], memory: &mut dyn BatchMemory) -> Result<Vec<BatchPlace>, TaskError> {
        let mut files: Vec<&[u8]> = Vec::new();
        let mut texts: Vec<&[u32]> = Vec::new();
        for EmbedInput(input) in batch {
            match input {
                PreparedInput::Crop(_) => {}
                PreparedInput::File { file, .. } => files.push(file),
                PreparedInput::Text { tokens, .. } => texts.push(&tokens.ids),
            }
        }
        let prepared = if files.is_empty() { Vec::new() } else { self.embed.preprocess(&files, memory)? };
        let mut prepared = prepared.into_iter();
        let mut slots = memory.host_mut().unwrap_or_default().chunks_exact_mut(self.embed.image_len().max(1));
        let mut vectors = self.embed_texts(&texts)?.into_iter();
        let mut places = Vec::with_capacity(batch.len());
        for EmbedInput(input) in batch {
            places.push(match input {
                PreparedInput::Crop(crop) => {
                    let slot =
                        slots.next().ok_or_else(|| TaskError::machine("the batch's memory is not on the host"))?;
                    slot.copy_from_slice(&crop.pixels);
                    BatchPlace::Image(crop.about)
                }
                PreparedInput::File { about, .. } => match prepared.next() {
                    Some(Ok(size)) => BatchPlace::Image(About { size, ..*about }),
                    Some(Err(reason)) => BatchPlace::Failed(fault(reason)),
                    None => unreachable!("as many as files"),
                },
                PreparedInput::Text { tokens, xxh3 } => {
                    let vector = vectors.next().unwrap_or_default();
                    BatchPlace::Text(Embedding { vector, xxh3: *xxh3, tokens: tokens.real, ..Embedding::default() })
                }
            });
        }
        Ok(places)
    }

    /// An image's vector, which the cache gets.
    fn embedding(&self, about: About, vector: Vec<f32>) -> Output {
        let About { size, xxh3, content } = about;
        if let (Some(cache), Some(content)) = (&self.embed.cache, content) {
            cache.remember(content, KnownVector { size, vector: vector.clone() });
        }
        Output::Vector(Embedding { vector, width: size.width, height: size.height, xxh3, tokens: 0 })
    }

    fn embed_texts(&self, texts: &[&[u32]]) -> Result<Vec<Vec<f32>>, TaskError> {
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        let mut vectors = VectorBuf::new();
        self.embed.text_tower()?.embed_tokens(texts, &mut vectors)?;
        let dim = self.embed.spec.dim;
        if vectors.as_slice().len() != texts.len() * dim {
            return Err(TaskError::image("the text tower's vectors are not as long as those of images"));
        }
        self.embed.normalize.apply(vectors.as_mut_slice(), dim);
        Ok((0..texts.len()).map(|row| vectors.row(row).to_vec()).collect())
    }
}

impl TaskLane for EmbedLane {
    type Prepared = EmbedInput;

    fn depth(&self) -> usize {
        self.lane.depth()
    }

    fn submit(&mut self, batch: &[EmbedInput]) -> Result<(), TaskError> {
        let bytes = self.embed.spec.max_batch * self.embed.image_len();
        let memory = self.memory.pop().map_or_else(|| (self.embed.memory)(bytes), Ok);
        let mut memory = memory.map_err(|error| machine(&error))?;
        let places = self.fill(batch, memory.as_mut())?;
        let images = places.iter().filter(|place| matches!(place, BatchPlace::Image(_))).count();
        let vectors = self.vectors.pop().unwrap_or_default();
        self.lane.submit(memory, images, vectors, places).map_err(|error| machine(&error))
    }

    fn collect(&mut self) -> Result<Vec<Result<Output, TaskError>>, TaskError> {
        let landed = self.lane.collect().map_err(|error| machine(&error))?;
        let Some(Landed { tag, memory, vectors, not_finite, .. }) = landed else { return Ok(Vec::new()) };
        let mut rows = 0..vectors.rows();
        let mut outputs = Vec::with_capacity(tag.len());
        for place in tag {
            outputs.push(match place {
                BatchPlace::Failed(error) => Err(error),
                BatchPlace::Text(text) if !text.vector.iter().all(|x| x.is_finite()) => Err(overflow()),
                BatchPlace::Text(text) => Ok(Output::Vector(text)),
                BatchPlace::Image(about) => match rows.next().filter(|row| !not_finite.contains(row)) {
                    Some(row) => Ok(self.embedding(about, vectors.row(row).to_vec())),
                    None => Err(overflow()),
                },
            });
        }
        self.memory.push(memory);
        self.vectors.push(vectors);
        Ok(outputs)
    }

    fn abandon(&mut self) {
        self.lane.abandon();
    }
}

fn fault(fault: ItemFault) -> TaskError {
    TaskError::image(fault.reason).at(fault.stage.name())
}

/// The input's fault, as in a run: the same values overflow on every device of this precision.
fn overflow() -> TaskError {
    TaskError::image("the vector has a component that is infinite or not a number")
}

fn machine(error: &(dyn std::error::Error + 'static)) -> TaskError {
    TaskError::machine(error_chain(error))
}
