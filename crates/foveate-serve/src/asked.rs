//! A parsed request.

use foveate_worker::Image;

use crate::memory::MemoryClaim;
use crate::serving::Serving;
use crate::settings::{IgnoredFields, RequestFields};

/// A parsed request.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Images and texts; the texts of a search are the last. At most [`crate::Api::max_images`], and at least one
    /// unless something else is searched for.
    pub(crate) images: Vec<Image>,
    pub(crate) settings: RequestFields,
    pub(crate) ignored: IgnoredFields,
    /// The room of the images.
    pub(crate) claim: MemoryClaim,
}

impl Asked {
    pub(crate) fn new(serving: &Serving, claim: MemoryClaim) -> Self {
        let ignored = IgnoredFields::new(serving.api.strict_requests);
        Self { images: Vec::new(), settings: RequestFields::default(), ignored, claim }
    }
}
