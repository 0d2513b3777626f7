//! Name resolution: cached per host, checked at every use.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dns_lookup::{AddrInfoHints, LookupErrorKind, SockType};
use tokio::sync::{OnceCell, Semaphore};

use crate::target::Rules;
use crate::{ClientOptions, NetError, Rule};

/// Most names in the cache.
const MAX_KNOWN: usize = 4096;
/// Most look-ups at once: each holds a thread for as long as the system's resolver takes.
const MAX_LOOKUPS: usize = 64;
/// The time for which a failed look-up is cached.
const NO_ADDRESS_TTL: Duration = Duration::from_secs(5);

type Answer = Result<Arc<[IpAddr]>, NoAddress>;
/// Looks up a name, however long that takes.
pub(crate) type Lookup = dyn Fn(&str) -> Result<Vec<IpAddr>, NoAddress> + Send + Sync;

/// Reason that a name has no address.
#[derive(Clone, Debug)]
pub(crate) struct NoAddress {
    reason: String,
    /// True if a resolver said so. Otherwise it did not answer, or could not find out.
    is_answer: bool,
}

/// The system's resolver: its hosts file and DNS servers.
pub(crate) fn system_lookup(host: &str) -> Result<Vec<IpAddr>, NoAddress> {
    let hints = AddrInfoHints { socktype: SockType::Stream.into(), ..AddrInfoHints::default() };
    let answer = dns_lookup::getaddrinfo(Some(host), None, Some(hints));
    let answer = answer.map_err(|error| {
        let is_answer = matches!(error.kind(), LookupErrorKind::NoName | LookupErrorKind::NoData);
        NoAddress { reason: std::io::Error::from(error).to_string(), is_answer }
    })?;
    Ok(answer.filter_map(Result::ok).map(|entry| entry.sockaddr.ip()).collect())
}

/// Resolves names, and checks exactly the addresses that the client connects to.
pub(crate) struct AddressGuard {
    rules: Rules,
    /// True if a name with a private address is answered like one without any.
    conceal_private: bool,
    names: NameCache,
}

impl AddressGuard {
    pub(crate) fn new(rules: Rules, options: &ClientOptions, lookup: Arc<Lookup>) -> Self {
        let look_ups = Arc::new(Semaphore::new(MAX_LOOKUPS));
        let names = NameCache { ttl: options.dns_ttl, lookup, look_ups, known: Mutex::default() };
        Self { rules, conceal_private: options.conceal_private, names }
    }

    /// The addresses of a host, at least one.
    pub(crate) async fn addresses(&self, host: &str, port: u16) -> Result<Arc<[IpAddr]>, NetError> {
        if let Ok(address) = host.parse() {
            self.rules.check_addresses(host, port, &[address])?;
            return Ok(Arc::from([address]));
        }
        let found = self.names.addresses(host).await.map_err(|error| no_address(host, &error));
        let checked = found.and_then(|found| {
            self.rules.check_addresses(host, port, &found)?;
            Ok(found)
        });
        checked.map_err(|error| {
            if self.conceal_private {
                NetError { reached: error.reached, rule: Some(Rule::AllowPrivate), ..no_public_address(host) }
            } else {
                error
            }
        })
    }
}

impl fmt::Debug for AddressGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressGuard").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// The cache of names. Requests that want the same name wait for one look-up.
struct NameCache {
    ttl: Duration,
    lookup: Arc<Lookup>,
    look_ups: Arc<Semaphore>,
    known: Mutex<HashMap<String, Arc<OnceCell<KnownAnswer>>>>,
}

struct KnownAnswer {
    answer: Answer,
    until: Instant,
}

/// Returns true if an answer has not expired, or is still being looked up.
fn is_valid(known: &OnceCell<KnownAnswer>, now: Instant) -> bool {
    known.get().is_none_or(|known| known.until > now)
}

impl NameCache {
    async fn addresses(&self, host: &str) -> Answer {
        let known = self.known(host);
        known.get_or_init(|| self.look_up(host)).await.answer.clone()
    }

    /// The answer about a name, or the place for it.
    fn known(&self, host: &str) -> Arc<OnceCell<KnownAnswer>> {
        let now = Instant::now();
        let mut names = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = names.get(host).filter(|known| is_valid(known, now)) {
            return Arc::clone(known);
        }
        if names.len() >= MAX_KNOWN {
            names.retain(|_, known| is_valid(known, now));
        }
        if names.len() >= MAX_KNOWN {
            // Nothing has expired: names that are used again are looked up again.
            names.clear();
        }
        let place = Arc::new(OnceCell::new());
        names.insert(host.to_owned(), Arc::clone(&place));
        place
    }

    async fn look_up(&self, host: &str) -> KnownAnswer {
        let place = Arc::clone(&self.look_ups).acquire_owned().await;
        let lookup = Arc::clone(&self.lookup);
        let name = host.to_owned();
        let looked_up = tokio::task::spawn_blocking(move || {
            let answer = lookup(&name);
            // Held for as long as the thread is: whoever asked may have gone.
            drop(place);
            answer
        });
        let answer = looked_up.await.unwrap_or_else(|error| {
            Err(NoAddress { reason: format!("its look-up failed: {error}"), is_answer: false })
        });
        let answer = answer.and_then(|addresses| {
            if addresses.is_empty() {
                Err(NoAddress { reason: "it has none".to_owned(), is_answer: true })
            } else {
                Ok(Arc::from(addresses))
            }
        });
        let ttl = if answer.is_ok() { self.ttl } else { self.ttl.min(NO_ADDRESS_TTL) };
        KnownAnswer { answer, until: Instant::now() + ttl }
    }
}

/// Transient even if a server says that there is no such name: resolvers say so of every name during some outages, and
/// a new name is not known everywhere at once.
fn no_address(host: &str, NoAddress { reason, is_answer }: &NoAddress) -> NetError {
    NetError { no_such_name: *is_answer, ..NetError::on_the_way(*is_answer, format!("{host}: no address ({reason})")) }
}

fn no_public_address(host: &str) -> NetError {
    NetError::transient(format!("{host}: no public address"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;
    use crate::tests::run;

    const PUBLIC: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(1, 1, 1, 1));
    const PRIVATE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const LONG: Duration = Duration::from_secs(60);

    /// A guard whose names are looked up by `lookup`, and the number of look-ups so far.
    fn guard(
        ttl: Duration,
        lookup: impl Fn(&str, usize) -> Result<Vec<IpAddr>, NoAddress> + Send + Sync + 'static,
    ) -> (AddressGuard, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let counter = count.clone();
        let allow_private = vec!["friend.test:81".to_owned()];
        let options = ClientOptions { allow_private, dns_ttl: ttl, ..ClientOptions::default() };
        let lookup = move |host: &str| lookup(host, counter.fetch_add(1, Ordering::SeqCst));
        (AddressGuard::new(Rules::of(&options).unwrap(), &options, Arc::new(lookup)), count)
    }

    fn none() -> Result<Vec<IpAddr>, NoAddress> {
        Err(NoAddress { reason: "no such name".to_owned(), is_answer: true })
    }

    #[test]
    fn a_name_that_changes_its_address_is_checked_each_time() {
        let changing = |_: &str, n| Ok(vec![if n == 0 { PUBLIC } else { PRIVATE }]);
        let (guard, _) = guard(Duration::ZERO, changing);
        assert_eq!(*run(guard.addresses("rebind.test", 80)).unwrap(), [PUBLIC]);
        let error = run(guard.addresses("rebind.test", 80)).unwrap_err();
        assert_eq!(error.reason, "rebind.test: has a private address, which may not be asked");
        assert!(!error.transient);
    }

    #[test]
    fn one_bad_address_among_good_ones_refuses_the_name() {
        for answer in [[PUBLIC, PRIVATE], [PRIVATE, PUBLIC]] {
            let (guard, _) = guard(LONG, move |_, _| Ok(answer.to_vec()));
            assert!(run(guard.addresses("both.test", 80)).is_err());
            assert_eq!(*run(guard.addresses("friend.test", 81)).unwrap(), answer);
            assert!(run(guard.addresses("friend.test", 82)).is_err(), "another port of an allowed host");
        }
    }

    #[test]
    fn a_private_name_and_an_unknown_one_look_alike_if_asked() {
        let lookup = |host: &str, _| if host == "unknown.test" { none() } else { Ok(vec![PRIVATE]) };
        let (mut guard, _) = guard(LONG, lookup);
        guard.conceal_private = true;
        let error = |host: &str| {
            let NetError { reason, transient, rule, .. } = run(guard.addresses(host, 80)).unwrap_err();
            (reason.replace(host, "HOST"), transient, rule)
        };
        assert_eq!(error("inside.test"), error("unknown.test"));
        assert_eq!(error("inside.test").0, "HOST: no public address");
        assert!(error("10.0.0.1").0.contains("a private address"), "whoever gives an address knows it");
        assert!(run(guard.addresses("friend.test", 81)).is_ok());
    }

    #[test]
    fn addresses_in_numbers_are_checked_without_a_look_up() {
        let (guard, count) = guard(LONG, |_, _| none());
        assert_eq!(*run(guard.addresses("1.1.1.1", 80)).unwrap(), [PUBLIC]);
        assert!(run(guard.addresses("169.254.169.254", 80)).unwrap_err().reason.contains("a link-local address"));
        assert!(run(guard.addresses("::1", 80)).unwrap_err().reason.contains("a loopback address"));
        assert_eq!(count.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn answers_are_kept_for_their_time_good_and_bad() {
        let ttl = Duration::from_secs(1);
        let (guard, count) = guard(ttl, |host, _| if host == "good.test" { Ok(vec![PUBLIC]) } else { none() });
        for _ in 0..5 {
            assert!(run(guard.addresses("good.test", 80)).is_ok());
            assert_eq!(run(guard.addresses("bad.test", 80)).unwrap_err().reason, "bad.test: no address (no such name)");
        }
        assert_eq!(count.load(Ordering::SeqCst), 2);
        thread::sleep(ttl);
        assert!(run(guard.addresses("good.test", 80)).is_ok());
        assert_eq!(count.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn a_name_without_an_address_may_have_one_later() {
        let (guard, _) = guard(LONG, |host, _| if host == "empty.test" { Ok(Vec::new()) } else { none() });
        let error = run(guard.addresses("unknown.test", 80)).unwrap_err();
        assert_eq!((error.reason.as_str(), error.transient), ("unknown.test: no address (no such name)", true));
        assert_eq!(error.reached, Some(true), "the resolver answered");
        assert!(run(guard.addresses("empty.test", 80)).unwrap_err().transient);
    }

    #[test]
    fn a_resolver_that_fails_says_nothing_about_the_name() {
        let failing = |_: &str, _| Err(NoAddress { reason: "try again".to_owned(), is_answer: false });
        let (mut guard, _) = guard(LONG, failing);
        for conceal_private in [false, true] {
            guard.conceal_private = conceal_private;
            assert_eq!(run(guard.addresses("a.test", 80)).unwrap_err().reached, Some(false));
        }
    }

    #[test]
    fn many_who_want_one_name_share_one_look_up() {
        let (guard, count) = guard(LONG, |_, _| {
            thread::sleep(Duration::from_millis(300));
            Ok(vec![PUBLIC])
        });
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| run(guard.addresses("slow.test", 80)).unwrap());
            }
        });
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn whoever_gives_up_on_a_look_up_that_hangs_leaves_it_to_the_next() {
        let (guard, count) = guard(LONG, |_, n| {
            thread::sleep(if n == 0 { LONG } else { Duration::ZERO });
            Ok(vec![PUBLIC])
        });
        run(async {
            let hanging = tokio::time::timeout(Duration::from_millis(100), guard.addresses("hangs.test", 80));
            assert!(hanging.await.is_err());
            assert_eq!(*guard.addresses("hangs.test", 80).await.unwrap(), [PUBLIC]);
        });
        assert_eq!(count.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn no_more_names_are_kept_than_fit() {
        let (guard, _) = guard(LONG, |_, _| Ok(vec![PUBLIC]));
        for i in 0..MAX_KNOWN + 10 {
            run(guard.addresses(&format!("{i}.test"), 80)).unwrap();
        }
        assert_eq!(guard.names.known.lock().unwrap().len(), 10);
    }

    #[test]
    fn the_system_knows_this_machine() {
        assert!(system_lookup("localhost").unwrap().iter().all(IpAddr::is_loopback));
    }
}
