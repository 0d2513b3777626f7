//! Drawing in SVG: shapes and text by class, and marks that name the fields they show.

use std::fmt::{Arguments, Write};

use crate::text::{Text, TextSpan, escape, tick};

/// A colour by its meaning; `figure.css` defines it for light and dark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ink {
    name: &'static str,
    faint: bool,
}

const fn ink(name: &'static str) -> Ink {
    Ink { name, faint: false }
}

pub(crate) const BACK: Ink = ink("back");
pub(crate) const WORDS: Ink = ink("words");
pub(crate) const MUTED: Ink = ink("muted");
pub(crate) const GRID: Ink = ink("grid");
pub(crate) const QUIET: Ink = ink("quiet");
pub(crate) const READ: Ink = ink("read");
pub(crate) const DECODE: Ink = ink("decode");
pub(crate) const RESIZE: Ink = ink("resize");
pub(crate) const FORWARD: Ink = ink("forward");
pub(crate) const SERIALIZE: Ink = ink("serialize");
pub(crate) const OTHER: Ink = ink("other");

/// The pipeline's stages in the order of the data flow.
const STAGES: [&str; 11] =
    ["list", "read", "decode", "resize", "normalize", "batch", "copy-in", "forward", "copy-out", "serialize", "other"];

impl Ink {
    /// Returns the colour of a pipeline stage; for a stage that combines two, that of the first.
    pub(crate) fn of_stage(stage: &str) -> Self {
        let first = stage.split(' ').next().unwrap_or_default();
        let first = if first == "write" { "serialize" } else { first };
        STAGES.iter().find(|name| **name == first).map_or(OTHER, |name| ink(name))
    }

    /// Returns the position of a stage's colour in the order of the data flow.
    pub(crate) fn order(self) -> Option<usize> {
        STAGES.iter().position(|name| *name == self.name)
    }

    /// Returns the colour of the line at position `at` among others.
    pub(crate) fn of_series(at: usize) -> Self {
        [FORWARD, DECODE, READ, ink("copy-in"), RESIZE, SERIALIZE][at % 6]
    }

    /// Returns the colour, lighter where `faint`.
    pub(crate) fn faint(self, faint: bool) -> Self {
        Self { faint, ..self }
    }

    fn class(self) -> String {
        format!("i-{}{}", self.name, if self.faint { " faint" } else { "" })
    }
}

pub(crate) type At = (f64, f64);

/// The style of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hand {
    size: f64,
    bold: bool,
    /// The part of a text at its position: `start`, `end` or `middle`.
    anchor: &'static str,
    class: &'static str,
    ink: Ink,
}

impl Hand {
    pub(crate) const PLAIN: Self = Self { size: 13.0, bold: false, anchor: "start", class: "", ink: WORDS };
    pub(crate) const BOLD: Self = Self { bold: true, ..Self::PLAIN };
    pub(crate) const SMALL: Self = Self { size: 12.0, ink: MUTED, ..Self::PLAIN };
    /// Numbers along an axis, which are from no file.
    pub(crate) const TICK: Self = Self { class: "tick ", ..Self::SMALL };
    const TITLE: Self = Self { size: 16.0, class: "heading ", ..Self::BOLD };

    pub(crate) fn end(self) -> Self {
        Self { anchor: "end", ..self }
    }

    pub(crate) fn middle(self) -> Self {
        Self { anchor: "middle", ..self }
    }

    /// Returns the style for text on top of `ink`.
    pub(crate) fn upon(self, ink: Ink) -> Self {
        Self { class: "on ", ink, ..self }
    }

    /// Estimates the width of `text`, rather too wide: after DejaVu Sans, the widest of the usual system fonts.
    pub(crate) fn width(self, text: &str) -> f64 {
        let letters = text.chars().map(|letter| match letter {
            'f' | 'i' | 'j' | 'l' | 'r' | 't' | 'I' | ' ' | '\u{a0}' | '.' | ',' | ':' | ';' | '(' | ')' | '-' => 0.36,
            'm' | 'w' | 'M' | 'W' | '%' | '…' | '→' | '\u{2e80}'.. => 0.97,
            'A'..='Z' | '+' | '×' | '÷' | '−' => 0.74,
            _ => 0.62,
        });
        letters.sum::<f64>() * self.size * if self.bold { 1.08 } else { 1.0 }
    }

    /// Splits `text` into lines no wider than `width`, at blanks between words.
    pub(crate) fn wrap(self, text: &Text, width: f64) -> Vec<Text> {
        let mut words = vec![Text::default()];
        for span in &text.0 {
            for piece in span.text.split_inclusive(' ') {
                words[0].0.push(TextSpan { text: piece.to_owned(), ..span.clone() });
                if piece.ends_with(' ') {
                    words.insert(0, Text::default());
                }
            }
        }
        let mut lines = vec![Text::default()];
        for word in words.into_iter().rev() {
            let line = &mut lines[0];
            if line.is_empty() || self.width((line.plain() + &word.plain()).trim_end()) <= width {
                line.0.extend(word.0);
            } else {
                lines.insert(0, word);
            }
        }
        lines.reverse();
        lines
    }

    /// Truncates `text` to `width`, with an ellipsis where it is cut.
    pub(crate) fn fit(self, text: &Text, width: f64) -> Text {
        if self.width(&text.plain()) <= width {
            return text.clone();
        }
        let mut left = width - self.width("…");
        let mut spans = Vec::new();
        for span in &text.0 {
            let mut kept = String::new();
            for letter in span.text.chars() {
                left -= self.width(letter.encode_utf8(&mut [0; 4]));
                if left < 0.0 {
                    break;
                }
                kept.push(letter);
            }
            if !kept.is_empty() {
                spans.push(TextSpan { text: kept, ..span.clone() });
            }
        }
        Text(spans) + "…"
    }
}

/// A drawing under way.
pub(crate) struct Pen {
    pub(crate) width: f64,
    body: String,
}

impl Pen {
    pub(crate) fn is_narrow(&self) -> bool {
        self.width < 600.0
    }

    fn write(&mut self, svg: Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.body.write_fmt(svg);
        self.body.push('\n');
    }

    /// Draws the output of `draw` as one mark with the tooltip `tip`.
    pub(crate) fn mark(&mut self, tip: &Text, draw: impl FnOnce(&mut Self)) {
        self.write(format_args!("<g data-from=\"{}\"><title>{}</title>", tip.origins(), escape(&tip.plain())));
        draw(self);
        self.write(format_args!("</g>"));
    }

    /// Writes `text` with its baseline at `y`; the style's anchor decides the meaning of `x`.
    pub(crate) fn text(&mut self, x: f64, y: f64, hand: Hand, text: &Text) {
        let Hand { size, bold, anchor, class, ink } = hand;
        let ink = ink.class();
        let bold = if bold { " bold" } else { "" };
        let text = text.markup("tspan");
        if !text.is_empty() {
            self.write(format_args!(
                "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}{ink}{bold}\" font-size=\"{size}\" \
                 text-anchor=\"{anchor}\">{text}</text>"
            ));
        }
    }

    /// Writes `text` in lines no wider than `width`, the first baseline at `y`; returns their height.
    pub(crate) fn paragraph(&mut self, y: f64, hand: Hand, text: &Text) -> f64 {
        let lines = hand.wrap(text, self.width);
        let step = hand.size * 1.35;
        for (at, line) in lines.iter().enumerate() {
            self.text(0.0, y + at as f64 * step, hand, line);
        }
        lines.len() as f64 * step
    }

    pub(crate) fn rect(&mut self, ink: Ink, (left, top): At, (right, bottom): At) {
        let width = right - left;
        let height = bottom - top;
        let ink = ink.class();
        self.write(format_args!(
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{ink}\"/>"
        ));
    }

    pub(crate) fn polygon(&mut self, ink: Ink, opacity: f64, points: impl IntoIterator<Item = At>) {
        let points = joined(points);
        let ink = ink.class();
        self.write(format_args!("<polygon points=\"{points}\" class=\"{ink}\" opacity=\"{opacity}\"/>"));
    }

    pub(crate) fn line(&mut self, ink: Ink, width: u8, points: impl IntoIterator<Item = At>) {
        let points = joined(points);
        let ink = ink.class();
        self.write(format_args!("<polyline points=\"{points}\" class=\"line {ink}\" stroke-width=\"{width}\"/>"));
    }

    /// Draws a line of what follows from an assumption.
    pub(crate) fn dashed(&mut self, ink: Ink, width: u8, points: impl IntoIterator<Item = At>) {
        let points = joined(points);
        let class = format!("class=\"line dashed {}\"", ink.class());
        self.write(format_args!("<polyline points=\"{points}\" {class} stroke-width=\"{width}\"/>"));
    }

    pub(crate) fn circle(&mut self, ink: Ink, (x, y): At, radius: f64, filled: bool) {
        let ink = ink.class();
        let line = if filled { "" } else { "line " };
        let class = format!("class=\"{line}{ink}\" stroke-width=\"2\"");
        self.write(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" {class}/>"));
    }

    /// Draws the meanings of the colours from the top; returns their height.
    pub(crate) fn legend(&mut self, keys: &[(Ink, Text)]) -> f64 {
        const CHIP: f64 = 11.0;
        const ROW: f64 = 20.0;
        let mut x = 0.0;
        let mut y = 0.0;
        for (ink, name) in keys {
            let wide = CHIP + 6.0 + Hand::SMALL.width(&name.plain()) + 16.0;
            if x > 0.0 && x + wide > self.width {
                x = 0.0;
                y += ROW;
            }
            self.rect(*ink, (x, y + 2.0), (x + CHIP, y + 2.0 + CHIP));
            self.text(x + CHIP + 6.0, y + CHIP + 1.0, Hand::SMALL, &Hand::SMALL.fit(name, self.width - CHIP - 6.0));
            x += wide;
        }
        if keys.is_empty() { 0.0 } else { y + ROW + 8.0 }
    }

    /// Draws a horizontal axis with the numbers of `ticks` below `bottom` and lines up to `top`. `x` maps a value to
    /// its position, `ends` are the values at the ends of the axis.
    pub(crate) fn axis_below(&mut self, ticks: &[f64], top: f64, bottom: f64, ends: [f64; 2], x: impl Fn(f64) -> f64) {
        for value in ticks {
            self.line(GRID, 1, [(x(*value), top), (x(*value), bottom)]);
            let words = tick(*value);
            let middle = x(*value).max(Hand::TICK.width(&words) / 2.0);
            self.text(middle, bottom + 14.0, Hand::TICK.middle(), &words.into());
        }
        self.line(GRID, 1, ends.map(|end| (x(end), bottom)));
    }
}

fn joined(points: impl IntoIterator<Item = At>) -> String {
    points.into_iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ")
}

/// Returns round numbers from 0 to `end`, about `count` of them.
pub(crate) fn ticks(end: f64, count: usize) -> Vec<f64> {
    let rough = end / count as f64;
    let decade = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * decade).find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    (0..=count).map(|at| at as f64 * step).filter(|value| *value <= end * 1.000_001).collect()
}

/// The style of figures, also of those that are files: the light colours, the rules, and the dark colours.
pub(crate) const STYLE: &str = include_str!("figure.css");
/// Width in pixels of a figure on a desktop, and in its file.
pub(crate) const WIDE: f64 = 760.0;
/// Width in pixels of a figure on a phone.
pub(crate) const NARROW: f64 = 360.0;

/// The content of a figure. It is drawn at any width: labels next to a bar on a desktop move above it on a phone.
pub(crate) trait Chart {
    /// Draws it from (0, 0); returns its height.
    fn draw(&self, pen: &mut Pen) -> f64;
}

/// Draws `chart` with `title` above its upper edge and `note` below it. With a `caption`, which is escaped already, it
/// is a file; without, a part of the page, which has the title as text.
pub(crate) fn draw(chart: &dyn Chart, width: f64, title: &Text, note: &Text, caption: Option<&str>) -> String {
    const MARGIN: f64 = 16.0;
    let mut pen = Pen { width, body: String::new() };
    let mut height = chart.draw(&mut pen);
    if !note.is_empty() {
        height += pen.paragraph(height + 18.0, Hand::SMALL, note) + 10.0;
    }
    let top = Hand::TITLE.wrap(title, width).len() as f64 * Hand::TITLE.size * 1.35 + MARGIN;
    pen.paragraph(Hand::TITLE.size - top, Hand::TITLE, title);
    let x = -MARGIN;
    let y = -top - MARGIN;
    let w = width + 2.0 * MARGIN;
    let h = height + top + 2.0 * MARGIN;
    let whole = format!("{x:.0} {y:.0} {w:.0} {h:.0}");
    let title = escape(&title.plain());
    let body = pen.body;
    match caption {
        Some(caption) => format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{whole}\" width=\"{w:.0}\" height=\"{h:.0}\" \
             role=\"img\">\n<title>{title}</title>\n<desc>{caption}</desc>\n<style>\n{STYLE}</style>\n\
             <rect x=\"{x:.0}\" y=\"{y:.0}\" width=\"{w:.0}\" height=\"{h:.0}\" class=\"i-back\"/>\n{body}</svg>\n"
        ),
        None => format!(
            "<svg class=\"{}\" viewBox=\"0 0 {width:.0} {height:.0}\" data-whole=\"{whole}\" role=\"img\" \
             aria-label=\"{title}\">\n{body}</svg>\n",
            if width == WIDE { "wide" } else { "narrow" }
        ),
    }
}
