#![no_main]

use std::sync::Arc;

use foveate_source::blob::MemoryBlob;
use foveate_source::container::{ContainerOptions, ContainerRegistry, Member, MemberContent, MemberName};
use libfuzzer_sys::fuzz_target;

// Any bytes as a zip archive: no panic, memory within the limit, and skipping lands after as many members.
fuzz_target!(|bytes: &[u8]| {
    let mut formats = ContainerRegistry::new("container", &["zip"]);
    foveate_source_zip::register(&mut formats).expect("the first of its name");
    let zip = formats.get("zip").expect("registered");
    let options = ContainerOptions { max_bytes: 1 << 20, ..ContainerOptions::default() };
    let blob = MemoryBlob::new("memory.zip", bytes.to_vec());
    let members = |skip: u64| -> Option<Vec<_>> {
        let mut members = zip.open(Arc::new(blob.clone()), &options).ok()?;
        members.skip(skip).expect("the directory is read");
        let next = || members.next().expect("memory does not fail");
        Some(std::iter::from_fn(next).map(seen).collect())
    };
    let Some(all) = members(0) else { return };
    for skip in [1, all.len() / 2, all.len(), all.len() + 1] {
        assert!(members(skip as u64).as_deref() == Some(&all[skip.min(all.len())..]), "after skipping {skip}");
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
