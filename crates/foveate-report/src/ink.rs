//! Colours: one per stage everywhere, safe for the colour-blind (after Okabe and Ito, and Tol), light and dark.

use plotters::style::RGBColor;

type Rgb = (u8, u8, u8);

/// A colour by its meaning. Figures name it by class, so that a page can be light or dark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ink {
    pub(crate) class: &'static str,
    pub(crate) light: Rgb,
    pub(crate) dark: Rgb,
    /// Whether white text is readable on it, instead of black.
    pub(crate) takes_white: bool,
}

const fn ink(class: &'static str, light: Rgb, dark: Rgb, takes_white: bool) -> Ink {
    Ink { class, light, dark, takes_white }
}

pub(crate) const BACK: Ink = ink("back", (255, 255, 255), (22, 24, 29), false);
pub(crate) const WORDS: Ink = ink("words", (27, 31, 36), (230, 232, 236), true);
pub(crate) const MUTED: Ink = ink("muted", (90, 98, 110), (158, 166, 178), true);
pub(crate) const GRID: Ink = ink("grid", (225, 228, 232), (52, 57, 66), false);
pub(crate) const QUIET: Ink = ink("quiet", (176, 183, 192), (98, 106, 118), false);

pub(crate) const LIST: Ink = ink("list", (153, 153, 51), (170, 170, 70), false);
pub(crate) const READ: Ink = ink("read", (0, 158, 115), (16, 170, 126), false);
pub(crate) const DECODE: Ink = ink("decode", (230, 159, 0), (230, 160, 10), false);
pub(crate) const RESIZE: Ink = ink("resize", (86, 180, 233), (88, 182, 234), false);
pub(crate) const NORMALIZE: Ink = ink("normalize", (226, 208, 44), (228, 210, 56), false);
pub(crate) const BATCH: Ink = ink("batch", (136, 34, 85), (178, 74, 126), true);
pub(crate) const COPY_IN: Ink = ink("copy-in", (204, 121, 167), (206, 124, 170), false);
pub(crate) const FORWARD: Ink = ink("forward", (0, 114, 178), (42, 134, 198), true);
pub(crate) const COPY_OUT: Ink = ink("copy-out", (222, 178, 204), (222, 180, 206), false);
pub(crate) const SERIALIZE: Ink = ink("serialize", (213, 94, 0), (222, 106, 18), false);
pub(crate) const OTHER: Ink = ink("other", (128, 134, 142), (128, 136, 146), false);

/// All inks, each with a different light colour.
pub(crate) const ALL: [Ink; 16] = [
    BACK, WORDS, MUTED, GRID, QUIET, LIST, READ, DECODE, RESIZE, NORMALIZE, BATCH, COPY_IN, FORWARD, COPY_OUT,
    SERIALIZE, OTHER,
];

/// Colours of lines in one chart, in this order.
const SERIES: [Ink; 6] = [FORWARD, DECODE, READ, COPY_IN, RESIZE, SERIALIZE];

impl Ink {
    pub(crate) fn color(self) -> RGBColor {
        RGBColor(self.light.0, self.light.1, self.light.2)
    }

    pub(crate) fn of(rgb: Rgb) -> Self {
        ALL.into_iter().find(|ink| ink.light == rgb).unwrap_or(WORDS)
    }

    /// Returns the colour of a pipeline stage; for a stage that combines two, that of the first.
    pub(crate) fn of_stage(stage: &str) -> Self {
        let first = stage.split(' ').next().unwrap_or_default();
        let class = if first == "write" { SERIALIZE.class } else { first };
        ALL[5..].iter().copied().find(|ink| ink.class == class).unwrap_or(OTHER)
    }

    /// Returns the position of a stage's colour among all stages, in the order of the data flow.
    pub(crate) fn order(self) -> Option<usize> {
        ALL.iter().position(|ink| *ink == self)
    }

    /// Returns the colour of the line at position `at` among others.
    pub(crate) fn of_series(at: usize) -> Self {
        SERIES[at % SERIES.len()]
    }

    /// Returns the class of text on top of it.
    pub(crate) fn letters(self) -> &'static str {
        if self.takes_white { "on-dark" } else { "on-light" }
    }
}

/// Returns the style sheet of a separate figure: the light colours.
pub(crate) fn sheet() -> String {
    ALL.iter().map(|ink| rules(ink.class, &hex(ink.light))).chain([letters(&hex(BACK.light))]).collect()
}

/// Returns the style sheet of figures in the page: colours by name, which the page sets to light or dark.
pub(crate) fn page_sheet() -> String {
    let names = |dark: bool| -> String {
        ALL.iter().map(|ink| format!("--{}:{};", ink.class, hex(if dark { ink.dark } else { ink.light }))).collect()
    };
    let rules: String = ALL.iter().map(|ink| rules(ink.class, &format!("var(--{})", ink.class))).collect();
    let (light, dark) = (names(false), names(true));
    format!(
        ":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n{rules}{}",
        letters("var(--back)")
    )
}

/// Returns the style of text. It has an outline in the background colour, so that it stays readable on top of lines.
fn letters(back: &str) -> String {
    format!(
        ".on-light{{fill:#111}}.on-dark{{fill:#fff}}.bold{{font-weight:500}}\
         text.f-words,text.f-muted{{paint-order:stroke;stroke:{back};stroke-width:3px;stroke-linejoin:round}}"
    )
}

fn rules(class: &str, color: &str) -> String {
    format!(".f-{class}{{fill:{color}}}.s-{class}{{fill:none;stroke:{color}}}")
}

fn hex((r, g, b): Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inks_are_told_apart() {
        for (at, ink) in ALL.iter().enumerate() {
            for other in &ALL[..at] {
                assert!(ink.light != other.light && ink.class != other.class, "{ink:?} {other:?}");
            }
            assert_eq!(Ink::of(ink.light), *ink);
        }
        assert_eq!(Ink::of_stage("decode"), DECODE);
        assert_eq!(Ink::of_stage("decode and resize"), DECODE);
        assert_eq!(Ink::of_stage("write"), SERIALIZE);
        assert_eq!(Ink::of_stage("words"), OTHER, "a stage is none of the page's own colours");
    }

    /// Returns the contrast of two colours, as defined by WCAG 2.
    fn contrast(a: Rgb, b: Rgb) -> f64 {
        let linear = |value: u8| {
            let value = f64::from(value) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        let luminance = |(r, g, b): Rgb| 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn letters_are_readable() {
        for ink in [WORDS, MUTED] {
            assert!(contrast(ink.light, BACK.light) >= 4.5 && contrast(ink.dark, BACK.dark) >= 4.5, "{ink:?}");
        }
        for ink in &ALL[5..] {
            let letters = if ink.takes_white { (255, 255, 255) } else { (17, 17, 17) };
            for fill in [ink.light, ink.dark] {
                assert!(contrast(letters, fill) >= 3.8, "{ink:?} {:.2}", contrast(letters, fill));
            }
        }
    }
}
