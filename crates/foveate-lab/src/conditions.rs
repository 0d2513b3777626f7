//! The machine's other load during a measurement.

use std::sync::Mutex;
use std::time::Duration;

use foveate_core::lock;
use foveate_profile::machine::{Moment, Usage, load_average};

use crate::Watch;
use crate::cell::{Cell, significant};

/// Share of the processors' time whose loss disturbs a step: as much as the smallest drop that a diagnosis names.
const LOST: f64 = 0.05;
/// Share of the time in disturbed steps from which on the whole measurement counts as disturbed.
const DISTURBED: f64 = 0.1;
/// Minimum length of an observed step. The system counts in hundredths of a second, so shorter ones tell too little.
const LEAST: Duration = Duration::from_millis(500);
/// Minimum length of a whole measurement's observation.
const LEAST_OF_ALL: Duration = Duration::from_millis(100);

/// The machine's other load during a measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    /// The highest load average seen.
    pub load: Option<f64>,
    /// Mean use of the processors; `None` if the system does not report it.
    pub usage: Option<Usage>,
    /// The reason why the figures may be wrong, if there is one.
    pub disturbed: Option<String>,
}

impl Conditions {
    /// Summarizes observed steps.
    fn of(load: Option<f64>, steps: &[(Duration, Usage)]) -> Self {
        let all: f64 = steps.iter().map(|(time, _)| time.as_secs_f64()).sum();
        if all <= 0.0 {
            return Self { load, ..Self::default() };
        }
        let mut usage = Usage { own: 0.0, others: 0.0, idle: 0.0, steal: 0.0, pressure: Some(0.0) };
        let mut disturbed = 0.0;
        for (time, step) in steps {
            let share = time.as_secs_f64() / all;
            usage.own += step.own * share;
            usage.others += step.others * share;
            usage.idle += step.idle * share;
            usage.steal += step.steal * share;
            usage.pressure = usage.pressure.zip(step.pressure).map(|(sum, pressure)| sum + pressure * share);
            if step.lost() > LOST {
                disturbed += share;
            }
        }
        Self { load, usage: Some(usage), disturbed: (disturbed > DISTURBED).then(|| describe(&usage, disturbed)) }
    }

    /// Returns the same, disturbed for this reason too.
    #[must_use]
    pub fn and_disturbed(self, why: Option<String>) -> Self {
        let reasons: Vec<String> = self.disturbed.into_iter().chain(why).collect();
        Self { disturbed: (!reasons.is_empty()).then(|| reasons.join("; ")), ..self }
    }

    /// Returns the values of the last columns of [`schema::CONTEXT`](crate::schema::CONTEXT), in its order.
    pub(crate) fn values(&self) -> [String; 5] {
        let numbers = [
            self.load,
            self.usage.map(|usage| usage.others),
            self.usage.map(|usage| usage.steal),
            self.usage.and_then(|usage| usage.pressure),
        ];
        let [load, others, steal, pressure] = numbers.map(|number| Cell::from(number).to_string());
        [load, others, steal, pressure, self.disturbed.clone().unwrap_or_default()]
    }
}

fn describe(usage: &Usage, share_of_time: f64) -> String {
    let [others, steal, idle, short] =
        [usage.others, usage.steal, usage.idle, share_of_time].map(|share| significant(100.0 * share, 2));
    format!(
        "other processes used {others} % of the processors' time, the hypervisor took {steal} %, and {idle} % was idle; \
         they were short in {short} % of the measurement"
    )
}

/// A [`Watch`] that observes the machine during each step, from its announcement to the next.
pub struct Observer<W> {
    inner: W,
    state: Mutex<ObservedConditions>,
}

#[derive(Default)]
struct ObservedConditions {
    /// The beginning of the current step.
    since: Option<Moment>,
    load: Option<f64>,
    steps: Vec<(Duration, Usage)>,
    /// The summary of the steps before these.
    last: Conditions,
}

impl ObservedConditions {
    /// Ends the current step unless it is shorter than `least`, and begins the next.
    fn look(&mut self, least: Duration) {
        let now = Moment::now();
        self.load = self.load.into_iter().chain(load_average()).reduce(f64::max);
        match (self.since, now) {
            (Some(before), Some(after)) if after.since(&before) >= least => {
                self.steps.extend(Usage::between(&before, &after).map(|usage| (after.since(&before), usage)));
            }
            (Some(_), Some(_)) => return,
            _ => {}
        }
        self.since = now;
    }
}

impl<W> Observer<W> {
    /// Observes what is announced to `inner`.
    pub fn new(inner: W) -> Self {
        let state = ObservedConditions { since: Moment::now(), ..ObservedConditions::default() };
        Self { inner, state: Mutex::new(state) }
    }

    /// Returns the watch that receives the announcements.
    pub fn inner(&self) -> &W {
        &self.inner
    }

    /// Returns the conditions since the last call. If nothing long enough was observed since then, they are the same as
    /// before.
    pub fn conditions(&self) -> Conditions {
        let mut state = lock(&self.state);
        let least = if state.steps.is_empty() { LEAST_OF_ALL } else { LEAST };
        state.look(least);
        if !state.steps.is_empty() || state.last == Conditions::default() {
            state.last = Conditions::of(state.load.take(), &std::mem::take(&mut state.steps));
        }
        state.last.clone()
    }
}

impl<W: Watch> Watch for Observer<W> {
    fn doing(&self, what: &str) {
        lock(&self.state).look(LEAST);
        self.inner.doing(what);
    }

    fn note(&self, what: &str) {
        self.inner.note(what);
    }

    fn disturbed(&self) -> Option<String> {
        Conditions::of(None, &lock(&self.state).steps).disturbed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(seconds: f64, others: f64, idle: f64, steal: f64) -> (Duration, Usage) {
        let usage = Usage { own: 1.0 - others - idle - steal, others, idle, steal, pressure: Some(others) };
        (Duration::from_secs_f64(seconds), usage)
    }

    #[test]
    fn a_quiet_machine_is_not_disturbed() {
        let quiet = Conditions::of(Some(1.0), &[step(10.0, 0.02, 0.1, 0.01), step(5.0, 0.3, 0.4, 0.0)]);
        assert_eq!(quiet.disturbed, None, "others used what was idle: {quiet:?}");
        assert!((quiet.usage.unwrap().others - (0.2 + 1.5) / 15.0).abs() < 1e-9);
        assert_eq!(Conditions::of(Some(1.0), &[]), Conditions { load: Some(1.0), ..Conditions::default() });
    }

    #[test]
    fn time_that_others_took_or_the_hypervisor_stole_disturbs() {
        let reason = |steps: &[(Duration, Usage)]| Conditions::of(None, steps).disturbed;
        let busy = reason(&[step(6.0, 0.0, 0.1, 0.0), step(4.0, 0.5, 0.0, 0.0)]).unwrap();
        assert!(busy.starts_with("other processes used 20 % of the processors' time"), "{busy}");
        assert!(busy.ends_with("short in 40 % of the measurement"), "{busy}");
        let stolen = reason(&[step(1.0, 0.0, 0.2, 0.12)]).unwrap();
        assert!(stolen.contains("the hypervisor took 12 %"), "{stolen}");
        assert_eq!(reason(&[step(95.0, 0.0, 0.1, 0.0), step(5.0, 0.9, 0.0, 0.0)]), None, "a moment in many");
    }

    #[test]
    fn reasons_add_up_and_are_written() {
        let conditions = Conditions::default().and_disturbed(None);
        assert_eq!(conditions.disturbed, None);
        let conditions = conditions.and_disturbed(Some("a".to_owned())).and_disturbed(Some("b".to_owned()));
        assert_eq!(conditions.values(), ["", "", "", "", "a; b"]);
    }
}
