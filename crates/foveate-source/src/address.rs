//! Addresses in stores, as text.

use std::borrow::Cow;
use std::path::Path;

/// Returns the scheme of an address (`s3` of `s3://bucket/key`), or `None` for a path.
pub fn scheme_of(address: &[u8]) -> Option<&str> {
    let end = address.windows(3).position(|three| three == b"://")?;
    let scheme = std::str::from_utf8(&address[..end]).ok()?;
    let is_scheme = scheme.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+.-".contains(&b));
    (is_scheme && scheme.starts_with(|c: char| c.is_ascii_lowercase())).then_some(scheme)
}

/// Returns what a user typed in the form that is read: an address with its scheme in lower case (`s3://b/k` for
/// `S3://b/k`), one of the web without spaces around it, the path of a `file:` address, and a path as it is.
pub fn normal_address(typed: &str) -> Cow<'_, str> {
    if let Some(path) = local_path(typed) {
        return path.into();
    }
    let Some((scheme, rest)) = typed.split_once("://") else { return typed.into() };
    let scheme = scheme.to_ascii_lowercase();
    match scheme.trim_start() {
        scheme @ ("http" | "https") => format!("{scheme}://{}", rest.trim_end()).into(),
        _ if scheme_of(format!("{scheme}://").as_bytes()).is_some() => format!("{scheme}://{rest}").into(),
        _ => typed.into(),
    }
}

/// Returns the path of a `file:` address on this machine; `None` for other addresses and for paths. In URLs, bytes are
/// escaped; in the paths of Hadoop and Daft, they are not.
pub fn local_path(address: &str) -> Option<String> {
    let address = address.trim_start();
    let rest = address.get(5..).filter(|_| address[..5].eq_ignore_ascii_case("file:"))?;
    let rest = rest.strip_prefix("//localhost").or_else(|| rest.strip_prefix("//")).unwrap_or(rest);
    let plain = Path::new(rest);
    if !plain.is_absolute() {
        return None;
    }
    let unescaped = if plain.exists() { None } else { unescaped(rest.trim_end()) };
    Some(unescaped.unwrap_or_else(|| rest.to_owned()))
}

fn unescaped(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

/// Returns the scheme, host and path of a web server's address, and other addresses and paths as they are. A query may
/// be a signature, and user info a password.
pub fn public(address: &[u8]) -> Cow<'_, [u8]> {
    let Some(scheme @ ("http" | "https")) = scheme_of(address) else { return Cow::Borrowed(address) };
    let (scheme, rest) = address.split_at(scheme.len() + "://".len());
    let rest = rest.split(|byte| b"?#".contains(byte)).next().unwrap_or_default();
    let host = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
    match rest[..host].iter().rposition(|&byte| byte == b'@') {
        Some(at) => Cow::Owned([scheme, &rest[at + 1..]].concat()),
        None => Cow::Borrowed(&address[..scheme.len() + rest.len()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_from_paths() {
        for (address, scheme) in [("s3://b/k", "s3"), ("https://h/p", "https"), ("gs://b", "gs")] {
            assert_eq!(scheme_of(address.as_bytes()), Some(scheme));
        }
        for path in ["a.jpg", "s3:/b", "://x", "C://x", "a/b://c", "../x://y", "S3://b/k"] {
            assert_eq!(scheme_of(path.as_bytes()), None, "{path}");
        }
    }

    #[test]
    fn a_typed_scheme_is_one_in_any_case() {
        for (typed, address) in [
            ("S3://B/K ", "s3://B/K "),
            (" Https://h \t", "https://h"),
            ("A/b://c", "A/b://c"),
            ("a", "a"),
            (" s3://b", " s3://b"),
        ] {
            assert_eq!(normal_address(typed), address);
        }
    }

    #[test]
    fn a_file_address_is_a_path() {
        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join("a b%20c.jpg");
        std::fs::write(&odd, "").unwrap();
        let odd = odd.to_str().unwrap();
        let escaped = odd.replace('%', "%25").replace(' ', "%20");
        for address in [format!("file://{escaped}"), format!("FILE://localhost{escaped}"), format!("file:{odd}")] {
            assert_eq!(normal_address(&address), odd);
        }
        for (address, path) in [
            ("file:///none/\u{fc}%C3%BC%2.jpg", "/none/\u{fc}%C3%BC%2.jpg"),
            ("file:///none/%C3%BC.jpg", "/none/\u{fc}.jpg"),
            ("file://host/a.jpg", "file://host/a.jpg"),
            ("file:a.jpg", "file:a.jpg"),
            ("fi", "fi"),
        ] {
            assert_eq!(normal_address(address), path);
        }
    }

    #[test]
    fn queries_and_user_info_are_not_public() {
        for (address, shown) in [
            ("https://h/a.jpg?X-Amz-Signature=s", "https://h/a.jpg"),
            ("http://user:p@ss@h:80/a@b/c.jpg?x=/y@z#f", "http://h:80/a@b/c.jpg"),
            ("https://u@h?q", "https://h"),
            ("https://h#f", "https://h"),
            ("https://h/a/", "https://h/a/"),
            ("s3://b/a?b#c@d", "s3://b/a?b#c@d"),
            ("a?b", "a?b"),
        ] {
            assert_eq!(public(address.as_bytes()), shown.as_bytes());
        }
    }
}
