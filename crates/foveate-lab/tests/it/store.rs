//! Photos in an object store: its fit, and the remedy of more requests in flight.

use crate::common::{Bench, FakeRig};
use foveate_lab::diagnose::{self, DiagnoseOptions, Diagnosis, Verify};
use foveate_lab::profile::storage;
use foveate_lab::{Calibration, Output, PhotoSet, Setting, Table};

/// Milliseconds of a request.
const LATENCY: f64 = 20.0;

/// Returns a bench whose photos are in a store, with this many requests in flight.
fn bench(requests: usize) -> Bench {
    let rig = FakeRig { store: Some(LATENCY), ..FakeRig::new() };
    Bench::new(FakeRig { base: Setting { requests, ..rig.base.clone() }, ..rig })
}

/// Returns the requests in flight and another column of a store's rows.
fn by_requests(table: &Table, column: &str) -> Vec<(f64, f64)> {
    let number = |row, column| table.number(row, column).unwrap_or_default();
    (0..table.len()).map(|row| (number(row, "requests"), number(row, column))).collect()
}

#[test]
fn a_store_is_fitted_from_single_requests_and_several_at_a_time() {
    let bench = bench(8);
    let photos = PhotoSet::load(&bench.rig, 100).unwrap();
    let table = storage(std::slice::from_ref(&photos)).unwrap();
    assert_eq!(table.get(0, "place").to_string(), "store");
    // Sleeping may take longer than requested, never less.
    assert!(table.number(0, "latency_ms").unwrap() >= LATENCY);
    for (requests, rate) in by_requests(&table, "images_per_second") {
        // The clock may start a moment after the first requests.
        let most = requests * 1e3 / LATENCY * 1.02;
        assert!(rate > 0.0 && rate <= most, "{requests}: {rate} images/s");
    }
    let numbers: Vec<f64> = by_requests(&table, "fitted_images_per_second").iter().map(|(n, _)| *n).collect();
    assert_eq!(numbers[..3], [1.0, 4.0, 16.0]);
}

#[test]
fn a_job_reads_with_the_requests_of_its_setting() {
    let bench = bench(3);
    let lab = bench.lab();
    let photos = PhotoSet::load(lab.rig, 100).unwrap();
    let encoder = lab.encoder(&bench.rig.base).unwrap();
    // Two turns and a part: rows that are not those of the photo in memory would be noticed.
    for (setting, with) in [(bench.rig.base.clone(), "3"), (Setting { requests: 5, ..bench.rig.base.clone() }, "5")] {
        let before = bench.rig.work.lock().unwrap().of_backend("store", with);
        assert_eq!(lab.run(&setting, &photos, 40, &encoder, &Output::Discard).unwrap().report.rows, 40);
        assert_eq!(bench.rig.work.lock().unwrap().of_backend("store", with) - before, 40);
    }
    let calibration = Calibration::measure(&lab, &photos, std::slice::from_ref(&bench.rig.base)).unwrap();
    let prediction = calibration.predict(&bench.rig.base).unwrap();
    assert_eq!(prediction.limit, "storage");
    assert!(prediction.images_per_second <= 3.0 * 1e3 / LATENCY, "Little's law: {prediction:?}");
}

fn diagnosis(bench: &Bench, verify: Option<Verify>) -> Diagnosis {
    let photos = PhotoSet::load(&bench.rig, 100).unwrap();
    let options = DiagnoseOptions { rounds: 2, most_rounds: 2, seconds: 0.0, verify, ..DiagnoseOptions::new("file") };
    diagnose::run(&bench.lab(), &photos, &bench.rig.base, &options).unwrap()
}

fn requests_row(diagnosis: &Diagnosis) -> (String, Option<f64>, Option<f64>) {
    let table = &diagnosis.remedies;
    let row = (0..table.len()).find(|&row| table.get(row, "remedy").to_string() == "requests in flight").unwrap();
    (table.get(row, "status").to_string(), table.number(row, "times"), table.number(row, "measured"))
}

#[test]
fn more_requests_in_flight_are_predicted_and_run() {
    let bench = bench(1);
    let verified = diagnosis(&bench, Some(Verify::Named("requests in flight".to_owned())));
    let (status, times, measured) = requests_row(&verified);
    assert_eq!(status, "ok");
    assert!(times.unwrap() > 2.0 && measured.unwrap() > 0.0, "{verified:?}");
    let change = verified.verified.unwrap().change;
    let requests: u64 = change.strip_prefix("requests ").unwrap().parse().unwrap();
    let read = bench.rig.work.lock().unwrap().of_backend("store", &requests.to_string());
    assert!(requests >= 4 && read > 0, "{change}: {read} objects were read so");
}

#[test]
fn where_requests_are_enough_no_more_are_advised() {
    let (status, ..) = requests_row(&diagnosis(&bench(1024), None));
    assert!(status.starts_with("n/a (already done: 1024 requests in flight read as much"), "{status}");
    let (status, ..) = requests_row(&diagnosis(&Bench::new(FakeRig::new()), None));
    assert_eq!(status, "n/a (files are read by reader threads)");
}
