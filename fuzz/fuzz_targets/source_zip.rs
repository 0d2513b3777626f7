#![no_main]

use std::sync::Arc;

use foveate_source::blob::MemoryBlob;
use foveate_source::conformance;
use foveate_source::container::{ContainerOptions, ContainerRegistry, Member, MemberContent, MemberName};
use libfuzzer_sys::fuzz_target;

// Any bytes as a zip archive: no panic, memory within the limit, and skipping lands after as many members.
fuzz_target!(|bytes: &[u8]| {
    let mut formats = ContainerRegistry::new("container", &["zip"]);
    foveate_source_zip::register(&mut formats).expect("the first of its name");
    let zip = formats.get("zip").expect("registered");
    let options = ContainerOptions { max_bytes: 1 << 20, ..ContainerOptions::default() };
    let blob = MemoryBlob::new("memory.zip", bytes.to_vec());
    let outcomes = |skip: u64| {
        let (members, end) = conformance::outcomes(zip, Arc::new(blob.clone()), &options, skip);
        assert!(end.is_none() || members.is_empty(), "after the directory, only members fail");
        members.into_iter().map(seen).collect::<Vec<_>>()
    };
    let all = outcomes(0);
    for skip in [1, all.len() / 2, all.len(), all.len() + 1] {
        assert!(outcomes(skip as u64) == all[skip.min(all.len())..], "after skipping {skip}");
    }
});

fn seen(member: Member) -> (MemberName, Result<usize, String>) {
    let content = match member.content {
        MemberContent::Here(bytes) => Ok(bytes.len()),
        MemberContent::Failed(error) => Err(error.to_string()),
        MemberContent::At(_) => unreachable!("a zip holds its members"),
    };
    (member.name, content)
}
