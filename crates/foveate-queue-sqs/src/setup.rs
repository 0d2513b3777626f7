//! Finds or creates the queue and the dead letters' queue, and checks them.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_sqs::types::QueueAttributeName;
use foveate_queue::{QueueError, QueueOptions};
use serde_json::Value;

use crate::client::{SqsService, is_missing};
use crate::options::{SqsOptions, is_fifo};

/// The lease if neither the options nor the queue have one.
const LEASE: Duration = Duration::from_secs(30);
/// SQS' longest retention; the default is four days.
const RETENTION: Duration = Duration::from_secs(14 * 24 * 3600);
/// The largest message of every service.
const USUAL_LARGEST: usize = 256 << 10;

/// A queue and its URL.
pub(crate) struct QueueTarget {
    pub(crate) name: String,
    pub(crate) url: String,
    /// Most bytes of a message, attributes included.
    pub(crate) largest: usize,
}

impl QueueTarget {
    pub(crate) fn is_fifo(&self) -> bool {
        is_fifo(&self.name)
    }
}

/// A queue and its dead letters' queue, with the lease of its messages.
pub(crate) struct FoundQueues {
    pub(crate) jobs: QueueTarget,
    pub(crate) dead: QueueTarget,
    pub(crate) lease: Duration,
}

/// Finds both queues, and creates missing ones if the options say so.
pub(crate) async fn set_up(service: &SqsService, options: &SqsOptions) -> Result<FoundQueues, QueueError> {
    let setup = QueueSetup { service, options };
    let url = match &options.url {
        Some(url) => url.clone(),
        None => setup.url(&options.name).await?,
    };
    let has = setup.attributes(&url).await?;
    let redrive = Redrive::read(&has);
    if let Some(redrive) = &redrive {
        setup.check_redrive(redrive)?;
    }
    let dead = match (&options.dead_letter, redrive) {
        (Some(name), _) => name.clone(),
        (None, Some(redrive)) => redrive.target,
        (None, None) => options.usual_dead_letter(),
    };
    let lease = setup.lease(&has)?;
    let jobs = QueueTarget { name: options.name.clone(), url, largest: largest(&has) };
    let url = setup.url(&dead).await?;
    let largest = largest(&setup.attributes(&url).await?);
    let dead = QueueTarget { name: dead, url, largest };
    setup.check_room(&jobs, &dead)?;
    Ok(FoundQueues { jobs, dead, lease })
}

type Attributes = HashMap<QueueAttributeName, String>;

fn largest(attributes: &Attributes) -> usize {
    let told = attributes.get(&QueueAttributeName::MaximumMessageSize).and_then(|bytes| bytes.parse().ok());
    told.unwrap_or(USUAL_LARGEST)
}

/// The redrive policy: SQS moves messages away after too many deliveries.
struct Redrive {
    /// The name of its target queue.
    target: String,
    after: u64,
}

impl Redrive {
    fn read(attributes: &Attributes) -> Option<Self> {
        let policy: Value = serde_json::from_str(attributes.get(&QueueAttributeName::RedrivePolicy)?).ok()?;
        // A number, or a number as text.
        let after = &policy["maxReceiveCount"];
        let after = after.as_u64().or_else(|| after.as_str()?.parse().ok())?;
        let target = policy["deadLetterTargetArn"].as_str()?.rsplit(':').next()?.to_owned();
        Some(Self { target, after })
    }
}

struct QueueSetup<'a> {
    service: &'a SqsService,
    options: &'a SqsOptions,
}

impl QueueSetup<'_> {
    async fn url(&self, queue: &str) -> Result<String, QueueError> {
        let doing = format!("looking for queue {queue}");
        let asked = self.service.client.get_queue_url().queue_name(queue).send();
        let asking = async {
            match asked.await {
                Err(error) if is_missing(&error) => Ok(None),
                other => other.map(Some),
            }
        };
        match self.service.answered(&doing, Duration::ZERO, asking).await? {
            Some(found) => self.some_url(&doing, found.queue_url),
            None => self.make(queue).await,
        }
    }

    fn some_url(&self, doing: &str, url: Option<String>) -> Result<String, QueueError> {
        url.ok_or_else(|| self.service.refused(format!("{doing}: the answer has no address")))
    }

    async fn make(&self, queue: &str) -> Result<String, QueueError> {
        if !self.options.create {
            let what = format!("queue {queue} for this account and region");
            return Err(QueueError::Absent { queue: self.options.name.clone(), what });
        }
        let lease = self.options.lease.unwrap_or(LEASE).as_secs();
        let mut making = self
            .service
            .client
            .create_queue()
            .queue_name(queue)
            .attributes(QueueAttributeName::VisibilityTimeout, lease.to_string())
            .attributes(QueueAttributeName::MessageRetentionPeriod, RETENTION.as_secs().to_string());
        if is_fifo(queue) {
            making = making.attributes(QueueAttributeName::FifoQueue, "true");
        }
        let doing = format!("making queue {queue}");
        let made = self.service.answered(&doing, Duration::ZERO, making.send()).await?;
        self.some_url(&doing, made.queue_url)
    }

    async fn attributes(&self, url: &str) -> Result<Attributes, QueueError> {
        let asked = self.service.client.get_queue_attributes().queue_url(url);
        let asked = asked.attribute_names(QueueAttributeName::All).send();
        let told = self.service.answered("asking for its attributes", Duration::ZERO, asked).await?;
        Ok(told.attributes.unwrap_or_default())
    }

    /// The queue's lease, unless the options have one, which is requested with every message.
    fn lease(&self, has: &Attributes) -> Result<Duration, QueueError> {
        let timeout = has.get(&QueueAttributeName::VisibilityTimeout).and_then(|seconds| seconds.parse().ok());
        let lease = self.options.lease.or(timeout.map(Duration::from_secs)).unwrap_or(LEASE);
        if lease.is_zero() {
            return Err(QueueError::Lease("the queue's visibility timeout is 0".to_owned()));
        }
        Ok(lease)
    }

    /// Every message must fit the dead letters' queue.
    fn check_room(&self, jobs: &QueueTarget, dead: &QueueTarget) -> Result<(), QueueError> {
        if dead.largest >= jobs.largest {
            return Ok(());
        }
        Err(self.service.refused(format!(
            "queue {} takes dead letters of up to {} bytes (MaximumMessageSize), but queue {} takes messages of up to {}; raise the one to at least that, or lower the other",
            dead.name, dead.largest, jobs.name, jobs.largest
        )))
    }

    /// A message that SQS moves away has no stage and reason, and is not reported.
    fn check_redrive(&self, redrive: &Redrive) -> Result<(), QueueError> {
        let after = redrive.after;
        let most = self.options.max_receive.saturating_add(QueueOptions::CHANCES);
        if after > u64::from(most) {
            return Ok(());
        }
        Err(self.service.refused(format!(
            "its redrive policy moves a message away after {after} deliveries (maxReceiveCount), before a worker gives it up after {most}, with stage and reason; raise it above {most}, or give messages up sooner"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redrive_policies_are_read_as_they_are_written() {
        let read = |policy: &str| {
            let attributes = [(QueueAttributeName::RedrivePolicy, policy.to_owned())].into();
            Redrive::read(&attributes).map(|redrive| (redrive.target, redrive.after))
        };
        let policy = r#"{"deadLetterTargetArn":"arn:aws:sqs:eu-central-1:1:dead","maxReceiveCount":3}"#;
        assert_eq!(read(policy), Some(("dead".to_owned(), 3)));
        assert_eq!(read(&policy.replace("3}", "\"3\"}")), Some(("dead".to_owned(), 3)));
        assert_eq!(read(""), None);
        assert_eq!(Redrive::read(&Attributes::new()).map(|redrive| redrive.after), None);
    }
}
