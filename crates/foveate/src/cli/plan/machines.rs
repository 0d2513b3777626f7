//! A job on other machines: the run's costs on their cores, the forward on their devices.

use std::path::Path;

use anyhow::{Context as _, ensure};
use foveate::lab::{StandIn, Table, schema};
use foveate::plan::{Configuration, Measured, Rate, Workload};
use serde::Deserialize;

use super::super::measured_run::{MeasuredRun, curve};
use super::super::plan_args::PlanArgs;
use super::walls::bus;

/// A row of a price list.
#[derive(Deserialize)]
struct Machine {
    machine: String,
    cores: u32,
    device: String,
    price_per_hour: f64,
    watts: f64,
    core_speed: Option<f64>,
}

/// Returns [`schema::MACHINES`], the cheapest machine first.
pub(super) fn table(path: &Path, args: &PlanArgs, run: &MeasuredRun, measured: &Measured) -> anyhow::Result<Table> {
    let mut reader = csv::Reader::from_path(path).with_context(|| format!("cannot read {}", path.display()))?;
    let machines = reader.deserialize().collect::<Result<Vec<Machine>, _>>();
    let machines = machines.with_context(|| format!("cannot read {}", path.display()))?;
    let mut answers = Vec::new();
    for machine in &machines {
        let answer = Answer::of(machine, args, run, measured);
        answers.push((machine, answer.with_context(|| format!("{}: {}", path.display(), machine.machine))?));
    }
    answers.sort_by(|(_, a), (_, b)| a.money.total_cmp(&b.money));
    let mut table = Table::new(&schema::MACHINES);
    for (machine, answer) in answers {
        table.push([
            ("machine", machine.machine.as_str().into()),
            ("machine_cores", u64::from(machine.cores).into()),
            ("accelerator", answer.accelerator.into()),
            ("workers", u64::from(answer.workers).into()),
            ("images_per_second", answer.rate.into()),
            ("limit", answer.limit.into()),
            ("job_images", args.images.into()),
            ("hours", answer.hours.into()),
            ("core_hours", (answer.hours * f64::from(machine.cores)).into()),
            ("money", answer.money.into()),
            ("kwh", (answer.hours * machine.watts / 1e3).into()),
        ]);
    }
    Ok(table)
}

/// A machine's share of the job.
struct Answer {
    accelerator: String,
    workers: u32,
    rate: f64,
    limit: String,
    hours: f64,
    money: f64,
}

impl Answer {
    fn of(machine: &Machine, args: &PlanArgs, run: &MeasuredRun, measured: &Measured) -> anyhow::Result<Self> {
        ensure!(machine.watts >= 0.0 && machine.watts.is_finite(), "watts must be a number from 0");
        let batch = args.batch.unwrap_or(run.configuration.batch);
        let speed = machine.core_speed.unwrap_or(1.0);
        let measured = measured.with_cores(machine.cores, speed)?;
        let (device, measured, encoders) = match machine.device.as_str() {
            "cpu" => {
                let forward = run.forward_on_cpu.clone();
                ensure!(
                    !forward.is_empty(),
                    "the run has no forward on its cores; measure one (`foveate bench batch-sweep`), or name a device"
                );
                // Several forwards of the measured number of threads, each with its own batch.
                let encoders = (machine.cores / run.configuration.forward_threads).max(1);
                (None, Measured { forward, ..measured }.with_forward(1.0 / speed)?, encoders)
            }
            name => {
                let device: StandIn = name.parse().map_err(anyhow::Error::msg)?;
                let forward = curve(&device, run.configuration.forward_threads);
                (Some(device), Measured { forward, ..measured }, args.accelerators)
            }
        };
        let configuration = Configuration { batch, encoders, ..run.configuration };
        let workers = measured.workers_to_saturate(&configuration, machine.cores, 0.98)?;
        let prediction = measured.predict(&Configuration { workers, ..configuration })?;
        let bus = device.as_ref().and_then(|device| bus(args, Some(device)));
        let bus = bus.map(|bus| f64::from(encoders) * bus.bytes_per_second / bus.bytes_per_image);
        let (rate, limit) = match bus.filter(|&rate| rate < prediction.images_per_second) {
            Some(rate) => (rate, "the bus".to_owned()),
            None => (prediction.images_per_second, prediction.bound.to_string()),
        };
        let job = Workload {
            images: args.images,
            machines: args.machines,
            rate: Rate::exactly(rate),
            startup_seconds: args.startup,
            efficiency: 1.0,
            price_per_hour: machine.price_per_hour,
        };
        let cost = job.cost()?;
        let accelerator = device.map_or_else(|| machine.device.clone(), |device| device.name());
        Ok(Self { accelerator, workers, rate, limit, hours: cost.machine_hours.expected, money: cost.money.expected })
    }
}
