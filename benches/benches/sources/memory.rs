//! Resident memory for inputs without end, in a store whose objects are made up.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use foveate::backends::containers;
use foveate::source::blob::Blob;
use foveate::source::container::ContainerOptions;
use foveate::source::store::{Object, ReadAhead, Store, StoreBackend, StoreOptions, StoreRegistry, Version};
use foveate::source::{Content, Fetch, FetchError, Input, Listing, Source, SourceError};
use foveate_benches::contest::{self, Contestant, serve};
use foveate_benches::{peak_resident_bytes, resident_bytes};

use crate::table::Table;

/// What is read, and how many images that are.
const INPUTS: [(&str, u64); 2] = [("objects", 5_000_000), ("members", 1_000_000)];

/// Bytes of a member: a header's block, and one of content.
const RECORD: usize = 1024;
const CONTENT: &[u8; 512] = &[7; 512];

/// Measures each input in a process of its own.
pub(crate) fn measure() -> foveate_benches::Result<Table> {
    let mut table = Table::new(&["input", "images", "seconds", "resident_mb_before", "grown_mb"]);
    println!("input       images |  seconds  MB more than before");
    for (what, count) in INPUTS {
        let child = contest::own("memory", &[what.to_owned(), count.to_string()])?;
        let answer = Contestant::start(what, child)?.ask("measure")?;
        let [seconds, before, grown] = answer[..] else { return Err("three numbers are expected".into()) };
        println!("{what:<8} {count:>9} | {seconds:>8.1} {grown:>8.1}");
        let numbers = [seconds, before, grown].map(|number| format!("{number:.1}"));
        table.push([what.to_owned(), count.to_string()].into_iter().chain(numbers));
    }
    Ok(table)
}

/// Answers with seconds, resident memory in MB before, and by how much more its peak is.
pub(crate) fn contend(what: &str, count: u64) -> foveate_benches::Result<()> {
    let address = if what == "objects" { "made://bucket/photos/" } else { "made://bucket/shard.tar" };
    serve("made up", |_| {
        // Once, for what a first listing takes whatever its length.
        drain(address, 1000)?;
        let (before, begin) = (resident_bytes().ok_or("unknown")?, std::time::Instant::now());
        if drain(address, count)? != count {
            return Err(format!("not all of {count} were read").into());
        }
        let peak = peak_resident_bytes().ok_or("unknown")?;
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        Ok(vec![begin.elapsed().as_secs_f64(), megabytes(before), megabytes(peak.saturating_sub(before))])
    })
}

/// Reads a listing to its end.
fn drain(address: &str, count: u64) -> foveate_benches::Result<u64> {
    let mut registry = StoreRegistry::new("store", &["made-up"]);
    let open = move |_: &StoreOptions| Ok(Arc::new(MadeUp(count)) as Arc<dyn Store>);
    registry.register(StoreBackend::new("made-up", "a bench", &["made"], open))?;
    let builder = Listing::builder().inputs([Input::Path(address.into())]);
    let builder = builder.containers(Arc::new(containers()), ContainerOptions::default());
    let mut listing = builder.stores(Arc::new(registry), StoreOptions::default()).build()?;
    let mut read = 0;
    while let Some(delivery) = listing.deliver()? {
        read += u64::from(matches!(delivery.content, Content::Read(bytes) if bytes.len() == CONTENT.len()));
    }
    Ok(read)
}

/// So many objects below a prefix, and a tar with so many members.
#[derive(Clone)]
struct MadeUp(u64);

impl MadeUp {
    fn object(address: String, len: u64, number: u64) -> Object {
        let tag = Some(format!("\"{:032x}\"", u128::from(number) * 0x9e37_79b9_7f4a_7c15));
        Object { address, version: Version { len: Some(len), modified: Some(SystemTime::UNIX_EPOCH), tag } }
    }
}

impl Store for MadeUp {
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Object) -> Result<(), SourceError>) -> Result<(), SourceError> {
        let address = |number| format!("{prefix}{:04}/{number:08}.jpg", number / 1000);
        (0..self.0).try_for_each(|number| each(Self::object(address(number), CONTENT.len() as u64, number)))
    }

    fn find(&self, address: &str) -> Result<Option<Object>, FetchError> {
        let is_tar = address.ends_with(".tar");
        Ok(is_tar.then(|| Self::object(address.to_owned(), (self.0 + 1) * RECORD as u64, 0)))
    }

    fn open(&self, _: &Object) -> Result<Arc<dyn Blob>, FetchError> {
        Ok(Arc::new(self.clone()))
    }

    fn read_ahead(&self) -> Box<dyn ReadAhead> {
        Box::new(Waiting(VecDeque::new()))
    }

    fn fetch(&self) -> Box<dyn Fetch> {
        unreachable!("all objects are read ahead")
    }
}

struct Waiting(VecDeque<Object>);

impl ReadAhead for Waiting {
    fn has_room(&self) -> bool {
        self.0.len() < 1024
    }

    fn ask(&mut self, object: Object) {
        self.0.push_back(object);
    }

    fn take(&mut self) -> Result<Bytes, FetchError> {
        self.0.pop_front().ok_or_else(|| FetchError::NotFound("an object".to_owned()))?;
        Ok(Bytes::from_static(CONTENT))
    }
}

impl Blob for MadeUp {
    fn name(&self) -> &str {
        "made://bucket/shard.tar"
    }

    fn len(&self) -> Option<u64> {
        Some((self.0 + 1) * RECORD as u64)
    }

    fn modified(&self) -> Option<SystemTime> {
        None
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), FetchError> {
        Err(FetchError::Refused("it is a stream".to_owned()))
    }

    fn stream(&self, offset: u64) -> Result<Box<dyn Read + Send>, FetchError> {
        match offset {
            0 => Ok(Box::new(Members { left: self.0, record: VecDeque::new(), is_marked: false })),
            _ => Err(FetchError::Refused("it is a stream".to_owned())),
        }
    }
}

/// A tar, made as it is read.
struct Members {
    left: u64,
    record: VecDeque<u8>,
    is_marked: bool,
}

impl Members {
    fn next_record(&mut self) -> std::io::Result<()> {
        if self.left > 0 {
            let mut header = tar::Header::new_ustar();
            header.set_path(format!("{:08}.jpg", self.left))?;
            header.set_size(CONTENT.len() as u64);
            header.set_cksum();
            self.record.extend(header.as_bytes().iter().chain(CONTENT));
            self.left -= 1;
        } else if !std::mem::replace(&mut self.is_marked, true) {
            self.record.extend([0; RECORD]);
        }
        Ok(())
    }
}

impl Read for Members {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.record.is_empty() {
            self.next_record()?;
        }
        self.record.read(out)
    }
}
