//! Brokers and stores for tests: real servers on a free loopback port with their own store. Dropping one stops it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::{Resource, program, python};

/// A server that has not answered within this time has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A loopback port that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// A running program.
struct BrokerServer {
    child: Child,
    address: SocketAddr,
}

impl BrokerServer {
    /// Starts `command`, which listens on `port`, and waits until it answers `hello` with `greeting`.
    fn start(command: &mut Command, port: u16, hello: &str, greeting: &str) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut server = Self { child, address: (Ipv4Addr::LOCALHOST, port).into() };
        let give_up = Instant::now() + PATIENCE;
        while !greets(server.address, hello, greeting) {
            let ended = server.child.try_wait().unwrap();
            assert!(ended.is_none(), "the server on port {port} ended ({ended:?})");
            assert!(Instant::now() < give_up, "the server on port {port} does not answer");
            thread::sleep(Duration::from_millis(50));
        }
        server
    }

    /// Ends it like a power failure.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for BrokerServer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn greets(address: SocketAddr, hello: &str, greeting: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut answer = vec![0; greeting.len()];
    stream.write_all(hello.as_bytes()).is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && answer == greeting.as_bytes()
}

/// `nats-server` with JetStream. Without it, starting one ends the trial.
pub struct NatsServer {
    server: BrokerServer,
    store: TempDir,
    arguments: Vec<String>,
}

impl NatsServer {
    /// Starts a server.
    pub fn start() -> Self {
        Self::start_with(&["--jetstream"])
    }

    /// Starts with these arguments, in addition to those for its address and store.
    pub fn start_with(arguments: &[&str]) -> Self {
        let store = tempfile::tempdir().unwrap();
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let server = Self::run(store.path(), free_port(), &arguments);
        Self { server, store, arguments }
    }

    fn run(store: &Path, port: u16, arguments: &[String]) -> BrokerServer {
        let mut command = program(Resource::Nats, "nats-server");
        command.args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--store_dir"]).arg(store).args(arguments);
        BrokerServer::start(&mut command, port, "", "INFO {")
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        self.server.address.to_string()
    }

    /// Ends it at once (SIGKILL). Its store remains.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Starts it again on the same port and store, after [`Self::kill`].
    pub fn restart(&mut self) {
        let port = self.server.address.port();
        self.server = Self::run(self.store.path(), port, &self.arguments);
    }
}

/// Python's moto, which imitates SQS and S3. Its data is lost when it ends. Without it, starting one ends the trial.
pub struct AwsServer {
    server: BrokerServer,
    home: TempDir,
}

impl AwsServer {
    /// Starts a server.
    pub fn start() -> Self {
        // moto's server runs on flask.
        let mut command = python(&["moto", "flask"]);
        let home = tempfile::tempdir().unwrap();
        let credentials = "[default]\naws_access_key_id = testing\naws_secret_access_key = testing-secret\n";
        std::fs::write(home.path().join("credentials"), credentials).unwrap();
        let port = free_port();
        command.args(["-c", include_str!("aws_server.py"), "--host", "127.0.0.1", "--port", &port.to_string()]);
        let hello = "GET /moto-api/ HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        Self { server: BrokerServer::start(&mut command, port, hello, "HTTP/1.1 200"), home }
    }

    /// Ends it at once (SIGKILL). Its data is lost.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.server.address)
    }

    /// The settings for `sqs://`, including credentials that are not secret.
    pub fn settings(&self) -> BTreeMap<String, String> {
        let credentials = self.home.path().join("credentials").into_os_string().into_string().unwrap();
        let settings =
            [("endpoint", self.endpoint()), ("region", "eu-central-1".to_owned()), ("credentials", credentials)];
        settings.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// As [`Self::settings`], for child processes.
    pub fn environment(&self) -> [(&'static str, String); 4] {
        [
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_REGION", "eu-central-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", "testing".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "testing-secret".to_owned()),
        ]
    }
}

/// Azurite, the emulator of Azure Blob Storage. Without it, starting one ends the trial.
pub struct AzureServer {
    server: BrokerServer,
    _home: TempDir,
}

impl AzureServer {
    /// Starts a server.
    pub fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let port = free_port();
        let mut command = program(Resource::Azurite, "azurite-blob");
        command.args(["--silent", "--disableTelemetry", "--skipApiVersionCheck", "--blobPort", &port.to_string()]);
        command.arg("--location").arg(home.path());
        let hello = "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        Self { server: BrokerServer::start(&mut command, port, hello, "HTTP/1.1"), _home: home }
    }

    /// `http://127.0.0.1:PORT/devstoreaccount1`.
    pub fn endpoint(&self) -> String {
        format!("http://{}/devstoreaccount1", self.server.address)
    }
}

/// A command's output. The command must succeed.
pub fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
