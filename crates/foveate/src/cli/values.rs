//! Values of arguments: numbers with suffixes, seconds, settings by name.

use std::str::FromStr;
use std::time::Duration;

pub(crate) fn parse_setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

pub(crate) fn parse_positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("expected a whole number from 1".to_owned()),
        Ok(number) => Ok(number),
    }
}

pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let refused = || "expected a number of seconds from 0, such as 2 or 0.5".to_owned();
    let seconds = f64::from_str(text).map_err(|_| refused())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| refused())
}

/// Parses a number with an optional suffix: K, M and G are thousands, millions and thousand millions.
pub(crate) fn suffixed(text: &str) -> Option<f64> {
    let text = text.trim();
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1e3),
        Some((at, 'm' | 'M')) => (&text[..at], 1e6),
        Some((at, 'g' | 'G')) => (&text[..at], 1e9),
        _ => (text, 1.0),
    };
    f64::from_str(digits).ok().map(|number| number * unit).filter(|number| number.is_finite())
}

/// Parses a whole number from 1, with an optional suffix.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    let refused = || "expected a number from 1, such as 100000000, 100M or 2G".to_owned();
    suffixed(text).filter(|&number| number >= 1.0).map(|number| number as u64).ok_or_else(refused)
}

/// A count, or `off` for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountOrOff(pub(crate) Option<u64>);

impl FromStr for CountOrOff {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self(None)),
            _ => text.parse().map(|count| Self(Some(count))).map_err(|_| "expected a count (100) or off".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_may_be_off() {
        assert_eq!("off".parse(), Ok(CountOrOff(None)));
        assert_eq!("20".parse(), Ok(CountOrOff(Some(20))));
        assert!("1%".parse::<CountOrOff>().is_err());
    }

    #[test]
    fn counts_take_suffixes_and_refuse_nonsense() {
        assert_eq!(parse_count("100M"), Ok(100_000_000));
        assert_eq!(parse_count("1.5k"), Ok(1_500));
        assert_eq!(parse_count("7"), Ok(7));
        for bad in ["", "0", "-1", "M", "inf", "nan", "12x"] {
            assert!(parse_count(bad).is_err(), "{bad}");
        }
    }
}
