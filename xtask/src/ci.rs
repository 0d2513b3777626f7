//! `cargo xtask ci`: everything that has to pass, as named steps that print how long they took.
//!
//! All but one step build with the release profile, because the README's own commands do: one set of build outputs
//! serves the quick start, the tests, clippy's and rustdoc's dependencies. The step `checked` is the exception: it runs
//! the tests of the crates that handle untrusted bytes and threads with overflow checks and debug assertions on.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::rules::manifests::{CLOUD, NATIVE};
use crate::tree::Tree;
use crate::{setup, tidy};

struct Step {
    name: &'static str,
    about: &'static str,
    run: fn(&Path) -> Result<Outcome>,
}

enum Outcome {
    Done,
    /// Could not run here, and why.
    NotRun(String),
}

/// Cheap and telling first, the tests last: their summary ends the output.
const STEPS: &[Step] = &[
    Step { name: "fmt", about: "formatting", run: fmt },
    Step { name: "tidy", about: "the architecture's rules", run: tidy_step },
    Step { name: "deny", about: "licences, bans and sources of dependencies (needs cargo-deny)", run: deny },
    Step { name: "clippy", about: "lints, all targets", run: clippy },
    Step { name: "features", about: "other sets of backends compile, without warnings", run: features },
    Step { name: "doc", about: "documentation without warnings", run: doc },
    Step { name: "quickstart", about: "the README's first command, its output verified", run: quickstart },
    Step { name: "fuzz", about: "six seconds of each fuzz target", run: fuzz },
    Step { name: "checked", about: "tests with overflow checks and debug assertions", run: checked },
    Step {
        name: "test",
        about: "the README's second command: all tests",
        run: |root| test(root, &[]).map(|()| Outcome::Done),
    },
    Step {
        name: "native",
        about: "the tests of the native and cloud backends, of CUDA on the emulator, and of everything with all features",
        run: native,
    },
    Step { name: "kernels", about: "the committed PTX is the kernels', and fits every device", run: kernels },
    Step { name: "examples", about: "programs outside of the workspace that use single crates", run: examples },
    Step { name: "matrix", about: "every combination of backends, quickly", run: matrix },
];

/// Compiles every native backend into the facade, the parity tests and the benches, and CUDA into the facade.
const ALL_FEATURES: [&str; 2] = [
    "--features",
    "foveate/native,foveate/cuda,foveate/nvjpeg,foveate/ort-cuda,foveate/ort-tensorrt,\
     foveate/sqs,foveate/nats,foveate/object-store,foveate/otel,foveate-tests/native,foveate-benches/native",
];
/// Default members with tests that need a feature which the default build has not: CUDA, the export of spans.
const FEATURED: [&str; 2] = ["foveate-encode-fused", "foveate-telemetry"];

/// Slow tests of the facade that no feature changes: the step `test` has run them, `native` does not once more.
const RUN_ALREADY: [&str; 10] = [
    "sigkill_under_load_loses_nothing",
    "sigkill_never_loses_or_doubles",
    "a_broker_that_is_killed_and_comes_back",
    "callbacks_that_are_not_taken_for_a_while",
    "a_server_of_images_that_stalls",
    "leases_much_shorter_than_downloads",
    "memory_stays_flat",
    "segments_are_whole_and_miss_nobody",
    "everything_can_be_measured_planned_and_reported",
    "tuning_writes_what_embedding_reads",
];

/// Sets of features that are compiled besides the default one: with and without the command line, and the worker.
const FEATURE_SETS: [&str; 5] = [
    "cli,zune,fir,fused,npy,nats",
    "cli,exact,image,fir,fused,parquet,sqs,object-store,otel",
    "exact,nvjpeg,fir,cuda,npy",
    "worker,exact,fir,fused",
    "",
];
/// The same for those that need native libraries.
const NATIVE_SETS: [&str; 3] =
    ["cli,turbojpeg,fir,cuda,lmdb", "cli,opencv,ort,npy", "exact,fir,npy,ort-cuda,ort-tensorrt"];
/// Crates whose tests also run in the development profile; xtask's run only there, as it is no default member.
const CHECKED: [&str; 11] = [
    "foveate-core",
    "foveate-source",
    "foveate-decode",
    "foveate-decode-exact",
    "foveate-decode-zune",
    "foveate-decode-image",
    "foveate-resize",
    "foveate-resize-fir",
    "foveate-sink-npy",
    "foveate-pipeline",
    "xtask",
];

pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    let steps = select(args)?;
    let mut times: Vec<(&str, Duration)> = Vec::new();
    for step in steps {
        println!("\n==> {}: {}", step.name, step.about);
        let start = Instant::now();
        let outcome = (step.run)(root).with_context(|| format!("step '{}'", step.name))?;
        times.push((step.name, start.elapsed()));
        match outcome {
            Outcome::Done => println!("<== {}: ok, {:.1} s", step.name, start.elapsed().as_secs_f64()),
            Outcome::NotRun(reason) => println!("<== {}: n/a ({reason})", step.name),
        }
    }
    println!("\n{:>10}  seconds", "step");
    for (name, time) in &times {
        println!("{name:>10}  {:.1}", time.as_secs_f64());
    }
    let total: Duration = times.iter().map(|(_, time)| *time).sum();
    println!("{:>10}  {:.1}", "all", total.as_secs_f64());
    Ok(())
}

/// The steps that the arguments ask for: all of them, or each `--only` one.
fn select(args: &[String]) -> Result<Vec<&'static Step>> {
    let mut only = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--only" => only.push(args.next().context("--only needs the name of a step")?.as_str()),
            "--list" => {
                STEPS.iter().for_each(|step| println!("{:>10}  {}", step.name, step.about));
                return Ok(Vec::new());
            }
            other => bail!("ci has no argument '{other}' (--only STEP, --list)"),
        }
    }
    if let Some(unknown) = only.iter().find(|name| !STEPS.iter().any(|step| step.name == **name)) {
        bail!("there is no step '{unknown}'; `cargo xtask ci --list` shows them");
    }
    Ok(STEPS.iter().filter(|step| only.is_empty() || only.contains(&step.name)).collect())
}

fn fmt(root: &Path) -> Result<Outcome> {
    cargo(root, &["fmt", "--all", "--", "--check"])
}

fn tidy_step(root: &Path) -> Result<Outcome> {
    tidy::run(root).map(|()| Outcome::Done)
}

fn deny(root: &Path) -> Result<Outcome> {
    let present = cargo_command(root).args(["deny", "--version"]).output().is_ok_and(|output| output.status.success());
    if !present {
        return Ok(Outcome::NotRun("cargo-deny is not installed".to_owned()));
    }
    cargo(root, &["deny", "--offline", "check", "bans", "licenses", "sources"])
}

fn clippy(root: &Path) -> Result<Outcome> {
    let mut command = cargo_command(root);
    command.args(["clippy", "--release", "--all-targets"]).args(packages(root)?);
    run_command(command.args(["--", "-D", "warnings"]))
}

fn features(root: &Path) -> Result<Outcome> {
    let native = if setup::is_done(root) { NATIVE_SETS.as_slice() } else { &[] };
    for set in FEATURE_SETS.iter().chain(native) {
        println!("--no-default-features --features '{set}'");
        let selection = ["clippy", "--release", "-p", "foveate", "--no-default-features", "--features", set];
        run_command(cargo_command(root).args(selection).args(["--", "-D", "warnings"]))?;
    }
    Ok(Outcome::Done)
}

fn doc(root: &Path) -> Result<Outcome> {
    let mut command = cargo_command(root);
    command.args(["doc", "--release", "--no-deps"]).args(packages(root)?).env("RUSTDOCFLAGS", "-D warnings");
    run_command(&mut command)
}

/// The whole workspace, or what of it builds without native libraries where those are not there.
fn packages(root: &Path) -> Result<Vec<String>> {
    let mut args = vec!["--workspace".to_owned()];
    if setup::is_done(root) {
        args.extend(ALL_FEATURES.map(str::to_owned));
    } else {
        println!("without the native backends: `cargo xtask setup` brings what they need");
        native_packages(root)?.into_iter().for_each(|name| args.extend(["--exclude".to_owned(), name]));
    }
    Ok(args)
}

fn native_packages(root: &Path) -> Result<Vec<String>> {
    let packages = Tree::load(root)?.packages.into_iter().map(|package| package.name);
    Ok(packages.filter(|name| NATIVE.contains(&name.as_str())).collect())
}

/// A step that needs native libraries.
fn with_libraries(root: &Path, step: impl FnOnce() -> Result<()>) -> Result<Outcome> {
    match setup::is_done(root) {
        true => step().map(|()| Outcome::Done),
        false => Ok(Outcome::NotRun("native libraries are missing; `cargo xtask setup` brings them".to_owned())),
    }
}

fn native(root: &Path) -> Result<Outcome> {
    with_libraries(root, || {
        let packages = native_packages(root)?;
        let harness = ["foveate", "foveate-tests", "foveate-benches"];
        let packages = packages
            .iter()
            .map(String::as_str)
            .chain(harness)
            .chain(FEATURED)
            .chain(CLOUD)
            .flat_map(|name| ["-p", name]);
        let skipped = RUN_ALREADY.iter().flat_map(|name| ["--skip", name]);
        let command: Vec<&str> = ["cargo", "test", "--release"]
            .into_iter()
            .chain(packages)
            .chain(ALL_FEATURES)
            .chain(["--"])
            .chain(skipped)
            .collect();
        logged(root, &command.join(" "), "native.log")
    })
}

fn kernels(root: &Path) -> Result<Outcome> {
    crate::kernels::run(root, &["--check".to_owned()]).map(|()| Outcome::Done)
}

fn examples(root: &Path) -> Result<Outcome> {
    with_libraries(root, || crate::examples::run(root))
}

fn matrix(root: &Path) -> Result<Outcome> {
    let arguments = ["--quick", "--out", "target/ci"].map(str::to_owned);
    with_libraries(root, || crate::bench_matrix::run(root, &arguments))
}

fn fuzz(root: &Path) -> Result<Outcome> {
    let script = root.join("fuzz/run.sh");
    if !script.exists() {
        return Ok(Outcome::NotRun("there is no fuzz/run.sh".to_owned()));
    }
    let mut command = Command::new("bash");
    crate::cargo::forget_package(command.current_dir(root).arg(script).arg("6"));
    run_command(&mut command)
}

fn checked(root: &Path) -> Result<Outcome> {
    let packages = CHECKED.iter().flat_map(|name| ["-p", name]);
    // Checks are what it is for: libraries of others may be slow, so they need not be built for speed.
    let quickly = ["--config", "profile.dev.package.'*'.opt-level=1"];
    run_command(cargo_command(root).arg("test").args(quickly).args(packages))
}

/// Runs the README's test command with `args` added, keeping what it prints in target/ci/test.log.
pub(crate) fn test(root: &Path, args: &[String]) -> Result<()> {
    let command = readme_command(&fs::read_to_string(root.join("README.md"))?, "test")?;
    let command = [command.as_str()].into_iter().chain(args.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
    logged(root, &command, "test.log")
}

/// Runs a command that tests something, keeping what it prints in target/ci/.
fn logged(root: &Path, command: &str, log: &str) -> Result<()> {
    println!("{command}");
    let logs = root.join("target/ci");
    fs::create_dir_all(&logs)?;
    let mut log = fs::File::create(logs.join(log))?;
    let mut child = shell(root, command).stdout(Stdio::piped()).spawn().context("cannot start sh")?;
    let output = child.stdout.take().context("no output to read")?;
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        writeln!(log, "{line}")?;
    }
    let status = child.wait()?;
    ensure!(status.success(), "the tests failed ({status})");
    Ok(())
}

fn quickstart(root: &Path) -> Result<Outcome> {
    let command = readme_command(&fs::read_to_string(root.join("README.md"))?, "quickstart")?;
    let output = output_of(&command)?;
    let path = root.join(output);
    // What an earlier run left behind would be taken for this run's.
    for left in [path.with_extension("failures.csv"), path] {
        if left.exists() {
            fs::remove_file(&left)?;
        }
    }
    println!("{command}");
    run_command(&mut shell(root, &command))?;
    let photos = fs::read_dir(root.join("examples/photos"))?.count();
    verify_parquet(root, output, photos)?;
    Ok(Outcome::Done)
}

/// The file that a command line's `-o` names.
fn output_of(command: &str) -> Result<&str> {
    let mut words = command.split_whitespace();
    words.find(|word| *word == "-o").and_then(|_| words.next()).context("the README's first command has no -o FILE")
}

/// Reads the file with pyarrow where that is installed; else checks that it is a complete Parquet file.
fn verify_parquet(root: &Path, path: &str, rows: usize) -> Result<()> {
    let data = fs::read(root.join(path)).with_context(|| format!("the command left no {path}"))?;
    ensure!(data.starts_with(b"PAR1") && data.ends_with(b"PAR1"), "{path} is not a complete Parquet file");
    let has_pyarrow = Command::new("python3").args(["-c", "import pyarrow"]).stderr(Stdio::null()).status();
    if !has_pyarrow.is_ok_and(|status| status.success()) {
        println!("{path}: a complete Parquet file (no pyarrow here to read it with)");
        return Ok(());
    }
    const READ: &str = "import sys, math, pyarrow.parquet as pq
table = pq.read_table(sys.argv[1])
rows, vectors = table.num_rows, table.column('embedding').to_pylist()
assert rows == int(sys.argv[2]), f'{rows} rows, expected {sys.argv[2]}'
assert all(len(v) == 384 and all(map(math.isfinite, v)) for v in vectors), 'vectors are not 384 finite numbers'
assert len(set(map(tuple, vectors))) == rows, 'two photos have the same vector'
print(f'{sys.argv[1]}: {rows} rows of 384 finite, distinct vectors, read by pyarrow')";
    run_command(Command::new("python3").current_dir(root).args(["-c", READ, path, &rows.to_string()])).map(|_| ())
}

/// The `sh` block that follows `<!-- ci:NAME -->` in the README: what it promises is what is run.
fn readme_command(readme: &str, name: &str) -> Result<String> {
    let marker = format!("<!-- ci:{name} -->");
    let after = readme.split_once(&marker).with_context(|| format!("README.md has no {marker}"))?.1;
    let block = after.trim_start().strip_prefix("```sh\n").and_then(|rest| rest.split_once("\n```"));
    let (command, _) = block.with_context(|| format!("no sh block follows {marker} in README.md"))?;
    Ok(command.trim().to_owned())
}

fn shell(root: &Path, command: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.current_dir(root).args(["-c", command]).stdin(Stdio::null());
    crate::cargo::forget_package(&mut shell);
    shell
}

fn cargo_command(root: &Path) -> Command {
    let mut command = crate::cargo::cargo(root);
    command.stdin(Stdio::null());
    command
}

fn cargo(root: &Path, args: &[&str]) -> Result<Outcome> {
    run_command(cargo_command(root).args(args))
}

fn run_command(command: &mut Command) -> Result<Outcome> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot start {program}"))?;
    ensure!(status.success(), "the command failed ({status})");
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_come_from_the_readme() {
        let readme =
            "x\n<!-- ci:quickstart -->\n```sh\ncargo run -- embed a \\\n  -o b.parquet\n```\n<!-- ci:test -->\nprose\n";
        let command = readme_command(readme, "quickstart").unwrap();
        assert_eq!(command, "cargo run -- embed a \\\n  -o b.parquet");
        assert_eq!(output_of(&command).unwrap(), "b.parquet");
        assert!(readme_command(readme, "test").unwrap_err().to_string().contains("no sh block"));
        assert!(readme_command(readme, "other").is_err());
    }

    #[test]
    fn this_readme_has_both_commands() {
        let readme = fs::read_to_string(crate::cargo::root().join("README.md")).unwrap();
        assert!(readme_command(&readme, "quickstart").unwrap().starts_with("cargo run --release"));
        assert!(readme_command(&readme, "test").unwrap().starts_with("cargo test"));
    }

    #[test]
    fn what_is_skipped_exists() {
        let tests = ["kill.rs", "lab.rs", "worker/main.rs"]
            .map(|file| fs::read_to_string(crate::cargo::root().join("crates/foveate/tests").join(file)).unwrap());
        let unknown: Vec<_> =
            RUN_ALREADY.iter().filter(|name| !tests.iter().any(|test| test.contains(&format!("fn {name}")))).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn steps_are_selected_by_name() {
        let names = |args: &[&str]| -> Result<Vec<&str>> {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            Ok(select(&args)?.iter().map(|step| step.name).collect())
        };
        assert_eq!(names(&[]).unwrap().len(), STEPS.len());
        assert_eq!(names(&["--only", "doc", "--only", "fmt"]).unwrap(), ["fmt", "doc"]);
        assert!(names(&["--only", "nothing"]).is_err());
        assert!(names(&["nothing"]).is_err());
    }

    #[test]
    fn a_parquet_file_cut_short_is_refused() {
        let dir = std::env::temp_dir().join(format!("foveate-xtask-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("cut.parquet"), b"PAR1 and then nothing").unwrap();
        let error = verify_parquet(&dir, "cut.parquet", 1).unwrap_err();
        fs::remove_dir_all(&dir).unwrap();
        assert!(error.to_string().contains("not a complete Parquet file"), "{error}");
    }
}
