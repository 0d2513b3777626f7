use std::path::PathBuf;
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};

use crate::OptionsError;

/// The options of a [`crate::Client`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// True if all addresses come from whoever runs the program, as on a command line. Then hosts, ports and names and
    /// passwords in addresses are not restricted, redirects may lead from https to http, and the system's proxies and
    /// certificates are used. Otherwise addresses are untrusted input.
    pub trusted: bool,
    /// Headers of every download.
    pub headers: RequestHeaders,
    /// Hosts that may have private, loopback or link-local addresses, and any port. `host:port` allows one port only.
    pub allow_private: Vec<String>,
    /// True if a name with such an address is answered like a name without any. Whoever names URLs and sees the answers
    /// could find out the names of a private network otherwise.
    pub conceal_private: bool,
    /// The only hosts that may be requested; empty allows every host. `*.example.com` allows the hosts of a domain, but
    /// not the domain itself. A host may have any port, `host:port` only that one.
    pub only_hosts: Vec<String>,
    /// Allowed ports of hosts that neither list names; empty allows every port.
    pub ports: Vec<u16>,
    /// True if only https is allowed.
    pub https_only: bool,
    /// A PEM file of certificates that are trusted instead of the public authorities.
    pub ca_file: Option<PathBuf>,
    /// Most redirects of a request.
    pub max_redirects: u32,
    /// Most bytes of a body.
    pub max_bytes: u64,
    /// Longest time for a connection, TLS handshake included.
    pub connect_timeout: Duration,
    /// Longest time until an answer begins, for each request of a download.
    pub answer_timeout: Duration,
    /// Longest time for a request, including redirects and body. Before that, a request may wait as long for its turn
    /// while `per_host` others are under way.
    pub timeout: Duration,
    /// Least bytes per second of a body, on average over each [`window`](Self::window). A slower download is cut; 0
    /// cuts none that sends anything.
    pub min_rate: u64,
    /// The time over which `min_rate` is measured.
    pub window: Duration,
    /// Most requests to one host at once.
    pub per_host: usize,
    /// The time for which the addresses of a name are cached.
    pub dns_ttl: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            trusted: false,
            headers: RequestHeaders::default(),
            allow_private: Vec::new(),
            conceal_private: false,
            only_hosts: Vec::new(),
            ports: vec![80, 443],
            https_only: false,
            ca_file: None,
            max_redirects: 3,
            max_bytes: 32 << 20,
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(30),
            timeout: Duration::from_secs(30),
            min_rate: 1 << 10,
            window: Duration::from_secs(5),
            per_host: 32,
            dns_ttl: Duration::from_secs(60),
        }
    }
}

/// Headers that a user adds to requests. `Debug` does not show their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHeaders {
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// Headers that the client sets itself, and those that concern a connection.
const RESERVED: [&str; 10] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "host",
    "range",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Parts of the names of headers that hold a secret.
const SECRET: [&str; 5] = ["auth", "cookie", "key", "secret", "token"];

impl RequestHeaders {
    /// Adds a header.
    ///
    /// # Errors
    /// [`OptionsError`], which does not repeat the value.
    pub fn add(&mut self, name: &str, value: &str) -> Result<(), OptionsError> {
        let value = HeaderValue::from_bytes(value.trim().as_bytes());
        let why = match (name.trim().parse::<HeaderName>(), value) {
            (Err(_), _) => "has no possible name",
            (Ok(parsed), _) if RESERVED.contains(&parsed.as_str()) => "is set by the client; leave it out",
            (_, Err(_)) => "has a value with a control character",
            (Ok(parsed), Ok(mut value)) => {
                value.set_sensitive(true);
                self.headers.push((parsed, value));
                return Ok(());
            }
        };
        Err(OptionsError::Setting(format!("the header '{}' {why}", name.escape_debug())))
    }

    /// The headers of a request: all of them to the host of the address, and those without a secret to another host
    /// that a redirect names.
    pub(crate) fn to(&self, is_other_host: bool) -> impl Iterator<Item = &(HeaderName, HeaderValue)> {
        self.headers
            .iter()
            .filter(move |(name, _)| !is_other_host || !SECRET.iter().any(|part| name.as_str().contains(part)))
    }
}
