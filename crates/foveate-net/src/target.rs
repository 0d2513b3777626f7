//! Addresses of the web, and which of them may be asked.

use std::fmt;

use ureq::http::Uri;
use url::{Host, Url};

use crate::{NetError, Options, OptionsError};

/// Longest address that is asked; servers refuse longer ones.
const LONGEST: usize = 8 << 10;

/// An http or https address without a user's name, known to be read alike by all who read it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Target {
    url: Url,
    uri: Uri,
    /// As it stands in the address, in lower case, without the brackets of IPv6 and without a last dot.
    host: String,
    port: u16,
}

impl Target {
    pub(crate) fn parse(address: &str) -> Result<Self, NetError> {
        if address.len() > LONGEST {
            return Err(NetError::permanent(format!("the address has {} bytes, more than {LONGEST}", address.len())));
        }
        let url = Url::parse(address).map_err(|e| NetError::permanent(format!("not an address of the web ({e})")))?;
        Self::of(url)
    }

    /// Where a redirect from here leads.
    pub(crate) fn join(&self, location: &str) -> Result<Self, NetError> {
        let bad = |what: &dyn fmt::Display| NetError::permanent(format!("{self} redirects to no address ({what})"));
        if location.len() > LONGEST {
            return Err(bad(&format_args!("of {} bytes, more than {LONGEST}", location.len())));
        }
        let next = self.url.join(location).map_err(|e| bad(&e))?;
        let next = Self::of(next).map_err(|e| NetError::permanent(format!("{self} redirects away: {e}")))?;
        match self.is_https() && !next.is_https() {
            true => Err(NetError::permanent(format!("{self} redirects from https to http, to {next}"))),
            false => Ok(next),
        }
    }

    fn of(mut url: Url) -> Result<Self, NetError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(NetError::permanent(format!("{}: is neither http nor https", url.scheme())));
        }
        url.set_fragment(None);
        let host = url.host_str().unwrap_or_default().to_owned();
        if !url.username().is_empty() || url.password().is_some() {
            return Err(NetError::permanent(format!(
                "{host}: the address holds a user's name or password; leave it out"
            )));
        }
        // Two readers of one address that understand different hosts are how guards are passed.
        let odd = || NetError::permanent(format!("{host}: the address cannot be asked over HTTP"));
        let uri: Uri = url.as_str().parse().map_err(|_| odd())?;
        let port = url.port_or_known_default().filter(|port| *port != 0).ok_or_else(odd)?;
        if uri.host() != Some(host.as_str()) || uri.port_u16() != url.port() || uri.scheme_str() != Some(url.scheme()) {
            return Err(odd());
        }
        Ok(Self { host: bare(&host).to_owned(), port, uri, url })
    }

    pub(crate) fn uri(&self) -> &Uri {
        &self.uri
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }
}

/// The host, and the port where it is not the scheme's own: all of an address that may be shown.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.host_str().unwrap_or_default())?;
        self.url.port().map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self})")
    }
}

/// A host without brackets and last dot.
pub(crate) fn bare(host: &str) -> &str {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.strip_suffix('.').unwrap_or(host)
}

/// What may be asked, by name; addresses are looked at when they are looked up.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    exempt: Vec<Name>,
    only: Vec<Name>,
    ports: Vec<u16>,
    https_only: bool,
}

impl Rules {
    pub(crate) fn of(options: &Options) -> Result<Self, OptionsError> {
        let names = |what, names: &[String]| names.iter().map(|name| Name::parse(what, name)).collect::<Result<_, _>>();
        let exempt: Vec<Name> = names("allow_private", &options.allow_private)?;
        if let Some(name) = exempt.iter().find(|name| name.below) {
            let message = format!("allow_private: *.{} is not one host; name each host", name.host);
            return Err(OptionsError(message));
        }
        let only = names("only_hosts", &options.only_hosts)?;
        Ok(Self { exempt, only, ports: options.ports.clone(), https_only: options.https_only })
    }

    /// Whether its addresses may be any.
    pub(crate) fn is_exempt(&self, host: &str, port: u16) -> bool {
        self.exempt.iter().any(|name| name.covers(host, port))
    }

    pub(crate) fn check(&self, target: &Target) -> Result<(), NetError> {
        let (host, port) = (target.host(), target.port());
        if self.https_only && !target.is_https() {
            return Err(NetError::permanent(format!("{target}: only https may be asked")));
        }
        if !self.only.is_empty() && !self.only.iter().any(|name| name.covers(host, port)) {
            return Err(NetError::permanent(format!("{target}: not among the hosts that may be asked")));
        }
        let by_name = || self.exempt.iter().chain(&self.only).any(|name| name.covers(host, port));
        if !self.ports.is_empty() && !self.ports.contains(&port) && !by_name() {
            return Err(NetError::permanent(format!("{target}: port {port} is not among those that may be asked")));
        }
        Ok(())
    }
}

/// A host that options name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name {
    host: String,
    /// Any where there is none.
    port: Option<u16>,
    /// Whether it stands for all hosts of the domain, and not for the domain itself.
    below: bool,
}

impl Name {
    fn parse(what: &str, name: &str) -> Result<Self, OptionsError> {
        let bad = || OptionsError(format!("{what}: \"{name}\" is no host; write host, host:port or [IPv6]:port"));
        let (below, rest) = name.strip_prefix("*.").map_or((false, name), |rest| (true, rest));
        let is_port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
        let (host, port) = match rest.rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']')) {
            Some((host, port)) if is_port(port) => (host, Some(port.parse().map_err(|_| bad())?)),
            Some(_) if !rest.ends_with(']') => return Err(bad()),
            _ => (rest, None),
        };
        let v6 = host.contains(':') && !host.starts_with('[');
        let host = Host::parse(&if v6 { format!("[{host}]") } else { host.to_owned() }).map_err(|_| bad())?;
        if below && !matches!(host, Host::Domain(_)) {
            return Err(bad());
        }
        Ok(Self { host: bare(&host.to_string()).to_owned(), port, below })
    }

    fn covers(&self, host: &str, port: u16) -> bool {
        let named = match self.below {
            true => host.strip_suffix(&self.host).is_some_and(|rest| rest.ends_with('.')),
            false => host == self.host,
        };
        named && self.port.is_none_or(|only| only == port)
    }
}
