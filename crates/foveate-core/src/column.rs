/// Values of a table's column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Text, and all that is told as text: dates, decimals, nested values.
    Text,
    /// Whole numbers of 64 bits with a sign.
    Integer,
    /// Numbers of 64 bits with a fraction.
    Float,
    /// True or false.
    Boolean,
}

impl ColumnKind {
    const ALL: [Self; 4] = [Self::Text, Self::Integer, Self::Float, Self::Boolean];

    /// The name in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Integer => "integer",
            Self::Float => "float",
            Self::Boolean => "boolean",
        }
    }

    /// The kind with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns true if a value in this column reads as this text: `007` is no whole number.
    pub fn holds(self, text: &str) -> bool {
        match self {
            Self::Text => true,
            Self::Integer => text.parse::<i64>().is_ok_and(|number| number.to_string() == text),
            Self::Float => {
                let digits = text.trim_start_matches('-');
                let is_padded = digits.starts_with('0') && digits[1..].starts_with(|next: char| next.is_ascii_digit());
                !is_padded && !text.contains(char::is_whitespace) && text.parse::<f64>().is_ok()
            }
            Self::Boolean => text.parse::<bool>().is_ok(),
        }
    }
}
