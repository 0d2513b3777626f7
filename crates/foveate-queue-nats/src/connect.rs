//! The connection, and what it means that it is lost.

use std::error::Error;
use std::future::Future;
use std::io;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions};
use foveate_queue::QueueError;
use tokio::time::{sleep, timeout};

use crate::options::{Login, NatsOptions};

/// A server that answers at all answers within this.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);
/// How long a call waits for a connection that is being made anew.
const RECONNECT: Duration = Duration::from_secs(5);
/// A server that has gone without a word is found out after two of these.
const PING: Duration = Duration::from_secs(10);
/// How soon a loss is noticed by who waits for an answer.
const LOOK: Duration = Duration::from_millis(50);

/// A connection that the client makes anew, by itself, whenever it is lost.
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
            Ok(connected) => connected.map_err(|error| not_connected(options, &error))?,
            Err(_) => return Err(unreachable(&queue, format!("{} does not answer", options.servers.join(", ")))),
        };
        Ok(Self { queue, context: jetstream::new(client.clone()), client })
    }

    fn is_up(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// How often there was a connection: another one than before has not seen what was asked of that.
    fn generation(&self) -> u64 {
        self.client.statistics().connects.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Waits for the connection, as long as it is likely to come back. What is asked without one would be sent when
    /// nobody waits for the answer any more.
    pub(crate) async fn ready(&self) -> Result<(), QueueError> {
        let up = async {
            while !self.is_up() {
                sleep(LOOK).await;
            }
        };
        let gone = || self.unreachable("the connection is lost, and is being made anew");
        timeout(RECONNECT, up).await.map_err(|_| gone())
    }

    /// The answer to `question`, unless the connection is lost before it comes.
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
        unreachable(&self.queue, reason)
    }

    pub(crate) fn refused(&self, reason: impl Into<String>) -> QueueError {
        QueueError::Refused { queue: self.queue.clone(), reason: reason.into() }
    }
}

fn unreachable(queue: &str, reason: impl Into<String>) -> QueueError {
    QueueError::Unreachable { queue: queue.to_owned(), reason: reason.into() }
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

fn not_connected(options: &NatsOptions, error: &ConnectError) -> QueueError {
    let servers = options.servers.join(", ");
    let refused = |reason| QueueError::Refused { queue: options.stream.clone(), reason };
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => refused(format!(
            "{servers} does not let us in; check NATS_USER and NATS_PASSWORD, NATS_TOKEN or the file of credentials"
        )),
        _ if is_about_tls(error) => refused(format!(
            "no TLS with {servers} ({error}); if its certificate is not one that this machine trusts, name the authority's file (setting 'ca')"
        )),
        ConnectErrorKind::ServerParse => QueueError::Options(format!("{servers}: {error}")),
        _ => unreachable(&options.stream, format!("cannot connect to {servers}: {error}")),
    }
}

/// The TLS library tells of a certificate that it does not trust as of data that is wrong.
fn is_about_tls(error: &ConnectError) -> bool {
    let io = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    error.kind() == ConnectErrorKind::Tls || io.is_some_and(|error| error.kind() == io::ErrorKind::InvalidData)
}
