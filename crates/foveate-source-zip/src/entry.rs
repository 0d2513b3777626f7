//! One image of an archive: its record in the directory, and its bytes from what is stored.

use std::io::Read;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use flate2::bufread::DeflateDecoder;
use foveate_source::store::Version;
use foveate_source::{FOREIGN_EXTENSIONS, FetchError, IMAGE_EXTENSIONS, NameFilter};
use rawzip::time::{UtcDateTime, ZipDateTimeKind};
use rawzip::{CompressionMethod, ZipFileHeaderRecord};

/// Length of a local header without its name and extra field.
pub(crate) const LOCAL_HEADER: usize = 30;

/// The start of a local header.
pub(crate) const LOCAL_SIGNATURE: &[u8; 4] = b"PK\x03\x04";

/// An image's record in the directory.
pub(crate) struct ZipEntry {
    /// Its name as in the archive.
    pub(crate) name: Box<[u8]>,
    /// The place of its local header.
    pub(crate) offset: u64,
    /// Bytes in the archive.
    pub(crate) packed: u64,
    /// Bytes of the image, as the directory claims.
    claimed: u64,
    modified: u64,
    crc: u32,
    method: CompressionMethod,
    encrypted: bool,
    overlaps: bool,
}

impl ZipEntry {
    /// Returns the entry of a record, whose local header is at `offset`, if it is an image by its name.
    pub(crate) fn of_image(record: &ZipFileHeaderRecord<'_>, offset: u64, names: &NameFilter) -> Option<Self> {
        let path = record.file_path();
        let name = path.as_bytes();
        (is_image(name) && names.takes_member(name)).then(|| Self {
            name: name.into(),
            offset,
            packed: record.compressed_size_hint(),
            claimed: record.uncompressed_size_hint(),
            modified: seconds(&record.last_modified()),
            crc: record.crc32(),
            method: record.compression_method(),
            encrypted: record.flags().is_encrypted(),
            overlaps: false,
        })
    }

    /// Marks the entries that share bytes with others, as only bombs have. `entries` are in the order of their
    /// offsets.
    pub(crate) fn mark_overlaps(entries: &mut [Self]) {
        let mut end = 0;
        let mut last = 0;
        for at in 0..entries.len() {
            if at > 0 && entries[at].offset < end {
                entries[at].overlaps = true;
                entries[last].overlaps = true;
            }
            if entries[at].end() > end {
                (end, last) = (entries[at].end(), at);
            }
        }
    }

    /// One past the last byte that it has at least.
    fn end(&self) -> u64 {
        self.offset.saturating_add(LOCAL_HEADER as u64 + self.name.len() as u64).saturating_add(self.packed)
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + self.name.len()
    }

    /// Its length and time of modification. An archive may have the local time alone, without the time zone; it is
    /// taken for UTC.
    pub(crate) fn version(&self) -> Version {
        Version { len: Some(self.claimed), modified: time(self.modified), tag: None }
    }

    /// Checks what is known before reading it from an archive of `len` bytes.
    pub(crate) fn check(&self, len: u64, max_bytes: u64) -> Result<(), FetchError> {
        let bytes = self.claimed.max(self.packed);
        if self.encrypted {
            return Err(FetchError::Refused("it is encrypted".to_owned()));
        }
        if ![CompressionMethod::STORE, CompressionMethod::DEFLATE].contains(&self.method) {
            let why = format!("it is compressed with method {}; only stored and deflated files are read", self.method);
            return Err(FetchError::Refused(why));
        }
        if bytes > max_bytes {
            return Err(FetchError::TooLarge { bytes, limit: max_bytes });
        }
        if self.overlaps {
            return Err(FetchError::Damaged("it shares bytes of the archive with another member".to_owned()));
        }
        if self.end() > len {
            return Err(FetchError::Damaged("it lies beyond the end of the archive".to_owned()));
        }
        Ok(())
    }

    /// Returns the image of its bytes in the archive.
    pub(crate) fn unpack(&self, packed: Vec<u8>) -> Result<Bytes, FetchError> {
        let bytes = match self.method {
            CompressionMethod::STORE => packed,
            _ => inflate(&packed, self.claimed)
                .map_err(|error| FetchError::Damaged(format!("it does not inflate: {error}")))?,
        };
        if bytes.len() as u64 != self.claimed {
            let more = if bytes.len() as u64 > self.claimed { "more" } else { "fewer" };
            let why = format!("it has {more} bytes than the {} of the directory", self.claimed);
            return Err(FetchError::Damaged(why));
        }
        let mut crc = flate2::Crc::new();
        crc.update(&bytes);
        if crc.sum() != self.crc {
            return Err(FetchError::Damaged("its checksum is another than the directory's".to_owned()));
        }
        Ok(bytes.into())
    }
}

/// Inflates until the end, or one byte more than `claimed`: a bomb stops there.
fn inflate(packed: &[u8], claimed: u64) -> std::io::Result<Vec<u8>> {
    let likely = packed.len().saturating_mul(2).saturating_add(4096);
    let most = claimed.saturating_add(1);
    let mut bytes = Vec::with_capacity(likely.min(usize::try_from(most).unwrap_or(usize::MAX)));
    DeflateDecoder::new(packed).take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns true if this is the name of an image. Formats that no decoder reads count as well: the decoder says why.
fn is_image(name: &[u8]) -> bool {
    let last = name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let Some(dot) = last.iter().rposition(|&byte| byte == b'.').filter(|&dot| dot > 0) else { return false };
    let mut known = IMAGE_EXTENSIONS.iter().chain(&FOREIGN_EXTENSIONS);
    known.any(|known| known.as_bytes().eq_ignore_ascii_case(&last[dot + 1..]))
}

/// Returns the seconds since 1970, or 0 if the time is unknown.
fn seconds(time: &ZipDateTimeKind) -> u64 {
    let parts = (time.year(), time.month(), time.day(), time.hour(), time.minute(), time.second());
    let (year, month, day, hour, minute, second) = parts;
    let utc = UtcDateTime::from_components(year, month, day, hour, minute, second, 0);
    utc.and_then(|utc| u64::try_from(utc.to_unix()).ok()).unwrap_or(0)
}

fn time(seconds: u64) -> Option<SystemTime> {
    Some(seconds)
        .filter(|&seconds| seconds > 0)
        .and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_recognized_by_their_extension() {
        for name in ["a.jpg", "b/c.JPEG", "x.y/z.Png", "../up.jpg", "/abs.gif", "./a.tif", "heic/a.heic", "a.b.avif"] {
            assert!(is_image(name.as_bytes()), "{name}");
        }
        for name in ["", "jpg", ".jpg", "a.txt", "a.jpg/"] {
            assert!(!is_image(name.as_bytes()), "{name}");
        }
        assert!(is_image(b"\xff\x81.jpg"));
    }
}
