use plotters::prelude::*;

use super::marks::{Failed, Key, end_of_axis, is_narrow, legend, shade, stroke, tick};
use crate::canvas::{Hand, Pen, fit, wrap};
use crate::ink::{BACK, GRID, Ink, QUIET, WORDS};
use crate::shown::{Num, Text, text};

/// Horizontal bars, each a value or a sum of parts.
#[derive(Clone, Debug)]
pub(crate) struct Bars {
    pub(crate) keys: Vec<Key>,
    /// The axis label, with the unit.
    pub(crate) axis: &'static str,
    /// Whether panels share one scale, because they are compared with each other.
    pub(crate) one_scale: bool,
    pub(crate) panels: Vec<Panel>,
}

#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) heading: Text,
    pub(crate) bars: Vec<Bar>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Bar {
    pub(crate) label: Text,
    pub(crate) parts: Vec<Part>,
    /// The two ends of the whisker.
    pub(crate) whisker: Option<(Num, Num)>,
    /// The text at the bar's end.
    pub(crate) value: Text,
    pub(crate) bold: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) size: Num,
    pub(crate) ink: Ink,
    pub(crate) faint: bool,
}

impl Bar {
    fn end(&self) -> f64 {
        let bar: f64 = self.parts.iter().map(|part| part.size.value).sum();
        self.whisker.as_ref().map_or(bar, |(_, high)| bar.max(high.value))
    }
}

/// A bar this many times as long as the next is broken, so that the others can be compared.
const SQUASHES: f64 = 4.0;
/// Length of a broken bar ÷ the longest whole one.
const BROKEN: f64 = 1.25;

impl Panel {
    /// Returns the end of the longest bar that is not broken, or the place where one is.
    fn end(&self) -> f64 {
        let mut ends: Vec<f64> = self.bars.iter().map(Bar::end).collect();
        ends.sort_by(f64::total_cmp);
        let is_stacked = self.bars.iter().any(|bar| bar.parts.len() > 1);
        match ends[..] {
            [.., next, longest] if !is_stacked && next > 0.0 && longest > SQUASHES * next => BROKEN * next,
            [.., longest] => longest,
            [] => 0.0,
        }
    }
}

/// Positions within a panel, in pixels.
struct Layout {
    narrow: bool,
    /// Width of the labels beside the bars; 0 if they are above.
    labels: f32,
    /// Free width to the right of the bars.
    values: f32,
    /// Whether values have their own line above the bars, because they do not fit beside the labels there.
    own_line: bool,
    row: f32,
    bar: f32,
    /// Free height below a bar.
    below: f32,
}

const AXIS: f32 = 20.0;
/// Height of a text line above a bar.
const LINE: f32 = 17.0;

impl Layout {
    fn of(bars: &Bars, pen: &Pen) -> Self {
        let narrow = is_narrow(pen);
        let all = || bars.panels.iter().flat_map(|panel| &panel.bars);
        let widest = |widths: &mut dyn Iterator<Item = f32>| widths.fold(0.0, f32::max);
        let drawn = all().filter(|bar| !bar.parts.is_empty());
        let values = widest(&mut drawn.map(|bar| Hand::BOLD.width(&bar.value.plain()))) + 10.0;
        let labels = widest(&mut all().map(|bar| Hand::BOLD.width(&bar.label.plain()))) + 12.0;
        let crowded = |bar: &Bar| {
            !bar.parts.is_empty() && Hand::BOLD.width(&(bar.label.plain() + &bar.value.plain())) + 12.0 > pen.width
        };
        let own_line = narrow && all().any(crowded);
        Self {
            narrow,
            own_line,
            labels: if narrow { 0.0 } else { labels.min(pen.width * 0.46) },
            values: if narrow { 8.0 } else { values.min(pen.width * 0.45) },
            row: if own_line {
                LINE + 46.0
            } else if narrow {
                46.0
            } else {
                28.0
            },
            bar: if narrow { 16.0 } else { 18.0 },
            below: if narrow { 7.0 } else { 5.0 },
        }
    }
}

impl Bars {
    pub(crate) fn draw(&self, pen: &Pen) -> Result<f32, Failed> {
        let layout = Layout::of(self, pen);
        let mut y = legend(pen, 0.0, &self.keys)?;
        let shared = self.panels.iter().map(Panel::end).fold(0.0, f64::max);
        for panel in &self.panels {
            if !panel.heading.is_empty() {
                y += pen.paragraph(0.0, y + 13.0, pen.width, Hand::BOLD, &panel.heading) + 6.0;
            }
            let end = end_of_axis(if self.one_scale { shared } else { panel.end() });
            y += panel.draw(pen, y, end, &layout)?;
            if panel.has_bars() {
                pen.text(layout.labels, y + 15.0, Hand::SMALL, &self.axis.into());
                y += 18.0;
            }
            y += 20.0;
        }
        Ok(y - 16.0)
    }
}

impl Panel {
    /// Tells whether any of its rows could run.
    fn has_bars(&self) -> bool {
        self.bars.iter().any(|bar| !bar.parts.is_empty())
    }

    fn draw(&self, pen: &Pen, y: f32, end: f64, layout: &Layout) -> Result<f32, Failed> {
        let rows = self.bars.len();
        let plot = pen.width - layout.labels - layout.values;
        let bottom = |at: usize| (at + 1) as f32 * layout.row - layout.below;
        if !self.has_bars() {
            for (at, bar) in self.bars.iter().enumerate() {
                bar.write(pen, layout, (y + bottom(at), plot), |_| layout.labels);
            }
            return Ok(rows as f32 * layout.row);
        }
        let height = rows as f32 * layout.row + AXIS;
        let area = pen.area((layout.labels, y), (plot, height));
        let mut chart =
            ChartBuilder::on(&area).x_label_area_size(AXIS as i32).build_cartesian_2d(0.0..end, 0.0..rows as f64)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .y_labels(0)
            .x_labels(if layout.narrow { 4 } else { 6 })
            .x_label_formatter(&tick)
            .x_max_light_lines(0)
            .bold_line_style(GRID.color())
            .axis_style(GRID.color())
            .draw()?;
        for (at, bar) in self.bars.iter().enumerate() {
            let bottom = bottom(at);
            let at = |pixels: f32| rows as f64 - f64::from(pixels / layout.row);
            let (low, high) = (at(bottom), at(bottom - layout.bar));
            bar.draw(pen, &mut chart, (low, high), end)?;
            let x = |value: f64| chart.backend_coord(&(value.min(end), low)).0 as f32;
            bar.write(pen, layout, (y + bottom, plot), x);
        }
        Ok(height)
    }
}

type Chart2d<'a> =
    ChartContext<'a, Pen, Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>>;

impl Bar {
    /// Draws the bar, broken if it reaches beyond the axis's `end`.
    fn draw(&self, pen: &Pen, chart: &mut Chart2d<'_>, (low, high): (f64, f64), end: f64) -> Result<(), Failed> {
        let mut from = 0.0;
        for part in &self.parts {
            let to = (from + part.size.value).min(end);
            let rectangle = Rectangle::new([(from, low), (to, high)], shade(part.ink, part.faint).filled());
            pen.mark(&self.tip(part), || chart.draw_series([rectangle]).map(|_| ()))?;
            let [left, right, top] = [(from, low), (to, low), (from, high)].map(|corner| chart.backend_coord(&corner));
            let words = Text::from(&part.size);
            let wide = Hand::SMALL.width(&words.plain()) + 8.0;
            if self.parts.len() > 1 && (right.0 - left.0) as f32 > wide {
                let hand = Hand::SMALL.upon(part.ink).middle();
                pen.text(
                    f32::midpoint(left.0 as f32, right.0 as f32),
                    f32::midpoint(left.1 as f32, top.1 as f32) + 4.5,
                    hand,
                    &words,
                );
            }
            from = to;
        }
        if self.end() > end {
            let gap = [(0.955 * end, low), (0.965 * end, low), (0.98 * end, high), (0.97 * end, high)];
            return chart.draw_series([Polygon::new(gap, BACK.color().filled())]).map(|_| ());
        }
        let Some((least, most)) = &self.whisker else { return Ok(()) };
        let (middle, half) = (f64::midpoint(low, high), (high - low) / 4.0);
        let (least, most) = (least.value, most.value);
        let paths = [
            vec![(least, middle), (most, middle)],
            vec![(least, middle - half), (least, middle + half)],
            vec![(most, middle - half), (most, middle + half)],
        ];
        chart.draw_series(paths.map(|path| PathElement::new(path, stroke(WORDS, 1)))).map(|_| ())
    }

    fn tip(&self, part: &Part) -> Text {
        let whisker =
            self.whisker.as_ref().map_or_else(Text::default, |(low, high)| text![" (", low, " to ", high, ")"]);
        let name = if part.name.is_empty() { String::new() } else { format!(", {}", part.name) };
        self.label.clone() + name + ": " + &part.size + whisker
    }

    /// Writes label and value; `x` maps a value to its position on the sheet.
    fn write(&self, pen: &Pen, layout: &Layout, (bottom, plot): (f32, f32), x: impl Fn(f64) -> f32) {
        let hand = if self.bold { Hand::BOLD } else { Hand::WORDS };
        let baseline = bottom - layout.bar / 2.0 + 4.5;
        let ran = !self.parts.is_empty();
        if layout.narrow {
            let above = bottom - layout.bar - 6.0;
            if layout.own_line {
                pen.text(0.0, above - LINE, hand, &fit(&self.label, pen.width, hand));
                let value = if ran { fit(&self.value, pen.width, hand) } else { Text::default() };
                pen.text(0.0, above, Hand { bold: self.bold, ..Hand::SMALL }, &value);
            } else {
                pen.text(0.0, above, hand, &fit(&self.label, pen.width, hand));
                let value = if ran { self.value.clone() } else { Text::default() };
                pen.text(pen.width, above, hand.end(), &value);
            }
        } else {
            let label = fit(&self.label, layout.labels - 12.0, hand);
            pen.text(layout.labels - 10.0, baseline, hand.end(), &label);
            if ran {
                pen.text(x(self.end()) + 7.0, baseline, hand, &fit(&self.value, layout.values - 7.0, hand));
            }
        }
        if !ran {
            let room = plot + layout.values - 8.0;
            pen.mark(&self.value, || write_reason(pen, (layout.labels + 6.0, baseline), room, &self.value));
        }
    }
}

/// Writes why a row could not run, in two lines where one does not suffice.
fn write_reason(pen: &Pen, (x, baseline): (f32, f32), room: f32, why: &Text) {
    let lines = wrap(why, room, Hand::SMALL);
    match &lines[..] {
        [first, rest @ ..] if !rest.is_empty() => {
            let rest = rest.iter().fold(Text::default(), |all, line| all + line.clone());
            pen.text(x, baseline - 6.0, Hand::SMALL, &fit(first, room, Hand::SMALL));
            pen.text(x, baseline + 7.0, Hand::SMALL, &fit(&rest, room, Hand::SMALL));
        }
        _ => pen.text(x, baseline, Hand::SMALL, &fit(why, room, Hand::SMALL)),
    }
}

/// Returns a bar of one value without a comparison.
pub(crate) fn single(label: Text, size: Num, ink: Option<Ink>) -> Bar {
    let value = Text::from(&size);
    let part = Part { name: String::new(), size, ink: ink.unwrap_or(QUIET), faint: false };
    Bar { label, parts: vec![part], whisker: None, value, bold: ink.is_some() }
}
