//! Name resolution: cached per host, checked at every use.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use dns_lookup::{AddrInfoHints, LookupErrorKind, SockType};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use crate::target::{Rules, bare};
use crate::{ClientOptions, NetError, Rule, deadline};

/// Most names in the cache.
const MAX_KNOWN: usize = 4096;
/// Most look-ups at once: each holds a thread for as long as the system's resolver takes.
const MAX_LOOKUPS: usize = 64;
/// The time for which a failed look-up is cached.
const NO_ADDRESS_TTL: Duration = Duration::from_secs(5);
/// Most addresses of one host that are tried.
const MAX_ADDRESSES: usize = 8;

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

/// Resolves names for the HTTP library, and checks exactly the addresses that it connects to.
pub(crate) struct AddressGuard {
    rules: Rules,
    /// True if a name with a private address is answered like one without any.
    conceal_private: bool,
    names: Arc<NameCache>,
}

impl AddressGuard {
    pub(crate) fn new(rules: Rules, options: &ClientOptions, lookup: Arc<Lookup>) -> Self {
        let names = NameCache { ttl: options.dns_ttl, lookup, state: Mutex::default(), changed: Condvar::new() };
        Self { rules, conceal_private: options.conceal_private, names: Arc::new(names) }
    }

    fn addresses(&self, host: &str, port: u16) -> Result<Arc<[IpAddr]>, NetError> {
        if let Ok(address) = host.parse() {
            self.rules.check_addresses(host, port, &[address])?;
            return Ok(Arc::from([address]));
        }
        let found = self.names.addresses(host)?;
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

impl Resolver for AddressGuard {
    fn resolve(&self, uri: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let host = bare(uri.host().unwrap_or_default());
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
        let addresses = self.addresses(host, port).map_err(|error| ureq::Error::Other(Box::new(error)))?;
        let mut resolved = self.empty();
        for address in addresses.iter().take(MAX_ADDRESSES) {
            resolved.push(SocketAddr::new(*address, port));
        }
        Ok(resolved)
    }
}

impl fmt::Debug for AddressGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressGuard").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// The cache of names. Threads that want the same name wait for one look-up.
struct NameCache {
    ttl: Duration,
    lookup: Arc<Lookup>,
    state: Mutex<NameCacheState>,
    changed: Condvar,
}

#[derive(Default)]
struct NameCacheState {
    known: HashMap<String, KnownAnswer>,
    running: HashSet<String>,
}

struct KnownAnswer {
    answer: Answer,
    until: Instant,
}

impl NameCache {
    fn lock(&self) -> MutexGuard<'_, NameCacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The addresses of a name, or why it has none.
    ///
    /// # Errors
    /// [`NetError`] if the name could not be looked up.
    fn addresses(self: &Arc<Self>, host: &str) -> Result<Result<Arc<[IpAddr]>, NetError>, NetError> {
        let asked = Instant::now();
        let mut state = self.lock();
        loop {
            // An answer that came while this thread waited counts, even if it has expired.
            if let Some(known) = state.known.get(host).filter(|known| known.until >= asked) {
                return Ok(known.answer.clone().map_err(|error| no_address(host, &error)));
            }
            if !state.running.contains(host) && state.running.len() < MAX_LOOKUPS {
                self.start(host, &mut state)?;
            }
            let left = deadline::left();
            if left.is_zero() {
                let reason = format!("{host}: its address could not be looked up in time");
                return Err(NetError::on_the_way(false, reason));
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn start(self: &Arc<Self>, host: &str, state: &mut NameCacheState) -> Result<(), NetError> {
        let names = self.clone();
        let name = host.to_owned();
        let started = thread::Builder::new().name("dns".to_owned()).spawn(move || {
            let answer = (names.lookup)(&name);
            names.learn(name, answer);
        });
        started.map_err(|error| NetError::transient(format!("{host}: no thread to look up its address ({error})")))?;
        state.running.insert(host.to_owned());
        Ok(())
    }

    fn learn(&self, host: String, answer: Result<Vec<IpAddr>, NoAddress>) {
        let answer = answer.and_then(|addresses| {
            if addresses.is_empty() {
                Err(NoAddress { reason: "it has none".to_owned(), is_answer: true })
            } else {
                Ok(Arc::from(addresses))
            }
        });
        let now = Instant::now();
        let ttl = if answer.is_ok() { self.ttl } else { self.ttl.min(NO_ADDRESS_TTL) };
        let mut state = self.lock();
        state.running.remove(&host);
        state.make_room(now);
        state.known.insert(host, KnownAnswer { answer, until: now + ttl });
        self.changed.notify_all();
    }
}

impl NameCacheState {
    fn make_room(&mut self, now: Instant) {
        if self.known.len() < MAX_KNOWN {
            return;
        }
        self.known.retain(|_, known| known.until > now);
        if self.known.len() >= MAX_KNOWN {
            // Nothing has expired: names that are used again are looked up again.
            self.known.clear();
        }
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

    use super::*;
    use crate::deadline::Deadline;

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
        assert_eq!(*guard.addresses("rebind.test", 80).unwrap(), [PUBLIC]);
        let error = guard.addresses("rebind.test", 80).unwrap_err();
        assert_eq!(error.reason, "rebind.test: has a private address, which may not be asked");
        assert!(!error.transient);
    }

    #[test]
    fn one_bad_address_among_good_ones_refuses_the_name() {
        for answer in [[PUBLIC, PRIVATE], [PRIVATE, PUBLIC]] {
            let (guard, _) = guard(LONG, move |_, _| Ok(answer.to_vec()));
            assert!(guard.addresses("both.test", 80).is_err());
            assert_eq!(*guard.addresses("friend.test", 81).unwrap(), answer);
            assert!(guard.addresses("friend.test", 82).is_err(), "another port of an allowed host");
        }
    }

    #[test]
    fn a_private_name_and_an_unknown_one_look_alike_if_asked() {
        let lookup = |host: &str, _| if host == "unknown.test" { none() } else { Ok(vec![PRIVATE]) };
        let (mut guard, _) = guard(LONG, lookup);
        guard.conceal_private = true;
        let error = |host: &str| {
            let NetError { reason, transient, rule, .. } = guard.addresses(host, 80).unwrap_err();
            (reason.replace(host, "HOST"), transient, rule)
        };
        assert_eq!(error("inside.test"), error("unknown.test"));
        assert_eq!(error("inside.test").0, "HOST: no public address");
        assert!(error("10.0.0.1").0.contains("a private address"), "whoever gives an address knows it");
        assert!(guard.addresses("friend.test", 81).is_ok());
    }

    #[test]
    fn addresses_in_numbers_are_checked_without_a_look_up() {
        let (guard, count) = guard(LONG, |_, _| none());
        assert_eq!(*guard.addresses("1.1.1.1", 80).unwrap(), [PUBLIC]);
        assert!(guard.addresses("169.254.169.254", 80).unwrap_err().reason.contains("a link-local address"));
        assert!(guard.addresses("::1", 80).unwrap_err().reason.contains("a loopback address"));
        assert_eq!(count.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn answers_are_kept_for_their_time_good_and_bad() {
        let ttl = Duration::from_secs(1);
        let (guard, count) = guard(ttl, |host, _| if host == "good.test" { Ok(vec![PUBLIC]) } else { none() });
        for _ in 0..5 {
            assert!(guard.addresses("good.test", 80).is_ok());
            assert_eq!(guard.addresses("bad.test", 80).unwrap_err().reason, "bad.test: no address (no such name)");
        }
        assert_eq!(count.load(Ordering::SeqCst), 2);
        thread::sleep(ttl);
        assert!(guard.addresses("good.test", 80).is_ok());
        assert_eq!(count.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn a_name_without_an_address_may_have_one_later() {
        let (guard, _) = guard(LONG, |host, _| if host == "empty.test" { Ok(Vec::new()) } else { none() });
        let error = guard.addresses("unknown.test", 80).unwrap_err();
        assert_eq!((error.reason.as_str(), error.transient), ("unknown.test: no address (no such name)", true));
        assert_eq!(error.reached, Some(true), "the resolver answered");
        assert!(guard.addresses("empty.test", 80).unwrap_err().transient);
    }

    #[test]
    fn a_resolver_that_fails_says_nothing_about_the_name() {
        let failing = |_: &str, _| Err(NoAddress { reason: "try again".to_owned(), is_answer: false });
        let (mut guard, _) = guard(LONG, failing);
        for conceal_private in [false, true] {
            guard.conceal_private = conceal_private;
            assert_eq!(guard.addresses("a.test", 80).unwrap_err().reached, Some(false));
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
                scope.spawn(|| guard.addresses("slow.test", 80).unwrap());
            }
        });
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_look_up_that_hangs_is_left_alone_in_time() {
        let (guard, _) = guard(LONG, |_, _| {
            thread::sleep(Duration::from_secs(60));
            none()
        });
        let begin = Instant::now();
        let _deadline = Deadline::within(Duration::from_millis(200));
        let error = guard.addresses("hangs.test", 80).unwrap_err();
        assert_eq!(error.reason, "hangs.test: its address could not be looked up in time");
        assert!(
            error.transient && error.reached == Some(false) && begin.elapsed() < Duration::from_secs(8),
            "{:?}",
            begin.elapsed()
        );
    }

    #[test]
    fn no_more_names_are_kept_than_fit() {
        let (guard, _) = guard(LONG, |_, _| Ok(vec![PUBLIC]));
        for i in 0..MAX_KNOWN + 10 {
            guard.names.learn(format!("{i}.test"), Ok(vec![PUBLIC]));
        }
        assert_eq!(guard.names.lock().known.len(), 10);
    }

    #[test]
    fn the_system_knows_this_machine() {
        assert!(system_lookup("localhost").unwrap().iter().all(IpAddr::is_loopback));
    }
}
