//! The diagnosis over the real engine. These tests check that each depth adds the work of one stage, that vectors are
//! checked, and what is reported about photos and settings. The conclusions from a slow stage's rates are tested in
//! the crate, on known costs.

use std::time::Duration;

use crate::common::{Bench, FakeRig, Work};
use foveate_core::Size;
use foveate_lab::diagnose::{self, CacheDepth, Climb, DiagnoseOptions, Diagnosis, Verify};
use foveate_lab::{LabError, PhotoSet, Rig as _, Setting, Table, schema};

/// Returns samples of the fewest images, without remedies.
fn options() -> DiagnoseOptions {
    DiagnoseOptions { rounds: 2, most_rounds: 2, seconds: 0.0, remedies: false, ..DiagnoseOptions::new("file") }
}

/// Images of such a sample: three batches of four.
const IMAGES: u64 = 12;

fn rig() -> FakeRig {
    let mut rig = FakeRig::new();
    rig.base.batch = 4;
    rig.costs.forward = 0.0;
    rig
}

fn diagnose(rig: FakeRig, options: &DiagnoseOptions) -> Result<Diagnosis, LabError> {
    let bench = Bench::new(rig);
    let photos = PhotoSet::load(&bench.rig, 100)?;
    diagnose_set(&bench, &photos, &bench.rig.base, options)
}

fn diagnose_set(
    bench: &Bench,
    photos: &PhotoSet,
    setting: &Setting,
    options: &DiagnoseOptions,
) -> Result<Diagnosis, LabError> {
    let diagnosis = diagnose::run(&bench.lab(), photos, setting, options)?;
    let mut out = Vec::new();
    diagnosis.ladder.print(&mut out).unwrap();
    diagnosis.remedies.print(&mut out).unwrap();
    println!("{}\n{}", String::from_utf8(out).unwrap(), diagnosis.verdict);
    Ok(diagnosis)
}

/// Returns the work of each sample at a depth.
fn samples(bench: &Bench, depth: CacheDepth) -> Vec<Work> {
    let end = format!("cached: {}", depth.cached());
    let phases = bench.phases().into_iter();
    phases.filter(|(what, _)| what.starts_with("round") && what.ends_with(&end)).map(|(_, work)| work).collect()
}

/// Checks that at every depth the cached stages do nothing, and all others the whole work. So the slowdown from one
/// depth to the next is the cost of the stage between them.
fn check_work(workers: usize) {
    let mut rig = rig();
    rig.base.workers = workers;
    let bench = Bench::new(rig);
    let photos = PhotoSet::load(&bench.rig, 100).unwrap();
    diagnose_set(&bench, &photos, &bench.rig.base, &options()).unwrap();
    for depth in CacheDepth::ALL {
        let samples = samples(&bench, depth);
        assert_eq!(samples.len(), 2, "one in each round");
        for work in samples {
            for (stage, from) in [
                ("read", CacheDepth::Nothing),
                ("decode", CacheDepth::Bytes),
                ("resize", CacheDepth::Pixels),
                ("write", CacheDepth::Written),
                ("forward", CacheDepth::OnDevice),
            ] {
                let images = work.of(stage);
                let works = depth >= from;
                assert_eq!(images >= IMAGES, works, "{stage} at {depth:?}: {images}");
                assert!(works || images == 0, "{stage} at {depth:?}: {images}");
            }
            // If the batch stays on the device, it is copied there once.
            let copied = work.of("copy-in");
            assert!(if depth == CacheDepth::OnDevice { copied == 4 } else { copied >= IMAGES }, "{depth:?}: {copied}");
        }
    }
}

#[test]
fn every_depth_adds_the_work_of_one_stage() {
    check_work(2);
}

#[test]
fn every_depth_adds_the_work_of_one_stage_on_one_thread() {
    check_work(0);
}

#[test]
fn where_nothing_stays_on_a_device_that_depth_is_not_available() {
    let mut rig = rig();
    rig.resident = false;
    let diagnosis = diagnose(rig, &options()).unwrap();
    let status = diagnosis.ladder.get(0, "status").to_string();
    assert!(status.starts_with("n/a (the forward reads the host's memory"), "{status}");
    assert_eq!(diagnosis.ladder.number(1, "drop"), None);
    assert_eq!(diagnosis.ladder.number(6, "samples"), Some(2.0));
}

#[test]
fn photos_that_cannot_be_used_are_told() {
    let message = |photos: Vec<Vec<u8>>| {
        let rig = FakeRig { photos, ..rig() };
        diagnose(rig, &options()).unwrap_err().to_string()
    };
    assert_eq!(message(Vec::new()), "no photos: the folders and lists named are empty");
    assert_eq!(
        message(vec![crate::common::corrupt(), crate::common::corrupt()]),
        "none of the 2 photos can be used; the first, photo-0: not an image"
    );
}

#[test]
fn one_photo_is_enough_and_said_to_be_few() {
    let mut rig = rig();
    rig.photos.truncate(1);
    rig.photos.push(crate::common::corrupt());
    let diagnosis = diagnose(rig, &options()).unwrap();
    assert!(diagnosis.verdict.caveats.iter().any(|line| line.starts_with("a sample of 1, over and over")));
}

#[test]
fn photos_beyond_the_memory_are_left_out_and_sizes_that_vary_are_told() {
    let mut rig = rig();
    rig.photos = (0..16).map(|n| crate::common::raw(n, Size::square(if n % 2 == 0 { 100 } else { 10 }))).collect();
    let options = DiagnoseOptions { most_bytes: 150_000, ..options() };
    let verdict = diagnose(rig, &options).unwrap().verdict;
    let told = |what: &str| assert!(verdict.caveats.iter().any(|line| line.contains(what)), "{what}: {verdict}");
    told("of 16 photos: decoded pixels");
    told("photos differ in size");
}

#[test]
fn vectors_that_caching_changes_are_found() {
    let bench = Bench::new(rig());
    let mut photos = PhotoSet::load(&bench.rig, 100).unwrap();
    // The photos in memory differ from the stored ones.
    photos.photos = photos.photos.iter().rev().cloned().collect();
    let error = diagnose_set(&bench, &photos, &bench.rig.base, &options()).unwrap_err();
    assert!(matches!(&error, LabError::Work(problem) if problem.contains("another vector")), "{error}");
}

#[test]
fn cold_reads_are_of_files_and_of_each_once() {
    let mut rig = rig();
    rig.photos = (0..13).map(|n| crate::common::raw(n, Size::square(330))).collect();
    let bench = Bench::new(rig);
    let cold = DiagnoseOptions { cold: true, ..options() };
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
        DiagnoseOptions { rounds: 0, ..options() },
        DiagnoseOptions { rounds: 3, most_rounds: 2, ..options() },
        DiagnoseOptions { least_drop: 1.0, ..options() },
        DiagnoseOptions { verify: Some(Verify::Best), ..options() },
    ] {
        assert!(matches!(diagnose(rig(), &wrong), Err(LabError::Setting(_))), "{wrong:?}");
    }
}

/// Returns a rig with a faster decoder than the current one, whose runs are long enough to be measured.
fn rig_with_a_quick_decoder() -> FakeRig {
    let mut rig = rig();
    rig.costs.decode = 1.0;
    rig.decoders = vec![("plain", Some(1.0)), ("quick", Some(0.25)), ("absent", None)];
    rig
}

#[test]
fn a_remedy_is_predicted_and_then_measured_in_turns_with_what_is() {
    let bench = Bench::new(rig_with_a_quick_decoder());
    let photos = PhotoSet::load(&bench.rig, 100).unwrap();
    let options = DiagnoseOptions { remedies: true, verify: Some(Verify::Named("decoder".to_owned())), ..options() };
    let diagnosis = diagnose_set(&bench, &photos, &bench.rig.base, &options).unwrap();

    let table = &diagnosis.remedies;
    let row = |change: &str| (0..table.len()).find(|&row| table.get(row, "change").to_string() == change).unwrap();
    let quick = row("decoder quick");
    assert_eq!(table.get(row("decoder absent"), "status").to_string(), "n/a (its library is missing)");
    let is_marked = |row| table.get(row, "why").to_string().starts_with("changes the vectors: ");
    let predicted = |row| Some((is_marked(row), table.number(row, "predicted")?));
    let predicted: Vec<(bool, f64)> = (0..table.len()).filter_map(predicted).collect();
    assert!(predicted.is_sorted_by(|a, b| (a.0, -a.1) <= (b.0, -b.1)), "{predicted:?}");
    assert!(is_marked(quick) && !is_marked(row("workers 3")));

    let verified = diagnosis.verified.unwrap();
    assert_eq!(verified.change, "decoder quick");
    assert_eq!(table.number(quick, "measured"), Some(verified.after.value));
    assert_eq!(table.number(quick, "predicted"), Some(verified.predicted));
    assert!((verified.error - (verified.predicted / verified.after.value - 1.0)).abs() < 1e-12, "{verified:?}");
    let turns = bench.phases().into_iter().filter(|(what, _)| what.starts_with("before and after"));
    let turns: Vec<Work> = turns.map(|(_, work)| work).collect();
    assert_eq!(turns.len(), 2);
    for work in turns {
        let [plain, quick] = ["plain", "quick"].map(|name| work.of_backend("decode", name));
        assert!(plain >= IMAGES && quick >= IMAGES, "{plain} and {quick}");
    }
}

#[test]
fn without_time_every_depth_has_two_samples_and_what_is_missing_is_said() {
    let bench = Bench::new(rig_with_a_quick_decoder());
    let photos = PhotoSet::load(&bench.rig, 100).unwrap();
    let options = DiagnoseOptions { budget: Duration::ZERO, ..DiagnoseOptions::new("file") };
    let diagnosis = diagnose_set(&bench, &photos, &bench.rig.base, &options).unwrap();
    for (row, depth) in CacheDepth::ALL.into_iter().enumerate() {
        assert_eq!(samples(&bench, depth).len(), 1, "the other one warmed up");
        assert_eq!(diagnosis.ladder.number(row, "samples"), Some(2.0));
        assert_eq!(diagnosis.ladder.number(row, "images"), Some(8.0), "two batches of four");
    }
    let table = &diagnosis.remedies;
    let status = |change: &str| {
        let row = (0..table.len()).find(|&row| table.get(row, "change").to_string() == change).unwrap();
        table.get(row, "status").to_string()
    };
    assert_eq!(status("decoder quick"), "n/a (no time left in the budget to measure it)");
    assert_eq!(status("workers 3"), "ok", "the model knows its parts");
    let caveats = diagnosis.verdict.caveats.join("\n");
    assert!(caveats.contains("for lack of time") && caveats.contains("of the remedies"), "{caveats}");
}

/// Returns what the file has in columns of a ladder or of remedies.
fn cells(table: &Table) -> Vec<String> {
    let columns = ["adds", "images_per_second", "low", "high", "culprit", "change", "predicted"];
    let columns: Vec<_> = table.schema().columns.iter().filter(|column| columns.contains(&column.name)).collect();
    let row = |row| columns.iter().map(move |column| table.get(row, column.name).to_string());
    (0..table.len()).flat_map(row).collect()
}

#[test]
fn an_interrupted_trial_keeps_what_is_complete_and_the_same_command_continues() {
    let folder = tempfile::tempdir().unwrap();
    let rig = rig_with_a_quick_decoder();
    let options = DiagnoseOptions {
        remedies: true,
        verify: Some(Verify::Named("decoder".to_owned())),
        folder: Some(folder.path().to_owned()),
        ..options()
    };
    let until = |until| {
        let bench = Bench::until(rig.clone(), until);
        let photos = PhotoSet::load(&bench.rig, 100).unwrap();
        let diagnosis = diagnose_set(&bench, &photos, &bench.rig.base, &options);
        (diagnosis, bench.phases().into_iter().map(|(what, _)| what).collect::<Vec<_>>())
    };
    let has = |phases: &[String], start: &str| phases.iter().any(|what| what.starts_with(start));
    assert!(matches!(until("round 2").0, Err(LabError::Interrupted)), "nothing is complete");

    let (stopped, phases) = until("plain (exact)");
    let stopped = stopped.unwrap();
    assert_eq!(stopped.unfinished.as_deref(), Some("measuring the costs of the remedies"));
    assert!(has(&phases, "round 1") && stopped.remedies.is_empty() && stopped.ladder.number(6, "high").is_some());

    let (tried, phases) = until("before and after, round 2");
    let tried = tried.unwrap();
    assert_eq!((tried.unfinished.as_deref(), tried.verified), (Some("trying decoder quick"), None));
    assert!(!has(&phases, "round 1") && has(&phases, "plain (exact)"), "{phases:?}");
    assert_eq!(cells(&tried.ladder), cells(&stopped.ladder));

    let (done, phases) = until("");
    let done = done.unwrap();
    assert!(phases.iter().all(|what| what.starts_with("before and after")) && phases.len() == 2, "{phases:?}");
    assert_eq!((done.unfinished, cells(&done.ladder)), (None, cells(&stopped.ladder)));
    assert_eq!(done.verified.unwrap().change, "decoder quick");
    assert_eq!(cells(&done.remedies), cells(&tried.remedies));

    assert!(has(&until("").1, "round 1"), "a complete diagnosis is measured anew");
}

#[test]
fn an_interrupted_climb_has_its_complete_steps_and_continues_after_them() {
    let folder = tempfile::tempdir().unwrap();
    let rig = rig_with_a_quick_decoder();
    let options = DiagnoseOptions { rounds: 1, folder: Some(folder.path().to_owned()), ..options() };
    let until = |until| {
        let bench = Bench::until(rig.clone(), until);
        let photos = PhotoSet::load(&bench.rig, 100).unwrap();
        let climb = Climb::run(&bench.lab(), &photos, &bench.rig.base, &options).unwrap();
        (climb, bench.phases().into_iter().any(|(what, _)| what.starts_with("round")))
    };
    let (stopped, found) = until("before and after");
    assert!(found && stopped.unfinished.is_some() && stopped.to_string().ends_with("; interrupted\n"), "{stopped}");
    // One sample tells no gain, so the climb ends after its trials.
    let (done, found) = until("");
    assert!(!found && done.unfinished.is_none() && done.to_string().ends_with("; no remedy gains more\n"), "{done}");
    assert_eq!(cells(&done.ladder()), cells(&stopped.ladder()));
}

#[test]
fn what_a_file_of_the_folder_measured_is_said_in_place_of_a_prediction() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::new(rig());
    let photos = PhotoSet::load(&bench.rig, 100).unwrap();
    let mut sweep = Table::new(&schema::WORKER_SWEEP);
    for (workers, rate) in [(2_usize, 100.0), (3, 1000.0)] {
        sweep.push([
            ("photos", photos.name.as_str().into()),
            ("decoder", "plain".into()),
            ("resizer", "plain".into()),
            ("encoder", "plain".into()),
            ("dtype", "f32".into()),
            ("decode_scale", "exact".into()),
            ("workers", workers.into()),
            ("threads", 1_usize.into()),
            ("batch", 4_usize.into()),
            ("status", "ok".into()),
            ("images_per_second", rate.into()),
        ]);
    }
    let next = |context| {
        sweep.write_csv(folder.path(), &context).unwrap();
        // The interval of fewer rounds may hold a tenfold rate.
        let options = DiagnoseOptions { rounds: 5, most_rounds: 5, remedies: true, ..options() };
        let options = DiagnoseOptions { folder: Some(folder.path().to_owned()), ..options };
        let diagnosis = diagnose_set(&bench, &photos, &bench.rig.base, &options).unwrap();
        let table = &diagnosis.remedies;
        let row = (0..table.len()).find(|&row| table.get(row, "change").to_string() == "workers 3").unwrap();
        (table.number(row, "measured"), table.number(row, "measured_times"), diagnosis.verdict.next.concat())
    };
    let (measured, times, said) = next(bench.rig.context());
    assert_eq!((measured, times), (Some(1000.0), Some(10.0)));
    assert!(said.contains("workers 3: measured 10.00x before (worker_sweep.csv)"), "{said}");
    let (measured, _, said) = next(foveate_lab::Context { host: "another machine".to_owned(), ..bench.rig.context() });
    assert!(measured.is_none() && !said.contains("worker_sweep.csv"), "{said}");
}
