use std::time::Instant;

use foveate_core::{InputFormat, PixelBatch, PixelBuf, VectorBuf};
use foveate_decode::DecodeHint;
use foveate_encode::{DType, EncodeTimes, Encoder};

use super::cells::{Attempt, Effort, attempt, rates, row, times, usable, wrong};
use super::peers::{self, PeerLibrary};
use crate::order::order;
use crate::stats::{Spread, median};
use crate::wrap::cosine;
use crate::{Cell, Lab, LabError, PhotoSet, Setting, Table, schema};

/// Minimum cosine between a photo's vectors from any two encoders and precisions. Half precision gives more than 0.999,
/// and eight-bit quantization about as much.
const LEAST_COSINE: f64 = 0.99;
/// Number of times that a cell's encoder is opened: all of them in turn, then once more in reverse order. Only one is
/// in memory at a time.
const VISITS: usize = 2;

/// Measures every encoder compiled in, at every precision and each of `batches`: a batch of pixels in memory to vectors
/// in memory.
///
/// The pixels are the photos, prepared by the usual decoder and resizer. Each encoder is warmed up with a batch, then
/// computes whole batches for the time of a sample, at least one. `p50_ms`, `p90_ms` and `mean_ms` are over all its
/// batches. Every batch ends with its vectors on the host, so the device is idle when the clock stops. Vectors must be
/// finite, the same each time, and near those of the first f32 encoder (cosine 0.99). Other libraries take their turns
/// if there is a script for them.
///
/// # Errors
/// Fails if the photos cannot be prepared, or the script does not start; [`LabError::Interrupted`].
pub fn forward(lab: &Lab<'_>, photos: &PhotoSet, batches: &[usize], effort: &Effort) -> Result<Table, LabError> {
    let mut table = Table::new(&schema::FORWARD);
    let pixels = PreparedPixels::prepare(lab, photos, batches.iter().copied().max().unwrap_or(1))?;
    for &batch in batches {
        for (setting, cell) in compare_encoders(lab, &pixels, batch, effort)? {
            table.push(row(identity(&setting), &cell, |cell| {
                let mut columns = rates(cell.images, &cell.rates);
                columns.extend(times(&cell.ms()));
                columns.extend(cell.parts(batch));
                columns.insert("cosine_to_reference", cell.cosine.into());
                columns
            }));
        }
    }
    Ok(table)
}

/// Returns the columns that identify the forward.
pub(super) fn identity(setting: &Setting) -> [(&'static str, Cell); 4] {
    [
        ("encoder", setting.encoder.as_str().into()),
        ("dtype", setting.dtype.name().into()),
        ("threads", setting.threads.into()),
        ("batch", setting.batch.into()),
    ]
}

/// Measures every encoder at every precision, and compares their vectors.
pub(super) fn compare_encoders(
    lab: &Lab<'_>,
    pixels: &PreparedPixels,
    batch: usize,
    effort: &Effort,
) -> Result<Vec<(Setting, Attempt<EncoderRun>)>, LabError> {
    let base = lab.rig.base();
    let mut settings = Vec::new();
    let mut cells = Vec::new();
    for candidate in lab.rig.encoders() {
        for dtype in DType::ALL {
            settings.push(Setting { encoder: candidate.name.clone(), dtype, batch, ..base.clone() });
            cells.push(usable(&candidate).map(|_| EncoderRun::default()));
        }
    }
    for (encoder, dtype, peer) in peers_of(lab, pixels, batch, effort)? {
        settings.push(Setting { encoder, dtype, batch, ..base.clone() });
        cells.push(Ok(EncoderRun { peer: Some(peer), ..EncoderRun::default() }));
    }
    for visit in 0..VISITS {
        let order = order(lab.seed, cells.len(), visit);
        visit_all(lab, pixels, &settings, &mut cells, &order, effort)?;
    }
    compare(&settings, &mut cells);
    Ok(settings.into_iter().zip(cells).collect())
}

/// Returns the other libraries with their names and precisions.
fn peers_of(
    lab: &Lab<'_>,
    pixels: &PreparedPixels,
    batch: usize,
    effort: &Effort,
) -> Result<Vec<(String, DType, PeerLibrary)>, LabError> {
    let base = lab.rig.base();
    let samples = pixels.batch(batch, pixels.format)?;
    let Some(peers) = peers::start(lab, effort, "forward", [samples.as_slice()].into_iter())? else {
        return Ok(Vec::new());
    };
    let (name, onnx) = lab.rig.model_for_peers()?;
    peers.put("model.txt", name.as_bytes())?;
    peers.put("model.onnx", &onnx)?;
    let case = format!("{},{batch},{},{}", base.threads, pixels.format.size.height, pixels.format.size.width);
    let mut named = Vec::new();
    for peer in peers.all(&case) {
        let (encoder, dtype) = peer.name.split_once(':').unwrap_or((&peer.name, ""));
        let Some(dtype) = DType::ALL.into_iter().find(|known| known.name() == dtype) else {
            return Err(LabError::Setting(format!("--peers: '{}' names no precision, such as :f32", peer.name)));
        };
        named.push((encoder.to_owned(), dtype, peer));
    }
    Ok(named)
}

/// Measures each working cell in this order, each with its own encoder.
pub(super) fn visit_all(
    lab: &Lab<'_>,
    pixels: &PreparedPixels,
    settings: &[Setting],
    cells: &mut [Attempt<EncoderRun>],
    order: &[usize],
    effort: &Effort,
) -> Result<(), LabError> {
    for &at in order {
        if let Ok(cell) = &mut cells[at] {
            let Setting { encoder, dtype, batch, .. } = &settings[at];
            lab.watch.doing(&format!("forward: {encoder}, {}, batch {batch}", dtype.name()));
            if let Err(reason) = attempt(lab, cell.visit(lab, pixels, &settings[at], effort))? {
                cells[at] = Err(reason);
            }
        }
    }
    Ok(())
}

/// The figures of one encoder.
#[derive(Default)]
pub(super) struct EncoderRun {
    /// Images per second of each sample.
    pub(super) rates: Vec<f64>,
    /// Seconds of each batch, and their breakdown.
    batches: Vec<(f64, EncodeTimes)>,
    /// Images of the last sample.
    pub(super) images: usize,
    /// The vectors of the first batch.
    vectors: VectorBuf,
    cosine: Option<f64>,
    /// Another library in the encoder's place.
    peer: Option<PeerLibrary>,
}

impl EncoderRun {
    /// Opens the encoder, warms it up, and takes its share of the samples.
    fn visit(
        &mut self,
        lab: &Lab<'_>,
        pixels: &PreparedPixels,
        setting: &Setting,
        effort: &Effort,
    ) -> Result<(), LabError> {
        if let Some(peer) = self.peer.take() {
            let visited = self.visit_peer(lab, &peer, setting.batch, effort);
            self.peer = Some(peer);
            return visited;
        }
        let mut encoder = lab.rig.open_encoder(setting)?;
        let batch = pixels.batch(setting.batch, encoder.spec().format())?;
        let mut out = VectorBuf::new();
        encoder.encode(batch, &mut out)?;
        self.check(&out, batch.len())?;
        for _ in 0..effort.samples.div_ceil(VISITS).max(1) {
            lab.go_on()?;
            self.sample(encoder.as_mut(), batch, &mut out, effort)?;
        }
        self.check(&out, batch.len())?;
        Ok(())
    }

    /// Samples another library, with the same number of visits and images as an encoder.
    fn visit_peer(&mut self, lab: &Lab<'_>, peer: &PeerLibrary, batch: usize, effort: &Effort) -> Result<(), LabError> {
        let output = peer.output(0).map_err(LabError::Setting)?;
        let values: Vec<f32> = output.as_chunks().0.iter().copied().map(f32::from_le_bytes).collect();
        let mut out = VectorBuf::new();
        out.reset(batch, values.len() / batch).copy_from_slice(&values[..values.len() / batch * batch]);
        self.check(&out, batch)?;
        let seconds = peer.time(1).map_err(LabError::Setting)?.iter().sum::<f64>() / 1e3;
        let within = (effort.seconds / seconds).ceil() as usize;
        let most = effort.images.unwrap_or(u64::MAX) as usize;
        let batches = within.min(most.div_ceil(batch)).max(1);
        for _ in 0..effort.samples.div_ceil(VISITS).max(1) {
            lab.go_on()?;
            let ms = peer.time(batches).map_err(LabError::Setting)?;
            self.images = batches * batch;
            self.rates.push(self.images as f64 / (ms.iter().sum::<f64>() / 1e3));
            self.batches.extend(ms.iter().map(|ms| (ms / 1e3, EncodeTimes::default())));
        }
        Ok(())
    }

    /// Checks that the vectors are finite and the same as before.
    fn check(&mut self, out: &VectorBuf, images: usize) -> Result<(), LabError> {
        if out.rows() != images {
            return Err(wrong(format!("{} vectors of {images} images", out.rows())));
        }
        if let Some(row) = (0..images).find(|&row| !out.row(row).iter().all(|value| value.is_finite())) {
            return Err(wrong(format!("the vector of image {row} is not finite")));
        }
        if self.vectors.rows() == 0 {
            self.vectors.clone_from(out);
        }
        let cosine = least_cosine(out, &self.vectors);
        if cosine < LEAST_COSINE {
            return Err(wrong(format!("the same batch gives other vectors, cosine {cosine:.3}")));
        }
        Ok(())
    }

    fn sample(
        &mut self,
        encoder: &mut dyn Encoder,
        batch: PixelBatch<'_>,
        out: &mut VectorBuf,
        effort: &Effort,
    ) -> Result<(), LabError> {
        let started = Instant::now();
        let mut images = 0;
        loop {
            let one = Instant::now();
            let parts = encoder.encode(batch, out)?;
            self.batches.push((one.elapsed().as_secs_f64(), parts));
            images += batch.len();
            let seconds = started.elapsed().as_secs_f64();
            if effort.images.map_or(seconds >= effort.seconds, |most| images as u64 >= most) {
                self.images = images;
                self.rates.push(images as f64 / seconds);
                return Ok(());
            }
        }
    }

    /// Returns the milliseconds of each batch.
    pub(super) fn ms(&self) -> Vec<f64> {
        self.batches.iter().map(|(seconds, _)| seconds * 1e3).collect()
    }

    /// Returns the median rate.
    pub(super) fn rate(&self) -> Option<f64> {
        Spread::of(&self.rates).map(|rates| rates.median)
    }

    /// Returns the median milliseconds of a part of a batch.
    fn part(&self, part: fn(&EncodeTimes) -> std::time::Duration) -> Option<f64> {
        let ms: Vec<f64> = self.batches.iter().map(|(_, parts)| part(parts).as_secs_f64() * 1e3).collect();
        median(&ms)
    }

    /// Returns the median milliseconds that the network alone takes for a batch.
    pub(super) fn forward_ms(&self) -> Option<f64> {
        self.part(|parts| parts.forward).filter(|ms| *ms > 0.0)
    }

    /// Returns the columns of a batch's breakdown.
    fn parts(&self, batch: usize) -> super::cells::Row {
        super::cells::Row::from([
            ("copy_in_ms", self.part(|parts| parts.copy_in).into()),
            ("forward_ms", self.forward_ms().into()),
            ("copy_out_ms", self.part(|parts| parts.copy_out).into()),
            ("forward_images_per_second", self.forward_ms().map(|ms| batch as f64 / ms * 1e3).into()),
        ])
    }
}

/// Compares all vectors with those of the first working f32 encoder.
fn compare(settings: &[Setting], cells: &mut [Attempt<EncoderRun>]) {
    let mut pairs = settings.iter().zip(cells.iter());
    let reference = pairs.find(|(setting, cell)| setting.dtype == DType::F32 && cell.is_ok());
    let Some((setting, Ok(reference))) = reference else { return };
    let name = setting.encoder.clone();
    let vectors = reference.vectors.clone();
    for cell in cells.iter_mut() {
        let Ok(forward) = cell else { continue };
        let cosine = least_cosine(&forward.vectors, &vectors);
        forward.cosine = Some(cosine);
        if cosine < LEAST_COSINE {
            *cell = Err(wrong(format!("cosine {cosine:.3} with the vectors of {name} in f32")).to_string());
        }
    }
}

/// Returns the minimum cosine over the images; 0 if the numbers or sizes of the vectors differ.
fn least_cosine(a: &VectorBuf, b: &VectorBuf) -> f64 {
    if (a.rows(), a.dim()) != (b.rows(), b.dim()) {
        return 0.0;
    }
    (0..a.rows()).map(|row| cosine(a.row(row), b.row(row))).fold(1.0, f64::min)
}

/// Photos in the encoder's input format.
pub(super) struct PreparedPixels {
    data: Vec<u8>,
    format: InputFormat,
}

impl PreparedPixels {
    /// Prepares `count` images by repeating the photos.
    pub(super) fn prepare(lab: &Lab<'_>, photos: &PhotoSet, count: usize) -> Result<Self, LabError> {
        lab.watch.doing("forward: preparing pixels");
        let base = lab.rig.base();
        let preprocess = lab.rig.preprocess(&base);
        let mut decoder = (lab.rig.decoder_opener(&base))()?;
        let mut resizer = (lab.rig.resizer_opener(&base))()?;
        let mut pixels = PixelBuf::new(preprocess.limits);
        let format = preprocess.geometry.format();
        let image = format.bytes();
        let mut data = vec![0; count.max(1) * image];
        let (fresh, again) = data.split_at_mut(count.clamp(1, photos.photos.len()) * image);
        for (photo, out) in photos.photos.iter().zip(fresh.chunks_exact_mut(image)) {
            lab.go_on()?;
            decoder.decode(&photo.bytes, DecodeHint::default(), &mut pixels)?;
            resizer.resize_into(pixels.view(), &preprocess.geometry.plan(pixels.size()), out)?;
        }
        again.chunks_mut(fresh.len()).for_each(|again| again.copy_from_slice(&fresh[..again.len()]));
        Ok(Self { data, format })
    }

    fn batch(&self, images: usize, input: InputFormat) -> Result<PixelBatch<'_>, LabError> {
        if self.format != input {
            let given = self.format;
            return Err(LabError::Setting(format!("preprocessing gives {given}, and the encoder takes {input}")));
        }
        let all = PixelBatch::new(&self.data, self.format);
        all.and_then(|all| all.slice(0..images)).ok_or_else(|| LabError::Setting(format!("a batch of {images} images")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vectors(rows: &[[f32; 2]]) -> VectorBuf {
        let mut out = VectorBuf::new();
        out.reset(rows.len(), 2).copy_from_slice(rows.as_flattened());
        out
    }

    #[test]
    fn the_least_cosine_counts() {
        let a = vectors(&[[1.0, 0.0], [0.0, 2.0]]);
        assert_eq!(least_cosine(&a, &vectors(&[[3.0, 0.0], [0.0, 1.0]])), 1.0);
        assert_eq!(least_cosine(&a, &vectors(&[[1.0, 0.0], [1.0, 0.0]])), 0.0);
        assert_eq!(least_cosine(&a, &vectors(&[[1.0, 0.0]])), 0.0);
    }
}
