//! The work on one image, which threads do side by side.

use bytes::Bytes;
use foveate_core::{FaultScope, Stage, error_chain};
use foveate_decode::sniff;
use foveate_pipeline::RunError;
use foveate_sink::Failure;
use foveate_source::{Content, FOREIGN_EXTENSIONS, Fetch, IMAGE_EXTENSIONS, Item, Source};

use super::shrink::{Fault, Shrink, Shrinker};

/// The outcome of an input.
pub(super) enum Outcome {
    /// It goes into a shard.
    Photo { bytes: Bytes, extension: String },
    /// It does not.
    Failed(Failure),
    /// It does not, and its disk or store may be the cause.
    Unreadable(Failure),
    /// Nothing does any more.
    Stopped(RunError),
}

pub(super) struct Worker {
    fetch: Box<dyn Fetch>,
    shrinker: Option<Shrinker>,
}

impl Worker {
    pub(super) fn open(source: &dyn Source, shrink: Option<&Shrink>) -> Result<Self, RunError> {
        Ok(Self { fetch: source.open_fetch()?, shrinker: shrink.map(Shrink::open).transpose()? })
    }

    pub(super) fn outcome(&mut self, item: &Item, content: Content) -> Outcome {
        if let Some(fault) = &item.fault {
            return Outcome::Failed(failure(item, Stage::List, fault, None));
        }
        let read = match content {
            Content::Read(bytes) => Ok(bytes),
            Content::Failed(error) => Err(error),
            Content::Unread => {
                let mut bytes = Vec::new();
                self.fetch.fetch(item, &mut bytes).map(|()| bytes.into())
            }
        };
        match read {
            Ok(bytes) => match self.shrinker.as_mut().map(|shrinker| shrinker.shrink(&bytes)) {
                None | Some(Ok(None)) => packed(item, bytes),
                Some(Ok(Some(jpeg))) => Outcome::Photo { bytes: jpeg.into(), extension: "jpg".to_owned() },
                Some(Err(Fault::Run(error))) => Outcome::Stopped(error.into()),
                Some(Err(Fault::Item(stage, reason))) => {
                    Outcome::Failed(failure(item, stage, &reason, Some(bytes.len() as u64)))
                }
            },
            Err(error) if error.scope() == FaultScope::Run => Outcome::Stopped(error.into()),
            Err(error) => {
                let failure = failure(item, Stage::Read, &error_chain(&error), None);
                if error.suspects_storage() { Outcome::Unreadable(failure) } else { Outcome::Failed(failure) }
            }
        }
    }
}

/// An image's bytes as they are. What no decoder of this build reads is packed too if its name says that it is an
/// image: the failure is that of the job that reads the shards.
fn packed(item: &Item, bytes: Bytes) -> Outcome {
    let error = match sniff(&bytes) {
        Ok(format) => return Outcome::Photo { bytes, extension: format.extension().to_owned() },
        Err(error) => error,
    };
    let extension = item.id.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase()).unwrap_or_default();
    match IMAGE_EXTENSIONS.iter().chain(&FOREIGN_EXTENSIONS).any(|known| *known == extension) {
        true => Outcome::Photo { bytes, extension },
        false => Outcome::Failed(failure(item, Stage::Decode, &error_chain(&error), Some(bytes.len() as u64))),
    }
}

fn failure(item: &Item, stage: Stage, reason: &str, bytes: Option<u64>) -> Failure {
    // One line per failure, whatever a library's message contains.
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    Failure { index: item.index, id: item.id.clone(), stage, reason, bytes }
}
