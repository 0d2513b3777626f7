use std::fmt;

/// One of `count` equal, contiguous parts of the inputs. The shards' outputs, concatenated, equal the unsharded output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which part, from 0.
    pub index: u32,
    /// How many parts.
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
        if index >= count {
            let range = count.saturating_sub(1);
            return Err(ShardError(format!("{index}/{count}: the index counts from 0, so it goes to {range}")));
        }
        Ok(Self { index, count })
    }
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
        for bad in ["2", "a/8", "2/", "-1/8", "0/0", "1/2/3"] {
            assert!(parse(bad, &[]).is_err(), "{bad}");
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
