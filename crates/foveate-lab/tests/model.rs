//! The model against the real engine, with stages whose costs are known because they are slept.

mod common;

use common::{Bench, Costs, FakeRig};
use foveate_lab::{Calibration, Output, PhotoSet, Setting};

/// Decoding is the slowest stage of one worker, the forward that of two or more.
fn slow_decoder() -> Bench {
    let costs = Costs { read: 1.0, decode: 8.0, resize: 2.0, forward: 3.0, forward_call: 4.0, ..Costs::default() };
    Bench::new(FakeRig::with_costs(costs))
}

fn near(got: f64, expected: f64, tolerance: f64) -> bool {
    (got / expected - 1.0).abs() <= tolerance
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
    // A sleep lasts at least as long as it should, and somewhat longer.
    for (what, got, expected) in
        [("read", costs.read_ms, 1.0), ("decode", costs.decode_ms, 8.0), ("resize", costs.resize_ms, 2.0)]
    {
        assert!(got >= expected && got < expected + 2.0, "{what}: {costs:?}");
    }
    let step = calibration.step(&base).unwrap().unwrap().step;
    assert!(near(step.per_item, 3e-3, 0.1) && near(step.overhead, 4e-3, 0.5), "{step:?}");
    // Nothing sleeps slower in company.
    assert!(costs.crowding < 1.5 || costs.decode_ms < 0.1, "{costs:?}");

    let unknown = Setting { decoder: "another".to_owned(), ..base };
    assert!(calibration.predict(&unknown).unwrap_err().to_string().contains("another (exact) with plain (hf)"));
}

#[test]
fn predictions_hold_for_stages_that_share_no_cores() {
    let bench = slow_decoder();
    let lab = bench.lab();
    let photos = PhotoSet::load(lab.rig, 100).unwrap();
    let setting = |workers, batch| Setting { workers, batch, ..bench.rig.base.clone() };
    let settings = [setting(0, 8), setting(1, 8), setting(2, 16), setting(4, 8), setting(4, 32)];
    let calibration = Calibration::measure(&lab, &photos, &settings).unwrap();
    let encoder = lab.encoder(&setting(4, 32)).unwrap();
    for setting in &settings {
        let images = 160;
        let predicted = calibration.predict(setting).unwrap();
        let simulated = calibration.simulate(setting, images, 7).unwrap();
        let measured = lab.run(setting, &photos, images, &encoder, &Output::Discard).unwrap().rate;
        let over = predicted.over(images);
        assert!(near(over, measured, 0.25) && near(simulated, measured, 0.25), "{setting:?}: {over} {simulated} {measured}");
        let limit = match setting.workers {
            0 => "one thread",
            1 | 2 => "workers",
            _ => "forward",
        };
        assert!(predicted.limit.starts_with(limit), "{setting:?}: {predicted:?}");
    }
}
