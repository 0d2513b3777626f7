//! The experiments of `foveate bench` on stages that are slow, missing or wrong on purpose.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use crate::common::{Costs, FakeRig, Ledger, corrupt, raw};
use foveate_core::{ImageView, ImageViewMut, PixelBatch, PixelBuf, Size, VectorBuf};
use foveate_decode::{DecodeError, DecodeHint, Decoded, Decoder};
use foveate_encode::{DType, EncodeError, EncodeTimes, Encoder, EncoderSpec, Overlap, Resident};
use foveate_lab::bench::{self, Effort, Service, Sets, SinkVectors};
use foveate_lab::{Candidate, Cell, Context, Lab, LabError, Memory, Rig, Setting, StoreOpener, Table};
use foveate_pipeline::{Cancel, Config};
use foveate_preprocess::{CpuPreprocessor, DecoderOpener, PreprocessOptions, PreprocessorOpener, ResizerOpener};
use foveate_resize::{ResizeError, ResizePlan, Resizer};
use foveate_sink::{Existing, Failure, Published, Rows, RunManifest, SinkError, SinkOptions, VectorSink, Watermark};
use foveate_source::blob::{Blob, MemoryBlob};
use foveate_source::{FetchError, Input, Source, SourceError};

/// The fault of the backends called `spoilt`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    DecoderCropsItsImages,
    DecoderInvertsItsPixels,
    DecoderRefusesOddPhotos,
    ResizerLeavesASampleOut,
    EncoderGivesNan,
    EncoderGivesNoise,
    SinkLosesARow,
    SinkWritesHalf,
}

/// The fake rig, with a fault.
struct Spoilt(FakeRig, Fault);

struct Bench {
    rig: Spoilt,
    cancel: Cancel,
    folder: tempfile::TempDir,
    ledger: Ledger,
}

impl Bench {
    fn new(rig: FakeRig, fault: Fault) -> Self {
        Self::until(rig, fault, "")
    }

    fn until(rig: FakeRig, fault: Fault, until: &'static str) -> Self {
        let cancel = Cancel::default();
        let ledger = Ledger::new(&rig, until, &cancel);
        Self { rig: Spoilt(rig, fault), cancel, folder: tempfile::tempdir().unwrap(), ledger }
    }

    fn lab(&self) -> Lab<'_> {
        Lab { rig: &self.rig, scratch: self.folder.path(), cancel: &self.cancel, watch: &self.ledger, seed: 7 }
    }

    fn sets(&self) -> Sets {
        Sets::load(&self.lab(), 100).unwrap()
    }
}

/// A small effort, the same for every candidate.
const EFFORT: Effort = Effort { images: Some(16), seconds: 0.05, samples: 3, quick: true, peers: None };

/// Returns a rig with six photos that are large enough to be downscaled.
fn large() -> FakeRig {
    let photos = (0..6).map(|n| raw(n, Size::new(400, 330 + n % 2))).collect();
    FakeRig { photos, ..FakeRig::new() }
}

fn text(table: &Table, row: usize, column: &str) -> String {
    table.get(row, column).to_string()
}

/// Returns the rows in which each column has its value.
fn rows(table: &Table, wanted: &[(&str, &str)]) -> Vec<usize> {
    let is = |row: &usize| wanted.iter().all(|(column, value)| text(table, *row, column) == *value);
    (0..table.len()).filter(is).collect()
}

fn row(table: &Table, wanted: &[(&str, &str)]) -> usize {
    let rows = rows(table, wanted);
    assert_eq!(rows.len(), 1, "{wanted:?} in\n{}", print(table));
    rows[0]
}

fn print(table: &Table) -> String {
    let mut out = Vec::new();
    table.print(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn rate(table: &Table, row: usize) -> f64 {
    table.number(row, "images_per_second").unwrap()
}

/// Checks that rows marked `ok` have a value everywhere except in `may_be_empty`, and that the others give the reason
/// and nothing else.
fn check_cells(table: &Table, may_be_empty: &[&str]) {
    for row in 0..table.len() {
        let status = text(table, row, "status");
        assert!(status == "ok" || status.starts_with("n/a (") && status.len() > 6, "{status}");
        for column in table.schema().columns.iter().filter(|column| !may_be_empty.contains(&column.name)) {
            let is_empty = *table.get(row, column.name) == Cell::Empty;
            assert!(status != "ok" || !is_empty, "{} of row {row} is empty:\n{}", column.name, print(table));
            assert!(status == "ok" || column.name != "images_per_second" || is_empty, "figures of a row without any");
        }
        let has_rates = table.schema().columns.iter().any(|column| column.name == "images_per_second_min");
        if status == "ok" && has_rates {
            let [low, middle, high] =
                ["_min", "", "_max"].map(|of| table.number(row, &format!("images_per_second{of}")).unwrap());
            assert!(0.0 < low && low <= middle && middle <= high, "{}", print(table));
        }
    }
}

fn not_available(table: &Table, row: usize, why: &str) {
    let status = text(table, row, "status");
    assert!(status.starts_with("n/a (") && status.contains(why), "'{status}' does not say '{why}'");
}

#[test]
fn decoders_are_compared_at_both_sizes_and_every_scale() {
    let costs = Costs { decode: 1.0, ..Costs::default() };
    let decoders = vec![("plain", Some(1.0)), ("slow", Some(4.0)), ("broken", None)];
    let bench = Bench::new(FakeRig { costs, decoders, fast: 0.25, ..large() }, Fault::None);
    let sets = bench.sets();
    assert_eq!((sets.usable.len(), sets.missing.len()), (2, 0));
    let table = bench::decoders(&bench.lab(), &sets, &EFFORT).unwrap();
    check_cells(&table, &[]);
    assert_eq!(table.len(), 3 * 3 * 2);
    for broken in rows(&table, &[("decoder", "broken")]) {
        not_available(&table, broken, "its library is missing");
    }
    for low in rows(&table, &[("decoder", "plain"), ("decode_scale", "low")]) {
        not_available(&table, low, "it does not decode at scale low");
    }
    for set in &sets.usable {
        let of = |decoder, scale| row(&table, &[("photos", &set.name), ("decoder", decoder), ("decode_scale", scale)]);
        let plain = of("plain", "exact");
        let slow = of("slow", "exact");
        assert_eq!(text(&table, slow, "pixels"), "exact");
        for (decoder, scale, ms) in [("plain", "exact", 1.0), ("slow", "exact", 4.0), ("slow", "fast", 1.0)] {
            let row = of(decoder, scale);
            assert!(table.number(row, "p50_ms").unwrap() >= ms, "{}", print(&table));
            assert!(rate(&table, row) <= 1e3 / ms, "{}", print(&table));
        }
        assert!(table.number(slow, "p50_ms") <= table.number(slow, "p90_ms"));
        let images = rate(&table, plain);
        let pixels = set.mean_pixels();
        let megapixels = table.number(plain, "megapixels_per_second").unwrap();
        assert!((megapixels / (images * pixels / 1e6) - 1.0).abs() < 0.05, "{}", print(&table));
    }
    let work = bench.rig.0.work.lock().unwrap();
    assert!(["plain", "slow"].iter().all(|decoder| work.of_backend("decode", decoder) >= 2 * 3 * 16), "{work:?}");
}

#[test]
fn what_cannot_be_had_has_a_row_that_says_why() {
    let bench = Bench::new(FakeRig::new(), Fault::None);
    let lab = bench.lab();
    let sets = bench.sets();
    let tables = [
        bench::decoders(&lab, &sets, &EFFORT).unwrap(),
        bench::resizers(&lab, &sets, &EFFORT).unwrap(),
        bench::worker_sweep(&lab, &sets, &[1], &EFFORT).unwrap(),
        bench::extrapolation(&lab, &sets, 1000, &EFFORT).unwrap(),
    ];
    for table in &tables {
        not_available(table, row(table, &[("photos", "small")]), "about 256 px already");
    }
    for fast in rows(&tables[0], &[("decode_scale", "fast")]) {
        not_available(&tables[0], fast, "it does not decode at scale fast");
    }
}

#[test]
fn wrong_decoders_have_no_figures() {
    for (fault, why) in [
        (Fault::DecoderCropsItsImages, "the work is not right"),
        (Fault::DecoderInvertsItsPixels, "differ from the first decoder's"),
    ] {
        let rig = FakeRig { decoders: vec![("plain", Some(1.0)), ("spoilt", Some(1.0))], ..FakeRig::new() };
        let bench = Bench::new(rig, fault);
        let table = bench::decoders(&bench.lab(), &bench.sets(), &EFFORT).unwrap();
        let exact = |decoder| row(&table, &[("decoder", decoder), ("decode_scale", "exact")]);
        assert_eq!(text(&table, exact("plain"), "status"), "ok");
        not_available(&table, exact("spoilt"), why);
    }
}

#[test]
fn a_photo_that_one_decoder_refuses_is_left_to_none() {
    let rig = FakeRig { decoders: vec![("plain", Some(1.0)), ("spoilt", Some(1.0))], ..FakeRig::new() };
    let bench = Bench::new(rig, Fault::DecoderRefusesOddPhotos);
    let table = bench::decoders(&bench.lab(), &bench.sets(), &EFFORT).unwrap();
    let of = |decoder| row(&table, &[("decoder", decoder), ("decode_scale", "exact")]);
    assert_eq!((text(&table, of("plain"), "status"), text(&table, of("spoilt"), "status")), ("ok".into(), "ok".into()));
    // Photos of 40 x 30 are refused, so those of 24 x 32 are left.
    let per_image = |row| table.number(row, "megapixels_per_second").unwrap() * 1e6 / rate(&table, row);
    assert!((per_image(of("plain")) - 24.0 * 32.0).abs() < 1.0, "{}", print(&table));
}

#[test]
fn resizers_are_compared_with_both_recipes() {
    let costs = Costs { resize: 0.5, ..Costs::default() };
    let resizers = vec![("plain", Some(1.0)), ("slow", Some(4.0)), ("spoilt", Some(1.0)), ("broken", None)];
    let bench = Bench::new(FakeRig { costs, resizers, ..large() }, Fault::ResizerLeavesASampleOut);
    let table = bench::resizers(&bench.lab(), &bench.sets(), &EFFORT).unwrap();
    check_cells(&table, &[]);
    assert_eq!(table.len(), 4 * 2 * 2);
    for spoilt in rows(&table, &[("resizer", "spoilt")]) {
        not_available(&table, spoilt, "not written");
    }
    let plain = rows(&table, &[("resizer", "plain")]);
    let slow = rows(&table, &[("resizer", "slow")]);
    for (plain, slow) in plain.into_iter().zip(slow) {
        assert!(rate(&table, plain) <= 2000.0 && rate(&table, slow) <= 500.0, "{}", print(&table));
        assert_eq!(text(&table, slow, "pixels"), "exact");
    }
}

#[test]
fn sinks_count_what_is_on_disk() {
    let bench = Bench::new(FakeRig::new(), Fault::None);
    let vectors = SinkVectors { rows: 20_000, dim: 24 };
    let table = bench::sinks(&bench.lab(), &vectors, &EFFORT).unwrap();
    check_cells(&table, &["variant"]);
    let file = row(&table, &[("sink", "file")]);
    assert_eq!(table.number(file, "bytes"), Some(20_000.0 * 24.0 * 4.0));
    assert_eq!(table.number(file, "bytes_per_row"), Some(96.0));
    assert_eq!(std::fs::read_dir(bench.folder.path()).unwrap().count(), 0, "nothing stays behind");
    let nothing = bench::sinks(&bench.lab(), &SinkVectors { rows: 0, dim: 4 }, &EFFORT).unwrap_err();
    assert!(nothing.to_string().contains("nothing to write"), "{nothing}");
}

#[test]
fn sinks_that_lose_rows_or_bytes_have_no_figures() {
    for (fault, why) in [(Fault::SinkLosesARow, "999 rows"), (Fault::SinkWritesHalf, "bytes on disk")] {
        let bench = Bench::new(FakeRig::new(), fault);
        let table = bench::sinks(&bench.lab(), &SinkVectors { rows: 1000, dim: 8 }, &EFFORT).unwrap();
        not_available(&table, row(&table, &[("sink", "file")]), why);
    }
}

#[test]
fn forwards_are_compared_by_encoder_and_precision() {
    let costs = Costs { forward: 1.0, copy_in: 0.25, ..Costs::default() };
    let encoders = vec![("plain", Some(1.0)), ("slow", Some(4.0)), ("broken", None)];
    let bench = Bench::new(FakeRig { costs, encoders, ..FakeRig::new() }, Fault::None);
    let sets = bench.sets();
    let table = bench::forward(&bench.lab(), &sets.usable[0], &[4, 20], &EFFORT).unwrap();
    check_cells(&table, &[]);
    assert_eq!(table.len(), 3 * DType::ALL.len() * 2);
    for half in rows(&table, &[("encoder", "plain"), ("dtype", "f16")]) {
        not_available(&table, half, "precision f16");
    }
    for batch in ["4", "20"] {
        let of = |encoder, dtype| row(&table, &[("encoder", encoder), ("dtype", dtype), ("batch", batch)]);
        let (plain, slow, half) = (of("plain", "f32"), of("slow", "f32"), of("plain", "bf16"));
        assert!(rate(&table, slow) <= 1e3 / 4.25 && rate(&table, half) <= 1e3 / 0.75, "{}", print(&table));
        assert_eq!(table.number(half, "cosine_to_reference"), Some(1.0));
        let images: f64 = batch.parse().unwrap();
        assert!(table.number(plain, "copy_in_ms").unwrap() >= images * 0.25);
        assert!(table.number(plain, "forward_ms").unwrap() >= images);
        assert!(table.number(plain, "p50_ms").unwrap() >= images * 1.25);
        assert!(table.number(plain, "forward_images_per_second").unwrap() > rate(&table, plain));
    }
}

#[test]
fn wrong_encoders_have_no_figures() {
    for (fault, why) in [(Fault::EncoderGivesNan, "not finite"), (Fault::EncoderGivesNoise, "cosine")] {
        let rig = FakeRig { encoders: vec![("plain", Some(1.0)), ("spoilt", Some(1.0))], ..FakeRig::new() };
        let bench = Bench::new(rig, fault);
        let table = bench::forward(&bench.lab(), &bench.sets().usable[0], &[8], &EFFORT).unwrap();
        assert_eq!(text(&table, row(&table, &[("encoder", "plain"), ("dtype", "f32")]), "status"), "ok");
        let spoilt = row(&table, &[("encoder", "spoilt"), ("dtype", "f32")]);
        not_available(&table, spoilt, why);
        not_available(&table, spoilt, "the work is not right");
    }
}

/// Checks that exactly one row is marked: the first within 5 % of the best.
fn check_mark(table: &Table, column: &str) {
    let rates: Vec<f64> = (0..table.len()).map(|row| rate(table, row)).collect();
    let best = rates.iter().copied().fold(0.0, f64::max);
    let first = rates.iter().position(|&rate| rate >= 0.95 * best).unwrap();
    let marked = if first + 1 < table.len() || table.len() == 1 { vec![first] } else { Vec::new() };
    assert_eq!(rows(table, &[(column, "yes")]), marked, "{}", print(table));
}

#[test]
fn a_batch_sweep_marks_its_knee_and_tells_memory() {
    let costs = Costs { forward: 0.25, forward_call: 8.0, ..Costs::default() };
    let bench = Bench::new(FakeRig { costs, ..FakeRig::new() }, Fault::None);
    let effort = Effort { images: Some(64), ..EFFORT };
    let table = bench::batch_sweep(&bench.lab(), &bench.sets().usable[0], &[64, 1, 8], &effort).unwrap();
    check_cells(&table, &["knee"]);
    assert_eq!((0..3).map(|row| text(&table, row, "batch")).collect::<Vec<_>>(), ["1", "8", "64"]);
    check_mark(&table, "knee");
    assert_eq!(text(&table, 0, "memory_of"), "process of its own");
    let memory: Vec<f64> = (0..3).filter_map(|row| table.number(row, "peak_memory_mb")).collect();
    assert_eq!(memory, [1.0, 8.0, 64.0], "each batch has its own");
    assert!(table.number(2, "batch_p50_ms").unwrap() >= 24.0);
}

#[test]
fn a_worker_sweep_runs_the_whole_job_with_each_number_of_workers_and_marks_its_plateau() {
    let bench = Bench::new(FakeRig::with_costs(Costs { decode: 1.0, ..Costs::default() }), Fault::None);
    let mut sets = bench.sets();
    sets.missing.clear();
    let effort = Effort { images: Some(48), ..EFFORT };
    let table = bench::worker_sweep(&bench.lab(), &sets, &[4, 0, 1], &effort).unwrap();
    check_cells(&table, &["plateau"]);
    check_mark(&table, "plateau");
    assert_eq!((0..3).map(|row| text(&table, row, "workers")).collect::<Vec<_>>(), ["0", "1", "4"]);
    // One thread takes at least the time that it sleeps.
    assert!(rate(&table, 0) <= 1000.0 && rate(&table, 1) <= 1000.0, "{}", print(&table));
    for row in 0..3 {
        let bound = if table.number(row, "encoder_busy").unwrap() >= 0.95 { "yes" } else { "no" };
        assert_eq!(text(&table, row, "encoder_bound"), bound, "{}", print(&table));
    }
    let samples = bench.ledger.phases().into_iter().filter(|(what, _)| what.ends_with("of 3"));
    let samples: Vec<_> = samples.map(|(_, work)| work).collect();
    assert_eq!(samples.len(), 9, "three of each");
    for stage in ["read", "decode", "resize", "forward", "write"] {
        assert!(samples.iter().all(|work| work.of(stage) == 48), "{stage}: {samples:?}");
    }
}

#[test]
fn sweeps_reach_the_cores_and_the_jobs_batch() {
    let base = Setting { batch: 48, ..FakeRig::new().base };
    let bench = Bench::new(FakeRig { cores: 6, base, ..FakeRig::new() }, Fault::None);
    let workers = BTreeSet::from_iter(bench::workers(&bench.lab()));
    assert_eq!(workers, BTreeSet::from([0, 1, 2, 4, 6, 8, 12]));
    for quick in [true, false] {
        let batches = bench::batches(&bench.lab(), quick);
        assert!(batches.contains(&1) && batches.contains(&48), "{batches:?}");
    }
}

#[test]
fn the_headline_measures_every_step() {
    let costs = Costs { decode: 0.6, resize: 0.2, forward: 0.4, ..Costs::default() };
    let rig = FakeRig {
        costs,
        decoders: vec![("plain", Some(1.0)), ("slow", Some(3.0))],
        resizers: vec![("plain", Some(1.0)), ("slow", Some(3.0))],
        fast: 0.25,
        ..large()
    };
    let bench = Bench::new(rig, Fault::None);
    let sets = bench.sets();
    let table = bench::headline(&bench.lab(), &sets, &Effort { images: Some(48), samples: 3, ..EFFORT }).unwrap();
    for set in &sets.usable {
        let of = |change| row(&table, &[("photos", &set.name), ("change", change)]);
        let steps = [
            "baseline",
            "decoder",
            "resizer",
            "smaller scale",
            "workers",
            "batch",
            "encoder",
            "all combined",
            "preprocessing alone",
            "CPU only",
        ];
        for (number, change) in steps.into_iter().enumerate() {
            assert_eq!(text(&table, of(change), "step"), number.to_string());
        }
        // Small photos are JPEG files, which this rig really decodes. The test does not judge that time.
        if set.name != sets.usable[0].name {
            continue;
        }
        // The machine decides which of two is faster: a step takes the other one, or none that is not clearly faster.
        let value = |change, column| text(&table, of(change), column);
        for column in ["decoder", "resizer"] {
            if value(column, "status") != "ok" {
                not_available(&table, of(column), "is faster than");
                continue;
            }
            let mut both = [value("baseline", column), value(column, column)];
            both.sort();
            assert_eq!(both, ["plain", "slow"], "{column}:\n{}", print(&table));
        }
        assert!(["", &value("baseline", "resizer")].contains(&value("decoder", "resizer").as_str()));
        for (change, column, expected) in [
            ("baseline", "workers", "1"),
            ("baseline", "batch", "32"),
            ("baseline", "decode_scale", "exact"),
            ("smaller scale", "decode_scale", "fast"),
            ("encoder", "dtype", "bf16"),
        ] {
            let is_available = value(change, "status") == "ok";
            assert!(!is_available || value(change, column) == expected, "{change}:\n{}", print(&table));
        }
        let baseline = rate(&table, of("baseline"));
        let combined = rate(&table, of("all combined"));
        let times = table.number(of("all combined"), "times_baseline").unwrap();
        assert!((times - combined / baseline).abs() < 1e-9);
        assert_eq!(table.number(of("baseline"), "times_baseline"), Some(1.0));
        if let Some(step) = table.number(of("decoder"), "times_previous") {
            assert!((step - rate(&table, of("decoder")) / baseline).abs() < 1e-9);
        }
    }
    check_cells(&table, &["beside", "times_previous", "effect", "drift", "device_busy", "device_memory_mb"]);
}

#[test]
fn a_headline_without_choices_says_so() {
    let costs = Costs { forward: 3.0, ..Costs::default() };
    let bench = Bench::new(FakeRig { costs, ..FakeRig::new() }, Fault::None);
    let table =
        bench::headline(&bench.lab(), &bench.sets(), &Effort { images: Some(32), samples: 1, ..EFFORT }).unwrap();
    for (change, why) in [
        ("decoder", "plain is the only one"),
        ("resizer", "plain is the only one"),
        ("smaller scale", "it does not decode at scale fast"),
    ] {
        not_available(&table, row(&table, &[("change", change)]), why);
    }
    let phases = bench.ledger.phases();
    assert!(phases.iter().all(|(what, _)| !what.contains('{')), "progress is in words: {phases:?}");
    let runs = phases.into_iter().filter(|(what, _)| what.contains("workers") && what.contains(", sample "));
    let forwards: Vec<u64> = runs.map(|(_, work)| work.of("forward")).collect();
    let without = forwards.iter().filter(|&&images| images == 0).count();
    assert!(without == 1 && forwards.len() > 1, "only preprocessing alone has no forward: {forwards:?}");
    not_available(&table, row(&table, &[("photos", "small")]), "about 256 px already");
}

#[test]
fn a_timeline_shows_what_each_thread_did_before_and_after() {
    let costs = Costs { read: 0.5, decode: 3.0, resize: 1.0, forward: 1.0, write: 0.5, ..Costs::default() };
    let bench = Bench::new(FakeRig::with_costs(costs), Fault::None);
    let before = Setting { workers: 1, batch: 4, ..bench.rig.base() };
    let after = Setting { workers: 3, ..before.clone() };
    let photos = &bench.sets().usable[0];
    let table = bench::timeline(&bench.lab(), photos, (&before, 24), (&after, 72)).unwrap();
    let mut lanes: BTreeMap<(String, String), Vec<usize>> = BTreeMap::new();
    for row in 0..table.len() {
        lanes.entry((text(&table, row, "scenario"), text(&table, row, "lane"))).or_default().push(row);
    }
    let number = |row: usize, column: &str| table.number(row, column).unwrap();
    for (lane, rows) in &lanes {
        assert!(
            rows.iter().all(|&row| 0.0 <= number(row, "start_ms") && number(row, "start_ms") < number(row, "end_ms"))
        );
        let in_turn = |pair: &[usize]| number(pair[0], "end_ms") <= number(pair[1], "start_ms") + 1e-6;
        assert!(rows.windows(2).all(in_turn), "{lane:?} overlaps");
    }
    for (scenario, workers) in [("before", 1), ("after: workers 1 to 3", 3)] {
        let stages = |lane: &str| -> BTreeSet<String> {
            lanes[&(scenario.to_owned(), lane.to_owned())].iter().map(|&row| text(&table, row, "stage")).collect()
        };
        assert_eq!(stages("encoder"), BTreeSet::from(["forward".to_owned()]));
        assert_eq!(stages("writer"), BTreeSet::from(["write".to_owned()]));
        // On a busy machine, a worker may come too late to get any photo.
        let names: Vec<_> = (1..=workers).map(|worker| format!("worker {worker}")).collect();
        let at_work = names.iter().filter(|name| lanes.contains_key(&(scenario.to_owned(), name.to_string())));
        assert!(at_work.clone().count() > 0 && at_work.into_iter().all(|name| stages(name).contains("decode")));
        let batches: Vec<f64> =
            lanes[&(scenario.to_owned(), "encoder".to_owned())].iter().map(|&row| number(row, "batch")).collect();
        assert!(batches.windows(2).all(|pair| pair[1] == pair[0] + 1.0), "{batches:?}");
    }
}

#[test]
fn an_extrapolation_is_of_runs_of_two_lengths_and_checked_by_a_longer_one() {
    let costs = Costs { forward: 1.0, ..Costs::default() };
    let bench = Bench::new(FakeRig::with_costs(costs), Fault::None);
    let mut sets = bench.sets();
    sets.missing.clear();
    let effort = Effort { images: Some(160), ..EFFORT };
    let table = bench::extrapolation(&bench.lab(), &sets, 1_000_000, &effort).unwrap();
    check_cells(&table, &["high"]);
    let value = |column| table.number(0, column).unwrap();
    // Each sample starts twice, with 160 images and with 40, and the long run once.
    let samples = bench.ledger.phases().into_iter().filter(|(what, _)| what.contains("sample"));
    assert!(samples.into_iter().all(|(_, work)| work.of("forward") == 200));
    let high = table.number(0, "high").unwrap_or(f64::INFINITY);
    assert!(value("low") < value("images_per_second") && value("images_per_second") < high);
    assert!(value("long_images") >= 10.0 * value("images"));
    let hours = 1e6 / value("images_per_second") / 3600.0;
    assert!((value("hours") - hours).abs() < 1e-9 && value("hours_low") < hours && hours <= value("hours_high"));
    let inside = (value("low")..=high).contains(&value("long_images_per_second"));
    assert_eq!(text(&table, 0, "within"), if inside { "yes" } else { "no" });
    let error = bench::extrapolation(&bench.lab(), &sets, 10, &Effort { images: Some(1), ..EFFORT }).unwrap_err();
    assert!(error.to_string().contains("at least 2 images"), "{error}");
}

#[test]
fn all_of_them_run_in_order_and_can_be_stopped() {
    let costs = Costs { forward: 0.1, ..Costs::default() };
    let rig = FakeRig { costs, ..FakeRig::new() };
    let bench = Bench::new(rig.clone(), Fault::None);
    let mut files = Vec::new();
    let folder = tempfile::tempdir().unwrap();
    let vectors = SinkVectors { rows: 100, dim: 8 };
    let effort = Effort { seconds: 0.02, ..Effort::quick() };
    bench::all(&bench.lab(), &bench.sets(), &vectors, &effort, &mut |table| {
        files.push(table.schema().file);
        table.write_csv(folder.path(), &bench.rig.context()).map(drop)
    })
    .unwrap();
    let order = [
        "decoders",
        "resizers",
        "sinks",
        "forward",
        "batch_sweep",
        "job_batch_sweep",
        "worker_sweep",
        "headline",
        "extrapolation",
    ];
    assert_eq!(files, order.map(|name| format!("{name}.csv")));
    assert!(files.iter().all(|file| folder.path().join(file).is_file()));

    for until in ["decoders", "resizers", "sinks", "batch 8", "worker sweep", "headline", "extrapolation"] {
        let bench = Bench::until(rig.clone(), Fault::None, until);
        let mut done = 0;
        let stopped = bench::all(&bench.lab(), &bench.sets(), &vectors, &effort, &mut |_| {
            done += 1;
            Ok(())
        });
        assert!(matches!(stopped, Err(LabError::Interrupted)), "{until}: {stopped:?}");
        assert!(done < 9, "{until}");
        let (last, _) = bench.ledger.phases().pop().unwrap();
        assert!(last.contains(until), "nothing is begun after {until}: {last}");
    }
}

#[test]
fn no_photos_is_an_answer() {
    for (photos, why) in [(vec![], "no photos"), (vec![corrupt(), corrupt()], "none of the 2 photos can be used")] {
        let bench = Bench::new(FakeRig { photos, ..FakeRig::new() }, Fault::None);
        let error = Sets::load(&bench.lab(), 10).map(drop).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let one = FakeRig { photos: vec![raw(1, Size::new(30, 30)), corrupt()], ..FakeRig::new() };
    let bench = Bench::new(one, Fault::None);
    let table = bench::decoders(&bench.lab(), &bench.sets(), &EFFORT).unwrap();
    assert_eq!(text(&table, 0, "status"), "ok", "one photo is enough");
}

impl Rig for Spoilt {
    fn base(&self) -> Setting {
        self.0.base()
    }

    fn context(&self) -> Context {
        self.0.context()
    }

    fn photos(&self) -> Result<Box<dyn Source>, SourceError> {
        self.0.photos()
    }

    fn list(&self, inputs: Vec<Input>) -> Result<Box<dyn Source>, SourceError> {
        self.0.list(inputs)
    }

    fn store_opener(&self, scheme: &str) -> StoreOpener {
        self.0.store_opener(scheme)
    }

    fn decoders(&self) -> Vec<Candidate> {
        self.0.decoders()
    }

    fn batched_decoders(&self) -> Vec<Candidate> {
        self.0.batched_decoders()
    }

    fn resizers(&self) -> Vec<Candidate> {
        self.0.resizers()
    }

    fn encoders(&self) -> Vec<Candidate> {
        self.0.encoders()
    }

    fn sinks(&self) -> Vec<Candidate> {
        self.0.sinks()
    }

    fn open_decoder(&self, name: &str) -> Result<Box<dyn Decoder>, DecodeError> {
        let inner = self.0.open_decoder(name)?;
        Ok(if name == "spoilt" { Box::new(SpoiltDecoder { inner, fault: self.1 }) } else { inner })
    }

    fn decoder_opener(&self, setting: &Setting) -> DecoderOpener {
        self.0.decoder_opener(setting)
    }

    fn open_resizer(&self, name: &str) -> Result<Box<dyn Resizer>, ResizeError> {
        let inner = self.0.open_resizer(name)?;
        Ok(if name == "spoilt" { Box::new(SpoiltResizer(inner)) } else { inner })
    }

    fn resizer_opener(&self, setting: &Setting) -> ResizerOpener {
        self.0.resizer_opener(setting)
    }

    fn open_encoder(&self, setting: &Setting) -> Result<Box<dyn Encoder>, EncodeError> {
        let inner = self.0.open_encoder(setting)?;
        Ok(if setting.encoder == "spoilt" { Box::new(SpoiltEncoder { inner, fault: self.1 }) } else { inner })
    }

    fn setting_on_cpu(&self, setting: &Setting) -> Setting {
        self.0.setting_on_cpu(setting)
    }

    fn open_on_cpu(&self, setting: &Setting) -> Result<Box<dyn Encoder>, EncodeError> {
        self.0.open_on_cpu(setting)
    }

    fn memory_of_forward(&self, setting: &Setting) -> Result<Memory, String> {
        self.0.memory_of_forward(setting)
    }

    fn open_sink(&self, name: &str, options: &SinkOptions) -> Result<Box<dyn VectorSink>, SinkError> {
        Ok(Box::new(SpoiltSink { inner: self.0.open_sink(name, options)?, fault: self.1 }))
    }

    fn preprocessors(&self, setting: &Setting) -> PreprocessorOpener {
        CpuPreprocessor::opener(self.decoder_opener(setting), self.resizer_opener(setting), self.preprocess(setting))
    }

    fn preprocess(&self, setting: &Setting) -> PreprocessOptions {
        self.0.preprocess(setting)
    }

    fn config(&self, setting: &Setting) -> Config {
        self.0.config(setting)
    }
}

/// Returns a rig whose photos are JPEGs, because a worker validates its downloads.
fn jpegs(rig: FakeRig) -> FakeRig {
    let jpeg = |n: u8| {
        let side = 20 + u32::from(n % 3);
        let mut bytes = Vec::new();
        let pixels: Vec<u8> = (0..side * side * 3).map(|at| (at as u8).wrapping_mul(n + 1)).collect();
        let mut encoder = image::codecs::jpeg::JpegEncoder::new(&mut bytes);
        encoder.encode(&pixels, side, side, image::ExtendedColorType::Rgb8).unwrap();
        bytes
    };
    FakeRig { photos: (0..6).map(jpeg).collect(), ..rig }
}

/// Returns photos after 12 ms, callbacks after 4 ms, and a forward of 3 ms.
fn service() -> Service {
    let ms = |ms| (Duration::from_millis(ms), Duration::from_millis(ms));
    let forward_sleeps = [Duration::from_millis(3), Duration::ZERO];
    Service { photos: ms(12), callbacks: ms(4), forward_sleeps, ..Service::quick() }
}

const EMPTY_OF_THE_STUB: [&str; 9] = [
    "dtype",
    "threads",
    "forward_sleep_ms",
    "forward_sleep_per_image_ms",
    "cpu_busy",
    "peak_memory_mb",
    "mean_memory_mb",
    "device_busy",
    "device_memory_mb",
];

#[test]
fn a_worker_is_measured_with_more_and_more_stages_side_by_side() {
    let costs = Costs { decode: 3.0, forward_call: 3.0, ..Costs::default() };
    let bench = Bench::new(jpegs(FakeRig::with_costs(costs)), Fault::None);
    let effort = Effort { images: Some(24), samples: 1, ..EFFORT };
    let table = bench::worker(&bench.lab(), &bench.sets().usable[0], &service(), &effort).unwrap();
    check_cells(&table, &EMPTY_OF_THE_STUB);
    assert_eq!(table.len(), 8);
    for encoder in ["plain", "stub"] {
        let of = |number: &str| row(&table, &[("encoder", encoder), ("configuration", number)]);
        let rows = ["1", "2", "3", "4"].map(of);
        let rates = rows.map(|row| table.number(row, "requests_per_second").unwrap());
        // In turn, at least 22 ms per request; then, at best, 6 ms, then 3 ms.
        let most = [1e3 / 22.0, 1e3 / 6.0, 1e3 / 3.0, f64::INFINITY];
        assert!(rates.iter().zip(most).all(|(&rate, most)| rate <= 1.01 * most), "{}", print(&table));
        let times = rows.map(|row| table.number(row, "times_first").unwrap());
        assert!(times.iter().zip(rates).all(|(times, rate)| (times - rate / rates[0]).abs() < 0.01 * times));
        for row in rows {
            assert_eq!(text(&table, row, "vectors"), "exact");
            // Several may be acknowledged at once.
            let requests = table.number(row, "requests").unwrap();
            assert!((24.0..=24.0 + 32.0).contains(&requests), "{}", print(&table));
            let rate = requests / table.number(row, "sample_seconds").unwrap();
            assert!((rate / table.number(row, "requests_per_second").unwrap() - 1.0).abs() < 1e-9);
            assert!((table.number(row, "slowest_photo_ms").unwrap() - 12.0).abs() < 1e-6);
            let busy = table.number(row, "encoder_busy").unwrap();
            assert!(0.0 < busy && busy < 1.05, "{}", print(&table));
            assert!(table.number(row, "p50_ms").unwrap() >= 22.0 - 0.5, "{}", print(&table));
            assert!(table.number(row, "p50_ms") <= table.number(row, "p99_ms"));
        }
        let images = rows.map(|row| table.number(row, "images_per_batch").unwrap());
        assert!(images[..3] == [1.0; 3] && images[3] >= 1.0 && images[3] <= 8.0, "{images:?}");
    }
    assert_eq!(text(&table, 7, "change"), "+ batches of up to 8");
}

/// The stub's cost decides: every other stage can do at least half as much again.
#[test]
fn batches_gain_what_the_encoders_cost_says() {
    const BATCH: usize = 4;
    let [batch, image] = [5.0, 0.9];
    let computed = (batch + image) * BATCH as f64 / (batch + image * BATCH as f64);
    let ms = |ms| (Duration::from_millis(ms), Duration::from_millis(ms));
    let service = Service {
        photos: ms(8),
        callbacks: ms(2),
        forward_sleeps: [batch, image].map(|ms| Duration::from_secs_f64(ms / 1e3)),
        downloaders: 8,
        callers: 4,
        queue_size: 48,
        batch: BATCH,
    };
    let effort = Effort { images: None, seconds: 1.5, samples: 1, ..EFFORT };
    let mut is_close = false;
    let mut seen = String::new();
    // A disturbed machine is measured again, with the same bound.
    for _ in 0..5 {
        let bench = Bench::new(jpegs(FakeRig { encoders: vec![("plain", None)], ..FakeRig::new() }), Fault::None);
        let table = bench::worker(&bench.lab(), &bench.sets().usable[0], &service, &effort).unwrap();
        let last = row(&table, &[("encoder", "stub"), ("configuration", "4")]);
        let measured = table.number(last, "times_previous").unwrap();
        seen += &print(&table);
        is_close = (measured / computed - 1.0).abs() <= 0.1;
        if is_close {
            break;
        }
    }
    assert!(is_close, "batches gain {computed:.2}x by computation, not so in:\n{seen}");
}

#[test]
fn a_worker_whose_vectors_depend_on_the_batch_has_no_figures() {
    let base = Setting { encoder: "spoilt".to_owned(), ..FakeRig::new().base };
    let rig = FakeRig { encoders: vec![("spoilt", Some(1.0))], base, ..FakeRig::new() };
    let bench = Bench::new(jpegs(rig), Fault::EncoderGivesNoise);
    let table =
        bench::worker(&bench.lab(), &bench.sets().usable[0], &service(), &Effort { samples: 1, ..EFFORT }).unwrap();
    let of = |encoder, number| row(&table, &[("encoder", encoder), ("configuration", number)]);
    // Alone in its batch, an image always has the same noise.
    ["1", "2", "3"].iter().for_each(|number| assert_eq!(text(&table, of("spoilt", number), "status"), "ok"));
    not_available(&table, of("spoilt", "4"), "other vectors than in configuration 1");
    assert_eq!(text(&table, of("stub", "4"), "status"), "ok");
}

#[test]
fn a_worker_without_its_encoder_is_measured_with_the_stub() {
    let rig = FakeRig { encoders: vec![("plain", None)], ..FakeRig::new() };
    let bench = Bench::new(jpegs(rig), Fault::None);
    let table =
        bench::worker(&bench.lab(), &bench.sets().usable[0], &service(), &Effort { samples: 1, ..EFFORT }).unwrap();
    assert_eq!((rows(&table, &[("status", "ok")]).len(), rows(&table, &[("encoder", "plain")]).len()), (4, 4));
    rows(&table, &[("encoder", "plain")]).into_iter().for_each(|row| not_available(&table, row, "no encoder"));

    let backwards = Service { photos: (Duration::from_millis(9), Duration::from_millis(3)), ..service() };
    let refused = bench::worker(&bench.lab(), &bench.sets().usable[0], &backwards, &EFFORT).unwrap_err();
    assert!(refused.to_string().contains("no latency has a median of 9 ms and a p99 of 3 ms"), "{refused}");
}

struct SpoiltDecoder {
    inner: Box<dyn Decoder>,
    fault: Fault,
}

impl Decoder for SpoiltDecoder {
    fn decode(&mut self, encoded: &[u8], hint: DecodeHint, out: &mut PixelBuf) -> Result<Decoded, DecodeError> {
        let decoded = self.inner.decode(encoded, hint, out)?;
        match self.fault {
            Fault::DecoderCropsItsImages => drop(out.reset(Size::square(8))?),
            Fault::DecoderInvertsItsPixels => out.as_mut_slice().iter_mut().for_each(|sample| *sample = !*sample),
            Fault::DecoderRefusesOddPhotos if decoded.native.width == 40 => {
                return Err(DecodeError::NotAnImage { what: None });
            }
            _ => {}
        }
        Ok(decoded)
    }

    fn capability(&self) -> foveate_decode::Capability {
        self.inner.capability()
    }
}

/// Leaves the last sample unwritten.
struct SpoiltResizer(Box<dyn Resizer>);

impl Resizer for SpoiltResizer {
    fn resize(&mut self, src: ImageView<'_>, plan: &ResizePlan, mut dst: ImageViewMut<'_>) -> Result<(), ResizeError> {
        let size = dst.size();
        let last = dst.as_mut_slice().len() - 1;
        let mut out = dst.as_mut_slice().to_vec();
        self.0.resize(src, plan, ImageViewMut::new(&mut out, size).unwrap())?;
        dst.as_mut_slice()[..last].copy_from_slice(&out[..last]);
        Ok(())
    }

    fn capability(&self) -> foveate_resize::Capability {
        self.0.capability()
    }
}

struct SpoiltEncoder {
    inner: Box<dyn Encoder>,
    fault: Fault,
}

impl Encoder for SpoiltEncoder {
    fn spec(&self) -> &EncoderSpec {
        self.inner.spec()
    }

    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        let times = self.inner.encode(batch, out)?;
        match self.fault {
            Fault::EncoderGivesNan => out.as_mut_slice()[3] = f32::NAN,
            _ => out.as_mut_slice().iter_mut().enumerate().for_each(|(at, value)| *value = (at as f32).sin()),
        }
        Ok(times)
    }

    fn resident(&mut self) -> Option<&mut dyn Resident> {
        self.inner.resident()
    }

    fn overlap(&mut self) -> Option<&mut dyn Overlap> {
        None
    }
}

struct SpoiltSink {
    inner: Box<dyn VectorSink>,
    fault: Fault,
}

impl VectorSink for SpoiltSink {
    fn begin(&mut self, manifest: &RunManifest, existing: Existing) -> Result<Watermark, SinkError> {
        self.inner.begin(manifest, existing)
    }

    fn failures(&mut self) -> Result<u64, SinkError> {
        self.inner.failures()
    }

    fn append(&mut self, rows: &Rows<'_>) -> Result<(), SinkError> {
        let lost = usize::from(self.fault == Fault::SinkLosesARow && rows.index.contains(&500));
        let kept = rows.index.len() - lost;
        let dim = rows.vectors.len() / rows.index.len();
        self.inner.append(&Rows {
            index: &rows.index[..kept],
            id: &rows.id[..kept],
            vectors: &rows.vectors[..kept * dim],
            width: &rows.width[..kept],
            height: &rows.height[..kept],
            xxh3: &rows.xxh3[..kept],
            columns: &[],
        })
    }

    fn fail(&mut self, failures: &[Failure]) -> Result<(), SinkError> {
        self.inner.fail(failures)
    }

    fn commit(&mut self, watermark: Watermark) -> Result<(), SinkError> {
        self.inner.commit(watermark)
    }

    fn finish(&mut self) -> Result<Published, SinkError> {
        let published = self.inner.finish()?;
        if self.fault == Fault::SinkWritesHalf {
            halve(&published.files[0]);
        }
        Ok(published)
    }
}

#[test]
fn a_batch_is_copied_as_bytes_and_as_floats_and_without_a_device_it_says_so() {
    let bench = Bench::new(large(), Fault::None);
    let table = bench::copies(&bench.lab(), &EFFORT).unwrap();
    let of = |from: &str, dtype: &str| row(&table, &[("from", from), ("dtype", dtype)]);
    for (from, dtype) in [("convert", "f32"), ("host", "u8"), ("host", "f32")] {
        let row = of(from, dtype);
        let bytes = table.number(row, "bytes").unwrap();
        let ms = table.number(row, "host_ms").unwrap();
        assert_eq!(text(&table, row, "status"), "ok");
        assert_eq!(table.number(row, "mb_per_second"), Some(bytes / 1e3 / ms), "{from} {dtype}");
    }
    assert_eq!(
        table.number(of("host", "f32"), "bytes"),
        table.number(of("host", "u8"), "bytes").map(|bytes| 4.0 * bytes)
    );
    for (from, dtype) in [("pageable", "u8"), ("pageable", "f32"), ("pinned", "u8"), ("pinned", "f32")] {
        not_available(&table, of(from, dtype), "the forward reads the host's memory");
    }
}

/// A file of 10,000 bytes that records which pieces were read.
struct Pieces(Mutex<BTreeSet<(u64, usize)>>);

impl Blob for Pieces {
    fn name(&self) -> &str {
        "pieces"
    }

    fn len(&self) -> Option<u64> {
        Some(10_000)
    }

    fn modified(&self) -> Option<SystemTime> {
        None
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), FetchError> {
        self.0.lock().unwrap().insert((offset, out.len()));
        Ok(())
    }

    fn stream(&self, _: u64) -> Result<Box<dyn Read + Send>, FetchError> {
        Err(FetchError::Refused("no stream".to_owned()))
    }
}

#[test]
fn a_file_is_read_in_pieces_up_to_its_end() {
    let bench = Bench::new(large(), Fault::None);
    let pieces = Arc::new(Pieces(Mutex::default()));
    let open = || Ok::<Arc<dyn Blob>, FetchError>(pieces.clone());
    let table = bench::read(&bench.lab(), &open, &[4_000, 50_000], &[1, 3], &EFFORT).unwrap();
    assert_eq!(table.len(), 4);
    assert!((0..4).all(|row| table.number(row, "mb_per_second").is_some_and(|rate| rate > 0.0)), "{}", print(&table));
    let read: Vec<(u64, usize)> = pieces.0.lock().unwrap().iter().copied().collect();
    assert_eq!(read, [(0, 4_000), (0, 10_000), (4_000, 4_000), (8_000, 2_000)]);
    let stream = || Ok::<Arc<dyn Blob>, FetchError>(Arc::new(MemoryBlob::stream_of("-", vec![1])));
    let refused = bench::read(&bench.lab(), &stream, &[1], &[1], &EFFORT).unwrap_err();
    assert!(refused.to_string().contains("a stream"), "{refused}");
}

fn halve(file: &Path) {
    let bytes = std::fs::metadata(file).unwrap().len();
    std::fs::File::options().write(true).open(file).unwrap().set_len(bytes / 2).unwrap();
}
