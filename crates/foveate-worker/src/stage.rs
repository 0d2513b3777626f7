use std::fmt;

/// A stage that an image, or the message that names it, passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// A message was received from its queue.
    Receive,
    /// A message becomes a job.
    Parse,
    /// A job is sent to a queue.
    Queue,
    /// The image is downloaded, or read from an object store.
    Download,
    /// The task prepares the image.
    Preprocess,
    /// The task processes a batch.
    Process,
    /// A part of `Preprocess` or `Process` that the task names, such as `decode` or `resize`.
    Within(&'static str),
    /// The sink stores the vector.
    Sink,
    /// The result is posted to the job's callback.
    Callback,
    /// The deadline of a request passed.
    Timeout,
    /// The caller went away.
    Cancelled,
    /// The service stopped.
    Shutdown,
}

impl Stage {
    /// The name in logs, metrics, dead letters and answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Parse => "parse",
            Self::Queue => "queue",
            Self::Download => "download",
            Self::Preprocess => "preprocess",
            Self::Process => "process",
            Self::Within(name) => name,
            Self::Sink => "sink",
            Self::Callback => "callback",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Shutdown => "shutdown",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
