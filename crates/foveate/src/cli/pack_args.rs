//! Arguments of `pack`.

use std::path::PathBuf;

use clap::Args;

use super::job::JobArgs;
use crate::values::{CountOrOff, parse_count, parse_positive};

pub(crate) const EXAMPLES: &str = "\
Examples:
  foveate pack photos/ -o shards/
  foveate pack 's3://bucket/photos/' -o shards/ --shard-size 256M
  # smaller photos, and what that does to the vectors
  foveate pack photos/ -o shards/ --resize 256 --quality 95
  foveate embed 'shards/*.tar' --id-column id -o vectors.parquet

Exit codes: 0 complete; 1 stopped by a fault; 2 the command line cannot work; 3 no input could be packed;
130 interrupted. The same command continues after the last complete shard.";

/// Arguments of `pack` as typed; [`super::pack`] interprets them together.
#[derive(Args, Debug)]
pub(crate) struct PackArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,

    /// The folder for the shards (`00000.tar`, …), `_failures.csv` and `_manifest.json`.
    #[arg(short, long, value_name = "DIR", help_heading = "Output")]
    pub(crate) output: PathBuf,

    /// Container format of the shards: `tar`, as WebDataset writes it, or `parquet`, as Hugging Face's `datasets` does.
    #[arg(long, value_name = "NAME", default_value = "tar", help_heading = "Output")]
    pub(crate) format: String,

    /// Bytes of images in a shard (`256M`). An image that is larger has a shard of its own.
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = parse_count, help_heading = "Output")]
    pub(crate) shard_size: u64,

    /// Resize photos whose shorter side is longer than this, upright and with the recipe's filter, to JPEGs with this
    /// shorter side. Vectors change a little; a sample of them is compared.
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Resizing")]
    pub(crate) resize: Option<u32>,

    /// Quality of resized JPEGs, 1 to 100.
    #[arg(long, value_name = "N", default_value = "95", value_parser = clap::value_parser!(u8).range(1..=100),
          requires = "resize", help_heading = "Resizing")]
    pub(crate) quality: u8,

    /// Do not compare the vectors of a sample.
    #[arg(long, requires = "resize", help_heading = "Resizing")]
    pub(crate) no_drift: bool,

    /// Photos in the sample, drawn at random. The same photos are drawn again.
    #[arg(long, value_name = "N", default_value = "256", value_parser = parse_positive, requires = "resize",
          help_heading = "Resizing", hide = true)]
    pub(crate) drift_sample: usize,

    /// Replace existing shards, or restart an interrupted run.
    #[arg(long, help_heading = "Output")]
    pub(crate) overwrite: bool,

    /// Stop when more inputs than this in a row cannot be read, because their disk or share is probably gone: a count,
    /// or `off`.
    #[arg(long, value_name = "N|off", default_value = "100", help_heading = "Inputs", hide = true)]
    pub(crate) max_unreadable: CountOrOff,

    /// Print errors only.
    #[arg(short, long, help_heading = "Display")]
    pub(crate) quiet: bool,

    /// Print the manifest as JSON on standard output.
    #[arg(long, help_heading = "Display")]
    pub(crate) json: bool,
}
