//! URLs, and the rules for requesting them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Uri;
use hyper::header::HeaderValue;
use percent_encoding::percent_decode_str;
use url::{Host, Url};

use crate::{ClientOptions, NetError, OptionsError, Rule, address};

/// Most bytes of a URL; servers refuse longer ones.
pub const MAX_ADDRESS: usize = 8 << 10;

/// An http or https URL without a user name, on whose host all parsers agree.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct HttpTarget {
    url: Url,
    uri: Uri,
    /// The URL's host in lower case, without IPv6 brackets and final dot.
    host: String,
    port: u16,
    /// The name and password of a trusted URL, as the value of a header.
    login: Option<HeaderValue>,
}

/// Checks that a client with any options could request `url`: http or https, a host, no user name.
///
/// # Errors
/// [`NetError`], always permanent.
pub fn check(url: &str) -> Result<(), NetError> {
    HttpTarget::parse(url).map(drop)
}

/// The server of a URL as `host:port`, or `None` if the URL would be refused.
pub fn server(url: &str) -> Option<String> {
    HttpTarget::parse(url).ok().map(|target| target.server())
}

/// The site of a URL, or `None` if the URL would be refused: the registrable domain of its host by the public suffix
/// list, private suffixes included, or its network (IPv4 /24, IPv6 /64). The owner of a site can make any number of
/// hosts in it, but not of sites.
pub fn site(url: &str) -> Option<String> {
    let target = HttpTarget::parse(url).ok()?;
    let host = target.host();
    Some(match host.parse() {
        Ok(IpAddr::V4(address)) => format!("{}/24", Ipv4Addr::from_bits(address.to_bits() & !0xff)),
        Ok(IpAddr::V6(address)) => format!("{}/64", Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        // A public suffix is one site, and so is a name of one label.
        Err(_) => psl::domain_str(host).unwrap_or(host).to_owned(),
    })
}

impl HttpTarget {
    pub(crate) fn parse(address: &str) -> Result<Self, NetError> {
        Self::parse_as(address, false)
    }

    /// Parses an address; a trusted one may have a name and a password.
    pub(crate) fn parse_as(address: &str, is_trusted: bool) -> Result<Self, NetError> {
        if address.len() > MAX_ADDRESS {
            return Err(NetError::permanent(format!(
                "the address has {} bytes, more than {MAX_ADDRESS}",
                address.len()
            )));
        }
        let url = Url::parse(address).map_err(|e| NetError::permanent(format!("not an address of the web ({e})")))?;
        Self::of(url, is_trusted)
    }

    /// The target of a redirect from here.
    pub(crate) fn join(&self, location: &str, is_trusted: bool) -> Result<Self, NetError> {
        let bytes = location.len();
        if bytes > MAX_ADDRESS {
            let why = format!("{self} redirects to no address (of {bytes} bytes, more than {MAX_ADDRESS})");
            return Err(NetError::permanent(why));
        }
        let next = self.url.join(location);
        let next = next.map_err(|error| NetError::permanent(format!("{self} redirects to no address ({error})")))?;
        let next = Self::of(next, is_trusted);
        let next = next.map_err(|error| NetError::permanent(format!("{self} redirects away: {error}")))?;
        if self.is_https() && !next.is_https() && !is_trusted {
            Err(NetError::permanent(format!("{self} redirects from https to http, to {next}")))
        } else {
            Ok(next)
        }
    }

    fn of(mut url: Url, is_trusted: bool) -> Result<Self, NetError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(NetError::permanent(format!("{}: is neither http nor https", url.scheme())));
        }
        url.set_fragment(None);
        let host = url.host_str().unwrap_or_default().to_owned();
        let login = login(&url);
        if is_trusted {
            // They have one only if there is a host, so neither can fail.
            let _ = url.set_username("");
            let _ = url.set_password(None);
        } else if login.is_some() {
            return Err(NetError::permanent(format!(
                "{host}: the address holds a user's name or password; leave it out"
            )));
        }
        // URLs in which two parsers see different hosts are a known way around guards.
        let uri = url.as_str().parse().ok().filter(|uri: &Uri| {
            uri.host() == Some(host.as_str()) && uri.port_u16() == url.port() && uri.scheme_str() == Some(url.scheme())
        });
        let port = url.port_or_known_default().filter(|port| *port != 0);
        match uri.zip(port) {
            Some((uri, port)) => Ok(Self { host: bare(&host).to_owned(), port, login, uri, url }),
            None => Err(NetError::permanent(format!("{host}: the address cannot be asked over HTTP"))),
        }
    }

    pub(crate) fn uri(&self) -> &Uri {
        &self.uri
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Scheme, host and port: requests to another one are to another server.
    pub(crate) fn origin(&self) -> url::Origin {
        self.url.origin()
    }

    /// `host:port`.
    pub(crate) fn server(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    pub(crate) fn login(&self) -> Option<&HeaderValue> {
        self.login.as_ref()
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }
}

/// The host, and the port unless it is the scheme's default: the only part of a URL that may be logged.
impl fmt::Display for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.host_str().unwrap_or_default())?;
        self.url.port().map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl fmt::Debug for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpTarget({self})")
    }
}

/// The name and password of a URL for basic authentication.
fn login(url: &Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let mut plain: Vec<u8> = percent_decode_str(url.username()).collect();
    plain.push(b':');
    plain.extend(percent_decode_str(url.password().unwrap_or_default()));
    let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(plain))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// A host without brackets and final dot.
pub(crate) fn bare(host: &str) -> &str {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.strip_suffix('.').unwrap_or(host)
}

/// The rules for hosts: by name, and by the addresses that a name resolves to.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    exempt: Vec<HostName>,
    only: Vec<HostName>,
    ports: Vec<u16>,
    https_only: bool,
    trusted: bool,
}

impl Rules {
    pub(crate) fn of(options: &ClientOptions) -> Result<Self, OptionsError> {
        let exempt = HostName::parse_all("hosts with private addresses", &options.allow_private)?;
        if let Some(name) = exempt.iter().find(|name| name.below) {
            let message = format!("hosts with private addresses: *.{} is not one host; name each host", name.host);
            return Err(OptionsError::Setting(message));
        }
        let only = HostName::parse_all("allowed hosts", &options.only_hosts)?;
        let ports = options.ports.clone();
        let https_only = options.https_only;
        let trusted = options.trusted;
        Ok(Self { exempt, only, ports, https_only, trusted })
    }

    /// Checks whether a host with these addresses may be requested. All of them must be public, unless the host may be
    /// private: names with both kinds are made to pass guards. Errors do not name the addresses, which would reveal the
    /// internal network.
    pub(crate) fn check_addresses(&self, host: &str, port: u16, addresses: &[IpAddr]) -> Result<(), NetError> {
        let is_exempt = self.trusted || self.exempt.iter().any(|name| name.covers(host, port));
        match addresses.iter().find_map(|address| address::special(*address)) {
            Some(kind) if !is_exempt => {
                let reason = format!("{host}: has {kind} address, which may not be asked");
                Err(NetError::refused(Rule::AllowPrivate, reason))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn check(&self, target: &HttpTarget) -> Result<(), NetError> {
        let host = target.host();
        let port = target.port();
        if self.https_only && !target.is_https() {
            return Err(NetError::refused(Rule::HttpsOnly, format!("{target}: only https may be asked")));
        }
        if !self.only.is_empty() && !self.only.iter().any(|name| name.covers(host, port)) {
            let reason = format!("{target}: not among the hosts that may be asked");
            return Err(NetError::refused(Rule::OnlyHosts, reason));
        }
        if !self.ports.is_empty()
            && !self.ports.contains(&port)
            && !self.trusted
            && !self.exempt.iter().chain(&self.only).any(|name| name.covers(host, port))
        {
            let reason = format!("{target}: port {port} is not among those that may be asked");
            return Err(NetError::refused(Rule::Ports, reason));
        }
        match host.parse() {
            Ok(address) => self.check_addresses(host, port, &[address]),
            // A name: checked when it is resolved.
            Err(_) => Ok(()),
        }
    }
}

/// A host in the options.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HostName {
    host: String,
    /// Any port if `None`.
    port: Option<u16>,
    /// True if it stands for all hosts of the domain, without the domain itself.
    below: bool,
}

impl HostName {
    fn parse_all(what: &str, names: &[String]) -> Result<Vec<Self>, OptionsError> {
        let mut parsed = Vec::new();
        for name in names {
            parsed.push(Self::parse(name).ok_or_else(|| {
                let remedy = "write host, host:port or [IPv6]:port";
                OptionsError::Setting(format!("{what}: \"{name}\" is not a host; {remedy}"))
            })?);
        }
        Ok(parsed)
    }

    fn parse(name: &str) -> Option<Self> {
        let below = name.starts_with("*.");
        let rest = name.strip_prefix("*.").unwrap_or(name);
        let mut host = rest;
        let mut port = None;
        if let Some((before, digits)) = rest.rsplit_once(':')
            && (!before.contains(':') || before.ends_with(']'))
        {
            // A number may have a sign for the parser.
            if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            host = before;
            port = Some(digits.parse().ok()?);
        }
        let v6 = host.contains(':') && !host.starts_with('[');
        let host = Host::parse(&if v6 { format!("[{host}]") } else { host.to_owned() }).ok()?;
        let is_domain = matches!(&host, Host::Domain(domain) if !domain.contains('*'));
        if !is_domain && (below || rest.contains('*')) {
            return None;
        }
        Some(Self { host: bare(&host.to_string()).to_owned(), port, below })
    }

    fn covers(&self, host: &str, port: u16) -> bool {
        let named = if self.below {
            host.strip_suffix(&self.host).is_some_and(|rest| rest.ends_with('.'))
        } else {
            host == self.host
        };
        named && self.port.is_none_or(|only| only == port)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(address: &str) -> String {
        let error = HttpTarget::parse(address).unwrap_err();
        assert!(!error.transient);
        error.reason
    }

    fn rules(options: ClientOptions) -> Rules {
        Rules::of(&options).unwrap()
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_site_is_a_registrable_domain_or_a_network() {
        for (url, expected) in [
            ("https://a.b.example.com/x", "example.com"),
            ("https://example.com", "example.com"),
            ("http://x.y.example.co.uk:8080/", "example.co.uk"),
            ("http://images.example.de/", "example.de"),
            ("http://a.bbc.uk.com/", "bbc.uk.com"),
            ("http://photos.s3.amazonaws.com/1", "photos.s3.amazonaws.com"),
            ("http://other.s3.eu-west-1.amazonaws.com/1", "other.s3.eu-west-1.amazonaws.com"),
            ("http://a.b.github.io/", "b.github.io"),
            ("http://github.io/", "github.io"),
            ("http://a.b.internal/", "b.internal"),
            ("http://localhost/", "localhost"),
            ("http://192.0.2.7:81/", "192.0.2.0/24"),
            ("http://[2001:db8:0:1:2::1]:81/", "2001:db8:0:1::/64"),
        ] {
            assert_eq!(site(url).as_deref(), Some(expected), "{url}");
        }
        assert_eq!(site("ftp://example.com"), None);
    }

    #[test]
    fn every_spelling_of_an_address_is_one_host() {
        for spelling in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://127.0.1",
            "http://2130706433",
            "http://0x7f.1",
            "http://0x7f000001",
            "http://0177.0.0.1",
            "http://017700000001",
            "http://127.0.0.1./",
            "HTTP://127.0.0.1:80",
            "http:127.0.0.1",
            "http:\\\\127.0.0.1\\a",
            "http:///127.0.0.1",
            "http://127。0。0。1",
            "http://１２７.0.0.1",
            "http://%31%32%37.0.0.1",
            " http://127.0.\t0.1\n",
            "http://127.0.0.1#@example.com/",
            "http://127.0.0.1?@example.com/",
        ] {
            assert_eq!(HttpTarget::parse(spelling).unwrap().host(), "127.0.0.1", "{spelling}");
        }
        for spelling in ["http://[::1]", "http://[0:0:0:0:0:0:0:1]", "http://[::0.0.0.1]"] {
            assert_eq!(HttpTarget::parse(spelling).unwrap().host(), "::1", "{spelling}");
        }
        assert_eq!(HttpTarget::parse("http://[::ffff:127.0.0.1]").unwrap().host(), "::ffff:7f00:1");
        assert_eq!(HttpTarget::parse("http://EXAMPLE.com.:8080/a").unwrap().host(), "example.com");
        assert_eq!(
            HttpTarget::parse("http://bücher.example/ü?ü").unwrap().uri(),
            "http://xn--bcher-kva.example/%C3%BC?%C3%BC"
        );
    }

    #[test]
    fn what_is_no_address_of_the_web_is_told_why() {
        assert!(refused("").starts_with("not an address of the web"));
        assert!(refused("photo.jpg").starts_with("not an address of the web"));
        assert!(refused("http://").starts_with("not an address of the web"));
        assert!(refused("http://1.2.3.4.5/").starts_with("not an address of the web"));
        assert!(refused("http://[fe80::1%25eth0]/").starts_with("not an address of the web"));
        for scheme in ["file:///etc/passwd", "ftp://a/b", "gopher://a", "data:image/png;base64,AA", "ws://a", "unix:/x"]
        {
            let name = scheme.split(':').next().unwrap();
            assert_eq!(refused(scheme), format!("{name}: is neither http nor https"));
        }
        for user in ["http://secret@example.com", "http://secret:word@example.com/", "http://:secret@example.com"] {
            let message = "example.com: the address holds a user's name or password; leave it out";
            assert_eq!(refused(user), message);
        }
        assert_eq!(refused("http://example.com:0/"), "example.com: the address cannot be asked over HTTP");
        let long = format!("http://example.com/{}", "a".repeat(MAX_ADDRESS));
        assert_eq!(refused(&long), "the address has 8211 bytes, more than 8192");
    }

    #[test]
    fn redirects_lead_where_a_browser_would_go() {
        let from = HttpTarget::parse("https://example.com/a/b?c").unwrap();
        let to = |location| from.join(location, false).map(|to| to.uri().to_string()).map_err(|e| e.reason);
        assert_eq!(to("d").unwrap(), "https://example.com/a/d");
        assert_eq!(to("/d#e").unwrap(), "https://example.com/d");
        assert_eq!(to("//other.example/d").unwrap(), "https://other.example/d");
        assert_eq!(to("?d").unwrap(), "https://example.com/a/b?d");
        assert_eq!(to("http://example.com/").unwrap_err(), "example.com redirects from https to http, to example.com");
        assert_eq!(
            to("file:///etc/passwd").unwrap_err(),
            "example.com redirects away: file: is neither http nor https"
        );
        assert!(to("https://u:p@example.com/").unwrap_err().contains("a user's name or password"));
        assert!(to("https://").unwrap_err().starts_with("example.com redirects to no address"));
        assert!(HttpTarget::parse("http://a/").unwrap().join("https://b/", false).is_ok(), "an upgrade");
    }

    #[test]
    fn names_cover_hosts_and_ports() {
        let covers = |name: &str, host: &str, port| HostName::parse(name).unwrap().covers(host, port);
        assert!(covers("example.com", "example.com", 1) && covers("EXAMPLE.com.", "example.com", 1));
        assert!(covers("example.com:8080", "example.com", 8080) && !covers("example.com:8080", "example.com", 80));
        assert!(!covers("example.com", "a.example.com", 1) && !covers("example.com", "badexample.com", 1));
        assert!(covers("*.example.com", "a.example.com", 1) && covers("*.example.com", "a.b.example.com", 1));
        assert!(!covers("*.example.com", "example.com", 1) && !covers("*.example.com", "badexample.com", 1));
        assert!(covers("127.0.0.1:9", "127.0.0.1", 9) && covers("0x7f.1", "127.0.0.1", 9));
        assert!(covers("::1", "::1", 9) && covers("[::1]", "::1", 9));
        assert!(covers("[::1]:9", "::1", 9) && !covers("[::1]:9", "::1", 8));
    }

    #[test]
    fn names_that_are_no_hosts_are_told() {
        for name in ["", "*", "*.", "a b", "http://a", "a/b", "a:b", "a:99999", "*.1.2.3.4", "u@a", "[::1", "a,b:1/"] {
            let options = ClientOptions { only_hosts: names(&[name]), ..ClientOptions::default() };
            let message = format!("allowed hosts: \"{name}\" is not a host; write host, host:port or [IPv6]:port");
            assert_eq!(Rules::of(&options).unwrap_err().to_string(), message);
        }
        let options = ClientOptions { allow_private: names(&["*.internal"]), ..ClientOptions::default() };
        let message = "hosts with private addresses: *.internal is not one host; name each host";
        assert_eq!(Rules::of(&options).unwrap_err().to_string(), message);
    }

    #[test]
    fn rules_look_at_scheme_host_and_port() {
        let check =
            |rules: &Rules, address: &str| rules.check(&HttpTarget::parse(address).unwrap()).map_err(|e| e.reason);
        let usual = rules(ClientOptions { allow_private: names(&["localhost:81"]), ..ClientOptions::default() });
        assert_eq!(check(&usual, "http://a/"), Ok(()));
        assert_eq!(check(&usual, "http://a:443/"), Ok(()));
        assert_eq!(check(&usual, "http://localhost:81/"), Ok(()));
        let message = "localhost:82: port 82 is not among those that may be asked";
        assert_eq!(check(&usual, "http://localhost:82/").unwrap_err(), message);
        let any = rules(ClientOptions { ports: Vec::new(), ..ClientOptions::default() });
        assert_eq!(check(&any, "http://a:22/"), Ok(()));
        let few = rules(ClientOptions {
            only_hosts: names(&["a", "*.b:8443"]),
            https_only: true,
            ..ClientOptions::default()
        });
        assert_eq!(check(&few, "https://a:9/"), Ok(()));
        assert_eq!(check(&few, "https://x.b:8443/"), Ok(()));
        assert_eq!(check(&few, "https://x.b/").unwrap_err(), "x.b: not among the hosts that may be asked");
        assert_eq!(check(&few, "http://a/").unwrap_err(), "a: only https may be asked");
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_means_one_host(text in "(https?:)?[/\\\\]{0,3}\\PC{0,40}", tail in "[a-z/:@?#%.\\[\\]\\\\ ]{0,12}") {
            let address = format!("{text}{tail}");
            match HttpTarget::parse(&address) {
                Ok(target) => {
                    prop_assert_eq!(target.uri().host().map(bare), Some(target.host()));
                    prop_assert!(!target.uri().authority().unwrap().as_str().contains('@'));
                    prop_assert_eq!(HttpTarget::parse(&target.uri().to_string()), Ok(target));
                }
                Err(error) => prop_assert!(!error.transient && !error.reason.contains(char::is_control)),
            }
        }
    }
}
