//! The answers for a machine whose forward runs on the cores that decode.

use std::io::Write;

use foveate::plan::{Configuration, Measured, Prediction, Storage, WhatIf};
use serde::Serialize;

use super::super::measured_run::MeasuredRun;
use super::super::plan_args::PlanArgs;
use super::walls::Walls;
use super::words::{Count, print_what_ifs};

/// The most of the best throughput that a number of workers must reach to be enough.
const ENOUGH: f64 = 0.98;
/// The numbers of workers of the sweep.
const WORKERS: [u32; 6] = [0, 1, 2, 4, 8, 16];

/// The answers.
#[derive(Serialize)]
pub(super) struct Shared {
    cores: u32,
    configuration: Configuration,
    pub(super) prediction: Prediction,
    workers: Vec<(u32, Prediction)>,
    workers_to_saturate: u32,
    what_ifs: Vec<WhatIf<Prediction>>,
    /// The walls as if every thread had a core of its own, for the report.
    #[serde(skip)]
    pub(super) walls: Walls,
    /// The share of the rate that the measurement's interval leaves open.
    #[serde(skip)]
    resolution: f64,
}

impl Shared {
    pub(super) fn new(
        args: &PlanArgs,
        run: &MeasuredRun,
        storage: Option<Storage>,
        walls: Walls,
    ) -> anyhow::Result<Self> {
        let workers = args.workers.unwrap_or(run.configuration.workers);
        let configuration = Configuration { workers, batch: walls.state.batch, ..run.configuration };
        let measured = Measured { storage, ..run.measured.clone() };
        let most = 2 * run.measured.cores;
        let counts: Vec<u32> = WORKERS.into_iter().filter(|&workers| workers <= most).collect();
        let resolution = run.resolution();
        // More workers whose gain the measurement cannot tell are not needed.
        let enough = (1.0 - resolution).clamp(f64::MIN_POSITIVE, ENOUGH);
        Ok(Self {
            cores: measured.cores,
            configuration,
            prediction: measured.predict(&configuration)?,
            workers: counts.iter().copied().zip(measured.worker_sweep(&configuration, &counts)?).collect(),
            workers_to_saturate: measured.workers_to_saturate(&configuration, most, enough)?,
            what_ifs: measured.what_ifs(&configuration)?,
            walls,
            resolution,
        })
    }

    pub(super) fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let Configuration { workers, batch, forward_threads, .. } = self.configuration;
        let workers = Count(workers, "worker");
        let threads = Count(forward_threads, "thread");
        let Prediction { images_per_second, why, .. } = &self.prediction;
        writeln!(
            out,
            "batch {batch}, {workers}, {threads} for the forward on the same {}: {images_per_second:.1} images/s",
            Count(self.cores, "core")
        )?;
        writeln!(out, "{why}\n")?;
        for (workers, Prediction { images_per_second, bound, .. }) in &self.workers {
            let workers = format!("{workers:>5} worker{}", if *workers == 1 { " " } else { "s" });
            writeln!(out, "  {workers}  {images_per_second:>10.1} images/s  ({bound})")?;
        }
        let enough = Count(self.workers_to_saturate, "worker");
        let verb = if self.workers_to_saturate == 1 { "is" } else { "are" };
        match self.resolution {
            0.0 => writeln!(out, "{enough} {verb} enough")?,
            part => writeln!(
                out,
                "{enough} {verb} enough: more gain less than the {:.0} % that the measurement can tell",
                100.0 * part.max(1.0 - ENOUGH)
            )?,
        }
        writeln!(out, "\nwhat if, at batch {batch}:")?;
        print_what_ifs(out, &self.what_ifs, self.resolution, |prediction| {
            (prediction.images_per_second, prediction.bound.to_string())
        })
    }
}
