//! Stages that cost next to nothing. They measure the engine's own cost, and replace stages that a measurement leaves
//! out. Feature `synthetic`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use foveate_core::{ImageView, ImageViewMut, PixelBatch, PixelBuf, Size, VectorBuf};
use foveate_decode::{Capability, DecodeError, DecodeHint, Decoded, Decoder, FormatSet, ImageFormat};
use foveate_encode::{DType, EncodeError, EncodeTimes, Encoder, EncoderSpec, Overlap, Pooling, Resident};
use foveate_preprocess::{CpuPreprocessor, PreprocessOptions};
use foveate_resize::{Filter, Geometry, ResizeError, ResizePlan, Resizer};
use foveate_sink::{Existing, Failure, Published, Rows, RunManifest, SinkError, VectorSink, Watermark};
use foveate_source::store::Version;
use foveate_source::{Extent, Fetch, FetchError, Item, Source, SourceError};

use crate::{Config, Pipeline};

/// Creates a pipeline of synthetic stages over `items` raw images of `size`; its sink counts its rows in `stored`.
pub fn pipeline(items: u64, size: Size, stored: &Arc<AtomicU64>) -> Pipeline {
    Pipeline {
        source: Box::new(RawImages::new(items, size)),
        preprocessors: CpuPreprocessor::opener(
            Arc::new(move || Ok(Box::new(RawDecoder { size }))),
            Arc::new(|| Ok(Box::new(CopyResizer))),
            PreprocessOptions::new(Geometry::Stretch { output: size, filter: Filter::OpenCvLinear }),
        ),
        encoders: vec![Box::new(FirstPixels::new(size))],
        sink: Box::new(CountingSink::new(Arc::clone(stored), tells_its_index)),
        config: Config::default(),
    }
}

/// Lists and "reads" images that exist only as an index, which the first eight samples encode.
#[derive(Clone, Debug)]
pub struct RawImages {
    items: u64,
    next: u64,
    len: usize,
}

impl RawImages {
    /// Creates `items` images of `size`, at least three pixels each.
    pub fn new(items: u64, size: Size) -> Self {
        Self { items, next: 0, len: size.rgb_len().unwrap_or(0).max(8) }
    }
}

impl Source for RawImages {
    fn next_item(&mut self) -> Result<Option<Item>, SourceError> {
        if self.next >= self.items {
            return Ok(None);
        }
        let index = self.next;
        self.next += 1;
        Ok(Some(Item { index, id: format!("synthetic/{index:09}"), ..Item::default() }))
    }

    fn extent(&self) -> Extent {
        (0..self.items).into()
    }

    fn seek(&mut self, index: u64, _: u64) -> Result<(), SourceError> {
        self.next = index;
        Ok(())
    }

    fn listing_hash(&self) -> String {
        format!("synthetic {}", self.items)
    }

    fn open_fetch(&self) -> Result<Box<dyn Fetch>, SourceError> {
        Ok(Box::new(self.clone()))
    }
}

impl Fetch for RawImages {
    fn fetch(&mut self, item: &Item, out: &mut Vec<u8>) -> Result<(), FetchError> {
        out.resize(self.len, 0);
        out[..8].copy_from_slice(&item.index.to_le_bytes());
        Ok(())
    }

    fn version(&mut self, _: &Item) -> Version {
        Version::default()
    }
}

/// Uses the bytes as pixels, unchanged.
#[derive(Clone, Copy, Debug)]
pub struct RawDecoder {
    /// Size of every image.
    pub size: Size,
}

impl Decoder for RawDecoder {
    fn decode(&mut self, encoded: &[u8], _: DecodeHint, out: &mut PixelBuf) -> Result<Decoded, DecodeError> {
        out.reset(self.size)?.copy_from_slice(encoded);
        Ok(Decoded { format: ImageFormat::Bmp, native: self.size, is_clipped: false })
    }

    fn capability(&self) -> Capability {
        Capability {
            formats: FormatSet::of(&[ImageFormat::Bmp]),
            scaled: false,
            low_frequencies: false,
            exact_jpeg: false,
        }
    }
}

/// Copies an image that already has the right size.
#[derive(Clone, Copy, Debug)]
pub struct CopyResizer;

impl Resizer for CopyResizer {
    fn resize(&mut self, src: ImageView<'_>, plan: &ResizePlan, mut dst: ImageViewMut<'_>) -> Result<(), ResizeError> {
        if src.size() != dst.size() {
            return Err(ResizeError::Plan(format!("{} is not {}", src.size(), plan.output)));
        }
        dst.as_mut_slice().copy_from_slice(src.as_slice());
        Ok(())
    }

    /// An unchanged size is a copy, whatever the filter.
    fn capability(&self) -> foveate_resize::Capability {
        foveate_resize::Capability { pillow_exact: true, pillow_kernels: true, opencv_exact: true }
    }
}

/// Returns the first eight samples of an image as its vector.
#[derive(Clone, Debug)]
pub struct FirstPixels {
    spec: EncoderSpec,
}

impl FirstPixels {
    /// Creates an encoder for images of `size`, at least three pixels each.
    pub fn new(size: Size) -> Self {
        let spec = EncoderSpec {
            input: size,
            sample: foveate_core::SampleType::U8,
            mean: [0.0; 3],
            std: [1.0; 3],
            dim: 8,
            pooling: Pooling::Cls,
            device: "cpu".to_owned(),
            dtype: DType::F32,
            max_batch: 4096,
            batch_invariant: true,
            kernels: None,
        };
        Self { spec }
    }
}

impl Encoder for FirstPixels {
    fn spec(&self) -> &EncoderSpec {
        &self.spec
    }

    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        let started = Instant::now();
        let rows = out.reset(batch.len(), self.spec.dim);
        for (i, row) in rows.chunks_exact_mut(self.spec.dim).enumerate() {
            for (value, &sample) in row.iter_mut().zip(batch.image(i)) {
                *value = f32::from(sample);
            }
        }
        Ok(EncodeTimes::forward_since(started))
    }

    fn resident(&mut self) -> Option<&mut dyn Resident> {
        None
    }

    fn overlap(&mut self) -> Option<&mut dyn Overlap> {
        None
    }
}

/// Returns true if a vector is the one that [`FirstPixels`] makes of item `index` of [`RawImages`].
fn tells_its_index(index: u64, vector: &[f32]) -> bool {
    index.to_le_bytes().iter().zip(vector).all(|(&byte, &value)| f32::from(byte) == value)
}

/// Counts rows, checks each, and stores nothing.
#[derive(Debug)]
pub struct CountingSink {
    stored: Arc<AtomicU64>,
    failures: u64,
    is_right: fn(u64, &[f32]) -> bool,
}

impl CountingSink {
    /// Creates a sink that adds each row to `stored`; a row that is wrong for its index is an error.
    pub fn new(stored: Arc<AtomicU64>, is_right: fn(u64, &[f32]) -> bool) -> Self {
        Self { stored, failures: 0, is_right }
    }
}

impl VectorSink for CountingSink {
    fn begin(&mut self, _: &RunManifest, _: Existing) -> Result<Watermark, SinkError> {
        Ok(Watermark::default())
    }

    fn failures(&mut self) -> Result<u64, SinkError> {
        Ok(0)
    }

    fn append(&mut self, rows: &Rows<'_>) -> Result<(), SinkError> {
        let dim = rows.vectors.len().checked_div(rows.index.len()).unwrap_or(0);
        for (&index, vector) in rows.index.iter().zip(rows.vectors.chunks_exact(dim.max(1))) {
            if !(self.is_right)(index, vector) {
                return Err(SinkError::Misuse(format!("row {index} has another item's vector")));
            }
        }
        self.stored.fetch_add(rows.index.len() as u64, Relaxed);
        Ok(())
    }

    fn fail(&mut self, failures: &[Failure]) -> Result<(), SinkError> {
        self.failures += failures.len() as u64;
        Ok(())
    }

    fn commit(&mut self, _: Watermark) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish(&mut self) -> Result<Published, SinkError> {
        Ok(Published { rows: self.stored.load(Relaxed), failures: self.failures, ..Published::default() })
    }
}
