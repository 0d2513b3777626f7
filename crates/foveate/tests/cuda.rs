//! The binary on CUDA devices: on the project's emulator, whose streams run late and in any order that is legal, so that
//! a copy or a forward that waits for too little gives wrong vectors. Without CUDA compiled in (`-F cuda,nvjpeg`),
//! or a C++ compiler to build the emulator with, there is nothing to run, and that is said.
#![cfg(unix)]
// A test's panic is its report, and what it skips it says.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{CONFORMANCE, PHOTOS, assert_same_tree, csv, embed, foveate, npy_rows, run};

/// Width of the tiny model's vectors.
const DIM: usize = 64;

/// Where the emulated libraries are, if the backend `name` of this build works with them.
fn emulator(name: &str) -> Option<PathBuf> {
    let libraries = foveate_cuda_emulator::folder().map_err(|reason| println!("skipped: {reason}")).ok()?;
    let report = run(foveate().args(["doctor", "--json"]).env("LD_LIBRARY_PATH", &libraries)).json();
    let rows = report["backends"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == name).unwrap();
    let devices = row["devices"].as_array().unwrap();
    if !devices.iter().any(|device| device == "cuda:0") {
        println!("skipped: no CUDA in {name}: {row}");
        return None;
    }
    Some(libraries)
}

/// `foveate embed` on emulated devices.
fn emulated(output: &Path, libraries: &Path, order: &str) -> Command {
    let mut command = embed(output);
    command.env("LD_LIBRARY_PATH", libraries).env("CUDA_EMULATOR_ORDER", order).env("CUDA_EMULATOR_DEVICES", "2");
    command.env_remove("FOVEATE_CUDA_LIB").args(["--batch", "3", "--workers", "2"]);
    command
}

fn worst_cosine(left: &[Vec<f32>], right: &[Vec<f32>]) -> f64 {
    assert_eq!(left.len(), right.len());
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let cosine = |(a, b): (&Vec<f32>, &Vec<f32>)| dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    left.iter().zip(right).map(cosine).fold(1.0, f64::min)
}

#[test]
fn vectors_are_the_cpus_whatever_order_the_streams_run_in() {
    let Some(libraries) = emulator("fused") else { return };
    let folder = tempfile::tempdir().unwrap();
    let reference = folder.path().join("cpu.npy");
    // Good and bad images: enough for every batch size up to three, and for more batches than are under way at once.
    let inputs = [CONFORMANCE, PHOTOS, "--limit", "20"];
    run(embed(&reference).args(inputs)).expect(0);
    let expected = npy_rows(&reference, DIM);
    for (dtype, order, least) in [
        ("f32", "late", 1.0 - 1e-6),
        ("f32", "random:1", 1.0 - 1e-6),
        ("f16", "eager", 0.999),
        ("bf16", "random:3", 0.999),
    ] {
        let out = folder.path().join(format!("{dtype}-{order}.npy"));
        let args = ["--device", "cuda:0", "--dtype", dtype];
        run(emulated(&out, &libraries, order).args(inputs).args(args)).expect(0);
        let worst = worst_cosine(&npy_rows(&out, DIM), &expected);
        assert!(worst >= least, "{dtype}, {order}: {worst}");
        let failures = |npy: &Path| csv(&npy.with_extension("failures.csv"));
        assert_eq!(failures(&out), failures(&reference), "{dtype}, {order}");
    }
}

#[test]
fn any_number_of_devices_gives_the_same_bytes() {
    let Some(libraries) = emulator("fused") else { return };
    let folder = tempfile::tempdir().unwrap();
    let outputs = ["cuda:0", "cuda:0,cuda:1", "cuda:1,cuda:0,cuda:0"].map(|devices| {
        let out = folder.path().join(devices.replace([':', ','], "-"));
        let args = ["--part-items", "8", "--device", devices];
        run(emulated(&out, &libraries, "random:7").args([CONFORMANCE, PHOTOS, "--limit", "24"]).args(args)).expect(0);
        out
    });
    assert_same_tree(&outputs[0], &outputs[1]);
    assert_same_tree(&outputs[0], &outputs[2]);
}

#[test]
fn batches_that_are_decoded_on_the_device_have_the_outcomes_of_the_cpu() {
    let (Some(_), Some(libraries)) = (emulator("fused"), emulator("nvjpeg")) else { return };
    let folder = tempfile::tempdir().unwrap();
    let reference = folder.path().join("cpu.npy");
    run(embed(&reference).args([PHOTOS, CONFORMANCE])).expect(0);
    for (devices, order) in [("cuda:0", "late"), ("cuda:0,cuda:1", "random:5")] {
        let out = folder.path().join(format!("{}-{order}.npy", devices.len()));
        let args = ["--device", devices, "--decoder", "nvjpeg"];
        run(emulated(&out, &libraries, order).args([PHOTOS, CONFORMANCE]).args(args)).expect(0);
        let failures = |npy: &Path| csv(&npy.with_extension("failures.csv"));
        assert_eq!(failures(&out), failures(&reference), "{devices}, {order}");
        let worst = worst_cosine(&npy_rows(&out, DIM), &npy_rows(&reference, DIM));
        assert!(worst >= 0.99, "{devices}, {order}: {worst}");
    }
}

#[test]
fn a_device_that_is_not_there_is_said_in_one_line() {
    let Some(libraries) = emulator("fused") else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("x.npy");
    let ran = run(emulated(&out, &libraries, "late").args([PHOTOS, "--device", "cuda:2"])).expect(2);
    assert!(ran.stderr.contains("device cuda:2 unavailable"), "{}", ran.stderr);
    let small = run(emulated(&out, &libraries, "late")
        .env("CUDA_EMULATOR_MEMORY", "1000000")
        .args([PHOTOS, "--device", "cuda:0"]))
    .expect(1);
    let said = |text: &str| text.lines().filter(|line| line.starts_with("error")).count();
    assert_eq!((said(&ran.stderr), said(&small.stderr)), (1, 1), "{}{}", ran.stderr, small.stderr);
    assert!(!out.exists());
}
