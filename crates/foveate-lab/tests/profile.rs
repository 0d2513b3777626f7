//! What a profile says of stages whose costs are known.

mod common;

use std::time::Instant;

use common::{Bench, Costs, FakeRig};
use foveate_lab::profile::{self, Options};
use foveate_lab::{PhotoSet, Table};
use foveate_profile::Trace;

const COSTS: Costs =
    Costs { read: 2.0, decode: 5.0, resize: 3.0, copy_in: 1.0, forward: 4.0, forward_call: 0.0, write: 1.0 };

fn options(bench: &Bench, images: u64) -> Options {
    let settings = vec![bench.rig.base.clone()];
    Options {
        settings,
        images: Some(images),
        normalize: true,
        project: 1_000_000,
        trace: None,
        sink: "file".to_owned(),
    }
}

/// The sum of a column over the rows of a mode.
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
    let started = Instant::now();
    let table = profile::run(&lab, std::slice::from_ref(&photos), &options(&bench, 64)).unwrap();
    let outside = started.elapsed().as_secs_f64();

    let stages = sum(&table, "serial", "total_s");
    let wall = value(&table, "serial", "read", "wall_s");
    assert!((stages / wall - 1.0).abs() < 0.02, "stages {stages} s, wall {wall} s");
    // The clock around everything knows nothing of stages: it sees the two runs.
    let both = wall + value(&table, "threaded", "read", "wall_s");
    assert!((both / outside - 1.0).abs() < 0.02, "runs {both} s, outside {outside} s");
    let other = value(&table, "serial", "other", "share_of_wall");
    assert!(other < 0.02, "{other} of the time is nobody's");
}

#[test]
fn every_stage_has_its_own_cost() {
    let bench = Bench::new(FakeRig::with_costs(COSTS));
    let lab = bench.lab();
    let photos = PhotoSet::load(lab.rig, 100).unwrap();
    let table = profile::run(&lab, &[photos], &options(&bench, 64)).unwrap();
    let stages =
        [("read", 2.0), ("decode", 5.0), ("resize", 3.0), ("copy-in", 1.0), ("forward", 4.0), ("serialize", 1.0)];
    let total: f64 = stages.iter().map(|(_, cost)| cost).sum();
    for (stage, cost) in stages {
        let measured = value(&table, "serial", stage, "ms_per_image");
        // Sleeping takes longer on a busy machine, never less.
        assert!(measured >= 0.99 * cost && measured < 2.0 * cost + 1.0, "{stage}: {measured} ms instead of {cost}");
        let share = value(&table, "serial", stage, "share_of_wall");
        assert!((share - cost / total).abs() < 0.1, "{stage}: share {share}");
    }
    assert_eq!(value(&table, "serial", "normalize", "count"), 64.0);
    assert_eq!(value(&table, "serial", "decode", "count"), 64.0);
    let projected = value(&table, "serial", "decode", "projected_s");
    assert!((projected / (value(&table, "serial", "decode", "ms_per_image") * 1e3) - 1.0).abs() < 1e-6);
    // With workers the stages overlap: the same work, in less time.
    let rate = |mode| value(&table, mode, "decode", "images_per_second");
    assert!(rate("threaded") > 1.5 * rate("serial"), "{} and {}", rate("threaded"), rate("serial"));
}

#[test]
fn the_threaded_run_is_traced() {
    let bench = Bench::new(FakeRig::with_costs(COSTS));
    let lab = bench.lab();
    let photos = PhotoSet::load(lab.rig, 100).unwrap();
    let trace = Trace::new(10_000);
    let options = Options { trace: Some(trace.clone()), normalize: false, ..options(&bench, 16) };
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
    let table = profile::run(&lab, &[photos], &Options { settings: vec![base, slow], ..options(&bench, 16) }).unwrap();
    let mut out = Vec::new();
    profile::print(&table, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("plain+plain serial") && text.contains("slow+plain threaded"), "{text}");
    let decode = text.lines().find(|line| line.starts_with("decode")).unwrap();
    let figures: Vec<f64> = decode.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(figures.len() == 4 && figures[2] > 2.0 * figures[0], "{decode}");
}
