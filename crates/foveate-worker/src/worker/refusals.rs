//! Messages that the worker's own settings refuse.

use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;
use std::time::Duration;

use crate::{Setting, lock};

/// Refusals without any other outcome after which the worker receives single messages only.
const THRESHOLD: u64 = 32;
/// Interval between these: a worker that can do nothing must not hide the queue from those that can.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
/// Most messages that are remembered.
const REMEMBERED: usize = 100_000;

/// Counts the messages that the worker gives back because of its settings. A worker that has done nothing else is
/// misconfigured: it is not ready, and slows down.
pub(super) struct Refusals {
    remedy: fn(Setting) -> Option<&'static str>,
    state: Mutex<RefusalCounts>,
}

#[derive(Default)]
struct RefusalCounts {
    /// Number and last reason.
    by_setting: BTreeMap<Setting, (u64, String)>,
    /// Queue and key of the messages that may come again.
    outstanding: HashSet<(usize, String)>,
    /// True if any message had another outcome.
    has_worked: bool,
    /// True if any image was processed.
    image_done: bool,
}

impl Refusals {
    pub(super) fn new(remedy: fn(Setting) -> Option<&'static str>) -> Self {
        Self { remedy, state: Mutex::default() }
    }

    /// Returns true if a failure because of this setting is the worker's fault. Once images were processed, a refused
    /// image is its sender's: otherwise untrusted addresses would circulate forever.
    pub(super) fn counts(&self, setting: Setting) -> bool {
        setting != Setting::ImageHost || !lock(&self.state).image_done
    }

    /// Records a message that is given back; the first one of each setting is logged.
    pub(super) fn refused(&self, setting: Setting, reason: &str, (queue, key): (usize, &str)) {
        let mut state = lock(&self.state);
        if state.outstanding.len() < REMEMBERED {
            state.outstanding.insert((queue, key.to_owned()));
        }
        let (count, last) = state.by_setting.entry(setting).or_default();
        *count += 1;
        reason.clone_into(last);
        if *count == 1 {
            let reason = self.told(setting, reason);
            tracing::warn!(reason, "this worker's settings refuse a message; such messages are given back");
        }
    }

    /// Forgets a message that has left its queue.
    pub(super) fn forget(&self, (queue, key): (usize, &str)) {
        lock(&self.state).outstanding.remove(&(queue, key.to_owned()));
    }

    /// Records a message that had another outcome.
    pub(super) fn worked(&self, message: (usize, &str)) {
        self.forget(message);
        lock(&self.state).has_worked = true;
    }

    /// Records that an image was processed.
    pub(super) fn image_done(&self) {
        lock(&self.state).image_done = true;
    }

    pub(super) fn outstanding(&self) -> usize {
        lock(&self.state).outstanding.len()
    }

    /// The pause before the next message, if the settings refused all so far.
    pub(super) fn probe_interval(&self) -> Option<Duration> {
        let state = lock(&self.state);
        (!state.has_worked && state.refused() >= THRESHOLD).then_some(PROBE_INTERVAL)
    }

    /// Says why the settings refuse every message, if they do.
    pub(super) fn check(&self) -> Result<(), String> {
        let state = lock(&self.state);
        let most = state.by_setting.iter().max_by_key(|(_, (count, _))| *count);
        match most {
            Some((&setting, (_, reason))) if !state.has_worked => Err(format!(
                "this worker's settings refuse every message, {} so far: {}",
                state.refused(),
                self.told(setting, reason)
            )),
            _ => Ok(()),
        }
    }

    fn told(&self, setting: Setting, reason: &str) -> String {
        (self.remedy)(setting).map_or_else(|| reason.to_owned(), |remedy| format!("{reason}; {remedy}"))
    }
}

impl RefusalCounts {
    fn refused(&self) -> u64 {
        self.by_setting.values().map(|(count, _)| count).sum()
    }
}
