use std::error::Error;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, fs};

use ureq::http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, LOCATION, RANGE};
use ureq::http::{Method, Request, Response, StatusCode, request};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};
use ureq::unversioned::transport::{ConnectProxyConnector, Connector, RustlsConnector};
use ureq::{Agent, AsSendBody, Body, Proxy};

use crate::answer::{AnswerFacts, MAX_HEADER, failure, header, is_page, refusal, span};
use crate::coding::Codings;
use crate::deadline::{Deadline, TimelyConnector};
use crate::download::{Admit, BodyDownload, Broken, Pace};
use crate::inline::{ImageAddress, decode_data};
use crate::resolve::{AddressGuard, Lookup, system_lookup};
use crate::target::{HttpTarget, Rules};
use crate::turns::{HostTurn, HostTurns};
use crate::{ClientOptions, NetError, OptionsError};

/// Longest time that an idle connection is kept. Common servers close one after 5 s, and a request at that moment
/// fails.
const MAX_IDLE: Duration = Duration::from_secs(4);
const IDLE_CONNECTIONS: usize = 128;
/// Longest time of an option.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Most bytes of an unwanted body that are read in order to reuse its connection.
const MAX_UNWANTED: u64 = 16 << 10;
/// Longest time for that.
const UNWANTED_TIMEOUT: Duration = Duration::from_millis(500);

/// An HTTP client. Threads may share it.
pub struct Client {
    options: ClientOptions,
    rules: Rules,
    turns: HostTurns,
    agent: Agent,
}

/// The answer to a successful post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status, one of 2xx.
    pub status: u16,
}

/// The answer to a download's last request.
struct Arrival<'a> {
    target: HttpTarget,
    response: Response<Body>,
    _turn: HostTurn<'a>,
}

impl Client {
    /// A client with these options.
    ///
    /// # Errors
    /// [`OptionsError`] if a name is not a host, a limit is zero, or the certificates cannot be read.
    pub fn new(options: ClientOptions) -> Result<Self, OptionsError> {
        Self::with_lookup(options, Arc::new(system_lookup))
    }

    /// A client with its own name resolution, for tests.
    pub(crate) fn with_lookup(options: ClientOptions, lookup: Arc<Lookup>) -> Result<Self, OptionsError> {
        check(&options)?;
        let rules = Rules::of(&options)?;
        let guard = AddressGuard::new(rules.clone(), &options, lookup);
        let connector =
            ConnectProxyConnector::default().chain(TimelyConnector::default()).chain(RustlsConnector::default());
        let agent = Agent::with_parts(config(&options)?, connector, guard);
        Ok(Self { rules, turns: HostTurns::new(options.per_host), agent, options })
    }

    /// The client's options.
    pub fn options(&self) -> &ClientOptions {
        &self.options
    }

    /// Checks `url` without a connection. The addresses of names are checked only when a request resolves them.
    ///
    /// # Errors
    /// [`NetError`], always permanent.
    pub fn check(&self, url: &str) -> Result<(), NetError> {
        self.rules.check(&HttpTarget::parse_as(url, self.options.trusted)?)
    }

    /// Downloads `url`, or decodes a `data:` URL, into `out`, replacing its content. `admit` is called with the number
    /// of bytes that `out` is going to hold: before the first byte of the body is read, and again whenever as many have
    /// come. The number grows in steps, so a server gets memory for what it has sent and not for what it declares.
    /// `admit` may block; that time does not count. The download fails if it returns false.
    ///
    /// # Errors
    /// [`NetError`]; `out` is empty then.
    pub fn get(
        &self,
        url: &str,
        admit: &mut dyn FnMut(u64) -> bool,
        out: &mut Vec<u8>,
    ) -> Result<AnswerFacts, NetError> {
        self.download(url, None, admit, out)
    }

    /// Downloads the bytes `part` of `url` into `out`, replacing its content.
    ///
    /// # Errors
    /// [`NetError`]; `out` is empty then. Its status is 200 if the server sends whole files only.
    pub fn get_part(&self, url: &str, part: Range<u64>, out: &mut Vec<u8>) -> Result<AnswerFacts, NetError> {
        self.download(url, Some(part), &mut |_| true, out)
    }

    /// Asks what a server says of the file at `url`, without reading it. A server that refuses such requests is asked
    /// for the file, and the answer's body is left.
    ///
    /// # Errors
    /// [`NetError`]
    pub fn examine(&self, url: &str) -> Result<AnswerFacts, NetError> {
        let deadline = Deadline::within(self.options.timeout);
        for method in [Method::HEAD, Method::GET] {
            let Arrival { target, response, _turn } = self.follow(url, &method, None, &deadline, &mut None)?;
            if response.status().is_success() {
                let facts = AnswerFacts::of(&response);
                if method == Method::HEAD {
                    discard(response);
                }
                return Ok(facts);
            }
            let error = refusal(&target, &method, &response);
            discard(response);
            // A signature in an address is often for GET alone, and some servers know no HEAD.
            let is_final = matches!(error.status, Some(429 | 500 | 502..)) || error.retry_after.is_some();
            if method == Method::GET || is_final {
                return Err(error);
            }
        }
        unreachable!("GET is the last of them")
    }

    fn download(
        &self,
        url: &str,
        part: Option<Range<u64>>,
        admit: &mut Admit<'_>,
        out: &mut Vec<u8>,
    ) -> Result<AnswerFacts, NetError> {
        out.clear();
        if part.is_none() && ImageAddress::parse(url) == Some(ImageAddress::Data) {
            *out = self.inline(url, admit)?;
            return Ok(AnswerFacts { len: Some(out.len() as u64), ..AnswerFacts::default() });
        }
        let deadline = Deadline::within(self.options.timeout);
        let mut answered = None;
        self.follow(url, &Method::GET, part.clone(), &deadline, &mut answered)
            .and_then(|arrival| self.body(arrival, part, &deadline, admit, out))
            .map_err(|error| {
                out.clear();
                NetError { reached: error.reached.or(answered), ..error }
            })
    }

    /// The bytes that a `data:` URL holds.
    fn inline(&self, url: &str, admit: &mut Admit<'_>) -> Result<Vec<u8>, NetError> {
        let limit = self.options.max_bytes;
        let bytes = decode_data(url, |bytes| {
            if admit(bytes) {
                Ok(())
            } else {
                Err(NetError::transient("a data: URL: there is no memory for its bytes now"))
            }
        })?;
        match bytes.len() as u64 {
            0 => Err(NetError::permanent("a data: URL of no bytes")),
            bytes if bytes > limit => {
                Err(NetError::permanent(format!("a data: URL of {bytes} bytes, more than the limit of {limit}")))
            }
            _ => Ok(bytes),
        }
    }

    /// Requests `url`, and follows its redirects. Sets `answered` once a server did.
    fn follow(
        &self,
        url: &str,
        method: &Method,
        part: Option<Range<u64>>,
        deadline: &Deadline,
        answered: &mut Option<bool>,
    ) -> Result<Arrival<'_>, NetError> {
        let first = HttpTarget::parse_as(url, self.options.trusted)?;
        let mut target = first.clone();
        for _ in 0..=self.options.max_redirects {
            let turn = self.turn(&target, deadline)?;
            let is_other_host = target.origin() != first.origin();
            let mut request = Request::builder().method(method).uri(target.uri());
            if let Some(Range { start, end }) = &part {
                request = request.header(RANGE, format!("bytes={start}-{}", end.saturating_sub(1)));
            }
            for (name, value) in self.options.headers.to(is_other_host) {
                request = request.header(name, value);
            }
            if let Some(login) = target.login() {
                request = request.header(AUTHORIZATION, login);
            }
            let response = self.send(&target, request, ())?;
            *answered = Some(true);
            match redirect(&target, &response, self.options.trusted)? {
                None => return Ok(Arrival { target, response, _turn: turn }),
                Some(next) => target = next,
            }
            discard(response);
        }
        Err(NetError::permanent(format!(
            "{target}: more than {} redirects on the way to it",
            self.options.max_redirects
        )))
    }

    /// Posts JSON, without following redirects.
    ///
    /// # Errors
    /// [`NetError`], also for every status but 2xx.
    pub fn post(&self, url: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Reply, NetError> {
        let deadline = Deadline::within(self.options.timeout);
        let target = HttpTarget::parse(url)?;
        let _turn = self.turn(&target, &deadline)?;
        let mut request = Request::post(target.uri()).header(CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.send(&target, request, body)?;
        let status = response.status();
        let mut error = refusal(&target, &Method::POST, &response);
        discard(response);
        if status.is_redirection() {
            error.reason += "; a post follows no redirect, so name the last address";
        }
        if status.is_success() { Ok(Reply { status: status.as_u16() }) } else { Err(error) }
    }

    /// Permission for a request: checks the rules, then waits for a turn at the host.
    fn turn(&self, target: &HttpTarget, deadline: &Deadline) -> Result<HostTurn<'_>, NetError> {
        self.rules.check(target)?;
        let host = target.server();
        deadline.pause(|| self.turns.take(host, self.options.timeout)).ok_or_else(|| {
            let most = self.options.per_host;
            let patience = self.options.timeout;
            NetError::transient(format!(
                "{target}: {most} requests are under way, and no turn came within {patience:?}"
            ))
        })
    }

    fn send(
        &self,
        target: &HttpTarget,
        request: request::Builder,
        body: impl AsSendBody,
    ) -> Result<Response<Body>, NetError> {
        let request = request.body(body).map_err(|e| NetError::permanent(format!("{target}: {e}")))?;
        let patience = self.options.answer_timeout.min(self.options.timeout);
        let _deadline = Deadline::within(patience);
        self.agent.run(request).map_err(|error| failure(target, &self.options, patience, error))
    }

    fn body(
        &self,
        Arrival { target, mut response, _turn }: Arrival<'_>,
        part: Option<Range<u64>>,
        deadline: &Deadline,
        admit: &mut Admit<'_>,
        out: &mut Vec<u8>,
    ) -> Result<AnswerFacts, NetError> {
        let facts = AnswerFacts::of(&response);
        let is_due = match (&part, response.status()) {
            (None, StatusCode::OK | StatusCode::NON_AUTHORITATIVE_INFORMATION) => true,
            (Some(part), StatusCode::PARTIAL_CONTENT) => span(&response).is_some_and(|span| span.start == part.start),
            (Some(part), StatusCode::OK) => part.start == 0 && facts.len == Some(part.end),
            _ => false,
        };
        if !is_due {
            let error = refusal(&target, &Method::GET, &response);
            discard(response);
            return Err(error);
        }
        let content_type = header(&response, CONTENT_TYPE).unwrap_or_default().to_owned();
        let codings = Codings::parse(header(&response, CONTENT_ENCODING).unwrap_or_default()).map_err(|coding| {
            NetError::permanent(format!("{target}: answered in {coding}, which it was not asked for"))
        })?;
        let is_encoded = !codings.is_empty();
        let declared = response.body().content_length().filter(|_| !is_encoded);
        let limit = self.options.max_bytes;
        if let Some(bytes) = declared.filter(|bytes| *bytes > limit) {
            return Err(NetError::permanent(format!("{target}: {bytes} bytes, more than the limit of {limit}")));
        }
        let mut download = BodyDownload { most: declared.unwrap_or(limit), room: 0, pace: Pace::new(&self.options) };
        let mut reader = codings.decode(Box::new(response.body_mut().as_reader())).take(limit.saturating_add(1));
        match download.read(&mut reader, out, &mut |bytes| deadline.pause(|| admit(bytes))) {
            Ok(()) if out.len() as u64 > limit => {
                Err(NetError::permanent(format!("{target}: over that many bytes, more than the limit of {limit}")))
            }
            Ok(()) if out.is_empty() => Err(NetError::permanent(format!("{target}: answered with nothing"))),
            Ok(()) if part.is_none() && is_page(&content_type, out) => Err(NetError::permanent(format!(
                "{target}: answered with a web page ({} bytes of HTML), not with an image",
                out.len()
            ))),
            Ok(()) => Ok(facts),
            Err(Broken::NoRoom) => Err(NetError::transient(format!("{target}: there is no memory for its bytes now"))),
            Err(Broken::Slow) => Err(NetError::transient(format!(
                "{target}: sent less than {} bytes/s for {:?}",
                self.options.min_rate, self.options.window
            ))),
            Err(Broken::Read(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let all = declared.map_or("unknown".to_owned(), |bytes| bytes.to_string());
                Err(NetError::transient(format!("{target}: the connection ended after {} of {all} bytes", out.len())))
            }
            // The library's own errors have its type inside, or are the system's.
            Err(Broken::Read(error))
                if is_encoded && matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) =>
            {
                Err(NetError::permanent(format!("{target}: answered with damaged {codings}")))
            }
            Err(Broken::Read(error)) => Err(failure(&target, &self.options, self.options.timeout, error.into())),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("options", &self.options).finish_non_exhaustive()
    }
}

fn check(options: &ClientOptions) -> Result<(), OptionsError> {
    for (name, value) in [("max_bytes", options.max_bytes), ("per_host", options.per_host as u64)] {
        if value == 0 {
            return Err(OptionsError::Setting(format!("{name} is 0; it must be positive")));
        }
    }
    let times = [
        ("connect_timeout", options.connect_timeout),
        ("answer_timeout", options.answer_timeout),
        ("timeout", options.timeout),
        ("window", options.window),
    ];
    for (name, time) in times {
        if time.is_zero() || time > LONGEST {
            let message = format!("{name} is {time:?}; it must be positive and at most a day");
            return Err(OptionsError::Setting(message));
        }
    }
    if options.dns_ttl > LONGEST {
        let message = format!("dns_ttl is {:?}; it must be at most a day", options.dns_ttl);
        return Err(OptionsError::Setting(message));
    }
    Ok(())
}

fn config(options: &ClientOptions) -> Result<ureq::config::Config, OptionsError> {
    let config = Agent::config_builder()
        // The guard could not check the addresses that a proxy connects to.
        .proxy(options.trusted.then(Proxy::try_from_env).flatten())
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_connect(Some(options.connect_timeout))
        .user_agent(concat!("foveate/", env!("CARGO_PKG_VERSION")))
        .accept_encoding("identity")
        .max_response_header_size(MAX_HEADER)
        .input_buffer_size(2 * MAX_HEADER)
        .output_buffer_size(8 << 10)
        .max_idle_age(MAX_IDLE)
        .max_idle_connections(IDLE_CONNECTIONS)
        .max_idle_connections_per_host(options.per_host)
        .tls_config(TlsConfig::builder().root_certs(root_certificates(options)?).build());
    Ok(config.build())
}

fn root_certificates(options: &ClientOptions) -> Result<RootCerts, OptionsError> {
    let Some(path) = &options.ca_file else {
        return Ok(if options.trusted { RootCerts::PlatformVerifier } else { RootCerts::WebPki });
    };
    let certificates =
        certificates(path).map_err(|source| OptionsError::Certificates { path: path.clone(), source })?;
    Ok(RootCerts::Specific(Arc::new(certificates)))
}

/// Reads the certificates of a file, at least one.
fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, Box<dyn Error + Send + Sync>> {
    let mut certificates = Vec::new();
    for item in ureq::tls::parse_pem(&fs::read(path)?) {
        if let PemItem::Certificate(certificate) = item? {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        return Err("there is none".into());
    }
    Ok(certificates)
}

/// The target of a redirect.
fn redirect(target: &HttpTarget, response: &Response<Body>, is_trusted: bool) -> Result<Option<HttpTarget>, NetError> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    // Servers write letters outside of ASCII as they are: as UTF-8, or as Latin-1.
    let location = response.headers().get(LOCATION).map(|value| match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => text.to_owned(),
        Err(_) => value.as_bytes().iter().copied().map(char::from).collect(),
    });
    match location.filter(|location| !location.trim().is_empty()) {
        Some(location) => target.join(location.trim(), is_trusted).map(Some),
        None => Err(NetError {
            status: Some(response.status().as_u16()),
            ..NetError::permanent(format!("{target}: answered {} without saying where", response.status()))
        }),
    }
}

/// Reads a short rest of a body, so that its connection can be reused; a new connection costs less than a long rest.
fn discard(mut response: Response<Body>) {
    if response.body().content_length().is_none_or(|bytes| bytes <= MAX_UNWANTED) {
        let _deadline = Deadline::within(UNWANTED_TIMEOUT);
        // A failure only costs the connection.
        let _ = io::copy(&mut response.body_mut().as_reader().take(MAX_UNWANTED), &mut io::sink());
    }
}
