use std::time::Duration;

use crate::NetError;

/// What a client may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Hosts that may be private, loopback or link-local: names as they stand in addresses, with `:port` for one port
    /// only.
    pub allow_private: Vec<String>,
    /// The only hosts that may be asked, `*.example.com` for a domain's; any where empty.
    pub only_hosts: Vec<String>,
    /// Whether https alone may be used.
    pub https_only: bool,
    /// Redirects that are followed.
    pub max_redirects: u32,
    /// Most bytes of a body.
    pub max_bytes: u64,
    /// Longest time for a connection, encryption included.
    pub connect_timeout: Duration,
    /// Longest time for a whole request, redirects and body included.
    pub timeout: Duration,
    /// Most requests to one host at once.
    pub per_host: usize,
    /// How long an address that was looked up is used.
    pub dns_ttl: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            allow_private: Vec::new(),
            only_hosts: Vec::new(),
            https_only: false,
            max_redirects: 3,
            max_bytes: 32 << 20,
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(30),
            per_host: 32,
            dns_ttl: Duration::from_secs(60),
        }
    }
}

/// Asks hosts that strangers named. May be shared between threads.
#[derive(Debug)]
pub struct Client {
    options: Options,
}

/// What was answered to a post: the status, always one of 2xx.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
}

impl Client {
    /// A client of these options.
    pub fn new(options: Options) -> Self {
        Self { options }
    }

    /// Replaces the content of `out` with what is at `url`. `admit` is called once, before the first byte of the body
    /// is read, with the most bytes that there can be; it may wait, and that time does not count.
    ///
    /// # Errors
    /// [`NetError`]; `out` is empty then.
    pub fn get(&self, url: &str, admit: &mut dyn FnMut(u64), out: &mut Vec<u8>) -> Result<(), NetError> {
        out.clear();
        admit(self.options.max_bytes);
        Err(NetError { reason: format!("{url} was not asked"), transient: false, retry_after: None })
    }

    /// Posts JSON. Follows no redirect.
    ///
    /// # Errors
    /// [`NetError`], any status but 2xx among them.
    pub fn post(&self, url: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Reply, NetError> {
        let _ = (headers, body);
        Err(NetError { reason: format!("{url} was not asked"), transient: false, retry_after: None })
    }
}
