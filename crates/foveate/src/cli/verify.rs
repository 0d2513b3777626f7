//! `foveate verify`.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use foveate::DecodeScale;
use foveate::collect::Sample;
use foveate::embed::{Backends, Settings};
use foveate::model::OpenOptions;
use foveate::pipeline::Cancel;
use foveate::verify::{Comparison, VerifyError, quantile, recall_at_1, run as compare};
use serde_json::json;

use super::args::VerifyArgs;
use super::exit::Exit;
use super::labels::Labels;
use super::own_file::OwnFile;
use super::{console, job, progress};

pub(crate) fn run(args: &VerifyArgs) -> anyhow::Result<Exit> {
    let cancel = Cancel::default();
    job::cancel_on_signal(&cancel)?;
    let (first, second) = configurations(args)?;
    let listing = job::list_again(&first)?;

    let download = progress::Download::new(false);
    let model = OpenOptions { progress: &download, ..OpenOptions::from_env() };
    let backends = Arc::new(Backends::compiled());
    let sample = Sample::draw(Box::new(listing), args.sample, args.seed)?;
    let compared = compare(sample, &first, &second, &backends, &model, &cancel);
    download.clear();
    let comparison = match compared {
        Err(VerifyError::Interrupted) => return Ok(Exit::Interrupted),
        other => other?,
    };
    let labels = args.labels.as_deref().map(Labels::read).transpose()?;
    let summary = Summary::new(&comparison, labels.as_ref())?;
    if let Some(path) = &args.csv {
        figures_file(path).check()?;
        write_csv(path, &comparison).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut out = console::stdout();
    if args.json {
        writeln!(out, "{}", summary.json(&comparison))?;
    } else {
        summary.print(&mut out, &comparison)?;
    }
    Ok(verdict(&comparison, args.min_cosine))
}

/// Returns the configuration of the options and the one it is compared with. Unless fast decoding is selected by name,
/// it is the one under test.
pub(crate) fn configurations(args: &VerifyArgs) -> anyhow::Result<(Settings, Settings)> {
    let mut first = args.job.settings(Path::new(""));
    first.model.decode_scale.get_or_insert(DecodeScale::Fast);
    let second = args.against.applied_to(&first).context("--against")?;
    Ok((first, second))
}

/// The figures of a comparison.
struct Summary {
    /// Minimum, 1st percentile, median and mean.
    cosine: [f64; 4],
    /// Maximum, 99th percentile and median.
    relative_error: [f64; 3],
    same_neighbour: Option<f64>,
    /// Number of labelled images, and recall@1 under each configuration.
    recall: Option<(usize, [f64; 2])>,
    /// Images per second.
    rate: [f64; 2],
}

impl Summary {
    fn new(comparison: &Comparison, labels: Option<&Labels>) -> anyhow::Result<Self> {
        let pairs = &comparison.pairs;
        anyhow::ensure!(!pairs.is_empty(), "no image has a vector under both configurations: {}", why(comparison));
        let cosines: Vec<f64> = pairs.iter().map(|pair| pair.cosine).collect();
        let errors: Vec<f64> = pairs.iter().map(|pair| pair.relative_error).collect();
        let of = |values: &[f64], q| quantile(values, q).unwrap_or(f64::NAN);
        let mean = cosines.iter().sum::<f64>() / cosines.len() as f64;
        let images = |side: usize| {
            let alone = comparison.one_sided.iter().filter(|one| one.failed_under != side).count();
            (pairs.len() + alone) as f64 / comparison.wall[side].as_secs_f64().max(1e-9)
        };
        Ok(Self {
            cosine: [of(&cosines, 0.0), of(&cosines, 0.01), of(&cosines, 0.5), mean],
            relative_error: [of(&errors, 1.0), of(&errors, 0.99), of(&errors, 0.5)],
            same_neighbour: comparison.same_neighbour,
            recall: labels.map(|labels| recall(comparison, labels)).transpose()?,
            rate: [images(0), images(1)],
        })
    }

    fn print(&self, out: &mut impl Write, comparison: &Comparison) -> std::io::Result<()> {
        writeln!(out, "{:<16} {:<28} compared with", "", "this configuration")?;
        match comparison.differences.as_slice() {
            [] => writeln!(out, "(no difference: both are the same configuration)")?,
            differences => {
                for (name, a, b) in differences {
                    writeln!(out, "{name:<16} {:<28} {}", shortened(a), shortened(b))?;
                }
            }
        }
        writeln!(out, "{:<16} {:<28.1} {:.1}", "images/s", self.rate[0], self.rate[1])?;
        if let Some((labelled, [a, b])) = self.recall {
            writeln!(out, "{:<16} {a:<28.4} {b:.4}   ({labelled} labelled images)", "recall@1")?;
        }
        let [min, p1, median, mean] = self.cosine;
        writeln!(out, "\ncosine           min {min:.6}   p1 {p1:.6}   median {median:.6}   mean {mean:.6}")?;
        writeln!(out, "1 - cosine       max {:.2e}   p99 {:.2e}   median {:.2e}", 1.0 - min, 1.0 - p1, 1.0 - median)?;
        let [max, p99, median] = self.relative_error;
        writeln!(out, "relative error   max {max:.2e}   p99 {p99:.2e}   median {median:.2e}")?;
        if !comparison.differences.is_empty() && comparison.pairs.iter().all(|pair| pair.vectors[0] == pair.vectors[1])
        {
            let scales = comparison.differences.iter().any(|(name, ..)| name == "decode_scale");
            let why = if scales { "; no image is large enough for the decode scale" } else { "" };
            writeln!(out, "equal vectors    all{why}")?;
        }
        if let Some(share) = self.same_neighbour {
            writeln!(out, "same neighbour   {:.1} % of the images have the same nearest other image", 100.0 * share)?;
        }
        let mut worst: Vec<_> = comparison.pairs.iter().collect();
        worst.sort_by(|a, b| a.cosine.total_cmp(&b.cosine));
        for pair in worst.iter().take(3).filter(|pair| pair.cosine < 1.0 - 1e-12) {
            writeln!(out, "furthest apart   {:.6}  {}", pair.cosine, pair.id)?;
        }
        let (pairs, twice) = (comparison.pairs.len(), comparison.failed_under_both);
        let one_sided = comparison.one_sided.len();
        writeln!(out, "\n{pairs} images compared, {one_sided} failed under one configuration, {twice} under both")?;
        for one in &comparison.one_sided {
            let side = ["this configuration", "the other one"][one.failed_under.min(1)];
            writeln!(out, "only under {side}: {} ({}: {})", one.failure.id, one.failure.stage, one.failure.reason)?;
        }
        Ok(())
    }

    fn json(&self, comparison: &Comparison) -> serde_json::Value {
        let [min, p1, median, mean] = self.cosine;
        let [max_error, p99_error, median_error] = self.relative_error;
        json!({
            "compared": comparison.pairs.len(),
            "failed_under_both": comparison.failed_under_both,
            "failed_under_one": comparison.one_sided.iter().map(|one| json!({
                "id": one.failure.id, "failed_under": one.failed_under,
                "stage": one.failure.stage.to_string(), "reason": one.failure.reason,
            })).collect::<Vec<_>>(),
            "cosine": { "min": min, "p1": p1, "median": median, "mean": mean },
            "relative_error": { "max": max_error, "p99": p99_error, "median": median_error },
            "same_neighbour": self.same_neighbour,
            "recall_at_1": self.recall.map(|(labelled, [a, b])| json!({ "labelled": labelled, "first": a, "second": b })),
            "images_per_second": self.rate,
            "differences": comparison.differences.iter().map(|(name, a, b)| json!([name, a, b])).collect::<Vec<_>>(),
        })
    }
}

fn why(comparison: &Comparison) -> String {
    match comparison.one_sided.first() {
        Some(one) => format!("{}: {}", one.failure.id, one.failure.reason),
        None => format!("all {} fail under both", comparison.failed_under_both),
    }
}

fn shortened(value: &str) -> String {
    const MOST: usize = 26;
    match value.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &value[..at]),
        None => value.to_owned(),
    }
}

fn recall(comparison: &Comparison, labels: &Labels) -> anyhow::Result<(usize, [f64; 2])> {
    labels.tell(comparison.pairs.iter().map(|pair| pair.id.as_str()))?;
    let labelled: Vec<_> = comparison.pairs.iter().filter_map(|pair| Some((pair, labels.of(&pair.id)?))).collect();
    let of = |side: usize| {
        let vectors: Vec<&Vec<f32>> = labelled.iter().map(|(pair, _)| &pair.vectors[side]).collect();
        recall_at_1(&vectors, &labelled.iter().map(|(_, label)| *label).collect::<Vec<_>>())
    };
    let (a, b) = of(0).zip(of(1)).context("the labels file names fewer than two of the images")?;
    Ok((labelled.len(), [a, b]))
}

/// The columns of the file with every image's figures.
const FIGURES: [&str; 3] = ["id", "cosine", "relative_error"];

/// The file with every image's figures. It may take the place of an earlier one.
pub(crate) fn figures_file(path: &Path) -> OwnFile<'_> {
    let is_own = |_: &Path, start: &str| start.is_empty() || start.lines().next() == Some(&FIGURES.join(","));
    OwnFile { path, maker: "`verify --csv`", is_own, overwrite: true }
}

fn write_csv(path: &Path, comparison: &Comparison) -> anyhow::Result<()> {
    let mut writer = csv::Writer::from_writer(File::create(path)?);
    writer.write_record(FIGURES)?;
    for pair in &comparison.pairs {
        writer.write_record([&pair.id, &pair.cosine.to_string(), &pair.relative_error.to_string()])?;
    }
    Ok(writer.flush()?)
}

fn verdict(comparison: &Comparison, min_cosine: Option<f64>) -> Exit {
    let Some(least) = min_cosine else { return Exit::Complete };
    // Written so that NaN fails.
    let near = comparison.pairs.iter().all(|pair| pair.cosine >= least);
    if near && comparison.one_sided.is_empty() { Exit::Complete } else { Exit::Failures }
}
