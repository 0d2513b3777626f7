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

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::cargo::{cargo, empty_folder, python_runs, succeed, target};
use scene::{AttackBench, SceneRow};
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
/// Most seconds until a probe is answered: what Kubernetes gives it, unless told otherwise.
const MOST_PROBE_SECONDS: f64 = 1.0;

/// Returns the goals that a scene misses, next to the one without the attack.
fn goals_missed(attack: &WorkerAttack, attacked: &SceneRow, calm: &SceneRow) -> Vec<String> {
    let mut missed = Vec::new();
    if attacked.answered < attacked.honest_jobs {
        missed.push(format!("{} unanswered", attacked.honest_jobs - attacked.answered));
    }
    let medians = ("median", attacked.median_s, calm.median_s);
    for (what, seconds, calm) in [medians, ("last", attacked.last_s, calm.last_s)] {
        if seconds > MOST_TIMES * calm {
            missed.push(format!("{what} {:.1}x", seconds / calm));
        }
        // moto takes longer by itself.
        if seconds > MOST_SECONDS && attack.broker == SceneBroker::Nats {
            missed.push(format!("{what} {seconds:.1} s"));
        }
    }
    if attacked.peak_mib > MOST_MEMORY * calm.peak_mib {
        missed.push(format!("memory {:.1}x", attacked.peak_mib / calm.peak_mib));
    }
    if attacked.slowest_probe_s > MOST_PROBE_SECONDS {
        missed.push(format!("probe {:.1} s", attacked.slowest_probe_s));
    }
    if let Some(waited) = attacked.recovered_s.filter(|_| attacked.hostile_answered < attack.jobs) {
        missed.push(format!("{} unanswered {waited} s after the outage", attack.jobs - attacked.hostile_answered));
    }
    missed
}

/// Returns what a scene must never show.
fn faults(attack: &WorkerAttack, scene: &SceneRow) -> Vec<String> {
    let name = attack.name;
    let mut faults = Vec::new();
    if scene.lost + scene.honest_dead + scene.differing > 0 {
        faults.push(format!(
            "{name}: {} jobs are lost, {} honest jobs are dead letters, {} jobs have two results",
            scene.lost, scene.honest_dead, scene.differing
        ));
    }
    if attack.recovers && scene.hostile_dead > 0 {
        faults.push(format!("{name}: the outage made {} dead letters", scene.hostile_dead));
    }
    faults
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
            let scenes = match play_in_turn(bench, attack, (round + number).is_multiple_of(2), honest) {
                Ok(scenes) => scenes,
                Err(error) => {
                    broken.push(format!("{}: {error:#}", attack.name));
                    continue;
                }
            };
            print(&scenes);
            for mut scene in scenes {
                broken.extend(faults(attack, &scene));
                scene.round = round;
                table.serialize(&scene)?;
            }
            table.flush()?;
        }
    }
    println!("{}", csv.display());
    ensure!(broken.is_empty(), "{}", broken.join("\n"));
    Ok(())
}

/// Plays an attack, and the same honest jobs without it. They change places from one attack to the next, so that a
/// machine that warms up or fills up favours neither.
fn play_in_turn(
    bench: &mut AttackBench,
    attack: &WorkerAttack,
    attack_first: bool,
    honest: usize,
) -> Result<[SceneRow; 2]> {
    let queue = bench.queue(attack.broker);
    let first = bench.play(&queue, attack, attack_first, honest)?;
    let queue = bench.queue(attack.broker);
    let second = bench.play(&queue, attack, !attack_first, honest)?;
    let [mut attacked, calm] = if attack_first { [first, second] } else { [second, first] };
    attacked.missed = goals_missed(attack, &attacked, &calm).join("; ");
    Ok([attacked, calm])
}

fn print([attacked, calm]: &[SceneRow; 2]) {
    println!(
        "{:<32} {:>3}/{:<3} {:>7.2} {:>6.2} {:>7.2} {:>6.2} {:>6.0} {:>5.0} {:>6.2}  {}",
        attacked.attack,
        attacked.answered,
        attacked.honest_jobs,
        attacked.median_s,
        calm.median_s,
        attacked.last_s,
        calm.last_s,
        attacked.peak_mib,
        calm.peak_mib,
        attacked.slowest_probe_s,
        attacked.missed,
    );
}
