use plotters::prelude::*;

use super::marks::{Failed, Key, is_narrow, legend, stroke, tick};
use crate::canvas::{Hand, Pen};
use crate::ink::{GRID, Ink, MUTED, QUIET};
use crate::shown::{Num, Text, text};

/// Pairs of numbers that should be equal, with a band around equality.
#[derive(Clone, Debug)]
pub(crate) struct Scatter {
    pub(crate) keys: Vec<Key>,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) dots: Vec<Dot>,
}

#[derive(Clone, Debug)]
pub(crate) struct Dot {
    pub(crate) name: Text,
    pub(crate) x: Num,
    pub(crate) y: Num,
    pub(crate) ink: Ink,
    pub(crate) hollow: bool,
}

/// Half the width of the band, as a fraction of the value.
const BAND: f64 = 0.1;

impl Scatter {
    /// Returns the ends of both axes, with a margin at each.
    fn ends(&self) -> Option<(f64, f64)> {
        let values = || self.dots.iter().flat_map(|dot| [dot.x.value, dot.y.value]).filter(|value| *value > 0.0);
        let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        (most > 0.0).then(|| (least / 1.3, most * 1.3))
    }

    pub(crate) fn draw(&self, pen: &Pen) -> Result<f32, Failed> {
        const SIDE: f32 = 46.0;
        let top = legend(pen, 0.0, &self.keys)? + 22.0;
        pen.text(0.0, top - 10.0, Hand::SMALL, &self.y.into());
        let height = if is_narrow(pen) { 300.0 } else { 420.0 };
        let Some((least, most)) = self.ends() else { return Ok(top) };
        let width = (height + SIDE).min(pen.width);
        let area = pen.area((0.0, top), (width, height));
        let mut chart = ChartBuilder::on(&area)
            .y_label_area_size(SIDE as i32)
            .x_label_area_size(20)
            .build_cartesian_2d(axis(least, most), axis(least, most))?;
        chart
            .configure_mesh()
            .x_labels(9)
            .y_labels(9)
            .x_label_formatter(&tick)
            .y_label_formatter(&tick)
            .max_light_lines(0)
            .bold_line_style(GRID.color())
            .axis_style(GRID.color())
            .draw()?;
        let inside = |x: f64, y: f64| (x.clamp(least, most), y.clamp(least, most));
        let outline = vec![
            (least, least),
            inside(least, least * (1.0 + BAND)),
            inside(most / (1.0 + BAND), most),
            (most, most),
            inside(most, most * (1.0 - BAND)),
            inside(least / (1.0 - BAND), least),
        ];
        chart.draw_series([Polygon::new(outline, QUIET.color().mix(0.3))])?;
        chart.draw_series([PathElement::new([(least, least), (most, most)], stroke(MUTED, 1))])?;
        for dot in self.dots.iter().filter(|dot| dot.x.value > 0.0 && dot.y.value > 0.0) {
            let style = if dot.hollow { stroke(dot.ink, 2) } else { dot.ink.color().mix(0.85).filled() };
            let circle = Circle::new((dot.x.value, dot.y.value), 5, style);
            let tip = dot.name.clone() + ": " + self.y + " " + &dot.y + ", " + self.x + " " + &dot.x;
            pen.mark(&tip, || chart.draw_series([circle]).map(|_| ()))?;
        }
        let bottom = top + height + 18.0;
        pen.text((SIDE + width) / 2.0, bottom, Hand::SMALL.middle(), &text![self.x]);
        Ok(bottom + 8.0)
    }
}

/// Returns a logarithmic axis with round numbers: 1, 2, 5, 10, …, or only powers of ten if it is long.
fn axis(
    least: f64,
    most: f64,
) -> impl Ranged<ValueType = f64, FormatOption = plotters::coord::ranged1d::DefaultFormatting>
+ plotters::coord::ranged1d::ValueFormatter<f64> {
    let steps: &[f64] = if most / least > 1e3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let decades = (least.log10().floor() as i32)..=(most.log10().ceil() as i32);
    let round = decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
    (least..most).log_scale().with_key_points(round.filter(|value| (least..=most).contains(value)).collect())
}
