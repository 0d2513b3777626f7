//! The model against the real engine, with stages whose costs are known because they are slept.

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::{Bench, Costs, FakeRig};
use foveate_lab::{Calibration, Cell, Output, PhotoSet, Setting, stats, tune};

/// Decoding is the slowest stage of one worker and of two, the forward that of four.
fn slow_decoder() -> Bench {
    let costs = Costs { read: 2.0, decode: 16.0, resize: 4.0, forward: 7.0, forward_call: 8.0, ..Costs::default() };
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
        assert!(got >= expected && got < expected + 2.0, "{what}: {costs:?}");
    }
    let step = calibration.step(&base).unwrap().unwrap().step;
    assert!(near(step.per_item, 7e-3, 0.1) && near(step.overhead, 8e-3, 0.5), "{step:?}");
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
    let settings = [setting(0, 8), setting(1, 8), setting(2, 16), setting(4, 8), setting(4, 32)];
    let calibration = Calibration::measure(&lab, &photos, &settings).unwrap();
    let encoder = lab.encoder(&setting(4, 32)).unwrap();
    let mut errors = Vec::new();
    for setting in &settings {
        let images = 96;
        let predicted = calibration.predict(setting).unwrap();
        let simulated = calibration.simulate(setting, images, 7).unwrap();
        let measured = lab.run(setting, &photos, images, &encoder, &Output::Discard).unwrap().rate;
        let over = predicted.over(images);
        assert!(
            near(over, measured, 0.25) && near(simulated, measured, 0.25),
            "{setting:?}: {over} {simulated} {measured}"
        );
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
    let photos = PhotoSet::load(lab.rig, 100).unwrap();
    tune::run(&lab, &photos, Duration::from_secs(12)).unwrap()
}

#[test]
fn tuning_gives_a_slow_decoder_the_workers_that_it_needs() {
    let _alone = alone();
    let tuned = tuned(Costs { decode: 12.0, forward: 3.0, ..Costs::default() }, |base| Setting { workers: 1, ..base });
    assert!((3..=8).contains(&tuned.setting.workers), "{}", tuned.why);
    assert!(tuned.images_per_second > 2.0 * tuned.before, "{}", tuned.why);
    let chosen: Vec<usize> =
        (0..tuned.table.len()).filter(|&row| *tuned.table.get(row, "chosen") == Cell::Flag(true)).collect();
    assert_eq!(chosen.len(), 1);
    assert_eq!(tuned.table.number(chosen[0], "workers"), Some(tuned.setting.workers as f64));
    assert!(tuned.why.contains("workers 1 →"), "{}", tuned.why);
}

#[test]
fn tuning_takes_no_more_than_a_healthy_job_needs() {
    let _alone = alone();
    let costs = Costs { decode: 1.0, forward: 4.0, ..Costs::default() };
    let tuned = tuned(costs, |base| Setting { workers: 8, readers: 8, ..base });
    assert!(tuned.setting.workers <= 2 && tuned.setting.readers <= 2, "{}", tuned.why);
    assert!(tuned.images_per_second > 0.9 * tuned.before, "{}", tuned.why);
}
