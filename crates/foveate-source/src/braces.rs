//! Ranges of numbers in braces, as WebDataset names shards: `{00000..00146}.tar`.

use std::ops::RangeInclusive;

/// Most names that one input may stand for.
const MOST: u64 = 1_000_000;

/// The names that `text` stands for if it has such ranges; the last one counts fastest. An error says that there are
/// too many.
pub(crate) fn expand(text: &str) -> Result<Option<Vec<String>>, String> {
    let Some(BraceRange { before, numbers, width, after }) =
        text.match_indices('{').find_map(|(at, _)| BraceRange::at(text, at))
    else {
        return Ok(None);
    };
    let rest = expand(after)?.unwrap_or_else(|| vec![after.to_owned()]);
    let count = (numbers.end() - numbers.start()).saturating_add(1).saturating_mul(rest.len() as u64);
    if count > MOST {
        return Err(format!("it stands for {count} names, more than {MOST}"));
    }
    let mut names = Vec::with_capacity(count as usize);
    for number in numbers {
        names.extend(rest.iter().map(|rest| format!("{before}{number:0width$}{rest}")));
    }
    Ok(Some(names))
}

/// A range within a text.
struct BraceRange<'a> {
    before: &'a str,
    numbers: RangeInclusive<u64>,
    /// Digits of each number, if the range has leading zeros.
    width: usize,
    after: &'a str,
}

impl<'a> BraceRange<'a> {
    /// The range whose brace opens at `open`.
    fn at(text: &'a str, open: usize) -> Option<Self> {
        let (inside, after) = text[open + 1..].split_once('}')?;
        let (first, last) = inside.split_once("..")?;
        // Numbers may have a sign for the parser.
        if !first.bytes().chain(last.bytes()).all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let numbers = first.parse().ok()?..=last.parse().ok()?;
        let is_padded = [first, last].iter().any(|digits| digits.len() > 1 && digits.starts_with('0'));
        let width = if is_padded { first.len().max(last.len()) } else { 0 };
        (!numbers.is_empty()).then_some(Self { before: &text[..open], numbers, width, after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_count_with_leading_zeros() {
        let names = |text| expand(text).unwrap().unwrap_or_default();
        assert_eq!(names("a-{008..011}.tar"), ["a-008.tar", "a-009.tar", "a-010.tar", "a-011.tar"]);
        assert_eq!(names("{9..10}"), ["9", "10"]);
        assert_eq!(
            names("{0..1}/{5..6}.{jpg,png}"),
            ["0/5.{jpg,png}", "0/6.{jpg,png}", "1/5.{jpg,png}", "1/6.{jpg,png}"]
        );
        for text in ["a.tar", "{a,b}", "{1..}", "{..2}", "{a..c}", "{2..1}", "{1..2", "{-1..2}", "{1...2}"] {
            assert_eq!(expand(text), Ok(None), "{text}");
        }
    }

    #[test]
    fn a_range_without_end_takes_no_memory() {
        for text in ["{0..18446744073709551615}.tar", "{0..9999}/{0..9999}"] {
            assert!(expand(text).unwrap_err().contains("more than 1000000"));
        }
    }
}
