//! `foveate tune` within a drift budget.

use std::collections::BTreeMap;
use std::sync::Arc;

use foveate::collect::{CollectedRow, MemorySink};
use foveate::core::error_chain;
use foveate::embed::{Backends, Settings};
use foveate::lab::stats::{FEWEST_TOLERATED, quantile};
use foveate::lab::tune::budget::{self, Change, Chosen, Drift, DriftBudget, Half, Recall};
use foveate::lab::{LabError, PhotoSet, Setting};
use foveate::model::OpenOptions;
use foveate::pipeline::{Cancel, Progress};
use foveate::verify::{cosine, nearest_neighbours};
use foveate::{Embedder, rig};
use serde_json::json;
use toml::{Table, Value};

use super::config::{self, Evidence};
use super::exit::Exit;
use super::lab::{Bench, Sizes};
use super::lab_args::TuneArgs;
use super::labels::Labels;
use super::tune;

pub(crate) fn run(args: &TuneArgs) -> anyhow::Result<Exit> {
    let budget = DriftBudget { min_cosine: args.min_cosine, min_recall: args.min_recall, confidence: args.confidence };
    let labels = args.labels.as_deref().map(Labels::read).transpose()?;
    let bench = Bench::open(&args.lab, Sizes::Sample(args.sample))?;
    let photos = bench.photos()?;
    if let Some(labels) = &labels {
        labels.tell(photos.photos.iter().map(|photo| photo.id.as_str()))?;
    }
    let halves = halves(photos, args)?;
    let lab = bench.lab();
    let base = bench.base();
    if args.lab.model.network.model.starts_with("seeded:") {
        bench.say("note: the weights are generated; trained ones drift differently")?;
    }
    let mut vectors = Vectors {
        options: rig::on_one_device(args.lab.settings()),
        backends: Arc::new(Backends::compiled()),
        cancel: lab.cancel,
        halves: &halves,
        base: &base,
        labels: labels.as_ref(),
        of_base: BTreeMap::new(),
        fingerprint: BTreeMap::new(),
    };
    let changes = Change::all(&lab);
    let chosen = budget::run(&lab, &halves[0], &changes, &budget, args.budget, &mut |setting, half| {
        vectors.drift(setting, half)
    })?;

    let facts = facts(&bench, &chosen, &budget, &halves);
    let json = serde_json::to_value(&facts)?;
    let evidence = Evidence { facts, fingerprint: vectors.fingerprint };
    let conditions = bench.conditions();
    bench.put_under(&chosen.table, conditions.clone())?;
    let table = bench.put_under(&chosen.tuned.table, conditions)?;
    tune::refuse(args, table.disturbed())?;
    let comment = tune::comment(&bench, &chosen.tuned.setting, chosen.rates, table.disturbed());
    config::write(&args.write, &chosen.tuned.setting, Some(&evidence), &comment)?;
    let changes = base.changes_to(&chosen.tuned.setting);
    let [before, now] = chosen.rates;
    bench.say(&match changes.as_str() {
        "" => format!("\nthe default is as fast as any configuration within the budget: {now:.3} images/s"),
        changes => format!("\n{changes}: {now:.3} images/s, {:.2} times the {before:.3} of the default", now / before),
    })?;
    bench.say(&claim(&chosen, &budget, &base))?;
    bench.say(&format!("wrote {}: foveate embed … --config {0}", args.write.display()))?;
    bench.print_json(json!({
        "images_per_second": now,
        "before": before,
        "why": chosen.tuned.why,
        "drift_budget": json,
        "written": args.write.display().to_string(),
    }))?;
    Ok(Exit::Complete)
}

/// Splits the sample, and refuses one that shows nothing.
fn halves(photos: &PhotoSet, args: &TuneArgs) -> Result<[PhotoSet; 2], LabError> {
    let count = photos.photos.len();
    if photos.is_full() {
        let why = format!("{count} photos fill the memory for a sample; pass a lower --sample, so that it is random");
        return Err(LabError::Setting(why));
    }
    let halves = photos.halves(args.lab.sample.seed);
    if halves[1].photos.len() < FEWEST_TOLERATED {
        let needed = 2 * FEWEST_TOLERATED;
        let found = halves[0].photos.len() + halves[1].photos.len();
        let why = format!("{found} different photos show no drift of others; at least {needed} do, better 800");
        return Err(LabError::Photos(why));
    }
    Ok(halves)
}

/// The vectors of both halves under the default, and their drift under other settings.
struct Vectors<'a> {
    options: Settings,
    backends: Arc<Backends>,
    cancel: &'a Cancel,
    halves: &'a [PhotoSet; 2],
    base: &'a Setting,
    labels: Option<&'a Labels>,
    of_base: BTreeMap<bool, Rows>,
    /// The settings that made the latest vectors.
    fingerprint: BTreeMap<String, String>,
}

/// Rows by their place in a half.
type Rows = BTreeMap<u64, CollectedRow>;

impl Vectors<'_> {
    fn drift(&mut self, setting: &Setting, half: Half) -> Result<Result<Drift, String>, LabError> {
        let is_held_out = half == Half::HeldOut;
        if !self.of_base.contains_key(&is_held_out) {
            let rows = self.embed(self.base, half)?.map_err(LabError::Setting)?;
            self.of_base.insert(is_held_out, rows);
        }
        let rows = match self.embed(setting, half)? {
            Ok(rows) => rows,
            Err(why) => return Ok(Err(why)),
        };
        let before = &self.of_base[&is_held_out];
        let mut distances = Vec::new();
        for (place, before) in before {
            let distance = rows.get(place).map_or(f64::NAN, |row| 1.0 - cosine(&before.vector, &row.vector));
            // NaN also if a vector is zero.
            distances.push(if distance.is_nan() { f64::INFINITY } else { distance.max(0.0) });
        }
        let recall = self.labels.map(|labels| recall(before, &rows, labels)).transpose()?;
        Ok(Ok(Drift { distances, recall, ..Drift::default() }))
    }

    fn embed(&mut self, setting: &Setting, half: Half) -> Result<Result<Rows, String>, LabError> {
        let options = rig::with_setting(&self.options, setting);
        let options = options.map_err(|error| LabError::Setting(error_chain(&error)))?;
        let mut embedder = match Embedder::open(&options, &self.backends, &OpenOptions::from_env()) {
            Ok(embedder) => embedder,
            Err(error) => return Ok(Err(error_chain(&error))),
        };
        let photos = &self.halves[usize::from(half == Half::HeldOut)];
        let source = photos.in_memory(photos.photos.len() as u64);
        let sink = MemorySink::default();
        match embedder.run(source, Box::new(sink.clone()), self.cancel, &Progress::default()) {
            Ok(report) if report.is_complete() => {}
            Ok(_) => return Err(LabError::Interrupted),
            Err(error) => return Ok(Err(error_chain(&error))),
        }
        self.fingerprint.clone_from(&embedder.manifest().fingerprint);
        Ok(Ok(sink.take().rows.into_iter().map(|row| (row.index, row)).collect()))
    }
}

/// Compares recall@1 among the labelled photos that have a vector under both.
fn recall(before: &Rows, now: &Rows, labels: &Labels) -> Result<Recall, LabError> {
    let labelled: Vec<(&str, [&Vec<f32>; 2])> = before
        .iter()
        .filter_map(|(place, row)| Some((labels.of(&row.id)?, [&row.vector, &now.get(place)?.vector])))
        .collect();
    let mut hits = [0, 0];
    let mut lost = 0;
    let nearest =
        [0, 1].map(|side| nearest_neighbours(&labelled.iter().map(|(_, vectors)| vectors[side]).collect::<Vec<_>>()));
    let [Some(before), Some(now)] = nearest else {
        return Err(LabError::Photos("the labels file names fewer than two photos of a half".to_owned()));
    };
    for ((label, _), (before, now)) in labelled.iter().zip(before.into_iter().zip(now)) {
        let is_hit = [before, now].map(|near| labelled[near].0 == *label);
        hits[0] += usize::from(is_hit[0]);
        hits[1] += usize::from(is_hit[1]);
        lost += usize::from(is_hit[0] && !is_hit[1]);
    }
    Ok(Recall { labelled: labelled.len(), hits, lost })
}

/// Says in words what the held-out half shows.
fn claim(chosen: &Chosen, budget: &DriftBudget, base: &Setting) -> String {
    let Setting { decoder, scale, resizer, encoder, dtype, .. } = &chosen.tuned.setting;
    if (decoder, scale, resizer, encoder, dtype)
        == (&base.decoder, &base.scale, &base.resizer, &base.encoder, &base.dtype)
    {
        return "it is the default configuration, which does not drift".to_owned();
    }
    let photos = chosen.held_out.distances.len();
    let start = format!("with {} % confidence", trimmed(&format!("{:.4}", 100.0 * budget.confidence)));
    let mut claims = Vec::new();
    if let Some(cosine) = budget.min_cosine {
        // Rounded down.
        let share = (chosen.share() * 1000.0).floor() / 10.0;
        claims.push(format!(
            "{start}, at least {share:.1} % of photos like these keep a cosine of {cosine}; all of {photos} held-out \
             photos do"
        ));
    }
    if let Some((recall, lost)) = budget.min_recall.and(chosen.held_out.recall).zip(chosen.lost()) {
        let [default, now] = recall.hits.map(|hits| hits as f64 / recall.labelled as f64);
        let lost = (lost * 1000.0).ceil() / 10.0;
        claims.push(format!(
            "{start}, at most {lost:.1} % of photos like these lose a neighbour of their label; recall@1 of {} held-out \
             photos is {now:.4}, the default's {default:.4}",
            recall.labelled
        ));
    }
    claims.join(". ")
}

/// Removes the zeros at the end of a decimal fraction.
fn trimmed(number: &str) -> &str {
    number.trim_end_matches('0').trim_end_matches('.')
}

/// Returns the budget, the sample and the evidence by name.
fn facts(bench: &Bench, chosen: &Chosen, budget: &DriftBudget, halves: &[PhotoSet; 2]) -> Table {
    let context = bench.rig.context();
    let mut facts = Table::new();
    let mut set = |name: &str, value: Value| facts.insert(name.to_owned(), value);
    let count = |count: usize| Value::Integer(i64::try_from(count).unwrap_or(i64::MAX));
    set("claim", claim(chosen, budget, &bench.base()).into());
    for (name, number) in [("min-cosine", budget.min_cosine), ("min-recall", budget.min_recall)] {
        number.map(|number| set(name, number.into()));
    }
    set("confidence", budget.confidence.into());
    set("compared-with", bench.base().to_string().into());
    set("photos", halves[0].name.clone().into());
    set("seed", count(context.seed as usize));
    for (half, drift) in [("choice", &chosen.choice), ("held-out", &chosen.held_out)] {
        set(&format!("{half}-photos"), count(drift.distances.len()));
        for (name, q) in [("min", 1.0), ("p01", 0.99), ("median", 0.5)] {
            let distance = quantile(&drift.distances, q).unwrap_or(f64::NAN);
            set(&format!("{half}-{name}-cosine"), (1.0 - distance).into());
        }
        if let Some(recall) = drift.recall {
            set(&format!("{half}-labelled"), count(recall.labelled));
            set(&format!("{half}-hits"), count(recall.hits[1]));
            set(&format!("{half}-default-hits"), count(recall.hits[0]));
            set(&format!("{half}-lost-hits"), count(recall.lost));
        }
    }
    if let Some(bound) = budget.most().and_then(|most| chosen.choice.bound(most)) {
        set("choice-bound-cosine", (1.0 - bound).into());
    }
    if budget.min_cosine.is_some() {
        set("held-out-violations", count(0));
        set("share-at-least", chosen.share().into());
    }
    chosen.lost().map(|lost| set("lost-at-most", lost.into()));
    set("confirmations", count(chosen.looks));
    set("confirmation-confidence", chosen.confidence.into());
    set("images-per-second", chosen.rates[1].into());
    set("default-images-per-second", chosen.rates[0].into());
    set("date", context.date.into());
    set("foveate", context.foveate.into());
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recall_counts_hits_before_and_now_and_those_that_are_lost() {
        let rows = |vectors: &[[f32; 2]]| -> Rows {
            let row = |(index, vector): (usize, &[f32; 2])| {
                let index = index as u64;
                (index, CollectedRow { index, id: format!("{index}.jpg"), vector: vector.to_vec() })
            };
            vectors.iter().enumerate().map(row).collect()
        };
        let labels = Labels::of_column("label", [("0.jpg", "a"), ("1.jpg", "a"), ("2.jpg", "b"), ("3.jpg", "b")]);
        let before = rows(&[[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]]);
        let now = rows(&[[1.0, 0.0], [0.2, 1.0], [0.0, 1.0], [1.0, 0.1]]);
        assert_eq!(recall(&before, &before, &labels).unwrap(), Recall { labelled: 4, hits: [4, 4], lost: 0 });
        assert_eq!(recall(&before, &now, &labels).unwrap(), Recall { labelled: 4, hits: [4, 0], lost: 4 });
        assert_eq!(
            recall(&before, &now, &Labels::of_column("label", [("0.jpg", "a"), ("1.jpg", "a"), ("2.jpg", "b")]))
                .unwrap(),
            Recall { labelled: 3, hits: [2, 1], lost: 1 }
        );
        assert!(recall(&before, &now, &Labels::of_column("label", [("0.jpg", "a")])).is_err());
    }
}
