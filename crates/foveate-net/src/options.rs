use std::path::PathBuf;
use std::time::Duration;

/// The options of a [`crate::Client`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
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
    /// How long the addresses of a name are cached.
    pub dns_ttl: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            allow_private: Vec::new(),
            conceal_private: false,
            only_hosts: Vec::new(),
            ports: vec![80, 443],
            https_only: false,
            ca_file: None,
            max_redirects: 3,
            max_bytes: 32 << 20,
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(30),
            min_rate: 1 << 10,
            window: Duration::from_secs(5),
            per_host: 32,
            dns_ttl: Duration::from_secs(60),
        }
    }
}
