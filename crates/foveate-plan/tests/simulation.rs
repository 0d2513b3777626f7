//! Compares the pipeline's simulation with closed forms and the analytic model, and checks its own invariants.

#![allow(clippy::unwrap_used)] // helpers of tests may panic, too

use foveate_plan::{
    Bottleneck, Configuration, ForwardCost, Limits, LinearStep, Measured, Place, Service, SimForward, SimStage,
    Simulation, StageCost, Step,
};
use proptest::prelude::*;

const ROOMY: Limits = Limits { read_ahead_images: 64, read_ahead_bytes: 1e12, batches: 8, write_ahead: 4 };

fn stage(threads: u32, seconds: Service) -> SimStage {
    SimStage { threads, seconds, on_core: 1.0 }
}

/// All times constant, one core per thread: read 1 ms, prepare 2 ms, forward 6 ms for 4, write 0.1 ms.
fn tandem() -> Simulation {
    Simulation {
        images: 4_000,
        batch: 4,
        read: stage(1, Service::Constant(0.001)),
        prepare: stage(1, Service::Constant(0.002)),
        forward: SimForward {
            encoders: 1,
            step: Step::Linear(LinearStep { overhead: 0.002, per_item: 0.001 }),
            variation: Service::Constant(1.0),
            cores: 1.0,
        },
        write: stage(1, Service::Constant(0.0001)),
        bytes: Service::Constant(1e5),
        limits: ROOMY,
        cores: None,
        interference: 0.0,
        seed: 1,
        timeline: None,
    }
}

fn steady(simulation: &Simulation) -> f64 {
    simulation.run().unwrap().steady_images_per_second
}

#[track_caller]
fn assert_close(ours: f64, theirs: f64, relative: f64) {
    assert!((ours / theirs - 1.0).abs() <= relative, "{ours} against {theirs}");
}

#[test]
fn a_line_without_variation_goes_as_its_slowest_stage() {
    assert_close(steady(&tandem()), 500.0, 1e-9);
    let two_workers = Simulation { prepare: stage(2, Service::Constant(0.002)), ..tandem() };
    assert_close(steady(&two_workers), 4.0 / 0.006, 1e-9);
    let two_encoders = Simulation { forward: SimForward { encoders: 2, ..tandem().forward }, ..two_workers };
    assert_close(steady(&two_encoders), 1000.0, 1e-9);
    let slow_writer = Simulation { write: stage(1, Service::Constant(0.01)), ..tandem() };
    assert_close(steady(&slow_writer), 100.0, 1e-9);
    // From the first image read to the last written: the first batch is read and prepared, then prepared at 2 ms.
    let outcome = tandem().run().unwrap();
    assert_close(outcome.seconds, 0.001 + 4_000.0 * 0.002 + 0.006 + 0.0004, 1e-9);
}

#[test]
fn in_turn_on_one_thread_everything_adds_up() {
    let outcome = Simulation { prepare: stage(0, Service::Constant(0.002)), ..tandem() }.run().unwrap();
    assert_close(outcome.seconds, 4_000.0 * (0.001 + 0.002 + 0.0015 + 0.0001), 1e-9);
    assert_close(outcome.stages.iter().map(|stage| stage.utilization).sum(), 1.0, 1e-9);
}

/// Two exponential servers and `k` places between them, where a finished image waits in its server for a place. The
/// second server has work unless none of the `k + 2` is there, so a birth-death chain on 0..=k+2 gives the throughput.
#[test]
fn two_exponential_servers_and_a_small_queue_are_the_markov_chain() {
    for (k, ratio) in [(1, 1.0), (4, 1.0), (2, 0.5), (3, 2.0)] {
        let simulation = Simulation {
            images: 400_000,
            batch: 1,
            read: stage(1, Service::Exponential(1.0)),
            prepare: stage(1, Service::Exponential(ratio)),
            forward: SimForward {
                step: Step::Linear(LinearStep { overhead: 1e-9, per_item: 0.0 }),
                ..tandem().forward
            },
            write: stage(1, Service::Constant(0.0)),
            limits: Limits { read_ahead_images: k, batches: 1000, ..ROOMY },
            ..tandem()
        };
        // State n has weight (service time ÷ arrival time)^n.
        let weights: Vec<f64> = (0..=k as i32 + 2).map(|n| f64::powi(ratio, n)).collect();
        let throughput = (1.0 - weights[0] / weights.iter().sum::<f64>()) / ratio;
        assert_close(steady(&simulation), throughput, 0.01);
    }
}

#[test]
fn variation_and_tiny_queues_cost_throughput() {
    let varied = Simulation {
        images: 40_000,
        prepare: stage(2, Service::Exponential(0.0028)),
        forward: SimForward { variation: Service::Exponential(1.0), ..tandem().forward },
        ..tandem()
    };
    let tiny = Limits { read_ahead_images: 1, batches: 2, write_ahead: 1, ..ROOMY };
    let (roomy, tiny) = (steady(&varied), steady(&Simulation { limits: tiny, ..varied.clone() }));
    let constant = Simulation { prepare: stage(2, Service::Constant(0.0028)), forward: tandem().forward, ..varied };
    assert_close(steady(&constant), 4.0 / 0.006, 1e-9);
    assert!(roomy < 0.99 * steady(&constant), "{roomy}");
    assert!(tiny < 0.8 * roomy, "{tiny} against {roomy}");
}

#[test]
fn a_queue_bounded_in_bytes_holds_fewer_large_images() {
    let fast_reader = Simulation { read: stage(4, Service::Constant(0.0001)), ..tandem() };
    let most = |read_ahead_bytes| {
        let limits = Limits { read_ahead_bytes, ..ROOMY };
        Simulation { limits, ..fast_reader.clone() }.run().unwrap().queues[0].most
    };
    assert_eq!(most(1e12), 8 * 4 - 1, "bounded by the batches' buffers; one is with the worker");
    assert_eq!(most(5.5e5), 5);
    assert_eq!(most(1.0), 1, "a single one passes whatever it weighs");
}

#[test]
fn the_timeline_is_what_the_threads_did() {
    let outcome = Simulation { images: 40, timeline: Some((0.0, 1e9)), ..tandem() }.run().unwrap();
    for (place, use_) in Place::ALL.into_iter().zip(&outcome.stages) {
        let spans: Vec<_> = outcome.timeline.iter().filter(|span| span.place == place).collect();
        let busy: f64 = spans.iter().map(|span| span.end - span.start).sum();
        assert!((busy / outcome.seconds - use_.utilization).abs() < 1e-9, "{place:?}");
        assert!(spans.windows(2).all(|pair| pair[0].end <= pair[1].start + 1e-12), "one thing at a time");
        let expected = if matches!(place, Place::Reader | Place::Worker) { 40 } else { 10 };
        assert_eq!(spans.len(), expected);
    }
    let cut = Simulation { images: 40, timeline: Some((0.02, 0.03)), ..tandem() }.run().unwrap();
    assert!(!cut.timeline.is_empty() && cut.timeline.iter().all(|span| span.start < 0.03 && span.end > 0.02));
    let mut lanes: Vec<String> = cut.timeline.iter().map(|span| span.lane()).collect();
    lanes.dedup();
    assert_eq!(lanes, ["reader 1", "worker 1", "encoder", "writer"]);
}

#[test]
fn seeds_decide_everything() {
    let random = |seed| Simulation { prepare: stage(3, Service::Exponential(0.004)), seed, ..tandem() };
    assert_eq!(random(7).run(), random(7).run());
    assert_ne!(random(7).run().unwrap().seconds, random(8).run().unwrap().seconds);
}

#[test]
fn nonsense_is_refused() {
    for broken in [
        Simulation { images: 0, ..tandem() },
        Simulation { batch: 0, ..tandem() },
        Simulation { read: stage(0, Service::Constant(0.0)), ..tandem() },
        Simulation { write: stage(1, Service::Constant(f64::NAN)), ..tandem() },
        Simulation { prepare: SimStage { on_core: 1.5, ..tandem().prepare }, ..tandem() },
        Simulation { cores: Some(0), ..tandem() },
        Simulation { limits: Limits { batches: 0, ..ROOMY }, ..tandem() },
        Simulation { forward: SimForward { encoders: 0, ..tandem().forward }, ..tandem() },
        Simulation { forward: SimForward { variation: Service::Constant(0.0), ..tandem().forward }, ..tandem() },
    ] {
        assert!(broken.run().is_err(), "{broken:?}");
    }
}

/// A machine whose cores run everything.
fn machine(cores: u32, decode: f64, forward: f64) -> Measured {
    let forward = |threads: u32, batch: u32| ForwardCost {
        threads,
        batch,
        seconds: (0.001 + forward * f64::from(batch)) / f64::from(threads),
        cpu_seconds: 0.001 + forward * f64::from(batch),
        samples: Vec::new(),
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

#[test]
fn without_variation_it_is_the_analytic_model() {
    let mut compared = 0;
    for (cores, decode, forward) in
        [(2, 0.0044, 0.058), (2, 0.03, 0.03), (4, 0.02, 0.01), (2, 0.02, 0.005), (16, 0.01, 0.02)]
    {
        let measured = machine(cores, decode, forward);
        for workers in [0, 1, 2, 4] {
            for (batch, forward_threads) in [(8, 1), (32, 1), (8, 2), (64, 2)] {
                let configuration =
                    Configuration { readers: 2, workers, batch, prefetch: 1, forward_threads, encoders: 1 };
                let predicted = measured.predict(&configuration).unwrap();
                let simulated = measured.simulation(&configuration, 40 * u64::from(batch), 1).unwrap().run().unwrap();
                let ratio = simulated.steady_images_per_second / predicted.images_per_second;
                assert!((0.98..1.02).contains(&ratio), "{ratio:.3}: {configuration:?} {measured:?}");
                let short = predicted.images_per_second_over(simulated.images) / simulated.images_per_second;
                assert!((0.98..1.02).contains(&short), "{short:.3}: {configuration:?} {measured:?}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 80);
}

#[test]
fn with_cores_enough_the_three_walls_say_the_same() {
    for (decode, forward) in [(0.0044, 0.058), (0.03, 0.03), (0.02, 0.005), (0.001, 0.0001)] {
        let measured = machine(64, decode, forward);
        for (workers, batch) in [(1, 8), (4, 32), (16, 64)] {
            let configuration =
                Configuration { readers: 2, workers, batch, prefetch: 1, forward_threads: 1, encoders: 2 };
            let state = measured.walls(&configuration).unwrap().at(batch).unwrap();
            assert_close(state.images_per_second, measured.predict(&configuration).unwrap().images_per_second, 1e-9);
        }
        let fit = measured.step_fit(1).unwrap();
        assert_close(fit.step.overhead, 0.001, 1e-6);
        assert_close(fit.step.per_item, forward, 1e-6);
    }
}

#[test]
fn a_profile_and_its_answers_survive_a_file() {
    let measured = machine(2, 0.0044, 0.058);
    let configuration =
        Configuration { readers: 2, workers: 1, batch: 32, prefetch: 1, forward_threads: 2, encoders: 1 };
    let prediction = measured.predict(&configuration).unwrap();
    let simulation = measured.simulation(&configuration, 64, 1).unwrap();
    let text = serde_json::to_string(&(&measured, &configuration, &prediction, &simulation)).unwrap();
    assert_eq!(
        serde_json::from_str::<(Measured, Configuration, foveate_plan::Prediction, Simulation)>(&text).unwrap(),
        (measured, configuration, prediction, simulation)
    );
}

#[test]
fn a_slow_store_is_simulated_as_its_requests_in_flight() {
    let store =
        foveate_plan::Storage { link_bytes_per_second: Some(45e6), ..foveate_plan::Storage::remote(0.05, 10e6, 16) };
    let configuration =
        Configuration { readers: 2, workers: 2, batch: 32, prefetch: 1, forward_threads: 1, encoders: 1 };
    for link_bytes_per_second in [None, Some(45e6), Some(15e6)] {
        let storage = Some(foveate_plan::Storage { link_bytes_per_second, ..store });
        let measured = Measured { storage, ..machine(8, 0.002, 0.001) };
        let predicted = measured.predict(&configuration).unwrap();
        assert_eq!(predicted.bound, Bottleneck::Stage { stage: "storage".into() });
        let outcome = measured.simulation(&configuration, 6_400, 1).unwrap().run().unwrap();
        assert_close(outcome.steady_images_per_second, predicted.images_per_second, 0.01);
    }
}

#[test]
fn the_stage_that_binds_is_the_one_that_is_busy() {
    let configuration =
        Configuration { readers: 2, workers: 2, batch: 32, prefetch: 1, forward_threads: 1, encoders: 1 };
    for (decode, forward, expected) in [(0.002, 0.03, "forward"), (0.09, 0.01, "workers")] {
        let measured = machine(8, decode, forward);
        assert_eq!(measured.predict(&configuration).unwrap().bound, Bottleneck::Stage { stage: expected.into() });
        let outcome = measured.simulation(&configuration, 3_200, 1).unwrap().run().unwrap();
        let busiest = outcome.stages.iter().max_by(|a, b| a.utilization.total_cmp(&b.utilization)).unwrap();
        assert_eq!(busiest.name, expected);
        assert!(busiest.utilization > 0.9);
    }
}

#[test]
fn drawn_from_samples_it_has_the_measured_mean() {
    let mut measured = machine(8, 0.02, 0.001);
    measured.stages[1].samples = vec![0.001, 0.002, 0.004, 0.05];
    let configuration =
        Configuration { readers: 2, workers: 2, batch: 32, prefetch: 1, forward_threads: 1, encoders: 1 };
    let outcome = measured.simulation(&configuration, 64_000, 3).unwrap().run().unwrap();
    assert_close(outcome.steady_images_per_second, 100.0, 0.02);
}

fn any_service() -> impl Strategy<Value = Service> {
    prop_oneof![
        (0.0..0.01).prop_map(Service::Constant),
        (0.0001..0.01).prop_map(Service::Exponential),
        proptest::collection::vec(0.0..0.02, 1..6).prop_map(Service::Samples),
    ]
}

fn any_simulation() -> impl Strategy<Value = Simulation> {
    let services = (any_service(), any_service(), any_service());
    let threads = (1u32..5, 0u32..6, 1u32..4, 1u32..40);
    let limits = (1u32..20, 1e5..1e7, 1u32..5, 1u32..4);
    (services, threads, limits, proptest::option::of(1u32..6), 0.0..2.0, 1u64..400, any::<u64>()).prop_map(
        |(services, threads, limits, cores, forward_cores, images, seed)| Simulation {
            images,
            batch: threads.3,
            read: SimStage { threads: threads.0, seconds: services.0, on_core: 0.3 },
            prepare: stage(threads.1, services.1),
            forward: SimForward { encoders: threads.2, cores: forward_cores, ..tandem().forward },
            write: stage(1, services.2),
            bytes: Service::Exponential(3e5),
            limits: Limits {
                read_ahead_images: limits.0,
                read_ahead_bytes: limits.1,
                batches: limits.2,
                write_ahead: limits.3,
            },
            cores,
            interference: 0.1,
            seed,
            timeline: Some((0.0, 1e9)),
        },
    )
}

proptest! {
    #[test]
    fn every_image_is_stored_and_nobody_is_more_than_busy(simulation in any_simulation()) {
        let outcome = simulation.run().unwrap();
        prop_assert_eq!(outcome.images, simulation.images);
        for stage in &outcome.stages {
            prop_assert!(stage.utilization <= 1.0 + 1e-9 && stage.blocked <= 1.0 + 1e-9);
            prop_assert!(stage.utilization + stage.blocked + stage.starved <= 1.0 + 1e-9);
        }
        for queue in &outcome.queues {
            prop_assert!(queue.most <= queue.capacity && queue.occupancy <= 1.0 + 1e-9);
        }
        prop_assert!(outcome.cores_utilization.is_none_or(|utilization| utilization <= 1.0 + 1e-9));
        for place in [Place::Reader, Place::Worker] {
            let mut images: Vec<u64> =
                outcome.timeline.iter().filter(|span| span.place == place).filter_map(|span| span.image).collect();
            images.sort_unstable();
            prop_assert!(images.iter().copied().eq(0..simulation.images), "each exactly once");
        }
        for place in [Place::Encoder, Place::Writer] {
            let batches = outcome.timeline.iter().filter(|span| span.place == place);
            let mut batches: Vec<u64> = batches.map(|span| span.batch).collect();
            batches.sort_unstable();
            prop_assert!(batches.iter().copied().eq(0..simulation.images.div_ceil(u64::from(simulation.batch))));
        }
    }

    #[test]
    fn a_worker_more_never_hurts_where_everybody_has_a_core(simulation in any_simulation(), workers in 1u32..6) {
        let with = |threads| {
            let prepare = SimStage { threads, ..simulation.prepare.clone() };
            Simulation { prepare, cores: None, interference: 0.0, ..simulation.clone() }.run().unwrap().seconds
        };
        // Images may be prepared in another order, and the image that a batch waits for may come later, but never by
        // more than one image.
        prop_assert!(with(workers + 1) <= with(workers) + 0.02, "{} {}", with(workers + 1), with(workers));
    }
}
