use plotters::prelude::*;

use super::marks::{Failed, Key, end_of_axis, is_narrow, legend, shade, stroke, tick};
use crate::canvas::{Hand, Pen};
use crate::ink::{BACK, GRID, Ink, WORDS};
use crate::shown::{Num, Text, text};

/// Values over a number that doubles from step to step, optionally with a second kind of values on its own axis.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    /// Name of the second axis; with `None`, no line may be on it.
    pub(crate) second: Option<&'static str>,
    pub(crate) lines: Vec<Line>,
}

#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: Text,
    pub(crate) ink: Ink,
    pub(crate) on_second: bool,
    pub(crate) points: Vec<Point>,
}

#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) x: Num,
    pub(crate) y: Num,
    /// Minimum and maximum.
    pub(crate) band: Option<(Num, Num)>,
    /// The note, if the point stands out.
    pub(crate) note: Text,
}

/// Returns a number's position on the axis: its logarithm, with zero one step before one.
fn place(x: &Num) -> f64 {
    if x.value < 1.0 { x.value - 1.0 } else { x.value.log2() }
}

impl Point {
    fn most(&self) -> f64 {
        self.band.as_ref().map_or(self.y.value, |(_, most)| self.y.value.max(most.value))
    }

    fn tip(&self, lines: &Lines, line: &Line) -> Text {
        let band = self.band.as_ref().map_or_else(Text::default, |(low, high)| text![" (", low, " to ", high, ")"]);
        line.name.clone() + ", " + lines.x + " " + &self.x + ": " + &self.y + band
    }
}

const SIDE: f32 = 46.0;

impl Lines {
    fn end(&self, second: bool) -> f64 {
        let lines = self.lines.iter().filter(|line| line.on_second == second);
        let most = lines.flat_map(|line| &line.points).map(Point::most).fold(0.0, f64::max);
        if self.is_share(second) { 1.0f64.max(most) * 1.06 } else { end_of_axis(most) * 1.12 }
    }

    fn is_share(&self, second: bool) -> bool {
        let mut points = self.lines.iter().filter(|line| line.on_second == second).flat_map(|line| &line.points);
        points.next().is_some_and(|point| point.y.unit == "%")
    }

    /// Returns the points' distinct positions in order, each with its number.
    fn places(&self) -> Vec<&Num> {
        let mut places: Vec<&Num> = self.lines.iter().flat_map(|line| &line.points).map(|point| &point.x).collect();
        places.sort_by(|a, b| a.value.total_cmp(&b.value));
        places.dedup_by(|a, b| a.value == b.value);
        places
    }

    pub(crate) fn draw(&self, pen: &Pen) -> Result<f32, Failed> {
        let keys: Vec<Key> = self
            .lines
            .iter()
            .map(|line| Key { ink: line.ink, faint: line.on_second, name: line.name.clone() })
            .collect();
        let top = legend(pen, 0.0, &keys)? + 22.0;
        pen.text(0.0, top - 10.0, Hand::SMALL, &self.y.into());
        if let Some(second) = self.second {
            pen.text(pen.width, top - 10.0, Hand::SMALL.end(), &second.into());
        }
        let height = if is_narrow(pen) { 220.0 } else { 300.0 };
        self.plot(pen, top, height)?;
        let bottom = top + height;
        pen.text(pen.width / 2.0, bottom + 38.0, Hand::SMALL.middle(), &self.x.into());
        Ok(bottom + 46.0)
    }

    fn plot(&self, pen: &Pen, top: f32, height: f32) -> Result<(), Failed> {
        let places = self.places();
        let (Some(first), Some(last)) = (places.first(), places.last()) else { return Ok(()) };
        let xs = place(first) - 0.35..place(last) + 0.35;
        let area = pen.area((0.0, top), (pen.width, height));
        let right = if self.second.is_some() { SIDE } else { 8.0 };
        let mut chart = ChartBuilder::on(&area)
            .y_label_area_size(SIDE as i32)
            .right_y_label_area_size(right as i32)
            .build_cartesian_2d(xs.clone(), 0.0..self.end(false))?
            .set_secondary_coord(xs, 0.0..self.end(true));
        let percent = |value: &f64| format!("{}%", tick(&(value * 100.0)));
        let format = |second: bool| -> &dyn Fn(&f64) -> String { if self.is_share(second) { &percent } else { &tick } };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .y_labels(5)
            .y_max_light_lines(0)
            .y_label_formatter(format(false))
            .bold_line_style(GRID.color())
            .axis_style(GRID.color())
            .draw()?;
        if self.second.is_some() {
            chart
                .configure_secondary_axes()
                .y_labels(5)
                .x_labels(0)
                .y_label_formatter(format(true))
                .axis_style(GRID.color())
                .draw()?;
        }
        self.write_places(pen, &places, |x| chart.backend_coord(&(x, 0.0)).0 as f32, top + height + 16.0);
        for line in &self.lines {
            self.draw_band(&mut chart, line)?;
        }
        for line in &self.lines {
            self.draw_line(pen, &mut chart, line)?;
        }
        let noted = self.lines.iter().filter(|line| !line.on_second).flat_map(|line| &line.points);
        write_notes(pen, noted.filter(|point| !point.note.is_empty()), |point| chart.backend_coord(point));
        Ok(())
    }

    /// Writes the numbers below the axis, except those without room.
    fn write_places(&self, pen: &Pen, places: &[&Num], x: impl Fn(f64) -> f32, y: f32) {
        let mut free = f32::NEG_INFINITY;
        for number in places {
            let (words, at) = (Text::from(*number), x(place(number)));
            let half = Hand::SMALL.width(&words.plain()) / 2.0;
            if at - half >= free {
                pen.text(at, y, Hand::SMALL.middle(), &words);
                free = at + half + 6.0;
            }
        }
    }

    fn draw_band(&self, chart: &mut Plot<'_>, line: &Line) -> Result<(), Failed> {
        let bands = || line.points.iter().filter_map(|point| Some((place(&point.x), point.band.as_ref()?)));
        let low = bands().map(|(x, (low, _))| (x, low.value));
        let outline: Vec<(f64, f64)> = bands().map(|(x, (_, high))| (x, high.value)).chain(low.rev()).collect();
        if outline.len() >= 4 {
            chart.draw_series([Polygon::new(outline, line.ink.color().mix(0.18))])?;
        }
        Ok(())
    }

    fn draw_line(&self, pen: &Pen, chart: &mut Plot<'_>, line: &Line) -> Result<(), Failed> {
        let points = line.points.iter().map(|point| (place(&point.x), point.y.value));
        let series = LineSeries::new(points, shade(line.ink, line.on_second).stroke_width(2));
        if line.on_second {
            chart.draw_secondary_series(series)?
        } else {
            chart.draw_series(series)?
        };
        for point in &line.points {
            let at = (place(&point.x), point.y.value);
            let dots = [Circle::new(at, 5, BACK.color().filled()), Circle::new(at, 4, line.ink.color().filled())];
            let rings = [Circle::new(at, 4, BACK.color().filled()), Circle::new(at, 4, stroke(line.ink, 2))];
            let tip = point.tip(self, line);
            pen.mark(&tip, || match line.on_second {
                true => chart.draw_secondary_series(rings).map(|_| ()),
                false => chart.draw_series(dots).map(|_| ()),
            })?;
        }
        Ok(())
    }
}

type Axes = Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>;
type Plot<'a> = plotters::chart::DualCoordChartContext<'a, Pen, Axes, Axes>;

/// Marks the notable points: a ring around each, and its note above, or below if other marks are in the way.
fn write_notes<'a>(pen: &Pen, points: impl Iterator<Item = &'a Point>, at: impl Fn(&(f64, f64)) -> (i32, i32)) {
    const HAND: Hand = Hand::BOLD;
    let mut written: Vec<(f32, f32, f32)> = Vec::new();
    for point in points {
        let (x, y) = at(&(place(&point.x), point.y.value));
        let (x, y) = (x as f32, y as f32);
        let ring = pen.area((x - 9.0, y - 9.0), (18.0, 18.0));
        // A circle in the middle of its own small area always fits.
        let _ = ring.draw(&Circle::new((9, 9), 8, stroke(WORDS, 2)));
        let half = HAND.width(&point.note.plain()) / 2.0;
        let middle = x.clamp(SIDE.max(half), (pen.width - half).max(half));
        let is_free = |y: f32| {
            let near = |(left, right, other): &(f32, f32, f32)| {
                middle - half < right + 6.0 && middle + half > left - 6.0 && (y - other).abs() < HAND.size
            };
            !written.iter().any(near)
        };
        let y = [y - 14.0, y + 24.0].into_iter().find(|y| is_free(*y)).unwrap_or(y - 14.0);
        pen.text(middle, y, HAND.middle(), &point.note);
        written.push((middle - half, middle + half, y));
    }
}
