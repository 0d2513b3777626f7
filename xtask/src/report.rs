//! `cargo xtask report`: measures the example report anew on this machine.

use std::path::Path;

use anyhow::Result;

use crate::cargo::{cargo, succeed};
use crate::setup;

/// The default photos: the usual workload if the shared data set is present, or else the quick start's.
const PHOTOS: [&str; 2] = ["../shared/data/photos", "examples/photos"];
const MODEL: &str = "seeded:dinov2-small";
const OUT: &str = "examples/report";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder or pattern of the photos to measure with [default: those of the shared data set, else examples/photos]
    #[arg(long)]
    photos: Option<String>,
}

/// Runs every experiment and the tuning, and writes the page.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let photos = args.photos.clone().unwrap_or_else(|| usual_photos(root));
    let measured = ["--model", MODEL, "--n", "48", "-o", OUT];
    foveate(root, &[&["bench", "all", "--quick", &photos], &measured[..]].concat())?;
    let tuning = ["--as-given", "--budget", "90", "--write", "target/foveate.toml", "--overwrite"];
    foveate(root, &[&["tune", &photos], &measured[..], &tuning[..]].concat())?;
    foveate(root, &["report", OUT])
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
