//! The connection, and how its loss is handled.

use std::error::Error;
use std::io;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions};
use foveate_queue::QueueError;
use tokio::time::{sleep, timeout};

use crate::options::{Login, NatsOptions};

/// Longest time for a server's answer.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);
/// The time for which a call waits for a reconnection.
const RECONNECT: Duration = Duration::from_secs(5);
/// A dead connection is detected after two of these intervals.
const PING: Duration = Duration::from_secs(10);
/// The interval at which a waiting call checks the connection.
const LOOK: Duration = Duration::from_millis(50);

/// A connection, which the client re-establishes whenever it is lost.
pub(crate) struct Connection {
    /// The queue's name, for errors.
    pub(crate) queue: String,
    pub(crate) client: Client,
    pub(crate) context: Context,
}

impl Connection {
    pub(crate) async fn open(options: &NatsOptions) -> Result<Self, QueueError> {
        let queue = options.stream.clone();
        let connecting = connect_options(options).await?.connect(&options.servers);
        let client = match timeout(2 * ANSWER, connecting).await {
            Ok(connected) => connected.map_err(|error| not_connected(options, error))?,
            Err(_) => {
                return Err(QueueError::unreachable(queue, format!("{} does not answer", options.servers.join(", "))));
            }
        };
        Ok(Self { queue, context: jetstream::new(client.clone()), client })
    }

    fn is_up(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// The number of connections so far. A new connection knows no requests of the previous one.
    fn generation(&self) -> u64 {
        self.client.statistics().connects.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Waits a limited time for the connection. Without it, a request would be sent after its caller stopped waiting
    /// for the answer.
    pub(crate) async fn ready(&self) -> Result<(), QueueError> {
        let up = async {
            while !self.is_up() {
                sleep(LOOK).await;
            }
        };
        let ready = timeout(RECONNECT, up).await;
        ready.map_err(|_| self.unreachable("the connection is lost, and is being made anew"))
    }

    /// Waits for the answer to `question`, unless the connection is lost before.
    pub(crate) async fn answered<T>(&self, question: impl Future<Output = T>) -> Result<T, QueueError> {
        let generation = self.generation();
        let lost = async {
            while self.is_up() && self.generation() == generation {
                sleep(LOOK).await;
            }
        };
        tokio::select! {
            biased;
            answer = question => Ok(answer),
            () = lost => Err(self.unreachable("the connection was lost before the answer came")),
        }
    }

    pub(crate) fn unreachable(&self, reason: impl Into<String>) -> QueueError {
        QueueError::unreachable(self.queue.as_str(), reason)
    }

    /// The error of a failed request.
    pub(crate) fn failed(&self, error: impl Into<Box<dyn Error + Send + Sync>>) -> QueueError {
        let error = error.into();
        self.unreachable(error.to_string()).because(error)
    }

    pub(crate) fn refused(&self, reason: impl Into<String>) -> QueueError {
        QueueError::refused(self.queue.as_str(), reason)
    }
}

async fn connect_options(options: &NatsOptions) -> Result<ConnectOptions, QueueError> {
    let mut connect = ConnectOptions::new()
        .name("foveate")
        .connection_timeout(ANSWER)
        .request_timeout(Some(ANSWER))
        .ping_interval(PING)
        .require_tls(options.tls);
    if let Some(ca) = &options.ca {
        connect = connect.add_root_certificates(ca.clone());
    }
    Ok(match &options.login {
        Login::Anonymous => connect,
        Login::Password(user, password) => connect.user_and_password(user.clone(), password.clone()),
        Login::Token(token) => connect.token(token.clone()),
        Login::File(file) => connect
            .credentials_file(file)
            .await
            .map_err(|error| QueueError::Options(format!("credentials {}: {error}", file.display())))?,
    })
}

fn not_connected(options: &NatsOptions, error: ConnectError) -> QueueError {
    let servers = options.servers.join(", ");
    let queue_error = match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => QueueError::refused(
            options.stream.as_str(),
            format!(
                "{servers} refuses the login; check NATS_USER and NATS_PASSWORD, NATS_TOKEN or the credentials file"
            ),
        ),
        _ if is_about_tls(&error) => {
            let remedy = "if this machine does not trust its certificate, name the authority's file (setting 'ca')";
            QueueError::refused(options.stream.as_str(), format!("no TLS with {servers} ({error}); {remedy}"))
        }
        ConnectErrorKind::ServerParse => QueueError::Options(format!("{servers}: {error}")),
        _ => QueueError::unreachable(options.stream.as_str(), format!("cannot connect to {servers}: {error}")),
    };
    queue_error.because(error)
}

/// The TLS library reports an untrusted certificate as invalid data.
fn is_about_tls(error: &ConnectError) -> bool {
    let io = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    error.kind() == ConnectErrorKind::Tls || io.is_some_and(|error| error.kind() == io::ErrorKind::InvalidData)
}
