use std::time::SystemTime;

/// The reason why a message goes to the dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The stage that failed.
    pub stage: String,
    /// The reason in one line.
    pub reason: String,
}

/// A dead letter as it lies at the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buried {
    /// The message's id.
    pub id: String,
    /// Its body.
    pub body: Vec<u8>,
    /// The stage at which it failed, and the reason; empty if something else than a worker put it there.
    pub why: DeadLetter,
    /// The time at which it died, by the broker's clock, if known.
    pub since: Option<SystemTime>,
    /// True if the body is complete. [`JobQueue::dead_letter`](crate::JobQueue::dead_letter) truncates one that is too
    /// large.
    pub is_whole: bool,
}

/// The fate of a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It stays.
    Keep,
    /// It goes back to the queue with its id, as a message that was never delivered. It is durable there before it
    /// leaves the dead letters.
    PutBack,
    /// It is removed for good.
    Remove,
    /// It stays, and so do all that were not shown yet.
    End,
}

/// Decides the fate of each dead letter.
pub type Judge<'a> = dyn FnMut(&Buried) -> Fate + Send + 'a;
