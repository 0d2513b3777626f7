//! A sink: lines of text. It only writes one part. `PartSink` makes the output survive a kill, resumes it, and
//! publishes it when it is complete.

use std::fmt::Write as _;

use foveate::core::RegistryError;
use foveate::sink::parts::{PartFiles, PartFormat, PartSink, StoredPart};
use foveate::sink::{Element, RunManifest, SinkBackend, SinkError, SinkRegistry};

pub fn register(registry: &mut SinkRegistry) -> Result<(), RegistryError> {
    registry.register(SinkBackend::new("lines", "lines of text, as an example", "txt", |options| {
        if options.element != Element::F32 {
            return Err(SinkError::Misuse("lines of text hold f32".to_owned()));
        }
        Ok(Box::new(PartSink::new(options.clone(), Lines)))
    }))
}

struct Lines;

impl PartFormat for Lines {
    fn name(&self) -> &'static str {
        "lines"
    }

    fn extension(&self) -> &'static str {
        "txt"
    }

    fn encode(&mut self, part: &StoredPart<'_>, _: &RunManifest, files: &PartFiles) -> Result<(), SinkError> {
        let mut text = String::new();
        let mut rows = part.reader();
        while let Some(block) = rows.next_block(1000)? {
            for (id, vector) in block.ids().zip(block.vectors().chunks_exact(part.dim() * 4)) {
                write!(text, "{id}:").expect("memory takes any text");
                for &bytes in vector.as_chunks().0 {
                    write!(text, " {:.3}", f32::from_le_bytes(bytes)).expect("memory takes any text");
                }
                text.push('\n');
            }
        }
        std::fs::write(&files.vectors, text).map_err(SinkError::io("write", &files.vectors))
    }
}
