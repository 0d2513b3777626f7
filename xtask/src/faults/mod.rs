//! `cargo xtask faults`: attacks on the durability of every sink's output.
//!
//! Small jobs of the real program run under an injector (`inject.c`, preloaded) that fails, shortens or cuts off any
//! one of their file system calls. From a trace of the calls, a model of the disk ([`disk`]) makes the states that a
//! power loss may leave. Two processes write to one output, at chosen and at random moments. Files are damaged behind
//! the program's back.
//!
//! After each attack, the same command again has to give the bytes of a run that was never disturbed. Where a power
//! loss or damage may have taken data, it may also refuse, if it says what to do. Every case has a name that reproduces
//! it. The short form takes a sample of the cases, which the seed chooses.

mod bench;
mod case;
mod disk;
mod inject;
mod random;
mod scenario;
mod trace;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::cargo::{cargo, succeed, target};
use bench::{Calm, FaultBench};
use case::{AttackCase, CaseAttack};
use disk::{Crash, Disk};
use inject::{CallFault, OpenFiles};
use random::named;
use scenario::AttackedJob;

#[derive(clap::Args)]
pub(crate) struct FaultArgs {
    /// Run every case, not a sample
    #[arg(long)]
    full: bool,
    /// Run the cases whose names begin so, and keep the folders of those that fail; repeat it for more
    #[arg(long, value_name = "SCENARIO[/ATTACK[/…]]")]
    only: Vec<String>,
    /// Chooses the sample, what a power loss spares, and the moments of races
    #[arg(long, default_value = "1")]
    seed: u64,
    /// A built foveate; otherwise one is built, with the default features and lmdb
    #[arg(long)]
    program: Option<PathBuf>,
}

impl FaultArgs {
    fn takes(&self, case: &str) -> bool {
        self.only.is_empty()
            || self.only.iter().any(|only| {
                let rest = case.strip_prefix(only.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
    }

    /// Returns true if any case of a scenario may run.
    fn takes_scenario(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only.split('/').next() == Some(name))
    }
}

/// Cases of each attack on each scenario in the short form.
const SAMPLE: [(&str, usize); 6] =
    [("call", 40), ("power", 40), ("meet", 12), ("race", 4), ("chain", 6), ("damage", 12)];
/// States of each power loss that a seed chooses.
const CRASHES: u64 = 4;
/// Races, chains and damages of each scenario in the long form.
const ROUNDS: u64 = 60;

pub(crate) fn run(root: &Path, args: &FaultArgs) -> Result<()> {
    let start = Instant::now();
    let scratch = scratch()?;
    let program = program(root, args, &scratch)?;
    println!("built in {:.0} s; outputs are in {}", start.elapsed().as_secs_f64(), scratch.display());
    let bench = FaultBench::new(root, program, scratch)?;
    let failed = attack_all(root, &bench, args)?;
    if failed == 0 || args.only.is_empty() {
        fs::remove_dir_all(&bench.scratch)?;
    }
    ensure!(failed == 0, "{failed} cases failed");
    Ok(())
}

/// A folder in memory, if the system has one: the jobs sync nothing, but they write much.
fn scratch() -> Result<PathBuf> {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let folder = parent.join(format!("foveate-faults-{}", std::process::id()));
    fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// A copy of the program, which other builds leave alone.
fn program(root: &Path, args: &FaultArgs, scratch: &Path) -> Result<PathBuf> {
    let built = match &args.program {
        Some(program) => program.clone(),
        None => {
            // The quick start's dependencies: the native libraries of all backends cost more time to load than a job.
            let build = ["build", "--release", "--bin", "foveate", "--features", "foveate/lmdb"];
            succeed(cargo(root).args(build))?;
            target(root).join("release/foveate")
        }
    };
    let copy = scratch.join("foveate");
    fs::copy(&built, &copy).with_context(|| format!("cannot copy {}", built.display()))?;
    Ok(copy)
}

fn attack_all(root: &Path, bench: &FaultBench, args: &FaultArgs) -> Result<usize> {
    let mut failed = 0;
    let scenarios = scenario::all()?;
    let mut calms: Vec<(&AttackedJob, Calm)> = Vec::new();
    for scenario in scenarios.iter().filter(|scenario| args.takes_scenario(&scenario.name)) {
        match bench.calm(scenario) {
            Ok(calm) => calms.push((scenario, calm)),
            Err(error) => {
                report(&scenario.name, &error, args);
                failed += 1;
            }
        }
    }
    read_all(root, bench, &calms)?;
    for (scenario, calm) in &calms {
        let start = Instant::now();
        let cases = plan(scenario, calm, args)?;
        let broken = run_all(bench, &cases, args);
        println!("{}, {} failed, {:.1} s", summary(scenario, &cases), broken, start.elapsed().as_secs_f64());
        failed += broken;
    }
    Ok(failed)
}

/// Reads the undisturbed outputs with each format's own Python library. They hold the same rows.
fn read_all(root: &Path, bench: &FaultBench, calms: &[(&AttackedJob, Calm)]) -> Result<()> {
    let mut folders = Vec::new();
    for (scenario, calm) in calms {
        if scenario.name == "beside" || scenario.command != "embed" || scenario.continues() {
            continue;
        }
        let folder = bench.scratch.join(format!("{}-read", scenario.name));
        fs::create_dir(&folder)?;
        calm.after.write(&folder)?;
        folders.push(folder);
    }
    if Command::new("python3").arg("--version").output().is_ok() {
        succeed(Command::new("python3").arg(root.join("xtask/src/faults/read.py")).args(&folders))?;
    }
    folders.iter().try_for_each(fs::remove_dir_all)?;
    Ok(())
}

fn summary(scenario: &AttackedJob, cases: &[AttackCase<'_>]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    cases.iter().for_each(|case| *counts.entry(case.attack.kind()).or_default() += 1);
    let counts: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    format!("{:>14}: {}", scenario.name, counts.join(", "))
}

/// The cases of a scenario: of all attacks that suit it, those that are asked for, or a sample.
fn plan<'a>(scenario: &'a AttackedJob, calm: &'a Calm, args: &FaultArgs) -> Result<Vec<AttackCase<'a>>> {
    let mut attacks = power_losses(calm, args.seed)?;
    for (before, call) in calm.calls.iter().enumerate() {
        attacks.extend(CallFault::of(call).into_iter().map(|fault| CaseAttack::Call { at: before + 1, fault }));
    }
    if scenario.life().is_none_or(|life| life.between.is_some()) {
        attacks.extend((1..=calm.calls.len()).map(|at| CaseAttack::Meet { at }));
    }
    attacks.extend((0..ROUNDS).map(|round| CaseAttack::Chain { round }));
    if scenario.life().is_none() {
        attacks.extend((0..ROUNDS).flat_map(|round| [CaseAttack::Race { round }, CaseAttack::Damage { round }]));
        attacks.extend([OpenFiles::Hide, OpenFiles::Refuse].map(CaseAttack::OpenFiles));
    }
    let cases = attacks.into_iter().map(|attack| AttackCase { scenario, calm, attack, seed: args.seed });
    let mut cases: Vec<AttackCase<'_>> = cases.filter(|case| args.takes(&case.to_string())).collect();
    if !args.full && args.only.is_empty() {
        cases.sort_by_cached_key(|case| named(args.seed, &case.to_string()).u64(..));
        let mut left = BTreeMap::from(SAMPLE);
        cases.retain(|case| match left.get_mut(case.attack.kind()) {
            None => true,
            Some(0) => false,
            Some(count) => {
                *count -= 1;
                true
            }
        });
    }
    Ok(cases)
}

/// Power losses after every call, without those that leave what another one left.
fn power_losses(calm: &Calm, seed: u64) -> Result<Vec<CaseAttack>> {
    let mut disk = Disk::new(&calm.before);
    let mut seen = BTreeSet::new();
    let mut attacks = Vec::new();
    for after in 0..=calm.calls.len() {
        if let Some(call) = after.checked_sub(1).map(|last| &calm.calls[last]) {
            disk.replay(call).with_context(|| format!("call {after}"))?;
        }
        let random = (0..CRASHES).map(|n| Crash::Random(seed.wrapping_mul(1000).wrapping_add(n)));
        for crash in Crash::FIXED.into_iter().chain(random) {
            // After the end, the output has to be there already.
            if seen.insert(disk.after(crash).hash()) || after == calm.calls.len() {
                attacks.push(CaseAttack::Power { after, crash });
            }
        }
    }
    Ok(attacks)
}

/// Runs cases on every core; returns how many failed.
fn run_all(bench: &FaultBench, cases: &[AttackCase<'_>], args: &FaultArgs) -> usize {
    let next = AtomicUsize::new(0);
    let failed = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = case.run(bench, !args.only.is_empty()) {
                        report(&case.to_string(), &error, args);
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    failed.into_inner()
}

/// Prints a failure, and the command that reproduces it.
fn report(case: &str, error: &anyhow::Error, args: &FaultArgs) {
    println!("FAILED {case}: {error:#}\n  cargo xtask faults --seed {} --only {case}", args.seed);
}
