use super::end_of_axis;
use crate::svg::{At, BACK, Chart, GRID, Hand, Ink, Pen, WORDS, ticks};
use crate::text::{Num, Text, text, tick};

/// Values over a number that doubles from step to step, optionally with a second kind of values on its own axis.
pub(crate) struct LineChart {
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    /// Name of the second axis.
    pub(crate) second: &'static str,
    pub(crate) lines: Vec<ChartLine>,
}

pub(crate) struct ChartLine {
    pub(crate) name: Text,
    pub(crate) ink: Ink,
    pub(crate) on_second: bool,
    /// True if it follows from an assumption; it is dashed.
    pub(crate) is_assumed: bool,
    pub(crate) points: Vec<Point>,
}

pub(crate) struct Point {
    pub(crate) x: Num,
    pub(crate) y: Num,
    /// Minimum and maximum.
    pub(crate) band: Option<(Num, Num)>,
    /// The note, if the point stands out.
    pub(crate) note: &'static str,
}

/// Returns a number's place on the axis: its logarithm, with zero one step before one.
fn place(x: &Num) -> f64 {
    if x.value < 1.0 { x.value - 1.0 } else { x.value.log2() }
}

/// A vertical axis: its end and its numbers, with the words for them.
struct ValueAxis {
    end: f64,
    ticks: Vec<(f64, String)>,
}

impl ValueAxis {
    fn of<'a>(points: impl Iterator<Item = &'a Point> + Clone) -> Self {
        let Some(first) = points.clone().next() else { return Self { end: 1.0, ticks: Vec::new() } };
        let is_share = first.y.unit == "%";
        let mut most = 0.0f64;
        for Point { y, band, .. } in points {
            most = most.max(band.as_ref().map_or(y.value, |(_, high)| high.value.max(y.value)));
        }
        let end = if is_share { 1.0f64.max(most) * 1.06 } else { end_of_axis(most) * 1.12 };
        let mut numbers = Vec::new();
        for value in ticks(end, 5) {
            numbers.push((value, if is_share { format!("{}%", tick(value * 100.0)) } else { tick(value) }));
        }
        Self { end, ticks: numbers }
    }

    fn side(&self) -> f64 {
        self.ticks.iter().map(|(_, words)| Hand::TICK.width(words)).fold(0.0, f64::max) + 8.0
    }
}

/// The area of the points: its edges, its first and its last place, and its vertical axes.
struct PlotArea {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    from: f64,
    to: f64,
    first: ValueAxis,
    second: ValueAxis,
}

impl PlotArea {
    fn x(&self, number: &Num) -> f64 {
        self.left + (place(number) - self.from) / (self.to - self.from) * (self.right - self.left)
    }

    fn y(&self, value: f64, axis: &ValueAxis) -> f64 {
        self.bottom - value / axis.end * (self.bottom - self.top)
    }

    /// Returns the position of a value at a line's point.
    fn at(&self, line: &ChartLine, point: &Point, value: f64) -> At {
        (self.x(&point.x), self.y(value, if line.on_second { &self.second } else { &self.first }))
    }
}

impl Chart for LineChart {
    fn draw(&self, pen: &mut Pen) -> f64 {
        let keys: Vec<_> = self.lines.iter().map(|line| (line.ink.faint(line.on_second), line.name.clone())).collect();
        let top = pen.legend(&keys) + 22.0;
        let bottom = top + if pen.is_narrow() { 220.0 } else { 300.0 };
        let [first, second] = [false, true].map(|second| {
            ValueAxis::of(self.lines.iter().filter(|line| line.on_second == second).flat_map(|line| &line.points))
        });
        let mut places: Vec<&Num> = self.lines.iter().flat_map(|line| &line.points).map(|point| &point.x).collect();
        places.sort_by(|a, b| a.value.total_cmp(&b.value));
        places.dedup_by(|a, b| a.value == b.value);
        let (Some(from), Some(to)) = (places.first(), places.last()) else { return top };
        let left = first.side();
        let right = pen.width - second.side();
        let from = place(from) - 0.35;
        let to = place(to) + 0.35;
        let area = PlotArea { left, right, top, bottom, from, to, first, second };

        pen.text(0.0, top - 10.0, Hand::SMALL, &self.y.into());
        for (value, words) in &area.first.ticks {
            let y = area.y(*value, &area.first);
            pen.line(GRID, 1, [(left, y), (right, y)]);
            pen.text(left - 6.0, y + 4.0, Hand::TICK.end(), &words.as_str().into());
        }
        if !area.second.ticks.is_empty() {
            pen.text(pen.width, top - 10.0, Hand::SMALL.end(), &self.second.into());
            pen.line(GRID, 1, [(right, top), (right, bottom)]);
        }
        for (value, words) in &area.second.ticks {
            pen.text(right + 6.0, area.y(*value, &area.second) + 4.0, Hand::TICK, &words.as_str().into());
        }
        write_places(pen, &places, &area);
        for line in &self.lines {
            let mut outline: Vec<At> = Vec::new();
            let mut lower = Vec::new();
            for point in &line.points {
                if let Some((low, high)) = &point.band {
                    outline.push(area.at(line, point, high.value));
                    lower.push(area.at(line, point, low.value));
                }
            }
            outline.extend(lower.into_iter().rev());
            if outline.len() >= 4 {
                pen.polygon(line.ink, 0.18, outline);
            }
        }
        for line in &self.lines {
            let places: Vec<At> = line.points.iter().map(|point| area.at(line, point, point.y.value)).collect();
            let ink = line.ink.faint(line.on_second);
            if line.is_assumed {
                pen.dashed(ink, 2, places.iter().copied());
            } else {
                pen.line(ink, 2, places.iter().copied());
            }
            for (point, at) in line.points.iter().zip(places) {
                pen.mark(&self.tip(line, point), |pen| {
                    pen.circle(BACK, at, 5.0, true);
                    pen.circle(line.ink, at, 4.0, !line.on_second);
                });
            }
        }
        let mut notes = Vec::new();
        for line in &self.lines {
            for point in line.points.iter().filter(|point| !point.note.is_empty()) {
                notes.push((area.at(line, point, point.y.value), point.note));
            }
        }
        write_notes(pen, &notes);
        pen.text((left + right) / 2.0, bottom + 38.0, Hand::SMALL.middle(), &self.x.into());
        bottom + 46.0
    }
}

impl LineChart {
    fn tip(&self, line: &ChartLine, point: &Point) -> Text {
        let tip = text![line.name.clone(), ", ", self.x, " ", &point.x, ": ", &point.y];
        point.band.iter().fold(tip, |tip, (low, high)| text![tip, " (", low, " to ", high, ")"])
    }
}

/// Writes the numbers below the axis, except those without room.
fn write_places(pen: &mut Pen, places: &[&Num], area: &PlotArea) {
    let mut free = f64::NEG_INFINITY;
    for number in places {
        let words = Text::from(*number);
        let at = area.x(number);
        let half = Hand::SMALL.width(&words.plain()) / 2.0;
        if at - half >= free {
            pen.text(at, area.bottom + 16.0, Hand::SMALL.middle(), &words);
            free = at + half + 6.0;
        }
    }
}

/// Marks the notable points: a ring around each, and its note above, or below if another note is in the way.
fn write_notes(pen: &mut Pen, notes: &[(At, &'static str)]) {
    let mut written: Vec<(f64, f64, f64)> = Vec::new();
    for &((x, y), note) in notes {
        pen.circle(WORDS, (x, y), 8.0, false);
        let half = Hand::BOLD.width(note) / 2.0;
        let middle = x.clamp(half, (pen.width - half).max(half));
        let free = [y - 14.0, y + 24.0].into_iter().find(|y| {
            !written.iter().any(|(left, right, other)| {
                middle - half < right + 6.0 && middle + half > left - 6.0 && (y - other).abs() < 13.0
            })
        });
        let y = free.unwrap_or(y - 14.0);
        pen.text(middle, y, Hand::BOLD.middle(), &note.into());
        written.push((middle - half, middle + half, y));
    }
}
