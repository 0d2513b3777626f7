//! `cargo xtask ci`: everything that must pass, as named steps that print their duration.
//!
//! All steps share the release profile and one selection of features ([`crate::selection`]), because building a
//! dependency twice costs more than most steps. The quick start, which is the README's own command, and the step
//! `features` select other features. The fuzz targets have their own flags.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;

use crate::cargo::{cargo, forget_package, shell, succeed, target};
use crate::package::{self, Verify};
use crate::tree::copy_tree;
use crate::{
    bench_matrix, clock, examples, faults, figures, kernels, new_backend, pixels, readme, selection, setup, tidy, wheel,
};

#[derive(clap::Args)]
pub(crate) struct Args {
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

struct Step {
    name: &'static str,
    about: &'static str,
    /// Whether it runs on every change, or only with `--full`.
    when: When,
    run: fn(Ci<'_>) -> Result<Outcome>,
}

#[derive(PartialEq)]
enum When {
    Always,
    Full,
}

enum Outcome {
    Done,
    /// It could not run here, and why.
    NotRun(&'static str),
}

#[derive(Clone, Copy)]
struct Ci<'a> {
    root: &'a Path,
    full: bool,
}

const LIBRARIES: Outcome = Outcome::NotRun("native libraries are missing; `cargo xtask setup` installs them");

/// Where the output of tests is kept.
const LOGS: &str = "target/ci";

/// Cheap and informative steps first, then the tests, because on a slow machine the last steps are left out. `pixels`
/// and `matrix` use what `test` builds.
const STEPS: [Step; 22] = [
    Step { name: "fmt", about: "formatting", when: When::Always, run: fmt },
    Step { name: "tidy", about: "the architecture's rules", when: When::Always, run: tidy_step },
    Step { name: "deny", about: "licences, bans and sources of dependencies", when: When::Always, run: deny },
    Step { name: "clippy", about: "lints, all targets and features", when: When::Always, run: clippy },
    Step {
        name: "features",
        about: "other sets of features compile without warnings",
        when: When::Always,
        run: features,
    },
    Step { name: "doc", about: "documentation without warnings", when: When::Always, run: doc },
    Step {
        name: "package",
        about: "every published crate as its registry would get it",
        when: When::Always,
        run: package_step,
    },
    Step {
        name: "newcomer",
        about: "the README's quick start in a fresh copy with nothing set up; `--full`: its tests, too",
        when: When::Always,
        run: newcomer,
    },
    Step {
        name: "test",
        about: "the README's test command: all features, with overflow checks",
        when: When::Always,
        run: test_step,
    },
    Step {
        name: "wheel",
        about: "the Python wheel, and its tests in a fresh environment",
        when: When::Always,
        run: wheel,
    },
    Step {
        name: "faults",
        about: "disturbed at any call, every sink's output comes out the same",
        when: When::Always,
        run: faults_step,
    },
    Step {
        name: "kernels",
        about: "the committed PTX is the kernels', and fits every device",
        when: When::Always,
        run: kernels_step,
    },
    Step {
        name: "examples",
        about: "programs outside of the workspace that use single crates",
        when: When::Always,
        run: examples_step,
    },
    Step {
        name: "backend",
        about: "CONTRIBUTING's steps add a backend that conforms",
        when: When::Always,
        run: backend,
    },
    Step {
        name: "pixels",
        about: "generated files of every kind have Pillow's pixels",
        when: When::Always,
        run: pixels_step,
    },
    Step { name: "matrix", about: "every combination of backends, quickly", when: When::Always, run: matrix },
    Step { name: "fuzz", about: "fuzz targets compile; `--full` runs them", when: When::Always, run: fuzz },
    Step {
        name: "unchecked",
        about: "all tests as released, without overflow checks",
        when: When::Full,
        run: unchecked,
    },
    Step { name: "release", about: "the dry run of a release", when: When::Full, run: release },
    Step {
        name: "candle-cuda",
        about: "`cargo build -F candle-cuda,turbojpeg` after setup; the program starts without a GPU and says so",
        when: When::Full,
        run: candle_cuda,
    },
    Step {
        name: "cuda-abi",
        about: "the declarations for CUDA are those of NVIDIA's headers, 12.0 and 13.0",
        when: When::Full,
        run: cuda_abi,
    },
    Step { name: "neon", about: "the kernels' tests for Arm, under qemu", when: When::Full, run: neon },
];

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

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    if args.list {
        STEPS.iter().for_each(|step| {
            let when = if step.when == When::Full { " (--full)" } else { "" };
            println!("{:>10}  {}{when}", step.name, step.about);
        });
        return Ok(());
    }
    if !args.full {
        println!("{} no step begins after {} minutes", clock::elapsed(), clock::BUDGET.as_secs() / 60);
    }
    let (mut times, mut left_out) = (Vec::new(), Vec::new());
    let done = STEPS.iter().filter(|step| is_chosen(step, args)).try_for_each(|step| {
        match args.full || !clock::elapsed().left(clock::BUDGET).is_zero() {
            true => times.push(run_step(step, Ci { root, full: args.full })?),
            false => left_out.push(step.name),
        }
        Ok(())
    });
    report(&times);
    if !left_out.is_empty() {
        println!("\nwarning: no time was left for these steps: {}", left_out.join(", "));
    }
    done
}

fn run_step(step: &Step, ci: Ci<'_>) -> Result<Time> {
    println!("\n{} ==> {}: {}", clock::elapsed(), step.name, step.about);
    let (start, cpu) = (Instant::now(), processor_time());
    let outcome = (step.run)(ci).with_context(|| format!("step '{}'", step.name))?;
    let time = Time { step: step.name, wall: start.elapsed(), processor: processor_time() - cpu };
    match outcome {
        Outcome::Done => println!("{} <== {}: ok, {:.1} s", clock::elapsed(), step.name, time.wall.as_secs_f64()),
        Outcome::NotRun(reason) => println!("{} <== {}: n/a ({reason})", clock::elapsed(), step.name),
    }
    Ok(time)
}

struct Time {
    step: &'static str,
    wall: Duration,
    processor: Duration,
}

/// Processor time of the children that have ended, as Linux reports it. Zero on other systems.
fn processor_time() -> Duration {
    const TICKS_PER_SECOND: u64 = 100;
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // proc(5): cutime and cstime are the 16th and 17th field; the second one is the command in parentheses.
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(13).take(2);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
}

fn is_chosen(step: &Step, args: &Args) -> bool {
    match args.only.as_slice() {
        [] => args.full || step.when == When::Always,
        only => only.iter().any(|name| name == step.name),
    }
}

fn report(times: &[Time]) {
    println!("\n{:>11}  seconds  processor seconds", "step");
    let all = Time {
        step: "all",
        wall: times.iter().map(|time| time.wall).sum(),
        processor: times.iter().map(|time| time.processor).sum(),
    };
    for Time { step, wall, processor } in times.iter().chain([&all]) {
        println!("{step:>11}  {:>7.0}  {:>17.0}", wall.as_secs_f64(), processor.as_secs_f64());
    }
}

fn fmt(ci: Ci<'_>) -> Result<Outcome> {
    done(cargo(ci.root).args(["fmt", "--all", "--", "--check"]))
}

fn tidy_step(ci: Ci<'_>) -> Result<Outcome> {
    tidy::run(ci.root)?;
    let stale = figures::stale(ci.root)?;
    println!("{} recorded files are stale (`cargo xtask figures --stale`)", stale.len());
    for line in stale {
        println!("  {line}");
    }
    Ok(Outcome::Done)
}

fn deny(ci: Ci<'_>) -> Result<Outcome> {
    let present = cargo(ci.root).args(["deny", "--version"]).output().is_ok_and(|output| output.status.success());
    if !present {
        return Ok(Outcome::NotRun("cargo-deny is not installed"));
    }
    done(cargo(ci.root).args(["deny", "--offline", "check", "bans", "licenses", "sources"]))
}

fn clippy(ci: Ci<'_>) -> Result<Outcome> {
    let mut command = cargo(ci.root);
    command.args(["clippy", "--release", "--all-targets"]).args(selection::everything(ci.root)?);
    done(command.args(["--", "-D", "warnings"]))
}

fn features(ci: Ci<'_>) -> Result<Outcome> {
    let native = if setup::is_done(ci.root) { 0 } else { 3 };
    let more = if ci.full { &MORE_FEATURE_SETS[..MORE_FEATURE_SETS.len() - native] } else { &[] };
    for set in FEATURE_SETS.iter().chain(more) {
        println!("--no-default-features --features '{set}'");
        let selection = ["clippy", "--release", "-p", "foveate", "--no-default-features", "--features", set];
        succeed(cargo(ci.root).args(selection).args(["--", "-D", "warnings"]))?;
    }
    Ok(Outcome::Done)
}

fn doc(ci: Ci<'_>) -> Result<Outcome> {
    let mut command = cargo(ci.root);
    command.args(["doc", "--release", "--no-deps"]).args(selection::everything(ci.root)?);
    done(command.env("RUSTDOCFLAGS", "-D warnings"))
}

fn package_step(ci: Ci<'_>) -> Result<Outcome> {
    let verify = if ci.full && setup::is_done(ci.root) { Verify::Yes } else { Verify::No };
    package::run(ci.root, verify).map(|_| Outcome::Done)
}

fn release(ci: Ci<'_>) -> Result<Outcome> {
    let somebody = ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];
    done(
        shell(ci.root, "cargo xtask release 9.9.9 --allow-stale")
            .envs(somebody.map(|name| (name, "ci@example.invalid"))),
    )
}

/// The README's commands as after a clone: no native libraries, no other features in the target folder, no resource
/// required. The copy is outside of the workspace, whose cargo configuration would otherwise be found.
fn newcomer(ci: Ci<'_>) -> Result<Outcome> {
    let copy = std::env::temp_dir().join("foveate-newcomer");
    let _ = fs::remove_dir_all(&copy);
    copy_tree(ci.root, &copy)?;
    let quick = Path::new(".cargo/quick.toml");
    if ci.root.join(quick).exists() {
        fs::copy(ci.root.join(quick), copy.join(quick))?;
    }
    readme::quickstart(&copy)?;
    if ci.full {
        let command = readme::command(&copy, "test")?;
        println!("{command}");
        succeed(readme::as_newcomer(&mut shell(&copy, &command)))?;
    }
    fs::remove_dir_all(&copy)?;
    Ok(Outcome::Done)
}

fn wheel(ci: Ci<'_>) -> Result<Outcome> {
    if let Some(reason) = wheel::missing() {
        let is_required = std::env::var("FOVEATE_REQUIRE").is_ok_and(|all| all.split(',').any(|name| name == "python"));
        ensure!(!is_required, "{reason}");
        return Ok(Outcome::NotRun(reason));
    }
    if ci.full {
        return logged(ci, "cargo xtask wheel --test", "wheel.log");
    }
    wheel::run(ci.root, &wheel::Args::tested()).map(|()| Outcome::Done)
}

fn faults_step(ci: Ci<'_>) -> Result<Outcome> {
    if !cfg!(target_os = "linux") {
        return Ok(Outcome::NotRun("the injector knows Linux's system calls"));
    }
    faults::run(ci.root, &faults::Args::form(ci.full)).map(|()| Outcome::Done)
}

fn fuzz(ci: Ci<'_>) -> Result<Outcome> {
    if !ci.full {
        let mut command = cargo(ci.root);
        command.args([
            "check",
            "--locked",
            "--features",
            "parquet",
            "--manifest-path",
            "fuzz/Cargo.toml",
            "--target-dir",
        ]);
        return done(command.arg(target(ci.root).join("fuzz")));
    }
    let mut command = Command::new("bash");
    command.current_dir(ci.root).args(["fuzz/run.sh", "30"]);
    forget_package(&mut command);
    done(&mut command)
}

fn kernels_step(ci: Ci<'_>) -> Result<Outcome> {
    kernels::run(ci.root, &kernels::Args { check: true }).map(|()| Outcome::Done)
}

fn examples_step(ci: Ci<'_>) -> Result<Outcome> {
    if !setup::is_done(ci.root) {
        return Ok(LIBRARIES);
    }
    examples::run(ci.root).map(|()| Outcome::Done)
}

fn backend(ci: Ci<'_>) -> Result<Outcome> {
    new_backend::run(ci.root).map(|()| Outcome::Done)
}

fn test_step(ci: Ci<'_>) -> Result<Outcome> {
    logged(ci, &readme::command(ci.root, "test")?, "test.log")
}

fn pixels_step(ci: Ci<'_>) -> Result<Outcome> {
    if let Some(reason) = pixels::missing() {
        return Ok(Outcome::NotRun(reason));
    }
    pixels::run(ci.root, &pixels::Args::form(ci.full)).map(|()| Outcome::Done)
}

fn unchecked(ci: Ci<'_>) -> Result<Outcome> {
    logged(ci, "cargo xtask test --unchecked", "unchecked.log")
}

/// Builds by the design's own line, as it is written there.
fn candle_cuda(ci: Ci<'_>) -> Result<Outcome> {
    const AS_DESIGNED: &str = "cargo build -F candle-cuda,turbojpeg";
    for feature in ["candle-cuda", "turbojpeg"] {
        setup::run(ci.root, &setup::Args::only(feature))?;
    }
    let own = ["test", "--release", "-p", "foveate-encode-candle", "--features", "cuda"];
    succeed(cargo(ci.root).args(own))?;
    println!("{AS_DESIGNED}");
    succeed(&mut shell(ci.root, AS_DESIGNED))?;
    done(Command::new(target(ci.root).join("debug/foveate")).arg("backends"))
}

fn cuda_abi(ci: Ci<'_>) -> Result<Outcome> {
    setup::run(ci.root, &setup::Args::only(setup::CUDA_ABI))?;
    let headers = ci.root.join(setup::THIRD_PARTY).join(setup::CUDA_ABI);
    let mut command = cargo(ci.root);
    command.args(["test", "--release", "-p", "foveate-cuda", "--lib", "--", "--ignored", "abi::"]);
    done(command.env("FOVEATE_CUDA_HEADERS", headers))
}

fn neon(ci: Ci<'_>) -> Result<Outcome> {
    const TARGET: &str = "aarch64-unknown-linux-gnu";
    const COMPILER: &str = "aarch64-linux-gnu-gcc";
    setup::run(ci.root, &setup::Args::only(setup::NEON))?;
    succeed(Command::new("rustup").args(["target", "add", TARGET]))?;
    let mut command = cargo(ci.root);
    command.args(["test", "--release", "-p", "foveate-encode-fused", "-p", "foveate-decode-exact", "--target", TARGET]);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", "qemu-aarch64 -L /usr/aarch64-linux-gnu");
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", COMPILER);
    done(command.env("CC_aarch64_unknown_linux_gnu", COMPILER))
}

fn matrix(ci: Ci<'_>) -> Result<Outcome> {
    if !setup::is_done(ci.root) {
        return Ok(LIBRARIES);
    }
    let program = selection::build(ci.root, "foveate")?;
    let args = ["bench-matrix", "--quick", "--out", "target/ci", "--program"].map(OsString::from);
    let args = bench_matrix::Args::parse_from(args.into_iter().chain([program.into()]));
    bench_matrix::run(ci.root, &args).map(|()| Outcome::Done)
}

/// Runs a test command, in its long form if the check has it, and stores its output.
fn logged(ci: Ci<'_>, command: &str, log: &str) -> Result<Outcome> {
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
    Ok(Outcome::Done)
}

fn done(command: &mut Command) -> Result<Outcome> {
    succeed(command).map(|()| Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn steps_are_selected_by_name_and_the_long_ones_on_request() {
        let names = |typed: &[&str]| -> Vec<&str> {
            let args = Typed::try_parse_from(["ci"].iter().chain(typed)).unwrap().args;
            STEPS.iter().filter(|step| is_chosen(step, &args)).map(|step| step.name).collect()
        };
        assert_eq!(names(&["--full"]).len(), STEPS.len());
        assert!(!names(&[]).contains(&"unchecked"));
        assert_eq!(names(&["--only", "unchecked", "--only", "fmt"]), ["fmt", "unchecked"]);
        assert!(Typed::try_parse_from(["ci", "--only", "nothing"]).is_err());
    }
}
