//! The distance between vectors of resized photos and those of the originals.

use std::collections::BTreeMap;
use std::sync::Arc;

use foveate_core::error_chain;
use foveate_model::OpenOptions;
use foveate_pipeline::Cancel;
use foveate_source::{Content, Delivery, Extent, Fetch, FetchError, Item, Source, SourceError};

use super::work::{Outcome, Worker};
use crate::collect::Sample;
use crate::embed::{Backends, Settings};
use crate::verify::{Comparison, VerifyError, of_sources, quantile};

/// The cosines between the vectors of original and packed photos.
#[derive(Clone, Debug, PartialEq)]
pub struct Drift {
    /// Photos in the sample that have both vectors.
    pub images: u64,
    /// The lowest cosine.
    pub min: f64,
    /// The 1st percentile.
    pub p1: f64,
    /// The median.
    pub median: f64,
}

impl Drift {
    /// The entries of a manifest's `info`.
    pub(super) fn facts(&self) -> [(&'static str, String); 4] {
        let Self { images, min, p1, median } = self;
        [(IMAGES, images.to_string()), (MIN, min.to_string()), (P1, p1.to_string()), (MEDIAN, median.to_string())]
    }

    /// Finds them in a manifest's `info`; `None` if they were not measured.
    pub fn of(info: &BTreeMap<String, String>) -> Option<Self> {
        Some(Self {
            images: info.get(IMAGES)?.parse().ok()?,
            min: info.get(MIN)?.parse().ok()?,
            p1: info.get(P1)?.parse().ok()?,
            median: info.get(MEDIAN)?.parse().ok()?,
        })
    }
}

const IMAGES: &str = "drift_images";
const MIN: &str = "drift_cosine_min";
const P1: &str = "drift_cosine_p1";
const MEDIAN: &str = "drift_cosine_median";

/// Embeds a sample as it is, and as `worker` packs it; `None` if no photo has both vectors.
pub(super) fn measure(
    sample: Sample,
    worker: Worker,
    job: &Settings,
    backends: &Arc<Backends>,
    model: &OpenOptions<'_>,
    cancel: &Cancel,
) -> Result<Option<Drift>, VerifyError> {
    let packed = Box::new(Packed { from: sample.clone(), worker });
    let Comparison { pairs, .. } = of_sources((Box::new(sample), job), (packed, job), backends, model, cancel)?;
    let cosines: Vec<f64> = pairs.iter().map(|pair| pair.cosine).collect();
    let Some(min) = quantile(&cosines, 0.0) else { return Ok(None) };
    let p1 = quantile(&cosines, 0.01).unwrap_or(min);
    let median = quantile(&cosines, 0.5).unwrap_or(min);
    Ok(Some(Drift { images: pairs.len() as u64, min, p1, median }))
}

/// A sample's photos as they are packed.
struct Packed {
    from: Sample,
    worker: Worker,
}

impl Source for Packed {
    fn next_item(&mut self) -> Result<Option<Item>, SourceError> {
        self.from.next_item()
    }

    fn deliver(&mut self) -> Result<Option<Delivery>, SourceError> {
        let Some(Delivery { item, content }) = self.from.deliver()? else { return Ok(None) };
        let content = match self.worker.outcome(&item, content) {
            Outcome::Photo { bytes, .. } => Content::Read(bytes),
            Outcome::Failed(failure) | Outcome::Unreadable(failure) => {
                Content::Failed(FetchError::Refused(failure.reason))
            }
            Outcome::Stopped(error) => return Err(SourceError::Invalid(error_chain(&error))),
        };
        Ok(Some(Delivery { item, content }))
    }

    fn extent(&self) -> Extent {
        self.from.extent()
    }

    fn seek(&mut self, index: u64, after: u64) -> Result<(), SourceError> {
        self.from.seek(index, after)
    }

    fn listing_hash(&self) -> String {
        self.from.listing_hash()
    }

    fn open_fetch(&self) -> Result<Box<dyn Fetch>, SourceError> {
        self.from.open_fetch()
    }
}
