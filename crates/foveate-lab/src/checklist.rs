//! The questions that find a bottleneck, answered with a run's figures.

use std::collections::BTreeMap;

use foveate_preprocess::DecodeScale;

use crate::schema::{self, Schema};
use crate::stats::median;
use crate::{Cell, Context, Setting, Table};

/// Fills the checklist ([`schema::CHECKLIST`]) from a run's tables. An answer that needs a missing table is `unknown`.
/// `setting` is the job's setting; of several sets of photos, the first one's figures count.
pub fn checklist(tables: &[&Table], setting: &Setting, context: &Context) -> Table {
    let run = Run { tables, setting, context };
    let mut table = Table::new(&schema::CHECKLIST);
    for check in CHECKS {
        let answer = (check.answer)(&run);
        let (verdict, advice) = match &answer {
            _ if !check.has_interval && run.is_disturbed(check.source) => {
                ("unknown", "the machine was disturbed: measure again while it does nothing else".to_owned())
            }
            None => ("unknown", format!("needs {}", check.source)),
            Some(Answer { advice: None, .. }) => ("good", check.good.to_owned()),
            Some(Answer { advice: Some(advice), .. }) => ("look", advice.clone()),
        };
        table.push([
            ("check", check.name.into()),
            ("question", check.question.into()),
            ("value", answer.map(|answer| answer.value).into()),
            ("unit", check.unit.into()),
            ("good_if", check.good_if.into()),
            ("verdict", verdict.into()),
            ("advice", advice.into()),
            ("source", check.source.into()),
        ]);
    }
    table
}

/// One question.
struct Check {
    name: &'static str,
    question: &'static str,
    unit: &'static str,
    /// CSV file and columns of the figure.
    source: &'static str,
    /// True if the figure is a verdict with an interval, which a disturbed machine widens.
    has_interval: bool,
    /// The figures that need no action, in words.
    good_if: &'static str,
    /// The meaning of a figure that needs no action.
    good: &'static str,
    answer: fn(&Run<'_>) -> Option<Answer>,
}

/// A figure, and the advice about it.
struct Answer {
    value: f64,
    advice: Option<String>,
}

impl Answer {
    /// Returns an answer with `advice` if `look` is true.
    fn of(value: f64, look: bool, advice: impl Into<String>) -> Self {
        Self { value, advice: look.then(|| advice.into()) }
    }
}

/// Share of the time below which an encoder waits too much.
const BUSY: f64 = 0.9;
/// Share of an image's time above which a stage deserves attention.
const NOTABLE: f64 = 0.1;
/// Ratio of speeds above which a change of backend is worthwhile.
const FASTER: f64 = 1.1;
/// Fraction of the best rate that counts as equal to it, as in the sweeps.
const PLATEAU: f64 = 0.95;
/// Size below which a file is small, in 10³ bytes: opening it costs more than reading it.
const SMALL_KB: f64 = 32.0;
/// Threads per core above which they slow each other down.
const CROWDED: f64 = 2.0;
/// Minimum cosine between a faster precision's vectors and f32 vectors: the tier `half`.
const HALF: f64 = 0.999;

static CHECKS: &[Check] = &[
    Check {
        name: "encoder-idle",
        question: "Which part of the time does the encoder compute?",
        unit: "",
        source: "worker_sweep.csv: encoder_busy",
        has_interval: false,
        good_if: "at least 0.9",
        good: "the forward is the limit: only a faster one helps",
        answer: |run| {
            let busy = run.at_workers("encoder_busy")?;
            Some(Answer::of(busy, busy < BUSY, "it waits: look at the stages before it, decoding first"))
        },
    },
    Check {
        name: "decode-share",
        question: "Which part of an image's time is decoding?",
        unit: "",
        source: "profile.csv: share_of_wall of decode, serial",
        has_interval: false,
        good_if: "no more than the forward",
        good: "not the largest stage",
        answer: |run| {
            let [decode, forward] = ["decode", "forward"].map(|stage| run.serial(stage, "share_of_wall"));
            let (decode, forward) = (decode?, forward?);
            Some(Answer::of(
                decode,
                decode > forward,
                "more than the forward: a faster decoder, DCT scaling, more workers",
            ))
        },
    },
    Check {
        name: "decode-scale",
        question: "How many times as fast is the fastest decoder that reduces the scale?",
        unit: "x",
        source: "decoders.csv: images_per_second by decode_scale",
        has_interval: false,
        good_if: "at most 1.1",
        good: "in use already, or no decoder gains from it on these photos",
        answer: |run| run.fastest_reduced(),
    },
    Check {
        name: "decoder",
        question: "How many times as fast is the fastest decoder?",
        unit: "x",
        source: "decoders.csv: images_per_second",
        has_interval: false,
        good_if: "at most 1.1",
        good: "the fastest of those compiled in is in use, nearly",
        answer: |run| {
            let scale = run.setting.decode_scale();
            let (name, best) = run.fastest(&schema::DECODERS, "decoder", &[("decode_scale", scale)])?;
            let times = best / run.decoder_rate(&run.setting.decoder, scale)?;
            Some(Answer::of(times, times > FASTER, format!("decoder {name}")))
        },
    },
    Check {
        name: "resize-share",
        question: "What does resizing cost, as a part of decoding?",
        unit: "",
        source: "profile.csv: ms_per_image of resize and decode, serial",
        has_interval: false,
        good_if: "at most 1",
        good: "cheaper than decoding, as it should be",
        answer: |run| {
            let part = run.serial("resize", "ms_per_image")? / run.serial("decode", "ms_per_image")?;
            Some(Answer::of(part, part > 1.0, "dearer than decoding: a faster resizer, or decode at a reduced scale"))
        },
    },
    Check {
        name: "resizer",
        question: "How many times as fast is the fastest resizer?",
        unit: "x",
        source: "resizers.csv: images_per_second",
        has_interval: false,
        good_if: "at most 1.1",
        good: "the fastest of those compiled in is in use, nearly",
        answer: |run| {
            let recipe = [("recipe", run.setting.recipe.as_str())];
            let (name, best) = run.fastest(&schema::RESIZERS, "resizer", &recipe)?;
            let ours = [("resizer", run.setting.resizer.as_str()), recipe[0]];
            let times = best / run.number(&schema::RESIZERS, &ours, "images_per_second")?;
            Some(Answer::of(times, times > FASTER, format!("resizer {name}")))
        },
    },
    Check {
        name: "workers",
        question: "What does the job reach of the best throughput in the worker sweep?",
        unit: "",
        source: "worker_sweep.csv: images_per_second",
        has_interval: false,
        good_if: "at least 0.95",
        good: "at the plateau: more workers do not help",
        answer: |run| {
            let (fastest, best) = run.fastest(&schema::WORKER_SWEEP, "workers", &[])?;
            let part = run.at_workers("images_per_second")? / best;
            let plateau = run.text(&schema::WORKER_SWEEP, &[("plateau", "yes")], "workers").unwrap_or(fastest);
            Some(Answer::of(part, part < PLATEAU, format!("workers {plateau}")))
        },
    },
    Check {
        name: "batch",
        question: "What does the forward reach of its best throughput in the batch sweep?",
        unit: "",
        source: "batch_sweep.csv: images_per_second",
        has_interval: false,
        good_if: "at least 0.95",
        good: "at the knee or beyond: a larger batch does not help",
        answer: |run| {
            let batch = run.setting.batch.to_string();
            let (fastest, best) = run.fastest(&schema::BATCH_SWEEP, "batch", &[])?;
            let ours = run.number(&schema::BATCH_SWEEP, &[("batch", batch.as_str())], "images_per_second")?;
            let knee = run.text(&schema::BATCH_SWEEP, &[("knee", "yes")], "batch").unwrap_or(fastest);
            Some(Answer::of(ours / best, ours / best < PLATEAU, format!("batch {knee}")))
        },
    },
    Check {
        name: "precision",
        question: "How many times as fast is the fastest forward whose vectors hold?",
        unit: "x",
        source: "forward.csv: images_per_second, cosine_to_reference",
        has_interval: false,
        good_if: "at most 1.1",
        good: "the fastest encoder and precision are in use, nearly",
        answer: |run| run.fastest_forward(),
    },
    Check {
        name: "read-share",
        question: "How long does reading an image take?",
        unit: "ms",
        source: "profile.csv: ms_per_image, share_of_wall of read, serial",
        has_interval: false,
        good_if: "at most 0.1 of the time",
        good: "next to nothing",
        answer: |run| {
            let (ms, share) = (run.serial("read", "ms_per_image")?, run.serial("read", "share_of_wall")?);
            Some(Answer::of(ms, share > NOTABLE, "storage is slow or cold: more readers, a nearer store, tar shards"))
        },
    },
    Check {
        name: "read-rate",
        question: "How many bytes a second does one reader get?",
        unit: "MB/s",
        source: "profile.csv: photos, ms_per_image of read, serial",
        has_interval: false,
        good_if: "at least what a worker decodes",
        good: "faster than one worker decodes",
        answer: |run| {
            let rate = run.photo_kb()? / run.serial("read", "ms_per_image")?;
            let decode = run.photo_kb()? / run.serial("decode", "ms_per_image")?;
            Some(Answer::of(rate, rate < decode, "slower than one worker decodes: more readers than workers"))
        },
    },
    Check {
        name: "small-files",
        question: "How large is a file?",
        unit: "kB",
        source: "profile.csv: photos, share_of_wall of read, serial",
        has_interval: false,
        good_if: "at least 32, or 0.1 of the time",
        good: "large enough, or read quickly enough, to be stored one by one",
        answer: |run| {
            let (kb, share) = (run.photo_kb()?, run.serial("read", "share_of_wall")?);
            Some(Answer::of(kb, kb < SMALL_KB && share > NOTABLE, "small files that are slow to read: tar shards"))
        },
    },
    Check {
        name: "sink-share",
        question: "Which part of an image's time is storing its vector?",
        unit: "",
        source: "profile.csv: share_of_wall of serialize, serial",
        has_interval: false,
        good_if: "at most 0.1",
        good: "next to nothing",
        answer: |run| {
            let share = run.serial("serialize", "share_of_wall")?;
            Some(Answer::of(share, share > NOTABLE, "another sink, or rarer commits"))
        },
    },
    Check {
        name: "oversubscription",
        question: "How many threads are there for a core?",
        unit: "",
        source: "profile.csv: workers, threads, cores, threaded",
        has_interval: false,
        good_if: "at most 2",
        good: "few enough not to get in each other's way",
        answer: |run| {
            let threaded = |column| run.number(&schema::PROFILE, &[("mode", "threaded")], column);
            let forward = if run.on_cpu() { threaded("threads")? } else { 1.0 };
            let per_core = (threaded("workers")? + forward) / run.context.cores.max(1) as f64;
            Some(Answer::of(per_core, per_core > CROWDED, "fewer workers or forward threads: `foveate tune`"))
        },
    },
    Check {
        name: "cpu",
        question: "Which part of the cores' time is in use?",
        unit: "",
        source: "worker_sweep.csv: cpu_busy",
        has_interval: false,
        good_if: "at least 0.9, with a device at most 0.95",
        good: "cores that are needed are busy, and no device waits for them",
        answer: |run| {
            let busy = run.at_workers("cpu_busy")?;
            Some(match run.on_cpu() {
                true => Answer::of(busy, busy < BUSY, "cores are idle: more workers or forward threads, foveate tune"),
                false => {
                    Answer::of(busy, busy > PLATEAU, "no core is free: cheaper decoding and resizing, or more cores")
                }
            })
        },
    },
    Check {
        name: "copies",
        question: "Which part of an image's time is copying to and from the device?",
        unit: "",
        source: "profile.csv: share_of_wall of copy-in and copy-out, serial",
        has_interval: false,
        good_if: "at most 0.1",
        good: "next to nothing",
        answer: |run| {
            let share =
                run.serial("copy-in", "share_of_wall")? + run.serial("copy-out", "share_of_wall").unwrap_or(0.0);
            Some(Answer::of(share, share > NOTABLE, "larger batches, pinned memory, u8 across the bus"))
        },
    },
    Check {
        name: "normalization",
        question: "How long does normalizing an image take outside of the network?",
        unit: "ms",
        source: "profile.csv: ms_per_image of normalize, serial",
        has_interval: false,
        good_if: "",
        good: "this is what folding it into the first weights saves: the job itself does not pay it",
        answer: |run| Some(Answer::of(run.serial("normalize", "ms_per_image")?, false, "")),
    },
    Check {
        name: "prefetch",
        question: "How many times as fast is the job with another number of batches ahead?",
        unit: "x",
        source: "tuning.csv: images_per_second by prefetch",
        has_interval: false,
        good_if: "at most 1.1",
        good: "the queue before the encoder is long enough",
        answer: |run| run.other_prefetch(),
    },
    Check {
        name: "culprit",
        question: "How much throughput does the stage cost that starves the encoder?",
        unit: "",
        source: "diagnosis.csv: drop of the culprit",
        has_interval: true,
        good_if: "0",
        good: "no stage does: bound by the forward",
        answer: |run| {
            let table = run.table(&schema::DIAGNOSIS).filter(|table| !table.is_empty())?;
            let Some(row) = find(table, &[("culprit", "yes")]) else { return Some(Answer::of(0.0, false, "")) };
            let stage = table.get(row, "adds");
            Some(Answer::of(table.number(row, "drop")?, true, format!("{stage}: see remedies.csv for what may help")))
        },
    },
    Check {
        name: "coverage",
        question: "Which part of the serial run do its stages explain?",
        unit: "",
        source: "profile.csv: share_of_wall of other, serial",
        has_interval: false,
        good_if: "at least 0.98",
        good: "nothing is hidden",
        answer: |run| {
            let covered = 1.0 - run.serial("other", "share_of_wall")?;
            Some(Answer::of(covered, covered < 0.98, "time goes where no stage is: a trace shows when"))
        },
    },
    Check {
        name: "prediction",
        question: "How far is the model from measured runs, in the median of its worst regime?",
        unit: "",
        source: "plan.csv: error, regime",
        has_interval: false,
        good_if: "at most 0.1",
        good: "near enough to plan with",
        answer: |run| {
            let table = run.table(&schema::PLAN)?;
            let mut errors: BTreeMap<String, Vec<f64>> = BTreeMap::new();
            for row in 0..table.len() {
                let regime = errors.entry(table.get(row, "regime").to_string()).or_default();
                regime.extend(table.number(row, "error").map(f64::abs));
            }
            let medians = errors.into_iter().filter_map(|(regime, errors)| Some((median(&errors)?, regime)));
            let (worst, regime) = medians.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
            let advice = format!("measure rather than plan {regime}-bound jobs: the machine may have been busy");
            Some(Answer::of(worst, worst > NOTABLE, advice))
        },
    },
    Check {
        name: "extrapolation",
        question: "What does a long run reach of the sample's throughput?",
        unit: "",
        source: "extrapolation.csv: long_images_per_second, images_per_second, within",
        has_interval: true,
        good_if: "within the interval",
        good: "in the interval that the sample promised",
        answer: |run| {
            let figure = |column| run.number(&schema::EXTRAPOLATION, &[], column);
            let part = figure("long_images_per_second")? / figure("images_per_second")?;
            let within = run.text(&schema::EXTRAPOLATION, &[], "within")? == "yes";
            Some(Answer::of(part, !within, "outside of the interval: a longer sample, or a machine that is not shared"))
        },
    },
];

/// The source of the answers.
struct Run<'a> {
    tables: &'a [&'a Table],
    setting: &'a Setting,
    context: &'a Context,
}

/// Columns and their required values.
type Where<'a> = &'a [(&'a str, &'a str)];

/// Returns the first row with all these values.
fn find(table: &Table, values: Where<'_>) -> Option<usize> {
    (0..table.len()).find(|&row| values.iter().all(|(column, value)| table.get(row, column).to_string() == *value))
}

impl Run<'_> {
    fn table(&self, schema: &Schema) -> Option<&Table> {
        self.tables.iter().copied().find(|table| table.schema().file == schema.file)
    }

    /// Returns true if the file that a check's source begins with was measured on a disturbed machine.
    fn is_disturbed(&self, source: &str) -> bool {
        let is_source = |table: &&&Table| source.starts_with(table.schema().file);
        self.tables.iter().find(is_source).is_some_and(|table| table.disturbed().is_some())
    }

    fn number(&self, schema: &Schema, values: Where<'_>, column: &str) -> Option<f64> {
        let table = self.table(schema)?;
        table.number(find(table, values)?, column)
    }

    fn text(&self, schema: &Schema, values: Where<'_>, column: &str) -> Option<String> {
        let table = self.table(schema)?;
        Some(table.get(find(table, values)?, column).to_string())
    }

    /// Returns a stage's figure in the first profile on one thread.
    fn serial(&self, stage: &str, column: &str) -> Option<f64> {
        self.number(&schema::PROFILE, &[("mode", "serial"), ("stage", stage)], column)
    }

    /// Returns a figure of the worker sweep at the job's number of workers.
    fn at_workers(&self, column: &str) -> Option<f64> {
        let workers = self.setting.workers.to_string();
        self.number(&schema::WORKER_SWEEP, &[("workers", workers.as_str())], column)
    }

    fn decoder_rate(&self, decoder: &str, scale: &str) -> Option<f64> {
        let values = [("decoder", decoder), ("decode_scale", scale)];
        self.number(&schema::DECODERS, &values, "images_per_second")
    }

    /// Returns the value of `name`, and the rate, in the fastest row with these values on the table's first set of
    /// photos.
    fn fastest(&self, schema: &Schema, name: &str, values: Where<'_>) -> Option<(String, f64)> {
        let table = self.table(schema)?;
        let photos = |row| has(table, "photos").then(|| table.get(row, "photos").clone());
        let rows = (0..table.len()).filter(|&row| {
            photos(row) == photos(0)
                && values.iter().all(|(column, value)| table.get(row, column).to_string() == *value)
        });
        let rates = rows.filter_map(|row| Some((row, table.number(row, "images_per_second")?)));
        let (row, rate) = rates.max_by(|a, b| a.1.total_cmp(&b.1))?;
        Some((table.get(row, name).to_string(), rate))
    }

    /// Returns the fastest decoder at a reduced scale, against the one in use.
    fn fastest_reduced(&self) -> Option<Answer> {
        let reduced = [DecodeScale::Fast, DecodeScale::Low].into_iter().filter_map(|scale| {
            let (decoder, rate) = self.fastest(&schema::DECODERS, "decoder", &[("decode_scale", scale.name())])?;
            Some((scale, decoder, rate))
        });
        let (scale, decoder, best) = reduced.max_by(|a, b| a.2.total_cmp(&b.2))?;
        let times = best / self.decoder_rate(&self.setting.decoder, self.setting.decode_scale())?;
        let look = self.setting.scale == DecodeScale::Exact && times > FASTER;
        let advice = format!("decode scale {scale} with decoder {decoder}, where slightly other pixels will do");
        Some(Answer::of(times, look, advice))
    }

    /// Returns the fastest forward whose vectors are near enough to the reference's, at the batch nearest to the job's
    /// at which its own forward was measured.
    fn fastest_forward(&self) -> Option<Answer> {
        let table = self.table(&schema::FORWARD)?;
        let rate = |row: usize| table.number(row, "images_per_second");
        let text = |row: usize, column: &str| table.get(row, column).to_string();
        let is_ours = |row: &usize| {
            text(*row, "encoder") == self.setting.encoder && text(*row, "dtype") == self.setting.dtype.name()
        };
        let away = |row: &usize| {
            table.number(*row, "batch").map_or(u64::MAX, |n| (n as u64).abs_diff(self.setting.batch as u64))
        };
        let ours = (0..table.len()).filter(|&row| rate(row).is_some()).filter(is_ours).min_by_key(away)?;
        let beside = |row: &usize| table.get(*row, "batch") == table.get(ours, "batch");
        let holds = |row: &usize| table.number(*row, "cosine_to_reference").is_some_and(|cosine| cosine >= HALF);
        let rated = (0..table.len()).filter(beside).filter(holds).filter_map(|row| Some((row, rate(row)?)));
        let (best, most) = rated.max_by(|a, b| a.1.total_cmp(&b.1)).or(Some((ours, rate(ours)?)))?;
        let times = most / rate(ours)?;
        let (encoder, dtype) = (text(best, "encoder"), text(best, "dtype"));
        Some(Answer::of(times, times > FASTER, format!("encoder {encoder}, precision {dtype}")))
    }

    /// Returns the best setting tried by tuning that differs from the job only in its prefetch.
    fn other_prefetch(&self) -> Option<Answer> {
        let table = self.table(&schema::TUNING)?;
        let Setting { workers, threads, batch, readers, prefetch, .. } = *self.setting;
        let others = [("workers", workers), ("threads", threads), ("batch", batch), ("readers", readers)];
        let alike = |row: &usize| others.iter().all(|&(column, value)| *table.get(*row, column) == Cell::from(value));
        let rates = (0..table.len())
            .filter(alike)
            .filter_map(|row| Some((table.number(row, "prefetch")? as usize, table.number(row, "images_per_second")?)));
        let (ours, others): (Vec<_>, Vec<_>) = rates.partition(|(ahead, _)| *ahead == prefetch);
        let (ahead, best) = others.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let times = best / ours.first()?.1;
        Some(Answer::of(times, times > FASTER, format!("prefetch {ahead}")))
    }

    fn on_cpu(&self) -> bool {
        self.context.is_on_cpu()
    }

    /// Returns the kilobytes of the median photo, parsed from [`crate::PhotoSet::name`].
    fn photo_kb(&self) -> Option<f64> {
        let name = self.text(&schema::PROFILE, &[], "photos")?;
        name.strip_suffix(" kB")?.rsplit(' ').next()?.parse().ok()
    }
}

fn has(table: &Table, column: &str) -> bool {
    table.schema().columns.iter().any(|known| known.name == column)
}
