//! The font of the figures, and the width of its text.

use std::sync::LazyLock;

use skrifa::instance::{LocationRef, Size};
use skrifa::{FontRef, MetadataProvider};

pub(crate) const FAMILY: &str = "Roboto, system-ui, sans-serif";
pub(crate) const REGULAR: &[u8] = include_bytes!("../fonts/Roboto-Regular.ttf");
pub(crate) const MEDIUM: &[u8] = include_bytes!("../fonts/Roboto-Medium.ttf");

/// Number of characters with a stored advance, at size 1, regular and medium.
const TABLE: usize = 256;
static ADVANCES: LazyLock<[Vec<f32>; 2]> = LazyLock::new(|| [advances(REGULAR), advances(MEDIUM)]);

fn advances(font: &[u8]) -> Vec<f32> {
    // The bundled files are fonts, as a test checks. Without a font, half the size is a fair estimate of a letter's
    // width.
    let Ok(font) = FontRef::new(font) else { return vec![0.5; TABLE] };
    let (letters, metrics) = (font.charmap(), font.glyph_metrics(Size::new(1.0), LocationRef::default()));
    let advance = |c: u8| letters.map(char::from(c)).and_then(|glyph| metrics.advance_width(glyph)).unwrap_or(0.0);
    (0..=255).map(advance).collect()
}

/// Returns the width in pixels of `text` at `size`.
pub(crate) fn width(text: &str, size: f32, bold: bool) -> f32 {
    let advances = &ADVANCES[usize::from(bold)];
    // Beyond Latin letters the font has few glyphs, all about as wide as a letter.
    text.chars().map(|c| advances.get(c as usize).copied().unwrap_or(0.6) * size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_widths() {
        assert!(FontRef::new(REGULAR).is_ok() && FontRef::new(MEDIUM).is_ok());
        let digit = width("0", 16.0, false);
        assert!((8.0..10.0).contains(&digit), "{digit}");
        assert_eq!(width("1", 16.0, false), digit, "digits stand below each other");
        assert!(width("throughput", 16.0, true) > width("throughput", 16.0, false));
    }
}
