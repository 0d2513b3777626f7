//! Values of arguments: numbers with suffixes, seconds, settings by name, addresses.

use std::fmt::Display;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};
use foveate::Shard;
use foveate::source::store::normal_address;
use foveate::source::{Input, NameFilter};

/// Parses a path, or an address, whose scheme may be in upper case.
pub(crate) fn place() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(|path| {
        let address = path.to_str().map(|text| normal_address(text).into_owned());
        address.map_or(path, PathBuf::from)
    })
}

/// Parses a file, a folder, a pattern or an address.
pub(crate) fn input() -> impl TypedValueParser<Value = Input> {
    place().map(Input::Path)
}

/// Parses one of a closed set of names.
pub(crate) fn one_of<T>(all: &'static [T], name: fn(T) -> &'static str) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let names = PossibleValuesParser::new(all.iter().map(|&value| name(value)));
    names.map(move |word| {
        let found = all.iter().find(|&&value| name(value) == word);
        *found.unwrap_or_else(|| unreachable!("'{word}' is one of the names"))
    })
}

pub(crate) fn parse_glob(glob: &str) -> Result<String, String> {
    NameFilter::new(&[glob.to_owned()], &[]).map(|_| glob.to_owned())
}

/// Names the option that is meant by the one that other programs have.
pub(crate) fn endpoint_url(url: &str) -> Result<String, String> {
    Err(format!("write `--store-option endpoint={url}`"))
}

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

/// Parses a fraction of a whole, more than 0 and less than 1.
pub(crate) fn parse_fraction(text: &str) -> Result<f64, String> {
    parse_share(text).ok().filter(|&share| share < 1.0).ok_or_else(|| "expected a number between 0 and 1".to_owned())
}

/// Parses a share of a whole, more than 0 and at most 1.
pub(crate) fn parse_share(text: &str) -> Result<f64, String> {
    let share = f64::from_str(text).ok().filter(|&share| share > 0.0 && share <= 1.0);
    share.ok_or_else(|| "expected a number above 0, up to 1".to_owned())
}

/// Parses `i/n`, `auto` or `auto/n`.
pub(crate) fn parse_shard(text: &str) -> Result<Shard, String> {
    Shard::parse(text, |name| std::env::var(name).ok()).map_err(|error| error.to_string())
}

/// Parses an address to listen at. Without a host, it means all interfaces. A host's IPv4 address is preferred.
pub(crate) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let refused = |why: &dyn Display| {
        format!("{why}; write HOST:PORT, such as 127.0.0.1:8080 or localhost:8080, or :8080 for all interfaces")
    };
    let (host, port) = text.rsplit_once(':').ok_or_else(|| refused(&"there is no port"))?;
    let port: u16 = port.parse().map_err(|_| refused(&format_args!("'{port}' is not a port")))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = if host.is_empty() { "0.0.0.0" } else { host };
    let found = (host, port).to_socket_addrs().map_err(|error| refused(&error))?;
    found.min_by_key(SocketAddr::is_ipv6).ok_or_else(|| refused(&"the host has no address"))
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
            "0" => Ok(Self(Some(0))),
            _ => {
                parse_count(text).map(|count| Self(Some(count))).map_err(|_| "expected a count (100) or off".to_owned())
            }
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
    fn addresses_to_listen_at_may_be_names_or_ports_alone() {
        for (text, address) in [
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("localhost:8080", "127.0.0.1:8080"),
            (":8080", "0.0.0.0:8080"),
            ("[::1]:0", "[::1]:0"),
        ] {
            assert_eq!(parse_listen(text).unwrap().to_string(), address);
        }
        for (bad, why) in [("8080", "there is no port"), (":http", "'http' is not a port"), ("a b:1", "")] {
            let message = parse_listen(bad).unwrap_err();
            assert!(message.starts_with(why) && message.contains("; write HOST:PORT"), "{message}");
        }
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
