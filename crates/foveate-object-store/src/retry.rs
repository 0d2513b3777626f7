//! Repeated attempts, later each time.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::control::ControlObject;
use crate::errors::ReadFailure;

const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Longest wait that a server may ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(60);

tokio::task_local! {
    /// The time that the answer to the current request asks to wait. The library's errors do not have its headers.
    static ASKED: Cell<Duration>;
}

/// Notes how many seconds the answer to the current request asks to wait before the next one.
pub(crate) fn asked_to_wait(seconds: &str) {
    if let Ok(seconds) = seconds.trim().parse() {
        // Without a request, there is no next attempt.
        let _ = ASKED.try_with(|asked| asked.set(Duration::from_secs(seconds).min(LONGEST_ASKED)));
    }
}

/// Attempts for one object: the waits between them take 15 to 30 seconds together.
const ATTEMPTS: u32 = 9;

/// The attempts for one request.
pub(crate) struct Attempts {
    made: u32,
    deadline: Option<Instant>,
    /// The end of waiting, instead of a number of attempts.
    give_up: Option<Instant>,
    /// True if the store gave another object after the last attempt failed.
    is_of_object: bool,
}

impl Attempts {
    /// Attempts that end in `time`, if there is a limit, and are repeated for `retry_for` or as often as by default.
    pub(crate) fn within(time: Option<Duration>, retry_for: Option<Duration>) -> Self {
        let [deadline, give_up] = [time, retry_for].map(|time| time.map(|time| Instant::now() + time));
        Self { made: 0, deadline, give_up, is_of_object: false }
    }

    /// Waits for the next attempt after `failure`. Gives the failure back if it is final, or was that of the last one.
    pub(crate) async fn again(&mut self, failure: ReadFailure) -> Result<(), ReadFailure> {
        match failure {
            ReadFailure::Again { wait, .. } if self.wait(wait).await => Ok(()),
            last => Err(last),
        }
    }

    /// As [`again`](Self::again), for a request for an object, begun at `began`: asks the store for the object that it
    /// gave before, to tell whose `failure` it is.
    pub(crate) async fn judge(
        &mut self,
        failure: ReadFailure,
        control: &ControlObject,
        began: Instant,
    ) -> Result<(), ReadFailure> {
        let failure = match failure {
            ReadFailure::Doubtful(_) => failure,
            ReadFailure::Again { .. } => match self.again(failure).await {
                Ok(()) => return Ok(()),
                Err(failure) => failure,
            },
            last => return Err(last),
        };
        match control.gives(began).await {
            None => Err(failure),
            // A store's request to slow down concerns no object, however many of them come through.
            Some(true) if self.is_of_object && !failure.is_throttled() => Err(failure.of_object()),
            Some(true) if !self.is_of_object => {
                self.is_of_object = true;
                Ok(())
            }
            Some(_) => {
                self.is_of_object = false;
                if self.wait(Duration::ZERO).await { Ok(()) } else { Err(failure.of_store()) }
            }
        }
    }

    /// The answer to a request for `address`, which may take `time`. `means` tells what its error means.
    pub(crate) async fn answer<T>(
        &self,
        address: &str,
        time: Duration,
        means: fn(&str, &object_store::Error) -> ReadFailure,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, ReadFailure> {
        let request = async { (request.await, ASKED.with(Cell::get)) };
        match timeout_at(self.end(time), ASKED.scope(Cell::default(), request)).await {
            Ok((answer, asked)) => answer.map_err(|error| means(address, &error).after(asked)),
            Err(_) => Err(ReadFailure::broken(address, "no answer in time")),
        }
    }

    /// The end of what may take `time`.
    pub(crate) fn end(&self, time: Duration) -> Instant {
        let end = Instant::now() + time;
        self.deadline.map_or(end, |deadline| deadline.min(end))
    }

    /// Waits before the next attempt, as long as `asked` at least; `false` if there is none.
    async fn wait(&mut self, asked: Duration) -> bool {
        self.made += 1;
        let longest = FIRST_WAIT.saturating_mul(1 << self.made.min(16)).min(LONGEST_WAIT);
        let next = Instant::now() + longest.mul_f64(0.5 + fastrand::f64() / 2.0).max(asked);
        let is_over = self.give_up.map_or(self.made >= ATTEMPTS, |end| next >= end);
        if is_over || self.deadline.is_some_and(|deadline| next >= deadline) {
            return false;
        }
        tokio::time::sleep_until(next).await;
        true
    }
}
