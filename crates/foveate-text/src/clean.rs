//! Texts as SigLIP and open_clip clean them before the tokenizer.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use unicode_normalization::UnicodeNormalization;

/// What happens to a text before the tokenizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextCleaning {
    /// Nothing: the tokenizer's own normalization suffices.
    Untouched,
    /// SigLIP's in transformers: no ASCII punctuation, one space between words.
    Canonical,
    /// open_clip's: ftfy, HTML's references, one space between words.
    OpenClip,
    /// open_clip's for SigLIP: the same without ASCII punctuation, where `_` counts as a space.
    OpenClipCanonical,
}

pub(crate) fn clean(text: &str, cleaning: TextCleaning, lower_case: bool) -> Cow<'_, str> {
    let mut cleaned = match cleaning {
        TextCleaning::Untouched => return Cow::Borrowed(text),
        // The mark of a space in SentencePiece is one in a text, too. Case comes first: a letter has another one at the
        // end of a Greek word, and punctuation ends a word.
        TextCleaning::Canonical if lower_case => text.replace('▁', " ").to_lowercase(),
        TextCleaning::Canonical => text.replace('▁', " "),
        TextCleaning::OpenClip => basic_clean(text),
        TextCleaning::OpenClipCanonical => basic_clean(text).replace('_', " "),
    };
    if cleaning != TextCleaning::OpenClip {
        cleaned.retain(|c| !c.is_ascii_punctuation());
    }
    let words: Vec<&str> = cleaned.split(is_space).filter(|word| !word.is_empty()).collect();
    let cleaned = words.join(" ");
    Cow::Owned(if lower_case { cleaned.to_lowercase() } else { cleaned })
}

/// A space in Python, which counts four separators among the control characters, too.
fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\x1C'..='\x1F')
}

/// open_clip's function of this name: ftfy's `fix_text`, and HTML's references resolved twice.
fn basic_clean(text: &str) -> String {
    let mut fixed = String::with_capacity(text.len());
    let mut references = true;
    for line in text.split_inclusive('\n') {
        // HTML itself keeps its references, and so do the lines after it.
        references &= !line.contains('<');
        fixed += &fix_line(line, references);
    }
    unescape(&unescape(&fixed))
}

/// ftfy's fixes, again and again until none applies. Text in a wrong encoding stays as it is: ftfy guesses which one it
/// was from the frequency of characters.
fn fix_line(line: &str, references: bool) -> String {
    let mut text = line.to_owned();
    loop {
        let unescaped = if references { unescape_certain(&text) } else { text.clone() };
        let mut plain = String::with_capacity(unescaped.len());
        for c in unescaped.chars() {
            push_plain(windows_1252(c), &mut plain);
        }
        let plain =
            without_terminal_escapes(&plain.replace("\r\n", "\n").replace(['\r', '\u{2028}', '\u{2029}'], "\n"));
        let fixed = plain.chars().filter(|&c| !is_stray_control(c)).nfc().collect();
        if fixed == text {
            return fixed;
        }
        text = fixed;
    }
}

/// Ligatures, full and half width, and curled quotes as plain characters.
fn push_plain(c: char, plain: &mut String) {
    match c {
        'ŉ' => plain.push_str("'n"),
        'ﬅ' => plain.push_str("ſt"),
        '\u{02BC}' | '\u{2018}'..='\u{201B}' => plain.push('\''),
        '\u{201C}'..='\u{201F}' => plain.push('"'),
        'Ĳ' | 'ĳ' | 'Ǆ'..='ǌ' | 'Ǳ'..='ǳ' | 'ﬀ'..='ﬄ' | 'ﬆ' | '\u{3000}' | '\u{FF01}'..='\u{FFEF}' => {
            plain.extend([c].into_iter().nfkc());
        }
        c => plain.push(c),
    }
}

/// Removes sequences such as `ESC[36;44m`, which colour a terminal's text.
fn without_terminal_escapes(text: &str) -> String {
    let mut parts = text.split("\x1B[");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';') {
            rest if rest.starts_with(|c: char| c.is_ascii_alphabetic()) => kept.push_str(&rest[1..]),
            _ => kept.extend(["\x1B[", part]),
        }
    }
    kept
}

/// Characters without effect: most of ASCII's controls, Arabic shaping, annotations, the byte order mark.
fn is_stray_control(c: char) -> bool {
    matches!(c, '\0'..='\x08' | '\x0B' | '\x0E'..='\x1F' | '\x7F' | '\u{206A}'..='\u{206F}' | '\u{FEFF}'
        | '\u{FFF9}'..='\u{FFFC}')
}

/// The character that Windows has at the code of a C1 control. Five codes have none.
fn windows_1252(c: char) -> char {
    const C1: [char; 32] = [
        '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8D}', 'Ž', '\u{8F}', '\u{90}', '‘',
        '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9D}', 'ž', 'Ÿ',
    ];
    match c {
        '\u{80}'..='\u{9F}' => C1[c as usize - 0x80],
        c => c,
    }
}

/// HTML's names of characters, most with their semicolon, and the characters' codes.
static ENTITIES: LazyLock<HashMap<&str, String>> = LazyLock::new(|| {
    let mut entities = HashMap::new();
    for line in include_str!("entities.txt").lines() {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        entities.insert(name, words.filter_map(|code| char::from_u32(u32::from_str_radix(code, 16).ok()?)).collect());
    }
    entities
});

/// ftfy's resolution of references: those that end in a semicolon, and their names in capitals.
fn unescape_certain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out += &rest[..at];
        rest = &rest[at..];
        let name = rest[1..].strip_prefix('#').unwrap_or(&rest[1..]);
        let after = name.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
        let length = name.len() - after.len();
        if !(1..=24).contains(&length) || !after.starts_with(';') {
            out.push('&');
            rest = &rest[1..];
            continue;
        }
        let (reference, after) = rest.split_at(rest.len() - after.len() + 1);
        rest = after;
        let name = &reference[1..];
        let resolved = unescape(reference);
        match ENTITIES.get(name.to_ascii_lowercase().as_str()) {
            _ if ENTITIES.contains_key(name) => out += &resolved,
            Some(small) if name.to_ascii_uppercase() == name && resolved == reference => out += &small.to_uppercase(),
            _ if name.starts_with('#') && !resolved.contains(';') => out += &resolved,
            _ => out += reference,
        }
    }
    out + rest
}

/// Python's `html.unescape`: HTML 5's rules, by which a known name needs no semicolon.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out += &rest[..at];
        rest = &rest[at + 1..];
        if let Some(number) = rest.strip_prefix('#') {
            let hexadecimal = number.strip_prefix(['x', 'X']);
            let radix = if hexadecimal.is_some() { 16 } else { 10 };
            let digits = hexadecimal.unwrap_or(number);
            let after = digits.trim_start_matches(|c: char| c.is_digit(radix));
            let digits = &digits[..digits.len() - after.len()];
            if digits.is_empty() {
                out.push('&');
                continue;
            }
            rest = after.strip_prefix(';').unwrap_or(after);
            // More digits than a number holds are no character either.
            out.extend(numbered(u32::from_str_radix(digits, radix).unwrap_or(u32::MAX)));
            continue;
        }
        let mut length = rest.find(['\t', '\n', '\x0C', ' ', '<', '&', '#', ';']).unwrap_or(rest.len());
        if let Some((at, _)) = rest[..length].char_indices().nth(32) {
            length = at;
        }
        if length > 0 && rest[length..].starts_with(';') {
            length += 1;
        }
        // The longest name that there is, of two characters at least, or else the text as it stands.
        let known = (2..=length).rev().find_map(|end| Some((end, ENTITIES.get(rest.get(..end)?)?)));
        match known {
            Some((end, character)) => {
                out += character;
                rest = &rest[end..];
            }
            None => out.push('&'),
        }
    }
    out + rest
}

/// The character of a numbered reference, by HTML 5's rules; `None` for those that are no character at all.
fn numbered(code: u32) -> Option<char> {
    match code {
        0 => Some(char::REPLACEMENT_CHARACTER),
        0x1..=0x8 | 0xB | 0xE..=0x1F | 0x7F | 0xFDD0..=0xFDEF => None,
        0xFFFE.. if code <= 0x10_FFFF && code & 0xFFFE == 0xFFFE => None,
        code => Some(char::from_u32(code).map_or(char::REPLACEMENT_CHARACTER, windows_1252)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts, and what open_clip 3.3.0 with ftfy 6.3.1 makes of them for CLIP and for SigLIP.
    const CLEANED: [(&str, &str, &str); 11] = [
        ("ＬＯＵＤ　ﬂoor ﾊﾞｲｸ", "loud floor バイク", "loud floor バイク"),
        ("“it’s” ŉ ǆ ﬅ", "\"it's\" 'n dž ſt", "its n dž ſt"),
        ("a\r\nb\rc\u{2028}d\u{85}e\u{93}f", "a b c d…e\"f", "a b c d…ef"),
        ("\x1B[36;44mblue\x1B[0m \x1B[!", "blue [!", "blue"),
        ("a\0b\u{FEFF}c\x7F", "abc", "abc"),
        ("e\u{301} Å", "é å", "é å"),
        ("&eacute;&EACUTE;&amp;amp; AT&T &notit; R&D;", "éé& at&t ¬it; r&d;", "éé att ¬it rd"),
        ("<b>&amp;amp;eacute;</b>\n&NTILDE;&ntilde;", "<b>&eacute;</b> &ntilde;ñ", "beacuteb ntildeñ"),
        ("&#x80;&#128512;&#xD800;&#0;&#11;|&#99999999999;&#;&#x;&;", "€😀��|�&#;&#x;&;", "€😀���x"),
        ("snake_case - U.S.A.!  x", "snake_case - u.s.a.! x", "snake case usa x"),
        ("this&not that &bogus;&THORN &FRAC12;", "this¬ that &bogus;þ ½", "this¬ that bogusþ ½"),
    ];

    #[test]
    fn texts_are_cleaned_as_open_clip_does() {
        for (text, clip, siglip) in CLEANED {
            assert_eq!(clean(text, TextCleaning::OpenClip, true), clip);
            assert_eq!(clean(text, TextCleaning::OpenClipCanonical, true), siglip);
        }
    }
}
