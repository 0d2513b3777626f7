//! Arguments of `merge`.

use std::path::PathBuf;

use clap::Args;
use foveate::sink::SinkOptions;

use super::job_args::ElementArg;
use super::values::{parse_setting, place};

pub(crate) const EXAMPLES: &str = "\
Examples:
  # a folder of shards, or of a worker's segments
  foveate merge out/ -o all.parquet
  foveate merge monday/ tuesday.npy s3://bucket/wednesday/ -o week/
  foveate merge out/ -o all.parquet --join captions.parquet --on key
  # another format
  foveate merge vectors.parquet -o vectors.npy --out-dtype f16

Order: the outputs as they are named, each in its own order; shards by number,
segments by name. Of each id, the first row is kept, or else the first failure.

Exit codes: 0 complete; 1 stopped by a fault; 2 the command line cannot work.
The same command continues an interrupted merge.";

/// Arguments of `merge` as typed; [`super::merge`] interprets them together.
#[derive(Args, Debug)]
pub(crate) struct MergeArgs {
    /// Complete outputs of `embed`, `worker` or `merge`: files, folders of parts, shards or segments, prefixes in a
    /// store.
    #[arg(value_name = "OUTPUT", required = true)]
    pub(crate) inputs: Vec<PathBuf>,

    /// Output: `x.parquet`, `x.npy`, a folder for part files (`all/`), or a prefix in a store.
    #[arg(short, long, value_name = "OUT", value_parser = place())]
    pub(crate) output: PathBuf,

    /// Output format, for a folder or an unusual extension.
    #[arg(long, value_name = "NAME")]
    pub(crate) sink: Option<String>,

    /// How vectors are stored. Default: as they are. f16 is not made f32.
    #[arg(long, value_enum)]
    pub(crate) out_dtype: Option<ElementArg>,

    /// A setting that only this format has, such as `compression=lz4` of `parquet`. Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub(crate) sink_option: Vec<(String, String)>,

    /// Rows and failures that one part (file of a folder, object of a store, row group of a Parquet file) covers.
    #[arg(long, value_name = "N", default_value_t = SinkOptions::DEFAULT_PART_ITEMS,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) part_items: u64,

    /// A setting of the stores, such as `endpoint=URL` of `s3`. Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub(crate) store_option: Vec<(String, String)>,

    /// A Parquet file whose other columns become text columns of the output, by id; the output is Parquet, too. It is
    /// held in memory.
    #[arg(long, value_name = "FILE")]
    pub(crate) join: Option<PathBuf>,

    /// The column of that file with the ids.
    #[arg(long, value_name = "NAME", default_value = "id", requires = "join")]
    pub(crate) on: String,

    /// Replace an existing output, or restart an interrupted merge.
    #[arg(long)]
    pub(crate) overwrite: bool,

    /// Print the summary as one JSON object on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}
