use foveate_core::{BoxError, FaultScope};

use crate::Filter;

/// A resample that cannot be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// The plan does not fit the image or the output.
    #[error("resize plan does not fit: {0}")]
    Plan(String),
    /// The backend cannot do this filter.
    #[error("resizer '{resizer}' has no filter {filter:?}")]
    Unsupported {
        /// The backend.
        resizer: &'static str,
        /// The filter asked for.
        filter: Filter,
    },
    /// The backend has the filter and cannot do this plan with it.
    #[error("resizer '{resizer}' cannot do this resize: {reason}")]
    UnsupportedPlan {
        /// The backend.
        resizer: &'static str,
        /// What about the plan it cannot do.
        reason: String,
    },
    /// The backend's library failed.
    #[error("resize failed")]
    Backend(#[source] BoxError),
    /// The backend's library is missing.
    #[error("resizer unavailable")]
    Unavailable(#[source] BoxError),
}

impl ResizeError {
    /// A missing library or filter stops the run, the rest loses one item.
    pub fn scope(&self) -> FaultScope {
        match self {
            Self::Unavailable(_) | Self::Unsupported { .. } => FaultScope::Run,
            _ => FaultScope::Item,
        }
    }
}
