//! An SVG canvas for plotters: colours by class, and numbers that carry their origin.

use std::cell::RefCell;
use std::convert::Infallible;
use std::fmt::Write;
use std::rc::Rc;

use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind};

use crate::font;
use crate::ink::{Ink, MUTED};
use crate::shown::{Span, Text, Traced};

/// Font size of ordinary text, in pixels.
pub(crate) const SIZE: f32 = 13.0;
/// Font size beside axes and in notes.
pub(crate) const SMALL: f32 = 12.0;

/// Whether a text's position is its start, its end or its middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// The style of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hand {
    pub(crate) size: f32,
    pub(crate) bold: bool,
    pub(crate) anchor: Anchor,
    pub(crate) class: &'static str,
}

impl Hand {
    pub(crate) const WORDS: Self = Self { size: SIZE, bold: false, anchor: Anchor::Start, class: "f-words" };
    pub(crate) const BOLD: Self = Self { bold: true, ..Self::WORDS };
    pub(crate) const SMALL: Self = Self { size: SMALL, class: "f-muted", ..Self::WORDS };

    pub(crate) fn end(self) -> Self {
        Self { anchor: Anchor::End, ..self }
    }

    pub(crate) fn middle(self) -> Self {
        Self { anchor: Anchor::Middle, ..self }
    }

    /// Returns the style for text on top of `ink`.
    pub(crate) fn upon(self, ink: Ink) -> Self {
        Self { class: ink.letters(), ..self }
    }

    pub(crate) fn width(self, text: &str) -> f32 {
        font::width(text, self.size, self.bold)
    }
}

/// The content drawn so far.
#[derive(Debug, Default)]
struct Sheet {
    body: String,
    traced: Vec<Traced>,
}

/// A pen on a sheet; clones draw on the same one.
#[derive(Clone, Debug)]
pub(crate) struct Pen {
    sheet: Rc<RefCell<Sheet>>,
    pub(crate) width: f32,
}

/// Height for plotters, which needs the sheet's height before the figure's is known.
const TALL: u32 = 20_000;

/// A finished drawing: the content between `<svg>` and `</svg>`, and the numbers in it.
#[derive(Clone, Debug)]
pub(crate) struct Drawing {
    width: f32,
    height: f32,
    body: String,
    pub(crate) traced: Vec<Traced>,
}

impl Pen {
    pub(crate) fn new(width: f32) -> Self {
        Self { sheet: Rc::default(), width }
    }

    /// Returns a part of the sheet for plotters, in pixels.
    pub(crate) fn area(&self, (x, y): (f32, f32), (width, height): (f32, f32)) -> DrawingArea<Self, Shift> {
        let root = self.clone().into_drawing_area();
        root.shrink((x.round() as i32, y.round() as i32), (width.round() as u32, height.round() as u32))
    }

    pub(crate) fn finish(self, height: f32) -> Drawing {
        let Sheet { body, traced } = std::mem::take(&mut *self.sheet.borrow_mut());
        Drawing { width: self.width, height, body, traced }
    }

    fn write(&self, svg: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.sheet.borrow_mut().body.write_fmt(svg);
    }

    /// Draws the output of `draw` as one mark with the tooltip `tip`.
    pub(crate) fn mark<T>(&self, tip: &Text, draw: impl FnOnce() -> T) -> T {
        let keys: Vec<String> = tip.traced().map(Traced::key).collect();
        self.sheet.borrow_mut().traced.extend(tip.traced().cloned());
        self.write(format_args!("<g data-from=\"{}\"><title>{}</title>", keys.join(" "), escape(&tip.plain())));
        let drawn = draw();
        self.write(format_args!("</g>\n"));
        drawn
    }

    /// Writes `text` with its baseline at `y`; the style's anchor decides the meaning of `x`.
    pub(crate) fn text(&self, x: f32, y: f32, hand: Hand, text: &Text) {
        if text.is_empty() {
            return;
        }
        self.sheet.borrow_mut().traced.extend(text.traced().cloned());
        let bold = if hand.bold { " bold" } else { "" };
        self.write(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{}{bold}\" font-size=\"{}\" text-anchor=\"{}\">",
            hand.class,
            hand.size,
            hand.anchor.word()
        ));
        for span in &text.0 {
            match span {
                Span::Plain(text) => self.write(format_args!("{}", escape(text))),
                Span::Traced(traced) => {
                    let (key, text) = (traced.key(), escape(&traced.text));
                    self.write(format_args!("<tspan data-from=\"{key}\">{text}</tspan>"));
                }
            }
        }
        self.write(format_args!("</text>\n"));
    }

    /// Writes `text` in lines no wider than `width`, the first baseline at `y`; returns their height.
    pub(crate) fn paragraph(&self, x: f32, y: f32, width: f32, hand: Hand, text: &Text) -> f32 {
        let lines = wrap(text, width, hand);
        let step = hand.size * 1.35;
        for (at, line) in lines.iter().enumerate() {
            self.text(x, y + at as f32 * step, hand, line);
        }
        lines.len() as f32 * step
    }
}

/// Splits `text` into lines no wider than `width`, at blanks between words. Text from a file is not split.
pub(crate) fn wrap(text: &Text, width: f32, hand: Hand) -> Vec<Text> {
    let mut lines = vec![Text::default()];
    for word in words(text) {
        let ends_at = |line: &Text| hand.width((line.plain() + &word.plain()).trim_end());
        match lines.last_mut() {
            Some(line) if line.is_empty() || ends_at(line) <= width => line.0.extend(word.0),
            _ => lines.push(word),
        }
    }
    lines
}

/// Splits a text into words, each with the blank after it.
fn words(text: &Text) -> Vec<Text> {
    let mut words = vec![Text::default()];
    let pieces = text.0.iter().flat_map(|span| match span {
        Span::Plain(text) => text.split_inclusive(' ').map(|word| Span::Plain(word.to_owned())).collect(),
        Span::Traced(_) => vec![span.clone()],
    });
    for piece in pieces {
        let ends = matches!(&piece, Span::Plain(word) if word.ends_with(' '));
        if let Some(word) = words.last_mut() {
            word.0.push(piece);
        }
        if ends {
            words.push(Text::default());
        }
    }
    words
}

/// Truncates `text` to `width`, with an ellipsis where it is cut.
pub(crate) fn fit(text: &Text, width: f32, hand: Hand) -> Text {
    if hand.width(&text.plain()) <= width {
        return text.clone();
    }
    let mut fitted = Text::default();
    let mut left = width - hand.width("…");
    for span in &text.0 {
        let (Span::Plain(words) | Span::Traced(Traced { text: words, .. })) = span;
        let kept: String = words
            .chars()
            .take_while(|c| {
                left -= hand.width(c.encode_utf8(&mut [0; 4]));
                left >= 0.0
            })
            .collect();
        fitted.0.push(match span {
            Span::Plain(_) => Span::Plain(kept),
            Span::Traced(traced) => Span::Traced(Traced { text: kept, ..traced.clone() }),
        });
        if left < 0.0 {
            break;
        }
    }
    fitted + "…"
}

/// Escapes `<`, `>`, `&` and quotes in `text`.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Returns the `fill` or `stroke` class of a colour, with its opacity.
fn paint(color: BackendColor, width: Option<u32>) -> String {
    let class = Ink::of(color.rgb).class;
    let opacity = if color.alpha < 1.0 { format!(" opacity=\"{:.2}\"", color.alpha) } else { String::new() };
    match width {
        None => format!("class=\"f-{class}\"{opacity}"),
        Some(width) => format!("class=\"s-{class}\" stroke-width=\"{width}\"{opacity}"),
    }
}

fn points(path: impl IntoIterator<Item = BackendCoord>) -> String {
    path.into_iter().map(|(x, y)| format!("{x},{y}")).collect::<Vec<_>>().join(" ")
}

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

impl DrawingBackend for Pen {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        (self.width as u32, TALL)
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, color: BackendColor) -> Drawn {
        self.draw_rect((x, y), (x + 1, y + 1), &color, true)
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawn {
        self.draw_path([from, to], style)
    }

    fn draw_rect<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S, fill: bool) -> Drawn {
        let color = style.color();
        if color.alpha == 0.0 {
            return Ok(());
        }
        let (x, y) = (from.0.min(to.0), from.1.min(to.1));
        let (width, height) = (from.0.abs_diff(to.0), from.1.abs_diff(to.1));
        let paint = paint(color, (!fill).then(|| style.stroke_width()));
        self.write(format_args!("<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" {paint}/>\n"));
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, path: I, style: &S) -> Drawn {
        let color = style.color();
        if color.alpha > 0.0 && style.stroke_width() > 0 {
            let paint = paint(color, Some(style.stroke_width()));
            self.write(format_args!("<polyline points=\"{}\" {paint}/>\n", points(path)));
        }
        Ok(())
    }

    fn draw_circle<S: BackendStyle>(&mut self, center: BackendCoord, radius: u32, style: &S, fill: bool) -> Drawn {
        let paint = paint(style.color(), (!fill).then(|| style.stroke_width()));
        self.write(format_args!("<circle cx=\"{}\" cy=\"{}\" r=\"{radius}\" {paint}/>\n", center.0, center.1));
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, path: I, style: &S) -> Drawn {
        self.write(format_args!("<polygon points=\"{}\" {}/>\n", points(path), paint(style.color(), None)));
        Ok(())
    }

    /// Draws the text that plotters itself writes: the numbers at axis ticks.
    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, (x, y): BackendCoord) -> Drawn {
        let anchor = match style.anchor().h_pos {
            HPos::Left => Anchor::Start,
            HPos::Center => Anchor::Middle,
            HPos::Right => Anchor::End,
        };
        let down = match style.anchor().v_pos {
            VPos::Top => 0.8,
            VPos::Center => 0.35,
            VPos::Bottom => -0.2,
        };
        let (y, anchor) = (y as f32 + down * SMALL, anchor.word());
        self.write(format_args!(
            "<text x=\"{x}\" y=\"{y:.1}\" class=\"tick f-{}\" font-size=\"{SMALL}\" text-anchor=\"{anchor}\">{}</text>\n",
            MUTED.class,
            escape(text)
        ));
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        _: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        Ok((font::width(text, SMALL, false).ceil() as u32, SMALL.ceil() as u32))
    }
}

/// Returns a drawing's name and description, for screen readers.
pub(crate) fn head(title: &Text, description: &str) -> String {
    let keys: Vec<String> = title.traced().map(Traced::key).collect();
    let from = if keys.is_empty() { String::new() } else { format!(" data-from=\"{}\"", keys.join(" ")) };
    format!("<title{from}>{}</title><desc>{}</desc>\n", escape(&title.plain()), escape(description))
}

impl Drawing {
    /// Returns a separate file, with its title on top, in light colours.
    pub(crate) fn standalone(&self, title: &Text, description: &str) -> String {
        const MARGIN: f32 = 16.0;
        let hand = Hand { size: 16.0, ..Hand::BOLD };
        let heading = Pen::new(self.width);
        let taken = heading.paragraph(MARGIN, MARGIN + 14.0, self.width, hand, title) + MARGIN;
        let (width, height) = (self.width + 2.0 * MARGIN, self.height + taken + 2.0 * MARGIN);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\" font-family=\"{}\">\n{}<style>{}</style>\n\
             <rect width=\"100%\" height=\"100%\" class=\"f-back\"/>\n{}<g transform=\"translate({MARGIN} {:.0})\">\n{}</g>\n</svg>\n",
            font::FAMILY,
            head(title, description),
            crate::ink::sheet(),
            heading.finish(taken).body,
            taken + MARGIN,
            self.body
        )
    }

    /// Returns a part of the page, in the page's colours.
    pub(crate) fn inline(&self, title: &Text, description: &str, class: &str) -> String {
        format!(
            "<svg class=\"{class}\" viewBox=\"0 0 {:.0} {:.0}\" role=\"img\">\n{}{}</svg>\n",
            self.width,
            self.height,
            head(title, description),
            self.body
        )
    }
}
