//! Experiments beside a stand-in for an accelerator: the stages before it are real, and its own time is known.

use crate::common::{Bench, Costs, FakeRig};
use foveate_encode::DType;
use foveate_lab::diagnose::{Climb, DiagnoseOptions};
use foveate_lab::profile::{self, ProfileOptions};
use foveate_lab::{Lab, PhotoSet, Rig as _, StandIn, StandInRig, Table};

fn beside(stand_in: &str, rig: &FakeRig) -> StandInRig {
    StandInRig::new(Box::new(rig.clone()), stand_in.parse::<StandIn>().unwrap()).unwrap()
}

fn lab<'a>(bench: &'a Bench, rig: &'a StandInRig) -> Lab<'a> {
    Lab { rig, ..bench.lab() }
}

#[test]
fn the_rig_has_one_encoder_with_its_name_and_curve_and_the_models_shape() {
    let rig = beside("t4-f16", &FakeRig::new());
    let base = rig.base();
    assert_eq!((base.encoder.as_str(), base.dtype), ("stand-in t4-f16", DType::F16));
    assert_eq!(rig.encoders().into_iter().map(|encoder| encoder.name).collect::<Vec<_>>(), ["stand-in t4-f16"]);
    let device = "stand-in t4-f16: 10.47+0.8304·n ms, fixed part assumed";
    assert_eq!(rig.context().device, device);
    assert!(!rig.context().is_on_cpu());
    let encoder = rig.open_encoder(&base).unwrap();
    let real = FakeRig::new().open_encoder(&FakeRig::new().base).unwrap();
    assert_eq!((encoder.spec().input, encoder.spec().dim), (real.spec().input, real.spec().dim));
    assert_eq!(encoder.spec().device, device);
    let other = foveate_lab::Setting { dtype: DType::Bf16, ..base };
    let refused = rig.open_encoder(&other).map(drop).unwrap_err().to_string();
    assert!(refused.contains("is for f16, not bf16"), "{refused}");
}

#[test]
fn a_profile_has_the_stand_ins_forward_and_real_stages_before_it() {
    let bench = Bench::new(FakeRig::with_costs(Costs { decode: 2.0, ..Costs::default() }));
    let rig = beside("3+0.5*n", &bench.rig);
    let lab = lab(&bench, &rig);
    let photos = PhotoSet::load(lab.rig, 100).unwrap();
    let options = ProfileOptions {
        settings: vec![rig.base()],
        images: Some(32),
        normalize: false,
        project: 1,
        trace: None,
        sink: "file".to_owned(),
    };
    let table = profile::run(&lab, &[photos], &options).unwrap();
    let of = |stage: &str, column: &str| {
        let row = (0..table.len()).find(|&row| table.get(row, "stage").to_string() == stage).unwrap();
        table.number(row, column).unwrap()
    };
    // The device's clock does not depend on the machine: 3 ms for eight images, and half a millisecond for each.
    assert!((of("forward", "ms_per_image") - 7.0 / 8.0).abs() < 1e-6, "{}", of("forward", "ms_per_image"));
    assert!(of("decode", "ms_per_image") >= 2.0);
    let work = bench.rig.work.lock().unwrap();
    assert_eq!((work.of("forward"), work.of("decode") >= 64), (0, true), "{work:?}");
}

/// A decoder fifty times as slow as the other one, beside a device that is hardly busy.
#[test]
fn a_climb_applies_what_helps_and_diagnoses_again_until_nothing_does() {
    let mut rig = FakeRig::with_costs(Costs { decode: 5.0, ..Costs::default() });
    rig.base.batch = 4;
    rig.decoders = vec![("plain", Some(1.0)), ("quick", Some(0.02))];
    let bench = Bench::new(rig);
    let rig = beside("0+0.2*n", &bench.rig);
    let lab = lab(&bench, &rig);
    let photos = PhotoSet::load(lab.rig, 100).unwrap();
    // Long enough for more batches than the queues and the device hold.
    let options = DiagnoseOptions { rounds: 5, most_rounds: 5, seconds: 0.1, ..DiagnoseOptions::new("file") };
    let climb = Climb::run(&lab, &photos, &rig.base(), &options).unwrap();

    let [first, .., last] = &climb.steps[..] else { panic!("one step: {climb}") };
    assert_eq!(first.diagnosis.verdict.culprit, Some("decode"), "{}", first.diagnosis.verdict);
    assert_eq!(first.setting.decoder, "plain");
    assert_eq!(climb.steps[1].setting, first.diagnosis.applied.as_ref().unwrap().setting, "{climb}");
    assert!(last.diagnosis.applied.is_none() || climb.steps.len() == 8, "{climb}");
    let count = |table: &Table, step: usize| {
        (0..table.len()).filter(|&row| table.number(row, "step") == Some(step as f64)).count()
    };
    for (number, step) in climb.steps.iter().enumerate() {
        assert_eq!(count(&climb.ladder(), number), 7, "a row for each depth");
        assert_eq!(count(&climb.remedies(), number), step.diagnosis.remedies.len());
    }
    let told = climb.to_string();
    assert!(told.starts_with("step 0: bound by decode; ") && told.lines().count() == climb.steps.len(), "{told}");
}
