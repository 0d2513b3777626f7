//! The CUDA kernels, compiled for the host through the emulator's shim, compared with f64 arithmetic
//! (`kernels/kernels.cc`).
#![allow(clippy::unwrap_used)] // the lint exempts test functions, not their helpers

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::sync::OnceLock;

use foveate_testkit::{Resource, run, trials};

fn main() -> ExitCode {
    run(trials![
        kernels_for_75_agree_with_f64,
        kernels_for_80_agree_with_f64,
        without_any_one_barrier_a_kernel_is_wrong,
        the_ptx_has_the_same_kernels,
    ])
}

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

fn kernels() -> PathBuf {
    Path::new(CRATE).join("../foveate-encode-fused/kernels")
}

fn source() -> String {
    std::fs::read_to_string(kernels().join("forward.cu")).unwrap()
}

/// The test program for a compute capability, built once. Without a compiler the trial is ignored.
fn program(capability: u32) -> &'static Path {
    static PROGRAMS: [OnceLock<PathBuf>; 2] = [OnceLock::new(), OnceLock::new()];
    PROGRAMS[usize::from(capability >= 80)].get_or_init(|| build(capability))
}

fn build(capability: u32) -> PathBuf {
    let here = Path::new(CRATE);
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kernels-{capability}"));
    let mut compiler = foveate_testkit::program(Resource::Compiler, "c++");
    compiler.args(["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"]);
    compiler.arg(format!("-D__CUDA_ARCH__={capability}0")).arg("-I").arg(here.join("src")).arg("-I").arg(kernels());
    compiler.args(["grid.cc", "kernels.cc"].map(|name| here.join("src/shim").join(name)));
    compiler.arg(here.join("tests/kernels/kernels.cc")).arg("-o").arg(&out);
    let output = compiler.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    out
}

fn output_of(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

fn agrees(capability: u32) {
    let output = output_of(program(capability), &[]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.lines().count() > 100 && said.contains("attention_mma_f16"), "{said}");
}

fn kernels_for_75_agree_with_f64() {
    agrees(75);
}

fn kernels_for_80_agree_with_f64() {
    agrees(80);
}

/// The emulator detects a missing barrier, and the kernels have no unnecessary one.
fn without_any_one_barrier_a_kernel_is_wrong() {
    let program = program(80);
    let source = source();
    let is_barrier = |(_, line): &(usize, &str)| line.trim() == "__syncthreads();";
    let lines: Vec<usize> = source.lines().enumerate().filter(is_barrier).map(|(at, _)| at + 1).collect();
    assert!(!lines.is_empty());
    for line in lines {
        let output = output_of(program, &["--ignore-barrier", &line.to_string()]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.code() == Some(1) && said.contains("FAIL"), "nobody misses the barrier of line {line}");
    }
}

/// The PTX has the emulator's kernels: the same names with the same parameters.
fn the_ptx_has_the_same_kernels() {
    for (capability, elements) in [(75, &["f32", "f16"][..]), (80, &["f32", "f16", "bf16"])] {
        let file = |element| kernels().join(format!("forward.{element}.sm_{capability}.ptx.gz"));
        let listed = names(&String::from_utf8(output_of(program(capability), &["--names"]).stdout).unwrap());
        for element in elements {
            let packed = std::fs::File::open(file(element)).unwrap();
            let entries = entries(&std::io::read_to_string(flate2::read::GzDecoder::new(packed)).unwrap());
            assert!(entries.len() >= 7, "{entries:?}");
            for (name, parameters) in entries {
                assert!(name.ends_with(element) && listed.get(&name) == Some(&parameters), "{name} in {element}");
            }
        }
    }
}

/// Parses the output of `--names`: per kernel, the bytes of its parameters.
fn names(listed: &str) -> BTreeMap<String, Vec<u32>> {
    let entry = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next().unwrap().to_owned();
        (name, words.map(|bytes| bytes.parse().unwrap()).collect())
    };
    listed.lines().map(entry).collect()
}

/// Parses the same from PTX, where an entry reads `.visible .entry NAME(`, then `.param .TYPE NAME_param_0,` per
/// parameter.
fn entries(ptx: &str) -> BTreeMap<String, Vec<u32>> {
    let entry = |text: &str| {
        let (name, rest) = text.split_once('(').unwrap();
        let types = rest.split_once(')').unwrap().0.lines().filter_map(|line| line.trim().strip_prefix(".param ."));
        let bytes = |line: &str| line.split(' ').next().unwrap().trim_start_matches(char::is_alphabetic).to_owned();
        (name.to_owned(), types.map(|line| bytes(line).parse::<u32>().unwrap() / 8).collect())
    };
    ptx.split(".visible .entry ").skip(1).map(entry).collect()
}
