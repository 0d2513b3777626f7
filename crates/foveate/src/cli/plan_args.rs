//! Arguments of `plan`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use foveate::lab::StandIn;

use crate::values::{parse_count, parse_positive, suffixed};

pub(crate) const EXAMPLES: &str = "\
Examples:
  foveate plan --from foveate-run --images 10M --machines 4 --price 1.2
  foveate plan --published resnet50-a100
  foveate plan --sample-bytes 300K --cpu-ms 4.4 --workers 16 --overhead-ms 5 \\
      --item-ms 0.03 --storage 3G --batch 256
  foveate plan --from foveate-run --stand-in t4-f16
  foveate plan --from foveate-run --images 1G --machines 2000 --startup 300
  foveate plan --from foveate-run --images 10M --price-list machines.csv

Rates are images per second, money is in the currency of --price. Numbers take K, M and G (thousands, millions, \
thousand millions).";

/// A machine and a job, in numbers. Values that have a default or are unknown are optional.
#[derive(Args, Clone, Debug)]
pub(crate) struct PlanArgs {
    /// Take the costs from a run's folder: profile.csv, and batch_sweep.csv or forward.csv.
    #[arg(long, value_name = "RUN_DIR", conflicts_with_all = ["sample_bytes", "cpu_throughput", "cpu_ms", "steps", "overhead_ms"], help_heading = "Costs")]
    pub(crate) from: Option<PathBuf>,

    /// The run's set of photos, by the start of its name (`as given`, `small`); default: the first.
    #[arg(long, value_name = "NAME", requires = "from", help_heading = "Costs")]
    pub(crate) photos: Option<String>,

    /// Take the figures that were published about a machine, where no other option gives one.
    #[arg(long, value_name = "NAME", conflicts_with = "from", help_heading = "Costs")]
    pub(crate) published: Option<PublishedMachine>,

    /// Encoded bytes of an image.
    #[arg(long, value_name = "BYTES", value_parser = parse_number, required_unless_present_any = ["from", "published"], help_heading = "Costs")]
    pub(crate) sample_bytes: Option<f64>,

    /// Encoded bytes per second that all CPU workers together decode. With --workers, that many reach it, and other
    /// numbers of workers are compared.
    #[arg(long, value_name = "BYTES/S", value_parser = parse_number, conflicts_with = "cpu_ms", help_heading = "Costs")]
    pub(crate) cpu_throughput: Option<f64>,

    /// Milliseconds per image of one worker.
    #[arg(long, value_name = "MS", value_parser = parse_number, help_heading = "Costs")]
    pub(crate) cpu_ms: Option<f64>,

    /// Milliseconds of the accelerator per batch, as `BATCH:MS,…`.
    #[arg(long, value_name = "LIST", value_parser = parse_steps, required_unless_present_any = ["from", "published", "item_ms", "stand_in"], help_heading = "Costs")]
    pub(crate) steps: Option<Steps>,

    /// Milliseconds per batch, independent of its size.
    #[arg(long, value_name = "MS", value_parser = parse_number, requires = "item_ms", conflicts_with = "steps", help_heading = "Costs")]
    pub(crate) overhead_ms: Option<f64>,

    /// Additional milliseconds per image of a batch.
    #[arg(long, value_name = "MS", value_parser = parse_number, conflicts_with = "steps", help_heading = "Costs")]
    pub(crate) item_ms: Option<f64>,

    #[arg(long, value_name = "DEVICE", help = format!("The accelerator: {}. With --from, in place of the forward that was measured", StandIn::choices()), conflicts_with_all = ["steps", "overhead_ms", "item_ms"], help_heading = "Costs")]
    pub(crate) stand_in: Option<StandIn>,

    /// Additional milliseconds per image of one worker, such as augmentation.
    #[arg(long, value_name = "MS", default_value = "0", value_parser = parse_number, conflicts_with = "cpu_throughput", help_heading = "Costs")]
    pub(crate) augment_ms: f64,

    /// Bytes per second from the host's memory to each accelerator, such as 25G. Default: the stand-in's, or
    /// unlimited.
    #[arg(long, value_name = "BYTES/S", value_parser = parse_number, help_heading = "Costs")]
    pub(crate) bus: Option<f64>,

    /// Bytes of an image that cross the bus. Default: those of 224 x 224 pixels as u8.
    #[arg(long, value_name = "BYTES", default_value = "150528", value_parser = parse_number, help_heading = "Costs")]
    pub(crate) pixel_bytes: f64,

    /// Bytes per second of the disk or the link; default: unlimited.
    #[arg(long, value_name = "BYTES/S", value_parser = parse_number, help_heading = "Storage")]
    pub(crate) storage: Option<f64>,

    /// Milliseconds before the first byte of a request, for object stores and URLs.
    #[arg(long, value_name = "MS", value_parser = parse_number, requires = "stream", help_heading = "Storage")]
    pub(crate) latency_ms: Option<f64>,

    /// Bytes per second of one request.
    #[arg(long, value_name = "BYTES/S", value_parser = parse_number, requires = "latency_ms", help_heading = "Storage")]
    pub(crate) stream: Option<f64>,

    /// Requests in flight. Default: those of the run, or 16.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Storage")]
    pub(crate) requests: Option<u32>,

    /// Threads that decode and resize. Default: those of the run, where the forward uses the same cores, or else as
    /// many as help, up to the run's cores.
    #[arg(short, long, value_name = "N", help_heading = "Configuration")]
    pub(crate) workers: Option<u32>,

    /// Images per batch.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Configuration")]
    pub(crate) batch: Option<u32>,

    /// Accelerators per machine.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Configuration")]
    pub(crate) accelerators: u32,

    /// Images to embed.
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_count, help_heading = "Workload")]
    pub(crate) images: u64,

    /// Machines, all alike.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Workload")]
    pub(crate) machines: u32,

    /// Also compare the machines in this CSV file, with the run's costs on their cores and devices. Its columns are
    /// machine, cores, device (`cpu`, or as in --stand-in), price_per_hour, watts, and optionally core_speed: their
    /// cores' speed ÷ that of the run's.
    #[arg(long, value_name = "FILE", requires = "from", help_heading = "Workload")]
    pub(crate) price_list: Option<PathBuf>,

    /// Price of a machine per hour.
    #[arg(long, value_name = "PRICE", default_value = "0", value_parser = parse_number, help_heading = "Workload")]
    pub(crate) price: f64,

    /// Seconds from a machine's start to its first image.
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = parse_number, help_heading = "Workload")]
    pub(crate) startup: f64,

    /// Size a queue worker: seconds for which the queue hides a delivered message.
    #[arg(long, value_name = "SECONDS", value_parser = parse_number, help_heading = "Queue")]
    pub(crate) visibility_timeout: Option<f64>,

    /// Queues inside the worker.
    #[arg(long, value_name = "N", default_value = "3", value_parser = parse_positive, help_heading = "Queue")]
    pub(crate) queues: usize,

    /// Milliseconds from an item's request until it can be decoded.
    #[arg(long, value_name = "MS", default_value = "200", value_parser = parse_number, help_heading = "Queue")]
    pub(crate) fetch_ms: f64,

    /// Also write batch_plan.csv, for the report, into this folder.
    #[arg(short, long, value_name = "DIR", help_heading = "Display")]
    pub(crate) out: Option<PathBuf>,

    /// Print one JSON object.
    #[arg(long, help_heading = "Display")]
    pub(crate) json: bool,
}

/// Machines whose figures were published.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum PublishedMachine {
    /// An A100 that trains ResNet-50 on samples of 500 KB; eight workers prepare 2 GB/s for it
    #[value(name = "resnet50-a100")]
    Resnet50A100,
}

impl PlanArgs {
    /// Fills in the figures of the published machine that no option gives.
    pub(crate) fn with_published(mut self) -> Self {
        let Some(PublishedMachine::Resnet50A100) = self.published else { return self };
        self.sample_bytes.get_or_insert(500e3);
        self.batch.get_or_insert(256);
        if self.cpu_ms.is_none() {
            self.cpu_throughput.get_or_insert(2e9);
        }
        if self.item_ms.is_none() && self.stand_in.is_none() {
            let steps = [(32, 5.86), (64, 6.70), (128, 8.38), (256, 11.74), (512, 18.47), (1024, 31.93)];
            self.steps.get_or_insert(Steps(steps.into()));
        }
        self
    }
}

/// Batches, and milliseconds of each.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Steps(pub(crate) Vec<(u32, f64)>);

fn parse_steps(text: &str) -> Result<Steps, String> {
    let mut steps = Vec::new();
    for pair in text.split(',') {
        let (batch, ms) = pair.split_once(':').ok_or("expected BATCH:MS,…, such as 32:5.86,64:6.70")?;
        let batch = batch.trim().parse().map_err(|_| format!("'{batch}' is no batch"))?;
        steps.push((batch, parse_number(ms)?));
    }
    Ok(Steps(steps))
}

/// Parses a non-negative number with an optional suffix for thousands, millions or thousand millions.
fn parse_number(text: &str) -> Result<f64, String> {
    let number = suffixed(text).filter(|&number| number >= 0.0);
    number.ok_or_else(|| "expected a number from 0, such as 11.74, 500K or 2G".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_steps_are_read_and_nonsense_refused() {
        assert_eq!(parse_number("1.5K"), Ok(1500.0));
        assert_eq!(parse_steps("32:5.86, 64:6.7"), Ok(Steps(vec![(32, 5.86), (64, 6.7)])));
        for bad in ["", "x", "-1", "nan", "inf"] {
            assert!(parse_number(bad).is_err() && parse_steps(bad).is_err(), "{bad}");
        }
    }
}
