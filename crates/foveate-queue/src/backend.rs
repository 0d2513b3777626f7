use std::collections::BTreeMap;
use std::time::Duration;

use foveate_core::{Health, Registry, known_settings, named_backend};

use crate::{JobQueue, QueueError};

/// Which queue, and how it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// The queue's address, whose scheme is the backend's name: `nats://host:4222/stream`, `sqs://queue`.
    pub address: String,
    /// How long a message belongs to who received it, unless it is extended; `None` takes what the queue has, or 30
    /// seconds when it is created.
    pub lease: Option<Duration>,
    /// Deliveries after which a message is to be given up.
    pub max_receive: u32,
    /// Whether the queue and its dead letters are made when they are not there.
    pub create: bool,
    /// What only the backend understands (`region` of `sqs`), by name; see [`Self::settings`].
    pub settings: BTreeMap<String, String>,
}

impl QueueOptions {
    /// [`max_receive`](Self::max_receive) unless told otherwise.
    pub const DEFAULT_MAX_RECEIVE: u32 = 5;
    /// Deliveries beyond [`max_receive`](Self::max_receive) in which a worker finds out, among messages that were held
    /// together when workers died, which of them it was. A broker that gives up messages by itself must do so after these.
    pub const CHANCES: u32 = 3;

    /// The queue at `address`, which must be there, as it is set up.
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
    /// [`QueueError::Options`] when it has none.
    pub fn scheme(&self) -> Result<&str, QueueError> {
        self.address.split_once("://").map(|(scheme, _)| scheme).ok_or_else(|| {
            QueueError::Options(format!(
                "'{}' names no queue; it looks like nats://host/stream or sqs://queue",
                self.address
            ))
        })
    }

    /// The settings, once every one of them is among those that the backend has (`known`).
    ///
    /// # Errors
    /// [`QueueError::Options`], naming the setting and those there are.
    pub fn settings(&self, known: &[&str]) -> Result<&BTreeMap<String, String>, QueueError> {
        known_settings(&self.settings, known).map_err(QueueError::Options)
    }
}

type Open = dyn Fn(&QueueOptions) -> Result<Box<dyn JobQueue>, QueueError> + Send + Sync;

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
        F: Fn(&QueueOptions) -> Result<Box<dyn JobQueue>, QueueError> + Send + Sync + 'static,
    {
        Self { name, about, health: Health::all_rust, open: Box::new(open) }
    }

    /// Connects to a queue.
    ///
    /// # Errors
    /// When the broker does not answer, the queue is not there (and is not to be created), or the options make no sense.
    pub fn open(&self, options: &QueueOptions) -> Result<Box<dyn JobQueue>, QueueError> {
        (self.open)(options)
    }
}

named_backend!(QueueBackend);

/// The brokers compiled into a program.
pub type QueueRegistry = Registry<QueueBackend>;
