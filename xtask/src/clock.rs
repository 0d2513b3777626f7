//! The time since the check began, and the time that it may take.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fmt, fs};

/// The check's beginning, in seconds since 1970. `.ci/run` sets it, and `cargo xtask ci` for its children.
pub(crate) const STARTED: &str = "FOVEATE_CI_STARTED";

/// A check in its short form begins no step after this time, so that a slow machine ends within the 90 minutes that it
/// is given.
pub(crate) const BUDGET: Duration = Duration::from_secs(60 * 60);
/// Test programs that have not ended by then are killed, so that somebody says what took long.
pub(crate) const LIMIT: Duration = Duration::from_secs(85 * 60);

static START: LazyLock<SystemTime> = LazyLock::new(|| {
    let seconds = std::env::var(STARTED).ok().and_then(|seconds| seconds.parse().ok());
    seconds.map_or_else(SystemTime::now, |seconds| UNIX_EPOCH + Duration::from_secs(seconds))
});

/// The start of the check, as [`STARTED`] has it. By hand, the check starts at the first call.
pub(crate) fn started() -> String {
    START.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().to_string()
}

pub(crate) fn elapsed() -> Elapsed {
    Elapsed(START.elapsed().unwrap_or_default())
}

/// Returns true if tests run in their long forms, which have no limit of time.
pub(crate) fn is_long() -> bool {
    std::env::var_os("FOVEATE_TESTS").is_some_and(|form| form == "full")
}

/// Processor time of a process as Linux reports it: of its children that have ended with `fields` 2, of itself and them
/// with 4. Zero on other systems.
pub(crate) fn processor_time(process: &str, fields: usize) -> Duration {
    const TICKS_PER_SECOND: u64 = 100;
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // proc(5): utime, stime, cutime and cstime are fields 14 to 17; the second one is the command in parentheses.
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(11 + 4 - fields).take(fields);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
}

/// A time since the start of the check, displayed as `[34:12]`.
pub(crate) struct Elapsed(Duration);

impl Elapsed {
    /// The rest of `limit`.
    pub(crate) fn left(&self, limit: Duration) -> Duration {
        limit.saturating_sub(self.0)
    }
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        write!(f, "[{:02}:{:02}]", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_minutes_and_seconds() {
        assert_eq!(Elapsed(Duration::from_secs(2052)).to_string(), "[34:12]");
        assert_eq!(Elapsed(Duration::from_secs(6005)).to_string(), "[100:05]");
    }

    #[test]
    fn what_is_left_is_never_negative() {
        assert_eq!(Elapsed(Duration::from_secs(60)).left(BUDGET), BUDGET - Duration::from_secs(60));
        assert_eq!(Elapsed(2 * BUDGET).left(BUDGET), Duration::ZERO);
    }
}
