use std::sync::{Arc, Mutex};

use foveate_core::{BatchMemory, Size, VectorBuf, error_chain};
use foveate_encode::{Allocate, Encoder, EncoderSpec};
use foveate_pipeline::lane::{Landed, Lane, Normalize, batch_memory};
use foveate_pipeline::{KnownVector, Recall};
use foveate_preprocess::{Granularity, ItemFault, PreprocessError, Preprocessor, PreprocessorOpener, Untimed};
use foveate_sink::ContentId;
use xxhash_rust::xxh3::xxh3_64;

use crate::{Embedding, File, Output, Received, Task, TaskError, TaskLane, lock};

/// Embeds images with a model: the built-in task.
pub struct Embed {
    opener: PreprocessorOpener,
    spec: EncoderSpec,
    memory: Allocate,
    /// Preprocessors that no thread is using.
    preprocessors: Mutex<Vec<Box<dyn Preprocessor>>>,
    /// Lanes that no thread has taken yet.
    lanes: Mutex<Vec<Lane<Vec<Known>>>>,
    pixels: Arc<Pixels>,
    cache: Option<Arc<dyn Recall>>,
}

/// A pool of image buffers.
type Pixels = Mutex<Vec<Vec<u8>>>;

/// The metadata of an image, before its vector exists.
type Known = Result<About, TaskError>;

#[derive(Clone, Copy)]
struct About {
    size: Size,
    xxh3: u64,
    /// Its key in the cache, if there is one.
    content: Option<ContentId>,
}

/// An image that will join a batch.
pub struct EmbedInput(PreparedInput);

enum PreparedInput {
    /// Preprocessed alone.
    Crop(Crop),
    /// To be preprocessed together with its batch.
    File { file: File, about: About },
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
        })
    }

    /// Takes vectors from a cache of the same settings, and adds to it.
    #[must_use]
    pub fn cache(self, cache: Option<Arc<dyn Recall>>) -> Self {
        Self { cache, ..self }
    }

    /// The encoders' input and output.
    pub fn spec(&self) -> &EncoderSpec {
        &self.spec
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
        crop.about = known(prepared.remove(0), crop.about)?;
        Ok(crop)
    }
}

impl Task for Embed {
    type Prepared = EmbedInput;
    type Lane = EmbedLane;

    fn known(&self, Received { file, .. }: &Received<'_>) -> Option<Output> {
        let KnownVector { size, vector } = self.cache.as_ref()?.recall(ContentId::of(file))?;
        let embedding = Embedding { vector, width: size.width, height: size.height, xxh3: xxh3_64(file) };
        (embedding.vector.len() == self.spec.dim).then_some(Output::Vector(embedding))
    }

    fn prepare(&self, Received { file, .. }: Received<'_>) -> Result<EmbedInput, TaskError> {
        Ok(EmbedInput(match self.opener.granularity() {
            Granularity::Image => PreparedInput::Crop(self.crop(&file)?),
            Granularity::Batch => PreparedInput::File { about: self.about(&file), file },
        }))
    }

    fn lane(self: Arc<Self>) -> Option<EmbedLane> {
        let lane = lock(&self.lanes).pop()?;
        Some(EmbedLane { embed: self, lane, memory: Vec::new(), vectors: Vec::new() })
    }
}

/// An encoder and its batches under way.
pub struct EmbedLane {
    embed: Arc<Embed>,
    lane: Lane<Vec<Known>>,
    /// Buffers of finished batches.
    memory: Vec<Box<dyn BatchMemory>>,
    vectors: Vec<VectorBuf>,
}

impl EmbedLane {
    /// Copies the images of a batch into `memory`, one after another. Returns which of them could be prepared.
    fn fill(&self, batch: &[EmbedInput], memory: &mut dyn BatchMemory) -> Result<Vec<Known>, TaskError> {
        let files: Vec<&[u8]> = batch.iter().filter_map(EmbedInput::file).collect();
        if files.is_empty() {
            return self.copy(batch, memory);
        }
        let prepared = self.embed.preprocess(&files, memory)?;
        Ok(prepared.into_iter().zip(batch).map(|(size, input)| known(size, input.about())).collect())
    }

    fn copy(&self, batch: &[EmbedInput], memory: &mut dyn BatchMemory) -> Result<Vec<Known>, TaskError> {
        let crops: Vec<&Crop> = batch.iter().filter_map(EmbedInput::crop).collect();
        let slots = memory.host_mut().ok_or_else(|| TaskError::machine("the batch's memory is not on the host"))?;
        let slots = slots.chunks_exact_mut(self.embed.image_len().max(1));
        slots.zip(&crops).for_each(|(slot, crop)| slot.copy_from_slice(&crop.pixels));
        Ok(crops.iter().map(|crop| Ok(crop.about)).collect())
    }
}

impl EmbedInput {
    fn file(&self) -> Option<&[u8]> {
        match &self.0 {
            PreparedInput::File { file, .. } => Some(file),
            PreparedInput::Crop(_) => None,
        }
    }

    fn crop(&self) -> Option<&Crop> {
        match &self.0 {
            PreparedInput::Crop(crop) => Some(crop),
            PreparedInput::File { .. } => None,
        }
    }

    fn about(&self) -> About {
        match &self.0 {
            PreparedInput::Crop(crop) => crop.about,
            PreparedInput::File { about, .. } => *about,
        }
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
        let known = self.fill(batch, memory.as_mut())?;
        let images = known.iter().filter(|known| known.is_ok()).count();
        let vectors = self.vectors.pop().unwrap_or_default();
        self.lane.submit(memory, images, vectors, known).map_err(|error| machine(&error))
    }

    fn collect(&mut self) -> Result<Vec<Result<Output, TaskError>>, TaskError> {
        let landed = self.lane.collect().map_err(|error| machine(&error))?;
        let Some(Landed { tag, memory, vectors, not_finite, .. }) = landed else { return Ok(Vec::new()) };
        let mut rows = 0..vectors.rows();
        let outputs = tag.into_iter().map(|known| {
            let about = known?;
            let row = rows.next().filter(|row| !not_finite.contains(row));
            // The image's fault, as in a run: the same values overflow on every device of this precision.
            let row =
                row.ok_or_else(|| TaskError::image("the vector has a component that is infinite or not a number"))?;
            let vector = vectors.row(row).to_vec();
            let Size { width, height } = about.size;
            if let (Some(cache), Some(content)) = (&self.embed.cache, about.content) {
                cache.remember(content, KnownVector { size: about.size, vector: vector.clone() });
            }
            Ok(Output::Vector(Embedding { vector, width, height, xxh3: about.xxh3 }))
        });
        let outputs = outputs.collect();
        self.memory.push(memory);
        self.vectors.push(vectors);
        Ok(outputs)
    }

    fn abandon(&mut self) {
        self.lane.abandon();
    }
}

fn known(prepared: Result<Size, ItemFault>, about: About) -> Known {
    let size = prepared.map_err(|fault| TaskError::image(fault.reason).at(fault.stage.name()))?;
    Ok(About { size, ..about })
}

fn machine(error: &(dyn std::error::Error + 'static)) -> TaskError {
    TaskError::machine(error_chain(error))
}
