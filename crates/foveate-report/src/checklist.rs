//! The questions that find a bottleneck, answered with the figures of a run's files.

use std::collections::BTreeMap;

use crate::figures::median_of;
use crate::table::{RunTables, TableRow};
use crate::text::{Num, Text};

/// A question, and its answer from the run's figures.
#[derive(Clone, Debug)]
pub struct Check {
    /// The question.
    pub question: &'static str,
    /// The figures that need no action, in words; empty where any figure is good.
    pub good_if: &'static str,
    /// `good`, `look`, or `unknown` without figures or with those of a disturbed machine.
    pub verdict: &'static str,
    /// The advice that follows from the answer.
    pub advice: String,
    /// CSV file and columns of the figure.
    pub source: &'static str,
    /// The figure that answers it.
    pub(crate) value: Text,
}

impl Check {
    /// Returns the figure that answers the question, with its unit; a dash if there is none.
    pub fn value(&self) -> String {
        self.value.plain()
    }
}

/// Answers every question. The job is the first one with workers in `profile.csv`; of several sets of photos, the first
/// one's figures count. Without a profile there are no answers.
pub(crate) fn checklist(run: &RunTables) -> Vec<Check> {
    let Some(threaded) = run.table("profile.csv").and_then(|table| table.rows().find(|row| row.is("mode", "threaded")))
    else {
        return Vec::new();
    };
    let job = ProfiledJob { run, threaded };
    QUESTIONS.iter().map(|question| job.answer(question)).collect()
}

struct Question {
    question: &'static str,
    /// CSV file and columns of the figure.
    source: &'static str,
    /// True if the figure is a verdict with an interval, which a disturbed machine widens.
    has_interval: bool,
    good_if: &'static str,
    /// The meaning of a figure that needs no action.
    good: &'static str,
    answer: fn(&ProfiledJob<'_>) -> Option<AdvisedNumber>,
}

/// A figure, and the advice about it if it needs action.
struct AdvisedNumber {
    value: Num,
    advice: Option<String>,
}

impl AdvisedNumber {
    /// Returns an answer with `advice` if `look` is true.
    fn of(value: Num, look: bool, advice: impl Into<String>) -> Option<Self> {
        Some(Self { value, advice: look.then(|| advice.into()) })
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
/// Size below which a file is small, in bytes: opening it costs more than reading it.
const SMALL: f64 = 32e3;
/// Threads per core above which they slow each other down.
const CROWDED: f64 = 2.0;
/// Minimum cosine between a faster precision's vectors and f32 vectors: the tier `half`.
const HALF: f64 = 0.999;

static QUESTIONS: &[Question] = &[
    Question {
        question: "Which part of the time does the encoder compute?",
        source: "worker_sweep.csv: encoder_busy",
        has_interval: false,
        good_if: "at least 90 %",
        good: "the forward is the limit: only a faster one helps",
        answer: |job| {
            let busy = job.at_workers("encoder_busy")?;
            let look = busy.value < BUSY;
            AdvisedNumber::of(busy, look, "it waits: look at the stages before it, decoding first")
        },
    },
    Question {
        question: "Which part of an image's time is decoding?",
        source: "profile.csv: share_of_wall of decode, serial",
        has_interval: false,
        good_if: "no more than the forward",
        good: "not the largest stage",
        answer: |job| {
            let decode = job.serial("decode", "share_of_wall")?;
            let look = decode.value > job.serial("forward", "share_of_wall")?.value;
            AdvisedNumber::of(decode, look, "more than the forward: a faster decoder, DCT scaling, more workers")
        },
    },
    Question {
        question: "How many times as fast is the fastest decoder that reduces the scale?",
        source: "decoders.csv: images_per_second by decode_scale",
        has_interval: false,
        good_if: "at most 1.1",
        good: "in use already, or no decoder gains from it on these photos",
        answer: |job| {
            let fast = job.fastest("decoders.csv", &[("decode_scale", "fast")]);
            let low = job.fastest("decoders.csv", &[("decode_scale", "low")]);
            let best = fast.into_iter().chain(low).max_by(|a, b| rate(a).total_cmp(&rate(b)))?;
            let times = job.beside_own_decoder(&best)?;
            let look = job.threaded.is("decode_scale", "exact") && times.value > FASTER;
            let scale = best.text("decode_scale");
            let decoder = best.text("decoder");
            let advice = format!("decode scale {scale} with decoder {decoder}, where slightly other pixels will do");
            AdvisedNumber::of(times, look, advice)
        },
    },
    Question {
        question: "How many times as fast is the fastest decoder?",
        source: "decoders.csv: images_per_second",
        has_interval: false,
        good_if: "at most 1.1",
        good: "the fastest of those compiled in is in use, nearly",
        answer: |job| {
            let best = job.fastest("decoders.csv", &[("decode_scale", job.threaded.text("decode_scale"))])?;
            let times = job.beside_own_decoder(&best)?;
            let look = times.value > FASTER;
            AdvisedNumber::of(times, look, format!("decoder {}", best.text("decoder")))
        },
    },
    Question {
        question: "What does resizing cost, as a part of decoding?",
        source: "profile.csv: ms_per_image of resize and decode, serial",
        has_interval: false,
        good_if: "at most 100 %",
        good: "cheaper than decoding, as it should be",
        answer: |job| {
            let part = job.serial("resize", "ms_per_image")?.over(&job.serial("decode", "ms_per_image")?, "%")?;
            let look = part.value > 1.0;
            AdvisedNumber::of(part, look, "dearer than decoding: a faster resizer, or decode at a reduced scale")
        },
    },
    Question {
        question: "How many times as fast is the fastest resizer?",
        source: "resizers.csv: images_per_second",
        has_interval: false,
        good_if: "at most 1.1",
        good: "the fastest of those compiled in is in use, nearly",
        answer: |job| {
            let ours = job.find("resizers.csv", &[("resizer", job.threaded.text("resizer"))])?;
            let best = job.fastest("resizers.csv", &[("recipe", ours.text("recipe"))])?;
            let times = ratio(&best, &ours)?;
            let look = times.value > FASTER;
            AdvisedNumber::of(times, look, format!("resizer {}", best.text("resizer")))
        },
    },
    Question {
        question: "What does the job reach of the best throughput in the worker sweep?",
        source: "worker_sweep.csv: images_per_second",
        has_interval: false,
        good_if: "at least 95 %",
        good: "at the plateau: more workers do not help",
        answer: |job| {
            let best = job.fastest("worker_sweep.csv", &job.own_pair())?;
            let part = job.at_workers("images_per_second")?.over(&best.number("images_per_second")?, "%")?;
            let plateau = job.find("worker_sweep.csv", &[&job.own_pair()[..], &[("plateau", "yes")]].concat());
            let plateau = plateau.unwrap_or(best);
            let look = part.value < PLATEAU;
            AdvisedNumber::of(part, look, format!("workers {}", plateau.text("workers")))
        },
    },
    Question {
        question: "What does the forward reach of its best throughput in the batch sweep?",
        source: "batch_sweep.csv: images_per_second",
        has_interval: false,
        good_if: "at least 95 %",
        good: "at the knee or beyond: a larger batch does not help",
        answer: |job| {
            let best = job.fastest("batch_sweep.csv", &[])?;
            let ours = job.find("batch_sweep.csv", &[("batch", job.threaded.text("batch"))])?;
            let part = ours.number("images_per_second")?.over(&best.number("images_per_second")?, "%")?;
            let knee = job.find("batch_sweep.csv", &[("knee", "yes")]).unwrap_or(best);
            let look = part.value < PLATEAU;
            AdvisedNumber::of(part, look, format!("batch {}", knee.text("batch")))
        },
    },
    Question {
        question: "How many times as fast is the fastest forward whose vectors hold?",
        source: "forward.csv: images_per_second, cosine_to_reference",
        has_interval: false,
        good_if: "at most 1.1",
        good: "the fastest encoder and precision are in use, nearly",
        answer: |job| {
            let ours = job.own_forward()?;
            let comparable = job.run.table("forward.csv")?.rows().filter(|row| {
                row.is("batch", ours.text("batch"))
                    && row.number("cosine_to_reference").is_some_and(|cosine| cosine.value >= HALF)
            });
            let best = comparable.max_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap_or(ours);
            let times = ratio(&best, &ours)?;
            let look = times.value > FASTER;
            AdvisedNumber::of(
                times,
                look,
                format!("encoder {}, precision {}", best.text("encoder"), best.text("dtype")),
            )
        },
    },
    Question {
        question: "How long does reading an image take?",
        source: "profile.csv: ms_per_image, share_of_wall of read, serial",
        has_interval: false,
        good_if: "at most 10 % of the time",
        good: "next to nothing",
        answer: |job| {
            let look = job.serial("read", "share_of_wall")?.value > NOTABLE;
            let advice = "storage is slow or cold: more readers, a nearer store, tar shards";
            AdvisedNumber::of(job.serial("read", "ms_per_image")?, look, advice)
        },
    },
    Question {
        question: "How many bytes a second does one reader get?",
        source: "profile.csv: bytes_per_image, ms_per_image of read, serial",
        has_interval: false,
        good_if: "at least what a worker decodes",
        good: "faster than one worker decodes",
        answer: |job| {
            let bytes = job.threaded.number("bytes_per_image")?;
            let read = job.serial("read", "ms_per_image")?;
            let look = read.value > job.serial("decode", "ms_per_image")?.value;
            let rate = Num::derived(bytes.value / 1e3 / read.value, "MB/s", "first ÷ second, in MB/s", &[bytes, read]);
            AdvisedNumber::of(rate, look, "slower than one worker decodes: more readers than workers")
        },
    },
    Question {
        question: "How large is a file?",
        source: "profile.csv: bytes_per_image, share_of_wall of read, serial",
        has_interval: false,
        good_if: "at least 32,000 B, or 10 % of the time",
        good: "large enough, or read quickly enough, to be stored one by one",
        answer: |job| {
            let bytes = job.threaded.number("bytes_per_image")?;
            let look = bytes.value < SMALL && job.serial("read", "share_of_wall")?.value > NOTABLE;
            AdvisedNumber::of(bytes, look, "small files that are slow to read: tar shards")
        },
    },
    Question {
        question: "Which part of an image's time is storing its vector?",
        source: "profile.csv: share_of_wall of serialize, serial",
        has_interval: false,
        good_if: "at most 10 %",
        good: "next to nothing",
        answer: |job| {
            let share = job.serial("serialize", "share_of_wall")?;
            let look = share.value > NOTABLE;
            AdvisedNumber::of(share, look, "another sink, or rarer commits")
        },
    },
    Question {
        question: "How many threads are there for a core?",
        source: "profile.csv: workers, threads, cores, threaded",
        has_interval: false,
        good_if: "at most 2",
        good: "few enough not to get in each other's way",
        answer: |job| {
            let [workers, threads, cores] = ["workers", "threads", "cores"].map(|column| job.threaded.number(column));
            let workers = workers?;
            let threads = threads?;
            let cores = cores?;
            let forward = if job.is_on_cpu() { threads.value } else { 1.0 };
            let per_core = (workers.value + forward) / cores.value.max(1.0);
            let how = "workers and the forward's threads, ÷ cores";
            let per_core = Num::derived(per_core, "", how, &[workers, threads, cores]);
            let look = per_core.value > CROWDED;
            AdvisedNumber::of(per_core, look, "fewer workers or forward threads: `foveate tune`")
        },
    },
    Question {
        question: "Which part of the cores' time is in use?",
        source: "worker_sweep.csv: cpu_busy",
        has_interval: false,
        good_if: "at least 90 %, with a device at most 95 %",
        good: "cores that are needed are busy, and no device waits for them",
        answer: |job| {
            let busy = job.at_workers("cpu_busy")?;
            let idle = busy.value < BUSY;
            let full = busy.value > PLATEAU;
            if job.is_on_cpu() {
                AdvisedNumber::of(busy, idle, "cores are idle: more workers or forward threads, foveate tune")
            } else {
                AdvisedNumber::of(busy, full, "no core is free: cheaper decoding and resizing, or more cores")
            }
        },
    },
    Question {
        question: "Which part of an image's time is copying to and from the device?",
        source: "profile.csv: share_of_wall of copy-in and copy-out, serial",
        has_interval: false,
        good_if: "at most 10 %",
        good: "next to nothing",
        answer: |job| {
            let to = job.serial("copy-in", "share_of_wall")?;
            let from = job.serial("copy-out", "share_of_wall")?;
            let both = Num::derived(to.value + from.value, "%", "first + second", &[to, from]);
            let look = both.value > NOTABLE;
            AdvisedNumber::of(both, look, "larger batches, pinned memory, u8 across the bus")
        },
    },
    Question {
        question: "How long does normalizing an image take outside of the network?",
        source: "profile.csv: ms_per_image of normalize, serial",
        has_interval: false,
        good_if: "",
        good: "folding it into the first weights saves this: the job itself does not pay it",
        answer: |job| AdvisedNumber::of(job.serial("normalize", "ms_per_image")?, false, ""),
    },
    Question {
        question: "How much throughput does the stage cost that starves the encoder?",
        source: "diagnosis.csv: drop of the culprit",
        has_interval: true,
        good_if: "none",
        good: "no stage does: bound by the forward",
        answer: |job| {
            job.run.table("diagnosis.csv")?;
            let Some(culprit) = job.find("diagnosis.csv", &[("culprit", "yes")]) else {
                return AdvisedNumber::of(Num::derived(0.0, "%", "no row is the culprit", &[]), false, "");
            };
            let advice = format!("{}: see remedies.csv for what may help", culprit.text("adds"));
            AdvisedNumber::of(culprit.number("drop")?, true, advice)
        },
    },
    Question {
        question: "Which part of the serial run do its stages explain?",
        source: "profile.csv: share_of_wall of other, serial",
        has_interval: false,
        good_if: "at least 98 %",
        good: "nothing is hidden",
        answer: |job| {
            let other = job.serial("other", "share_of_wall")?;
            let covered = Num::derived(1.0 - other.value, "%", "1 − the field", &[other]);
            let look = covered.value < 0.98;
            AdvisedNumber::of(covered, look, "time goes where no stage is: a trace shows when")
        },
    },
    Question {
        question: "How far is the model from measured runs, in the median of its worst regime?",
        source: "plan.csv: error, regime",
        has_interval: false,
        good_if: "at most 10 %",
        good: "near enough to plan with",
        answer: |job| {
            let mut regimes: BTreeMap<&str, Vec<Num>> = BTreeMap::new();
            for row in job.run.table("plan.csv")?.rows() {
                regimes.entry(row.text("regime")).or_default().extend(row.number("error"));
            }
            let mut worst: Option<(&str, Num)> = None;
            for (regime, mut errors) in regimes {
                errors.sort_by(|a, b| a.value.abs().total_cmp(&b.value.abs()));
                let Some(median) = median_of(&errors) else { continue };
                if worst.as_ref().is_none_or(|(_, most)| median.value > most.value) {
                    worst = Some((regime, median));
                }
            }
            let (regime, error) = worst?;
            let look = error.value > NOTABLE;
            // Files of older versions do not tell the regime.
            let jobs = if regime.is_empty() { "jobs".to_owned() } else { format!("{regime}-bound jobs") };
            AdvisedNumber::of(error, look, format!("measure rather than plan {jobs}: the machine may have been busy"))
        },
    },
    Question {
        question: "What does a long run reach of the sample's throughput?",
        source: "extrapolation.csv: long_images_per_second, images_per_second, within",
        has_interval: true,
        good_if: "within the interval",
        good: "in the interval that the sample promised",
        answer: |job| {
            let row = job.find("extrapolation.csv", &[])?;
            let part = row.number("long_images_per_second")?.over(&row.number("images_per_second")?, "%")?;
            let advice = "outside of the interval: a longer sample, or a machine that is not shared";
            AdvisedNumber::of(part, !row.is("within", "yes"), advice)
        },
    },
];

/// The job that the questions are about.
struct ProfiledJob<'a> {
    run: &'a RunTables,
    /// A row of the profile with workers.
    threaded: TableRow<'a>,
}

/// Columns and their required values.
type Where<'a> = &'a [(&'a str, &'a str)];

fn meets(row: &TableRow<'_>, values: Where<'_>) -> bool {
    values.iter().all(|(column, value)| row.is(column, value))
}

fn rate(row: &TableRow<'_>) -> f64 {
    row.number("images_per_second").map_or(0.0, |rate| rate.value)
}

fn ratio(best: &TableRow<'_>, ours: &TableRow<'_>) -> Option<Num> {
    best.number("images_per_second")?.over(&ours.number("images_per_second")?, "×")
}

impl<'a> ProfiledJob<'a> {
    fn answer(&self, asked: &Question) -> Check {
        let file = asked.source.split(':').next().unwrap_or_default();
        let answer = (asked.answer)(self);
        let is_disturbed =
            self.run.table(file).is_some_and(|table| table.rows().any(|row| !row.text("disturbed").is_empty()));
        let (verdict, advice) = match &answer {
            None => ("unknown", format!("needs {}", asked.source)),
            Some(_) if is_disturbed && !asked.has_interval => {
                ("unknown", "the machine was disturbed: measure again while it does nothing else".to_owned())
            }
            Some(AdvisedNumber { advice: None, .. }) => ("good", asked.good.to_owned()),
            Some(AdvisedNumber { advice: Some(advice), .. }) => ("look", advice.clone()),
        };
        let value = answer.map(|answer| answer.value).into();
        let Question { question, good_if, source, .. } = *asked;
        Check { question, good_if, verdict, advice, source, value }
    }

    /// Returns the file's first row with these values.
    fn find(&self, file: &str, values: Where<'_>) -> Option<TableRow<'a>> {
        self.run.table(file)?.rows().find(|row| meets(row, values))
    }

    /// Returns the fastest row with these values on the file's first set of photos.
    fn fastest(&self, file: &str, values: Where<'_>) -> Option<TableRow<'a>> {
        let table = self.run.table(file)?;
        let photos = table.rows().next()?.text("photos");
        let rows = table.rows().filter(|row| row.is("photos", photos) && meets(row, values) && rate(row) > 0.0);
        rows.max_by(|a, b| rate(a).total_cmp(&rate(b)))
    }

    /// Returns a stage's figure in the profile of the same job on one thread.
    fn serial(&self, stage: &str, column: &'static str) -> Option<Num> {
        let same = [("photos", self.threaded.text("photos")), ("mode", "serial"), ("stage", stage)];
        self.find("profile.csv", &[&self.own_pair()[..], &same].concat())?.number(column)
    }

    /// Returns the job's decoder and resizer, which a sweep compares with slower ones.
    fn own_pair(&self) -> [(&'static str, &'a str); 2] {
        ["decoder", "resizer"].map(|column| (column, self.threaded.text(column)))
    }

    /// Returns a figure of the worker sweep at the job's number of workers.
    fn at_workers(&self, column: &'static str) -> Option<Num> {
        let workers = [("workers", self.threaded.text("workers"))];
        self.find("worker_sweep.csv", &[&self.own_pair()[..], &workers].concat())?.number(column)
    }

    fn beside_own_decoder(&self, best: &TableRow<'_>) -> Option<Num> {
        let own = ["decoder", "decode_scale"].map(|column| (column, self.threaded.text(column)));
        ratio(best, &self.find("decoders.csv", &own)?)
    }

    /// Returns the job's own forward, at the batch nearest to the job's at which it was measured.
    fn own_forward(&self) -> Option<TableRow<'a>> {
        let batch = self.threaded.number("batch")?.value;
        let own = ["encoder", "dtype"].map(|column| (column, self.threaded.text(column)));
        let mut nearest = None;
        let mut least = f64::INFINITY;
        for row in self.run.table("forward.csv")?.rows().filter(|row| meets(row, &own) && rate(row) > 0.0) {
            let away = row.number("batch").map_or(f64::INFINITY, |other| (other.value - batch).abs());
            if nearest.is_none() || away < least {
                nearest = Some(row);
                least = away;
            }
        }
        nearest
    }

    /// Returns true if the forward runs on the cores that decode.
    fn is_on_cpu(&self) -> bool {
        self.threaded.text("device").starts_with("cpu")
    }
}
