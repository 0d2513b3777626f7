//! `cargo xtask report`: the example report, measured anew on this machine.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::setup;

/// What is measured where no photos are named: the usual workload where the shared data set is, else the quick start's.
const PHOTOS: [&str; 2] = ["../shared/data/photos", "examples/photos"];
const MODEL: &str = "seeded:dinov2-small";
const OUT: &str = "examples/report";

/// Every experiment, tuning, and the page.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    let photos = photos(root, args)?;
    let measured = ["--model", MODEL, "--n", "48", "-o", OUT];
    foveate(root, &[&["bench", "all", "--quick", &photos], &measured[..]].concat())?;
    let tuning = ["--as-given", "--budget", "90", "--write", "target/foveate.toml"];
    foveate(root, &[&["tune", &photos], &measured[..], &tuning[..]].concat())?;
    foveate(root, &["report", OUT])
}

fn photos(root: &Path, args: &[String]) -> Result<String> {
    match args {
        [] => {
            let usual = root.join(PHOTOS[0]).is_dir().then(|| format!("{}/wl_*.jpg", PHOTOS[0]));
            Ok(usual.unwrap_or_else(|| PHOTOS[1].to_owned()))
        }
        [name, photos] if name == "--photos" => Ok(photos.clone()),
        _ => bail!("report has one argument: --photos FOLDER|PATTERN"),
    }
}

/// The program with every backend that this machine can build, by way of cargo, which tells it where their libraries are.
fn foveate(root: &Path, args: &[&str]) -> Result<()> {
    let mut command = crate::cargo::cargo(root);
    command.args(["run", "--release", "-p", "foveate"]);
    if setup::is_done(root) {
        command.args(["--features", "native"]);
    }
    let status = command.arg("--").args(args).status().context("cannot start cargo")?;
    ensure!(status.success(), "foveate {} failed ({status})", args.join(" "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn photos_are_named_or_usual() {
        let of = |args: &[&str]| {
            photos(&crate::cargo::root(), &args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of(&["--photos", "mine/"]).unwrap(), "mine/");
        assert!(of(&[]).unwrap().contains("photos"));
        assert!(of(&["--photo", "x"]).is_err() && of(&["--photos"]).is_err());
    }
}
