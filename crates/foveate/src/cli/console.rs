//! Printing. Every command prints through this module.
//!
//! Standard output and standard error may be closed, full, or a pipe that nobody reads. Printing never panics, and a
//! reader that went away is no error. A pipe that nobody reads blocks the program only until a signal asks it to stop.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
#[cfg(unix)]
use std::os::fd::AsFd;
#[cfg(windows)]
use std::os::windows::io::AsHandle as AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Prints one line on standard error.
macro_rules! say {
    ($($text:tt)*) => { $crate::cli::console::line(format_args!($($text)*)) };
}
pub(crate) use say;

/// Set by the first signal.
static STOPPING: AtomicBool = AtomicBool::new(false);

/// From now on, printing does not wait for a reader.
pub(crate) fn stop_waiting() {
    STOPPING.store(true, Ordering::SeqCst);
}

/// Prints one line on standard error. Ignores errors, because no place is left to report them.
pub(crate) fn line(text: impl Display) {
    let _ = Console(io::stderr()).write_all(format!("{text}\n").as_bytes());
}

/// Set if standard output is for a table.
static KEEPING_STDOUT: AtomicBool = AtomicBool::new(false);

/// From now on, summaries are on standard error: standard output is for a table.
#[cfg(feature = "search")]
pub(crate) fn keep_stdout() {
    KEEPING_STDOUT.store(true, Ordering::SeqCst);
}

/// Prints the summary of finished work on standard output. An error is a warning, because the work is done.
pub(crate) fn summary(text: impl Display) {
    if KEEPING_STDOUT.load(Ordering::SeqCst) {
        return line(text);
    }
    if let Err(error) = stdout().write_all(format!("{text}\n").as_bytes()) {
        say!("warning: {error}");
    }
}

/// Returns standard output, for a command whose result is what it prints.
pub(crate) fn stdout() -> impl Write {
    Console(io::stdout())
}

/// Bytes that a pipe with room for any takes without blocking: the least `PIPE_BUF` that POSIX allows.
const ROOM: usize = 512;

/// One of the two streams.
struct Console<S>(S);

impl<S: Write + AsFd> Write for Console<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !has_room(&self.0) {
            return Ok(bytes.len());
        }
        let piece = &bytes[..bytes.len().min(ROOM)];
        self.0.write(piece).or_else(|error| unless_closed(error, bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().or_else(|error| unless_closed(error, ()))
    }
}

/// Drops the rest quietly if the reader went away.
fn unless_closed<T>(error: io::Error, dropped: T) -> io::Result<T> {
    match error.kind() {
        ErrorKind::BrokenPipe => Ok(dropped),
        ErrorKind::Interrupted => Err(error),
        kind => Err(io::Error::new(kind, format!("cannot print: {error}"))),
    }
}

/// Waits for room. Returns false if there is none and a signal asks the program to stop.
#[cfg(unix)]
fn has_room(stream: &impl AsFd) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    loop {
        let mut wanted = [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)];
        let polled = poll(&mut wanted, PollTimeout::from(100_u8));
        if let Some(has_room) = judge(polled, STOPPING.load(Ordering::SeqCst)) {
            return has_room;
        }
    }
}

/// The result of one poll, or `None` to poll again. The signal that asks the program to stop also interrupts a poll,
/// which then tells nothing about room: a write would wait for ever.
#[cfg(unix)]
fn judge(polled: nix::Result<i32>, is_stopping: bool) -> Option<bool> {
    match polled {
        Ok(0) => is_stopping.then_some(false),
        Err(nix::errno::Errno::EINTR) => None,
        // The write finds what is wrong with the stream.
        _ => Some(true),
    }
}

#[cfg(not(unix))]
fn has_room(_: &impl AsFd) -> bool {
    true
}

#[cfg(all(test, unix))]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn an_interrupted_poll_tells_nothing_about_room() {
        for is_stopping in [false, true] {
            assert_eq!(judge(Err(Errno::EINTR), is_stopping), None);
            assert_eq!(judge(Ok(1), is_stopping), Some(true));
            assert_eq!(judge(Err(Errno::EBADF), is_stopping), Some(true));
        }
        assert_eq!([false, true].map(|is_stopping| judge(Ok(0), is_stopping)), [None, Some(false)]);
    }
}
