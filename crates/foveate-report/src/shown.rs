//! The report's values: numbers and words that know their file, line and column.

use std::ops::Add;

/// A field of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Origin {
    pub(crate) file: &'static str,
    pub(crate) line: u64,
    pub(crate) column: &'static str,
    /// Its content.
    pub(crate) text: String,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// A number with its unit and its origin.
#[derive(Clone, Debug)]
pub(crate) struct Num {
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// How it is computed from the fields; empty if it is one of them.
    pub(crate) how: &'static str,
    pub(crate) from: Vec<Origin>,
}

impl Num {
    /// Divides this by `count`.
    pub(crate) fn over(&self, count: &Self) -> Option<Self> {
        (count.value > 0.0).then(|| self.with(count, self.value / count.value, self.unit, "first ÷ second"))
    }

    /// Returns this as a multiple of `base`.
    pub(crate) fn times(&self, base: &Self) -> Option<Self> {
        self.over(base).map(|times| Self { unit: "×", ..times })
    }

    fn with(&self, other: &Self, value: f64, unit: &'static str, how: &'static str) -> Self {
        let mut from = self.from.clone();
        from.extend(other.from.iter().cloned());
        Self { value, unit, how, from }
    }

    /// Adds numbers of one unit.
    pub(crate) fn sum(numbers: &[Self]) -> Self {
        let from = numbers.iter().flat_map(|number| number.from.iter().cloned()).collect();
        let unit = numbers.first().map_or("", |number| number.unit);
        Self { value: numbers.iter().map(|number| number.value).sum(), unit, how: "sum", from }
    }

    /// Returns the number that half of them do not exceed.
    pub(crate) fn median(mut numbers: Vec<Self>, how: &'static str) -> Option<Self> {
        numbers.sort_by(|a, b| a.value.total_cmp(&b.value));
        let middle = numbers.len() / 2;
        let value = match numbers.len() {
            0 => return None,
            even if even % 2 == 0 => f64::midpoint(numbers[middle - 1].value, numbers[middle].value),
            _ => numbers[middle].value,
        };
        Some(Self { value, how, ..Self::sum(&numbers) })
    }

    /// Returns how many numbers there are.
    pub(crate) fn count(numbers: &[Self]) -> Self {
        Self { value: numbers.len() as f64, unit: "", how: "number of rows", ..Self::sum(numbers) }
    }

    /// Returns the absolute value.
    pub(crate) fn size(mut self) -> Self {
        if self.value < 0.0 && self.how.is_empty() {
            self.how = "without its sign";
        }
        self.value = self.value.abs();
        self
    }

    /// Formats the number and its unit.
    pub(crate) fn words(&self) -> String {
        match self.unit {
            "" => grouped(self.value),
            "%" => format!("{}\u{a0}%", significant(self.value * 100.0)),
            "×" => format!("{}×", significant(self.value)),
            unit => format!("{}\u{a0}{unit}", significant(self.value)),
        }
    }
}

/// Formats three significant digits, with all digits before the point; thousands with commas.
pub(crate) fn significant(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{value:.2e}");
    let exponent: i32 = scientific.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or_default();
    let rounded: f64 = scientific.parse().unwrap_or(value);
    match exponent {
        -4..12 => with_commas(&format!("{rounded:.*}", usize::try_from(2 - exponent).unwrap_or_default())),
        _ => scientific,
    }
}

/// Formats a count in full, any other number with three digits.
fn grouped(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 { with_commas(&format!("{value:.0}")) } else { significant(value) }
}

fn with_commas(number: &str) -> String {
    let (whole, rest) = number.find('.').map_or((number, ""), |point| number.split_at(point));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("−", digits));
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{rest}")
}

/// A stretch of a text.
#[derive(Clone, Debug)]
pub(crate) enum Span {
    /// The report's own words.
    Plain(String),
    /// A file's content, or a value computed from it.
    Traced(Traced),
}

/// A shown value, and its origin.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Traced {
    pub(crate) text: String,
    pub(crate) how: &'static str,
    pub(crate) from: Vec<Origin>,
}

impl Traced {
    /// Returns `file:line:column` of every field.
    pub(crate) fn key(&self) -> String {
        self.from.iter().map(Origin::to_string).collect::<Vec<_>>().join(" ")
    }
}

/// A sequence of words and numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Text(pub(crate) Vec<Span>);

impl Text {
    /// Wraps a field's content; it is traced if it has digits, because then it holds a number.
    pub(crate) fn word(text: &str, origin: Origin) -> Self {
        if !text.contains(|c: char| c.is_ascii_digit()) {
            return text.into();
        }
        Self(vec![Span::Traced(Traced { text: text.to_owned(), how: "", from: vec![origin] })])
    }

    /// Returns the words alone.
    pub(crate) fn plain(&self) -> String {
        let text = |span: &Span| match span {
            Span::Plain(text) => text.clone(),
            Span::Traced(traced) => traced.text.clone(),
        };
        self.0.iter().map(text).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|span| matches!(span, Span::Plain(text) if text.is_empty()))
    }

    pub(crate) fn traced(&self) -> impl Iterator<Item = &Traced> {
        self.0.iter().filter_map(|span| match span {
            Span::Traced(traced) => Some(traced),
            Span::Plain(_) => None,
        })
    }

    /// Joins the texts with `between` them.
    pub(crate) fn join(texts: impl IntoIterator<Item = Self>, between: &str) -> Self {
        let mut joined = Self::default();
        for text in texts.into_iter().filter(|text| !text.is_empty()) {
            if !joined.0.is_empty() {
                joined = joined + between;
            }
            joined = joined + text;
        }
        joined
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(vec![Span::Plain(text.to_owned())])
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(vec![Span::Plain(text)])
    }
}

impl From<&Num> for Text {
    fn from(number: &Num) -> Self {
        Self(vec![Span::Traced(Traced { text: number.words(), how: number.how, from: number.from.clone() })])
    }
}

impl From<Num> for Text {
    fn from(number: Num) -> Self {
        (&number).into()
    }
}

impl From<Option<Num>> for Text {
    fn from(number: Option<Num>) -> Self {
        number.map_or_else(|| "–".into(), Self::from)
    }
}

impl<T: Into<Text>> Add<T> for Text {
    type Output = Self;

    fn add(mut self, more: T) -> Self {
        self.0.extend(more.into().0);
        self
    }
}

/// Concatenates words and numbers to a text.
macro_rules! text {
    ($first:expr $(, $more:expr)* $(,)?) => { $crate::shown::Text::from($first) $(+ $more)* };
}
pub(crate) use text;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        for (value, words) in [
            (0.0, "0"),
            (0.012_345, "0.0123"),
            (1.0, "1.00"),
            (9.996, "10.0"),
            (51.26, "51.3"),
            (999.6, "1,000"),
            (12_345.0, "12,300"),
            (-3.456, "−3.46"),
            (1.5e-9, "1.50e-9"),
            (2.0e13, "2.00e13"),
        ] {
            assert_eq!(significant(value), words, "{value}");
        }
        assert_eq!(grouped(1_000_000.0), "1,000,000");
        assert_eq!(grouped(2.5), "2.50");
    }

    #[test]
    fn a_derived_number_knows_all_it_is_from() {
        let number = |value: f64, line| Num {
            value,
            unit: "ms",
            how: "",
            from: vec![Origin { file: "a.csv", line, column: "x", text: value.to_string() }],
        };
        let (a, b) = (number(1.0, 2), number(3.0, 3));
        let times = b.times(&Num::sum(&[a.clone(), a])).unwrap();
        assert_eq!(times.words(), "1.50×");
        assert_eq!(Text::from(times).traced().next().unwrap().key(), "a.csv:3:x a.csv:2:x a.csv:2:x");
    }
}
