use std::fmt;

/// A meaningless input, or an impossible plan.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PlanError {
    /// A number out of its range.
    Value {
        /// The number's name.
        what: &'static str,
        /// The required range, "positive" say.
        expected: &'static str,
        /// The number.
        value: f64,
    },
    /// An input is missing, contradictory or impossible; the text names it and the remedy.
    Impossible(String),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value { what, expected, value } => write!(f, "{what} must be {expected}, not {value}"),
            Self::Impossible(problem) => f.write_str(problem),
        }
    }
}

impl std::error::Error for PlanError {}

/// `value` if it is finite and above zero.
pub(crate) fn positive(what: &'static str, value: f64) -> Result<f64, PlanError> {
    let good = value.is_finite() && value > 0.0;
    if good { Ok(value) } else { Err(PlanError::Value { what, expected: "positive and finite", value }) }
}

/// `value` if it is finite and not below zero.
pub(crate) fn not_negative(what: &'static str, value: f64) -> Result<f64, PlanError> {
    let good = value.is_finite() && value >= 0.0;
    if good { Ok(value) } else { Err(PlanError::Value { what, expected: "zero or more, and finite", value }) }
}

/// `value` if it is at least one.
pub(crate) fn at_least_one(what: &'static str, value: impl Into<u64>) -> Result<f64, PlanError> {
    let value = value.into() as f64;
    if value >= 1.0 { Ok(value) } else { Err(PlanError::Value { what, expected: "at least 1", value }) }
}

/// `value` if it is in (0, 1].
pub(crate) fn share(what: &'static str, value: f64) -> Result<f64, PlanError> {
    let good = value > 0.0 && value <= 1.0;
    if good { Ok(value) } else { Err(PlanError::Value { what, expected: "above 0 and at most 1", value }) }
}
