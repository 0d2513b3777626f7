use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use foveate_core::{Health, Registry, known_settings, named_backend};

use crate::{JobQueue, QueueError};

/// A queue's address and settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// The queue's address, whose scheme is the backend's name: `nats://host:4222/stream`, `sqs://queue`.
    pub address: String,
    /// The length of a lease. `None` takes the queue's own, or 30 seconds if the queue is created.
    pub lease: Option<Duration>,
    /// Deliveries after which the worker moves a message to the dead letters.
    pub max_receive: u32,
    /// True if a missing queue and its dead letters' queue are created.
    pub create: bool,
    /// The backend's own settings by name, such as `region` of `sqs`; see [`Self::settings`].
    pub settings: BTreeMap<String, String>,
}

impl QueueOptions {
    /// The default of [`max_receive`](Self::max_receive).
    pub const DEFAULT_MAX_RECEIVE: u32 = 5;
    /// Deliveries beyond [`max_receive`](Self::max_receive). In these, workers find out which of the messages that they
    /// held together is the poison message. A broker's own delivery limit must allow for them.
    pub const CHANCES: u32 = 3;

    /// The existing queue at `address`, as it is configured.
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            lease: None,
            max_receive: Self::DEFAULT_MAX_RECEIVE,
            create: false,
            settings: BTreeMap::new(),
        }
    }

    /// The address's scheme: the name of its backend.
    ///
    /// # Errors
    /// [`QueueError::Options`] if it has none.
    pub fn scheme(&self) -> Result<&str, QueueError> {
        match self.address.split_once("://") {
            // Amazon's tools show the URLs of SQS queues.
            Some(("http" | "https", _)) => Ok("sqs"),
            Some((scheme, _)) => Ok(scheme),
            None => Err(QueueError::Options(format!(
                "'{}' names no queue; it looks like nats://host/stream or sqs://queue",
                self.address
            ))),
        }
    }

    /// The settings, after checking that the backend knows (`known`) each of them.
    ///
    /// # Errors
    /// [`QueueError::Options`], which names the unknown setting and the known ones.
    pub fn settings(&self, known: &[&str]) -> Result<&BTreeMap<String, String>, QueueError> {
        known_settings(&self.settings, known).map_err(QueueError::Options)
    }
}

/// A connection in the making. See [`QueueBackend::open`].
pub type OpenFuture<'a> = Pin<Box<dyn Future<Output = Result<Box<dyn JobQueue>, QueueError>> + Send + 'a>>;

type Open = dyn Fn(&QueueOptions) -> OpenFuture<'_> + Send + Sync;

/// A named kind of broker.
pub struct QueueBackend {
    name: &'static str,
    about: &'static str,
    health: fn() -> Health,
    open: Box<Open>,
}

impl QueueBackend {
    /// A backend called `name`, which is the scheme of its addresses too; `open` connects to one queue.
    pub fn new<F>(name: &'static str, about: &'static str, open: F) -> Self
    where
        F: Fn(&QueueOptions) -> OpenFuture<'_> + Send + Sync + 'static,
    {
        Self { name, about, health: Health::all_rust, open: Box::new(open) }
    }

    /// Connects to a queue, on the runtime that awaits it. The queue works while this runtime lasts.
    ///
    /// # Errors
    /// If the broker does not answer, the queue does not exist (and is not to be created), or the options contradict
    /// each other.
    pub async fn open(&self, options: &QueueOptions) -> Result<Box<dyn JobQueue>, QueueError> {
        (self.open)(options).await
    }
}

named_backend!(QueueBackend);

/// The brokers compiled into a program.
pub type QueueRegistry = Registry<QueueBackend>;
