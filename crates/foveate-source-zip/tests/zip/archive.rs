//! Zip archives made byte by byte, so that every field may lie.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::SystemTime;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use foveate_source::FetchError;
use foveate_source::blob::{Blob, MemoryBlob};

/// A member, as its headers describe it.
#[derive(Clone)]
pub(crate) struct File {
    pub(crate) name: Vec<u8>,
    pub(crate) packed: Vec<u8>,
    pub(crate) method: u16,
    pub(crate) flags: u16,
    pub(crate) claimed: u32,
    pub(crate) crc: u32,
}

impl File {
    pub(crate) fn stored(name: &str, bytes: &[u8]) -> Self {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        let (name, packed) = (name.as_bytes().to_vec(), bytes.to_vec());
        Self { name, packed, method: 0, flags: 0, claimed: bytes.len() as u32, crc: crc.sum() }
    }

    pub(crate) fn deflated(name: &str, bytes: &[u8]) -> Self {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        Self { packed: encoder.finish().unwrap(), method: 8, ..Self::stored(name, bytes) }
    }

    pub(crate) fn local(&self) -> Vec<u8> {
        [b"PK\x03\x04\x14\0".as_slice(), &self.fields(), &self.name, &self.packed].concat()
    }

    fn central(&self, offset: u32) -> Vec<u8> {
        let head = b"PK\x01\x02\x14\x03\x14\0".as_slice();
        [head, &self.fields(), &[0; 10], &offset.to_le_bytes(), &self.name].concat()
    }

    /// Fields of both headers: flags, method, time, checksum, lengths.
    fn fields(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        fields.extend(self.flags.to_le_bytes());
        fields.extend(self.method.to_le_bytes());
        fields.extend(0x58a6_38e4_u32.to_le_bytes());
        fields.extend(self.crc.to_le_bytes());
        fields.extend((self.packed.len() as u32).to_le_bytes());
        fields.extend(self.claimed.to_le_bytes());
        fields.extend((self.name.len() as u16).to_le_bytes());
        fields.extend([0, 0]);
        fields
    }
}

/// An archive of these files, in this order.
pub(crate) fn zip(files: &[File]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut directory = Vec::new();
    for file in files {
        directory.push((file, bytes.len() as u32));
        bytes.extend(file.local());
    }
    end(bytes, &directory, b"")
}

/// Appends a directory that puts each file at an offset, and a comment.
pub(crate) fn end(mut bytes: Vec<u8>, directory: &[(&File, u32)], comment: &[u8]) -> Vec<u8> {
    let start = bytes.len() as u32;
    for (file, offset) in directory {
        bytes.extend(file.central(*offset));
    }
    let (count, len) = ((directory.len() as u16).to_le_bytes(), (bytes.len() as u32 - start).to_le_bytes());
    bytes.extend([b"PK\x05\x06\0\0\0\0".as_slice(), &count, &count, &len, &start.to_le_bytes()].concat());
    bytes.extend((comment.len() as u16).to_le_bytes());
    bytes.extend(comment);
    bytes
}

/// An archive in memory that counts how often it is read.
pub(crate) struct Memory {
    bytes: MemoryBlob,
    pub(crate) reads: AtomicU64,
    pub(crate) streams: AtomicU64,
}

impl Memory {
    pub(crate) fn new(bytes: impl Into<Vec<u8>>) -> Arc<Self> {
        let bytes = MemoryBlob::new("memory.zip", bytes);
        Arc::new(Self { bytes, reads: AtomicU64::new(0), streams: AtomicU64::new(0) })
    }
}

impl Blob for Memory {
    fn name(&self) -> &str {
        self.bytes.name()
    }

    fn len(&self) -> Option<u64> {
        self.bytes.len()
    }

    fn modified(&self) -> Option<SystemTime> {
        self.bytes.modified()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), FetchError> {
        self.reads.fetch_add(1, SeqCst);
        self.bytes.read_at(offset, out)
    }

    fn stream(&self, offset: u64) -> Result<Box<dyn Read + Send>, FetchError> {
        self.streams.fetch_add(1, SeqCst);
        self.bytes.stream(offset)
    }
}
