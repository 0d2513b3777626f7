use std::time::Instant;

use foveate_core::{ImageView, PixelBuf, Size, error_chain};
use foveate_decode::DecodeHint;
use foveate_resize::{Geometry, Resizer};

use super::cells::{Attempt, Effort, PixelDifference, Sets, attempt, rates, row, times, usable, wrong};
use super::{peers, rounds};
use crate::stats::median;
use crate::{Lab, LabError, PhotoSet, Setting, Table, schema};

/// The names of the recipes.
const RECIPES: [&str; 2] = ["hf", "squash"];
/// Maximum bytes of decoded pixels in memory.
const MOST_BYTES: u64 = 512 << 20;
/// Number of images for the first estimate of a resizer's speed.
const GUESSED_FROM: usize = 8;

/// Measures every resizer compiled in, with each recipe, on one thread: pixels in memory at their native size to the
/// model's input.
///
/// It resizes the images in turn, repeatedly. `p50_ms`, `p90_ms` and `mean_ms` are over the images, each with the
/// median of its times. Before the timing, every image is resized twice over different pixels, which must give the same
/// output, and compared with the first resizer's output.
///
/// # Errors
/// Fails if the photos cannot be decoded; [`LabError::Interrupted`].
pub fn resizers(lab: &Lab<'_>, sets: &Sets, effort: &Effort) -> Result<Table, LabError> {
    let mut table = Table::new(&schema::RESIZERS);
    for photos in &sets.usable {
        let images = decoded(lab, photos)?;
        for recipe in RECIPES {
            for cell in measure(lab, &photos.name, &images, recipe, effort)? {
                let identity = [
                    ("photos", photos.name.as_str().into()),
                    ("resizer", cell.resizer.into()),
                    ("recipe", recipe.into()),
                ];
                table.push(row(identity, &cell.figures, |figures| {
                    let mut columns = rates(figures.images, &figures.rates);
                    columns.extend(times(&figures.ms));
                    columns.insert("pixels", figures.pixels.into());
                    columns
                }));
            }
        }
    }
    sets.push_missing(&mut table);
    Ok(table)
}

/// An image in memory.
pub(super) struct ResizeInput {
    pixels: Vec<u8>,
    size: Size,
}

impl ResizeInput {
    fn view(&self) -> Result<ImageView<'_>, LabError> {
        ImageView::new(&self.pixels, self.size).ok_or_else(|| wrong("an image has the wrong number of samples"))
    }

    /// Returns the image as a file for other programs.
    fn ppm(&self) -> Vec<u8> {
        let Size { width, height } = self.size;
        [format!("P6 {width} {height} 255\n").as_bytes(), &self.pixels].concat()
    }
}

/// Decodes the photos with the usual decoder, as many as fit into the memory limit.
pub(super) fn decoded(lab: &Lab<'_>, photos: &PhotoSet) -> Result<Vec<ResizeInput>, LabError> {
    lab.watch.doing(&format!("resizers, {}: decoding", photos.name));
    let base = lab.rig.base();
    let mut decoder = (lab.rig.decoder_opener(&base))()?;
    let mut pixels = PixelBuf::new(lab.rig.preprocess(&base).limits);
    let mut images = Vec::new();
    for photo in photos.within(MOST_BYTES).photos.iter() {
        lab.go_on()?;
        decoder.decode(&photo.bytes, DecodeHint::default(), &mut pixels)?;
        images.push(ResizeInput { pixels: pixels.as_slice().to_vec(), size: pixels.size() });
    }
    Ok(images)
}

/// A resizer with one recipe.
pub(super) struct MeasuredResizer {
    pub(super) resizer: String,
    pub(super) figures: Attempt<ResizerFigures>,
}

/// The figures of one resizer.
pub(super) struct ResizerFigures {
    /// Images per second of each sample.
    pub(super) rates: Vec<f64>,
    /// Milliseconds of each image: the median of its times.
    ms: Vec<f64>,
    images: usize,
    pixels: PixelDifference,
}

/// Measures every resizer with one recipe.
pub(super) fn measure(
    lab: &Lab<'_>,
    name: &str,
    images: &[ResizeInput],
    recipe: &str,
    effort: &Effort,
) -> Result<Vec<MeasuredResizer>, LabError> {
    let candidates = lab.rig.resizers();
    let geometry = lab.rig.preprocess(&Setting { recipe: recipe.to_owned(), ..lab.rig.base() }).geometry;
    let mut jobs: Vec<Attempt<ResizerRun>> = Vec::new();
    for candidate in &candidates {
        jobs.push(usable(candidate).and_then(|name| ResizerRun::new(lab, name, geometry)));
    }
    let count = effort.images_at(guess(&mut jobs, images));
    let images = &images[..images.len().min(count)];
    lab.watch.doing(&format!("resizers, {name}, {recipe}: comparing pixels"));
    for image in images {
        check(lab, &mut jobs, image)?;
    }
    jobs.iter_mut().flatten().for_each(|job| job.ms = vec![Vec::new(); images.len()]);
    let others = peers::start(lab, effort, "resizers", images.iter().map(ResizeInput::ppm))?;
    let edge = match geometry {
        Geometry::ShortestEdgeCrop { edge, .. } => edge,
        _ => 0,
    };
    let case = format!("{recipe},{edge},{}", geometry.output());
    let mut ours = jobs.iter_mut().flatten().next();
    let others = others.map(|others| {
        others.in_case(&case, |image| {
            let Some(ours) = &mut ours else { return Ok(None) };
            ours.resize(&images[image])?;
            Ok(Some(ours.out.clone()))
        })
    });
    let (others_names, mut others): (Vec<_>, Vec<_>) = others.unwrap_or_default().into_iter().unzip();
    rounds::sample_with_peers(
        lab,
        effort.samples,
        &mut jobs,
        |job| format!("resizers, {name}, {recipe}: {}", job.name),
        |job| job.sample(images, count),
        &mut others,
        count,
    )?;
    let mut measured = Vec::new();
    for (candidate, job) in candidates.into_iter().zip(jobs) {
        measured.push(MeasuredResizer { resizer: candidate.name, figures: job.map(|job| job.figures(count)) });
    }
    for (resizer, job) in others_names.into_iter().zip(others) {
        let figures =
            job.map(|peer| ResizerFigures { ms: peer.ms(), rates: peer.rates, images: count, pixels: peer.pixels });
        measured.push(MeasuredResizer { resizer, figures });
    }
    Ok(measured)
}

/// A resizer being measured.
struct ResizerRun {
    name: String,
    resizer: Box<dyn Resizer>,
    geometry: Geometry,
    out: Vec<u8>,
    pixels: PixelDifference,
    ms: Vec<Vec<f64>>,
    rates: Vec<f64>,
}

impl ResizerRun {
    fn new(lab: &Lab<'_>, name: &str, geometry: Geometry) -> Attempt<Self> {
        Ok(Self {
            name: name.to_owned(),
            resizer: lab.rig.open_resizer(name).map_err(|error| error_chain(&error))?,
            geometry,
            out: vec![0; geometry.format().bytes()],
            pixels: PixelDifference::default(),
            ms: Vec::new(),
            rates: Vec::new(),
        })
    }

    fn resize(&mut self, image: &ResizeInput) -> Result<(), LabError> {
        Ok(self.resizer.resize_into(image.view()?, &self.geometry.plan(image.size), &mut self.out)?)
    }

    /// Resizes over black and over white pixels, to check that every sample is written.
    fn resize_checked(&mut self, image: &ResizeInput) -> Result<(), LabError> {
        self.out.fill(0);
        self.resize(image)?;
        let over_black = self.out.clone();
        self.out.fill(u8::MAX);
        self.resize(image)?;
        if over_black == self.out { Ok(()) } else { Err(wrong("some samples of the output are not written")) }
    }

    fn sample(&mut self, images: &[ResizeInput], count: usize) -> Result<(), LabError> {
        let started = Instant::now();
        for at in (0..images.len()).cycle().take(count) {
            let one = Instant::now();
            self.resize(&images[at])?;
            self.ms[at].push(one.elapsed().as_secs_f64() * 1e3);
        }
        self.rates.push(count as f64 / started.elapsed().as_secs_f64());
        Ok(())
    }

    fn figures(self, images: usize) -> ResizerFigures {
        let ms = self.ms.iter().filter_map(|ms| median(ms)).collect();
        ResizerFigures { rates: self.rates, ms, images, pixels: self.pixels }
    }
}

/// Estimates the seconds per image with the first resizer that works.
fn guess(jobs: &mut [Attempt<ResizerRun>], images: &[ResizeInput]) -> f64 {
    let Some(job) = jobs.iter_mut().flatten().next() else { return 1.0 };
    let images = &images[..images.len().min(GUESSED_FROM)];
    let started = Instant::now();
    let resized = images.iter().filter(|image| job.resize(image).is_ok()).count();
    started.elapsed().as_secs_f64() / resized.max(1) as f64
}

/// Resizes an image with every resizer, which also warms them up, and compares the results with the first one's.
fn check(lab: &Lab<'_>, jobs: &mut [Attempt<ResizerRun>], image: &ResizeInput) -> Result<(), LabError> {
    let mut reference: Option<Vec<u8>> = None;
    for cell in jobs {
        let Ok(job) = cell else { continue };
        match attempt(lab, job.resize_checked(image))? {
            Err(reason) => *cell = Err(reason),
            Ok(()) => match &reference {
                Some(reference) => job.pixels.add(&job.out, reference),
                None => reference = Some(job.out.clone()),
            },
        }
    }
    Ok(())
}
