use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{ServerConfig, ServerConnection};

use super::server::{Server, answer, redirect};
use super::{client, get, gives_up, hasty, local};
use crate::{Client, ClientOptions, NetError};

/// A TLS server, and the file of the certificate authority that signed its certificate.
struct Safe {
    address: SocketAddr,
    authority: tempfile::NamedTempFile,
}

impl Safe {
    /// Sends `reply` to each client, encrypted, in pieces of `step` bytes with a pause after each.
    fn start(reply: Vec<u8>, step: usize, pause: Duration) -> Self {
        let (config, authority) = certified("127.0.0.1");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let config = config.clone();
                let reply = reply.clone();
                thread::spawn(move || converse(stream.unwrap(), config, &reply, step, pause));
            }
        });
        Self { address, authority }
    }

    fn options(&self) -> ClientOptions {
        ClientOptions { ca_file: Some(self.authority.path().to_owned()), ..local() }
    }

    fn get(&self, options: ClientOptions) -> Result<Vec<u8>, NetError> {
        get(&Client::new(options).unwrap(), &format!("https://{}/", self.address))
    }
}

fn certified(name: &str) -> (Arc<ServerConfig>, tempfile::NamedTempFile) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let mut authority = tempfile::NamedTempFile::new().unwrap();
    authority.write_all(issuer.pem().as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .unwrap();
    (Arc::new(config), authority)
}

fn converse(mut stream: TcpStream, config: Arc<ServerConfig>, reply: &[u8], step: usize, pause: Duration) {
    let mut connection = ServerConnection::new(config).unwrap();
    let mut request = [0; 4096];
    if rustls::Stream::new(&mut connection, &mut stream).read(&mut request).is_err() {
        return;
    }
    connection.writer().write_all(reply).unwrap();
    let mut encrypted = Vec::new();
    while connection.wants_write() {
        connection.write_tls(&mut encrypted).unwrap();
    }
    for part in encrypted.chunks(step) {
        if stream.write_all(part).is_err() {
            return;
        }
        thread::sleep(pause);
    }
    let _ = stream.read(&mut request);
}

#[test]
fn a_certificate_of_a_known_authority_is_trusted() {
    let server = Safe::start(answer("200 OK", "", b"picture"), 4096, Duration::ZERO);
    assert_eq!(server.get(server.options()).unwrap(), b"picture");
    assert_eq!(server.get(ClientOptions { https_only: true, ..server.options() }).unwrap(), b"picture");
}

#[test]
fn a_certificate_of_somebody_is_not() {
    let server = Safe::start(answer("200 OK", "", b"picture"), 4096, Duration::ZERO);
    let other = certified("127.0.0.1").1;
    for ca_file in [None, Some(other.path().to_owned())] {
        let error = server.get(ClientOptions { ca_file, ..local() }).unwrap_err();
        assert!(error.transient && error.reason.contains("no safe connection (invalid peer certificate"), "{error}");
        assert_eq!(error.reached, Some(true));
    }
}

#[test]
fn what_is_not_encrypted_is_no_https() {
    let server = Server::fixed(answer("200 OK", "", b"picture"));
    let error = get(&client(local()), &format!("https://{}/", server.address)).unwrap_err();
    assert!(error.reason.starts_with(&format!("{}: ", server.address)), "{error}");
    assert_eq!(error.reached, Some(true));
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = gives_up(&format!("https://{}/", silent.local_addr().unwrap()));
    assert!(error.transient && error.reason.ends_with("not done within 400ms"), "{error}");
    assert_eq!(error.reached, Some(false));
}

#[test]
fn drips_within_one_encrypted_record_do_not_outlast_the_deadline() {
    let server = Safe::start(answer("200 OK", "", &[b'x'; 10_000]), 1, Duration::from_millis(20));
    let begin = std::time::Instant::now();
    let error = server.get(ClientOptions { timeout: hasty().timeout, ..server.options() }).unwrap_err();
    assert!(error.transient && error.reason.ends_with("not done within 400ms"), "{error}");
    assert!(begin.elapsed() < super::SOON, "{:?}", begin.elapsed());
}

#[test]
fn a_redirect_from_https_to_http_is_refused() {
    let plain = Server::fixed(answer("200 OK", "", b"picture"));
    let server = Safe::start(redirect(&plain.url("/")), 4096, Duration::ZERO);
    let error = server.get(server.options()).unwrap_err();
    assert_eq!(error.reason, format!("{} redirects from https to http, to {}", server.address, plain.address));
    assert_eq!(plain.connections(), 0);
}
