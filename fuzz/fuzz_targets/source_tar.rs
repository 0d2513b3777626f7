#![no_main]

use std::sync::Arc;

use foveate_source::blob::MemoryBlob;
use foveate_source::conformance;
use foveate_source::container::ContainerOptions;
use libfuzzer_sys::fuzz_target;

/// The outcomes after the first `skip`: names, values, and the content or the reason why there is none.
fn outcomes(blob: &MemoryBlob, options: &ContainerOptions, skip: u64) -> Vec<String> {
    let (members, end) = conformance::outcomes(&foveate_source_tar::format(), Arc::new(blob.clone()), options, skip);
    members.iter().map(|member| format!("{member:?}")).chain(end.map(|error| error.to_string())).collect()
}

// A container has the same outcomes from a file and from a stream, and skipping any number gives the rest.
fuzz_target!(|bytes: &[u8]| {
    let name = "memory.tar";
    let (file, stream) = (MemoryBlob::new(name, bytes.to_vec()), MemoryBlob::stream_of(name, bytes.to_vec()));
    for columns in [vec![], vec!["caption".to_owned(), "txt".to_owned()]] {
        let options = ContainerOptions { max_bytes: 2000, columns, ..ContainerOptions::default() };
        // A stream is refused anywhere but at its start, so it would have other outcomes.
        let all = outcomes(&stream, &options, 0);
        assert_eq!(outcomes(&file, &options, 0), all);
        for skip in (1..=all.len().min(4)).chain([all.len() + 1]) {
            let rest = &all[skip.min(all.len())..];
            assert_eq!(outcomes(&file, &options, skip as u64), rest, "after skipping {skip}");
        }
    }
});
