//! Files read in pieces: containers.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::{Buf, Bytes};
use foveate_source::FetchError;
use foveate_source::blob::Blob;
use foveate_source::store::{Object, ReadAhead, Version};

use crate::ahead::WebAhead;
use crate::site::{WebSites, shown};

/// Size of the parts of a stream.
const PART: u64 = 8 << 20;

/// Parts of one stream in flight.
const PARALLEL: usize = 4;

/// A file of known length.
pub(crate) struct WebBlob {
    web: Arc<WebSites>,
    object: Object,
    name: String,
    len: u64,
}

impl WebBlob {
    /// Asks for the file's length if that is not known yet.
    pub(crate) fn open(web: &Arc<WebSites>, object: &Object) -> Result<Self, FetchError> {
        let mut object = object.clone();
        if object.version.len.is_none() {
            // The first byte tells the length of files that are made when they are asked for, of which HEAD may not.
            let mut first = Vec::new();
            let asked = web.part(&object.address, &object.version, 0..1, &mut first);
            object.version = web.runtime().block_on(asked)?;
        }
        let name = shown(&object.address);
        let len = object.version.len.ok_or_else(|| {
            FetchError::Refused(format!("{name}: the server does not say how long the file is; copy it first"))
        })?;
        Ok(Self { web: Arc::clone(web), object, name, len })
    }
}

impl Blob for WebBlob {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Option<u64> {
        Some(self.len)
    }

    fn modified(&self) -> Option<SystemTime> {
        self.object.version.modified
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), FetchError> {
        let end = offset.saturating_add(out.len() as u64);
        if end > self.len {
            return Err(FetchError::Damaged(format!("it ends before byte {end}")));
        }
        if !out.is_empty() {
            let mut bytes = Vec::new();
            let asked = self.web.part(&self.object.address, &self.object.version, offset..end, &mut bytes);
            self.web.runtime().block_on(asked)?;
            out.copy_from_slice(&bytes);
        }
        Ok(())
    }

    fn stream(&self, offset: u64) -> Result<Box<dyn Read + Send>, FetchError> {
        let ahead = WebAhead::new(&self.web, PARALLEL);
        let object = self.object.clone();
        Ok(Box::new(PartsAhead { ahead, object, left: offset.min(self.len)..self.len, coming: 0, bytes: Bytes::new() }))
    }
}

/// Reads ahead, several parts at a time.
struct PartsAhead {
    ahead: WebAhead,
    object: Object,
    /// The bytes that are not asked for yet.
    left: Range<u64>,
    /// Parts that were asked for and not taken.
    coming: usize,
    /// Bytes that came and are not read yet.
    bytes: Bytes,
}

impl Read for PartsAhead {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.bytes.is_empty() {
            while self.coming < PARALLEL && !self.left.is_empty() {
                let end = self.left.end.min(self.left.start + PART);
                self.ahead.begin(self.object.clone(), Some(self.left.start..end));
                self.left.start = end;
                self.coming += 1;
            }
            if self.coming == 0 {
                return Ok(0);
            }
            let (bytes, _): (Bytes, Version) = self.ahead.take()?;
            self.coming -= 1;
            self.bytes = bytes;
        }
        let count = out.len().min(self.bytes.len());
        self.bytes.copy_to_slice(&mut out[..count]);
        Ok(count)
    }
}
