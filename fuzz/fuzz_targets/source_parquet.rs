#![no_main]

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::sync::Arc;

use foveate_source::FetchError;
use foveate_source::blob::{Blob, MemoryBlob};
use foveate_source::container::{ContainerOptions, ContainerRegistry, MemberContent};
use libfuzzer_sys::fuzz_target;

/// Outcomes that are compared: a few bytes can say that a file has a billion rows, all null.
const MOST: usize = 300;

/// The first outcomes after `skip`, as text. The library may panic for a damaged file, as listings expect.
fn outcomes(blob: &Arc<dyn Blob>, skip: u64) -> Vec<String> {
    let mut formats = ContainerRegistry::new("container", &["parquet"]);
    foveate_source_parquet::register(&mut formats).expect("it is alone");
    let format = formats.get("parquet").expect("it was just registered");
    let mut all = Vec::new();
    let read = catch_unwind(AssertUnwindSafe(|| {
        let mut members = format.open(Arc::clone(blob), &ContainerOptions::default())?;
        members.skip(skip)?;
        while let Some(member) = members.next()?.filter(|_| all.len() < MOST) {
            all.push(match member.content {
                MemberContent::Here(bytes) => format!("{bytes:?}"),
                other => format!("{other:?}"),
            });
        }
        Ok::<(), FetchError>(())
    }));
    // As in a listing, an error while skipping is one of the outcomes to skip.
    if !matches!(read, Ok(Ok(()))) && (skip == 0 || !all.is_empty()) {
        all.push("damaged".to_owned());
    }
    all
}

// A table of any kind: whatever its bytes, skipping outcomes gives the rest of them.
fuzz_target!(init: set_hook(Box::new(|_| {})), |bytes: &[u8]| {
    for name in ["x.parquet", "x.arrow"] {
        let blob: Arc<dyn Blob> = Arc::new(MemoryBlob::new(name, bytes.to_vec()));
        let all = outcomes(&blob, 0);
        for skip in [1, all.len() / 2, all.len().saturating_sub(1)] {
            let rest = outcomes(&blob, skip as u64);
            let both = rest.len().min(all.len().saturating_sub(skip));
            if let Some(seen) = all.get(skip..skip + both) {
                assert!(rest[..both] == *seen, "{name}: {skip} of {} skipped", all.len());
            }
        }
    }
});
