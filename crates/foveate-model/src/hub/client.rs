use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use foveate_core::BoxError;
use ureq::http::{HeaderMap, Request, Response, Uri};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};
use ureq::{Agent, Body, Proxy};

use super::cache::is_commit;
use super::checksum::Checksum;
use super::{HubError, HubOptions, Repository, Token};

/// The most redirects followed for one request.
const MAX_HOPS: usize = 10;

/// The hub's protocol for reading a repository: metadata in the headers of a HEAD request, content by GET with ranges.
pub(crate) struct HubClient {
    agent: Agent,
    endpoint: String,
    token: Option<Token>,
}

/// The hub's metadata of a file.
pub(crate) struct Metadata {
    /// The revision's current commit.
    pub(crate) commit: String,
    pub(crate) checksum: Checksum,
    pub(crate) size: Option<u64>,
}

/// A file's content from some offset on.
pub(crate) struct HubContent {
    /// The offset in the file: the requested one, or 0 if the server cannot resume.
    pub(crate) start: u64,
    pub(crate) body: Box<dyn Read>,
}

/// Reason that content is not available.
pub(crate) enum Refusal {
    /// A retry may succeed.
    Transient(BoxError),
    Final(HubError),
}

/// The final response of a request, after redirects.
struct HubAnswer {
    url: String,
    response: Response<Body>,
}

impl HubAnswer {
    fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    fn status(&self) -> u16 {
        self.response.status().as_u16()
    }
}

impl HubClient {
    pub(crate) fn new(options: &HubOptions) -> Result<Self, HubError> {
        let tls = TlsConfig::builder().root_certs(root_certificates(options)?).build();
        let agent = Agent::config_builder()
            .tls_config(tls)
            .proxy(options.proxy_from_env.then(Proxy::try_from_env).flatten())
            .http_status_as_error(false)
            .max_redirects(0) // followed here, so that the token stays away from other hosts
            .timeout_connect(Some(options.connect_timeout))
            .timeout_recv_response(Some(options.read_timeout))
            .timeout_per_read(Some(options.read_timeout))
            .user_agent(concat!("foveate/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        Ok(Self { agent, endpoint: options.endpoint.clone(), token: options.token.clone() })
    }

    pub(crate) fn url(&self, repository: &Repository, revision: &str, file: &str) -> String {
        format!("{}/{}/resolve/{}/{}", self.endpoint, repository.id, escape(revision), escape(file))
    }

    /// Requests the metadata of `file` at `revision`.
    pub(crate) fn metadata(&self, repository: &Repository, revision: &str, file: &str) -> Result<Metadata, HubError> {
        let url = self.url(repository, revision, file);
        // The hub describes a large file in its redirect to the storage host, which knows no commits.
        let mut described = HeaderMap::new();
        let sent = self.send("HEAD", &url, None, |headers| {
            for name in ["x-repo-commit", "x-linked-etag", "x-linked-size"] {
                if let Some(value) = headers.get(name) {
                    described.entry(name).or_insert_with(|| value.clone());
                }
            }
            described.contains_key("x-linked-etag")
        });
        let answer = match sent {
            Ok(answer) if is_overload(answer.status()) => Err(format!("HTTP {}", answer.status()).into()),
            sent => sent,
        };
        let id = repository.id.clone();
        let answer = answer.map_err(|reason| HubError::Unreachable { repository: id, url: public(&url), reason })?;
        let is_described = described.contains_key("x-linked-etag");
        if !answer.response.status().is_success() && !is_described {
            return Err(self.refusal(repository, revision, file, &answer));
        }
        let [commit, etag, size] = ["x-repo-commit", "x-linked-etag", "x-linked-size"]
            .map(|name| described.get(name).and_then(|value| value.to_str().ok()));
        let commit = commit.filter(|commit| is_commit(commit));
        let checksum = etag.or_else(|| answer.header("etag")).and_then(Checksum::from_etag);
        let size = size.or_else(|| answer.header("content-length").filter(|_| !is_described));
        let problem = match (commit, checksum) {
            (Some(commit), Some(checksum)) => {
                let size = size.and_then(|size| size.parse().ok());
                return Ok(Metadata { commit: commit.to_owned(), checksum, size });
            }
            (None, _) => "it names no commit (X-Repo-Commit)",
            (_, None) => "it reports no checksum (X-Linked-Etag or ETag) to verify the file against",
        };
        Err(HubError::Protocol {
            repository: repository.id.clone(),
            url: public(&answer.url),
            problem: problem.to_owned(),
        })
    }

    /// Opens `file` from `start` on.
    pub(crate) fn content(
        &self,
        repository: &Repository,
        revision: &str,
        file: &str,
        start: u64,
    ) -> Result<HubContent, Refusal> {
        let url = self.url(repository, revision, file);
        let range = (start > 0).then_some(start);
        let answer = self.send("GET", &url, range, |_| false).map_err(Refusal::Transient)?;
        let start = match answer.status() {
            200 => 0,
            206 if range.is_some() && range_start(&answer) == range => start,
            206 => return Err(Refusal::Transient("the answer is of another range than the one asked for".into())),
            status if is_overload(status) || status == 416 => {
                return Err(Refusal::Transient(format!("HTTP {status}").into()));
            }
            _ => return Err(Refusal::Final(self.refusal(repository, revision, file, &answer))),
        };
        Ok(HubContent { start, body: Box::new(answer.response.into_body().into_reader()) })
    }

    /// Sends a request and follows redirects until a response is not one or `enough` accepts its headers.
    fn send(
        &self,
        method: &str,
        url: &str,
        range_start: Option<u64>,
        mut enough: impl FnMut(&HeaderMap) -> bool,
    ) -> Result<HubAnswer, BoxError> {
        let mut url = url.to_owned();
        for _ in 0..MAX_HOPS {
            let response = self.send_once(method, &url, range_start)?;
            let location = response.headers().get("location").filter(|_| response.status().is_redirection());
            let next = location.map(|to| to.to_str().map(|to| resolve(&url, to)));
            if enough(response.headers()) || next.is_none() {
                return Ok(HubAnswer { url, response });
            }
            url = next.and_then(Result::ok).flatten().ok_or("a redirect leads nowhere")?;
        }
        Err(format!("more than {MAX_HOPS} redirects").into())
    }

    fn send_once(&self, method: &str, url: &str, range_start: Option<u64>) -> Result<Response<Body>, BoxError> {
        // Byte counts and checksums are those of the file itself, so the transfer must not be compressed.
        let mut request = Request::builder().method(method).uri(url).header("accept-encoding", "identity");
        if let Some(start) = range_start {
            request = request.header("range", format!("bytes={start}-"));
        }
        if let Some(token) = self.token.as_ref().filter(|_| same_origin(url, &self.endpoint)) {
            request = request.header("authorization", format!("Bearer {}", token.secret()));
        }
        Ok(self.agent.run(request.body(())?)?)
    }

    /// Converts an unsuccessful response.
    fn refusal(&self, repository: &Repository, revision: &str, file: &str, answer: &HubAnswer) -> HubError {
        let repository = repository.id.clone();
        let url = public(&answer.url);
        match answer.status() {
            status @ (401 | 403) => HubError::Denied { repository, url, status, token_sent: self.token.is_some() },
            404 => {
                let what = match answer.header("x-error-code") {
                    Some("RepoNotFound") => "there is no such repository, nor a folder of that name".to_owned(),
                    Some("RevisionNotFound") => "there is no such revision".to_owned(),
                    _ => format!("it has no {file}"),
                };
                HubError::NotFound { repository, revision: revision.to_owned(), what, url }
            }
            status => HubError::Protocol { repository, url, problem: format!("HTTP {status}") },
        }
    }
}

fn root_certificates(options: &HubOptions) -> Result<RootCerts, HubError> {
    let Some(path) = &options.ca_bundle else { return Ok(RootCerts::WebPki) };
    let certificates = certificates(path).map_err(|problem| HubError::Certificates { path: path.clone(), problem })?;
    Ok(RootCerts::Specific(Arc::new(certificates)))
}

/// Reads the certificates of a file, at least one.
fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, BoxError> {
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

/// Returns true if a reachable server reports that it cannot serve now.
fn is_overload(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
}

/// The offset of the first byte in a partial response.
fn range_start(answer: &HubAnswer) -> Option<u64> {
    answer.header("content-range")?.strip_prefix("bytes ")?.split('-').next()?.parse().ok()
}

/// Resolves a redirect from `base`: an absolute address, or a path on the same host.
fn resolve(base: &str, location: &str) -> Option<String> {
    if location.starts_with("http://") || location.starts_with("https://") {
        return Some(location.to_owned());
    }
    let base: Uri = base.parse().ok()?;
    let scheme = base.scheme_str()?;
    let authority = base.authority()?;
    match location {
        _ if location.starts_with("//") => Some(format!("{scheme}:{location}")),
        _ if location.starts_with('/') => Some(format!("{scheme}://{authority}{location}")),
        _ => {
            let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            Some(format!("{scheme}://{authority}{folder}/{location}"))
        }
    }
}

/// Returns the scheme, host and path of an address, for messages: a query may be a signature, and user info a password.
pub(crate) fn public(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    if scheme.is_empty() { format!("{host}{path}") } else { format!("{scheme}://{host}{path}") }
}

fn same_origin(a: &str, b: &str) -> bool {
    let [a, b] = [a, b].map(|url| {
        let url: Uri = url.parse().ok()?;
        Some((url.scheme_str()?.to_owned(), url.authority()?.as_str().to_lowercase()))
    });
    a.is_some() && a == b
}

/// Escapes everything but unreserved characters. Slashes are escaped too, because a revision is one path segment.
fn escape(segment: &str) -> String {
    let mut escaped = String::new();
    for byte in segment.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => escaped.push(char::from(byte)),
            _ => escaped += &format!("%{byte:02X}"),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_resolve_against_where_they_came_from() {
        let base = "https://hub.example/a/b/resolve/main/f?x=1";
        for (location, expected) in [
            ("https://cdn.example/f?sig=1", "https://cdn.example/f?sig=1"),
            ("//cdn.example/f", "https://cdn.example/f"),
            ("/c/d/f", "https://hub.example/c/d/f"),
            ("g", "https://hub.example/a/b/resolve/main/g"),
        ] {
            assert_eq!(resolve(base, location).as_deref(), Some(expected));
        }
        assert_eq!(resolve("no address", "/x"), None);
    }

    #[test]
    fn messages_have_no_secrets() {
        assert_eq!(public("https://user:p@ss@cdn.example:1/a@b?X-Amz-Signature=s#f"), "https://cdn.example:1/a@b");
        assert_eq!(public("http://hub.example"), "http://hub.example");
    }

    #[test]
    fn only_the_same_scheme_host_and_port_are_the_same_origin() {
        let hub = "https://hub.example/mirror";
        assert!(same_origin("https://HUB.example/x", hub));
        for other in ["http://hub.example/x", "https://hub.example:444/x", "https://hub.example.evil/x", "x"] {
            assert!(!same_origin(other, hub), "{other}");
        }
    }

    #[test]
    fn a_revision_is_one_segment_of_the_path() {
        assert_eq!(escape("refs/pr/1"), "refs%2Fpr%2F1");
        assert_eq!(escape("model-00001-of-00002.safetensors"), "model-00001-of-00002.safetensors");
        assert_eq!(escape("a b?#é"), "a%20b%3F%23%C3%A9");
    }
}
