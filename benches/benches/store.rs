//! The fit of a store beside what is known of it: a photo server on this machine, whose answers all take the same time.
//! `profile`, `plan` and `diagnose` use the same fit. The bench fails if a fitted latency is off by more than
//! [`TOLERANCE`] and [`TOLERANCE_MS`] together.
//!
//! `cargo bench -p foveate-benches --features object-store --bench store -- [--rounds 3] [--csv FILE]`
//!
//! The latencies take turns, in reverse order every other round; a figure is the median of the rounds.

// A bench prints its table.
#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use foveate::dinov2::OpenOptions;
use foveate::embed::{Backends, EmbedOptions};
use foveate::lab::PhotoSet;
use foveate::lab::profile::storage;
use foveate::rig::Rig;
use foveate::source::{Input, Separator};
use foveate_benches::{Result, Spread, host, spread};
use foveate_photo_server::{Latency, PhotoServer, PhotoServerOptions};

/// Milliseconds that every answer takes.
const INJECTED: [u64; 4] = [10, 30, 100, 300];
/// How much a fitted latency may be off: this share of the injected one, and milliseconds of server and sockets.
const TOLERANCE: f64 = 0.03;
const TOLERANCE_MS: f64 = 3.0;
/// Addresses of the photo.
const OBJECTS: usize = 64;
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures");

/// What a fit says of a store.
struct Fit {
    latency_ms: f64,
    found_requests: f64,
    found_rate: f64,
    best_rate: f64,
}

fn main() -> Result<()> {
    let (rounds, csv) = arguments()?;
    let photo: Arc<[u8]> = std::fs::read(Path::new(FIXTURES).join("goldens/photos/30_icc_q100.jpg"))?.into();
    let mut fits: Vec<Vec<Fit>> = INJECTED.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..INJECTED.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            fits[at].push(fit(Duration::from_millis(INJECTED[at]), &photo)?);
        }
    }
    report(&fits, photo.len(), csv.as_deref())
}

fn arguments() -> Result<(usize, Option<PathBuf>)> {
    let (mut rounds, mut csv) = (3, None);
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    while let Some(name) = args.next() {
        let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--rounds" => rounds = value.parse()?,
            "--csv" => csv = Some(value.into()),
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    Ok((rounds, csv))
}

/// Measures a server whose answers take `latency`.
fn fit(latency: Duration, photo: &Arc<[u8]>) -> Result<Fit> {
    let options = PhotoServerOptions { latency: Latency::new(latency, latency)?, ..PhotoServerOptions::default() };
    let server = PhotoServer::start(vec![Arc::clone(photo)], options)?;
    let folder = tempfile::tempdir()?;
    let list = folder.path().join("list");
    std::fs::write(&list, (0..OBJECTS).map(|n| server.url(&format!("/photo/{n}\n"))).collect::<String>())?;
    let options =
        EmbedOptions::new(vec![Input::List(list, Separator::Line)], format!("{FIXTURES}/models/tiny"), "none.npy");
    let listing = options.list(|_| ())?;
    let backends = Arc::new(Backends::compiled());
    let rig = Rig::new(options, Box::new(listing), (OBJECTS as u64, 0), backends, &OpenOptions::from_env())?;
    let table = storage(&[PhotoSet::load(&rig, OBJECTS)?])?;
    let number = |row, column: &str| table.number(row, column).ok_or_else(|| format!("no {column}"));
    let found = table.len() - 1;
    let rates: Vec<f64> = (0..table.len()).filter_map(|row| table.number(row, "images_per_second")).collect();
    Ok(Fit {
        latency_ms: number(0, "latency_ms")?,
        found_requests: number(found, "requests")?,
        found_rate: number(found, "images_per_second")?,
        best_rate: rates.into_iter().fold(0.0, f64::max),
    })
}

fn report(fits: &[Vec<Fit>], bytes: usize, csv: Option<&Path>) -> Result<()> {
    let mut text = String::from(
        "host,cores,rounds,object_bytes,injected_ms,fitted_ms,fitted_ms_min,fitted_ms_max,tolerance_ms,within,\
         found_requests,found_objects_per_s,best_objects_per_s\n",
    );
    let mut all_within = true;
    for (injected, fits) in INJECTED.iter().zip(fits) {
        let of = |part: fn(&Fit) -> f64| spread(&fits.iter().map(part).collect::<Vec<_>>());
        let Spread { median, min, max } = of(|fit| fit.latency_ms);
        let tolerance = TOLERANCE * *injected as f64 + TOLERANCE_MS;
        let within = (median - *injected as f64).abs() <= tolerance;
        all_within &= within;
        text += &format!(
            "{},{},{},{bytes},{injected},{median:.2},{min:.2},{max:.2},{tolerance:.1},{},{:.0},{:.0},{:.0}\n",
            host::processor(),
            host::cores(),
            fits.len(),
            if within { "yes" } else { "no" },
            of(|fit| fit.found_requests).median,
            of(|fit| fit.found_rate).median,
            of(|fit| fit.best_rate).median,
        );
    }
    print!("{text}");
    if let Some(path) = csv {
        std::fs::write(path, text)?;
    }
    if all_within { Ok(()) } else { Err("a fitted latency is not that of the server".into()) }
}
