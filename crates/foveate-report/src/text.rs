//! Numbers and words that know their file, line and column.

use std::ops::Add;

use crate::schema::readable;

/// A field of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldOrigin {
    pub(crate) file: &'static str,
    pub(crate) line: u64,
    pub(crate) column: &'static str,
}

/// A number with its unit and its origin.
#[derive(Clone, Debug)]
pub(crate) struct Num {
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// The computation from the fields; empty if it is one of them.
    how: &'static str,
    from: Vec<FieldOrigin>,
}

impl Num {
    pub(crate) fn field(value: f64, unit: &'static str, origin: FieldOrigin) -> Self {
        Self { value, unit, how: "", from: vec![origin] }
    }

    /// Returns `value`, computed from `numbers`.
    pub(crate) fn derived(value: f64, unit: &'static str, how: &'static str, numbers: &[Self]) -> Self {
        Self { value, unit, how, from: numbers.iter().flat_map(|number| number.from.iter().copied()).collect() }
    }

    /// Divides this by `count`; the ratio has the given unit.
    pub(crate) fn over(&self, count: &Self, unit: &'static str) -> Option<Self> {
        let ratio = self.value / count.value;
        (count.value > 0.0).then(|| Self::derived(ratio, unit, "first ÷ second", &[self.clone(), count.clone()]))
    }

    /// Formats the number and its unit.
    fn words(&self) -> String {
        match readable(self.value, self.unit) {
            (value, "") if value.fract() == 0.0 && value.abs() < 1e15 => with_commas(&format!("{value:.0}")),
            (value, "") => significant(value),
            (value, "%") => format!("{}\u{a0}%", significant(value * 100.0)),
            (value, "×") => format!("{}×", significant(value)),
            (value, unit) => format!("{}\u{a0}{unit}", significant(value)),
        }
    }
}

/// Formats three significant digits, with all digits before the point; thousands with commas.
fn significant(value: f64) -> String {
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

/// Formats a number of an axis.
pub(crate) fn tick(value: f64) -> String {
    let words = significant(value);
    let is_fraction = words.contains('.') && !words.contains('e');
    if is_fraction { words.trim_end_matches('0').trim_end_matches('.').to_owned() } else { words }
}

fn with_commas(number: &str) -> String {
    let (whole, rest) = number.find('.').map_or((number, ""), |point| number.split_at(point));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("−", digits));
    let mut grouped = sign.to_owned();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

/// A stretch of a text: the report's own words, or a value with the fields that it is from.
#[derive(Clone, Debug)]
pub(crate) struct TextSpan {
    pub(crate) text: String,
    pub(crate) how: &'static str,
    pub(crate) from: Vec<FieldOrigin>,
}

/// A sequence of words and numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Text(pub(crate) Vec<TextSpan>);

impl Text {
    /// Wraps a field's content; it is traced if it has digits, because then it holds a number.
    pub(crate) fn word(text: &str, origin: FieldOrigin) -> Self {
        let from = if text.contains(|c: char| c.is_ascii_digit()) { vec![origin] } else { Vec::new() };
        Self(vec![TextSpan { text: text.to_owned(), how: "", from }])
    }

    /// Returns the words alone.
    pub(crate) fn plain(&self) -> String {
        self.0.iter().map(|span| span.text.as_str()).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|span| span.text.is_empty())
    }

    /// Joins the texts with `between` them.
    pub(crate) fn join(texts: impl IntoIterator<Item = Self>, between: &str) -> Self {
        let texts = texts.into_iter().filter(|text| !text.is_empty());
        texts.reduce(|all, text| all + between + text).unwrap_or_default()
    }

    /// Returns `FILE:LINE:COLUMN` of every field in it, separated by blanks.
    pub(crate) fn origins(&self) -> String {
        origins(self.0.iter().flat_map(|span| &span.from))
    }

    /// Renders it with values in elements called `tag`, which name their origin.
    pub(crate) fn markup(&self, tag: &str) -> String {
        let mut markup = String::new();
        for TextSpan { text, how, from } in &self.0 {
            let text = escape(text);
            if from.is_empty() {
                markup += &text;
                continue;
            }
            let how = if how.is_empty() { String::new() } else { format!(" data-how=\"{how}\"") };
            markup += &format!("<{tag} data-from=\"{}\"{how}>{text}</{tag}>", origins(from));
        }
        markup
    }
}

fn origins<'a>(from: impl IntoIterator<Item = &'a FieldOrigin>) -> String {
    let keys = from.into_iter().map(|FieldOrigin { file, line, column }| format!("{file}:{line}:{column}"));
    keys.collect::<Vec<_>>().join(" ")
}

/// Escapes `<`, `>`, `&` and quotes.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(vec![TextSpan { text, how: "", from: Vec::new() }])
    }
}

impl From<&Num> for Text {
    fn from(number: &Num) -> Self {
        Self(vec![TextSpan { text: number.words(), how: number.how, from: number.from.clone() }])
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
    ($first:expr $(, $more:expr)* $(,)?) => { $crate::text::Text::from($first) $(+ $more)* };
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
            (999.6, "1,000"),
            (12_345.0, "12,300"),
            (-3.456, "−3.46"),
            (1.5e-9, "1.50e-9"),
            (2.0e13, "2.00e13"),
        ] {
            assert_eq!(significant(value), words, "{value}");
        }
        let count = Num::derived(1_000_000.0, "", "", &[]);
        assert_eq!((count.words().as_str(), tick(0.5), tick(1200.0)), ("1,000,000", "0.5".into(), "1,200".into()));
        for (value, unit, words) in [
            (0.099, "h", "5.94\u{a0}min"),
            (18.3, "h", "18.3\u{a0}h"),
            (0.194, "ms", "0.194\u{a0}ms"),
            (0.005_32, "ms", "5.32\u{a0}µs"),
            (5.28e-5, "ms", "52.8\u{a0}ns"),
            (0.0, "ms", "0\u{a0}ms"),
        ] {
            assert_eq!(Num::derived(value, unit, "", &[]).words(), words);
        }
    }
}
