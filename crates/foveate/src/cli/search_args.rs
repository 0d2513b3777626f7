//! Arguments of `neighbors` and `duplicates`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use foveate::search::{Linkage, Metric};

use super::values::{parse_positive, parse_setting, parse_share, place};

pub(crate) const NEIGHBORS_EXAMPLES: &str = "\
Examples:
  foveate neighbors vectors.parquet -k 10 -o knn.parquet
  foveate neighbors out/ --queries new.parquet -k 5 -o nearest.csv

A row for each neighbour: id, neighbor, rank (from 1), score. The result is that
of comparing every pair in f64; of equal scores, the earlier row comes first.

Exit codes: 0 complete; 1 stopped by a fault; 2 the command line cannot work;
130 interrupted, and nothing is written.";

pub(crate) const DUPLICATES_EXAMPLES: &str = "\
Examples:
  foveate duplicates vectors.parquet --threshold 0.97 -o groups.parquet
  foveate duplicates vectors.parquet -o groups.csv --list-removable > ids.txt
  foveate duplicates monday.parquet --against old.parquet -o known.csv

A row for each image of a group: group, id, keep, score (to the image that is
kept), reason (kept, same bytes, near), width, height. The largest image is kept,
or the first of several. Nothing is deleted.

Exit codes: 0 complete; 1 stopped by a fault; 2 the command line cannot work;
130 interrupted, and nothing is written.";

/// What both commands take.
#[derive(Args, Debug)]
pub(crate) struct SearchArgs {
    /// Complete outputs of `embed`, `worker` or `merge`: files, folders of parts, shards or segments, prefixes in a
    /// store. All with the same model and settings.
    #[arg(value_name = "VECTORS", required = true)]
    pub(crate) inputs: Vec<PathBuf>,

    /// Output: `x.parquet` or `x.csv`. A file that is there is replaced.
    #[arg(short, long, value_name = "FILE", value_parser = place())]
    pub(crate) output: PathBuf,

    /// What a score is. A vector of zeros has the cosine 0 with every other.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) metric: MetricArg,

    /// Threads. Default: all cores.
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    pub(crate) threads: Option<usize>,

    /// A setting of the stores, such as `endpoint=URL` of `s3`. Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub(crate) store_option: Vec<(String, String)>,

    /// Print the summary as one JSON object on standard output.
    #[arg(long)]
    pub(crate) json: bool,

    /// Print errors alone.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum MetricArg {
    #[default]
    Cosine,
    /// The inner product.
    Dot,
}

impl From<MetricArg> for Metric {
    fn from(metric: MetricArg) -> Self {
        match metric {
            MetricArg::Cosine => Self::Cosine,
            MetricArg::Dot => Self::Dot,
        }
    }
}

/// Arguments of `neighbors` as typed.
#[derive(Args, Debug)]
pub(crate) struct NeighborsArgs {
    #[command(flatten)]
    pub(crate) search: SearchArgs,

    /// Neighbours of each image.
    #[arg(short, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) k: u32,

    /// Find the neighbours of these images among VECTORS, instead of those of VECTORS among themselves. Repeatable.
    #[arg(long, value_name = "VECTORS")]
    pub(crate) queries: Vec<PathBuf>,
}

/// Arguments of `duplicates` as typed.
#[derive(Args, Debug)]
pub(crate) struct DuplicatesArgs {
    #[command(flatten)]
    pub(crate) search: SearchArgs,

    /// Least score of two images that are near duplicates.
    #[arg(long, value_name = "SCORE", default_value_t = 0.97, value_parser = parse_share)]
    pub(crate) threshold: f64,

    /// What makes a group: a chain of pairs, or every two images being a pair.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) linkage: LinkageArg,

    /// Compare VECTORS with these alone, which are kept, and not with each other. Repeatable.
    #[arg(long, value_name = "VECTORS")]
    pub(crate) against: Vec<PathBuf>,

    /// Print the ids of the images that are not kept on standard output, one per line, instead of a summary.
    #[arg(long, conflicts_with = "json")]
    pub(crate) list_removable: bool,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum LinkageArg {
    #[default]
    Single,
    Complete,
}

impl From<LinkageArg> for Linkage {
    fn from(linkage: LinkageArg) -> Self {
        match linkage {
            LinkageArg::Single => Self::Single,
            LinkageArg::Complete => Self::Complete,
        }
    }
}
