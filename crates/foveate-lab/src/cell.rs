/// One value in a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Cell {
    /// No value.
    #[default]
    Empty,
    /// One or more words.
    Text(String),
    /// A measured value, written with six significant digits.
    Number(f64),
    /// A count.
    Count(u64),
    /// `yes` or `no`.
    Flag(bool),
}

impl Cell {
    /// Returns the value as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        match self {
            Self::Empty => serde_json::Value::Null,
            Self::Text(text) => text.as_str().into(),
            Self::Number(value) => (*value).into(),
            Self::Count(count) => (*count).into(),
            Self::Flag(flag) => (*flag).into(),
        }
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => Ok(()),
            Self::Text(text) => f.write_str(text),
            Self::Number(value) => f.write_str(&significant(*value, 6)),
            Self::Count(count) => write!(f, "{count}"),
            Self::Flag(flag) => f.write_str(if *flag { "yes" } else { "no" }),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        if value.is_finite() { Self::Number(value) } else { Self::Empty }
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for Cell {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<bool> for Cell {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Empty, Into::into)
    }
}

/// Formats `value` in decimal with at least `digits` significant digits; all digits before the point are kept.
pub(crate) fn significant(value: f64, digits: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value.is_finite() { "0".to_owned() } else { String::new() };
    }
    let magnitude = value.abs().log10().floor() as i32;
    let decimals = (digits - 1 - magnitude).clamp(0, 12) as usize;
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_significant_ones() {
        let three = |value| significant(value, 3);
        assert_eq!([three(0.001234), three(1.5), three(123456.7), three(0.0)], ["0.00123", "1.50", "123457", "0"]);
    }
}
