use std::collections::BTreeMap;
use std::fmt;

use crate::Stage;

/// A worker's messages, by their outcomes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Acknowledged: the callback was taken, or the row is durable.
    pub done: u64,
    /// Acknowledged without work: notifications of a store that name no image.
    pub skipped: u64,
    /// Released after a transient failure, each time.
    pub retried: u64,
    /// Moved to the dead letters, by stage.
    pub dead: BTreeMap<&'static str, u64>,
    /// Given back because of the worker's own settings, each time.
    pub refused: u64,
    /// Given back untried or during an outage, each time.
    pub held: u64,
    /// Left to other workers, because the lease ended or the broker did not answer.
    pub lost: u64,
}

impl Totals {
    /// Counts a message by the name of its settlement in metrics.
    pub(super) fn count(&mut self, how: &str, stage: Stage) {
        match how {
            "acknowledged" => self.done += 1,
            "skipped" => self.skipped += 1,
            "dead" => *self.dead.entry(stage.name()).or_default() += 1,
            "refused" => self.refused += 1,
            "held" => self.held += 1,
            "lost" => self.lost += 1,
            _ if stage == Stage::Shutdown => {}
            _ => self.retried += 1,
        }
    }

    /// All dead letters.
    pub fn dead(&self) -> u64 {
        self.dead.values().sum()
    }
}

/// One line, as in `30 done, 4 dead (3 download, 1 decode), 2 retried`.
impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} done, {} dead", self.done, self.dead())?;
        if !self.dead.is_empty() {
            let stages: Vec<_> = self.dead.iter().map(|(stage, count)| format!("{count} {stage}")).collect();
            write!(f, " ({})", stages.join(", "))?;
        }
        for (count, what) in [
            (self.skipped, "without an image"),
            (self.retried, "retried"),
            (self.refused, "given back"),
            (self.held, "held back"),
            (self.lost, "lost"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}
