//! Circuit breakers: distinguish a cause that fails for many messages from a message that cannot be processed.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::{Duration, Instant};

use crate::Failure;

/// Messages that have to fail for one cause before its breaker opens.
const MESSAGES: usize = 8;
/// Hosts that have to fail, and downloads from them, without a download from any, before the network's breaker opens.
const HOSTS: usize = 4;
const DOWNLOADS: usize = 32;
/// The time between two probes: a quarter of the time that the breaker has been open, within these limits.
const SHORTEST_PROBE: Duration = Duration::from_millis(100);
const LONGEST_PROBE: Duration = Duration::from_secs(5);
/// Most causes that are remembered. Jobs may name any number of hosts.
const REMEMBERED: usize = 4_096;

/// What many messages may need.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cause {
    /// The server that an image is on.
    Host(String),
    /// The bucket that an image is in.
    Store(String),
    /// The server that takes a callback.
    Receiver(String),
    /// The device, or whatever else prepares and processes images.
    Device,
    /// The network and the name resolution of this machine.
    Network,
}

impl Cause {
    /// The kinds in metrics.
    pub(super) const KINDS: [&'static str; 5] = ["host", "store", "receiver", "device", "network"];

    pub(super) fn kind(&self) -> &'static str {
        let [host, store, receiver, device, network] = Self::KINDS;
        match self {
            Self::Host(_) => host,
            Self::Store(_) => store,
            Self::Receiver(_) => receiver,
            Self::Device => device,
            Self::Network => network,
        }
    }

    /// Whether the operator chose it. Jobs may name any host, so an open breaker of a host says nothing about the
    /// worker.
    pub(super) fn is_operators(&self) -> bool {
        !matches!(self, Self::Host(_))
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(bucket) => write!(f, "store {bucket}"),
            Self::Host(server) | Self::Receiver(server) => write!(f, "{} {server}", self.kind()),
            Self::Device | Self::Network => f.write_str(self.kind()),
        }
    }
}

/// A breaker for each cause that has failed since it last worked. While one is open, the messages that need its cause
/// are given back without a try, except for one probe at a time. One success closes it.
pub(super) struct CircuitBreakers {
    breakers: HashMap<Cause, Breaker>,
    /// Messages that have to fail on the device: several batches, because one bad batch may have many.
    device_messages: usize,
    /// Hosts that have sent an image.
    proven: HashSet<String>,
}

struct Breaker {
    /// The messages, or the hosts, that have failed.
    failed: HashSet<String>,
    count: usize,
    last: Failure,
    open: Option<Open>,
}

struct Open {
    since: Instant,
    probe_at: Instant,
}

impl CircuitBreakers {
    /// Breakers of a worker whose largest batch is `batch`.
    pub(super) fn new(batch: usize) -> Self {
        Self { breakers: HashMap::new(), device_messages: 32.max(4 * batch), proven: HashSet::new() }
    }

    /// Records that a cause worked.
    pub(super) fn succeeded(&mut self, cause: &Cause) {
        if let Cause::Host(host) = cause {
            if self.proven.len() < REMEMBERED {
                self.proven.insert(host.clone());
            }
            self.close(&Cause::Network);
        }
        self.close(cause);
    }

    /// Records that a cause failed for this message.
    pub(super) fn failed(&mut self, cause: &Cause, message: &str, failure: &Failure) {
        let opened = self.count(cause, message, failure);
        if let Cause::Host(host) = cause {
            self.count(&Cause::Network, host, failure);
            if opened && self.proven.iter().all(|host| self.is_open(&Cause::Host(host.clone()))) {
                self.open(&Cause::Network);
            }
        }
    }

    fn close(&mut self, cause: &Cause) {
        if let Some(Breaker { open: Some(open), .. }) = self.breakers.remove(cause) {
            let seconds = open.since.elapsed().as_secs();
            tracing::info!(%cause, seconds, "works again; its circuit breaker closed");
        }
    }

    /// Counts a failure. Returns whether it opened the breaker.
    fn count(&mut self, cause: &Cause, key: &str, failure: &Failure) -> bool {
        if self.breakers.len() >= REMEMBERED {
            self.breakers.retain(|_, breaker| breaker.open.is_some());
            if self.breakers.len() >= REMEMBERED && !self.breakers.contains_key(cause) {
                return false;
            }
        }
        let device_messages = self.device_messages;
        let new = || Breaker { failed: HashSet::new(), count: 0, last: failure.clone(), open: None };
        let breaker = self.breakers.entry(cause.clone()).or_insert_with(new);
        breaker.count += 1;
        breaker.last = failure.clone();
        if breaker.open.is_some() {
            return false;
        }
        breaker.failed.insert(key.to_owned());
        let opens = match cause {
            Cause::Network => breaker.failed.len() >= HOSTS && breaker.count >= DOWNLOADS,
            Cause::Device => breaker.failed.len() >= device_messages,
            _ => breaker.failed.len() >= MESSAGES,
        };
        if opens {
            self.open(cause);
        }
        opens
    }

    fn open(&mut self, cause: &Cause) {
        let Some(breaker) = self.breakers.get_mut(cause).filter(|breaker| breaker.open.is_none()) else { return };
        let now = Instant::now();
        breaker.open = Some(Open { since: now, probe_at: now + SHORTEST_PROBE });
        breaker.failed = HashSet::new();
        let (failures, failure) = (breaker.count, &breaker.last);
        tracing::error!(%cause, failures, %failure, "the circuit breaker opened; probing with single messages");
    }

    pub(super) fn is_open(&self, cause: &Cause) -> bool {
        self.opened(cause).is_some()
    }

    fn opened(&self, cause: &Cause) -> Option<&Open> {
        self.breakers.get(cause)?.open.as_ref()
    }

    /// Whether a message may use the cause now. If not, returns how long it should wait. While the breaker is open, one
    /// message at a time may: the probe.
    pub(super) fn admit(&mut self, cause: &Cause) -> Result<(), Duration> {
        let Some(open) = self.breakers.get_mut(cause).and_then(|breaker| breaker.open.as_mut()) else { return Ok(()) };
        let now = Instant::now();
        if now < open.probe_at {
            return Err((open.since.elapsed() / 2).max(open.probe_at - now));
        }
        open.probe_at = now + probe_interval(open);
        Ok(())
    }

    /// The pause before the next message, while no message can be processed.
    pub(super) fn probe_interval(&self) -> Option<Duration> {
        // Once a host has worked, the messages of another one may wait behind those that fail.
        let network = self.opened(&Cause::Network).filter(|_| self.proven.is_empty());
        self.opened(&Cause::Device).or(network).map(probe_interval)
    }

    /// Says which breaker of the operator's causes is open, and why.
    pub(super) fn check(&self) -> Result<(), String> {
        let open = self.breakers.iter().filter(|(cause, breaker)| cause.is_operators() && breaker.open.is_some());
        open.min_by_key(|(cause, _)| cause.to_string()).map_or(Ok(()), |(cause, breaker)| Err(breaker.describe(cause)))
    }

    /// Says why the device's breaker is open: a restart may mend a device, but nothing else.
    pub(super) fn check_device(&self) -> Result<(), String> {
        match self.breakers.get(&Cause::Device) {
            Some(breaker) if breaker.open.is_some() => Err(breaker.describe(&Cause::Device)),
            _ => Ok(()),
        }
    }

    /// The number of open breakers of this kind of cause.
    pub(super) fn count_open(&self, kind: &str) -> usize {
        self.breakers.iter().filter(|(cause, breaker)| cause.kind() == kind && breaker.open.is_some()).count()
    }
}

impl Breaker {
    fn describe(&self, cause: &Cause) -> String {
        format!("{cause}: the circuit breaker is open after {} failures; the last one is {}", self.count, self.last)
    }
}

fn probe_interval(open: &Open) -> Duration {
    (open.since.elapsed() / 4).clamp(SHORTEST_PROBE, LONGEST_PROBE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stage;

    fn host(name: &str) -> Cause {
        Cause::Host(name.to_owned())
    }

    fn fail(breakers: &mut CircuitBreakers, cause: &Cause, messages: usize) {
        let failure = Failure::transient(Stage::Download, "gone");
        (0..messages).for_each(|n| breakers.failed(cause, &n.to_string(), &failure));
    }

    #[test]
    fn many_messages_open_a_breaker_one_message_does_not_and_a_success_closes_it() {
        let mut breakers = CircuitBreakers::new(1);
        let (receiver, other) = (Cause::Receiver("a:443".to_owned()), Cause::Receiver("b:443".to_owned()));
        let failure = Failure::transient(Stage::Callback, "answered 404 Not Found");
        (0..100).for_each(|_| breakers.failed(&receiver, "the same", &failure));
        assert_eq!((breakers.admit(&receiver), breakers.check()), (Ok(()), Ok(())));
        fail(&mut breakers, &receiver, MESSAGES);
        assert!(breakers.admit(&receiver).is_err() && breakers.admit(&other).is_ok());
        let told = breakers.check().unwrap_err();
        assert!(told.starts_with("receiver a:443: the circuit breaker is open after 10"), "{told}");
        assert_eq!((breakers.count_open("receiver"), breakers.probe_interval()), (1, None));
        breakers.succeeded(&receiver);
        assert_eq!((breakers.admit(&receiver), breakers.check()), (Ok(()), Ok(())));
    }

    #[test]
    fn an_open_breaker_lets_single_probes_through() {
        let mut breakers = CircuitBreakers::new(1);
        breakers.succeeded(&host("b"));
        fail(&mut breakers, &host("a"), MESSAGES);
        let wait = breakers.admit(&host("a")).unwrap_err();
        assert!(wait <= SHORTEST_PROBE, "{wait:?}");
        std::thread::sleep(wait);
        assert!(breakers.admit(&host("a")).is_ok() && breakers.admit(&host("a")).is_err());
        assert_eq!(breakers.check(), Ok(()), "jobs may name any host");
    }

    #[test]
    fn hosts_that_fail_together_are_the_networks_fault_unless_one_works() {
        let mut breakers = CircuitBreakers::new(1);
        breakers.succeeded(&host("e"));
        fail(&mut breakers, &host("a"), 1_000);
        assert!(!breakers.is_open(&Cause::Network), "one host");
        for name in ["b", "c", "d"] {
            fail(&mut breakers, &host(name), 1);
        }
        assert!(breakers.is_open(&Cause::Network));
        assert_eq!(breakers.probe_interval(), None, "images of e may wait behind these");
        breakers.succeeded(&host("e"));
        assert!(!breakers.is_open(&Cause::Network) && breakers.is_open(&host("a")));
        fail(&mut breakers, &host("e"), MESSAGES);
        assert!(breakers.is_open(&Cause::Network), "no host is left that worked");
    }

    #[test]
    fn a_worker_that_never_had_an_image_probes_slowly() {
        let mut breakers = CircuitBreakers::new(1);
        fail(&mut breakers, &host("a"), MESSAGES);
        assert!(breakers.check().unwrap_err().starts_with("network: ") && breakers.probe_interval().is_some());
    }

    #[test]
    fn a_device_fails_for_several_batches_and_needs_a_restart() {
        let mut breakers = CircuitBreakers::new(16);
        fail(&mut breakers, &Cause::Device, 63);
        assert_eq!(breakers.check_device(), Ok(()));
        fail(&mut breakers, &Cause::Device, 64);
        assert!(breakers.check_device().is_err() && breakers.probe_interval().is_some());
    }

    #[test]
    fn hosts_without_number_cost_bounded_memory() {
        let mut breakers = CircuitBreakers::new(1);
        (0..2 * REMEMBERED).for_each(|n| fail(&mut breakers, &host(&n.to_string()), 1));
        assert!(breakers.breakers.len() <= REMEMBERED);
    }
}
