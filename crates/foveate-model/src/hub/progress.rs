use crate::Card;

/// Receives a download's progress. The program shows it; the library prints nothing.
pub trait Progress {
    /// `done` of `total` bytes of `file` are stored. Called at the start (above 0 when resumed), often, and at the end.
    fn bytes(&self, file: &str, done: u64, total: Option<u64>);

    /// A one-line notice for the user that is not an error.
    fn notice(&self, message: &str);

    /// The files of a published model are there, under the licence of its card.
    fn published(&self, _card: &Card) {}
}

/// Discards progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn bytes(&self, _file: &str, _done: u64, _total: Option<u64>) {}
    fn notice(&self, _message: &str) {}
}
