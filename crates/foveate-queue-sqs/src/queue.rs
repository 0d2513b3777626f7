use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry,
    Message as SdkMessage, MessageSystemAttributeName, QueueAttributeName, SendMessageBatchRequestEntry,
};
use foveate_queue::{
    Buried, DeadLetter, Delivery, Depth, Fate, Job, JobQueue, Judge, Message, QueueError, QueueOptions, Receipt, Sent,
};
use futures_util::{StreamExt, stream};

use crate::client::SqsService;
use crate::message::{
    Attributes, DELAY, FAILING_SINCE, ID, REASON, RECEIVED, STAGE, attribute, dead_attributes, parts, receipt,
    receive_count, sent, size, text, to_sdk, token,
};
use crate::options::{LONGEST, SqsOptions};
use crate::setup::{FoundQueues, QueueTarget, set_up};

/// Most messages of one request.
const BATCH: usize = 10;
/// Most bytes of one request, which every service takes; a larger message has a separate request.
const BATCH_BYTES: usize = 256 << 10;
/// Most requests at once in one call.
const AT_ONCE: usize = 16;
/// The time for which dead letters are hidden from others while they are reviewed.
const REVIEW: Duration = Duration::from_secs(600);
/// Longest delay of a new message.
const LONGEST_DELAY: Duration = Duration::from_secs(900);
/// Longest polling time of one request.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// A queue of Amazon SQS, or of a service that speaks its protocol.
pub struct SqsQueue {
    service: SqsService,
    jobs: QueueTarget,
    dead: QueueTarget,
    lease: Duration,
    max_receive: u32,
}

impl SqsQueue {
    /// Finds the queue that `options` name; see the crate's documentation.
    ///
    /// # Errors
    /// [`QueueError::Options`], [`QueueError::Unreachable`] if the service does not answer, and [`QueueError::Refused`]
    /// if it refuses the credentials, has no such queue, or moves messages away too soon.
    pub async fn open(options: &QueueOptions) -> Result<Self, QueueError> {
        let options = SqsOptions::read(options)?;
        let service = SqsService::open(&options).await?;
        let FoundQueues { jobs, dead, lease } = set_up(&service, &options).await?;
        Ok(Self { service, jobs, dead, lease, max_receive: options.max_receive })
    }

    /// The message's size, if SQS takes the message.
    fn check(&self, message: &Message) -> Result<usize, QueueError> {
        text(&message.body).map_err(|reason| self.service.refused(reason))?;
        if !Job::is_id(&message.id) {
            let rule = "no control characters, 1 to 256 characters";
            return Err(self.service.refused(format!("it cannot carry the id {:?}: {rule}", message.id)));
        }
        let bytes = message.body.len() + size(&attributes(message));
        let limit = self.jobs.largest;
        if bytes > limit { Err(QueueError::TooLarge { bytes, limit }) } else { Ok(bytes) }
    }

    async fn send_batch(
        &self,
        messages: impl Iterator<Item = &Message>,
    ) -> Result<Vec<BatchResultErrorEntry>, QueueError> {
        let entries = messages.enumerate().map(|(at, message)| {
            let body = text(&message.body).map_err(|reason| self.service.refused(reason))?;
            let entry = SendMessageBatchRequestEntry::builder()
                .id(at.to_string())
                .message_body(body)
                .set_message_attributes(Some(to_sdk(&attributes(message)).map_err(|error| self.malformed(&error))?))
                .set_message_deduplication_id(self.jobs.is_fifo().then(|| token(&message.id)))
                .set_message_group_id(self.jobs.is_fifo().then(|| token(&message.id)));
            entry.build().map_err(|error| self.malformed(&error))
        });
        let entries = entries.collect::<Result<Vec<_>, _>>()?;
        let sending = self.service.client.send_message_batch().queue_url(&self.jobs.url).set_entries(Some(entries));
        let sent = self.service.answered("sending", Duration::ZERO, sending.send()).await?;
        Ok(sent.failed)
    }

    fn malformed(&self, error: &dyn std::error::Error) -> QueueError {
        self.service.refused(error.to_string())
    }

    /// The results of a request for `count` messages: those that are not reported as failed succeeded.
    fn results(
        &self,
        count: usize,
        doing: &str,
        outcome: Result<Vec<BatchResultErrorEntry>, QueueError>,
    ) -> Vec<Result<(), QueueError>> {
        match outcome {
            Err(error) => vec![Err(error); count],
            Ok(failed) => {
                let mut results = vec![Ok(()); count];
                for entry in failed {
                    if let Some(result) = entry.id().parse().ok().and_then(|at: usize| results.get_mut(at)) {
                        *result = Err(self.service.entry(doing, &entry));
                    }
                }
                results
            }
        }
    }

    /// Makes a request for every ten `receipts`: `ask` takes their handles and returns the failed ones.
    async fn each_ten<'a, F>(
        &'a self,
        doing: &'static str,
        receipts: &'a [Receipt],
        ask: impl Fn(Vec<(String, &'a str)>) -> F,
    ) -> Vec<Result<(), QueueError>>
    where
        F: Future<Output = Result<Vec<BatchResultErrorEntry>, QueueError>>,
    {
        let mut asked = Vec::new();
        for chunk in receipts.chunks(BATCH) {
            let numbered = chunk.iter().enumerate();
            let handles: Vec<_> =
                numbered.filter_map(|(at, receipt)| Some((at.to_string(), parts(receipt)?.1))).collect();
            let asking = (!handles.is_empty()).then(|| ask(handles));
            asked.push(async move {
                let outcome = match asking {
                    Some(asking) => asking.await,
                    None => Ok(Vec::new()),
                };
                let results = self.results(chunk.len(), doing, outcome);
                let known = chunk.iter().map(|receipt| parts(receipt).ok_or(QueueError::LeaseLost));
                known.zip(results).map(|(known, result)| known.and(result)).collect::<Vec<_>>()
            });
        }
        stream::iter(asked).buffered(AT_ONCE).concat().await
    }

    async fn delete(
        &self,
        from: &QueueTarget,
        handles: Vec<(String, &str)>,
    ) -> Result<Vec<BatchResultErrorEntry>, QueueError> {
        let entries = handles
            .into_iter()
            .map(|(id, handle)| DeleteMessageBatchRequestEntry::builder().id(id).receipt_handle(handle).build());
        let entries = entries.collect::<Result<Vec<_>, _>>().map_err(|error| self.malformed(&error))?;
        let deleting = self.service.client.delete_message_batch().queue_url(&from.url).set_entries(Some(entries));
        Ok(self.service.answered("acknowledging", Duration::ZERO, deleting.send()).await?.failed)
    }

    /// Hides messages from others for `time` from now.
    async fn hide(
        &self,
        of: &QueueTarget,
        handles: Vec<(String, &str)>,
        time: Duration,
    ) -> Result<Vec<BatchResultErrorEntry>, QueueError> {
        let seconds = seconds(time.min(LONGEST));
        let entries = handles.into_iter().map(|(id, handle)| {
            let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(id).receipt_handle(handle);
            entry.visibility_timeout(seconds).build()
        });
        let entries = entries.collect::<Result<Vec<_>, _>>().map_err(|error| self.malformed(&error))?;
        let changing = self.service.client.change_message_visibility_batch().queue_url(&of.url);
        let changing = changing.set_entries(Some(entries)).send();
        Ok(self.service.answered("changing the lease", Duration::ZERO, changing).await?.failed)
    }

    /// Polls until messages come or the time is over.
    async fn first(&self, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        let since = Instant::now();
        loop {
            let left = wait.saturating_sub(since.elapsed());
            let received = self.ask_jobs(max, left.min(LONGEST_WAIT)).await?;
            if !received.is_empty() || since.elapsed() >= wait {
                return Ok(received);
            }
        }
    }

    async fn ask_jobs(&self, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        let mut received = Vec::new();
        for message in self.ask(&self.jobs, max, wait, self.lease).await? {
            received.extend(self.undelayed(message).await?);
        }
        Ok(received)
    }

    /// Returns the delivery of a message, unless it is the first one of a copy on a FIFO queue that has a delay.
    async fn undelayed(&self, message: SdkMessage) -> Result<Option<Delivery>, QueueError> {
        let delay = attribute(&message, DELAY).and_then(|text| text.parse().ok());
        let count = receive_count(&message);
        let delivery = self.delivery(message)?;
        let (Some(delay), Some((_, handle))) = (delay, parts(&delivery.receipt)) else { return Ok(Some(delivery)) };
        if count > 1 {
            return Ok(Some(Delivery { received: delivery.received - 1, ..delivery }));
        }
        // If SQS does not answer, the copy comes when its lease ends.
        let _ = self.hide(&self.jobs, vec![("0".to_owned(), handle)], Duration::from_secs(delay)).await;
        Ok(None)
    }

    /// Receives messages, and hides them from others for `lease`.
    async fn ask(
        &self,
        queue: &QueueTarget,
        max: usize,
        wait: Duration,
        lease: Duration,
    ) -> Result<Vec<SdkMessage>, QueueError> {
        let names = [ID, RECEIVED, DELAY, FAILING_SINCE, STAGE, REASON].map(str::to_owned).to_vec();
        let asking = self
            .service
            .client
            .receive_message()
            .queue_url(&queue.url)
            .max_number_of_messages(i32::try_from(max).unwrap_or(i32::MAX))
            .wait_time_seconds(seconds(wait))
            .visibility_timeout(seconds(lease))
            .message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount)
            .message_system_attribute_names(MessageSystemAttributeName::SentTimestamp)
            .set_message_attribute_names(Some(names));
        let answer = self.service.answered("receiving", wait, asking.send()).await?;
        Ok(answer.messages.unwrap_or_default())
    }

    fn delivery(&self, message: SdkMessage) -> Result<Delivery, QueueError> {
        let (Some(message_id), Some(handle)) = (message.message_id(), message.receipt_handle()) else {
            return Err(self.service.refused("receiving: a message without id and handle"));
        };
        let before = attribute(&message, RECEIVED).and_then(|count| count.parse().ok()).unwrap_or(0);
        Ok(Delivery {
            id: attribute(&message, ID).unwrap_or(message_id).to_owned(),
            key: message_id.to_owned(),
            receipt: receipt(message_id, handle),
            received: receive_count(&message).saturating_add(before),
            sent: sent(&message),
            failing_since: attribute(&message, FAILING_SINCE).and_then(Delivery::parse_failing_since),
            body: message.body.unwrap_or_default().into_bytes(),
        })
    }

    /// Puts a message on the queue once more. `copy` names the copy, so that a FIFO queue takes it, but not twice.
    async fn put_back(
        &self,
        Message { id, body }: &Message,
        copy: &str,
        notes: Attributes,
        delay: Option<i32>,
    ) -> Result<(), QueueError> {
        let body = text(body).map_err(|reason| self.service.refused(reason))?;
        let attributes = [vec![(ID, id.clone())], notes].concat();
        let attributes = to_sdk(&attributes).map_err(|error| self.malformed(&error))?;
        let sending = self.service.client.send_message().queue_url(&self.jobs.url).message_body(body);
        let sending = sending
            .set_message_attributes(Some(attributes))
            .set_delay_seconds(delay)
            .set_message_deduplication_id(self.jobs.is_fifo().then(|| token(copy)))
            .set_message_group_id(self.jobs.is_fifo().then(|| token(id)));
        self.service.answered("putting back", Duration::ZERO, sending.send()).await.map(drop)
    }

    /// Judges dead letters until no other one comes. Those that stay, and with `kept` their handles, are hidden until
    /// the end: otherwise they would come again and again.
    async fn judge_all(&self, judge: &mut Judge<'_>, kept: &mut BTreeMap<String, String>) -> Result<(), QueueError> {
        let mut put_back = HashSet::new();
        loop {
            let letters = self.ask(&self.dead, BATCH, Duration::from_secs(1), REVIEW).await?;
            let letters = letters.into_iter().map(|message| self.buried(message)).collect::<Result<Vec<_>, _>>()?;
            if letters.is_empty() {
                return Ok(());
            }
            let before = kept.len();
            kept.extend(letters.iter().map(|dead| (dead.key.clone(), dead.handle.clone())));
            if kept.len() == before {
                return Ok(()); // The first ones came into view again: this takes longer than they were hidden.
            }
            for DeliveredLetter { key, handle, letter } in letters {
                // One that was put back may be dead again already.
                let fate = if put_back.contains(&letter.id) { Fate::Keep } else { judge(&letter) };
                match fate {
                    Fate::Keep => continue,
                    Fate::End => return Ok(()),
                    Fate::Remove => {}
                    Fate::PutBack => {
                        let message = Message { id: letter.id, body: letter.body };
                        self.put_back(&message, &key, Attributes::new(), None).await?;
                        put_back.insert(message.id);
                    }
                }
                let deleted = self.delete(&self.dead, vec![("0".to_owned(), &handle)]).await;
                self.results(1, "removing a dead letter", deleted).remove(0)?;
                kept.remove(&key);
            }
        }
    }

    fn buried(&self, message: SdkMessage) -> Result<DeliveredLetter, QueueError> {
        let [stage, reason] = [STAGE, REASON].map(|name| attribute(&message, name).unwrap_or_default().to_owned());
        let handle = message.receipt_handle().unwrap_or_default().to_owned();
        let Delivery { id, key, body, sent, .. } = self.delivery(message)?;
        let letter = Buried { id, body, why: DeadLetter { stage, reason }, since: sent, is_whole: true };
        Ok(DeliveredLetter { key, handle, letter })
    }

    /// The visible, delayed and leased messages.
    async fn counts(&self, queue: &QueueTarget) -> Result<[u64; 3], QueueError> {
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesDelayed,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        ];
        let asking = self.service.client.get_queue_attributes().queue_url(&queue.url);
        let asking = asking.set_attribute_names(Some(names.to_vec())).send();
        let told = self.service.answered("counting", Duration::ZERO, asking).await?.attributes.unwrap_or_default();
        Ok(names.map(|name| told.get(&name).and_then(|count| count.parse().ok()).unwrap_or(0)))
    }
}

fn attributes(message: &Message) -> Attributes {
    vec![(ID, message.id.clone())]
}

/// A dead letter, with SQS' id of it and the handle of this delivery.
struct DeliveredLetter {
    key: String,
    handle: String,
    letter: Buried,
}

/// The attributes of a copy about its message.
fn notes(delivery: &Delivery) -> Attributes {
    let mut notes = Attributes::new();
    if delivery.received > 0 {
        notes.push((RECEIVED, delivery.received.to_string()));
    }
    if let Some(since) = delivery.failing_since {
        let seconds = since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        notes.push((FAILING_SINCE, seconds.to_string()));
    }
    notes
}

/// Packs the indexes of `sizes` into requests that are as full as possible.
fn packed(places: impl Iterator<Item = usize>, sizes: &[usize]) -> Vec<Vec<usize>> {
    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut bytes = 0;
    for at in places {
        bytes += sizes[at];
        match batches.last_mut() {
            Some(batch) if batch.len() < BATCH && bytes <= BATCH_BYTES => batch.push(at),
            _ => {
                batches.push(vec![at]);
                bytes = sizes[at];
            }
        }
    }
    batches
}

/// Rounds up to whole seconds.
fn seconds(time: Duration) -> i32 {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

#[async_trait]
impl JobQueue for SqsQueue {
    fn name(&self) -> &str {
        &self.jobs.name
    }

    fn lease(&self) -> Duration {
        self.lease
    }

    fn max_receive(&self) -> u32 {
        self.max_receive
    }

    async fn send(&self, messages: &[Message]) -> Vec<Result<Sent, QueueError>> {
        let mut results = vec![Ok(Sent::Stored); messages.len()];
        let mut sizes = vec![0; messages.len()];
        for (at, message) in messages.iter().enumerate() {
            match self.check(message) {
                Ok(bytes) => sizes[at] = bytes,
                Err(error) => results[at] = Err(error),
            }
        }
        let fit = (0..messages.len()).filter(|&at| results[at].is_ok());
        let batches = packed(fit, &sizes);
        let mut sending = Vec::new();
        for batch in &batches {
            sending.push(self.send_batch(batch.iter().map(|&at| &messages[at])));
        }
        let outcomes: Vec<_> = stream::iter(sending).buffered(AT_ONCE).collect().await;
        for (batch, outcome) in batches.iter().zip(outcomes) {
            // SQS does not say which messages it drops as duplicates.
            for (&at, result) in batch.iter().zip(self.results(batch.len(), "sending", outcome)) {
                results[at] = result.map(|()| Sent::Stored);
            }
        }
        results
    }

    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let mut received = self.first(max.min(BATCH), wait).await?;
        // After a full answer there may be more messages.
        if received.len() == BATCH && max > BATCH {
            let sizes =
                std::iter::successors(Some(max - BATCH), |left| left.checked_sub(BATCH)).filter(|&left| left > 0);
            let more = sizes.map(|left| self.ask_jobs(left.min(BATCH), Duration::ZERO));
            let more: Vec<_> = stream::iter(more).buffer_unordered(AT_ONCE).collect().await;
            received.extend(more.into_iter().flat_map(Result::unwrap_or_default));
        }
        Ok(received)
    }

    async fn acknowledge(&self, receipts: &[Receipt]) -> Vec<Result<(), QueueError>> {
        self.each_ten("acknowledging", receipts, |handles| self.delete(&self.jobs, handles)).await
    }

    async fn extend(&self, receipts: &[Receipt]) -> Vec<Result<(), QueueError>> {
        self.each_ten("extending the lease", receipts, |handles| self.hide(&self.jobs, handles, self.lease)).await
    }

    async fn release(&self, receipts: &[Receipt], delay: Duration) -> Vec<Result<(), QueueError>> {
        self.each_ten("releasing", receipts, |handles| self.hide(&self.jobs, handles, delay)).await
    }

    async fn renew(&self, delivery: &Delivery, delay: Duration) -> Result<(), QueueError> {
        let (_, handle) = parts(&delivery.receipt).ok_or(QueueError::LeaseLost)?;
        let message = Message { id: delivery.id.clone(), body: delivery.body.clone() };
        let delay = (!delay.is_zero()).then(|| seconds(delay.min(LONGEST_DELAY)));
        let (notes, delay) = match delay.filter(|_| self.jobs.is_fifo()) {
            Some(delay) => ([notes(delivery), vec![(DELAY, delay.to_string())]].concat(), None),
            None => (notes(delivery), delay),
        };
        self.put_back(&message, &delivery.key, notes, delay).await?;
        let deleted = self.delete(&self.jobs, vec![("0".to_owned(), handle)]).await;
        self.results(1, "removing a copied message", deleted).remove(0)
    }

    async fn dead_letter(&self, delivery: &Delivery, why: &DeadLetter) -> Result<(), QueueError> {
        let (message_id, handle) = parts(&delivery.receipt).ok_or(QueueError::LeaseLost)?;
        let body = text(&delivery.body).map_err(|reason| self.service.refused(reason))?;
        let attributes = to_sdk(&dead_attributes(delivery, why, self.dead.largest));
        let mut sending = self.service.client.send_message().queue_url(&self.dead.url).message_body(body);
        sending = sending.set_message_attributes(Some(attributes.map_err(|error| self.malformed(&error))?));
        if self.dead.is_fifo() {
            // Not the id: a message that is sent again and fails again is another dead letter.
            sending = sending.message_deduplication_id(message_id).message_group_id(message_id);
        }
        let doing = format!("sending to {}", self.dead.name);
        self.service.answered(&doing, Duration::ZERO, sending.send()).await?;
        let deleted = self.delete(&self.jobs, vec![("0".to_owned(), handle)]).await;
        self.results(1, "removing a dead letter", deleted).remove(0)
    }

    async fn review(&self, judge: &mut Judge<'_>) -> Result<(), QueueError> {
        let mut kept = BTreeMap::new();
        let reviewed = self.judge_all(judge, &mut kept).await;
        let handles: Vec<_> = kept.values().enumerate().map(|(at, handle)| (at.to_string(), handle.as_str())).collect();
        for ten in handles.chunks(BATCH) {
            // They also come into view by themselves.
            let _ = self.hide(&self.dead, ten.to_vec(), Duration::ZERO).await;
        }
        reviewed
    }

    async fn depth(&self) -> Result<Depth, QueueError> {
        let [waiting, delayed, leased] = self.counts(&self.jobs).await?;
        let [dead, dead_delayed, dead_leased] = self.counts(&self.dead).await?;
        Ok(Depth { waiting: waiting + delayed, leased, dead: dead + dead_delayed + dead_leased })
    }
}

impl std::fmt::Debug for SqsQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqsQueue").field("queue", &self.jobs.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_as_full_as_they_may_be() {
        let sizes = [&[100 << 10; 4][..], &[10; 12], &[300 << 10, 10]].concat();
        let batches = packed((0..sizes.len()).filter(|&at| at != 3), &sizes);
        let expected: [&[usize]; 4] = [&[0, 1], &[2, 4, 5, 6, 7, 8, 9, 10, 11, 12], &[13, 14, 15], &[16]];
        assert_eq!(batches[..4], expected);
        assert_eq!(batches[4], [17]);
    }

    #[test]
    fn time_is_never_cut_short() {
        assert_eq!([0, 1, 1000, 1001].map(|millis| seconds(Duration::from_millis(millis))), [0, 1, 1, 2]);
    }
}
