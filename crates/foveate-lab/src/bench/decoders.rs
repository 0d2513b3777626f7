use std::time::Instant;

use foveate_core::{PixelBuf, Size, error_chain};
use foveate_decode::{DecodeHint, Decoder, ImageFormat, sniff};
use foveate_preprocess::DecodeScale;

use super::cells::{Attempt, Effort, PixelDifference, Sets, attempt, rates, row, times, usable, wrong};
use super::peers;
use super::rounds;
use crate::stats::{Spread, median};
use crate::{Lab, LabError, Photo, PhotoSet, Setting, Table, schema};

/// Maximum mean difference between two decoders' pixels, in levels. They compute the DCT and interpolate chroma in
/// different ways, which differs by far less.
const MOST_MEAN_DIFFERENCE: f64 = 8.0;
/// Number of photos for the first estimate of a decoder's speed.
const GUESSED_FROM: usize = 8;

/// Measures every decoder compiled in at every scale, on one thread: encoded bytes in memory to pixels.
///
/// It decodes the photos of the set's most common format in turn, repeatedly. `p50_ms`, `p90_ms` and `mean_ms` are over
/// the photos, each with the median of its times. A photo that any decoder refuses is excluded for all of them. A
/// decoder that refuses more than half has no figures. Before the timing, every photo is decoded and compared: its size
/// must be right, and its pixels near the first decoder's.
///
/// # Errors
/// [`LabError::Interrupted`].
pub fn decoders(lab: &Lab<'_>, sets: &Sets, effort: &Effort) -> Result<Table, LabError> {
    let mut table = Table::new(&schema::DECODERS);
    for photos in &sets.usable {
        for cell in measure(lab, photos, effort)? {
            let identity = [
                ("photos", photos.name.as_str().into()),
                ("decoder", cell.decoder.into()),
                ("decode_scale", cell.scale.into()),
            ];
            table.push(row(identity, &cell.figures, |figures| {
                let megapixels = Spread::of(&figures.rates).map(|rates| rates.median * figures.mean_pixels / 1e6);
                let mut columns = rates(figures.images, &figures.rates);
                columns.extend(times(&figures.ms));
                columns.insert("megapixels_per_second", megapixels.into());
                columns.insert("pixels", figures.pixels.into());
                columns
            }));
        }
    }
    sets.push_missing(&mut table);
    Ok(table)
}

/// A decoder at one scale.
pub(super) struct MeasuredDecoder {
    pub(super) decoder: String,
    pub(super) scale: &'static str,
    pub(super) figures: Attempt<DecoderFigures>,
}

/// The figures of one decoder.
pub(super) struct DecoderFigures {
    /// Images per second of each sample.
    pub(super) rates: Vec<f64>,
    /// Milliseconds of each photo: the median of its times.
    ms: Vec<f64>,
    images: usize,
    mean_pixels: f64,
    pixels: PixelDifference,
}

/// Measures every decoder at every scale on one set of photos.
pub(super) fn measure(lab: &Lab<'_>, photos: &PhotoSet, effort: &Effort) -> Result<Vec<MeasuredDecoder>, LabError> {
    let base = lab.rig.base();
    let format = commonest_format(photos);
    let mut names = Vec::new();
    let mut jobs = Vec::new();
    for scale in DecodeScale::ALL {
        let setting = Setting { scale, ..base.clone() };
        for candidate in lab.rig.decoders() {
            let job = usable(&candidate).and_then(|name| DecoderRun::new(lab, name, &setting, format));
            names.push((candidate.name, setting.decode_scale()));
            jobs.push(job);
        }
    }
    let mut chosen: Vec<&Photo> = photos.photos.iter().filter(|photo| sniff(&photo.bytes).ok() == format).collect();
    let images = effort.images_at(guess(&mut jobs, &chosen));
    chosen.truncate(images);
    lab.watch.doing(&format!("decoders, {}: comparing pixels", photos.name));
    let chosen = agreed(lab, &mut jobs, chosen)?;
    jobs.iter_mut().flatten().for_each(|job| job.ms = vec![Vec::new(); chosen.len()]);
    let others = peers::start(lab, effort, "decoders", chosen.iter().map(|photo| &photo.bytes))?;
    let mut others_names = Vec::new();
    let mut others_jobs = Vec::new();
    for scale in [DecodeScale::Exact, DecodeScale::Fast] {
        let setting = Setting { scale, ..base.clone() };
        let min_side = lab.rig.preprocess(&setting).hint.min_side.unwrap_or(0);
        let mut ours = jobs.iter_mut().flatten().find(|job| job.scale == scale && job.exact_jpeg);
        let Some(others) = &others else { break };
        let in_case = others.in_case(&min_side.to_string(), |photo| {
            let Some(ours) = &mut ours else { return Ok(None) };
            ours.decode(chosen[photo])?;
            Ok(Some(ours.out.as_slice().to_vec()))
        });
        for (name, job) in in_case {
            others_names.push((name, setting.decode_scale()));
            others_jobs.push(job);
        }
    }
    rounds::sample_with_peers(
        lab,
        effort.samples,
        &mut jobs,
        |job| format!("decoders, {}: {}", photos.name, job.name),
        |job| job.sample(&chosen, images),
        &mut others_jobs,
        images,
    )?;
    let mean_pixels = chosen.iter().map(|photo| photo.size.pixels() as f64).sum::<f64>() / chosen.len().max(1) as f64;
    let mut measured = Vec::new();
    for ((decoder, scale), job) in names.into_iter().zip(jobs) {
        measured.push(MeasuredDecoder { decoder, scale, figures: job.map(|job| job.figures(images, mean_pixels)) });
    }
    for ((decoder, scale), job) in others_names.into_iter().zip(others_jobs) {
        let figures = job.map(|peer| DecoderFigures {
            ms: peer.ms(),
            rates: peer.rates,
            images,
            mean_pixels,
            pixels: peer.pixels,
        });
        measured.push(MeasuredDecoder { decoder, scale, figures });
    }
    Ok(measured)
}

/// A decoder being measured.
struct DecoderRun {
    name: String,
    scale: DecodeScale,
    decoder: Box<dyn Decoder>,
    hint: DecodeHint,
    exact_jpeg: bool,
    out: PixelBuf,
    pixels: PixelDifference,
    /// Times of each photo.
    ms: Vec<Vec<f64>>,
    rates: Vec<f64>,
}

impl DecoderRun {
    fn new(lab: &Lab<'_>, name: &str, setting: &Setting, format: Option<ImageFormat>) -> Attempt<Self> {
        let decoder = lab.rig.open_decoder(name).map_err(|error| error_chain(&error))?;
        let preprocess = lab.rig.preprocess(setting);
        let capability = decoder.capability();
        if let Some(format) = format.filter(|&format| !capability.formats.contains(format)) {
            return Err(format!("it does not read {}", format.name()));
        }
        let is_reduced = setting.scale != DecodeScale::Exact;
        if !setting.scale.is_within(&capability) {
            return Err(format!("it does not decode at scale {}", setting.scale));
        }
        if is_reduced && preprocess.hint.min_side.is_none() {
            return Err("nothing may be scaled".to_owned());
        }
        Ok(Self {
            name: format!("{name}, {}", setting.decode_scale()),
            scale: setting.scale,
            decoder,
            hint: preprocess.hint,
            exact_jpeg: capability.exact_jpeg,
            out: PixelBuf::new(preprocess.limits),
            pixels: PixelDifference::default(),
            ms: Vec::new(),
            rates: Vec::new(),
        })
    }

    fn decode(&mut self, photo: &Photo) -> Result<Size, LabError> {
        Ok(self.decoder.decode(&photo.bytes, self.hint, &mut self.out)?.native)
    }

    /// Decodes a photo and checks the result's size and proportions.
    fn decode_checked(&mut self, photo: &Photo) -> Result<(), LabError> {
        let native = self.decode(photo)?;
        let out = self.out.size();
        if native != photo.size {
            return Err(wrong(format!("{}: {} is taken for {native}", photo.id, photo.size)));
        }
        let least = self.hint.min_side.map_or(u32::MAX, |side| side).min(native.min_side());
        let is_right = match self.scale {
            DecodeScale::Exact => out == native,
            _ => out.min_side() >= least && has_shape_of(out, native),
        };
        if is_right { Ok(()) } else { Err(wrong(format!("{}: {out} pixels of {native}", photo.id))) }
    }

    fn sample(&mut self, photos: &[&Photo], images: usize) -> Result<(), LabError> {
        let started = Instant::now();
        for at in (0..photos.len()).cycle().take(images) {
            let one = Instant::now();
            self.decode(photos[at])?;
            self.ms[at].push(one.elapsed().as_secs_f64() * 1e3);
        }
        self.rates.push(images as f64 / started.elapsed().as_secs_f64());
        Ok(())
    }

    fn figures(self, images: usize, mean_pixels: f64) -> DecoderFigures {
        let ms = self.ms.iter().filter_map(|ms| median(ms)).collect();
        DecoderFigures { rates: self.rates, ms, images, mean_pixels, pixels: self.pixels }
    }
}

/// Returns true if `small` is `native` reduced by the same factor on both sides, rounded up or down.
fn has_shape_of(small: Size, native: Size) -> bool {
    let scale = f64::from(small.width) / f64::from(native.width);
    let height = f64::from(native.height) * scale;
    scale <= 1.0 && (height - f64::from(small.height)).abs() <= 1.0 + scale
}

/// Returns the most common format of the photos; `None` if it is not a known one.
fn commonest_format(photos: &PhotoSet) -> Option<ImageFormat> {
    let mut counts: Vec<(Option<ImageFormat>, usize)> = Vec::new();
    for photo in photos.photos.iter() {
        let format = sniff(&photo.bytes).ok();
        match counts.iter_mut().find(|(known, _)| *known == format) {
            Some((_, count)) => *count += 1,
            None => counts.push((format, 1)),
        }
    }
    counts.into_iter().rev().max_by_key(|(_, count)| *count).and_then(|(format, _)| format)
}

/// Estimates the seconds per photo with the first decoder that works.
fn guess(jobs: &mut [Attempt<DecoderRun>], photos: &[&Photo]) -> f64 {
    let Some(job) = jobs.iter_mut().flatten().next() else { return 1.0 };
    let photos = &photos[..photos.len().min(GUESSED_FROM)];
    let started = Instant::now();
    let decoded = photos.iter().filter(|photo| job.decode(photo).is_ok()).count();
    started.elapsed().as_secs_f64() / decoded.max(1) as f64
}

/// Decodes every photo with every decoder, which also warms them up. Compares the pixels, and returns the photos that
/// all decoders take. A decoder with wrong results, or one that refuses more than half of the photos, is excluded.
fn agreed<'a>(
    lab: &Lab<'_>,
    jobs: &mut [Attempt<DecoderRun>],
    photos: Vec<&'a Photo>,
) -> Result<Vec<&'a Photo>, LabError> {
    let mut refused = vec![Vec::new(); jobs.len()];
    for (at, photo) in photos.iter().enumerate() {
        lab.go_on()?;
        for (job, refused) in jobs.iter_mut().zip(&mut refused) {
            let Ok(decoder) = job else { continue };
            match decoder.decode_checked(photo) {
                Ok(()) => {}
                Err(LabError::Work(problem)) => *job = attempt(lab, Err(LabError::Work(problem)))?,
                Err(error) => refused.push((at, format!("{}: {}", photo.id, error_chain(&error)))),
            }
        }
        compare(jobs, &refused, at);
    }
    for (job, refused) in jobs.iter_mut().zip(&mut refused) {
        let Ok(DecoderRun { pixels, .. }) = job else { continue };
        let mean = pixels.mean();
        if let Some((_, reason)) = refused.first()
            && refused.len() * 2 > photos.len()
        {
            *job = Err(format!("{} of {} photos: {reason}", refused.len(), photos.len()));
        } else if mean > MOST_MEAN_DIFFERENCE {
            let by = format!("its pixels differ from the first decoder's by {mean:.0} levels on average");
            *job = attempt(lab, Err(wrong(by)))?;
        }
    }
    let mut kept: Vec<&Photo> = Vec::new();
    for (at, &photo) in photos.iter().enumerate() {
        let mut outcomes = jobs.iter().zip(&refused);
        if outcomes.all(|(job, refused)| job.is_err() || refused.iter().all(|(other, _)| *other != at)) {
            kept.push(photo);
        }
    }
    if kept.is_empty() {
        jobs.iter_mut()
            .filter(|job| job.is_ok())
            .for_each(|job| *job = Err("no photo that all decoders take".to_owned()));
    }
    Ok(kept)
}

/// Compares the current photo's pixels with those of the first decoder at the same scale, if that decoder took the
/// photo.
fn compare(jobs: &mut [Attempt<DecoderRun>], refused: &[Vec<(usize, String)>], at: usize) {
    for scale in DecodeScale::ALL {
        let mut taking = Vec::new();
        for (n, job) in jobs.iter().enumerate() {
            let has_taken = refused[n].last().is_none_or(|(last, _)| *last != at);
            if job.as_ref().is_ok_and(|job| job.scale == scale && has_taken) {
                taking.push(n);
            }
        }
        let exact = taking.iter().find(|&&n| jobs[n].as_ref().is_ok_and(|job| job.exact_jpeg));
        let Some(&first) = exact.or(taking.first()) else { continue };
        let Ok(DecoderRun { out: reference, .. }) = &mut jobs[first] else { continue };
        let reference = std::mem::replace(reference, PixelBuf::new(reference.limits()));
        for &n in taking.iter().filter(|&&n| n != first) {
            if let Ok(job) = &mut jobs[n] {
                if job.out.size() == reference.size() {
                    job.pixels.add(job.out.as_slice(), reference.as_slice());
                } else {
                    job.pixels.other_size = true;
                }
            }
        }
        if let Ok(job) = &mut jobs[first] {
            job.out = reference;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_survive_scaling() {
        let native = Size::new(1001, 667);
        for eighths in 1..=8_u32 {
            let scaled = |side: u32| (side * eighths).div_ceil(8);
            assert!(has_shape_of(Size::new(scaled(1001), scaled(667)), native), "{eighths}");
        }
        assert!(!has_shape_of(Size::new(501, 501), native));
        assert!(!has_shape_of(Size::new(2002, 1334), native));
    }
}
