//! Archives in memory.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::SystemTime;

use flate2::Compression;
use flate2::write::GzEncoder;
use foveate_source::FetchError;
use foveate_source::blob::{Blob, MemoryBlob};
use foveate_source::conformance;
use foveate_source::container::{ContainerOptions, Member, MemberContent, MemberName};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use tar::{Builder, EntryType, Header};

/// An archive whose storage fails at a place.
pub(crate) struct Failing {
    pub(crate) bytes: MemoryBlob,
    pub(crate) at: u64,
}

impl Blob for Failing {
    fn name(&self) -> &str {
        self.bytes.name()
    }

    fn len(&self) -> Option<u64> {
        self.bytes.len()
    }

    fn modified(&self) -> Option<SystemTime> {
        None
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), FetchError> {
        Ok(self.stream(offset)?.read_exact(out)?)
    }

    fn stream(&self, offset: u64) -> Result<Box<dyn Read + Send>, FetchError> {
        let rest = self.bytes.stream(offset)?.take(self.at.saturating_sub(offset));
        Ok(Box::new(rest.chain(Unreachable)))
    }
}

struct Unreachable;

impl Read for Unreachable {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(FetchError::Unreachable("connection reset".to_owned()).into())
    }
}

pub(crate) const NAME: &str = "memory.tar";

pub(crate) fn blob(bytes: &[u8]) -> Arc<dyn Blob> {
    Arc::new(MemoryBlob::new(NAME, bytes.to_vec()))
}

pub(crate) fn stream(bytes: &[u8]) -> Arc<dyn Blob> {
    Arc::new(MemoryBlob::stream_of(NAME, bytes.to_vec()))
}

/// An archive of these files.
pub(crate) fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, content) in files {
        add(&mut builder, name, content);
    }
    builder.into_inner().unwrap()
}

pub(crate) fn add(builder: &mut Builder<Vec<u8>>, name: &str, content: &[u8]) {
    let mut header = Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mtime(1_700_000_000);
    builder.append_data(&mut header, name, content).unwrap();
}

/// A header with any name, of any size and kind; content is not checked.
pub(crate) fn header(name: &[u8], size: u64, kind: EntryType) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name);
    header.set_size(size);
    header.set_entry_type(kind);
    header.set_cksum();
    header.as_bytes().to_vec()
}

/// A file with any name, in whole blocks.
pub(crate) fn file(name: &[u8], content: &[u8]) -> Vec<u8> {
    padded(header(name, content.len() as u64, EntryType::Regular), content)
}

/// A header of a kind that extends the next, with its content.
pub(crate) fn extension(kind: EntryType, content: &[u8]) -> Vec<u8> {
    padded(header(b"extension", content.len() as u64, kind), content)
}

fn padded(mut blocks: Vec<u8>, content: &[u8]) -> Vec<u8> {
    blocks.extend(content);
    blocks.resize(blocks.len().next_multiple_of(512), 0);
    blocks
}

/// These blocks and an end-of-archive marker.
pub(crate) fn ended(blocks: &[Vec<u8>]) -> Vec<u8> {
    [blocks.concat(), vec![0; 1024]].concat()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

pub(crate) fn columns(names: &[&str]) -> ContainerOptions {
    ContainerOptions { columns: names.iter().map(|&name| name.to_owned()).collect(), ..ContainerOptions::default() }
}

/// Every outcome: `name=content`, `name!reason`, or the reason why the archive ends.
pub(crate) fn outcomes(blob: Arc<dyn Blob>, options: &ContainerOptions) -> Vec<String> {
    rest(blob, options, 0)
}

/// The outcomes after the first `skip`.
pub(crate) fn rest(blob: Arc<dyn Blob>, options: &ContainerOptions, skip: u64) -> Vec<String> {
    let (members, end) = conformance::outcomes(&foveate_source_tar::format(), blob, options, skip);
    members.into_iter().map(text).chain(end.map(|error| error.to_string())).collect()
}

fn text(member: Member) -> String {
    let name = match member.name {
        MemberName::Key(name) => String::from_utf8_lossy(&name).into_owned(),
        MemberName::Id(id) => format!("#{id}"),
    };
    let values: String = member.columns.iter().map(|value| format!("|{}", value.as_deref().unwrap_or("-"))).collect();
    match member.content {
        MemberContent::Here(bytes) if bytes.len() > 100 => format!("{name}={} bytes{values}", bytes.len()),
        MemberContent::Here(bytes) => format!("{name}={}{values}", String::from_utf8_lossy(&bytes)),
        MemberContent::Failed(error) => format!("{name}!{error}{values}"),
        MemberContent::At(_) => panic!("a tar has its members' bytes"),
    }
}
