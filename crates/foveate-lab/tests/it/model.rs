//! The model's calibration on the real engine, with stages that sleep, and the use of its tables.

use std::time::Duration;

use crate::common::{Bench, Costs, FakeRig};
use foveate_lab::plan_check::{self, PlanCheckOptions};
use foveate_lab::{Calibration, Cell, PhotoSet, Setting, tune};

/// Returns a bench where decoding is the slowest stage with one worker and with two, the forward with four.
fn slow_decoder() -> Bench {
    let costs = Costs { read: 2.0, decode: 16.0, resize: 4.0, forward: 7.0, forward_call: 20.0, ..Costs::default() };
    Bench::new(FakeRig::with_costs(costs))
}

#[test]
fn calibration_finds_the_costs_that_stages_have() {
    let bench = slow_decoder();
    let lab = bench.lab();
    let photos = PhotoSet::load(lab.rig, 100).unwrap();
    let base = bench.rig.base.clone();
    let other = Setting { batch: 32, workers: 4, ..base.clone() };
    let calibration = Calibration::measure(&lab, &photos, &[base.clone(), other.clone()]).unwrap();
    let costs = calibration.costs(&base).unwrap();
    // A sleep lasts at least as long as requested.
    for (what, got, expected) in
        [("read", costs.read_ms, 2.0), ("decode", costs.decode_ms, 16.0), ("resize", costs.resize_ms, 4.0)]
    {
        assert!(got >= expected, "{what}: {costs:?}");
    }
    assert!(calibration.step(&base).unwrap().is_some());
    let measured = calibration.measured(&other).unwrap();
    for cost in &measured.forward {
        assert!(cost.seconds >= 20e-3 + 7e-3 * f64::from(cost.batch), "{cost:?}");
    }
    // Sleeping takes no core time, whatever else sleeps.
    assert!(measured.stages.iter().all(|stage| stage.cpu_seconds < 2e-3), "{measured:?}");

    let unknown = Setting { decoder: "another".to_owned(), ..base };
    assert!(calibration.predict(&unknown).unwrap_err().to_string().contains("another (exact) with plain (hf)"));
}

#[test]
fn predictions_are_checked_at_three_walls() {
    let bench = Bench::new(FakeRig::with_costs(Costs { decode: 4.0, forward: 30.0, ..Costs::default() }));
    let lab = bench.lab();
    let photos = PhotoSet::load(lab.rig, 100).unwrap();
    let settings = plan_check::settings(lab.rig);
    let on_the_web = plan_check::settings_for_the_web(lab.rig);
    let options = PlanCheckOptions { settings, on_the_web, rounds: 1, seconds: 0.0 };
    let check = plan_check::run(&lab, &photos, &options).unwrap();
    let rows = 0..check.table.len();
    let regimes: Vec<String> = rows.clone().map(|row| check.table.get(row, "regime").to_string()).collect();
    assert_eq!(
        [&regimes[..6], &regimes[6..10], &regimes[10..]],
        [&["compute"; 6][..], &["transform"; 4], &["storage"; 4]]
    );
    let errors: Vec<f64> = rows.clone().map(|row| check.table.number(row, "error").unwrap().abs()).collect();
    assert_eq!(check.worst_error, errors.into_iter().fold(0.0, f64::max));
    for row in rows {
        let number = |column| check.table.number(row, column);
        // Sleeping may take longer than requested, never less. Neither a forward nor a photo is free of it.
        let threads = number("workers").unwrap().max(1.0);
        let most = if row < 6 { 1e3 / 30.0 } else { threads * 1e3 / 4.0 };
        assert!(number("measured").unwrap() <= most, "row {row}: {:?}", number("measured"));
        assert_eq!(number("requests"), (row >= 10).then_some(row as f64 - 9.0));
    }
}

#[test]
fn tuning_runs_the_real_engine_and_chooses_one_setting() {
    let mut bench = slow_decoder();
    bench.rig.costs = Costs { forward: 0.1, ..Costs::default() };
    let lab = bench.lab();
    let photos = PhotoSet::load(lab.rig, 100).unwrap();
    let tuned = tune::run(&lab, &photos, Duration::ZERO).unwrap();
    let chosen: Vec<usize> =
        (0..tuned.table.len()).filter(|&row| *tuned.table.get(row, "chosen") == Cell::Flag(true)).collect();
    assert_eq!(chosen.len(), 1);
    assert_eq!(tuned.table.number(chosen[0], "workers"), Some(tuned.setting.workers as f64));
    assert_eq!(tuned.table.number(chosen[0], "images_per_second"), Some(tuned.images_per_second));
    assert!((0..tuned.table.len()).all(|row| tuned.table.number(row, "samples") > Some(0.0)), "each was run");
}
