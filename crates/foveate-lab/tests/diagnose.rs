//! Each stage in turn is made slow over the real engine, and the diagnosis has to name it. Costs are slept and several
//! times the forward's, so that it is the same on a busy machine.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests, their helpers included")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{PoisonError, RwLock};

use common::{Bench, Costs, FakeRig};
use foveate_core::Size;
use foveate_lab::diagnose::{self, Diagnosis, Options, Verify};
use foveate_lab::{LabError, PhotoSet, Setting};

/// Short samples, without the checklist.
fn options() -> Options {
    Options { rounds: 7, seconds: 0.04, remedies: false, ..Options::new("file") }
}

/// Held for writing by whoever measures the processor time of the process: nobody else may use any meanwhile.
static QUIET: RwLock<()> = RwLock::new(());

fn diagnose(rig: FakeRig, options: &Options) -> Result<Diagnosis, LabError> {
    let bench = Bench::new(rig);
    let photos = PhotoSet::load(&bench.rig, 100)?;
    diagnose_set(&bench, &photos, &bench.rig.base, options)
}

fn diagnose_set(bench: &Bench, photos: &PhotoSet, setting: &Setting, options: &Options) -> Result<Diagnosis, LabError> {
    let (_shared, _alone) = match options.remedies {
        false => (Some(QUIET.read().unwrap_or_else(PoisonError::into_inner)), None),
        true => (None, Some(QUIET.write().unwrap_or_else(PoisonError::into_inner))),
    };
    let diagnosis = diagnose::run(&bench.lab(), photos, setting, options)?;
    let mut out = Vec::new();
    diagnosis.ladder.print(&mut out).unwrap();
    diagnosis.remedies.print(&mut out).unwrap();
    println!("{}\n{}", String::from_utf8(out).unwrap(), diagnosis.verdict);
    Ok(diagnosis)
}

/// A rig whose forward takes a millisecond an image.
fn rig() -> FakeRig {
    let mut rig = FakeRig::new();
    rig.base.batch = 4;
    rig
}

/// A diagnosis with a stage that costs as much as given.
fn slow(slow: impl FnOnce(&mut Costs)) -> Diagnosis {
    let mut rig = rig();
    slow(&mut rig.costs);
    diagnose(rig, &options()).unwrap()
}

/// What a diagnosis of a few dozen images says may be wrong once, on a machine that has other things to do. Not three
/// times in a row.
fn thrice(test: impl Fn()) {
    let succeeds = || catch_unwind(AssertUnwindSafe(&test)).is_ok();
    if !succeeds() && !succeeds() {
        test();
    }
}

/// Whether the verdict and the table name `stage`, and no other.
#[track_caller]
fn assert_named(diagnosis: &Diagnosis, stage: &str) {
    assert_eq!((diagnosis.verdict.culprit, diagnosis.verdict.bound.as_str()), (Some(stage), stage));
    let table = &diagnosis.ladder;
    for row in 0..table.len() {
        let culprit = table.get(row, "culprit").to_string() == "yes";
        assert_eq!(culprit, table.get(row, "adds").to_string() == stage, "row {row}");
    }
}

#[test]
fn a_slow_store_is_named() {
    thrice(|| {
        assert_named(&slow(|costs| costs.read = 12.0), "read");
    });
}

#[test]
fn a_slow_decoder_is_named() {
    thrice(|| {
        assert_named(&slow(|costs| costs.decode = 12.0), "decode");
    });
}

#[test]
fn a_slow_resizer_is_named() {
    thrice(|| {
        assert_named(&slow(|costs| costs.resize = 12.0), "resize");
    });
}

#[test]
fn a_slow_copy_to_the_device_is_named() {
    thrice(|| {
        assert_named(&slow(|costs| costs.copy_in = 6.0), "copy-in");
    });
}

#[test]
fn a_slow_output_is_named() {
    thrice(|| {
        assert_named(&slow(|costs| costs.write = 6.0), "write");
    });
}

#[test]
fn samples_that_take_long_to_copy_are_named() {
    thrice(|| {
        let mut rig = FakeRig::with_costs(Costs { forward: 0.5, ..Costs::default() });
        rig.base.batch = 4;
        rig.input = 1600; // 7.7 MB a sample
        rig.photos.truncate(6);
        assert_named(&diagnose(rig, &options()).unwrap(), "batch");
    });
}

#[test]
fn of_two_slow_stages_the_slower_is_named() {
    thrice(|| {
        let diagnosis = slow(|costs| (costs.resize, costs.decode) = (6.0, 30.0));
        assert_named(&diagnosis, "decode");
        let significant = diagnosis.ladder.get(4, "significant").to_string();
        assert_eq!(significant, "yes", "resizing holds it back as well");
    });
}

#[test]
fn one_thread_is_diagnosed_as_well() {
    thrice(|| {
        let mut rig = rig();
        (rig.base.workers, rig.costs.decode) = (0, 6.0);
        assert_named(&diagnose(rig, &options()).unwrap(), "decode");
    });
}

#[test]
fn a_healthy_job_is_bound_by_the_forward() {
    thrice(|| {
        // Decoding takes nearly half of the forward's time beside it, and costs nothing.
        let mut rig = rig();
        (rig.costs.forward, rig.costs.decode, rig.base.batch) = (6.0, 5.0, 8);
        let diagnosis = diagnose(rig, &options()).unwrap();
        assert_eq!((diagnosis.verdict.culprit, diagnosis.verdict.bound.as_str()), (None, "none: bound by the forward"));
        assert!(
            diagnosis.verdict.why[1].starts_with("no significant difference at any depth"),
            "{}",
            diagnosis.verdict
        );
    });
}

#[test]
fn where_nothing_stays_on_a_device_the_next_depth_is_the_reference() {
    let mut rig = rig();
    (rig.resident, rig.costs.write) = (false, 6.0);
    let diagnosis = diagnose(rig, &options()).unwrap();
    assert_named(&diagnosis, "write");
    let status = diagnosis.ladder.get(0, "status").to_string();
    assert!(status.starts_with("n/a (the forward reads the host's memory"), "{status}");
    assert_eq!(diagnosis.ladder.number(1, "drop"), None);
}

#[test]
fn noise_is_no_difference() {
    thrice(|| {
        let mut rig = rig();
        rig.jitter = 20.0;
        let diagnosis = diagnose(rig, &options()).unwrap();
        assert_eq!(diagnosis.verdict.culprit, None);
        assert!(diagnosis.verdict.why[1].starts_with("no significant difference"), "{}", diagnosis.verdict);
    });
}

#[test]
fn photos_that_cannot_be_used_are_told() {
    let message = |photos: Vec<Vec<u8>>| {
        let rig = FakeRig { photos, ..rig() };
        diagnose(rig, &options()).unwrap_err().to_string()
    };
    assert_eq!(message(Vec::new()), "no photos: the folders and lists named are empty");
    assert_eq!(
        message(vec![common::corrupt(), common::corrupt()]),
        "none of the 2 photos can be used; the first, photo-0: not an image"
    );
}

#[test]
fn one_photo_is_enough_and_said_to_be_few() {
    let mut rig = rig();
    rig.photos.truncate(1);
    rig.photos.push(common::corrupt());
    rig.costs.decode = 12.0;
    let diagnosis = diagnose(rig, &options()).unwrap();
    assert_named(&diagnosis, "decode");
    assert!(diagnosis.verdict.caveats.iter().any(|line| line.starts_with("a sample of 1, over and over")));
}

#[test]
fn photos_beyond_the_memory_are_left_out_and_sizes_that_vary_are_told() {
    let mut rig = rig();
    rig.photos = (0..16).map(|n| common::raw(n, Size::square(if n % 2 == 0 { 100 } else { 10 }))).collect();
    let options = Options { most_bytes: 150_000, rounds: 1, seconds: 0.0, ..options() };
    let verdict = diagnose(rig, &options).unwrap().verdict;
    let told = |what: &str| assert!(verdict.caveats.iter().any(|line| line.contains(what)), "{what}: {verdict}");
    told("of 16 photos: decoded pixels");
    told("photos differ in size");
}

#[test]
fn vectors_that_caching_changes_are_found() {
    let bench = Bench::new(rig());
    let mut photos = PhotoSet::load(&bench.rig, 100).unwrap();
    // What is in memory is not what is stored.
    photos.photos = photos.photos.iter().rev().cloned().collect();
    let error = diagnose_set(&bench, &photos, &bench.rig.base, &options()).unwrap_err();
    assert!(matches!(&error, LabError::Work(problem) if problem.contains("another vector")), "{error}");
}

#[test]
fn cold_reads_are_of_files_and_of_each_once() {
    let mut rig = rig();
    rig.photos = (0..13).map(|n| common::raw(n, Size::square(330))).collect();
    let bench = Bench::new(rig);
    let cold = Options { cold: true, rounds: 1, ..options() };
    let given = PhotoSet::load(&bench.rig, 100).unwrap();
    let stored = given.small(&bench.rig, &bench.folder().join("small")).unwrap();
    let diagnosis = diagnose_set(&bench, &stored, &bench.rig.base, &cold).unwrap();
    assert_eq!(diagnosis.ladder.number(6, "images"), Some(12.0), "three batches of four, of 13 photos");
    assert!(diagnosis.verdict.caveats[0].starts_with("cold reads"), "{}", diagnosis.verdict);

    let message = |photos, setting| diagnose_set(&bench, photos, setting, &cold).unwrap_err().to_string();
    let large = Setting { batch: 8, ..bench.rig.base.clone() };
    assert_eq!(message(&stored, &large), "cold reads need 24 photos at this batch; there are 13");
    let in_no_file = message(&given, &bench.rig.base);
    assert!(in_no_file.starts_with("photos cannot be read cold: photo-0: "), "{in_no_file}");
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for wrong in [
        Options { rounds: 0, ..options() },
        Options { least_drop: 1.0, ..options() },
        Options { verify: Some(Verify::Best), ..options() },
    ] {
        assert!(matches!(diagnose(rig(), &wrong), Err(LabError::Setting(_))), "{wrong:?}");
    }
}

#[test]
fn the_best_remedy_is_predicted_and_then_measured() {
    thrice(|| {
        let mut rig = rig();
        (rig.costs.decode, rig.cores) = (12.0, 16);
        rig.decoders = vec![("plain", Some(1.0)), ("quick", Some(0.25)), ("absent", None)];
        let options = Options { remedies: true, verify: Some(Verify::Named("decoder".to_owned())), ..options() };
        let diagnosis = diagnose(rig, &options).unwrap();
        assert_named(&diagnosis, "decode");
        let table = &diagnosis.remedies;
        let row = |change: &str| (0..table.len()).find(|&row| table.get(row, "change").to_string() == change).unwrap();
        let quick = row("--decoder quick");
        // Two workers: 6 ms an image before, 1.5 ms after, so 4 times; 2 on a machine that does a lot besides.
        let times = table.number(quick, "times").unwrap();
        let verified = diagnosis.verified.unwrap();
        assert!(times > 1.5 && verified.times.value > 2.0 && verified.error.abs() < 0.7, "{times}, {verified:?}");
        assert_eq!(table.number(quick, "measured"), Some(verified.after.value));
        assert_eq!(table.get(row("--decoder absent"), "status").to_string(), "n/a (its library is missing)");
        let predicted: Vec<f64> = (0..table.len()).filter_map(|row| table.number(row, "predicted")).collect();
        assert!(predicted.is_sorted_by(|a, b| a >= b), "{predicted:?}");
    });
}
