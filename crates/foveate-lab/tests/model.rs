//! The model against the real engine, with stages whose costs are known because they are slept.

mod common;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::{Bench, Costs, FakeRig};
use foveate_lab::{
    Calibration, Cell, Context, Output, PhotoSet, Setting, Table, checklist, schema, stats, timeline, tune,
};

/// Decoding is the slowest stage of one worker and of two, the forward that of four.
fn slow_decoder() -> Bench {
    let costs = Costs { read: 2.0, decode: 16.0, resize: 4.0, forward: 7.0, forward_call: 20.0, ..Costs::default() };
    Bench::new(FakeRig::with_costs(costs))
}

/// One test at a time: they measure.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn near(got: f64, expected: f64, tolerance: f64) -> bool {
    (got / expected - 1.0).abs() <= tolerance
}

#[test]
fn calibration_finds_the_costs_that_stages_have() {
    let _alone = alone();
    let bench = slow_decoder();
    let lab = bench.lab();
    let photos = PhotoSet::load(lab.rig, 100).unwrap();
    let base = bench.rig.base.clone();
    let other = Setting { batch: 32, workers: 4, ..base.clone() };
    let calibration = Calibration::measure(&lab, &photos, &[base.clone(), other.clone()]).unwrap();
    let costs = calibration.costs(&base).unwrap();
    // A sleep lasts at least as long as it should, and somewhat longer.
    for (what, got, expected) in
        [("read", costs.read_ms, 2.0), ("decode", costs.decode_ms, 16.0), ("resize", costs.resize_ms, 4.0)]
    {
        assert!(got >= expected && got < 1.3 * expected + 4.0, "{what}: {costs:?}");
    }
    let step = calibration.step(&base).unwrap().unwrap().step;
    assert!(near(step.per_item, 7e-3, 0.1) && near(step.overhead, 20e-3, 0.5), "{step:?}");
    // Sleeping takes no core, whoever else sleeps.
    let measured = calibration.measured(&other).unwrap();
    assert!(measured.stages.iter().all(|stage| stage.cpu_seconds < 2e-3), "{measured:?}");

    let unknown = Setting { decoder: "another".to_owned(), ..base };
    assert!(calibration.predict(&unknown).unwrap_err().to_string().contains("another (exact) with plain (hf)"));
}

#[test]
fn predictions_hold_for_stages_that_share_no_cores() {
    let _alone = alone();
    let bench = slow_decoder();
    let lab = bench.lab();
    let photos = PhotoSet::load(lab.rig, 100).unwrap();
    let setting = |workers, batch| Setting { workers, batch, ..bench.rig.base.clone() };
    let settings = [setting(0, 8), setting(1, 8), setting(2, 16), setting(8, 8), setting(8, 32)];
    let calibration = Calibration::measure(&lab, &photos, &settings).unwrap();
    let encoder = lab.encoder(&setting(8, 32)).unwrap();
    let mut errors = Vec::new();
    for setting in &settings {
        let images = 96;
        let predicted = calibration.predict(setting).unwrap();
        let simulated = calibration.simulate(setting, images, 7).unwrap();
        let measured = lab.run(setting, &photos, images, &encoder, &Output::Discard).unwrap().rate;
        errors.push((predicted.over(images) / measured - 1.0, simulated / measured - 1.0));
        let limit = match setting.workers {
            0 => "one thread",
            1 | 2 => "workers",
            _ => "forward",
        };
        assert!(predicted.limit.starts_with(limit), "{setting:?}: {predicted:?}");
    }
    // A busy machine may spoil a run, not most of them.
    let of = |part: fn(&(f64, f64)) -> f64| errors.iter().map(|error| part(error).abs()).collect::<Vec<_>>();
    let median = |errors: Vec<f64>| stats::quantile(&errors, 0.5).unwrap();
    assert!(median(of(|error| error.0)) < 0.15 && median(of(|error| error.1)) < 0.15, "{errors:?}");
}

fn tuned(costs: Costs, base: impl Fn(Setting) -> Setting) -> foveate_lab::tune::Tuned {
    let rig = FakeRig::with_costs(costs);
    let bench = Bench::new(FakeRig { base: base(rig.base.clone()), ..rig });
    let lab = bench.lab();
    let photos = PhotoSet::load(lab.rig, 100).expect("photos that decode");
    tune::run(&lab, &photos, Duration::from_secs(12)).expect("runs that go through")
}

fn shown(tuned: &tune::Tuned) -> String {
    let mut table = Vec::new();
    tuned.table.print(&mut table).expect("memory takes it");
    format!("{}\n{}", String::from_utf8_lossy(&table), tuned.why)
}

#[test]
fn tuning_gives_a_slow_decoder_the_workers_that_it_needs() {
    let _alone = alone();
    let tuned = tuned(Costs { decode: 12.0, forward: 3.0, ..Costs::default() }, |base| Setting { workers: 1, ..base });
    assert!((3..=12).contains(&tuned.setting.workers), "{}", shown(&tuned));
    assert!(tuned.images_per_second > 2.0 * tuned.before, "{}", shown(&tuned));
    let chosen: Vec<usize> =
        (0..tuned.table.len()).filter(|&row| *tuned.table.get(row, "chosen") == Cell::Flag(true)).collect();
    assert_eq!(chosen.len(), 1);
    assert_eq!(tuned.table.number(chosen[0], "workers"), Some(tuned.setting.workers as f64));
    assert!(tuned.why.contains("workers 1 →"), "{}", shown(&tuned));
}

#[test]
fn tuning_takes_no_more_than_a_healthy_job_needs() {
    let _alone = alone();
    let costs = Costs { decode: 1.0, forward: 4.0, ..Costs::default() };
    let tuned = tuned(costs, |base| Setting { workers: 8, readers: 8, ..base });
    assert!(tuned.setting.workers <= 3 && tuned.setting.readers <= 4, "{}", shown(&tuned));
    assert!(tuned.images_per_second > 0.9 * tuned.before, "{}", shown(&tuned));
}

/// A row of a profile on one thread.
fn stage(table: &mut Table, name: &str, ms: f64, share: f64) {
    table.push([
        ("photos", "as given, 1000 x 1000 px, 300 kB".into()),
        ("mode", "serial".into()),
        ("stage", name.into()),
        ("ms_per_image", ms.into()),
        ("share_of_wall", share.into()),
    ]);
}

#[test]
fn the_checklist_answers_with_the_figures_of_the_tables() {
    let setting = FakeRig::new().base;
    let context = Context { device: "cuda:0".to_owned(), cores: 4, ..Context::default() };
    let mut profile = Table::new(&schema::PROFILE);
    for (name, ms, share) in [
        ("read", 0.1, 0.01),
        ("decode", 6.0, 0.60),
        ("resize", 8.0, 0.05),
        ("copy-in", 0.5, 0.12),
        ("forward", 2.0, 0.20),
        ("serialize", 0.1, 0.01),
        ("other", 0.1, 0.01),
    ] {
        stage(&mut profile, name, ms, share);
    }
    let mut decoders = Table::new(&schema::DECODERS);
    for (decoder, scale, rate) in [
        ("plain", "exact", Some(100.0)),
        ("plain", "fast", Some(180.0)),
        ("quick", "exact", Some(240.0)),
        ("broken", "exact", None),
    ] {
        decoders.push([
            ("decoder", decoder.into()),
            ("decode_scale", scale.into()),
            ("images_per_second", rate.into()),
        ]);
    }
    let mut sweep = Table::new(&schema::WORKER_SWEEP);
    for (workers, rate, busy, plateau) in [(2, 150.0, 0.4, false), (4, 290.0, 0.8, true), (8, 300.0, 0.82, false)] {
        sweep.push([
            ("workers", Cell::Count(workers)),
            ("images_per_second", rate.into()),
            ("encoder_busy", busy.into()),
            ("cpu_busy", 0.5.into()),
            ("plateau", plateau.into()),
        ]);
    }
    let table = checklist(&[&profile, &decoders, &sweep], &setting, &context);
    let row = |check: &str| (0..table.len()).find(|&row| table.get(row, "check").to_string() == check).unwrap();
    let text = |check: &str, column: &str| table.get(row(check), column).to_string();
    let value = |check: &str| table.number(row(check), "value").unwrap();
    for (check, figure, verdict, advice) in [
        ("encoder-idle", 0.4, "look", "decoding first"),
        ("decode-share", 0.6, "look", "a faster decoder"),
        ("decode-scale", 1.8, "look", "--decode-scale fast"),
        ("decoder", 2.4, "look", "--decoder quick"),
        ("resize-share", 8.0 / 6.0, "look", "a faster resizer"),
        ("workers", 0.5, "look", "--workers 4"),
        ("read-share", 0.1, "good", "next to nothing"),
        ("read-rate", 3000.0, "good", "faster than one worker decodes"),
        ("small-files", 300.0, "good", ""),
        ("copies", 0.12, "look", "larger batches"),
        ("cpu", 0.5, "good", ""),
        ("coverage", 0.99, "good", "nothing is hidden"),
    ] {
        assert!(near(value(check), figure, 1e-9), "{check}: {}", value(check));
        assert_eq!(text(check, "verdict"), verdict, "{check}");
        assert!(text(check, "advice").contains(advice), "{check}: {}", text(check, "advice"));
    }
    // What was not measured is not judged.
    for check in ["batch", "precision", "culprit", "prediction", "extrapolation", "prefetch", "normalization"] {
        assert_eq!((text(check, "verdict").as_str(), text(check, "value").as_str()), ("unknown", ""), "{check}");
    }
    // Every source names a file of the schema, and columns that it has.
    for row in 0..table.len() {
        let source = table.get(row, "source").to_string();
        let (file, columns) = source.split_once(": ").unwrap();
        let schema = schema::ALL.iter().find(|schema| schema.file == file).unwrap_or_else(|| panic!("{source}"));
        let known = |word: &str| schema.columns.iter().chain(schema::CONTEXT).any(|column| column.name == word);
        assert!(columns.split([' ', ',']).any(known), "{source}");
    }
}

#[test]
fn lanes_of_a_timeline_do_not_overlap_and_a_faster_decoder_makes_them_denser() {
    let _alone = alone();
    let bench = slow_decoder();
    let lab = bench.lab();
    let photos = PhotoSet::load(lab.rig, 100).unwrap();
    let before = Setting { workers: 1, ..bench.rig.base.clone() };
    let after = Setting { workers: 3, ..before.clone() };
    let calibration = Calibration::measure(&lab, &photos, &[before.clone(), after.clone()]).unwrap();
    let table = timeline(&calibration, &before, &after, 3, 7).unwrap();
    let text = |row: usize, column: &str| table.get(row, column).to_string();
    let mut lanes: BTreeMap<(String, String), Vec<[f64; 2]>> = BTreeMap::new();
    for row in 0..table.len() {
        let span = ["start_ms", "end_ms"].map(|column| table.number(row, column).unwrap());
        lanes.entry((text(row, "scenario"), text(row, "lane"))).or_default().push(span);
    }
    for (lane, spans) in &lanes {
        assert!(spans.iter().all(|[start, end]| start <= end), "{lane:?}");
        assert!(spans.windows(2).all(|pair| pair[0][1] <= pair[1][0] + 1e-6), "{lane:?}: {spans:?}");
    }
    let busy = |scenario: &str, lane: &str| {
        let spans = &lanes[&(scenario.to_owned(), lane.to_owned())];
        spans.iter().map(|[start, end]| end - start).sum::<f64>()
    };
    assert!(busy("after: workers 1 → 3", "encoder") > 1.5 * busy("before", "encoder"), "{lanes:?}");
    assert!(lanes.contains_key(&("after: workers 1 → 3".to_owned(), "worker 3".to_owned())), "{lanes:?}");
}
