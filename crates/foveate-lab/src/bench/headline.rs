use foveate_encode::{DType, Encoder as _};
use foveate_preprocess::DecodeScale;

use super::cells::{Attempt, Effort, Row, Sets, row};
use super::forward::{EncoderRun, PreparedPixels, compare_encoders, visit_all};
use super::job_sweep::{Encoders, MeasuredJob};
use super::ranking::{Ranking, Rankings, is_faster};
use super::rounds;
use crate::order::order;
use crate::stats::Spread;
use crate::{Lab, LabError, LentEncoder, PhotoSet, Setting, StandIn, Table, schema};

/// Images per batch of the baseline.
const BASELINE_BATCH: usize = 32;
/// Other batch sizes to try.
const BATCHES: [usize; 3] = [8, 64, 128];
/// The row with a forward that costs nothing.
const PREPROCESSING: &str = "preprocessing alone";
/// The row with the usual encoder on the CPU.
const CPU_ONLY: &str = "CPU only";

/// Measures the steps from a slow configuration to the fastest, each end to end: files to a finished output.
///
/// The baseline has the slowest decoder and resizer compiled in, if the usual ones are worth a change from them, exact
/// decoding, one worker, batches of 32, and the first encoder, in f32. Each step keeps the changes before it: the
/// fastest decoder, the fastest resizer, decoding at a smaller scale, more workers, another batch size, the fastest
/// encoder and precision. Last, the workers are chosen again for all of these together.
///
/// Short measurements find the fastest choice beforehand. A choice is taken if its slowest sample is faster than the
/// fastest one before it. A step without a choice, or without a better one, is `n/a (reason)`. A choice that is faster
/// alone may still lose in the job. Short runs of both, in turns, show that; the next step builds on the better one.
///
/// Two more rows have the combination's stages and another forward. `preprocessing alone` has one that costs nothing,
/// and a worker for every core: the rate that the cores can supply. `CPU only` has the usual encoder on the cores, for
/// jobs whose forward runs on a device: the rate without the device.
///
/// # Errors
/// Fails if the baseline's encoder cannot be opened; [`LabError::Interrupted`].
pub fn headline(lab: &Lab<'_>, sets: &Sets, effort: &Effort) -> Result<Table, LabError> {
    let mut table = Table::new(&schema::HEADLINE);
    let Some(photos) = sets.usable.first() else { return Ok(table) };
    let forwards = Forwards::measure(lab, photos, effort)?;
    let mut encoders = Encoders::default();
    for photos in &sets.usable {
        let steps = HeadlinePlan::make(lab, photos, &forwards, &mut encoders, effort)?;
        let cells = measure(lab, photos, &steps, &mut encoders, effort)?;
        push(&mut table, lab, photos, &steps, &cells);
    }
    sets.push_missing(&mut table);
    Ok(table)
}

/// One row: the change and its value. `Err` holds the reason why there is no change.
struct HeadlineStep {
    change: String,
    setting: Attempt<Setting>,
    forward: ForwardEngine,
    /// Number of the step that it changes.
    beside: usize,
}

/// The forward of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ForwardEngine {
    /// The setting's encoder.
    Own,
    /// One that costs nothing.
    Free,
    /// The usual one on the CPU.
    Cpu,
}

/// Samples every step.
fn measure<'a>(
    lab: &Lab<'_>,
    photos: &'a PhotoSet,
    steps: &[HeadlineStep],
    encoders: &mut Encoders,
    effort: &Effort,
) -> Result<Vec<Attempt<MeasuredJob<'a>>>, LabError> {
    let mut cells = Vec::new();
    for step in steps {
        lab.watch.doing(&format!("headline, {}: {}, warming up", photos.name, step.change));
        cells.push(match &step.setting {
            Err(reason) => Err(reason.clone()),
            Ok(setting) => super::cells::attempt(lab, job(lab, photos, setting, step.forward, encoders, effort))?,
        });
    }
    rounds::sample(
        lab,
        effort.samples,
        &mut cells,
        |job: &MeasuredJob<'_>| format!("headline, {}: {}", photos.name, job.setting),
        |job| job.sample(lab),
    )?;
    Ok(cells)
}

/// Returns a setting's job, warmed up.
fn job<'a>(
    lab: &Lab<'_>,
    photos: &'a PhotoSet,
    setting: &Setting,
    forward: ForwardEngine,
    encoders: &mut Encoders,
    effort: &Effort,
) -> Result<MeasuredJob<'a>, LabError> {
    let encoder = match forward {
        ForwardEngine::Own => encoders.get(lab, setting)?,
        ForwardEngine::Free => LentEncoder::new(StandIn::free(encoders.get(lab, setting)?.spec().clone())),
        ForwardEngine::Cpu => LentEncoder::new(lab.rig.open_on_cpu(setting)?),
    };
    MeasuredJob::warm(lab, photos, setting, &encoder, effort)
}

fn push(
    table: &mut Table,
    lab: &Lab<'_>,
    photos: &PhotoSet,
    steps: &[HeadlineStep],
    cells: &[Attempt<MeasuredJob<'_>>],
) {
    let is_stand_in = lab.rig.context().device.starts_with("stand-in");
    let first = cells.first().and_then(|cell| cell.as_ref().ok());
    for (number, (step, cell)) in steps.iter().zip(cells).enumerate() {
        let mut identity = step.setting.as_ref().map(|setting| Row::from(setting.columns())).unwrap_or_default();
        identity.extend([
            ("photos", photos.name.as_str().into()),
            ("step", number.into()),
            ("change", step.change.as_str().into()),
        ]);
        table.push(row(identity, cell, |job| {
            let beside = cells.get(step.beside).and_then(|cell| cell.as_ref().ok()).filter(|_| number > 0);
            let has_vectors = step.forward == ForwardEngine::Own && !is_stand_in && number > 0;
            let mut columns = job.columns();
            columns.extend(job.card_columns());
            columns.extend([
                ("times_baseline", first.and_then(|first| job.times(first)).into()),
                ("times_previous", beside.and_then(|beside| job.times(beside)).into()),
                ("beside", beside.map(|_| step.beside).into()),
                ("effect", beside.and_then(|beside| Some(effect(job.spread()?, beside.spread()?))).into()),
                ("drift", first.filter(|_| has_vectors).and_then(|first| job.drift(first)).into()),
            ]);
            columns
        }));
    }
}

/// Names the effect of a change by the samples with it and without.
fn effect(with: Spread, without: Spread) -> &'static str {
    if with.min > without.max {
        "gain"
    } else if with.max < without.min {
        "loss"
    } else {
        "unclear"
    }
}

/// The steps, chosen in turn, each on top of those before it.
struct HeadlinePlan<'a> {
    lab: &'a Lab<'a>,
    photos: &'a PhotoSet,
    /// The effort of short measurements.
    effort: Effort,
    encoders: &'a mut Encoders,
    now: Setting,
    /// Number of the step whose setting is `now`.
    at: usize,
    steps: Vec<HeadlineStep>,
}

impl<'a> HeadlinePlan<'a> {
    fn make(
        lab: &'a Lab<'a>,
        photos: &'a PhotoSet,
        forwards: &Forwards,
        encoders: &'a mut Encoders,
        effort: &Effort,
    ) -> Result<Vec<HeadlineStep>, LabError> {
        let rankings = Rankings::measure(lab, photos)?;
        let Rankings { decoders, resizers } = &rankings;
        let now = Setting {
            dtype: forwards.baseline.1,
            batch: BASELINE_BATCH,
            workers: 1,
            ..rankings.slow_pair(&lab.rig.base())
        };
        let baseline = HeadlineStep {
            change: "baseline".to_owned(),
            setting: Ok(now.clone()),
            forward: ForwardEngine::Own,
            beside: 0,
        };
        let effort = brief(effort);
        let mut plan = Self { lab, photos, effort, encoders, now, at: 0, steps: vec![baseline] };
        plan.add("decoder", decoders.fastest_but(&plan.now.decoder), |setting, name| setting.decoder = name)?;
        plan.add("resizer", resizers.fastest_but(&plan.now.resizer), |setting, name| setting.resizer = name)?;
        plan.add_scale(decoders.fastest_rate())?;
        plan.add_workers("workers")?;
        plan.add("batch", forwards.better_batch(), |setting, batch| setting.batch = batch)?;
        plan.add("encoder", forwards.better_encoder(), |setting, (encoder, dtype)| {
            setting.encoder = encoder;
            setting.dtype = dtype;
        })?;
        plan.add_combination()?;
        Ok(plan.steps)
    }

    /// Adds a step in which `change` modifies the current setting. The steps after it build on the better of the two.
    fn add<T>(&mut self, what: &str, choice: Attempt<T>, change: impl FnOnce(&mut Setting, T)) -> Result<(), LabError> {
        let setting = choice.map(|choice| {
            let mut setting = self.now.clone();
            change(&mut setting, choice);
            setting
        });
        let beside = self.at;
        if let Ok(setting) = &setting
            && self.is_no_loss(what, setting)?
        {
            self.now = setting.clone();
            self.at = self.steps.len();
        }
        self.steps.push(HeadlineStep { change: what.to_owned(), setting, forward: ForwardEngine::Own, beside });
        Ok(())
    }

    /// Returns true if short runs of a setting are as fast as those of the current one, which take turns with them.
    fn is_no_loss(&mut self, what: &str, setting: &Setting) -> Result<bool, LabError> {
        if *setting == self.now {
            return Ok(true);
        }
        self.lab.watch.doing(&format!("headline, {}: trying the step '{what}'", self.photos.name));
        let tried = self.take_turns(setting);
        // A setting that fails has its reason in its row, and nothing builds on it.
        Ok(super::cells::attempt(self.lab, tried)?.unwrap_or(false))
    }

    fn take_turns(&mut self, setting: &Setting) -> Result<bool, LabError> {
        let mut with = job(self.lab, self.photos, setting, ForwardEngine::Own, self.encoders, &self.effort)?;
        let mut without = job(self.lab, self.photos, &self.now, ForwardEngine::Own, self.encoders, &self.effort)?;
        for _ in 0..self.effort.samples {
            with.sample(self.lab)?;
            without.sample(self.lab)?;
        }
        Ok(with.rate() >= without.rate())
    }

    /// Adds the fastest decoder that may scale, if it is faster than the fastest one that may not (`exact`).
    fn add_scale(&mut self, exact: Option<Spread>) -> Result<(), LabError> {
        let ranking = Ranking::scaled_decoders(self.lab, self.photos)?;
        let fastest = match ranking.fastest() {
            None => Err(ranking.why_none.clone()),
            Some(fastest) if ranking.is_faster(fastest, exact) => Ok(fastest.to_owned()),
            Some(_) => Err("no decoder is faster for it".to_owned()),
        };
        self.add("smaller scale", fastest, |setting, decoder| {
            setting.scale = DecodeScale::Fast;
            setting.decoder = decoder;
        })
    }

    fn add_workers(&mut self, what: &str) -> Result<(), LabError> {
        let workers = self.best_workers()?;
        let best = (workers != self.now.workers).then_some(workers);
        let choice = best.ok_or_else(|| format!("no other number is faster than {workers}"));
        self.add(what, choice, |setting, workers| setting.workers = workers)
    }

    /// Adds all changes together with the workers chosen again, and the same with other forwards.
    fn add_combination(&mut self) -> Result<(), LabError> {
        let workers = self.best_workers()?;
        self.add("all combined", Ok(workers), |setting, workers| setting.workers = workers)?;
        let cores = self.lab.rig.context().cores;
        let supply = Setting { workers: self.now.workers.max(cores), ..self.now.clone() };
        self.steps.push(HeadlineStep {
            change: PREPROCESSING.to_owned(),
            setting: Ok(supply),
            forward: ForwardEngine::Free,
            beside: self.at,
        });
        let on_cpu = match self.lab.rig.context().is_on_cpu() {
            true => Err("the forward of all steps runs on the CPU".to_owned()),
            false => Ok(self.lab.rig.setting_on_cpu(&self.now)),
        };
        self.steps.push(HeadlineStep {
            change: CPU_ONLY.to_owned(),
            setting: on_cpu,
            forward: ForwardEngine::Cpu,
            beside: self.at,
        });
        Ok(())
    }

    /// Finds the best number of workers in short runs. Another number than the current one must be worthwhile.
    fn best_workers(&mut self) -> Result<usize, LabError> {
        let cores = self.lab.rig.context().cores;
        let mut candidates = vec![self.now.workers, cores, self.lab.rig.base().workers, 2 * cores];
        candidates.sort_unstable();
        candidates.dedup();
        let mut rates = Vec::new();
        for &workers in candidates.iter().filter(|&&workers| workers > 0) {
            let setting = Setting { workers, ..self.now.clone() };
            self.lab.watch.doing(&format!("headline, {}: trying {workers} workers", self.photos.name));
            let job = job(self.lab, self.photos, &setting, ForwardEngine::Own, self.encoders, &self.effort);
            let spread = job.and_then(|mut job| {
                (0..self.effort.samples).try_for_each(|_| job.sample(self.lab))?;
                Ok(job.spread())
            });
            rates.push((workers, super::cells::attempt(self.lab, spread)?.ok().flatten()));
        }
        Ok(best_but(&rates, &self.now.workers).copied().unwrap_or(self.now.workers))
    }
}

/// Returns the effort that suffices to rank alternatives.
fn brief(effort: &Effort) -> Effort {
    Effort { seconds: effort.seconds / 2.0, samples: 3, ..effort.clone() }
}

/// Returns the best of `rates`, if it is worth a change from `now`.
fn best_but<'a, T: PartialEq>(rates: &'a [(T, Option<Spread>)], now: &T) -> Option<&'a T> {
    let rate_now = rates.iter().find(|(choice, _)| choice == now).and_then(|(_, rate)| *rate);
    let measured = rates.iter().filter_map(|(choice, rate)| Some((choice, (*rate)?)));
    let (best, rate) = measured.max_by(|a, b| a.1.median.total_cmp(&b.1.median))?;
    (best != now && is_faster(rate, rate_now)).then_some(best)
}

/// The speed of the forward alone, which does not depend on the photos.
struct Forwards {
    encoders: Vec<((String, DType), Option<Spread>)>,
    batches: Vec<(usize, Option<Spread>)>,
    baseline: (String, DType),
}

impl Forwards {
    fn measure(lab: &Lab<'_>, photos: &PhotoSet, effort: &Effort) -> Result<Self, LabError> {
        let base = lab.rig.base();
        let effort = brief(effort);
        let mut tried = vec![BASELINE_BATCH, base.batch];
        tried.extend(if effort.quick { &BATCHES[..1] } else { &BATCHES });
        tried.sort_unstable();
        tried.dedup();
        let pixels = PreparedPixels::prepare(lab, photos, tried.iter().copied().max().unwrap_or(1))?;
        let batch = if effort.quick { BASELINE_BATCH / 2 } else { BASELINE_BATCH };
        let encoders = compare_encoders(lab, &pixels, batch, &effort)?;
        let encoders: Vec<_> =
            encoders.into_iter().map(|(setting, cell)| ((setting.encoder, setting.dtype), rate(&cell))).collect();
        // The baseline is in f32, if there is such a forward.
        let has_f32 = encoders
            .iter()
            .any(|((encoder, dtype), rate)| *encoder == base.encoder && *dtype == DType::F32 && rate.is_some());
        let dtype = if has_f32 { DType::F32 } else { base.dtype };
        let settings: Vec<Setting> = tried.iter().map(|&batch| Setting { batch, dtype, ..base.clone() }).collect();
        let mut cells: Vec<Attempt<EncoderRun>> = settings.iter().map(|_| Ok(EncoderRun::default())).collect();
        visit_all(lab, &pixels, &settings, &mut cells, &order(lab.seed, tried.len(), 0), &effort)?;
        let batches = tried.into_iter().zip(cells.iter().map(rate)).collect();
        Ok(Self { encoders, batches, baseline: (base.encoder, dtype) })
    }

    fn better_batch(&self) -> Attempt<usize> {
        let best = best_but(&self.batches, &BASELINE_BATCH).copied();
        best.ok_or_else(|| format!("no other batch is faster than {BASELINE_BATCH}"))
    }

    fn better_encoder(&self) -> Attempt<(String, DType)> {
        let (encoder, dtype) = &self.baseline;
        let best = best_but(&self.encoders, &self.baseline).cloned();
        best.ok_or_else(|| format!("nothing is faster than {encoder} in {}", dtype.name()))
    }
}

fn rate(cell: &Attempt<EncoderRun>) -> Option<Spread> {
    cell.as_ref().ok().and_then(|forward| Spread::of(&forward.rates))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a rate whose samples differ by `noise` on either side.
    fn rate(median: f64, noise: f64) -> Spread {
        Spread::of(&[median - noise, median, median + noise]).unwrap()
    }

    #[test]
    fn a_choice_must_be_worth_while_in_every_sample() {
        let rates = |noise| {
            [(1, Some(rate(10.0, noise))), (2, Some(rate(10.1, noise))), (4, Some(rate(9.0, noise))), (8, None)]
        };
        assert_eq!(best_but(&rates(0.0), &1), None, "too little");
        assert_eq!(best_but(&rates(0.5), &4), Some(&2));
        assert_eq!(best_but(&rates(0.6), &4), None, "the samples overlap");
        assert_eq!(best_but(&rates(0.5), &8), Some(&2));
        assert_eq!(best_but(&[(1, None)], &1), None);
    }

    #[test]
    fn a_step_that_loses_is_named_so() {
        let without = rate(10.0, 1.0);
        let effects = [rate(12.1, 1.0), rate(7.9, 1.0), rate(10.5, 1.0)].map(|with| effect(with, without));
        assert_eq!(effects, ["gain", "loss", "unclear"]);
    }
}
