//! Arguments of the commands that search vectors.

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, ValueEnum};
use foveate::Shard;
use foveate::embed::WebSettings;
#[cfg(feature = "text")]
use foveate::encode::DType;
use foveate::search::Metric;

use super::foreign::args::ForeignArgs;
use super::own_file::OwnFile;
use super::search::place::search_file;
#[cfg(feature = "text")]
use crate::values::one_of;
use crate::values::{parse_positive, parse_setting, parse_shard, parse_share, place};

pub(crate) const NEIGHBORS_EXAMPLES: &str = "\
Examples:
  foveate neighbors vectors.parquet -k 10 -o knn.parquet
  foveate neighbors out/ --queries new.parquet -k 5 -o nearest.csv
  foveate neighbors vectors.parquet -k 10 -o knn.parquet --dry-run

A row for each neighbour: id, neighbor, rank (from 1), score. The result is that
of comparing every pair in f64; of equal scores, the earlier row comes first.

Exit codes: 0 complete; 1 stopped by a fault; 2 the command line cannot work;
130 interrupted; the same command continues.";

pub(crate) const DUPLICATES_EXAMPLES: &str = "\
Examples:
  foveate duplicates vectors.parquet --threshold 0.97 -o groups.parquet
  foveate duplicates vectors.parquet -o dups.csv --html dups.html --images in/
  foveate duplicates vectors.parquet -o dups.csv --keep lossless,largest,oldest
  foveate duplicates vectors.parquet -o dups.csv --list-removable > removable
  foveate duplicates monday.parquet --against old.parquet -o known.csv

A row for each image of a group: group, id, keep, score (to the image that is
kept), reason (kept, same bytes, same pixels, near, same file, hard link, link),
width, height, removable, kept_by. The largest image is kept, or the first of
several (--keep, --prefer). Nothing is deleted.

Exit codes: 0 complete; 1 stopped by a fault; 2 the command line cannot work;
130 interrupted; the same command continues.";

pub(crate) const SIMILAR_EXAMPLES: &str = "\
Examples:
  foveate similar vectors.parquet --query photo.jpg
  foveate similar vectors.parquet --query shots/ --html page.html --images in/
  foveate similar vectors.parquet --id photos/0042.jpg --json
  foveate similar vectors.parquet --text 'a red bicycle in snow'
  foveate similar vectors.parquet --text 'a beach' --minus people

The queries are embedded by the model and with the settings that the vectors'
manifest names. Columns: query, id, rank (from 1), score.

Exit codes: 0 complete; 1 stopped by a fault; 2 the command line cannot work;
3 a query is no image; 130 interrupted.";

pub(crate) const CLUSTERS_EXAMPLES: &str = "\
Examples:
  foveate clusters vectors.parquet -k 100 -o clusters.parquet
  foveate clusters vectors.parquet -k auto -o c.csv --html c.html --images in/

A row for each image: id, cluster, rank (1 is the most typical of its cluster),
score (to the cluster's centre). The same vectors give the same clusters.

Exit codes: 0 complete; 1 stopped by a fault; 2 the command line cannot work;
130 interrupted, and nothing is written.";

pub(crate) const SAMPLE_EXAMPLES: &str = "\
Examples:
  foveate sample vectors.parquet -n 500 -o to-label.csv
  foveate sample vectors.parquet -n 10% --by clusters -o to-label.csv

A row for each image that is chosen: id, rank (in the order of choice), score
(cosine).

Exit codes: 0 complete; 1 stopped by a fault; 2 the command line cannot work;
130 interrupted, and nothing is written.";

pub(crate) const EVAL_EXAMPLES: &str = "\
Examples:
  foveate eval vectors.parquet --labels labels.csv
  foveate eval small.parquet base.parquet --labels labels.csv
  foveate eval vectors.parquet --label-column category
  foveate eval vectors.parquet --captions captions.csv

Measures how well the vectors tell labels apart, with 95 % intervals: recall@k,
mAP@R, k-NN accuracy, accuracy of a linear probe. With captions, recall@1, 5 and
10 of images by texts and of texts by images. Several outputs are compared on
the images that all of them have.

Exit codes: 0 measured; 1 stopped by a fault; 2 the command line cannot work;
130 interrupted.";

/// Options of all commands.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SearchArgs {
    /// Complete outputs of `embed`, `worker` or `merge`: files, folders of parts, shards or segments, prefixes in a
    /// store; Parquet, Arrow, CSV, NumPy and safetensors files of other programs, or folders of these. All of the same
    /// model and settings.
    #[arg(value_name = "VECTORS", required = true)]
    pub(crate) inputs: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) foreign: ForeignArgs,

    /// Columns of VECTORS that are read too.
    #[arg(skip)]
    pub(crate) columns: Vec<String>,

    /// Returns true if all columns that outputs carry along are read.
    #[arg(skip)]
    pub(crate) all_columns: bool,

    /// Take only the rows of VECTORS with these ids: lines of text, a CSV, Parquet or Arrow file with a column of ids,
    /// or a NumPy array. Repeatable.
    #[arg(long, value_name = "FILE")]
    pub(crate) ids_from: Vec<PathBuf>,

    /// Threads. Default: all cores.
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    pub(crate) threads: Option<usize>,

    /// A setting of the stores, such as `endpoint=URL` of `s3`. Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub(crate) store_option: Vec<(String, String)>,

    #[command(flatten)]
    pub(crate) web: WebSettings,

    /// Print the summary as one JSON object on standard output.
    #[arg(long)]
    pub(crate) json: bool,

    /// Print errors alone.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Files with labels of images.
#[derive(Args, Debug, Default)]
pub(crate) struct LabelArgs {
    /// A CSV, Parquet or Arrow file with a column of images (`id`, `file`, `path` or the like: whole ids or their ends)
    /// and one of labels.
    #[arg(long, value_name = "FILE")]
    pub(crate) labels: Option<PathBuf>,

    /// The column with the labels: of that file, by default `label`, `class` or the like; without a file, of VECTORS.
    #[arg(long, value_name = "NAME")]
    pub(crate) label_column: Option<String>,
}

impl SearchArgs {
    /// The arguments that also read a column of labels from VECTORS, if they are there.
    pub(crate) fn with(&self, labels: &LabelArgs) -> Self {
        let own = labels.label_column.iter().filter(|_| labels.labels.is_none());
        Self { columns: own.cloned().collect(), ..self.clone() }
    }
}

/// A table that is written.
#[derive(Args, Debug)]
pub(crate) struct TableArgs {
    /// Output: `x.parquet`, `x.csv` or `x.jsonl` (JSON lines), or `-` for CSV on standard output, with the summary on
    /// standard error.
    #[arg(short, long, value_name = "FILE", value_parser = place())]
    pub(crate) output: PathBuf,
}

/// Permission to replace files.
#[derive(Args, Debug)]
pub(crate) struct ReplaceArgs {
    /// Replace the table and the page that an earlier search wrote. Files of other commands and your own stay.
    #[arg(long)]
    pub(crate) overwrite: bool,
}

impl ReplaceArgs {
    /// The file that a search writes to `path`.
    pub(crate) fn file<'a>(&self, path: &'a Path) -> OwnFile<'a> {
        search_file(path, self.overwrite)
    }
}

/// The text tower.
#[cfg(feature = "text")]
#[derive(Args, Debug)]
pub(crate) struct WordsArgs {
    /// The model, if the manifest's name of it means nothing here, or names a model that has to be fetched, whose
    /// weights must be the same; or that of other programs' vectors.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,

    /// Device of the texts' forward: `cpu` or `cuda:0`.
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub(crate) device: String,

    /// Precision of the texts' forward: f32, bf16 or i8; on a GPU f32, f16 or bf16.
    #[arg(long, default_value = "f32", value_parser = one_of(&DType::ALL, DType::name))]
    pub(crate) dtype: DType,
}

/// A page of pictures.
#[derive(Args, Debug, Default)]
pub(crate) struct PageArgs {
    /// Write an HTML page with small pictures of `--images`, which needs no other file. Images are ticked there, and
    /// their ids copied or saved.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Where the images are now: a folder, archives, tables, what `pack` wrote. An image belongs to the id that has the
    /// same end. Ids are not opened by themselves, because they may name any file. Repeatable.
    #[arg(long, value_name = "INPUT")]
    pub(crate) images: Vec<PathBuf>,
}

/// A page of pictures that may have labels.
#[derive(Args, Debug)]
pub(crate) struct SheetArgs {
    #[command(flatten)]
    pub(crate) page: PageArgs,

    /// Labels that the page shows.
    #[command(flatten)]
    pub(crate) labels: LabelArgs,
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

    /// What a score is. A vector of zeros has the cosine 0 with every other.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) metric: MetricArg,

    #[command(flatten)]
    pub(crate) table: TableArgs,

    #[command(flatten)]
    pub(crate) replace: ReplaceArgs,

    /// Search some of the rows, and say how long all of them and more take, and what memory.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Neighbours of each image.
    #[arg(short, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) k: u32,

    /// Find the neighbours of one of several equal parts of VECTORS among all of them: `0/4` to `3/4`, or `auto` in an
    /// array job. The tables of all parts, one after the other, are the whole table.
    #[arg(long, value_name = "I/N", conflicts_with = "queries", value_parser = parse_shard)]
    pub(crate) shard: Option<Shard>,

    /// Find the neighbours of these images among VECTORS, instead of those of VECTORS among themselves. Repeatable.
    #[arg(long, value_name = "VECTORS")]
    pub(crate) queries: Vec<PathBuf>,
}

/// Arguments of `duplicates` as typed.
#[derive(Args, Debug)]
pub(crate) struct DuplicatesArgs {
    #[command(flatten)]
    pub(crate) search: SearchArgs,

    /// What a score is. A vector of zeros has the cosine 0 with every other.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) metric: MetricArg,

    #[command(flatten)]
    pub(crate) table: TableArgs,

    #[command(flatten)]
    pub(crate) replace: ReplaceArgs,

    /// Search some of the rows, and say how long all of them and more take, and what memory.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Least score of two images that are near duplicates.
    #[arg(long, value_name = "SCORE", default_value_t = 0.97, value_parser = parse_share)]
    pub(crate) threshold: f64,

    /// What makes a group: a chain of pairs, or every two images being a pair, for which up to 16 million pairs are
    /// kept in memory.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) linkage: LinkageArg,

    /// Compare VECTORS with these alone, which are kept, and not with each other. Repeatable.
    #[arg(long, value_name = "VECTORS")]
    pub(crate) against: Vec<PathBuf>,

    /// Print the images that can be removed on standard output, one per line, instead of a summary: the files are
    /// looked at, and another one has the picture.
    #[arg(long, conflicts_with = "json")]
    pub(crate) list_removable: bool,

    /// End each line of `--list-removable` with NUL, for `xargs -0`. Without it, names with a line break are left out.
    #[arg(long, requires = "list_removable")]
    pub(crate) null: bool,

    /// Which image of a group is kept; of several, the next rule decides. The size is in pixels, the time that of the
    /// file's last modification.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "largest", conflicts_with = "against")]
    pub(crate) keep: Vec<KeepArg>,

    /// Keep images with such a path if a group has one, before any rule: `originals/**`, `*.png`. A pattern is that of
    /// a whole path or of its end. Repeatable; earlier ones come first.
    #[arg(long, value_name = "GLOB", conflicts_with = "against")]
    pub(crate) prefer: Vec<String>,

    /// Take images for removable by their ids alone where their files are not found: moved, on another machine, or rows
    /// of other programs.
    #[arg(long)]
    pub(crate) trust_ids: bool,

    /// Read the images of groups, and tell equal pixels from near ones. `--html` does so, too.
    #[arg(long)]
    pub(crate) compare_pixels: bool,

    #[command(flatten)]
    pub(crate) sheet: SheetArgs,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LinkageArg {
    #[default]
    Single,
    Complete,
}

/// A rule that chooses an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeepArg {
    Largest,
    Oldest,
    Newest,
    /// PNG, TIFF and BMP by their names, before formats that lose something.
    Lossless,
    /// In the order of the vectors.
    First,
}

impl KeepArg {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Largest => "largest",
            Self::Oldest => "oldest",
            Self::Newest => "newest",
            Self::Lossless => "lossless",
            Self::First => "first",
        }
    }
}

/// Arguments of `similar` as typed.
#[derive(Args, Debug)]
#[cfg_attr(feature = "text", command(group = ArgGroup::new("asked").args(["query", "id", "text", "texts"]).required(true).multiple(true)))]
#[cfg_attr(not(feature = "text"), command(group = ArgGroup::new("asked").args(["query", "id"]).required(true).multiple(true)))]
pub(crate) struct SimilarArgs {
    #[command(flatten)]
    pub(crate) search: SearchArgs,

    /// What a score is. A vector of zeros has the cosine 0 with every other.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) metric: MetricArg,

    /// An image to search for: a file, a folder, an address. Repeatable.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) query: Vec<PathBuf>,

    /// An image of VECTORS to search for, by its id or the end of it. Repeatable.
    #[arg(long, value_name = "ID")]
    pub(crate) id: Vec<String>,

    /// Words to search for, if the vectors are of a model that embeds texts, too (CLIP, SigLIP, PE-Core, TIPSv2).
    /// Repeatable.
    #[cfg(feature = "text")]
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Vec<String>,

    /// A file with such words in each line, or a CSV, Parquet or Arrow file with a column `text`, `caption` or the
    /// like. Repeatable.
    #[cfg(feature = "text")]
    #[arg(long, value_name = "FILE")]
    pub(crate) texts: Vec<PathBuf>,

    /// Words to keep away from: their direction is taken from each text. Repeatable.
    #[cfg(feature = "text")]
    #[arg(long, value_name = "TEXT")]
    pub(crate) minus: Vec<String>,

    /// Images to find for each query.
    #[arg(short, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) k: u32,

    /// Write the table to a file, `x.parquet`, `x.csv` or `x.jsonl`, or as CSV to standard output (`-`).
    #[arg(short, long, value_name = "FILE", value_parser = place())]
    pub(crate) output: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) replace: ReplaceArgs,

    /// The model, if the manifest's name of it means nothing here, or names a model that has to be fetched, whose
    /// weights must be the same; or that of other programs' vectors.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,

    #[command(flatten)]
    pub(crate) sheet: SheetArgs,
}

/// Arguments of `clusters` as typed.
#[derive(Args, Debug)]
pub(crate) struct ClustersArgs {
    #[command(flatten)]
    pub(crate) search: SearchArgs,

    #[command(flatten)]
    pub(crate) table: TableArgs,

    #[command(flatten)]
    pub(crate) replace: ReplaceArgs,

    /// Most clusters; `auto` is the square root of half the number of images, at most 1000.
    #[arg(short, value_name = "N|auto", value_parser = parse_cluster_count)]
    pub(crate) k: ClusterCount,

    #[command(flatten)]
    pub(crate) sheet: SheetArgs,
}

/// `-k` of `clusters`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClusterCount {
    Given(usize),
    Auto,
}

/// `-n` of `sample`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SampleSize {
    Given(usize),
    /// In (0, 1].
    Share(f64),
}

fn parse_cluster_count(text: &str) -> Result<ClusterCount, String> {
    match text {
        "auto" => Ok(ClusterCount::Auto),
        number => parse_positive(number).map(ClusterCount::Given).map_err(|error| format!("{error}, or auto")),
    }
}

fn parse_sample_size(text: &str) -> Result<SampleSize, String> {
    match text.strip_suffix('%') {
        None => parse_positive(text).map(SampleSize::Given).map_err(|error| format!("{error}, or a share such as 10%")),
        Some(percent) => match percent.trim().parse::<f64>() {
            Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(SampleSize::Share(percent / 100.0)),
            _ => Err("expected more than 0% and at most 100%".to_owned()),
        },
    }
}

/// Arguments of `sample` as typed.
#[derive(Args, Debug)]
pub(crate) struct SampleArgs {
    #[command(flatten)]
    pub(crate) search: SearchArgs,

    #[command(flatten)]
    pub(crate) table: TableArgs,

    #[command(flatten)]
    pub(crate) replace: ReplaceArgs,

    /// Images to choose, as a number or a share of all.
    #[arg(short, value_name = "N|PERCENT%", value_parser = parse_sample_size)]
    pub(crate) n: SampleSize,

    /// How images are chosen.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) by: SampleArg,

    #[command(flatten)]
    pub(crate) sheet: SheetArgs,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum SampleArg {
    /// Each is the one that is least like those before it. The score is that to the nearest of these.
    #[default]
    Spread,
    /// The most typical image of each of N clusters, large ones first. The score is that to the cluster's centre.
    Clusters,
}

/// Arguments of `eval` as typed.
#[derive(Args, Debug)]
pub(crate) struct EvalArgs {
    #[command(flatten)]
    pub(crate) search: SearchArgs,

    #[command(flatten)]
    pub(crate) labels: LabelArgs,

    /// A CSV, Parquet or Arrow file with a column of images (whole ids or their ends) and one of their texts, several
    /// rows for an image with several: measure how well the vectors' model finds one by the other.
    #[cfg(feature = "text")]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["labels", "label_column"])]
    pub(crate) captions: Option<PathBuf>,

    #[cfg(feature = "text")]
    #[command(flatten)]
    pub(crate) words: WordsArgs,
}
