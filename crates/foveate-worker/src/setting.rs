/// A setting of a worker that keeps it from finishing a message which another worker could finish.
///
/// Such a message is given back, never dead-lettered: its sender did nothing wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Setting {
    /// The job names a callback, and the worker posts none.
    Callbacks,
    /// The worker may not call this callback's host or port.
    CallbackHost,
    /// The callback's address is http, and the worker posts to https only.
    CallbackHttp,
    /// The callback's host has a private address, which the worker may not request.
    CallbackPrivate,
    /// The worker may not request the image's host. Addresses of images are untrusted input, so this counts as a
    /// setting only until the worker has processed an image.
    ImageHost,
    /// The image is an object, and the worker reads none.
    Objects,
    /// The job names no callback, and the worker has no sink.
    Sink,
    /// The message is a notification of an object store, and the worker takes none.
    StoreEvents,
    /// The worker has no task of this name.
    Task,
    /// The input is a text, and the task takes images alone.
    Texts,
}
