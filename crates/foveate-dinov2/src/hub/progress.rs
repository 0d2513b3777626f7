/// Learns how a download goes. The program shows it; the library prints nothing.
pub trait Progress {
    /// `done` of `total` bytes of `file` are here. Called at the start (above 0 when resumed), often, and at the end.
    fn bytes(&self, file: &str, done: u64, total: Option<u64>);

    /// Something the user should know that is no error, in one line.
    fn notice(&self, message: &str);
}

/// Progress that nobody looks at.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn bytes(&self, _file: &str, _done: u64, _total: Option<u64>) {}
    fn notice(&self, _message: &str) {}
}
