//! Arguments of the commands that compare images with words.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::search_args::{PageArgs, ReplaceArgs, SearchArgs, TableArgs, WordsArgs};
use crate::values::{parse_positive, parse_share};

pub(crate) const LABEL_EXAMPLES: &str = "\
Examples:
  foveate label vectors.parquet --labels labels.txt -o labels.parquet
  foveate label vectors.parquet --labels labels.txt --threshold 0.5 -o l.csv
  foveate label vectors.parquet --labels labels.txt --template 'a {}.' -o l.csv
  foveate label out/ --labels l.txt -o l.csv --html l.html --images photos/

A row for each label of an image: id, label, rank (from 1), score, cosine. The
score is a probability as the model was trained: over all labels for CLIP, of
each label alone for SigLIP. Several templates, or a table with the columns
label and prompt, make ensembles.

Exit codes: 0 complete; 1 stopped by a fault; 2 the command line cannot work;
130 interrupted, and nothing is written.";

pub(crate) const ALIGN_EXAMPLES: &str = "\
Examples:
  foveate align vectors.parquet --column caption -o scores.parquet
  foveate align vectors.parquet --texts captions.parquet -o scores.parquet
  foveate align vectors.parquet --column alt --threshold 0.28 -o kept.csv

A row for each image with a text: id, score (the cosine of the image and its
text). --ids-from of other commands takes the table.

Exit codes: 0 complete; 1 stopped by a fault; 2 the command line cannot work;
130 interrupted, and nothing is written.";

/// Arguments of `label` as typed.
#[derive(Args, Debug)]
pub(crate) struct LabelImagesArgs {
    #[command(flatten)]
    pub(crate) search: SearchArgs,

    /// The labels: one in each line, or a CSV, Parquet or Arrow file with a column `label`. With a column `prompt`,
    /// that is a text of the label, which may have several rows.
    #[arg(long, value_name = "FILE")]
    pub(crate) labels: PathBuf,

    /// A text with {} for the label. Several make one vector. Default: 'This is a photo of {}.'
    #[arg(long, value_name = "TEXT")]
    pub(crate) template: Vec<String>,

    /// Most labels of an image. Default: 1, or 10 with a threshold.
    #[arg(short, value_name = "N", value_parser = parse_positive)]
    pub(crate) k: Option<usize>,

    /// Least score of a label.
    #[arg(long, value_name = "SCORE", value_parser = parse_share)]
    pub(crate) threshold: Option<f64>,

    /// A label for images whose labels are all below the threshold, such as 'none of these'. Without it they have no
    /// row.
    #[arg(long, value_name = "LABEL")]
    pub(crate) none: Option<String>,

    #[command(flatten)]
    pub(crate) words: WordsArgs,

    #[command(flatten)]
    pub(crate) table: TableArgs,

    #[command(flatten)]
    pub(crate) replace: ReplaceArgs,

    #[command(flatten)]
    pub(crate) page: PageArgs,
}

/// Arguments of `align` as typed.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("captions").args(["column", "texts"]).required(true))]
pub(crate) struct AlignArgs {
    #[command(flatten)]
    pub(crate) search: SearchArgs,

    /// The column of VECTORS with each image's text (`embed --columns` and `merge --join` add columns).
    #[arg(long, value_name = "NAME")]
    pub(crate) column: Option<String>,

    /// The texts' vectors, by the images' ids, which `embed-text` made.
    #[arg(long, value_name = "VECTORS")]
    pub(crate) texts: Option<PathBuf>,

    /// Write only rows from this score on.
    #[arg(long, value_name = "SCORE", allow_hyphen_values = true)]
    pub(crate) threshold: Option<f64>,

    #[command(flatten)]
    pub(crate) words: WordsArgs,

    #[command(flatten)]
    pub(crate) table: TableArgs,

    #[command(flatten)]
    pub(crate) replace: ReplaceArgs,

    #[command(flatten)]
    pub(crate) page: PageArgs,
}
