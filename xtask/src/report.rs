//! `cargo xtask report`: measures the two example reports anew on this machine.

use std::path::Path;

use anyhow::Result;

use crate::cargo::{cargo, python_runs, succeed};
use crate::{figures, setup};

/// The default photos: the usual workload if the shared data set is present, or else the quick start's.
const PHOTOS: [&str; 2] = ["../shared/data/photos", "examples/photos"];
/// The configuration of both reports.
const MEASURED: [&str; 4] = ["--model", "seeded:dinov2-small", "--n", "48"];
/// The job whose forward runs on this machine's cores.
const ON_CPU: &str = "examples/report";
/// The job beside an accelerator that waits for its photos.
const STARVED: &str = "examples/report/starved";
const STAND_IN: [&str; 2] = ["--stand-in", "t4-f16"];
/// Decoders and resizers that every build has, the usual ones first.
const PAIRS: [&str; 3] = ["exact+fir", "zune+fir", "image+image"];

#[derive(clap::Args)]
pub(crate) struct MeasureArgs {
    /// Folder or pattern of the photos to measure with [default: those of the shared data set, else examples/photos]
    #[arg(long)]
    photos: Option<String>,
}

/// Runs every experiment of both jobs, and writes the pages.
pub(crate) fn run(root: &Path, args: &MeasureArgs) -> Result<()> {
    let photos = args.photos.clone().unwrap_or_else(|| usual_photos(root));
    let all = [&["bench", "all", &photos][..], peers()].concat();
    foveate(root, &[&all[..], &MEASURED, &["-o", ON_CPU]].concat())?;
    foveate(root, &["report", ON_CPU])?;
    starved(root, &photos, &all)?;
    figures::update(root)
}

/// Measures the starved accelerator: every experiment, three decoders in the profile, and a diagnosis that climbs from
/// the slowest configuration.
fn starved(root: &Path, photos: &str, all: &[&str]) -> Result<()> {
    let beside = [&MEASURED[..], &STAND_IN, &["-o", STARVED]].concat();
    foveate(root, &[all, &beside].concat())?;
    let pairs = PAIRS.iter().flat_map(|pair| ["--pair", pair]);
    let profile: Vec<&str> = ["profile", "--normalize-on-cpu", photos].into_iter().chain(pairs).collect();
    foveate(root, &[&profile[..], &beside].concat())?;
    let slow = ["--decoder", "image", "--resizer", "image", "--workers", "1", "--budget", "600", "--verify", "all"];
    foveate(root, &[&["diagnose", photos], &slow[..], &beside].concat())?;
    foveate(root, &["report", STARVED])
}

/// Pillow and OpenCV-Python beside the decoders and resizers, where the script's packages are installed.
fn peers() -> &'static [&'static str] {
    if python_runs("import numpy, PIL") { &["--peers", "benches/peers.py"] } else { &[] }
}

fn usual_photos(root: &Path) -> String {
    let [shared, own] = PHOTOS;
    if root.join(shared).is_dir() { format!("{shared}/wl_*.jpg") } else { own.to_owned() }
}

/// The program with every backend that this machine can build. Cargo starts it, because cargo knows where their
/// libraries are.
fn foveate(root: &Path, args: &[&str]) -> Result<()> {
    let mut command = cargo(root);
    command.args(["run", "--release", "-p", "foveate"]);
    if setup::is_done(root) {
        command.args(["--features", "native"]);
    }
    succeed(command.arg("--").args(args))
}
