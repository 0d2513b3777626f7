use foveate_encode::{Allocate, Place, host_allocator};
use foveate_preprocess::Granularity;

use crate::lane::Lane;

/// Returns an allocator for batches that every one of `lanes` can read. Preprocessors of whole batches fill device
/// memory if a single lane reads it. Everything else is filled on the host, in pinned memory if the encoders' device
/// copies from it.
pub fn batch_memory<T>(lanes: &mut [Lane<T>], preprocessors: Granularity) -> Allocate {
    let place = match (preprocessors, lanes.len()) {
        (Granularity::Batch, 1) => Place::Device,
        _ => Place::Host,
    };
    lanes.first_mut().map_or_else(host_allocator, |lane| lane.allocator(place))
}
