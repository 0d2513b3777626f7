use foveate_encode::{Allocate, Place, host_allocator};
use foveate_preprocess::Granularity;

use crate::Lane;

/// Makes memory for the batches of `lanes`, which every one of them can read. Preprocessors of whole batches fill the memory
/// of the device itself where a single lane reads it; everything else is filled on the host, pinned where the encoders'
/// device copies from it.
pub fn batch_memory<T>(lanes: &mut [Lane<T>], preprocessors: Granularity) -> Allocate {
    let place = match (preprocessors, lanes.len()) {
        (Granularity::Batch, 1) => Place::Device,
        _ => Place::Host,
    };
    lanes.first_mut().map_or_else(host_allocator, |lane| lane.allocator(place))
}
