use std::path::{Path, PathBuf};
use std::{fmt, fs};

use foveate_sink::Layout;

/// One of `count` equal, contiguous parts of the inputs. The shards' outputs, concatenated, equal the unsharded output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which part, from 0.
    pub index: u32,
    /// Number of parts.
    pub count: u32,
}

/// A `--shard` value that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ShardError(String);

impl Shard {
    /// Parses `i/n` (`i` from 0), `auto` (from Slurm's array-job variables), and `auto/n` (the index from Slurm or from
    /// a Kubernetes indexed job, which does not give its pods the count). `variable` looks up an environment variable.
    pub fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, ShardError> {
        let (index, count) = match text.split_once('/') {
            Some(("auto", count)) => (array_index(&variable)?, number("number of shards", count)?),
            Some((index, count)) => (number("index", index)?, number("number of shards", count)?),
            None if text == "auto" => (array_index(&variable)?, array_count(&variable)?),
            None => return Err(ShardError(format!("'{text}' is not i/n, auto or auto/n"))),
        };
        if count == 0 {
            return Err(ShardError(format!("{index}/{count}: there is at least one shard; 0/1 is all inputs")));
        }
        if index >= count {
            let last = count - 1;
            return Err(ShardError(format!("{index}/{count}: the index counts from 0, so it goes to {last}")));
        }
        Ok(Self { index, count })
    }

    /// Returns a file at the output's place that belongs to a run with another number of shards, if there is one. Next
    /// to it, this shard's rows would be there twice.
    pub(crate) fn other_count(self, output: &Path, layout: Layout) -> Option<PathBuf> {
        let folder = match layout {
            Layout::Folder => output,
            Layout::File => output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")),
        };
        let is_of_run = |prefix: &str, rest: &str| match layout {
            Layout::Folder => ["", "part", "manifest"].contains(&prefix),
            Layout::File => {
                let extension = output.extension().unwrap_or_default().to_string_lossy();
                output.file_stem().is_some_and(|stem| stem == prefix)
                    && rest.strip_prefix('.').is_some_and(|rest| rest.starts_with(&*extension))
            }
        };
        let entries =
            [folder.to_owned(), folder.join(".foveate")].into_iter().filter_map(|folder| fs::read_dir(folder).ok());
        let others = entries.flatten().flatten().map(|entry| entry.path()).filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            sharded(&name).is_some_and(|(prefix, count, rest)| count != self.count && is_of_run(prefix, rest))
        });
        others.min()
    }
}

/// Splits the name of a shard's file (see [`foveate_sink::shard_suffix`]) into the part before the suffix, the number
/// of shards, and the part after the suffix.
fn sharded(name: &str) -> Option<(&str, u32, &str)> {
    let digits = |text: &str| text.len() >= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let (before, after) = name.rsplit_once("-of-")?;
    let (prefix, index) = before.rsplit_once('-').unwrap_or(("", before));
    let (count, rest) = after.split_at(after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len()));
    (digits(index) && digits(count)).then_some(())?;
    Some((prefix, count.parse().ok()?, rest))
}

const SLURM_ID: &str = "SLURM_ARRAY_TASK_ID";
const SLURM_MIN: &str = "SLURM_ARRAY_TASK_MIN";
const SLURM_STEP: &str = "SLURM_ARRAY_TASK_STEP";
const SLURM_COUNT: &str = "SLURM_ARRAY_TASK_COUNT";
const KUBERNETES_INDEX: &str = "JOB_COMPLETION_INDEX";

/// Returns the index from 0. Slurm's task ids start anywhere and may have a step (`--array=10-40:10`).
fn array_index(variable: &impl Fn(&str) -> Option<String>) -> Result<u32, ShardError> {
    if let Some(id) = variable(SLURM_ID) {
        let least = variable(SLURM_MIN).map_or(Ok(0), |text| number(SLURM_MIN, &text))?;
        let step = variable(SLURM_STEP).map_or(Ok(1), |text| number(SLURM_STEP, &text))?.max(1);
        return Ok(number(SLURM_ID, &id)?.saturating_sub(least) / step);
    }
    if let Some(index) = variable(KUBERNETES_INDEX) {
        return number(KUBERNETES_INDEX, &index);
    }
    Err(ShardError(format!("auto: neither {SLURM_ID} nor {KUBERNETES_INDEX} is set; give i/n")))
}

fn array_count(variable: &impl Fn(&str) -> Option<String>) -> Result<u32, ShardError> {
    let count = variable(SLURM_COUNT)
        .ok_or_else(|| ShardError(format!("auto: {SLURM_COUNT} is not set; give the number of shards, auto/n")))?;
    number(SLURM_COUNT, &count)
}

fn number(name: &str, text: &str) -> Result<u32, ShardError> {
    text.parse().map_err(|_| ShardError(format!("{name}: '{text}' is not a number")))
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, variables: &[(&str, &str)]) -> Result<(u32, u32), String> {
        let find = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        Shard::parse(text, find).map(|shard| (shard.index, shard.count)).map_err(|error| error.to_string())
    }

    #[test]
    fn explicit_shards_count_from_zero() {
        assert_eq!(parse("2/8", &[]), Ok((2, 8)));
        assert!(parse("8/8", &[]).unwrap_err().contains("goes to 7"));
        assert!(parse("0/0", &[]).unwrap_err().contains("0/1 is all inputs"));
        for bad in ["2", "a/8", "2/", "-1/8", "1/2/3"] {
            assert!(parse(bad, &[]).is_err(), "{bad}");
        }
    }

    #[test]
    fn another_number_of_shards_is_seen_in_names() {
        assert_eq!(sharded("best-of-3-00001-of-00004.npy"), Some(("best-of-3", 4, ".npy")));
        assert_eq!(sharded("part-00001-of-00004-00000.parquet"), Some(("part", 4, "-00000.parquet")));
        assert_eq!(sharded("00001-of-00004"), Some(("", 4, "")));
        for other in ["part-00000.parquet", "best-of-3.npy", "1-of-2", "part-00001-of-.npy"] {
            assert_eq!(sharded(other), None, "{other}");
        }
    }

    #[test]
    fn slurm_arrays_of_any_start_and_step() {
        let array = [(SLURM_ID, "30"), (SLURM_MIN, "10"), (SLURM_STEP, "10"), (SLURM_COUNT, "4")];
        assert_eq!(parse("auto", &array), Ok((2, 4)));
        assert_eq!(parse("auto", &[(SLURM_ID, "3"), (SLURM_MIN, "1"), (SLURM_COUNT, "3")]), Ok((2, 3)));
    }

    #[test]
    fn kubernetes_needs_the_count() {
        let job = [(KUBERNETES_INDEX, "5")];
        assert_eq!(parse("auto/10", &job), Ok((5, 10)));
        assert!(parse("auto", &job).unwrap_err().contains("auto/n"));
        assert!(parse("auto/10", &[]).unwrap_err().contains("give i/n"));
    }
}
