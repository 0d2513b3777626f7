use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, LOCATION, RANGE, USER_AGENT,
};
use hyper::http::request;
use hyper::{Method, Request, Response, StatusCode};
use tokio::time::timeout;

use crate::answer::{AnswerFacts, failure, header, is_early_end, late, refusal, span};
use crate::coded_file::CodedFile;
use crate::coding::Codings;
use crate::connect::{HttpClient, http_client};
use crate::download::{BodyDownload, Broken, DownloadRoom, discard};
use crate::inline::{ImageAddress, decode_data};
use crate::resolve::{AddressGuard, Lookup, system_lookup};
use crate::target::{HttpTarget, Rules};
use crate::time_left::TimeLeft;
use crate::turns::{KeyTurn, Turns};
use crate::{ClientOptions, NetError, OptionsError};

/// Longest time of an option.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

const USER: &str = concat!("foveate/", env!("CARGO_PKG_VERSION"));

/// An HTTP client. Tasks may share it; they need a Tokio runtime.
pub struct Client {
    options: ClientOptions,
    rules: Rules,
    turns: Arc<Turns>,
    http: HttpClient,
}

/// The answer to a successful post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status, one of 2xx.
    pub status: u16,
}

/// The answer to a download's last request.
struct Arrival {
    target: HttpTarget,
    response: Response<Incoming>,
    _turn: KeyTurn,
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
        let http = http_client(&options, AddressGuard::new(rules.clone(), &options, lookup))?;
        Ok(Self { rules, turns: Turns::new(options.per_host), http, options })
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

    /// Downloads `url`, or decodes a `data:` URL, into `out`, replacing its content. `room` is asked for memory before
    /// the first byte of the body is read, and again whenever as many have come. It is asked in steps, so a server gets
    /// memory for what it has sent and not for what it declares.
    ///
    /// # Errors
    /// [`NetError`]; `out` is empty then.
    pub async fn get(
        &self,
        url: &str,
        room: &mut impl DownloadRoom,
        out: &mut Vec<u8>,
    ) -> Result<AnswerFacts, NetError> {
        self.decoded(url, None, room, out).await
    }

    /// As [`Self::get`], but returns a body that is encoded as it was sent, with what undoes the codings. That takes a
    /// thread a while: most for a body made for it.
    ///
    /// # Errors
    /// [`NetError`]; `out` is empty then.
    pub async fn get_coded(
        &self,
        url: &str,
        room: &mut impl DownloadRoom,
        out: &mut Vec<u8>,
    ) -> Result<Option<CodedFile>, NetError> {
        self.download(url, None, room, out).await.map(|(_, coded)| coded)
    }

    /// Downloads the bytes `part` of `url` into `out`, replacing its content.
    ///
    /// # Errors
    /// [`NetError`]; `out` is empty then. Its status is 200 if the server sends whole files only.
    pub async fn get_part(&self, url: &str, part: Range<u64>, out: &mut Vec<u8>) -> Result<AnswerFacts, NetError> {
        self.decoded(url, Some(part), &mut |_| true, out).await
    }

    /// Asks what a server says of the file at `url`, without reading it. A server that refuses such requests is asked
    /// for the file, and the answer's body is left.
    ///
    /// # Errors
    /// [`NetError`]
    pub async fn examine(&self, url: &str) -> Result<AnswerFacts, NetError> {
        let mut time = TimeLeft::new(self.options.timeout);
        for method in [Method::HEAD, Method::GET] {
            let Arrival { target, response, _turn } = self.follow(url, &method, None, &mut time, &mut None).await?;
            if response.status().is_success() {
                let facts = AnswerFacts::of(&response);
                if method == Method::HEAD {
                    discard(response.into_body()).await;
                }
                return Ok(facts);
            }
            let error = refusal(&target, &method, &response);
            discard(response.into_body()).await;
            // A signature in an address is often for GET alone, and some servers know no HEAD.
            let is_final = matches!(error.status, Some(429 | 500 | 502..)) || error.retry_after.is_some();
            if method == Method::GET || is_final {
                return Err(error);
            }
        }
        unreachable!("GET is the last of them")
    }

    async fn decoded(
        &self,
        url: &str,
        part: Option<Range<u64>>,
        room: &mut impl DownloadRoom,
        out: &mut Vec<u8>,
    ) -> Result<AnswerFacts, NetError> {
        let (facts, coded) = self.download(url, part, room, out).await?;
        if let Some(file) = coded {
            file.decode_in(room, out).await.inspect_err(|_| out.clear())?;
        }
        Ok(facts)
    }

    async fn download(
        &self,
        url: &str,
        part: Option<Range<u64>>,
        room: &mut impl DownloadRoom,
        out: &mut Vec<u8>,
    ) -> Result<(AnswerFacts, Option<CodedFile>), NetError> {
        out.clear();
        if part.is_none() && ImageAddress::parse(url) == Some(ImageAddress::Data) {
            *out = self.inline(url, room).await?;
            return Ok((AnswerFacts { len: Some(out.len() as u64), ..AnswerFacts::default() }, None));
        }
        let mut time = TimeLeft::new(self.options.timeout);
        let mut answered = None;
        let arrived = self.follow(url, &Method::GET, part.clone(), &mut time, &mut answered).await;
        let read = match arrived {
            Ok(arrival) => self.body(arrival, part, &mut time, room, out).await,
            Err(error) => Err(error),
        };
        read.map_err(|error| {
            out.clear();
            NetError { reached: error.reached.or(answered), ..error }
        })
    }

    /// The bytes that a `data:` URL holds.
    async fn inline(&self, url: &str, room: &mut impl DownloadRoom) -> Result<Vec<u8>, NetError> {
        let limit = self.options.max_bytes;
        if !room.grow(url.len() as u64).await {
            return Err(NetError::transient("a data: URL: there is no memory for its bytes now"));
        }
        let bytes = decode_data(url, |_| Ok::<(), NetError>(()))?;
        match bytes.len() as u64 {
            0 => Err(NetError::permanent("a data: URL of no bytes")),
            bytes if bytes > limit => {
                Err(NetError::permanent(format!("a data: URL of {bytes} bytes, more than the limit of {limit}")))
            }
            _ => Ok(bytes),
        }
    }

    /// Requests `url`, and follows its redirects. Sets `answered` once a server did.
    async fn follow(
        &self,
        url: &str,
        method: &Method,
        part: Option<Range<u64>>,
        time: &mut TimeLeft,
        answered: &mut Option<bool>,
    ) -> Result<Arrival, NetError> {
        let first = HttpTarget::parse_as(url, self.options.trusted)?;
        let mut target = first.clone();
        for _ in 0..=self.options.max_redirects {
            let turn = self.turn(&target).await?;
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
            let response = self.send(&target, request, Bytes::new(), time).await?;
            *answered = Some(true);
            match redirect(&target, &response, self.options.trusted)? {
                None => return Ok(Arrival { target, response, _turn: turn }),
                Some(next) => target = next,
            }
            discard(response.into_body()).await;
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
    pub async fn post(&self, url: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Reply, NetError> {
        let target = HttpTarget::parse(url)?;
        let _turn = self.turn(&target).await?;
        let mut request = Request::post(target.uri()).header(CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut time = TimeLeft::new(self.options.timeout);
        let response = self.send(&target, request, Bytes::copy_from_slice(body), &mut time).await?;
        let status = response.status();
        let mut error = refusal(&target, &Method::POST, &response);
        discard(response.into_body()).await;
        if status.is_redirection() {
            error.reason += "; a post follows no redirect, so name the last address";
        }
        if status.is_success() { Ok(Reply { status: status.as_u16() }) } else { Err(error) }
    }

    /// Permission for a request: checks the rules, then waits for a turn at the host.
    async fn turn(&self, target: &HttpTarget) -> Result<KeyTurn, NetError> {
        self.rules.check(target)?;
        let patience = self.options.timeout;
        let turn = timeout(patience, self.turns.take(target.server())).await;
        turn.map_err(|_| {
            let most = self.options.per_host;
            NetError::transient(format!(
                "{target}: {most} requests are under way, and no turn came within {patience:?}"
            ))
        })
    }

    async fn send(
        &self,
        target: &HttpTarget,
        request: request::Builder,
        body: Bytes,
        time: &mut TimeLeft,
    ) -> Result<Response<Incoming>, NetError> {
        let request = request.header(ACCEPT_ENCODING, "identity").body(Full::new(body));
        let mut request = request.map_err(|error| NetError::permanent(format!("{target}: {error}")))?;
        request.headers_mut().entry(USER_AGENT).or_insert(HeaderValue::from_static(USER));
        let patience = self.options.answer_timeout;
        let answer = time.spend(patience, self.http.request(request)).await;
        let answer = answer.map_err(|_| late(target, patience.min(self.options.timeout)))?;
        answer.map_err(|error| failure(target, self.options.connect_timeout, &error))
    }

    async fn body(
        &self,
        Arrival { target, response, _turn }: Arrival,
        part: Option<Range<u64>>,
        time: &mut TimeLeft,
        room: &mut impl DownloadRoom,
        out: &mut Vec<u8>,
    ) -> Result<(AnswerFacts, Option<CodedFile>), NetError> {
        let facts = AnswerFacts::of(&response);
        let is_due = match (&part, response.status()) {
            (None, StatusCode::OK | StatusCode::NON_AUTHORITATIVE_INFORMATION) => true,
            (Some(part), StatusCode::PARTIAL_CONTENT) => span(&response).is_some_and(|span| span.start == part.start),
            (Some(part), StatusCode::OK) => part.start == 0 && facts.len == Some(part.end),
            _ => false,
        };
        if !is_due {
            let error = refusal(&target, &Method::GET, &response);
            discard(response.into_body()).await;
            return Err(error);
        }
        let codings = Codings::parse(header(&response, CONTENT_ENCODING).unwrap_or_default()).map_err(|coding| {
            NetError::permanent(format!("{target}: answered in {coding}, which it was not asked for"))
        })?;
        let limit = self.options.max_bytes;
        let content_type = header(&response, CONTENT_TYPE).unwrap_or_default().to_owned();
        let file = CodedFile { target, codings, content_type, is_part: part.is_some(), limit };
        let target = &file.target;
        let declared = response.body().size_hint().exact();
        if let Some(bytes) = declared.filter(|bytes| *bytes > limit) {
            return Err(NetError::permanent(format!("{target}: {bytes} bytes, more than the limit of {limit}")));
        }
        let most = declared.unwrap_or(limit);
        let mut download = BodyDownload { options: &self.options, time, room, most, admitted: 0 };
        match download.read(response.into_body(), out).await {
            Ok(()) if file.codings.is_empty() => file.check(out).map(|()| (facts, None)),
            Ok(()) => Ok((facts, Some(file))),
            Err(Broken::TooLarge) => Err(file.too_large()),
            Err(Broken::NoRoom) => Err(file.no_room()),
            Err(Broken::Slow) => Err(NetError::transient(format!(
                "{target}: sent less than {} bytes/s for {:?}",
                self.options.min_rate, self.options.window
            ))),
            Err(Broken::Late) => Err(late(target, self.options.timeout)),
            Err(Broken::Read(error)) if is_early_end(&error) => {
                let all = declared.map_or("unknown".to_owned(), |bytes| bytes.to_string());
                let received = out.len();
                Err(NetError::transient(format!("{target}: the connection ended after {received} of {all} bytes")))
            }
            Err(Broken::Read(error)) => Err(failure(target, self.options.connect_timeout, &error)),
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

/// The target of a redirect.
fn redirect(
    target: &HttpTarget,
    response: &Response<Incoming>,
    is_trusted: bool,
) -> Result<Option<HttpTarget>, NetError> {
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
