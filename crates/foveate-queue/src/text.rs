/// Makes `text` fit any broker's message attributes: on one line, without control characters and noncharacters, in at
/// most `bytes` bytes. Longer text is truncated and ends in `…`.
pub fn one_line(text: &str, bytes: usize) -> String {
    const CUT: char = '…';
    let clean = text.trim().chars().map(|c| match c {
        '\u{fffe}' | '\u{ffff}' => char::REPLACEMENT_CHARACTER,
        c if c.is_control() => ' ',
        c => c,
    });
    let mut line: String = clean.collect();
    if line.len() > bytes {
        line.truncate(line.floor_char_boundary(bytes.saturating_sub(CUT.len_utf8())));
        if line.len() + CUT.len_utf8() <= bytes {
            line.push(CUT);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn what_fits_stays_and_the_rest_is_cut() {
        assert_eq!(one_line("zażółć", 10), "zażółć");
        assert_eq!(one_line("zażółć", 9), "zażó…", "9 bytes would end within a letter");
        assert_eq!(one_line("abcdef", 3), "…");
        assert_eq!(one_line("abcdef", 2), "");
        assert_eq!(one_line("", 0), "");
        for bytes in 0..12 {
            assert!(one_line("żżżżżż", bytes).len() <= bytes);
        }
    }

    #[test]
    fn lines_are_joined_and_what_is_no_character_goes() {
        assert_eq!(one_line("\n no\u{0}\tsuch\r\nhost\u{85}\u{ffff}\n", 99), "no  such  host \u{fffd}");
    }
}
