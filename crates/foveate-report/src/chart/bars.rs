use super::end_of_axis;
use crate::svg::{Chart, Hand, Ink, Pen, WORDS, ticks};
use crate::text::{Num, Text, text, tick};

/// Horizontal bars, each a value or a sum of parts.
pub(crate) struct Bars {
    pub(crate) keys: Vec<(Ink, Text)>,
    /// The axis label, with the unit.
    pub(crate) axis: &'static str,
    /// True if panels share one scale, because they are compared with each other.
    pub(crate) one_scale: bool,
    pub(crate) panels: Vec<Panel>,
}

pub(crate) struct Panel {
    pub(crate) heading: Text,
    pub(crate) bars: Vec<ChartBar>,
}

impl Bars {
    pub(crate) fn new(axis: &'static str, keys: &[(Ink, &str)], panels: Vec<Panel>) -> Self {
        let keys = keys.iter().map(|(ink, name)| (*ink, (*name).into())).collect();
        Self { keys, axis, one_scale: false, panels }
    }
}

#[derive(Default)]
pub(crate) struct ChartBar {
    pub(crate) label: Text,
    /// Empty if the row did not run; then `value` is the reason.
    pub(crate) parts: Vec<BarPart>,
    /// The two ends of the whisker.
    pub(crate) whisker: Option<(Num, Num)>,
    /// The text at the bar's end.
    pub(crate) value: Text,
    pub(crate) bold: bool,
}

pub(crate) struct BarPart {
    pub(crate) name: String,
    pub(crate) size: Num,
    pub(crate) ink: Ink,
}

impl ChartBar {
    fn ran(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Appends `more` to the value, if the row ran.
    pub(crate) fn and(mut self, more: Option<impl Into<Text>>) -> Self {
        if let (true, Some(more)) = (self.ran(), more) {
            self.value = Text::join([self.value, more.into()], " · ");
        }
        self
    }

    fn length(&self) -> f64 {
        self.parts.iter().map(|part| part.size.value).sum()
    }

    fn end(&self) -> f64 {
        let bar = self.length();
        self.whisker.as_ref().map_or(bar, |(_, high)| high.value.max(bar))
    }
}

/// If the longest bar is this many times as long as the next, the axis is logarithmic, so that the others can be
/// compared.
const DWARFS: f64 = 20.0;

/// The horizontal axis of a panel.
#[derive(Clone, Copy)]
struct BarScale {
    /// The power of ten at which a logarithmic axis begins; 0 for one that begins at zero.
    start: f64,
    end: f64,
}

impl BarScale {
    fn of<'a>(panels: impl Iterator<Item = &'a Panel> + Clone) -> Self {
        let bars = panels.flat_map(|panel| &panel.bars).filter(|bar| bar.ran());
        let is_stacked = bars.clone().any(|bar| bar.parts.len() > 1);
        let mut ends: Vec<f64> = bars.clone().map(ChartBar::end).collect();
        ends.sort_by(f64::total_cmp);
        let end = end_of_axis(ends.last().copied().unwrap_or(0.0));
        let least = bars.map(ChartBar::length).filter(|length| *length > 0.0).fold(end, f64::min);
        let is_dwarfed = matches!(ends[..], [.., next, longest] if next > 0.0 && longest > DWARFS * next);
        // The shortest bar keeps some length.
        let start = if is_dwarfed && !is_stacked { 10f64.powf((least * 0.8).log10().floor()) } else { 0.0 };
        Self { start, end }
    }

    /// Returns a value's place: 0 at the start, 1 at the end.
    fn place(&self, value: f64) -> f64 {
        match self.start {
            0.0 => value.clamp(0.0, self.end) / self.end,
            start => (value.clamp(start, self.end) / start).ln() / (self.end / start).ln(),
        }
    }

    /// Returns the numbers of the axis, about `count` of them: round ones, or powers of ten.
    fn ticks(&self, count: usize) -> Vec<f64> {
        if self.start == 0.0 {
            return ticks(self.end, count);
        }
        std::iter::successors(Some(self.start), |tick| Some(tick * 10.0)).take_while(|tick| *tick <= self.end).collect()
    }
}

/// Positions within a panel, in pixels.
struct BarLayout {
    /// Width of the labels to the left of the bars; 0 if they are above.
    labels: f64,
    /// Free width to the right of the bars.
    values: f64,
    /// True if values have their own line above the bars, because they do not fit next to the labels there.
    own_line: bool,
    row: f64,
    bar: f64,
    /// Free height below a bar.
    below: f64,
}

/// Height of a text line above a bar.
const LINE: f64 = 17.0;

impl BarLayout {
    fn of(bars: &Bars, pen: &Pen) -> Self {
        let mut labels = 0.0f64;
        let mut values = 0.0f64;
        let mut own_line = false;
        for bar in bars.panels.iter().flat_map(|panel| &panel.bars) {
            let label = Hand::BOLD.width(&bar.label.plain());
            labels = labels.max(label);
            if bar.ran() {
                let value = Hand::BOLD.width(&bar.value.plain());
                values = values.max(value);
                own_line |= label + value + 12.0 > pen.width;
            }
        }
        if pen.is_narrow() {
            let row = if own_line { LINE + 46.0 } else { 46.0 };
            return Self { labels: 0.0, values: 8.0, own_line, row, bar: 16.0, below: 7.0 };
        }
        labels = (labels + 12.0).min(pen.width * 0.52);
        values = (values + 10.0).min(pen.width * 0.36);
        Self { labels, values, own_line: false, row: 28.0, bar: 18.0, below: 5.0 }
    }
}

impl Chart for Bars {
    fn draw(&self, pen: &mut Pen) -> f64 {
        let layout = BarLayout::of(self, pen);
        let bars = self.panels.iter().flat_map(|panel| &panel.bars);
        let drawn: Vec<Ink> = bars.flat_map(|bar| &bar.parts).map(|part| part.ink).collect();
        let keys: Vec<_> = self.keys.iter().filter(|(ink, _)| drawn.contains(ink)).cloned().collect();
        let mut y = pen.legend(&keys);
        for panel in &self.panels {
            if !panel.heading.is_empty() {
                y += pen.paragraph(y + 13.0, Hand::BOLD, &panel.heading) + 6.0;
            }
            let one = std::slice::from_ref(panel);
            let scale = BarScale::of(if self.one_scale { &self.panels } else { one }.iter());
            let plot = pen.width - layout.labels - layout.values;
            let x = |value: f64| layout.labels + scale.place(value) * plot;
            let bottom = y + panel.bars.len() as f64 * layout.row;
            let has_bars = panel.bars.iter().any(ChartBar::ran);
            if has_bars {
                let room = plot / (Hand::TICK.width(&tick(scale.end)) + 20.0);
                let ticks = scale.ticks((room as usize).clamp(1, 8));
                pen.axis_below(&ticks, y, bottom, [scale.start, scale.end], x);
                let kind = if scale.start > 0.0 { ", logarithmic" } else { "" };
                pen.text(layout.labels, bottom + 31.0, Hand::SMALL, &format!("{}{kind}", self.axis).into());
            }
            for (at, bar) in panel.bars.iter().enumerate() {
                bar.draw(pen, &layout, y + (at + 1) as f64 * layout.row - layout.below, scale.start, x);
            }
            y = bottom + if has_bars { 58.0 } else { 20.0 };
        }
        y - 16.0
    }
}

impl ChartBar {
    /// Draws the bar with its lower edge at `bottom`, from the `start` of the axis on.
    fn draw(&self, pen: &mut Pen, layout: &BarLayout, bottom: f64, start: f64, x: impl Fn(f64) -> f64) {
        let top = bottom - layout.bar;
        let mut from = start;
        for part in &self.parts {
            let left = x(from);
            let right = x(from - start + part.size.value);
            pen.mark(&self.tip(part), |pen| pen.rect(part.ink, (left, top), (right, bottom)));
            let words = Text::from(&part.size);
            if self.parts.len() > 1 && right - left > Hand::SMALL.width(&words.plain()) + 4.0 {
                let middle = f64::midpoint(left, right);
                pen.text(middle, bottom - layout.bar / 2.0 + 4.5, Hand::SMALL.upon(part.ink).middle(), &words);
            }
            from += part.size.value;
        }
        if let Some((low, high)) = &self.whisker {
            let middle = f64::midpoint(top, bottom);
            pen.line(WORDS, 1, [(x(low.value), middle), (x(high.value), middle)]);
            // An interval may reach below the axis, and has no end there.
            for at in [low.value, high.value].into_iter().filter(|value| *value >= start).map(&x) {
                pen.line(WORDS, 1, [(at, middle - layout.bar / 4.0), (at, middle + layout.bar / 4.0)]);
            }
        }
        self.write(pen, layout, bottom, x(self.end()));
    }

    fn tip(&self, part: &BarPart) -> Text {
        let name = if part.name.is_empty() { String::new() } else { format!(", {}", part.name) };
        let tip = text![self.label.clone(), name, ": ", &part.size];
        self.whisker.iter().fold(tip, |tip, (low, high)| text![tip, " (", low, " to ", high, ")"])
    }

    /// Writes the label and, behind the bar's `end`, the value or the reason why there is none.
    fn write(&self, pen: &mut Pen, layout: &BarLayout, bottom: f64, end: f64) {
        let hand = if self.bold { Hand::BOLD } else { Hand::PLAIN };
        let baseline = bottom - layout.bar / 2.0 + 4.5;
        let above = bottom - layout.bar - 6.0;
        let width = pen.width;
        let value = if self.ran() { self.value.clone() } else { Text::default() };
        if !pen.is_narrow() {
            let label = hand.fit(&self.label, layout.labels - 10.0);
            pen.text(layout.labels - 10.0, baseline, hand.end(), &label);
            pen.text(end + 7.0, baseline, hand, &hand.fit(&value, width - end - 7.0));
        } else if layout.own_line {
            pen.text(0.0, above - LINE, hand, &hand.fit(&self.label, width));
            pen.text(0.0, above, Hand::SMALL, &Hand::SMALL.fit(&value, width));
        } else {
            pen.text(0.0, above, hand, &hand.fit(&self.label, width));
            pen.text(width, above, hand.end(), &value);
        }
        if !self.ran() {
            let x = layout.labels + 6.0;
            let room = width - layout.labels - 6.0;
            let lines = Hand::SMALL.wrap(&self.value, room);
            let second = lines.iter().skip(1).cloned().reduce(|all, line| all + line).unwrap_or_default();
            let first = baseline - if second.is_empty() { 0.0 } else { 6.0 };
            pen.mark(&self.value, |pen| {
                pen.text(x, first, Hand::SMALL, &Hand::SMALL.fit(&lines[0], room));
                pen.text(x, baseline + 7.0, Hand::SMALL, &Hand::SMALL.fit(&second, room));
            });
        }
    }
}
