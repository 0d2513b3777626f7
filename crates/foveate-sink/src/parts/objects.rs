//! Changes to the objects below a prefix.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use bytes::Bytes;

use crate::publish::remove_if_there;
use crate::staging::Steps;
use crate::{Prefix, SinkError};

/// Largest object that every store takes in one request: 5000 MiB is Azure's limit, 5 GiB that of S3.
pub(super) const MOST_OBJECT: u64 = 5000 << 20;

/// Attempts to create an object that exists and cannot be read, because another writer creates or removes it.
const ATTEMPTS: u32 = 5;
const WAIT: Duration = Duration::from_millis(200);

/// A prefix, and who learns of each change before it is made.
#[derive(Clone)]
pub(super) struct Objects {
    pub(super) prefix: Arc<dyn Prefix>,
    steps: Arc<Mutex<Steps>>,
}

impl Objects {
    pub(super) fn new(prefix: Arc<dyn Prefix>, steps: Steps) -> Self {
        Self { prefix, steps: Arc::new(Mutex::new(steps)) }
    }

    pub(super) fn address(&self, name: &str) -> PathBuf {
        Path::new(self.prefix.address()).join(name)
    }

    /// Announces a change.
    pub(super) fn step(&self, name: &'static str) {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).step(name);
    }

    pub(super) fn remove(&self, name: &str) -> Result<(), SinkError> {
        self.step("remove");
        self.prefix.remove(name)
    }

    /// Creates an object. One that is there must have the same content.
    fn put(&self, step: &'static str, name: &str, content: Bytes) -> Result<(), SinkError> {
        self.step(step);
        for _ in 0..ATTEMPTS {
            if self.prefix.create(name, content.clone())? {
                return Ok(());
            }
            match self.prefix.read(name)? {
                Some(found) if found == content => return Ok(()),
                Some(_) => break,
                None => thread::sleep(WAIT),
            }
        }
        Err(SinkError::Differs(self.address(name)))
    }

    /// Creates an object with a file's name and content.
    pub(super) fn put_file(&self, step: &'static str, path: &Path) -> Result<(), SinkError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let bytes = fs::metadata(path).map_err(SinkError::io("read", path))?.len();
        if bytes > MOST_OBJECT {
            let reason = format!("{name} has {bytes} bytes, more than a store takes in one request");
            return Err(SinkError::Unsupported(reason));
        }
        let content = fs::read(path).map_err(SinkError::io("read", path))?;
        self.put(step, &name, content.into())
    }

    /// Moves a part's files here, and then creates its record.
    pub(super) fn put_part(&self, files: &[PathBuf], name: &str, record: Bytes) -> Result<(), SinkError> {
        for path in files {
            self.put_file("part", path)?;
            remove_if_there(path)?;
        }
        self.put("part's record", name, record)
    }
}
