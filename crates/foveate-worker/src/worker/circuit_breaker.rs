//! Circuit breakers: distinguish a cause that fails for many messages from a message that cannot be processed.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::{Duration, Instant};

use crate::Failure;

/// Messages that have to fail for one cause before its breaker opens.
const MESSAGES: usize = 8;
/// Sites that have to be out of reach, while nothing else answers, before the network's breaker opens.
const SITES: usize = 8;
/// The time between two probes: a quarter of the time that the breaker has been open, within these limits.
const SHORTEST_PROBE: Duration = Duration::from_millis(100);
const LONGEST_PROBE: Duration = Duration::from_secs(5);
/// Most hosts that are remembered. Jobs may name any number.
const REMEMBERED: usize = 4_096;
/// The time for which a breaker is remembered that no message needs.
const UNUSED: Duration = Duration::from_secs(600);

/// A thing that many messages may need, and that may fail for all of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cause {
    /// The server that an image is on.
    Host(String),
    /// The bucket that an image is in.
    Store(String),
    /// The server that takes a callback.
    Receiver(String),
    /// The device, or another part that prepares and processes images.
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

    /// Returns true if the operator chose it. Jobs may name any host, so an open breaker of a host says nothing about
    /// the worker.
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
}

struct Breaker {
    /// The messages, or the hosts, that have failed.
    failed: HashSet<String>,
    count: usize,
    last: Failure,
    open: Option<OpenBreaker>,
    /// The time at which a message last needed the cause.
    used: Instant,
}

struct OpenBreaker {
    since: Instant,
    probe_at: Instant,
}

impl CircuitBreakers {
    /// Breakers of a worker whose largest batch is `batch`.
    pub(super) fn new(batch: usize) -> Self {
        Self { breakers: HashMap::new(), device_messages: 32.max(4 * batch) }
    }

    /// Records that a cause worked.
    pub(super) fn succeeded(&mut self, cause: &Cause) {
        if *cause != Cause::Device {
            self.close(&Cause::Network);
        }
        self.close(cause);
    }

    /// Records that a cause failed for this message.
    pub(super) fn failed(&mut self, cause: &Cause, message: &str, failure: &Failure) {
        self.count(cause, message, failure);
    }

    /// Records what a failure says about the network: any answer proves that it works, and silence at a `site` speaks
    /// against it.
    pub(super) fn network(&mut self, site: Option<&str>, failure: &Failure) {
        match (failure.reached, site) {
            (Some(true), _) => self.close(&Cause::Network),
            (Some(false), Some(site)) => self.count(&Cause::Network, site, failure),
            _ => {}
        }
    }

    /// Forgets the breakers that no message has needed for a while.
    pub(super) fn forget_unused(&mut self) {
        self.breakers.retain(|_, breaker| breaker.used.elapsed() < UNUSED);
    }

    fn close(&mut self, cause: &Cause) {
        if let Some(Breaker { open: Some(open), .. }) = self.breakers.remove(cause) {
            let seconds = open.since.elapsed().as_secs();
            tracing::info!(%cause, seconds, "works again; its circuit breaker closed");
        }
    }

    /// Counts a failure for this message, or at this site.
    fn count(&mut self, cause: &Cause, key: &str, failure: &Failure) {
        if !self.breakers.contains_key(cause) {
            self.make_room();
        }
        let enough = match cause {
            Cause::Network => SITES,
            Cause::Device => self.device_messages,
            _ => MESSAGES,
        };
        let now = Instant::now();
        let breaker = self.breakers.entry(cause.clone()).or_insert_with(|| Breaker {
            failed: HashSet::new(),
            count: 0,
            last: failure.clone(),
            open: None,
            used: now,
        });
        breaker.count += 1;
        breaker.last = failure.clone();
        breaker.used = now;
        if breaker.open.is_none() {
            breaker.failed.insert(key.to_owned());
            if breaker.failed.len() >= enough {
                breaker.open(cause, now);
            }
        }
    }

    /// Makes room for one more breaker. However many hosts there are, they leave room for the others.
    fn make_room(&mut self) {
        self.forget_unused();
        let hosts = self.breakers.iter().filter(|(cause, _)| matches!(cause, Cause::Host(_)));
        let hosts: Vec<_> = hosts.map(|(cause, breaker)| (breaker.used, cause)).collect();
        if hosts.len() >= REMEMBERED
            && let Some(oldest) = hosts.into_iter().min_by_key(|(used, _)| *used).map(|(_, cause)| cause.clone())
        {
            self.breakers.remove(&oldest);
        }
    }

    pub(super) fn is_open(&self, cause: &Cause) -> bool {
        self.opened(cause).is_some()
    }

    fn opened(&self, cause: &Cause) -> Option<&OpenBreaker> {
        self.breakers.get(cause)?.open.as_ref()
    }

    /// Checks whether a message may use the cause now. If not, returns how long it should wait. While the breaker is
    /// open, one message at a time may: the probe.
    pub(super) fn admit(&mut self, cause: &Cause) -> Result<(), Duration> {
        let now = Instant::now();
        let Some(breaker) = self.breakers.get_mut(cause) else { return Ok(()) };
        breaker.used = now;
        let Some(open) = &mut breaker.open else { return Ok(()) };
        if now < open.probe_at {
            return Err((open.since.elapsed() / 2).max(open.probe_at - now));
        }
        open.probe_at = now + probe_interval(open);
        Ok(())
    }

    /// The pause before the next message, while no message can be processed. Whatever is wrong with hosts, or with the
    /// network, the next message may be for one that works.
    pub(super) fn probe_interval(&self) -> Option<Duration> {
        self.opened(&Cause::Device).map(probe_interval)
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
    fn open(&mut self, cause: &Cause, now: Instant) {
        self.open = Some(OpenBreaker { since: now, probe_at: now + SHORTEST_PROBE });
        self.failed = HashSet::new();
        let failures = self.count;
        let failure = &self.last;
        tracing::error!(%cause, failures, %failure, "the circuit breaker opened; probing with single messages");
    }

    fn describe(&self, cause: &Cause) -> String {
        format!("{cause}: the circuit breaker is open after {} failures; the last one is {}", self.count, self.last)
    }
}

fn probe_interval(open: &OpenBreaker) -> Duration {
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

    fn silence(breakers: &mut CircuitBreakers, sites: usize) {
        let failure = Failure { reached: Some(false), ..Failure::transient(Stage::Download, "not done") };
        (0..sites).for_each(|site| breakers.network(Some(&site.to_string()), &failure));
    }

    #[test]
    fn silence_at_many_sites_is_the_networks_fault_until_anything_answers() {
        let mut breakers = CircuitBreakers::new(1);
        (0..100).for_each(|_| silence(&mut breakers, SITES - 1));
        assert!(!breakers.is_open(&Cause::Network), "too few sites");
        let answer = Failure { reached: Some(true), ..Failure::transient(Stage::Download, "refused") };
        let of_no_site = Failure { reached: Some(false), ..answer.clone() };
        (0..100).for_each(|_| breakers.network(None, &of_no_site));
        let proofs: [&dyn Fn(&mut CircuitBreakers); 4] = [
            &|breakers| breakers.network(Some("1"), &answer),
            &|breakers| breakers.succeeded(&host("a:443")),
            &|breakers| breakers.succeeded(&Cause::Store("s3://photos".to_owned())),
            &|breakers| breakers.succeeded(&Cause::Receiver("b:443".to_owned())),
        ];
        for proof in proofs {
            silence(&mut breakers, SITES);
            assert!(breakers.check().unwrap_err().starts_with("network: "));
            breakers.succeeded(&Cause::Device);
            assert!(breakers.is_open(&Cause::Network), "the device says nothing about it");
            proof(&mut breakers);
            assert!(!breakers.is_open(&Cause::Network));
        }
        silence(&mut breakers, 1);
        assert!(!breakers.is_open(&Cause::Network), "it counts from the start again");
    }

    #[test]
    fn dead_hosts_do_not_slow_the_intake() {
        let mut breakers = CircuitBreakers::new(1);
        for name in ["a", "b", "c", "d"] {
            fail(&mut breakers, &host(name), 100);
        }
        silence(&mut breakers, SITES);
        assert_eq!((breakers.count_open("host"), breakers.probe_interval()), (4, None));
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
    fn dead_hosts_without_number_leave_every_other_breaker() {
        let mut breakers = CircuitBreakers::new(1);
        (0..2 * REMEMBERED).for_each(|n| fail(&mut breakers, &host(&n.to_string()), MESSAGES));
        assert_eq!(breakers.count_open("host"), REMEMBERED);
        assert!(breakers.is_open(&host(&(2 * REMEMBERED - 1).to_string())), "the latest ones");
        let receiver = Cause::Receiver("a:443".to_owned());
        fail(&mut breakers, &receiver, MESSAGES);
        fail(&mut breakers, &Cause::Device, 32);
        silence(&mut breakers, SITES);
        assert!(breakers.is_open(&receiver) && breakers.is_open(&Cause::Network) && breakers.check_device().is_err());
    }

    #[test]
    fn what_no_message_needs_is_forgotten() {
        let mut breakers = CircuitBreakers::new(1);
        let age = |breakers: &mut CircuitBreakers, by| {
            breakers.breakers.values_mut().for_each(|breaker| breaker.used = breaker.used.checked_sub(by).unwrap());
        };
        let receiver = Cause::Receiver("a:443".to_owned());
        [&host("old"), &host("used"), &receiver].into_iter().for_each(|cause| fail(&mut breakers, cause, MESSAGES));
        age(&mut breakers, UNUSED / 2);
        assert!(breakers.admit(&host("used")).is_err());
        age(&mut breakers, UNUSED / 2);
        breakers.forget_unused();
        assert_eq!((breakers.is_open(&host("old")), breakers.is_open(&host("used"))), (false, true));
        assert_eq!(breakers.check(), Ok(()), "no message needs the receiver");
    }
}
