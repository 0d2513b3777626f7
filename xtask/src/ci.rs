//! `cargo xtask ci`: everything that must pass, as named steps that print their duration.
//!
//! All steps share the release profile and one selection of features ([`crate::selection`]), because building a
//! dependency twice costs more than most steps. The quick start, which is the README's own command, and the step
//! `features` select other features. The fuzz targets have their own flags.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::cargo::{cargo, forget_package, parsed, shell, succeed, target};
use crate::tree::copy_tree;
use crate::{
    attacks, bench_matrix, clock, examples, faults, figures, kernels, new_backend, package, pixels, readme, selection,
    setup, tidy, wheel,
};

#[derive(clap::Args)]
pub(crate) struct CiArgs {
    /// Run this step alone; repeat it for more
    #[arg(long, value_name = "STEP", value_parser = STEPS.map(|step| step.name))]
    only: Vec<String>,
    /// List the steps and stop
    #[arg(long)]
    list: bool,
    /// Long forms: fuzzing, kill and soak tests, the emulated GPU suite, every feature set, the default build's tests
    #[arg(long)]
    full: bool,
}

struct CiStep {
    name: &'static str,
    about: &'static str,
    /// True if it runs only with `--full`.
    is_long: bool,
    run: fn(Ci<'_>) -> Result<StepEnd>,
}

enum StepEnd {
    Done,
    /// It could not run here, and why.
    NotRun(&'static str),
}

#[derive(Clone, Copy)]
struct Ci<'a> {
    root: &'a Path,
    full: bool,
}

impl Ci<'_> {
    /// The arguments for a chore's long form, if the check has it.
    fn form(&self) -> &'static [&'static str] {
        if self.full { &["--full"] } else { &[] }
    }
}

const LIBRARIES: StepEnd = StepEnd::NotRun("native libraries are missing; `cargo xtask setup` installs them");

/// The program with which candle's CUDA backend is built, as its design has it.
const AS_DESIGNED: &str = "cargo build -F candle-cuda,turbojpeg";

/// Folder of the tests' output.
const LOGS: &str = "target/ci";

/// Cheap and informative steps first, then the tests, because on a slow machine the last steps are left out.
/// `newcomer`, `attacks`, `pixels` and `matrix` use what `test` builds.
const STEPS: [CiStep; 23] = [
    always("fmt", "formatting", |ci| done(cargo(ci.root).args(["fmt", "--all", "--", "--check"]))),
    always("tidy", "the architecture's rules", tidy_step),
    always("deny", "licences, bans and sources of dependencies", deny),
    always("clippy", "lints, all targets and features", clippy),
    always("features", "other sets of features compile without warnings", features),
    always("doc", "documentation without warnings", doc),
    always("package", "every published crate as its registry would get it", package_step),
    always("test", "the README's test command: all features, with overflow checks", |ci| {
        logged(ci, &readme::command(ci.root, "test")?, "test.log")
    }),
    always(
        "newcomer",
        "the README's quick start; `--full`: built in a fresh copy with nothing set up, and its tests",
        newcomer,
    ),
    always("wheel", "the Python wheel, and its tests in a fresh environment", wheel),
    always("faults", "disturbed at any call, every sink's output comes out the same", faults_step),
    always("attacks", "hostile jobs cost a worker's honest jobs none of their outcomes", attacks_step),
    always("kernels", "the committed PTX is the kernels', and fits every device", |ci| {
        ended(kernels::run(ci.root, &parsed(&["--check"])?))
    }),
    always("examples", "programs outside of the workspace that use single crates", |ci| {
        match setup::is_done(ci.root) {
            true => ended(examples::run(ci.root)),
            false => Ok(LIBRARIES),
        }
    }),
    always("backend", "CONTRIBUTING's steps add a backend that conforms", |ci| ended(new_backend::run(ci.root))),
    always("pixels", "generated files of every kind have Pillow's pixels", |ci| match pixels::missing() {
        Some(reason) => Ok(StepEnd::NotRun(reason)),
        None => ended(pixels::run(ci.root, &parsed(ci.form())?)),
    }),
    always("matrix", "every combination of backends, quickly", matrix),
    always("fuzz", "fuzz targets compile; `--full` runs them", fuzz),
    long("unchecked", "all tests as released, without overflow checks", |ci| {
        logged(ci, "cargo xtask test --unchecked", "unchecked.log")
    }),
    long("release", "the dry run of a release", release),
    long(
        "candle-cuda",
        "`cargo build -F candle-cuda,turbojpeg` after setup; the program starts without a GPU and says so",
        candle_cuda,
    ),
    long("cuda-abi", "the declarations for CUDA are those of NVIDIA's headers, 12.0 and 13.0", cuda_abi),
    long("neon", "the kernels' tests for Arm, under qemu", neon),
];

/// A step of every change.
const fn always(name: &'static str, about: &'static str, run: fn(Ci<'_>) -> Result<StepEnd>) -> CiStep {
    CiStep { name, about, is_long: false, run }
}

/// A step of the long form.
const fn long(name: &'static str, about: &'static str, run: fn(Ci<'_>) -> Result<StepEnd>) -> CiStep {
    CiStep { name, about, is_long: true, run }
}

/// Sets of features that must compile besides the default one and all features: a library without backends, a worker's
/// library, and a command line with few backends.
const FEATURE_SETS: [&str; 3] = ["", "worker,exact,fir,fused", "cli,zune,fir,fused,npy"];
/// More sets, for `--full`; the last three need native libraries.
const MORE_FEATURE_SETS: [&str; 5] = [
    "cli,exact,image,fir,fused,parquet,sqs,object-store,otel",
    "exact,nvjpeg,fir,cuda,npy",
    "cli,turbojpeg,fir,cuda,lmdb",
    "cli,opencv,ort,npy",
    "exact,fir,npy,ort-cuda,ort-tensorrt",
];

pub(crate) fn run(root: &Path, args: &CiArgs) -> Result<()> {
    if args.list {
        for step in &STEPS {
            println!("{:>10}  {}{}", step.name, step.about, if step.is_long { " (--full)" } else { "" });
        }
        return Ok(());
    }
    if !args.full {
        println!("{} no step begins after {} minutes", clock::elapsed(), clock::BUDGET.as_secs() / 60);
    }
    let mut times = Vec::new();
    let mut left_out = Vec::new();
    let mut result = Ok(());
    for step in STEPS.iter().filter(|step| is_chosen(step, args)) {
        if !args.full && clock::elapsed().left(clock::BUDGET).is_zero() {
            left_out.push(step.name);
            continue;
        }
        match run_step(step, Ci { root, full: args.full }) {
            Ok(time) => times.push(time),
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    report(&times);
    if !left_out.is_empty() {
        println!("\nwarning: no time was left for these steps: {}", left_out.join(", "));
    }
    result
}

fn run_step(step: &CiStep, ci: Ci<'_>) -> Result<StepTime> {
    println!("\n{} ==> {}: {}", clock::elapsed(), step.name, step.about);
    let start = Instant::now();
    let processor = clock::processor_time("self", 2);
    let outcome = (step.run)(ci).with_context(|| format!("step '{}'", step.name))?;
    let time =
        StepTime { step: step.name, wall: start.elapsed(), processor: clock::processor_time("self", 2) - processor };
    match outcome {
        StepEnd::Done => println!("{} <== {}: ok, {:.1} s", clock::elapsed(), step.name, time.wall.as_secs_f64()),
        StepEnd::NotRun(reason) => println!("{} <== {}: n/a ({reason})", clock::elapsed(), step.name),
    }
    Ok(time)
}

struct StepTime {
    step: &'static str,
    wall: Duration,
    processor: Duration,
}

fn is_chosen(step: &CiStep, args: &CiArgs) -> bool {
    match args.only.as_slice() {
        [] => args.full || !step.is_long,
        only => only.iter().any(|name| name == step.name),
    }
}

fn report(times: &[StepTime]) {
    println!("\n{:>11}  seconds  processor seconds", "step");
    let all = StepTime {
        step: "all",
        wall: times.iter().map(|time| time.wall).sum(),
        processor: times.iter().map(|time| time.processor).sum(),
    };
    for StepTime { step, wall, processor } in times.iter().chain([&all]) {
        println!("{step:>11}  {:>7.0}  {:>17.0}", wall.as_secs_f64(), processor.as_secs_f64());
    }
}

fn tidy_step(ci: Ci<'_>) -> Result<StepEnd> {
    tidy::run(ci.root)?;
    let stale = figures::stale(ci.root)?;
    println!("{} recorded files are stale (`cargo xtask figures --stale`)", stale.len());
    for line in stale {
        println!("  {line}");
    }
    Ok(StepEnd::Done)
}

fn deny(ci: Ci<'_>) -> Result<StepEnd> {
    let present = cargo(ci.root).args(["deny", "--version"]).output().is_ok_and(|output| output.status.success());
    if !present {
        return Ok(StepEnd::NotRun("cargo-deny is not installed"));
    }
    done(cargo(ci.root).args(["deny", "--offline", "check", "bans", "licenses", "sources"]))
}

fn clippy(ci: Ci<'_>) -> Result<StepEnd> {
    let mut command = cargo(ci.root);
    command.args(["clippy", "--release", "--all-targets"]).args(selection::everything(ci.root)?);
    done(command.args(["--", "-D", "warnings"]))
}

fn features(ci: Ci<'_>) -> Result<StepEnd> {
    let native = if setup::is_done(ci.root) { 0 } else { 3 };
    let more = if ci.full { &MORE_FEATURE_SETS[..MORE_FEATURE_SETS.len() - native] } else { &[] };
    for set in FEATURE_SETS.iter().chain(more) {
        println!("--no-default-features --features '{set}'");
        let selection = ["clippy", "--release", "-p", "foveate", "--no-default-features", "--features", set];
        succeed(cargo(ci.root).args(selection).args(["--", "-D", "warnings"]))?;
    }
    Ok(StepEnd::Done)
}

fn doc(ci: Ci<'_>) -> Result<StepEnd> {
    let mut command = cargo(ci.root);
    command.args(["doc", "--release", "--no-deps"]).args(selection::everything(ci.root)?);
    done(command.env("RUSTDOCFLAGS", "-D warnings"))
}

fn package_step(ci: Ci<'_>) -> Result<StepEnd> {
    ended(package::run(ci.root, ci.full && setup::is_done(ci.root)).map(drop))
}

fn release(ci: Ci<'_>) -> Result<StepEnd> {
    let somebody = ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];
    done(
        shell(ci.root, "cargo xtask release 9.9.9 --allow-stale")
            .envs(somebody.map(|name| (name, "ci@example.invalid"))),
    )
}

/// The README's commands. The short form starts the program that the tests use. The long form does as after a clone: no
/// native libraries, no other features in the target folder, no resource required. The copy is outside of the
/// workspace, whose cargo configuration would otherwise be found; so it shares no dependency with other steps, which
/// takes ten minutes.
fn newcomer(ci: Ci<'_>) -> Result<StepEnd> {
    if !ci.full {
        let program = selection::build(ci.root, "foveate")?;
        return ended(readme::quickstart(ci.root, Some(&program)));
    }
    let copy = std::env::temp_dir().join("foveate-newcomer");
    let _ = fs::remove_dir_all(&copy);
    copy_tree(ci.root, &copy)?;
    let quick = Path::new(".cargo/quick.toml");
    if ci.root.join(quick).exists() {
        fs::copy(ci.root.join(quick), copy.join(quick))?;
    }
    readme::quickstart(&copy, None)?;
    let command = readme::command(&copy, "test")?;
    println!("{command}");
    succeed(readme::as_newcomer(&mut shell(&copy, &command)))?;
    fs::remove_dir_all(&copy)?;
    Ok(StepEnd::Done)
}

fn wheel(ci: Ci<'_>) -> Result<StepEnd> {
    if let Some(reason) = wheel::missing() {
        return without("python", reason);
    }
    if ci.full {
        return logged(ci, "cargo xtask wheel --test", "wheel.log");
    }
    ended(wheel::run(ci.root, &parsed(&["--test"])?))
}

fn faults_step(ci: Ci<'_>) -> Result<StepEnd> {
    if !cfg!(target_os = "linux") {
        return Ok(StepEnd::NotRun("the injector knows Linux's system calls"));
    }
    ended(faults::run(ci.root, &parsed(ci.form())?))
}

fn attacks_step(ci: Ci<'_>) -> Result<StepEnd> {
    if !setup::is_done(ci.root) {
        return Ok(LIBRARIES);
    }
    if let Some(reason) = attacks::missing() {
        return without("nats", reason);
    }
    let program = selection::build(ci.root, "foveate")?;
    let program = program.to_str().context("the target folder is not UTF-8")?;
    ended(attacks::run(ci.root, &parsed(&["--quick", "--program", program])?))
}

fn fuzz(ci: Ci<'_>) -> Result<StepEnd> {
    if !ci.full {
        let mut command = cargo(ci.root);
        // The profile and the folder of the other steps, which have checked most of its dependencies.
        command.args(["check", "--release", "--locked", "--features", "parquet", "--manifest-path", "fuzz/Cargo.toml"]);
        return done(command.arg("--target-dir").arg(target(ci.root)));
    }
    let mut command = Command::new("bash");
    command.current_dir(ci.root).args(["fuzz/run.sh", "30"]);
    forget_package(&mut command);
    done(&mut command)
}

/// Builds by the design's own line, as it is written there.
fn candle_cuda(ci: Ci<'_>) -> Result<StepEnd> {
    for feature in ["candle-cuda", "turbojpeg"] {
        setup::run(ci.root, &parsed(&["--only", feature])?)?;
    }
    let own = ["test", "--release", "-p", "foveate-encode-candle", "--features", "cuda"];
    succeed(cargo(ci.root).args(own))?;
    println!("{AS_DESIGNED}");
    succeed(&mut shell(ci.root, AS_DESIGNED))?;
    done(Command::new(target(ci.root).join("debug/foveate")).arg("backends"))
}

fn cuda_abi(ci: Ci<'_>) -> Result<StepEnd> {
    setup::run(ci.root, &parsed(&["--only", "cuda-abi"])?)?;
    let headers = ci.root.join(setup::THIRD_PARTY).join("cuda-abi");
    let mut command = cargo(ci.root);
    command.args(["test", "--release", "-p", "foveate-cuda", "--lib", "--", "--ignored", "abi::"]);
    done(command.env("FOVEATE_CUDA_HEADERS", headers))
}

fn neon(ci: Ci<'_>) -> Result<StepEnd> {
    const TARGET: &str = "aarch64-unknown-linux-gnu";
    const COMPILER: &str = "aarch64-linux-gnu-gcc";
    setup::run(ci.root, &parsed(&["--only", "neon"])?)?;
    succeed(Command::new("rustup").args(["target", "add", TARGET]))?;
    let mut command = cargo(ci.root);
    command.args(["test", "--release", "-p", "foveate-encode-fused", "-p", "foveate-decode-exact", "--target", TARGET]);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", "qemu-aarch64 -L /usr/aarch64-linux-gnu");
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", COMPILER);
    done(command.env("CC_aarch64_unknown_linux_gnu", COMPILER))
}

fn matrix(ci: Ci<'_>) -> Result<StepEnd> {
    if !setup::is_done(ci.root) {
        return Ok(LIBRARIES);
    }
    let program = selection::build(ci.root, "foveate")?;
    let program = program.to_str().context("the target folder is not UTF-8")?;
    let args = ["--quick", "--out", "target/ci", "--program", program];
    ended(bench_matrix::run(ci.root, &parsed(&args)?))
}

/// Runs a test command, in its long form if the check has it, and stores its output.
fn logged(ci: Ci<'_>, command: &str, log: &str) -> Result<StepEnd> {
    println!("{command}");
    let mut shell = shell(ci.root, command);
    if ci.full {
        shell.env("FOVEATE_TESTS", "full");
    }
    let logs = ci.root.join(LOGS);
    fs::create_dir_all(&logs)?;
    let mut log = fs::File::create(logs.join(log))?;
    let mut child =
        shell.env(clock::STARTED, clock::started()).stdout(Stdio::piped()).spawn().context("cannot start sh")?;
    let output = child.stdout.take().context("no output to read")?;
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        writeln!(log, "{line}")?;
    }
    let status = child.wait()?;
    ensure!(status.success(), "the tests failed ({status})");
    Ok(StepEnd::Done)
}

/// The end of a step without a resource. Fails if `FOVEATE_REQUIRE` names it.
fn without(resource: &str, reason: &'static str) -> Result<StepEnd> {
    let is_required = std::env::var("FOVEATE_REQUIRE").is_ok_and(|all| all.split(',').any(|name| name == resource));
    ensure!(!is_required, "{reason}");
    Ok(StepEnd::NotRun(reason))
}

fn done(command: &mut Command) -> Result<StepEnd> {
    ended(succeed(command))
}

fn ended(result: Result<()>) -> Result<StepEnd> {
    result.map(|()| StepEnd::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_selected_by_name_and_the_long_ones_on_request() {
        let names = |typed: &[&str]| -> Vec<&str> {
            let args: CiArgs = parsed(typed).unwrap();
            STEPS.iter().filter(|step| is_chosen(step, &args)).map(|step| step.name).collect()
        };
        assert_eq!(names(&["--full"]).len(), STEPS.len());
        assert!(!names(&[]).contains(&"unchecked"));
        assert_eq!(names(&["--only", "unchecked", "--only", "fmt"]), ["fmt", "unchecked"]);
        assert!(parsed::<CiArgs>(&["--only", "nothing"]).is_err());
    }
}
