//! Enough of Rust's lexical grammar to distinguish code from comments and literals.

/// `source` with the content of comments, strings and character literals blanked out; line breaks stay where they are.
pub(crate) fn code(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => line_end(bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => block_comment_end(bytes, at),
            b'"' => string_end(bytes, at),
            b'r' if !is_word_before(bytes, at) => raw_string_end(bytes, at).unwrap_or(at),
            b'\'' => char_end(bytes, at).unwrap_or(at),
            _ => at,
        };
        if end > at {
            blank(&mut out[at..end]);
            at = end;
        } else {
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Offsets at which `word` occurs in `code` as a whole word.
pub(crate) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |&at| !code[..at].ends_with(is_word) && !code[at + word.len()..].starts_with(is_word))
}

/// Line number, from 1, of an offset.
pub(crate) fn line(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|&b| b == b'\n').map_or(bytes.len(), |n| at + n)
}

fn block_comment_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while end < bytes.len() {
        match bytes[end] {
            b'\\' => end += 2,
            b'"' => return end + 1,
            _ => end += 1,
        }
    }
    bytes.len()
}

/// The end of `r"…"` or `r#"…"#` if one begins at `at`.
fn raw_string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at + 1..].iter().take_while(|&&b| b == b'#').count();
    let open = at + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let length = bytes[open + 1..].windows(close.len()).position(|window| window == close.as_bytes());
    Some(length.map_or(bytes.len(), |n| open + 1 + n + close.len()))
}

/// The end of a character literal; `None` for a lifetime.
fn char_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at + 1) == Some(&b'\\') {
        let close = bytes.get(at + 3..)?.iter().position(|&b| b == b'\'')?;
        return Some(at + 3 + close + 1);
    }
    // One character, which is at most four bytes long, and a quote.
    (at + 3..=at + 6).find(|&end| {
        bytes.get(end - 1) == Some(&b'\'')
            && std::str::from_utf8(&bytes[at + 1..end - 1]).is_ok_and(|s| s.chars().count() == 1)
    })
}

fn is_word_before(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked() {
        let source = "a // x\nb /* y /* z */ */ c \"d\\\" e\" r#\"f\"# '\\'' 'g' '→' h";
        let code = code(source);
        assert_eq!(code.split_whitespace().collect::<Vec<_>>(), ["a", "b", "c", "h"]);
        assert_eq!(code.len(), source.len());
        assert_eq!(code.find('\n'), source.find('\n'));
    }

    #[test]
    fn lifetimes_are_code() {
        assert_eq!(code("fn f<'a>(x: &'a str, y: &'a u8)"), "fn f<'a>(x: &'a str, y: &'a u8)");
        assert!(code("let r = bar\"b\";").contains("bar"));
    }

    #[test]
    fn words_are_whole() {
        let at: Vec<usize> = words("unsafe_code unsafe {} not_unsafe", "unsafe").collect();
        assert_eq!(at, [12]);
    }
}
