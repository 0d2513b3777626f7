use std::fs::{self, FileType};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::id::to_path;
use crate::version::Version;
use crate::{Fetch, FetchError, Item};

/// The default limit on one file's bytes: 256 MiB.
pub const DEFAULT_MAX_BYTES: u64 = 256 << 20;

/// Reads items whose locator is a path (a [`Listing`](crate::Listing)'s). Regular files only: a pipe or a device is
/// refused before it is opened, because opening one may block forever.
#[derive(Clone, Debug)]
pub struct FileFetch {
    max_bytes: u64,
}

impl FileFetch {
    /// Refuses files of more than `max_bytes`.
    pub fn new(max_bytes: u64) -> Self {
        Self { max_bytes }
    }

    /// The file path of a [`Listing`](crate::Listing)'s item.
    pub fn path(item: &Item) -> PathBuf {
        to_path(&item.locator)
    }

    fn read(&self, path: &Path, out: &mut Vec<u8>) -> Result<(), FetchError> {
        let file = open_regular(path)?;
        let data = file.metadata()?;
        self.check_len(data.len())?;
        // A spare byte lets the read find the end without growing `out`. The length is only a hint: the file may be
        // growing, shrinking, or of a kind that reports 0 (under /proc).
        out.try_reserve(usize::try_from(data.len()).unwrap_or(usize::MAX).saturating_add(1))
            .map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error))?;
        file.take(self.max_bytes.saturating_add(1)).read_to_end(out)?; // continues after interruptions
        self.check_len(out.len() as u64)
    }

    fn check_len(&self, bytes: u64) -> Result<(), FetchError> {
        if bytes > self.max_bytes { Err(FetchError::TooLarge { bytes, limit: self.max_bytes }) } else { Ok(()) }
    }
}

impl Fetch for FileFetch {
    fn fetch(&mut self, item: &Item, out: &mut Vec<u8>) -> Result<(), FetchError> {
        out.clear();
        let result = self.read(&Self::path(item), out);
        if result.is_err() {
            out.clear();
        }
        result
    }

    fn version(&mut self, item: &Item) -> Version {
        match fs::metadata(Self::path(item)) {
            Ok(data) => Version::of_file(&data),
            Err(_) => Version::default(),
        }
    }
}

/// Opens a regular file; opening anything else might wait for ever.
pub(crate) fn open_regular(path: &Path) -> Result<fs::File, FetchError> {
    check_regular(fs::metadata(path)?.file_type())?;
    let file = fs::File::open(path)?;
    check_regular(file.metadata()?.file_type())?; // it may have been replaced in between
    Ok(file)
}

fn check_regular(kind: FileType) -> Result<(), FetchError> {
    if kind.is_file() { Ok(()) } else { Err(FetchError::NotAFile(describe(kind).to_owned())) }
}

fn describe(kind: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return "a named pipe";
        }
        if kind.is_socket() {
            return "a socket";
        }
        if kind.is_block_device() || kind.is_char_device() {
            return "a device";
        }
    }
    if kind.is_dir() { "a folder" } else { "of an unknown kind" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetch(max_bytes: u64, path: &Path, out: &mut Vec<u8>) -> Result<(), FetchError> {
        let locator = crate::id::to_bytes(path);
        let item = Item { id: path.display().to_string(), locator, ..Item::default() };
        FileFetch::new(max_bytes).fetch(&item, out)
    }

    #[test]
    fn only_what_may_change_is_transient() {
        let io = |kind: io::ErrorKind| FetchError::Io(kind.into());
        assert!(FetchError::Unreachable(String::new()).is_transient() && io(io::ErrorKind::TimedOut).is_transient());
        assert!(!io(io::ErrorKind::NotFound).is_transient());
        for error in [FetchError::NotFound(String::new()), FetchError::Refused(String::new())] {
            assert!(!error.is_transient());
        }
    }

    #[test]
    fn bytes_replace_what_was_there_and_memory_is_kept() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), [7; 1000]).unwrap();
        let mut out = Vec::with_capacity(1001);
        out.extend([1; 900]);
        let memory = out.as_ptr();
        fetch(1000, file.path(), &mut out).unwrap();
        assert_eq!(out, [7; 1000]);
        assert_eq!((out.as_ptr(), out.capacity()), (memory, 1001));
    }

    #[test]
    fn the_limit_is_exact_and_leaves_nothing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), [7; 1000]).unwrap();
        let mut out = vec![1; 10];
        let error = fetch(999, file.path(), &mut out).unwrap_err();
        assert!(matches!(error, FetchError::TooLarge { bytes: 1000, limit: 999 }));
        assert!(out.is_empty());
        fetch(1000, file.path(), &mut out).unwrap();
        fetch(u64::MAX, file.path(), &mut out).unwrap();
        assert_eq!(out.len(), 1000);
    }

    #[test]
    fn missing_files_and_folders_are_faults_that_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut out = vec![1; 10];
        assert!(matches!(fetch(10, &dir.path().join("none"), &mut out), Err(FetchError::Io(_))));
        assert!(out.is_empty());
        out.push(1);
        let error = fetch(10, dir.path(), &mut out).unwrap_err();
        assert_eq!(error.to_string(), "not a regular file (a folder)");
        assert!(out.is_empty());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn files_that_say_they_are_empty_are_read_and_limited() {
        let mut out = Vec::new();
        fetch(1 << 20, Path::new("/proc/self/status"), &mut out).unwrap();
        assert!(out.starts_with(b"Name:"));
        assert!(matches!(fetch(10, Path::new("/proc/self/status"), &mut out), Err(FetchError::TooLarge { .. })));
        assert!(out.is_empty());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn devices_are_refused() {
        let error = fetch(10, Path::new("/dev/zero"), &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "not a regular file (a device)");
    }

    #[cfg(unix)]
    #[test]
    fn pipes_are_refused_without_waiting_for_a_writer() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe.jpg");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.is_ok_and(|status| status.success()), "mkfifo is part of every Unix");
        let error = fetch(10, &pipe, &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "not a regular file (a named pipe)");
    }
}
