use std::time::{Duration, SystemTime};

use async_nats::jetstream::consumer::pull::{self, Batch};
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer};
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, AckKind};
use async_nats::{HeaderMap, RequestError, RequestErrorKind, header};
use async_trait::async_trait;
use foveate_queue::{
    Buried, DeadLetter, Delivery, Depth, Fate, Job, JobQueue, Judge, Message, QueueError, QueueOptions, Receipt, Sent,
    one_line,
};
use futures_util::{StreamExt, stream};
use tokio::time::timeout;

use crate::connect::{ANSWER, Connection};
use crate::options::NatsOptions;
use crate::setup::{FoundStreams, StreamTarget, set_up};

/// A message's id where `Nats-Msg-Id` names a copy: in dead letters, and in messages that were put back.
const ID: &str = "Foveate-Id";
/// Headers of a dead letter.
const STAGE: &str = "Foveate-Stage";
const REASON: &str = "Foveate-Reason";
/// Deliveries of the messages that this one is a copy of, as far as they count.
const RECEIVED: &str = "Foveate-Received";
/// The time at which a message began to fail, in seconds since 1970.
const FAILING_SINCE: &str = "Foveate-Failing-Since";
/// The delay before a copy is delivered, in milliseconds. JetStream delays a delivery only after another one, so the
/// first delivery of such a copy is returned to it at once.
const DELAY: &str = "Foveate-Delay";
/// The body's full size, if it is truncated.
const BODY_BYTES: &str = "Foveate-Body-Bytes";
const MAX_STAGE: usize = 100;
const MAX_REASON: usize = 1000;

/// Most requests at once in one call.
const AT_ONCE: usize = 256;
/// Most messages of one request, which must fit the client's buffers.
const MAX_PULL: usize = 1000;
/// Most bytes of one request, unless a single message may have more. JetStream could count them itself (`max_bytes`),
/// but 2.9 servers then deliver leased messages again, and hold back released messages until their leases end.
const MAX_PULL_BYTES: usize = 32 << 20;
/// The prefix of acknowledgement subjects.
const ACK: &str = "$JS.ACK.";

/// A work-queue stream of a NATS server with JetStream, and its durable consumer.
pub struct NatsQueue {
    connection: Connection,
    jobs: StreamTarget,
    dead: StreamTarget,
    consumer: PullConsumer,
    lease: Duration,
    max_receive: u32,
}

impl NatsQueue {
    /// Connects to the queue that `options` name; see the crate's documentation.
    ///
    /// # Errors
    /// [`QueueError::Options`], [`QueueError::Unreachable`] if no server answers, and [`QueueError::Refused`] if the
    /// server refuses the login, has no such stream, or has one that would lose messages.
    pub async fn open(options: &QueueOptions) -> Result<Self, QueueError> {
        let options = NatsOptions::read(options, &|name| std::env::var(name).ok())?;
        let connection = Connection::open(&options).await?;
        let FoundStreams { jobs, dead, consumer } = connection.answered(set_up(&connection, &options)).await??;
        let lease = consumer.cached_info().config.ack_wait;
        Ok(Self { connection, jobs, dead, consumer, lease, max_receive: options.max_receive })
    }

    /// Makes a request for every item, several at once.
    async fn each<'a, T, R, F>(&'a self, items: &'a [T], ask: impl Fn(&'a T) -> F) -> Vec<Result<R, QueueError>>
    where
        F: Future<Output = Result<R, QueueError>>,
    {
        if let Err(error) = self.connection.ready().await {
            return items.iter().map(|_| Err(error.clone())).collect();
        }
        let mut asked = Vec::new();
        for item in items {
            let asking = ask(item);
            asked.push(async { self.connection.answered(asking).await? });
        }
        stream::iter(asked).buffered(AT_ONCE).collect().await
    }

    /// Stores a message durably, unless one with its id was stored within the duplicate window.
    async fn publish(&self, to: &StreamTarget, headers: HeaderMap, body: &[u8]) -> Result<Sent, QueueError> {
        let bytes = size(&headers) + body.len();
        let limit = to.largest;
        if bytes > limit {
            return Err(QueueError::TooLarge { bytes, limit });
        }
        let message = PublishMessage::build().headers(headers).payload(body.to_vec().into());
        let published = async { self.connection.context.send_publish(to.subject.clone(), message).await?.await };
        match published.await {
            Ok(stored) => Ok(if stored.duplicate { Sent::Duplicate } else { Sent::Stored }),
            Err(error) => Err(self.not_published(to, error)),
        }
    }

    fn not_published(&self, to: &StreamTarget, error: PublishError) -> QueueError {
        let stream = &to.stream.cached_info().config.name;
        let queue_error = match error.kind() {
            PublishErrorKind::StreamNotFound => self
                .connection
                .refused(format!("stream {stream} does not exist any more, or does not take subject {}", to.subject)),
            _ => self.connection.unreachable(format!("stream {stream}: {error}")),
        };
        queue_error.because(error)
    }

    async fn send_one(&self, message: &Message) -> Result<Sent, QueueError> {
        if !Job::is_id(&message.id) || message.id.trim() != message.id {
            let rule = "no control characters, no spaces at its ends, 1 to 256 characters";
            return Err(self.connection.refused(format!("it cannot carry the id {:?}: {rule}", message.id)));
        }
        let mut headers = self.headers_for(&self.jobs);
        headers.insert(header::NATS_MESSAGE_ID, message.id.as_str());
        self.publish(&self.jobs, headers, &message.body).await
    }

    /// Puts a message on the queue once more. `copy` names the copy, so that a repetition of this call adds no other
    /// one.
    async fn put_back(&self, id: &str, copy: &str, notes: HeaderMap, body: &[u8]) -> Result<(), QueueError> {
        let mut headers = notes;
        headers.insert(header::NATS_EXPECTED_STREAM, self.jobs.name());
        headers.insert(header::NATS_MESSAGE_ID, copy);
        headers.insert(ID, id);
        self.publish(&self.jobs, headers, body).await.map(drop)
    }

    /// Headers of a publication that only this stream may take.
    fn headers_for(&self, to: &StreamTarget) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::NATS_EXPECTED_STREAM, to.name());
        headers
    }

    /// Settles a delivery, and waits for JetStream's answer.
    async fn tell(&self, receipt: &Receipt, what: AckKind) -> Result<(), QueueError> {
        if !receipt.0.starts_with(ACK) {
            return Err(QueueError::LeaseLost);
        }
        let told = self.connection.client.request(receipt.0.clone(), what.into()).await;
        told.map(drop).map_err(|error| self.not_told(error))
    }

    fn not_told(&self, error: RequestError) -> QueueError {
        match error.kind() {
            RequestErrorKind::NoResponders => {
                self.connection.unreachable("the consumer does not answer; does it still exist?").because(error)
            }
            _ => self.connection.failed(error),
        }
    }

    /// The messages that are available at once.
    async fn fetch(&self, max: usize) -> Result<Vec<Delivery>, QueueError> {
        let fetching = self.consumer.fetch().max_messages(self.at_most(max)).messages();
        match self.connection.answered(fetching).await? {
            Ok(batch) => self.collect(batch, ANSWER).await,
            Err(error) => Err(self.connection.failed(error)),
        }
    }

    /// Most messages of one request: as many of the largest size as fit in `MAX_PULL_BYTES`.
    fn at_most(&self, max: usize) -> usize {
        let allowed = usize::try_from(self.consumer.cached_info().config.max_batch).unwrap_or_default();
        let most = MAX_PULL.min(MAX_PULL_BYTES / self.jobs.largest.max(1)).max(1);
        max.min(most).min(if allowed == 0 { most } else { allowed })
    }

    /// Collects a batch, whose every message must come within `patience`. Returns the messages so far if the batch
    /// breaks off.
    async fn collect(&self, mut batch: Batch, patience: Duration) -> Result<Vec<Delivery>, QueueError> {
        let mut received = Vec::new();
        loop {
            let error = match self.connection.answered(timeout(patience, batch.next())).await {
                Ok(Ok(Some(Ok(message)))) => match delivery(&message) {
                    Some(delivery) => {
                        received.extend(self.undelayed(&message, delivery).await);
                        continue;
                    }
                    None => self.connection.refused("it delivers what is no message of a stream"),
                },
                Ok(Ok(None)) => return Ok(received),
                Ok(Ok(Some(Err(error)))) => self.connection.failed(error),
                Ok(Err(_)) => self.connection.unreachable(format!("no answer within {patience:?}")),
                Err(error) => error,
            };
            return if received.is_empty() { Err(error) } else { Ok(received) };
        }
    }

    /// Returns the delivery, unless it is the first one of a copy with a delay: that one goes back for its delay.
    async fn undelayed(&self, message: &jetstream::Message, delivery: Delivery) -> Option<Delivery> {
        let Some(delay) = given(message, DELAY).and_then(|millis| millis.parse().ok()) else { return Some(delivery) };
        if message.info().is_ok_and(|info| info.delivered > 1) {
            return Some(Delivery { received: delivery.received - 1, ..delivery });
        }
        // If JetStream does not answer, the copy comes when its lease ends.
        let _ = self.tell(&delivery.receipt, AckKind::Nak(Some(Duration::from_millis(delay)))).await;
        None
    }

    /// A dead letter's headers and body. A body that leaves no room for headers is truncated; otherwise the message
    /// would come back forever.
    fn letter<'a>(&self, delivery: &'a Delivery, why: &DeadLetter) -> (HeaderMap, &'a [u8]) {
        let mut headers = self.headers_for(&self.dead);
        let body = &delivery.body[..];
        let largest = self.dead.largest;
        if size(&headers) + body.len() <= largest {
            return (with_reason(headers, delivery, why, largest - body.len()), body);
        }
        headers.insert(BODY_BYTES, body.len().to_string());
        let headers = with_reason(headers, delivery, why, largest);
        let room = largest.saturating_sub(size(&headers));
        (headers, &body[..room.min(body.len())])
    }

    /// The next dead letters; none at the end.
    async fn read(&self, reader: &PullConsumer) -> Result<Vec<StoredLetter>, QueueError> {
        let fetching = reader.fetch().max_messages(self.at_most(MAX_PULL)).messages();
        let mut batch = self.connection.answered(fetching).await?.map_err(|error| self.connection.failed(error))?;
        let mut letters = Vec::new();
        loop {
            match self.connection.answered(timeout(ANSWER, batch.next())).await? {
                Ok(Some(message)) => {
                    letters.extend(buried(&message.map_err(|error| self.connection.failed(error))?));
                }
                Ok(None) => return Ok(letters),
                Err(_) => return Err(self.connection.unreachable(format!("no answer within {ANSWER:?}"))),
            }
        }
    }

    async fn remove_dead(&self, sequence: u64) -> Result<(), QueueError> {
        let removed = self.connection.answered(self.dead.stream.delete_message(sequence)).await?;
        removed.map(drop).map_err(|error| self.connection.failed(error))
    }
}

/// A consumer that reads a stream once, from its beginning, and is forgotten soon.
fn reader() -> pull::Config {
    pull::Config { ack_policy: AckPolicy::None, inactive_threshold: Duration::from_secs(60), ..pull::Config::default() }
}

/// A dead letter with its sequence number and key.
struct StoredLetter {
    sequence: u64,
    key: String,
    letter: Buried,
}

fn buried(message: &jetstream::Message) -> Option<StoredLetter> {
    let sequence = message.info().ok()?.stream_sequence;
    let Delivery { id, key, body, sent, .. } = delivery(message)?;
    let [stage, reason] = [STAGE, REASON].map(|name| given(message, name).unwrap_or_default());
    let is_whole = given(message, BODY_BYTES).is_none();
    let letter = Buried { id, body, why: DeadLetter { stage, reason }, since: sent, is_whole };
    Some(StoredLetter { sequence, key, letter })
}

/// Adds the headers of a dead letter that fit in `largest` bytes, with the reason truncated.
fn with_reason(mut headers: HeaderMap, delivery: &Delivery, why: &DeadLetter, largest: usize) -> HeaderMap {
    let stage = one_line(&why.stage, MAX_STAGE);
    let reason = one_line(&why.reason, MAX_REASON);
    // Not the id: a message that is sent again and fails again is another dead letter.
    let once = ("Nats-Msg-Id", delivery.key.clone());
    for (name, value) in [once, (ID, delivery.id.clone()), (STAGE, stage), (REASON, reason)] {
        let room = largest.saturating_sub(size(&headers) + line(name, ""));
        let value = if name == REASON { one_line(&value, room) } else { value };
        if !value.is_empty() && value.len() <= room {
            headers.insert(name, value);
        }
    }
    headers
}

/// Bytes of headers on the wire.
fn size(headers: &HeaderMap) -> usize {
    let lines = headers.iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value)));
    "NATS/1.0\r\n\r\n".len() + lines.map(|(name, value)| line(name.as_ref(), value.as_str())).sum::<usize>()
}

fn line(name: &str, value: &str) -> usize {
    name.len() + ": ".len() + value.len() + "\r\n".len()
}

/// A header's value.
fn given(message: &jetstream::Message, name: &str) -> Option<String> {
    message.headers.as_ref()?.get_last(name).map(|value| value.as_str().to_owned())
}

/// The headers of a copy about its message.
fn notes(delivery: &Delivery, delay: Duration) -> HeaderMap {
    let mut notes = HeaderMap::new();
    if delivery.received > 0 {
        notes.insert(RECEIVED, delivery.received.to_string());
    }
    if let Some(since) = delivery.failing_since {
        let seconds = since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        notes.insert(FAILING_SINCE, seconds.to_string());
    }
    if !delay.is_zero() {
        notes.insert(DELAY, delay.as_millis().to_string());
    }
    notes
}

fn delivery(message: &jetstream::Message) -> Option<Delivery> {
    let info = message.info().ok()?;
    let receipt = Receipt(message.reply.as_ref()?.to_string());
    let id = given(message, ID).or_else(|| given(message, header::NATS_MESSAGE_ID.as_ref()));
    let before = given(message, RECEIVED).and_then(|count| count.parse().ok()).unwrap_or(0);
    let sent = SystemTime::from(info.published);
    // A recreated stream counts from 1 again, so only the time makes the key unique.
    let since_epoch = sent.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let key = format!("{}:{}:{}", info.stream, info.stream_sequence, since_epoch.as_nanos());
    Some(Delivery {
        id: id.filter(|id| !id.is_empty()).unwrap_or_else(|| key.clone()),
        key,
        body: message.payload.to_vec(),
        received: u32::try_from(info.delivered).unwrap_or(u32::MAX).saturating_add(before),
        sent: Some(sent),
        failing_since: given(message, FAILING_SINCE).and_then(|text| Delivery::parse_failing_since(&text)),
        receipt,
    })
}

#[async_trait]
impl JobQueue for NatsQueue {
    fn name(&self) -> &str {
        &self.connection.queue
    }

    fn lease(&self) -> Duration {
        self.lease
    }

    fn max_receive(&self) -> u32 {
        self.max_receive
    }

    async fn send(&self, messages: &[Message]) -> Vec<Result<Sent, QueueError>> {
        self.each(messages, |message| self.send_one(message)).await
    }

    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        if max == 0 {
            return Ok(Vec::new());
        }
        self.connection.ready().await?;
        let mut received = self.fetch(max).await?;
        if received.is_empty() && !wait.is_zero() {
            // Only one: a larger request would stay open after this call, and take messages that no caller receives.
            let waiting = self.consumer.batch().max_messages(1).expires(wait).messages();
            received = match self.connection.answered(waiting).await? {
                Ok(batch) => self.collect(batch, wait + ANSWER).await?,
                Err(error) => return Err(self.connection.failed(error)),
            };
            if !received.is_empty() && max > 1 {
                received.extend(self.fetch(max - 1).await.unwrap_or_default());
            }
        }
        Ok(received)
    }

    async fn acknowledge(&self, receipts: &[Receipt]) -> Vec<Result<(), QueueError>> {
        self.each(receipts, |receipt| self.tell(receipt, AckKind::Ack)).await
    }

    async fn extend(&self, receipts: &[Receipt]) -> Vec<Result<(), QueueError>> {
        self.each(receipts, |receipt| self.tell(receipt, AckKind::Progress)).await
    }

    async fn release(&self, receipts: &[Receipt], delay: Duration) -> Vec<Result<(), QueueError>> {
        let delay = (!delay.is_zero()).then_some(delay);
        self.each(receipts, |receipt| self.tell(receipt, AckKind::Nak(delay))).await
    }

    async fn renew(&self, delivery: &Delivery, delay: Duration) -> Result<(), QueueError> {
        self.connection.ready().await?;
        let put_back = self.put_back(&delivery.id, &delivery.key, notes(delivery, delay), &delivery.body);
        self.connection.answered(put_back).await??;
        self.connection.answered(self.tell(&delivery.receipt, AckKind::Ack)).await?
    }

    async fn dead_letter(&self, delivery: &Delivery, why: &DeadLetter) -> Result<(), QueueError> {
        self.connection.ready().await?;
        let (headers, body) = self.letter(delivery, why);
        self.connection.answered(self.publish(&self.dead, headers, body)).await??;
        self.connection.answered(self.tell(&delivery.receipt, AckKind::Ack)).await?
    }

    async fn review(&self, judge: &mut Judge<'_>) -> Result<(), QueueError> {
        self.connection.ready().await?;
        let told = self.connection.answered(self.dead.stream.get_info()).await?;
        // A letter that is put back and dies again comes after this one.
        let last = told.map_err(|error| self.connection.failed(error))?.state.last_sequence;
        let reading = self.connection.answered(self.dead.stream.create_consumer(reader())).await?;
        let reader = reading.map_err(|error| self.connection.failed(error))?;
        loop {
            let letters = self.read(&reader).await?;
            if letters.is_empty() {
                return Ok(());
            }
            for StoredLetter { sequence, key, letter } in letters {
                let fate = if sequence > last { Fate::End } else { judge(&letter) };
                if fate == Fate::PutBack {
                    let putting = self.put_back(&letter.id, &key, HeaderMap::new(), &letter.body);
                    self.connection.answered(putting).await??;
                }
                match fate {
                    Fate::Keep => {}
                    Fate::PutBack | Fate::Remove => self.remove_dead(sequence).await?,
                    Fate::End => return Ok(()),
                }
            }
        }
    }

    async fn depth(&self) -> Result<Depth, QueueError> {
        self.connection.ready().await?;
        let name = &self.consumer.cached_info().name;
        let (jobs, dead) = self
            .connection
            .answered(async { (self.jobs.stream.consumer_info(name).await, self.dead.stream.get_info().await) })
            .await?;
        let jobs = jobs.map_err(|error| self.connection.failed(error))?;
        let dead = dead.map_err(|error| self.connection.failed(error))?;
        Ok(Depth { waiting: jobs.num_pending, leased: jobs.num_ack_pending as u64, dead: dead.state.messages })
    }
}

impl std::fmt::Debug for NatsQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NatsQueue").field("stream", &self.connection.queue).finish_non_exhaustive()
    }
}
