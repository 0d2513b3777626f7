//! Photos that their source reads on the way, as those in containers and object stores.

use crate::common::{Bench, Costs, FakeRig};
use foveate_lab::profile::{self, ProfileOptions};
use foveate_lab::{Calibration, Output, PhotoSet, Setting};

/// Returns a bench whose source delivers the photos, at these milliseconds each.
fn bench(read: f64) -> Bench {
    let costs = Costs { read, forward: 0.1, ..Costs::default() };
    Bench::new(FakeRig { delivers: true, ..FakeRig::with_costs(costs) })
}

#[test]
fn every_turn_reads_the_source_again_and_gives_the_same_photos() {
    let mut bench = bench(0.0);
    bench.rig.photos[5] = b"not a photo".to_vec();
    let lab = bench.lab();
    let photos = PhotoSet::load(lab.rig, 100).unwrap();
    assert_eq!((photos.photos.len(), photos.left_out.len()), (15, 1));
    let encoder = lab.encoder(&bench.rig.base).unwrap();
    let before = bench.rig.work.lock().unwrap().of("read");
    // Two turns and a part: rows that are not those of the photo in memory would be noticed.
    for workers in [0, 2] {
        let setting = Setting { workers, ..bench.rig.base.clone() };
        assert_eq!(lab.run(&setting, &photos, 40, &encoder, &Output::Discard).unwrap().report.rows, 40);
    }
    let read = bench.rig.work.lock().unwrap().of("read") - before;
    assert_eq!(read, 2 * (16 + 16 + 11), "the photo that does not decode is read, and passed over");
}

#[test]
fn as_many_photos_as_asked_for_are_read() {
    let bench = bench(0.0);
    assert_eq!(PhotoSet::load(&bench.rig, 7).unwrap().photos.len(), 7);
    assert_eq!(bench.rig.work.lock().unwrap().of("read"), 7);
}

#[test]
fn the_storage_limits_what_the_model_predicts() {
    let bench = bench(20.0);
    let lab = bench.lab();
    let photos = PhotoSet::load(lab.rig, 100).unwrap();
    let base = bench.rig.base.clone();
    let calibration = Calibration::measure(&lab, &photos, std::slice::from_ref(&base)).unwrap();
    let storage = calibration.measured(&base).unwrap().storage.unwrap();
    // Sleeping may take longer than requested, never less.
    assert!(storage.images_per_second(photos.mean_bytes()).unwrap() <= 1.0 / 20e-3, "{storage:?}");
    let prediction = calibration.predict(&base).unwrap();
    assert_eq!(prediction.limit, "storage");
    assert!(prediction.images_per_second <= 50.0, "{prediction:?}");
}

#[test]
fn a_profile_tells_what_the_storage_delivers() {
    let profiled = |bench: &Bench| {
        let lab = bench.lab();
        let photos = PhotoSet::load(lab.rig, 100).unwrap();
        let options = ProfileOptions {
            settings: vec![bench.rig.base.clone()],
            images: Some(32),
            normalize: false,
            project: 1000,
            trace: None,
            sink: "file".to_owned(),
        };
        let table = profile::run(&lab, std::slice::from_ref(&photos), &options).unwrap();
        let mut text = Vec::new();
        profile::print(&table, &mut text).unwrap();
        (table, photos.mean_bytes(), String::from_utf8(text).unwrap())
    };
    let (table, bytes, text) = profiled(&bench(5.0));
    let rate = table.number(0, "storage_mb_per_second").unwrap();
    assert!(rate > 0.0 && rate <= bytes / 5e-3 / 1e6, "{rate} MB/s of {bytes} bytes in 5 ms");
    assert!(text.contains("the storage delivers"), "{text}");
    let (table, _, text) = profiled(&Bench::new(FakeRig::new()));
    assert_eq!(table.number(0, "storage_mb_per_second"), None);
    assert!(!text.contains("the storage delivers"), "{text}");
}
