//! `cargo xtask attacks`: the cost of hostile jobs to the honest jobs of a real worker, as a CSV file.
//!
//! Each attack ([`table`]) is a scene: `foveate worker` on a broker, hostile jobs, and honest jobs behind them. The
//! same honest jobs run without the attack before or after it, in turn. One server ([`site`]) is both the web and the
//! receivers. A missed goal is printed and recorded. The command fails if a job is lost, if a job is answered with two
//! results, or if an outage makes a dead letter.
//!
//! `--soak` runs two workers for half an hour instead ([`soak`]).

mod scene;
mod site;
mod soak;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::cargo::{cargo, empty_folder, python_runs, succeed, target};
use scene::{AttackBench, PlayedScene};
use table::{ATTACKS, QUICK, SceneBroker, WorkerAttack};

#[derive(clap::Args)]
pub(crate) struct AttackArgs {
    /// Run three attacks with few jobs
    #[arg(long)]
    quick: bool,
    /// Run the attacks whose names begin so; repeat it for more
    #[arg(long, value_name = "ATTACK")]
    only: Vec<String>,
    /// Scenes of each attack, and as many without it
    #[arg(long, default_value = "1")]
    rounds: usize,
    /// Run two workers that are killed in turn, with a restart of the broker, instead of the attacks
    #[arg(long, conflicts_with_all = ["quick", "only", "rounds"])]
    soak: bool,
    /// Minutes of the soak
    #[arg(long, default_value = "30", requires = "soak")]
    minutes: usize,
    /// Folder of the CSV file, relative to the workspace
    #[arg(long, default_value = "benches/runs", default_value_if("quick", "true", "target/attacks"))]
    out: PathBuf,
    /// A built foveate; otherwise one is built, with the default features, sqs and nats
    #[arg(long)]
    program: Option<PathBuf>,
}

/// Honest jobs of a scene, and of one in the short form.
const HONEST: usize = 200;
const FEW: usize = 50;
/// Time for the jobs of an outage after its end. The short form only looks for dead letters.
const RECOVERY: Duration = Duration::from_secs(300);
const BRIEF_RECOVERY: Duration = Duration::from_secs(3);
/// Goals: the most that honest jobs take of the time without the attack, and in seconds; the most memory that the
/// worker takes of that without the attack.
const MOST_TIMES: f64 = 2.0;
const MOST_SECONDS: f64 = 3.0;
const MOST_MEMORY: f64 = 1.5;

/// A row of the CSV file. `calm` columns are of the run without the attack.
#[derive(Serialize)]
struct AttackRow {
    attack: &'static str,
    broker: String,
    round: usize,
    hostile_jobs: usize,
    honest_jobs: usize,
    answered: usize,
    median_s: f64,
    calm_median_s: f64,
    last_s: f64,
    calm_last_s: f64,
    peak_mib: f64,
    calm_peak_mib: f64,
    slowest_probe_s: f64,
    calm_slowest_probe_s: f64,
    honest_dead: usize,
    hostile_dead: usize,
    hostile_answered: usize,
    recovered_s: Option<f64>,
    /// Goals that the row misses, separated by semicolons.
    missed: String,
}

impl AttackRow {
    fn new(attack: &WorkerAttack, round: usize, honest: usize, attacked: &PlayedScene, calm: &PlayedScene) -> Self {
        let mut row = Self {
            attack: attack.name,
            broker: format!("{:?}", attack.broker).to_lowercase(),
            round,
            hostile_jobs: attack.jobs,
            honest_jobs: honest,
            answered: attacked.seconds.len(),
            median_s: rounded(attacked.seconds.get(honest / 2)),
            calm_median_s: rounded(calm.seconds.get(honest / 2)),
            last_s: rounded(attacked.seconds.last()),
            calm_last_s: rounded(calm.seconds.last()),
            peak_mib: attacked.peak_mib.round(),
            calm_peak_mib: calm.peak_mib.round(),
            slowest_probe_s: rounded(Some(&attacked.slowest_probe_s)),
            calm_slowest_probe_s: rounded(Some(&calm.slowest_probe_s)),
            honest_dead: attacked.honest_dead,
            hostile_dead: attacked.hostile_dead,
            hostile_answered: attacked.hostile_answered,
            recovered_s: attacked.recovered_s,
            missed: String::new(),
        };
        row.missed = row.goals_missed(attack.recovers).join("; ");
        row
    }

    fn goals_missed(&self, recovers: bool) -> Vec<String> {
        let mut missed = Vec::new();
        if self.answered < self.honest_jobs {
            missed.push(format!("{} unanswered", self.honest_jobs - self.answered));
        }
        for (what, seconds, calm) in
            [("median", self.median_s, self.calm_median_s), ("last", self.last_s, self.calm_last_s)]
        {
            if seconds > MOST_TIMES * calm {
                missed.push(format!("{what} {:.1}x", seconds / calm));
            }
            if seconds > MOST_SECONDS {
                missed.push(format!("{what} {seconds:.1} s"));
            }
        }
        if self.peak_mib > MOST_MEMORY * self.calm_peak_mib {
            missed.push(format!("memory {:.1}x", self.peak_mib / self.calm_peak_mib));
        }
        if recovers && self.hostile_answered < self.hostile_jobs {
            missed.push(format!("{} unanswered after the outage", self.hostile_jobs - self.hostile_answered));
        }
        missed
    }

    fn print(&self) {
        println!(
            "{:<32} {:>3}/{:<3} {:>7.2} {:>6.2} {:>7.2} {:>6.2} {:>6.0} {:>5.0} {:>6.2}  {}",
            self.attack,
            self.answered,
            self.honest_jobs,
            self.median_s,
            self.calm_median_s,
            self.last_s,
            self.calm_last_s,
            self.peak_mib,
            self.calm_peak_mib,
            self.slowest_probe_s,
            if self.missed.is_empty() { "-" } else { &self.missed },
        );
    }
}

/// Seconds to the millisecond; infinite without a value.
fn rounded(seconds: Option<&f64>) -> f64 {
    seconds.map_or(f64::INFINITY, |seconds| (seconds * 1000.0).round() / 1000.0)
}

/// Returns why the chore cannot run here, if it cannot.
pub(crate) fn missing() -> Option<&'static str> {
    if !cfg!(target_os = "linux") {
        return Some("other systems have neither /proc nor all of 127.0.0.0/8");
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&folders).chain(["/usr/sbin".into()]);
    let is_found = folders.any(|folder| folder.join("nats-server").is_file());
    (!is_found).then_some("nats-server is not installed")
}

pub(crate) fn run(root: &Path, args: &AttackArgs) -> Result<()> {
    if let Some(reason) = missing() {
        anyhow::bail!("{reason}; `cargo xtask attacks` needs Linux and nats-server (Debian: apt install nats-server)");
    }
    let folder = target(root).join("attacks");
    empty_folder(&folder)?;
    // A copy, which other builds leave alone.
    let program = folder.join("foveate");
    let built = match &args.program {
        Some(program) => program.clone(),
        None => {
            succeed(cargo(root).args(["build", "--release", "--bin", "foveate", "-F", "foveate/sqs,foveate/nats"]))?;
            target(root).join("release/foveate")
        }
    };
    fs::copy(&built, &program).with_context(|| format!("cannot copy {}", built.display()))?;
    let out = root.join(&args.out);
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    if args.soak {
        let mut bench = AttackBench::start(root, program, folder, false)?;
        return soak::run(&mut bench, args.minutes, &out.join("soak.csv"));
    }
    let mut attacks: Vec<&WorkerAttack> = ATTACKS.iter().filter(|attack| is_chosen(attack, args)).collect();
    if !python_runs("import moto, flask") {
        println!("without SQS: python3 has no moto or no flask");
        attacks.retain(|attack| attack.broker == SceneBroker::Nats);
    }
    ensure!(!attacks.is_empty(), "no attack that can run here begins so; the names are in xtask/src/attacks/table.rs");
    let has_sqs = attacks.iter().any(|attack| attack.broker == SceneBroker::Sqs);
    let mut bench = AttackBench::start(root, program, folder, has_sqs)?;
    attack_all(&mut bench, &attacks, args, &out.join("attacks.csv"))
}

fn is_chosen(attack: &WorkerAttack, args: &AttackArgs) -> bool {
    match args.only.as_slice() {
        [] => !args.quick || QUICK.contains(&attack.name),
        only => only.iter().any(|name| attack.name.starts_with(name.as_str())),
    }
}

/// Plays all attacks, and writes each row as soon as it is measured.
fn attack_all(bench: &mut AttackBench, attacks: &[&WorkerAttack], args: &AttackArgs, csv: &Path) -> Result<()> {
    let honest = if args.quick { FEW } else { HONEST };
    bench.recovery = if args.quick { BRIEF_RECOVERY } else { RECOVERY };
    let mut table = csv::Writer::from_path(csv).with_context(|| format!("cannot make {}", csv.display()))?;
    println!(
        "{:<32} {:>7} {:>7} {:>6} {:>7} {:>6} {:>6} {:>5} {:>6}  missed goals",
        "attack", "honest", "median", "calm", "last", "calm", "MiB", "calm", "probe"
    );
    let mut broken = Vec::new();
    for round in 0..args.rounds {
        for (number, attack) in attacks.iter().enumerate() {
            // In turn, so that what warms up or fills up favours neither.
            let mut turns = [false, true];
            turns.rotate_left((round + number) % 2);
            let mut played = BTreeMap::new();
            for is_attacked in turns {
                let queue = bench.queue(attack.broker);
                let scene = bench.play(&queue, is_attacked.then_some(attack), honest);
                played.insert(is_attacked, scene.with_context(|| format!("attack '{}'", attack.name))?);
            }
            let row = AttackRow::new(attack, round, honest, &played[&true], &played[&false]);
            row.print();
            table.serialize(&row)?;
            table.flush()?;
            for scene in played.values() {
                if scene.lost + scene.honest_dead + scene.differing > 0 {
                    broken.push(format!(
                        "{}: of the honest jobs, {} are lost, {} dead letters, and {} jobs have two results",
                        attack.name, scene.lost, scene.honest_dead, scene.differing
                    ));
                }
            }
            if attack.recovers && row.hostile_dead > 0 {
                broken.push(format!("{}: the outage made {} dead letters", attack.name, row.hostile_dead));
            }
        }
    }
    println!("{}", csv.display());
    ensure!(broken.is_empty(), "{}", broken.join("\n"));
    Ok(())
}
