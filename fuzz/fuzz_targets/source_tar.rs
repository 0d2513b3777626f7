#![no_main]

use std::sync::Arc;

use foveate_source::blob::MemoryBlob;
use foveate_source::container::{ContainerOptions, MemberContent};
use libfuzzer_sys::fuzz_target;

/// The outcomes after the first `skip`: names, values, and the content or the reason why there is none.
fn outcomes(blob: MemoryBlob, options: &ContainerOptions, skip: u64) -> Vec<String> {
    let mut members = match foveate_source_tar::format().open(Arc::new(blob), options) {
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
    let name = "memory.tar";
    let (file, stream) = (MemoryBlob::new(name, bytes.to_vec()), MemoryBlob::stream_of(name, bytes.to_vec()));
    for columns in [vec![], vec!["caption".to_owned(), "txt".to_owned()]] {
        let options = ContainerOptions { max_bytes: 2000, columns, ..ContainerOptions::default() };
        // A stream is refused anywhere but at its start, so it would have other outcomes.
        let all = outcomes(stream.clone(), &options, 0);
        assert_eq!(outcomes(file.clone(), &options, 0), all);
        for skip in (1..=all.len().min(4)).chain([all.len() + 1]) {
            let rest = &all[skip.min(all.len())..];
            assert_eq!(outcomes(file.clone(), &options, skip as u64), rest, "after skipping {skip}");
        }
    }
});
