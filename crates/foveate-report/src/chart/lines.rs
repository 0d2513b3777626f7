use super::end_of_axis;
use crate::svg::{At, BACK, Chart, GRID, Hand, Ink, Pen, WORDS, ticks};
use crate::text::{Num, Text, text, tick};

/// Values over a number that doubles from step to step, optionally with a second kind of values on its own axis.
pub(crate) struct Lines {
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    /// Name of the second axis.
    pub(crate) second: &'static str,
    pub(crate) lines: Vec<Line>,
}

pub(crate) struct Line {
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
struct Axis {
    end: f64,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    fn of<'a>(points: impl Iterator<Item = &'a Point> + Clone) -> Self {
        let most = |point: &Point| point.band.as_ref().map_or(point.y.value, |(_, most)| most.value.max(point.y.value));
        let Some(first) = points.clone().next() else { return Self { end: 1.0, ticks: Vec::new() } };
        let (is_share, most) = (first.y.unit == "%", points.map(most).fold(0.0, f64::max));
        let end = if is_share { 1.0f64.max(most) * 1.06 } else { end_of_axis(most) * 1.12 };
        let words = |value| if is_share { format!("{}%", tick(value * 100.0)) } else { tick(value) };
        Self { end, ticks: ticks(end, 5).into_iter().map(|value| (value, words(value))).collect() }
    }

    fn side(&self) -> f64 {
        self.ticks.iter().map(|(_, words)| Hand::TICK.width(words)).fold(0.0, f64::max) + 8.0
    }
}

impl Chart for Lines {
    fn draw(&self, pen: &mut Pen) -> f64 {
        let keys: Vec<_> = self.lines.iter().map(|line| (line.ink.faint(line.on_second), line.name.clone())).collect();
        let top = pen.legend(&keys) + 22.0;
        let bottom = top + if pen.is_narrow() { 220.0 } else { 300.0 };
        let of = |second| self.lines.iter().filter(move |line| line.on_second == second).flat_map(|line| &line.points);
        let [first, second] = [false, true].map(|second| Axis::of(of(second)));
        let (left, right) = (first.side(), pen.width - second.side());

        let mut places: Vec<&Num> = self.lines.iter().flat_map(|line| &line.points).map(|point| &point.x).collect();
        places.sort_by(|a, b| a.value.total_cmp(&b.value));
        places.dedup_by(|a, b| a.value == b.value);
        let (Some(from), Some(to)) = (places.first(), places.last()) else { return top };
        let (from, to) = (place(from) - 0.35, place(to) + 0.35);
        let x = |at: &Num| left + (place(at) - from) / (to - from) * (right - left);
        let height = |value: f64, axis: &Axis| bottom - value / axis.end * (bottom - top);
        let at = |line: &Line, point: &Point, value: f64| {
            (x(&point.x), height(value, if line.on_second { &second } else { &first }))
        };

        pen.text(0.0, top - 10.0, Hand::SMALL, &self.y.into());
        for (value, words) in &first.ticks {
            let y = height(*value, &first);
            pen.line(GRID, 1, [(left, y), (right, y)]);
            pen.text(left - 6.0, y + 4.0, Hand::TICK.end(), &words.as_str().into());
        }
        if !second.ticks.is_empty() {
            pen.text(pen.width, top - 10.0, Hand::SMALL.end(), &self.second.into());
            pen.line(GRID, 1, [(right, top), (right, bottom)]);
        }
        for (value, words) in &second.ticks {
            pen.text(right + 6.0, height(*value, &second) + 4.0, Hand::TICK, &words.as_str().into());
        }
        write_places(pen, &places, x, bottom + 16.0);
        for line in &self.lines {
            let bands = || line.points.iter().filter_map(|point| Some((point, point.band.as_ref()?)));
            let low = bands().map(|(point, (low, _))| at(line, point, low.value));
            let outline: Vec<At> =
                bands().map(|(point, (_, high))| at(line, point, high.value)).chain(low.rev()).collect();
            if outline.len() >= 4 {
                pen.polygon(line.ink, 0.18, outline);
            }
        }
        for line in &self.lines {
            let points = line.points.iter().map(|point| (point, at(line, point, point.y.value)));
            let ink = line.ink.faint(line.on_second);
            match line.is_assumed {
                true => pen.dashed(ink, 2, points.clone().map(|(_, at)| at)),
                false => pen.line(ink, 2, points.clone().map(|(_, at)| at)),
            }
            for (point, at) in points {
                pen.mark(&self.tip(line, point), |pen| {
                    pen.circle(BACK, at, 5.0, true);
                    pen.circle(line.ink, at, 4.0, !line.on_second);
                });
            }
        }
        let noted = self.lines.iter().flat_map(|line| line.points.iter().map(move |point| (line, point)));
        let noted = noted.filter(|(_, point)| !point.note.is_empty());
        write_notes(pen, noted.map(|(line, point)| (at(line, point, point.y.value), point.note)));
        pen.text((left + right) / 2.0, bottom + 38.0, Hand::SMALL.middle(), &self.x.into());
        bottom + 46.0
    }
}

impl Lines {
    fn tip(&self, line: &Line, point: &Point) -> Text {
        let tip = text![line.name.clone(), ", ", self.x, " ", &point.x, ": ", &point.y];
        point.band.iter().fold(tip, |tip, (low, high)| text![tip, " (", low, " to ", high, ")"])
    }
}

/// Writes the numbers below the axis, except those without room.
fn write_places(pen: &mut Pen, places: &[&Num], x: impl Fn(&Num) -> f64, y: f64) {
    let mut free = f64::NEG_INFINITY;
    for number in places {
        let (words, at) = (Text::from(*number), x(number));
        let half = Hand::SMALL.width(&words.plain()) / 2.0;
        if at - half >= free {
            pen.text(at, y, Hand::SMALL.middle(), &words);
            free = at + half + 6.0;
        }
    }
}

/// Marks the notable points: a ring around each, and its note above, or below if another note is in the way.
fn write_notes(pen: &mut Pen, points: impl Iterator<Item = (At, &'static str)>) {
    let mut written: Vec<(f64, f64, f64)> = Vec::new();
    for ((x, y), note) in points {
        pen.circle(WORDS, (x, y), 8.0, false);
        let half = Hand::BOLD.width(note) / 2.0;
        let middle = x.clamp(half, (pen.width - half).max(half));
        let is_free = |y: &f64| {
            let near = |(left, right, other): &(f64, f64, f64)| {
                middle - half < right + 6.0 && middle + half > left - 6.0 && (y - other).abs() < 13.0
            };
            !written.iter().any(near)
        };
        let y = [y - 14.0, y + 24.0].into_iter().find(is_free).unwrap_or(y - 14.0);
        pen.text(middle, y, Hand::BOLD.middle(), &note.into());
        written.push((middle - half, middle + half, y));
    }
}
