//! The job at a depth, run by the real engine.

use std::time::Instant;

use foveate_encode::Encoder as _;

use super::depth::{CacheDepth, Caches};
use super::options::{DiagnoseOptions, FEWEST_BATCHES};
use super::sample::{Around, Length, TimedSample, images_for, sample};
use crate::{CheckedSink, Lab, LabError, LentEncoder, Output, PhotoSet, Setting};

/// The job that a ladder measures.
pub(super) trait DepthRun {
    /// Warms the job up with its data cached at `depth`, by a sample of the shortest length or more. Returns it and the
    /// length of a usual one there, or the reason why none is possible.
    fn warm_up(&mut self, depth: CacheDepth) -> Result<Result<(Length, TimedSample), String>, LabError>;

    /// Runs `images` images with the data cached at `depth`.
    fn sample(&mut self, depth: CacheDepth, images: u64) -> Result<TimedSample, LabError>;

    /// Returns the seconds since the diagnosis began.
    fn elapsed(&self) -> f64;
}

/// The job of a setting, with caches for every depth.
pub(super) struct CachedJob<'a> {
    lab: &'a Lab<'a>,
    photos: &'a PhotoSet,
    setting: &'a Setting,
    options: &'a DiagnoseOptions,
    started: Instant,
    caches: Caches,
    encoder: LentEncoder,
    /// Holds every photo's vector after the job ran unchanged.
    expected: CheckedSink,
}

impl<'a> CachedJob<'a> {
    pub(super) fn new(
        lab: &'a Lab<'a>,
        photos: &'a PhotoSet,
        setting: &'a Setting,
        options: &'a DiagnoseOptions,
    ) -> Result<Self, LabError> {
        let started = Instant::now();
        let caches = Caches::fill(lab, photos, setting)?;
        let encoder = lab.encoder(setting)?;
        let expected = lab.sink(&Output::Discard, photos)?;
        Ok(Self { lab, photos, setting, options, started, caches, encoder, expected })
    }

    /// Returns true if the encoder overlaps with the host.
    pub(super) fn overlaps(&mut self) -> bool {
        self.encoder.overlap().is_some()
    }

    fn around(&self, depth: CacheDepth) -> Result<Around, LabError> {
        let around = Around::of(self.lab, self.setting, &self.encoder, self.options.cold);
        if depth == CacheDepth::Nothing { around.stored(self.photos, self.setting) } else { Ok(around) }
    }

    fn sink(&self, depth: CacheDepth) -> Result<CheckedSink, LabError> {
        let output = if depth.writes() { Output::Sink(self.options.sink.clone()) } else { Output::Discard };
        let inner = self.lab.open_output(&output)?;
        // One batch repeats, so a slot always has the same vector.
        Ok(if depth.tells_photos() { self.expected.anew(inner) } else { CheckedSink::new(inner, self.setting.batch) })
    }
}

impl DepthRun for CachedJob<'_> {
    fn warm_up(&mut self, depth: CacheDepth) -> Result<Result<(Length, TimedSample), String>, LabError> {
        if depth == CacheDepth::OnDevice
            && let Some(reason) = self.caches.make_resident(&mut self.encoder)?
        {
            return Ok(Err(reason));
        }
        let batch = self.setting.batch as u64;
        // Each photo runs once if the run records its vector.
        let once = if depth == CacheDepth::Nothing { (self.photos.photos.len() as u64).div_ceil(batch) } else { 0 };
        let started = Instant::now();
        let ran = once.max(FEWEST_BATCHES) * batch;
        let first = self.sample(depth, ran)?;
        let took = started.elapsed().as_secs_f64();
        let images = images_for(self.options.seconds, &first, self.setting);
        let images = match depth {
            CacheDepth::Nothing => self.options.images_stored(images, self.photos, self.setting)?,
            _ => images,
        };
        Ok(Ok((Length::of(images, self.setting, &first, (ran, took)), first)))
    }

    fn elapsed(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    fn sample(&mut self, depth: CacheDepth, images: u64) -> Result<TimedSample, LabError> {
        let checked = self.sink(depth)?;
        match depth {
            CacheDepth::OnDevice => self.caches.make_resident(&mut self.encoder).map(|_| ())?,
            CacheDepth::Nothing if self.options.cold => self.photos.forget()?,
            _ => {}
        }
        let sampled = sample(self.lab, &checked, images, self.around(depth)?, |sink, images| {
            let source = self.photos.stored(self.setting, images)?;
            let pipeline = self.lab.pipeline(self.setting, source, Box::new(self.encoder.clone()), sink);
            Ok(self.caches.put_into(pipeline, depth, images, &self.encoder))
        })?;
        if depth == CacheDepth::Nothing {
            self.expected = checked;
        }
        Ok(sampled)
    }
}
