#![no_main]

use std::io::{Cursor, Read};
use std::sync::Arc;
use std::time::SystemTime;

use foveate_source::FetchError;
use foveate_source::blob::Blob;
use foveate_source::container::{ContainerOptions, MemberContent};
use libfuzzer_sys::fuzz_target;

/// Bytes in memory: all of them reachable, or a stream that is read once.
struct Memory {
    bytes: Arc<[u8]>,
    is_stream: bool,
}

impl Blob for Memory {
    fn name(&self) -> &str {
        "memory.tar"
    }

    fn len(&self) -> Option<u64> {
        (!self.is_stream).then_some(self.bytes.len() as u64)
    }

    fn modified(&self) -> Option<SystemTime> {
        None
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), FetchError> {
        Ok(self.stream(offset)?.read_exact(out)?)
    }

    fn stream(&self, offset: u64) -> Result<Box<dyn Read + Send>, FetchError> {
        assert!(offset == 0 || !self.is_stream, "a stream begins at its start");
        let mut bytes = Cursor::new(Arc::clone(&self.bytes));
        bytes.set_position(offset);
        Ok(Box::new(bytes))
    }
}

/// The outcomes after the first `skip`: names, values, and the content or the reason why there is none.
fn outcomes(memory: Memory, options: &ContainerOptions, skip: u64) -> Vec<String> {
    let mut members = match foveate_source_tar::format().open(Arc::new(memory), options) {
        Ok(members) => members,
        Err(error) => return if skip > 0 { Vec::new() } else { vec![error.to_string()] },
    };
    if members.skip(skip).is_err() {
        return Vec::new();
    }
    let mut outcomes = Vec::new();
    loop {
        match members.next() {
            Ok(None) => return outcomes,
            Ok(Some(member)) => {
                assert_eq!(member.columns.len(), options.columns.len());
                if let MemberContent::Here(bytes) = &member.content {
                    assert!(bytes.len() as u64 <= options.max_bytes);
                }
                outcomes.push(format!("{member:?}"));
            }
            Err(error) => {
                outcomes.push(error.to_string());
                assert!(matches!(members.next(), Ok(None)), "the end stays the end");
                return outcomes;
            }
        }
    }
}

// A container has the same outcomes from a file and from a stream, and skipping any number gives the rest.
fuzz_target!(|bytes: &[u8]| {
    let bytes: Arc<[u8]> = bytes.into();
    for columns in [vec![], vec!["caption".to_owned(), "txt".to_owned()]] {
        let options = ContainerOptions { max_bytes: 2000, columns, ..ContainerOptions::default() };
        let memory = |is_stream| Memory { bytes: Arc::clone(&bytes), is_stream };
        let all = outcomes(memory(true), &options, 0);
        assert_eq!(outcomes(memory(false), &options, 0), all);
        for skip in (1..=all.len().min(4)).chain([all.len() + 1]) {
            let rest = &all[skip.min(all.len())..];
            assert_eq!(outcomes(memory(false), &options, skip as u64), rest, "after skipping {skip}");
        }
    }
});
