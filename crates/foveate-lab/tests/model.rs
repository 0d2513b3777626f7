//! The model's calibration on the real engine, with stages that sleep, and the use of its tables.

mod common;

use std::time::Duration;

use common::{Bench, Costs, FakeRig};
use foveate_lab::plan_check::{self, PlanCheckOptions};
use foveate_lab::{Calibration, Cell, Context, PhotoSet, Setting, Table, checklist, schema, tune};

/// Returns a bench where decoding is the slowest stage with one worker and with two, the forward with four.
fn slow_decoder() -> Bench {
    let costs = Costs { read: 2.0, decode: 16.0, resize: 4.0, forward: 7.0, forward_call: 20.0, ..Costs::default() };
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
    let (settings, on_the_web) = (plan_check::settings(lab.rig), plan_check::settings_for_the_web(lab.rig));
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
    let figure = |table: &Table| {
        let checklist = checklist(&[table], &bench.rig.base, &Context::default());
        let row = (0..checklist.len()).find(|&row| checklist.get(row, "check").to_string() == "prediction").unwrap();
        (checklist.number(row, "value").unwrap(), checklist.get(row, "advice").to_string())
    };
    let mut table = Table::new(&schema::PLAN);
    for (regime, error) in [("compute", 0.01), ("compute", -0.02), ("compute", 0.03), ("storage", -0.2)] {
        table.push([("regime", regime.into()), ("error", error.into())]);
    }
    let (value, advice) = figure(&table);
    assert_eq!(value, 0.2, "one regime's small errors do not hide another's");
    assert!(advice.contains("storage-bound"), "{advice}");
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

/// Adds a row of a profile on one thread.
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
        ("quick", "fast", Some(310.0)),
        ("quick", "low", Some(320.0)),
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
    // The forward is measured at another batch than the job's.
    let mut forward = Table::new(&schema::FORWARD);
    for (encoder, dtype, batch, rate, cosine) in [
        ("plain", "f32", 64, 100.0, 1.0),
        ("plain", "bf16", 64, 190.0, 0.9999),
        ("quick", "f32", 64, 900.0, 0.95),
        ("quick", "f32", 1, 500.0, 1.0),
    ] {
        forward.push([
            ("encoder", encoder.into()),
            ("dtype", dtype.into()),
            ("batch", Cell::Count(batch)),
            ("images_per_second", rate.into()),
            ("cosine_to_reference", cosine.into()),
        ]);
    }
    let mut tuning = Table::new(&schema::TUNING);
    for (prefetch, rate) in [(1, 100.0), (4, 130.0)] {
        tuning.push([
            ("workers", Cell::from(setting.workers)),
            ("threads", setting.threads.into()),
            ("batch", setting.batch.into()),
            ("readers", setting.readers.into()),
            ("prefetch", Cell::Count(prefetch)),
            ("images_per_second", rate.into()),
        ]);
    }
    let table = checklist(&[&profile, &decoders, &sweep, &forward, &tuning], &setting, &context);
    let row = |check: &str| (0..table.len()).find(|&row| table.get(row, "check").to_string() == check).unwrap();
    let text = |check: &str, column: &str| table.get(row(check), column).to_string();
    let value = |check: &str| table.number(row(check), "value").unwrap();
    for (check, figure, verdict, advice) in [
        ("encoder-idle", 0.4, "look", "decoding first"),
        ("decode-share", 0.6, "look", "a faster decoder"),
        ("decode-scale", 3.2, "look", "decode scale low with decoder quick"),
        ("decoder", 2.4, "look", "decoder quick"),
        ("precision", 1.9, "look", "encoder plain, precision bf16"),
        ("prefetch", 1.3, "look", "prefetch 4"),
        ("resize-share", 8.0 / 6.0, "look", "a faster resizer"),
        ("workers", 0.5, "look", "workers 4"),
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
    // What was not measured gets no judgement.
    for check in ["batch", "culprit", "prediction", "extrapolation", "normalization"] {
        assert_eq!((text(check, "verdict").as_str(), text(check, "value").as_str()), ("unknown", ""), "{check}");
    }
    // Every source names a file of the schema, and columns of that file.
    for row in 0..table.len() {
        let source = table.get(row, "source").to_string();
        let (file, columns) = source.split_once(": ").unwrap();
        let schema = schema::ALL.iter().find(|schema| schema.file == file).unwrap_or_else(|| panic!("{source}"));
        let known = |word: &str| schema.columns.iter().chain(schema::CONTEXT).any(|column| column.name == word);
        assert!(columns.split([' ', ',']).any(known), "{source}");
    }
}
