//! Connections: to addresses that were checked, or through a trusted user's proxy.

use std::error::Error;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, io};

use futures_util::future::BoxFuture;
use http_body_util::Full;
use hyper::Uri;
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service;

use crate::resolve::AddressGuard;
use crate::target::bare;
use crate::{ClientOptions, OptionsError};

/// Longest time that an idle connection is kept. Common servers close one after 5 s, and a request at that moment
/// fails.
const MAX_IDLE: Duration = Duration::from_secs(4);

/// The HTTP library's client.
pub(crate) type HttpClient = hyper_util::client::legacy::Client<TimedConnector, Full<Bytes>>;

/// Most bytes of an answer's headers.
const MAX_HEADER: usize = 16 << 10;
/// Most addresses of one host that are tried.
const MAX_ADDRESSES: usize = 8;

type HttpConnection = MaybeHttpsStream<TokioIo<TcpStream>>;
type ConnectFault = Box<dyn Error + Send + Sync>;

/// A client whose connections `guard` checks.
pub(crate) fn http_client(options: &ClientOptions, guard: AddressGuard) -> Result<HttpClient, OptionsError> {
    // The guard could not check the addresses that a proxy connects to.
    let proxies = options.trusted.then(|| Arc::new(Matcher::from_env()));
    let tcp = GuardedTcp { guard: Arc::new(guard), proxies };
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(tls(options)?).https_or_http().enable_http1().wrap_connector(tcp);
    let connector = TimedConnector { connector, patience: options.connect_timeout };
    let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(MAX_IDLE)
        .pool_max_idle_per_host(options.per_host)
        .http1_max_buf_size(MAX_HEADER)
        .build(connector);
    Ok(client)
}

fn tls(options: &ClientOptions) -> Result<ClientConfig, OptionsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.unwrap_or_else(|error| unreachable!("ring has them: {error}"));
    let builder = match &options.ca_file {
        Some(path) => builder.with_root_certificates(
            authorities(path).map_err(|source| OptionsError::Certificates { path: path.clone(), source })?,
        ),
        None if options.trusted => builder
            .with_platform_verifier()
            .map_err(|error| OptionsError::Setting(format!("the system's certificates cannot be used ({error})")))?,
        None => builder.with_root_certificates(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }),
    };
    Ok(builder.with_no_client_auth())
}

/// Reads the certificates of a file, at least one.
fn authorities(path: &Path) -> Result<RootCertStore, ConnectFault> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&fs::read(path)?) {
        roots.add(certificate?)?;
    }
    if roots.is_empty() { Err("there is none".into()) } else { Ok(roots) }
}

/// No connection within the time for it.
#[derive(Debug)]
pub(crate) struct NoConnection;

impl fmt::Display for NoConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no connection in time")
    }
}

impl Error for NoConnection {}

/// Opens connections, TLS handshake included, in a limited time.
#[derive(Clone)]
pub(crate) struct TimedConnector {
    connector: HttpsConnector<GuardedTcp>,
    patience: Duration,
}

impl Service<Uri> for TimedConnector {
    type Response = HttpConnection;
    type Error = ConnectFault;
    type Future = BoxFuture<'static, Result<HttpConnection, ConnectFault>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectFault>> {
        self.connector.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = timeout(self.patience, self.connector.call(uri));
        Box::pin(async { connecting.await.map_err(|_| NoConnection)? })
    }
}

/// Opens TCP connections.
#[derive(Clone)]
struct GuardedTcp {
    guard: Arc<AddressGuard>,
    proxies: Option<Arc<Matcher>>,
}

impl Service<Uri> for GuardedTcp {
    type Response = TokioIo<TcpStream>;
    type Error = ConnectFault;
    type Future = BoxFuture<'static, Result<TokioIo<TcpStream>, ConnectFault>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectFault>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let proxy = self.proxies.as_ref().and_then(|proxies| proxies.intercept(&uri));
        let guard = Arc::clone(&self.guard);
        Box::pin(async move {
            let host = bare(uri.host().unwrap_or_default());
            let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
            match proxy {
                Some(proxy) => tunnel(&proxy, uri.host().unwrap_or_default(), port).await,
                None => Ok(connect(&guard.addresses(host, port).await?, port).await?),
            }
        })
    }
}

/// Connects through a proxy.
async fn tunnel(proxy: &Intercept, host: &str, port: u16) -> Result<TokioIo<TcpStream>, ConnectFault> {
    let mut tunnel = Tunnel::new(proxy.uri().clone(), HttpConnector::new());
    if let Some(login) = proxy.basic_auth() {
        tunnel = tunnel.with_auth(login.clone());
    }
    let end = Uri::builder().scheme("http").authority(format!("{host}:{port}")).path_and_query("/").build()?;
    Ok(tunnel.call(end).await?)
}

/// Connects to the first of these addresses that answers.
async fn connect(addresses: &[IpAddr], port: u16) -> io::Result<TokioIo<TcpStream>> {
    let addresses = addresses.iter().take(MAX_ADDRESSES).map(|address| SocketAddr::new(*address, port));
    let addresses: Vec<SocketAddr> = addresses.collect();
    let stream = TcpStream::connect(&*addresses).await?;
    stream.set_nodelay(true)?;
    Ok(TokioIo::new(stream))
}
