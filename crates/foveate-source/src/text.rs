//! Text files as other programs save them.

/// The text of a file in UTF-8, with or without a byte order mark, or in UTF-16 with one; `None` if it is neither.
pub fn text_of(bytes: &[u8]) -> Option<String> {
    let (unit, units): (fn([u8; 2]) -> u16, _) = match bytes {
        [0xEF, 0xBB, 0xBF, text @ ..] => return String::from_utf8(text.to_vec()).ok(),
        [0xFF, 0xFE, units @ ..] => (u16::from_le_bytes, units),
        [0xFE, 0xFF, units @ ..] => (u16::from_be_bytes, units),
        text => return String::from_utf8(text.to_vec()).ok(),
    };
    let (units, []) = units.as_chunks() else { return None };
    String::from_utf16(&units.iter().map(|&pair| unit(pair)).collect::<Vec<_>>()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_say_the_encoding() {
        for (bytes, text) in [
            (&b"z\xc3\xa4"[..], Some("zä")),
            (b"\xef\xbb\xbfz\xc3\xa4", Some("zä")),
            (b"\xff\xfez\0\xe4\0", Some("zä")),
            (b"\xfe\xff\0z\0\xe4", Some("zä")),
            (b"\xff\xfez", None),
            (b"z\xe4", None),
            (b"", Some("")),
        ] {
            assert_eq!(text_of(bytes).as_deref(), text, "{bytes:?}");
        }
    }
}
