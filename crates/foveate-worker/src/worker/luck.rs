//! Tells a worker that cannot work (no network, a broken device) from work that cannot be done.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::{Failure, Outcome};

/// Failures that are laid to a worker's charge of one server from which nothing ever came.
const OF_A_STRANGER: usize = 8;
/// How often a worker that is out of luck tries its luck.
const PROBE: Duration = Duration::from_secs(2);
/// And how often where only servers fail that never worked: it may well be they, and others may wait behind them.
const QUICK_PROBE: Duration = Duration::from_millis(100);
/// Servers that are remembered.
const REMEMBERED: usize = 4_096;

/// Counts the failures since the last success. Without it, a worker that cannot work would use up the tries of all
/// messages that there are.
///
/// Strangers name dead servers, and some name thousands of images on one. So once images have come from anywhere, a
/// server from which none ever came can only do so much to shake a worker's trust in itself.
pub(super) struct Luck {
    /// Transient failures since the last success, and the last of them.
    failed: usize,
    last: Option<Failure>,
    /// Whether the last one was of a server from which nothing ever came, though images came from others.
    was_stranger: bool,
    enough: usize,
    /// Servers from which images came.
    known: HashSet<String>,
    /// Others that failed since the last success, and how often.
    strangers: HashMap<String, usize>,
}

impl Luck {
    /// For a worker whose largest batch is `batch`: one broken batch is not the end of the world.
    pub(super) fn new(batch: usize) -> Self {
        let enough = 32.max(4 * batch);
        let (known, strangers) = (HashSet::new(), HashMap::new());
        Self { failed: 0, last: None, was_stranger: false, enough, known, strangers }
    }

    fn is_out(&self) -> bool {
        self.failed >= self.enough
    }

    /// How long to rest before the next try, for a worker that is out of luck.
    pub(super) fn probe(&self) -> Option<Duration> {
        self.is_out().then_some(if self.was_stranger { QUICK_PROBE } else { PROBE })
    }

    pub(super) fn check(&self) -> Result<(), String> {
        match &self.last {
            Some(failure) if self.is_out() => {
                Err(format!("the last {} tries failed, at last with {failure}", self.failed))
            }
            _ => Ok(()),
        }
    }

    /// The same, of the work itself: a restart brings no network, but perhaps a device.
    pub(super) fn check_processing(&self) -> Result<(), String> {
        match &self.last {
            Some(failure) if failure.stage == "process" => self.check(),
            _ => Ok(()),
        }
    }

    /// What became of an image of `server`, where it came from one.
    pub(super) fn count(&mut self, server: Option<&str>, outcome: &Outcome) {
        match outcome {
            Ok(_) => self.succeeded(server),
            Err(failure) if failure.transient => self.failed(server, failure),
            Err(_) => {}
        }
    }

    fn succeeded(&mut self, server: Option<&str>) {
        self.failed = 0;
        self.strangers.clear();
        if let Some(server) = server.filter(|server| !self.known.contains(*server) && self.known.len() < REMEMBERED) {
            self.known.insert(server.to_owned());
        }
    }

    fn failed(&mut self, server: Option<&str>, failure: &Failure) {
        let is_stranger = |server: &&str| !self.known.is_empty() && !self.known.contains(*server);
        let stranger = server.filter(is_stranger).filter(|_| failure.stage == "download");
        self.was_stranger = stranger.is_some();
        if let Some(server) = stranger.filter(|_| !self.is_out()) {
            let count = self.strangers.entry(server.to_owned()).or_default();
            *count += 1;
            if *count > OF_A_STRANGER {
                return;
            }
        }
        self.failed += 1;
        self.last = Some(failure.clone());
        if self.failed == self.enough {
            tracing::error!(failed = self.failed, %failure, "nothing works any more; only a message now and then is tried");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Output;

    fn fail(luck: &mut Luck, server: &str, stage: &'static str, times: usize) {
        (0..times).for_each(|_| luck.count(Some(server), &Err(Failure::transient(stage, "gone"))));
    }

    fn succeed(luck: &mut Luck, server: &str) {
        luck.count(Some(server), &Ok(Output::Json(serde_json::Value::Null)));
    }

    #[test]
    fn a_worker_to_which_nothing_ever_came_doubts_itself() {
        let mut luck = Luck::new(1);
        luck.count(Some("a:80"), &Err(Failure::permanent("decode", "no image")));
        fail(&mut luck, "a:80", "download", 31);
        assert_eq!((luck.is_out(), luck.check()), (false, Ok(())));
        fail(&mut luck, "a:80", "download", 1);
        assert_eq!(luck.check().unwrap_err(), "the last 32 tries failed, at last with download: gone");
        assert_eq!(luck.check_processing(), Ok(()));
        succeed(&mut luck, "a:80");
        assert!(!luck.is_out());
    }

    #[test]
    fn a_server_that_never_answered_is_to_blame_itself_and_one_that_did_is_not() {
        let mut luck = Luck::new(1);
        succeed(&mut luck, "known:80");
        fail(&mut luck, "dead:80", "download", 1_000);
        assert!(!luck.is_out());
        (0..3).for_each(|i| fail(&mut luck, &format!("dead{i}:80"), "download", 1_000));
        assert_eq!(luck.probe(), Some(QUICK_PROBE), "four of them: it may be the network");
        succeed(&mut luck, "known:80");
        assert_eq!(luck.probe(), None);
        fail(&mut luck, "known:80", "download", 32);
        assert_eq!(luck.probe(), Some(PROBE));
    }

    #[test]
    fn a_device_that_fails_is_nobody_elses_fault() {
        let mut luck = Luck::new(16);
        succeed(&mut luck, "known:80");
        fail(&mut luck, "stranger:80", "process", 63);
        assert!(!luck.is_out());
        fail(&mut luck, "stranger:80", "process", 1);
        assert!(luck.is_out() && luck.check_processing().is_err());
    }
}
