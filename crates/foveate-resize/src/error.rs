use foveate_core::{BoxError, FaultScope};

use crate::Filter;

/// A resample that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// The plan does not fit the image or the output.
    #[error("resize plan does not fit: {0}")]
    Plan(String),
    /// The backend does not have this filter.
    #[error("resizer '{resizer}' has no filter {filter:?}")]
    Unsupported {
        /// The backend.
        resizer: &'static str,
        /// The requested filter.
        filter: Filter,
    },
    /// The backend has the filter but cannot run this plan with it.
    #[error("resizer '{resizer}' cannot do this resize: {reason}")]
    UnsupportedPlan {
        /// The backend.
        resizer: &'static str,
        /// The part of the plan that it cannot do.
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
    /// Returns the reach of this error: a missing library or filter stops the run, other errors lose one item.
    pub fn scope(&self) -> FaultScope {
        match self {
            Self::Unavailable(_) | Self::Unsupported { .. } => FaultScope::Run,
            _ => FaultScope::Item,
        }
    }
}
