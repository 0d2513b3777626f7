use std::path::PathBuf;
use std::time::Duration;

/// What a client may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// Hosts that may be private, loopback or link-local, and of any port: names as they stand in addresses, with
    /// `:port` for one port only.
    pub allow_private: Vec<String>,
    /// The only hosts that may be asked, `*.example.com` for those of a domain (not the domain itself); any where
    /// empty. A host that is named may have any port, `host:port` only that one.
    pub only_hosts: Vec<String>,
    /// Ports that may be asked of hosts that neither list names; any where empty.
    pub ports: Vec<u16>,
    /// Whether https alone may be used.
    pub https_only: bool,
    /// A file of certificates (PEM) that are trusted instead of the public authorities.
    pub ca_file: Option<PathBuf>,
    /// Redirects that are followed.
    pub max_redirects: u32,
    /// Most bytes of a body.
    pub max_bytes: u64,
    /// Longest time for a connection, encryption included.
    pub connect_timeout: Duration,
    /// Longest time for a whole request, redirects and body included; and, before that, for a turn to begin it where
    /// `per_host` requests are under way.
    pub timeout: Duration,
    /// Most requests to one host at once.
    pub per_host: usize,
    /// How long an address that was looked up is used.
    pub dns_ttl: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            allow_private: Vec::new(),
            only_hosts: Vec::new(),
            ports: vec![80, 443],
            https_only: false,
            ca_file: None,
            max_redirects: 3,
            max_bytes: 32 << 20,
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(30),
            per_host: 32,
            dns_ttl: Duration::from_secs(60),
        }
    }
}
