//! Arguments of `merge`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use foveate::sink::Element;
use foveate::sink::SinkOptions;

use crate::values::{one_of, parse_setting, place};

pub(crate) const EXAMPLES: &str = "\
Examples:
  # a folder of shards, or of a worker's segments
  foveate merge out/ -o all.parquet
  foveate merge monday/ tuesday.npy s3://bucket/wednesday/ -o week/
  foveate merge out/ -o all.parquet --join captions.csv --on key
  # some of the images, in an order of one's own
  foveate merge out/ -o some.parquet --ids-from chosen.txt --order list
  # another format
  foveate merge vectors.parquet -o vectors.npy --out-dtype f16

Of each id, the first row is kept, or else the first failure.

Exit codes: 0 complete; 1 stopped by a fault; 2 the command line cannot work.
The same command continues an interrupted merge.";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum MergeOrder {
    /// As the outputs are named, each in its own order; shards by number, segments by name.
    #[default]
    Inputs,
    /// By id, byte by byte, whatever the outputs' order is.
    Id,
    /// As `--ids-from` names them.
    List,
}

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
    #[arg(long, value_parser = one_of(&Element::ALL, Element::name))]
    pub(crate) out_dtype: Option<Element>,

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

    /// A CSV, Parquet or Arrow file whose other columns become columns of the output, with their types; the output is
    /// Parquet or Arrow, too. It names images by their ids or the ends of these, and is held in memory.
    #[arg(long, value_name = "FILE")]
    pub(crate) join: Option<PathBuf>,

    /// The column of that file with the ids. Default: the one called `id`, `file`, `path` or the like.
    #[arg(long, value_name = "NAME", requires = "join")]
    pub(crate) on: Option<String>,

    /// Columns of that file to take (`caption,url`). Default: all.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "join")]
    pub(crate) columns: Vec<String>,

    /// Take only the images with these ids: lines of text, a CSV, Parquet or Arrow file with a column of ids, or a
    /// NumPy array. Repeatable.
    #[arg(long, value_name = "FILE")]
    pub(crate) ids_from: Vec<PathBuf>,

    /// The order of the output. After updates, outputs are in the order in which images came.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) order: MergeOrder,

    /// Replace an existing output, or restart an interrupted merge.
    #[arg(long)]
    pub(crate) overwrite: bool,

    /// Print the summary as one JSON object on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}
