use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use foveate_core::{PixelBatch, Size, VectorBuf};
use foveate_encode::{Encoder, EncoderSpec};
use foveate_pipeline::Normalize;
use foveate_preprocess::{PreprocessError, Preprocessor, PreprocessorOpener, Untimed};
use xxhash_rust::xxh3::xxh3_64;

use crate::{Embedding, Output, Picture, Task, TaskError, lock};

/// Embeds images by a model: the task that needs no code of your own.
pub struct Embed {
    opener: PreprocessorOpener,
    spec: EncoderSpec,
    normalize: Normalize,
    /// What threads are not using just now.
    preprocessors: Mutex<Vec<Box<dyn Preprocessor>>>,
    encoders: Vec<Mutex<Forward>>,
    pixels: Arc<Pixels>,
}

/// An encoder with its input and output.
struct Forward {
    encoder: Box<dyn Encoder>,
    input: Vec<u8>,
    output: VectorBuf,
}

/// Memory of images, which goes round.
type Pixels = Mutex<Vec<Vec<u8>>>;

/// An image of the encoder's input size, `[h, w, 3]` u8 RGB.
pub struct Crop {
    pixels: Vec<u8>,
    size: Size,
    xxh3: u64,
    home: Arc<Pixels>,
}

impl Drop for Crop {
    fn drop(&mut self) {
        lock(&self.home).push(std::mem::take(&mut self.pixels));
    }
}

impl Embed {
    /// Images prepared by what `opener` makes, and encoded by `encoders`, each of which is used by one thread at a time: as
    /// many as the task has lanes. They all give the same vectors.
    ///
    /// # Errors
    /// When no preprocessor can be opened.
    ///
    /// # Panics
    /// Without an encoder.
    pub fn new(
        opener: PreprocessorOpener,
        encoders: Vec<Box<dyn Encoder>>,
        normalize: Normalize,
    ) -> Result<Self, PreprocessError> {
        let spec = encoders.first().expect("at least one encoder").spec().clone();
        let first = opener.open()?;
        let forward = |encoder| Mutex::new(Forward { encoder, input: Vec::new(), output: VectorBuf::new() });
        Ok(Self {
            opener,
            spec,
            normalize,
            preprocessors: Mutex::new(vec![first]),
            encoders: encoders.into_iter().map(forward).collect(),
            pixels: Arc::default(),
        })
    }

    /// What the encoders take and give.
    pub fn spec(&self) -> &EncoderSpec {
        &self.spec
    }

    fn preprocessor(&self) -> Result<Box<dyn Preprocessor>, TaskError> {
        let free = lock(&self.preprocessors).pop();
        free.map_or_else(|| self.opener.open(), Ok).map_err(|error| TaskError::machine(error.to_string()))
    }

    fn vector(&self, row: &[f32]) -> Vec<f32> {
        let mut vector = row.to_vec();
        let dim = vector.len();
        self.normalize.apply(&mut vector, dim);
        vector
    }

    /// One that nobody uses now.
    fn forward(&self) -> MutexGuard<'_, Forward> {
        let free = self.encoders.iter().find_map(|encoder| match encoder.try_lock() {
            Ok(forward) => Some(forward),
            Err(TryLockError::Poisoned(forward)) => Some(forward.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        });
        free.unwrap_or_else(|| lock(&self.encoders[0]))
    }
}

impl Task for Embed {
    type Prepared = Crop;

    fn preprocess(&self, picture: &Picture<'_>) -> Result<Crop, TaskError> {
        let mut preprocessor = self.preprocessor()?;
        let mut pixels = lock(&self.pixels).pop().unwrap_or_default();
        pixels.resize(self.spec.input.rgb_len().unwrap_or(0), 0);
        let home = Arc::clone(&self.pixels);
        let mut crop = Crop { pixels, size: Size::default(), xxh3: xxh3_64(picture.bytes), home };
        let mut prepared = Vec::with_capacity(1);
        let done = preprocessor.preprocess(&[picture.bytes], &mut crop.pixels, &mut prepared, &Untimed);
        done.map_err(|error| TaskError::machine(error.to_string()))?;
        // After a panic or a fault it is not used again.
        lock(&self.preprocessors).push(preprocessor);
        let size = prepared.pop().ok_or_else(|| TaskError::machine("the preprocessor said nothing"))?;
        crop.size = size.map_err(|fault| TaskError::image(fault.reason).at(fault.stage.name()))?;
        Ok(crop)
    }

    fn process(&self, batch: &[Crop]) -> Result<Vec<Output>, TaskError> {
        let mut forward = self.forward();
        let vectors = forward.run(batch, self.spec.input)?;
        let output = |(crop, i): (&Crop, usize)| {
            let Size { width, height } = crop.size;
            Output::Vector(Embedding { vector: self.vector(vectors.row(i)), width, height, xxh3: crop.xxh3 })
        };
        Ok(batch.iter().zip(0..).map(output).collect())
    }
}

impl Forward {
    fn run(&mut self, batch: &[Crop], size: Size) -> Result<&VectorBuf, TaskError> {
        self.input.clear();
        batch.iter().for_each(|crop| self.input.extend_from_slice(&crop.pixels));
        let pixels = PixelBatch::new(&self.input, size).ok_or_else(|| TaskError::machine("not whole images"))?;
        self.encoder.encode(pixels, &mut self.output).map_err(|error| TaskError::machine(error.to_string()))?;
        Ok(&self.output)
    }
}
