//! The cost of the forward alone, by batch size, and next to workers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use foveate_core::{InputFormat, PixelBatch, PixelBuf, VectorBuf};
use foveate_encode::Encoder;
use foveate_plan::{ForwardCost, StepFit, fit_step};

use crate::clock::{Took, on_all_threads};
use crate::stats::median;
use crate::{Lab, LabError, PhotoSet, Setting};

/// Minimum and maximum number of passes of one batch size.
const PASSES: [usize; 2] = [2, 12];
/// Seconds spent on one batch size, unless the minimum number of passes takes longer.
const SECONDS: f64 = 0.5;
/// A batch size that takes longer is not measured but read off the line through the others.
const LONGEST: f64 = 1.0;
/// Minimum number of batch sizes for a useful line.
const FOR_A_LINE: usize = 3;
/// Below this share of utilization, cores do not count as contended.
const SHARED: f64 = 0.5;
/// A forward that uses fewer cores runs on a device, and shares nothing with workers.
const ELSEWHERE: f64 = 0.05;
/// Seconds that the forward runs next to workers.
const TOGETHER: f64 = 1.0;

/// One forward.
#[derive(Clone, Copy, Debug)]
struct ForwardPass {
    took: Took,
    /// Seconds of copies to and from a device.
    copies: f64,
}

/// Cost of the forward by batch size, with nothing else running.
#[derive(Clone, Debug, Default)]
pub(super) struct ForwardTimes {
    passes: BTreeMap<usize, Vec<ForwardPass>>,
    /// Ratio by which shared work takes longer than its parts: see [`foveate_plan::Measured::interference`].
    pub(super) interference: Option<f64>,
}

/// An encoder and pixels for it.
pub(super) struct ForwardFeed {
    encoder: Box<dyn Encoder>,
    pixels: Vec<u8>,
    format: InputFormat,
    vectors: VectorBuf,
    cores: u32,
}

impl ForwardFeed {
    /// Creates batches of up to `most` images for `encoder`. They are noise, because a network takes the same time for
    /// any pixels.
    pub(super) fn new(encoder: Box<dyn Encoder>, most: usize, cores: u32) -> Self {
        let format = encoder.spec().format();
        // Multiples of 2⁶⁴ ÷ the golden ratio: their upper bits look random.
        let pixels = (0..format.bytes() * most)
            .map(|at| ((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
            .collect();
        Self { encoder, pixels, format, vectors: VectorBuf::new(), cores }
    }

    /// Returns the components of a vector.
    pub(super) fn dim(&self) -> usize {
        self.encoder.spec().dim
    }

    fn pass(&mut self, batch: usize) -> Result<ForwardPass, LabError> {
        let len = self.format.bytes() * batch;
        let images = PixelBatch::new(&self.pixels[..len], self.format);
        let images = images.ok_or_else(|| LabError::Setting(format!("no batch of {batch}")))?;
        let (times, took) = on_all_threads(self.cores, || self.encoder.encode(images, &mut self.vectors));
        let times = times?;
        Ok(ForwardPass { took, copies: (times.copy_in + times.copy_out).as_secs_f64() })
    }

    /// Runs forwards of `batch` for about [`TOGETHER`] seconds, at least two, and returns their number.
    fn forwards(&mut self, batch: usize) -> Result<u32, LabError> {
        let started = Instant::now();
        let mut forwards = 0;
        while forwards < 2 || started.elapsed().as_secs_f64() < TOGETHER {
            self.pass(batch)?;
            forwards += 1;
        }
        Ok(forwards)
    }
}

impl ForwardTimes {
    /// Creates the costs from known seconds of each batch size, with no core time.
    #[cfg(test)]
    pub(super) fn known(seconds: impl Iterator<Item = (usize, f64)>) -> Self {
        let pass = |seconds| ForwardPass { took: Took { seconds, cpu_seconds: 0.0 }, copies: 0.0 };
        let passes = seconds.map(|(batch, seconds)| (batch, vec![pass(seconds)])).collect();
        Self { passes, interference: Some(0.0) }
    }

    /// Measures the missing ones of `wanted`, and a few small batch sizes if `wanted` does not suffice for a line.
    pub(super) fn measure(
        &mut self,
        lab: &Lab<'_>,
        feed: &mut ForwardFeed,
        threads: usize,
        wanted: &BTreeSet<usize>,
    ) -> Result<(), LabError> {
        let most = wanted.last().copied().unwrap_or(1);
        let smallest = threads.clamp(1, most);
        // The smallest comes first: it predicts which others would take too long.
        for &batch in [smallest].iter().chain(wanted) {
            self.measure_batch(lab, feed, threads, batch)?;
        }
        for batch in [2 * smallest, 4 * smallest] {
            if self.passes.len() < FOR_A_LINE && batch < most {
                self.measure_batch(lab, feed, threads, batch)?;
            }
        }
        Ok(())
    }

    /// Measures one batch size, unless it is known or expected to take too long.
    fn measure_batch(
        &mut self,
        lab: &Lab<'_>,
        feed: &mut ForwardFeed,
        threads: usize,
        batch: usize,
    ) -> Result<(), LabError> {
        lab.go_on()?;
        if self.passes.contains_key(&batch) || self.expected(batch).is_some_and(|seconds| seconds > LONGEST) {
            return Ok(());
        }
        lab.watch.doing(&format!("the forward of {batch} images on {threads} threads"));
        // The first pass of a size is slow if kernels are chosen or compiled for it.
        let first = feed.pass(batch)?.took.seconds;
        let passes = ((SECONDS / first.max(1e-6)) as usize).clamp(PASSES[0], PASSES[1]);
        let passes: Result<Vec<ForwardPass>, LabError> = (0..passes).map(|_| feed.pass(batch)).collect();
        self.passes.insert(batch, passes?);
        Ok(())
    }

    /// Estimates the time of a batch from the largest one measured.
    fn expected(&self, batch: usize) -> Option<f64> {
        let (&largest, passes) = self.passes.last_key_value()?;
        Some(median_of(passes, |took| took.seconds) * batch as f64 / largest as f64)
    }

    /// Fits the line through all measurements; `None` for a single batch size.
    pub(super) fn fit(&self) -> Option<StepFit> {
        let mut points = Vec::new();
        for (&batch, passes) in &self.passes {
            points.extend(passes.iter().map(|pass| (batch as u32, pass.took.seconds)));
        }
        fit_step(&points).ok()
    }

    /// Returns the measurements, with `batch` read off the line if it was not measured.
    pub(super) fn costs(&self, threads: usize, batch: usize) -> Vec<ForwardCost> {
        let mut seconds: Vec<(usize, f64, f64)> = Vec::new();
        for (&batch, passes) in &self.passes {
            seconds.push((batch, median_of(passes, |took| took.seconds), cores(passes)));
        }
        if !self.passes.contains_key(&batch)
            && let Some(fit) = self.fit()
            && let Some((_, largest)) = self.passes.last_key_value()
        {
            seconds.push((batch, fit.step.overhead + fit.step.per_item * batch as f64, cores(largest)));
        }
        let mut costs = Vec::new();
        for (batch, seconds, cores) in seconds {
            let cpu_seconds = seconds * cores;
            costs.push(ForwardCost { threads: threads as u32, batch: batch as u32, seconds, cpu_seconds });
        }
        costs
    }

    /// Returns the share of the largest batch's forward that copies take, 0..=1.
    pub(super) fn copy_share(&self) -> f64 {
        let largest = self.passes.last_key_value().map_or(&[][..], |(_, passes)| passes);
        let copies: f64 = largest.iter().map(|pass| pass.copies).sum();
        let seconds: f64 = largest.iter().map(|pass| pass.took.seconds).sum();
        copies / seconds.max(f64::MIN_POSITIVE)
    }

    /// Keeps `feed` busy while the setting's workers prepare photos. Compares the core time of both with the time that
    /// the same work takes alone: a forward as measured, an image `alone` core seconds.
    pub(super) fn keep_company(
        &mut self,
        feed: &mut ForwardFeed,
        company: &Company<'_>,
        alone: f64,
    ) -> Result<(), LabError> {
        let Company { lab, setting, .. } = *company;
        let batch = self.passes.range(2 * setting.threads..).next().or(self.passes.last_key_value());
        let Some((&batch, passes)) = batch else { return Ok(()) };
        lab.go_on()?;
        lab.watch.doing(&format!("the forward on {} threads beside {} workers", setting.threads, setting.workers));
        let stop = AtomicBool::new(false);
        let (counts, took) = on_all_threads(feed.cores, || {
            std::thread::scope(|scope| {
                let stop = &stop;
                let workers: Vec<_> =
                    (0..setting.workers).map(|n| scope.spawn(move || company.prepare_until(stop, n))).collect();
                let forwards = feed.forwards(batch);
                stop.store(true, Relaxed);
                let images: Result<u64, LabError> = workers.into_iter().map(join).sum();
                Ok::<_, LabError>((forwards?, images?))
            })
        });
        let (forwards, images) = counts?;
        let in_use = took.cpu_seconds / (took.seconds * f64::from(feed.cores));
        let by_themselves = f64::from(forwards) * median_of(passes, |took| took.cpu_seconds) + images as f64 * alone;
        // Work that mostly waits for a device or a store does not interfere.
        let forward = cores(passes);
        let workers = setting.workers as f64;
        let shares = in_use >= SHARED && forward >= ELSEWHERE;
        let longer = if shares { (took.cpu_seconds / by_themselves - 1.0).max(0.0) } else { 0.0 };
        let others = 1.0 - forward.max(workers) / (forward + workers);
        self.interference = Some(longer / others.max(1e-9));
        Ok(())
    }
}

/// Workers that prepare photos during a forward.
#[derive(Clone, Copy)]
pub(super) struct Company<'a> {
    pub(super) lab: &'a Lab<'a>,
    pub(super) photos: &'a PhotoSet,
    pub(super) setting: &'a Setting,
}

impl Company<'_> {
    /// Decodes and resizes photos, starting at index `first`, until `stop` is set. Returns their number.
    fn prepare_until(&self, stop: &AtomicBool, first: usize) -> Result<u64, LabError> {
        let preprocess = self.lab.rig.preprocess(self.setting);
        let mut decoder = (self.lab.rig.decoder_opener(self.setting))()?;
        let mut resizer = (self.lab.rig.resizer_opener(self.setting))()?;
        let mut pixels = PixelBuf::new(preprocess.limits);
        let mut output = vec![0; preprocess.geometry.format().bytes()];
        let mut images = 0;
        for photo in self.photos.photos.iter().cycle().skip(first) {
            if stop.load(Relaxed) {
                break;
            }
            decoder.decode(&photo.bytes, preprocess.hint, &mut pixels)?;
            let plan = preprocess.geometry.plan(pixels.size());
            resizer.resize_into(pixels.view(), &plan, &mut output)?;
            images += 1;
        }
        Ok(images)
    }
}

fn join(thread: ScopedJoinHandle<'_, Result<u64, LabError>>) -> Result<u64, LabError> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Returns the median: the passes are few, and one delayed pass would distort a mean.
fn median_of(passes: &[ForwardPass], part: fn(&Took) -> f64) -> f64 {
    let values: Vec<f64> = passes.iter().map(|pass| part(&pass.took)).collect();
    median(&values).unwrap_or(0.0)
}

/// Returns the number of cores in use during these passes.
fn cores(passes: &[ForwardPass]) -> f64 {
    median_of(passes, |took| took.cpu_seconds) / median_of(passes, |took| took.seconds).max(f64::MIN_POSITIVE)
}
