//! Each stage in turn is made slow over the real engine, and the diagnosis has to name it.

mod common;

use common::{Bench, Costs, FakeRig};
use foveate_lab::diagnose::{self, Diagnosis, Options};
use foveate_lab::{LabError, PhotoSet};

fn options() -> Options {
    Options { rounds: 5, seconds: 0.08, sink: "file".to_owned(), least_drop: 0.05, most_bytes: 1 << 30 }
}

fn diagnose(rig: FakeRig) -> Result<Diagnosis, LabError> {
    let bench = Bench::new(rig);
    let lab = bench.lab();
    let photos = PhotoSet::load(lab.rig, 100)?;
    diagnose::run(&lab, &photos, &bench.rig.base, &options())
}

/// The row of the stage that is named, `None` when none is.
fn culprit(diagnosis: &Diagnosis) -> Option<String> {
    let mut out = Vec::new();
    diagnosis.ladder.print(&mut out).unwrap();
    println!("{}", String::from_utf8(out).unwrap());
    let table = &diagnosis.ladder;
    let named = (0..table.len()).find(|&row| table.get(row, "culprit").to_string() == "yes")?;
    Some(table.get(named, "adds").to_string())
}

/// What is named when a stage of a healthy job costs as much as given.
fn named(slow: impl FnOnce(&mut Costs)) -> Option<String> {
    let mut rig = FakeRig::new();
    rig.base.batch = 4;
    slow(&mut rig.costs);
    culprit(&diagnose(rig).unwrap())
}

#[test]
fn a_slow_store_is_named() {
    // Two readers at 12 ms against a forward of 1 ms.
    assert_eq!(named(|costs| costs.read = 12.0).as_deref(), Some("read"));
}

#[test]
fn a_slow_decoder_is_named() {
    assert_eq!(named(|costs| costs.decode = 12.0).as_deref(), Some("decode"));
}

#[test]
fn a_slow_resizer_is_named() {
    assert_eq!(named(|costs| costs.resize = 12.0).as_deref(), Some("resize"));
}

#[test]
fn a_slow_copy_to_the_device_is_named() {
    assert_eq!(named(|costs| costs.copy_in = 6.0).as_deref(), Some("copy-in"));
}

#[test]
fn a_slow_output_is_named() {
    assert_eq!(named(|costs| costs.write = 6.0).as_deref(), Some("write"));
}

#[test]
fn samples_that_take_long_to_copy_are_named() {
    let mut rig = FakeRig::with_costs(Costs { forward: 0.5, ..Costs::default() });
    rig.base.batch = 4;
    rig.input = 1600; // 7.7 MB a sample
    rig.photos.truncate(6);
    assert_eq!(culprit(&diagnose(rig).unwrap()).as_deref(), Some("batch"));
}

#[test]
fn a_slow_forward_is_no_stages_fault() {
    assert_eq!(named(|costs| costs.forward = 6.0), None);
}
