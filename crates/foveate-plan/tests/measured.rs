//! Compares a measured machine's prediction with the walls.

use foveate_plan::{Bottleneck, Configuration, ForwardCost, Measured, Place, Prediction, StageCost, Storage};

/// A machine whose cores run everything.
fn machine(cores: u32, decode: f64, forward: f64) -> Measured {
    let forward = |threads: u32, batch: u32| ForwardCost {
        threads,
        batch,
        seconds: (0.001 + forward * f64::from(batch)) / f64::from(threads),
        cpu_seconds: 0.001 + forward * f64::from(batch),
    };
    Measured {
        cores,
        bytes_per_image: 3e5,
        bytes_per_vector: 1536.0,
        stages: vec![
            StageCost::of_total("read", Place::Reader, 0.0005, 0.0001, 1),
            StageCost::of_total("decode", Place::Worker, decode, decode, 1),
            StageCost::of_total("serialize", Place::Writer, 0.0001, 0.0001, 1),
        ],
        forward: vec![forward(1, 8), forward(1, 64), forward(2, 8), forward(2, 64)],
        storage: None,
        interference: 0.0,
    }
}

const USUAL: Configuration =
    Configuration { readers: 2, workers: 2, batch: 32, prefetch: 1, forward_threads: 1, encoders: 1 };

#[track_caller]
fn assert_close(ours: f64, theirs: f64, relative: f64) {
    assert!((ours / theirs - 1.0).abs() <= relative, "{ours} against {theirs}");
}

#[test]
fn with_cores_enough_the_three_walls_say_the_same() {
    for (decode, forward) in [(0.0044, 0.058), (0.03, 0.03), (0.02, 0.005), (0.001, 0.0001)] {
        let measured = machine(64, decode, forward);
        for (workers, batch) in [(1, 8), (4, 32), (16, 64)] {
            let configuration = Configuration { workers, batch, encoders: 2, ..USUAL };
            let state = measured.walls(&configuration).unwrap().at(batch).unwrap();
            assert_close(state.images_per_second, measured.predict(&configuration).unwrap().images_per_second, 1e-9);
        }
    }
}

#[test]
fn a_slow_store_is_the_bound_at_its_own_rate() {
    for (link, images_per_second) in [(None, 200.0), (Some(45e6), 150.0), (Some(15e6), 50.0)] {
        let storage = Storage { link_bytes_per_second: link, ..Storage::remote(0.05, 10e6, 16) };
        let measured = Measured { storage: Some(storage), ..machine(8, 0.002, 0.001) };
        let predicted = measured.predict(&USUAL).unwrap();
        assert_eq!(predicted.bound, Bottleneck::Stage { stage: "storage".into() });
        assert_close(predicted.images_per_second, images_per_second, 1e-9);
    }
}

#[test]
fn a_profile_and_its_answers_survive_a_file() {
    let measured = machine(2, 0.0044, 0.058);
    let prediction = measured.predict(&USUAL).unwrap();
    let text = serde_json::to_string(&(&measured, &USUAL, &prediction)).unwrap();
    let read: (Measured, Configuration, Prediction) = serde_json::from_str(&text).unwrap();
    assert_eq!(read, (measured, USUAL, prediction));
}
