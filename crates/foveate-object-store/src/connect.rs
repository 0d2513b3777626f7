//! Connections to stores, with TLS by ring; the library's default needs a C toolchain.

use std::sync::Arc;
use std::time::Duration;

use foveate_source::SourceError;
use object_store::ClientOptions;
use object_store::client::{HttpClient, HttpConnector};
use reqwest::header::HeaderValue;
use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt;

use crate::errors::cause;
use crate::keys::Listed;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest time to find out that a server is not there. One that takes longer to answer may be there.
const LONGEST_CHECK: Duration = Duration::from_secs(1);

/// Shares one client, and so its connections.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    client: reqwest::Client,
    payer: Option<HeaderValue>,
}

impl Connector {
    pub(crate) fn new() -> Result<Self, SourceError> {
        let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(BuilderVerifierExt::with_platform_verifier)
            .map_err(|error| SourceError::Invalid(format!("the system's certificates: {error}")))?
            .with_no_client_auth();
        let client = reqwest::Client::builder()
            .user_agent(concat!("foveate/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            // One HTTP/2 connection for all requests would be slower than many with HTTP/1.
            .http1_only()
            .tls_backend_preconfigured(tls)
            .build()
            .map_err(|error| SourceError::Invalid(format!("HTTP: {error}")))?;
        Ok(Self { client, payer: None })
    }

    /// The same for requests that a Google project pays for.
    pub(crate) fn paid_by(&self, project: &str) -> Option<Self> {
        Some(Self { payer: Some(project.parse().ok()?), ..self.clone() })
    }

    /// Checks that a server is there: a refused connection will not be another one soon.
    ///
    /// # Errors
    /// The reason that it cannot be reached.
    pub(crate) async fn reach(&self, endpoint: &str) -> Result<(), String> {
        match self.client.head(endpoint).timeout(LONGEST_CHECK).send().await {
            Err(error) if error.is_connect() => Err(cause(&error)),
            _ => Ok(()),
        }
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Listed { client: self.client.clone(), payer: self.payer.clone() }))
    }
}
