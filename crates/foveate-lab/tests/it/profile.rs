//! The profile of stages with known costs.

use crate::common::{Bench, Costs, FakeRig};
use foveate_lab::profile::{self, ProfileOptions};
use foveate_lab::{PhotoSet, Table};
use foveate_profile::Trace;

const COSTS: Costs =
    Costs { read: 2.0, decode: 5.0, resize: 3.0, copy_in: 1.0, forward: 4.0, forward_call: 0.0, write: 1.0 };

fn options(bench: &Bench, images: u64) -> ProfileOptions {
    let settings = vec![bench.rig.base.clone()];
    ProfileOptions {
        settings,
        images: Some(images),
        normalize: true,
        project: 1_000_000,
        trace: None,
        sink: "file".to_owned(),
    }
}

/// Returns the sum of a column over a mode's rows.
fn sum(table: &Table, mode: &str, column: &str) -> f64 {
    let of_mode = (0..table.len()).filter(|&row| table.get(row, "mode").to_string() == mode);
    of_mode.filter_map(|row| table.number(row, column)).sum()
}

fn value(table: &Table, mode: &str, stage: &str, column: &str) -> f64 {
    let is = |row: &usize| table.get(*row, "mode").to_string() == mode && table.get(*row, "stage").to_string() == stage;
    (0..table.len()).find(is).and_then(|row| table.number(row, column)).unwrap_or_else(|| panic!("no {mode} {stage}"))
}

#[test]
fn the_stages_add_up_to_the_wall_clock() {
    let bench = Bench::new(FakeRig::with_costs(COSTS));
    let lab = bench.lab();
    let photos = PhotoSet::load(lab.rig, 100).unwrap();
    let table = profile::run(&lab, std::slice::from_ref(&photos), &options(&bench, 64)).unwrap();
    let stages = sum(&table, "serial", "total_s");
    let wall = value(&table, "serial", "read", "wall_s");
    assert!((stages / wall - 1.0).abs() < 1e-6, "stages {stages} s, wall {wall} s");
    let shares = sum(&table, "serial", "share_of_wall");
    assert!((shares - 1.0).abs() < 1e-6, "{shares}");
}

#[test]
fn every_stage_has_its_own_cost() {
    let bench = Bench::new(FakeRig::with_costs(COSTS));
    let lab = bench.lab();
    let photos = PhotoSet::load(lab.rig, 100).unwrap();
    let table = profile::run(&lab, &[photos], &options(&bench, 64)).unwrap();
    let stages =
        [("read", 2.0), ("decode", 5.0), ("resize", 3.0), ("copy-in", 1.0), ("forward", 4.0), ("serialize", 1.0)];
    for (stage, cost) in stages {
        for mode in ["serial", "threaded"] {
            let measured = value(&table, mode, stage, "ms_per_image");
            // Sleeping may take longer than requested, never less.
            assert!(measured >= 0.999 * cost, "{mode} {stage}: {measured} ms instead of {cost}");
        }
        let total = value(&table, "serial", stage, "total_s");
        let wall = value(&table, "serial", stage, "wall_s");
        let share = value(&table, "serial", stage, "share_of_wall");
        assert!((share - total / wall).abs() < 1e-9, "{stage}: share {share}");
    }
    assert_eq!(value(&table, "serial", "normalize", "count"), 64.0);
    assert_eq!(value(&table, "serial", "decode", "count"), 64.0);
    let projected = value(&table, "serial", "decode", "projected_s");
    assert!((projected / (value(&table, "serial", "decode", "ms_per_image") * 1e3) - 1.0).abs() < 1e-6);
    let runs: Vec<u64> =
        bench.phases().iter().map(|(_, work)| work.of("decode")).filter(|&images| images > 0).collect();
    assert!(runs.iter().all(|images| images % 64 == 0), "the same work in every run: {runs:?}");
}

#[test]
fn the_threaded_run_is_traced() {
    let bench = Bench::new(FakeRig::with_costs(COSTS));
    let lab = bench.lab();
    let photos = PhotoSet::load(lab.rig, 100).unwrap();
    let trace = Trace::new(10_000);
    let options = ProfileOptions { trace: Some(trace.clone()), normalize: false, ..options(&bench, 16) };
    let table = profile::run(&lab, &[photos], &options).unwrap();
    assert_eq!(value(&table, "serial", "normalize", "count"), 0.0);
    let mut json = Vec::new();
    trace.write_json(&mut json).unwrap();
    let json = String::from_utf8(json).unwrap();
    assert!(json.contains("decode-1") && json.contains("encode → write") && json.contains("copy-in"), "{json}");
    assert_eq!(trace.dropped(), 0);
}

#[test]
fn configurations_stand_side_by_side() {
    let rig = FakeRig { decoders: vec![("plain", Some(1.0)), ("slow", Some(3.0))], ..FakeRig::with_costs(COSTS) };
    let bench = Bench::new(rig);
    let lab = bench.lab();
    let photos = PhotoSet::load(lab.rig, 100).unwrap();
    let base = bench.rig.base.clone();
    let slow = foveate_lab::Setting { decoder: "slow".to_owned(), ..base.clone() };
    let table =
        profile::run(&lab, &[photos], &ProfileOptions { settings: vec![base, slow], ..options(&bench, 16) }).unwrap();
    let mut out = Vec::new();
    profile::print(&table, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("plain+plain serial") && text.contains("slow+plain threaded"), "{text}");
    let decode = text.lines().find(|line| line.starts_with("decode")).unwrap();
    let figures: Vec<f64> = decode.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(figures.len() == 4 && figures[0] >= 5.0 && figures[2] >= 15.0, "{decode}");
}
