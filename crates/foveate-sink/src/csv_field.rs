//! RFC 4180 fields, quoted only if necessary. Lines end in `\n`, which every reader accepts.

/// Appends one CSV field (RFC 4180) to `line`. Quotes a field that holds a comma, a quote or a line break, is empty, or
/// has outer blanks (which some readers would trim). The caller adds commas between fields and `\n` after the last one.
pub fn push_csv_field(line: &mut String, field: &str) {
    let plain = !field.is_empty() && field == field.trim() && !field.contains([',', '"', '\n', '\r']);
    if plain {
        line.push_str(field);
        return;
    }
    line.push('"');
    for piece in field.split_inclusive('"') {
        line.push_str(piece);
        if piece.ends_with('"') {
            line.push('"');
        }
    }
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(text: &str) -> String {
        let mut line = String::new();
        push_csv_field(&mut line, text);
        line
    }

    #[test]
    fn fields_are_quoted_only_when_they_must_be() {
        assert_eq!(field("a/b c.jpg"), "a/b c.jpg");
        assert_eq!(field("żółw.jpg"), "żółw.jpg");
        assert_eq!(field("a,b"), "\"a,b\"");
        assert_eq!(field("a\nb"), "\"a\nb\"");
        assert_eq!(field("say \"hi\""), "\"say \"\"hi\"\"\"");
        assert_eq!(field(""), "\"\"");
        assert_eq!(field(" a"), "\" a\"");
    }
}
