//! Finds or creates the stream, its consumer and the dead letters' stream, and checks them.

use std::error::Error;
use std::fmt::Display;
use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::{
    ConsumerInfoErrorKind, CreateStreamErrorKind, GetStreamErrorKind, RequestError, RequestErrorKind,
};
use async_nats::jetstream::stream::{Config, ConsumerErrorKind, RetentionPolicy, StorageType, Stream};
use foveate_queue::{QueueError, QueueOptions};

use crate::connect::Connection;
use crate::options::NatsOptions;

/// The lease if neither the options nor a consumer have one.
const LEASE: Duration = Duration::from_secs(30);

/// A stream and the subject of its messages.
pub(crate) struct StreamTarget {
    pub(crate) stream: Stream,
    pub(crate) subject: String,
    /// Most bytes of a message, headers included.
    pub(crate) largest: usize,
}

impl StreamTarget {
    /// The stream's name.
    pub(crate) fn name(&self) -> &str {
        &self.stream.cached_info().config.name
    }
}

/// The streams of jobs and of dead letters, and the consumer of jobs.
pub(crate) struct FoundStreams {
    pub(crate) jobs: StreamTarget,
    pub(crate) dead: StreamTarget,
    pub(crate) consumer: PullConsumer,
}

/// Finds everything, and creates missing parts if the options say so.
pub(crate) async fn set_up(connection: &Connection, options: &NatsOptions) -> Result<FoundStreams, QueueError> {
    let setup = StreamSetup { connection, options };
    let jobs = setup.target(&options.stream, options.subject.as_deref(), RetentionPolicy::WorkQueue).await?;
    let dead = setup.target(&options.dead_letter, None, RetentionPolicy::Limits).await?;
    setup.check_room(&jobs, &dead)?;
    let consumer = setup.consumer(&jobs.stream).await?;
    Ok(FoundStreams { jobs, dead, consumer })
}

struct StreamSetup<'a> {
    connection: &'a Connection,
    options: &'a NatsOptions,
}

impl StreamSetup<'_> {
    async fn target(
        &self,
        name: &str,
        subject: Option<&str>,
        retention: RetentionPolicy,
    ) -> Result<StreamTarget, QueueError> {
        let stream = match self.connection.context.get_stream(name).await {
            Ok(stream) => stream,
            Err(error) => match error.kind() {
                GetStreamErrorKind::JetStream(told) if told.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                    self.make_stream(name, subject.unwrap_or(name), retention).await?
                }
                GetStreamErrorKind::JetStream(told) => return Err(self.told(&format!("stream {name}"), &told)),
                _ => return Err(self.silent(&error)),
            },
        };
        let config = &stream.cached_info().config;
        let largest = match usize::try_from(config.max_message_size) {
            Ok(limit) if limit > 0 => limit.min(self.connection.client.max_payload()),
            _ => self.connection.client.max_payload(),
        };
        let subject = match subject {
            Some(subject) => subject.to_owned(),
            None => self.only_subject(config)?,
        };
        Ok(StreamTarget { stream, subject, largest })
    }

    /// Every message must fit the dead letters' stream.
    fn check_room(&self, jobs: &StreamTarget, dead: &StreamTarget) -> Result<(), QueueError> {
        if dead.largest >= jobs.largest {
            return Ok(());
        }
        Err(self.connection.refused(format!(
            "stream {} takes dead letters of up to {} bytes (MaxMsgSize), but stream {} takes messages of up to {}; raise the one to at least that, or lower the other",
            self.options.dead_letter, dead.largest, self.options.stream, jobs.largest
        )))
    }

    async fn make_stream(&self, name: &str, subject: &str, retention: RetentionPolicy) -> Result<Stream, QueueError> {
        self.may_create(&format!("stream {name}"))?;
        let config = Config {
            name: name.to_owned(),
            subjects: vec![subject.to_owned()],
            retention,
            storage: StorageType::File,
            ..Config::default()
        };
        self.connection.context.create_stream(config).await.map_err(|error| match error.kind() {
            CreateStreamErrorKind::JetStream(told) => self.told(&format!("making stream {name}"), &told),
            _ => self.silent(&error),
        })
    }

    /// The subject of a stream that has one.
    fn only_subject(&self, config: &Config) -> Result<String, QueueError> {
        match &config.subjects[..] {
            [subject] if !subject.contains(['*', '>']) => Ok(subject.clone()),
            several => Err(QueueError::Options(format!(
                "stream {} listens to {}: say where messages are sent to (setting 'subject'); a stream of dead letters needs one subject without wildcards",
                config.name,
                several.join(", "),
            ))),
        }
    }

    async fn consumer(&self, stream: &Stream) -> Result<PullConsumer, QueueError> {
        let what = format!("consumer {}", self.options.consumer);
        match stream.consumer_info(&self.options.consumer).await {
            Ok(_) => {}
            Err(error) => match error.kind() {
                ConsumerInfoErrorKind::NotFound => self.may_create(&what)?,
                ConsumerInfoErrorKind::JetStream(told) => return Err(self.told(&what, &told)),
                _ => return Err(self.silent(&error)),
            },
        }
        // Created only if missing, so that two workers that start at once both succeed.
        let made = stream.get_or_create_consumer(&self.options.consumer, self.consumer_config()).await;
        let consumer = made.map_err(|error| match error.kind() {
            ConsumerErrorKind::JetStream(told) => self.told(&what, &told),
            ConsumerErrorKind::InvalidConsumerType => {
                self.connection.refused(format!("{what} pushes; a worker pulls: name another (setting 'consumer')"))
            }
            _ => self.silent(&error),
        })?;
        self.check_consumer(&consumer)?;
        Ok(consumer)
    }

    fn consumer_config(&self) -> pull::Config {
        pull::Config {
            durable_name: Some(self.options.consumer.clone()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.options.lease.unwrap_or(LEASE),
            // Unlimited: the workers limit deliveries and messages in flight themselves.
            max_deliver: -1,
            max_ack_pending: -1,
            ..pull::Config::default()
        }
    }

    /// Refuses a consumer that would lose messages or has another lease.
    fn check_consumer(&self, consumer: &PullConsumer) -> Result<(), QueueError> {
        let config = &consumer.cached_info().config;
        let refused =
            |reason: String| Err(self.connection.refused(format!("consumer {}: {reason}", self.options.consumer)));
        if config.ack_policy != AckPolicy::Explicit {
            return refused("it does not ask for explicit acknowledgements (AckExplicit)".to_owned());
        }
        if let Some(lease) = self.options.lease.filter(|&lease| lease != config.ack_wait) {
            let stream = &self.options.stream;
            let consumer = &self.options.consumer;
            let has = config.ack_wait;
            let reason = format!("queue {stream}: consumer {consumer}: its lease (AckWait) is {has:?}, not {lease:?}");
            return Err(QueueError::Lease(reason));
        }
        let most = self.options.max_receive.saturating_add(QueueOptions::CHANCES);
        if config.max_deliver > 0 && config.max_deliver <= i64::from(most) {
            return refused(format!(
                "it stops delivering a message after {} times (MaxDeliver), before a worker gives it up after {most}, so that it would stay forever; raise it above {most}, or better to -1",
                config.max_deliver
            ));
        }
        Ok(())
    }

    fn may_create(&self, what: &str) -> Result<(), QueueError> {
        if self.options.create {
            return Ok(());
        }
        Err(QueueError::Absent { queue: self.options.stream.clone(), what: what.to_owned() })
    }

    /// The server refused.
    fn told(&self, what: &str, error: &impl Display) -> QueueError {
        self.connection.refused(format!("{what}: {error}"))
    }

    /// The server did not answer.
    fn silent(&self, error: &(impl Error + 'static)) -> QueueError {
        if has_no_responders(error) {
            return self.connection.refused("there is no JetStream on this server; start it with --jetstream");
        }
        self.connection.unreachable(format!(
            "JetStream does not answer ({error}); it does not either where the user has no permission for $JS.API.>"
        ))
    }
}

fn has_no_responders(error: &(dyn Error + 'static)) -> bool {
    let kind = error.downcast_ref::<RequestError>().map(RequestError::kind);
    kind == Some(RequestErrorKind::NoResponders) || error.source().is_some_and(has_no_responders)
}
