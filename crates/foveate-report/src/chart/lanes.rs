use plotters::prelude::*;

use super::marks::{Failed, Key, end_of_axis, is_narrow, legend, tick};
use crate::canvas::{Hand, Pen, fit};
use crate::ink::{GRID, Ink};
use crate::shown::{Num, Text, text};

/// A timeline: one lane for each worker and device, time from left to right.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    pub(crate) keys: Vec<Key>,
    pub(crate) scenarios: Vec<Scenario>,
}

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) heading: Text,
    pub(crate) lanes: Vec<(Text, Vec<Stretch>)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Stretch {
    pub(crate) name: Text,
    pub(crate) start: Num,
    pub(crate) end: Num,
    pub(crate) ink: Ink,
}

const LANE: f32 = 24.0;
const AXIS: f32 = 20.0;

impl Lanes {
    pub(crate) fn draw(&self, pen: &Pen) -> Result<f32, Failed> {
        let all = || self.scenarios.iter().flat_map(|scenario| &scenario.lanes);
        let end = all().flat_map(|(_, stretches)| stretches).map(|stretch| stretch.end.value).fold(0.0, f64::max);
        let widest = all().map(|(name, _)| Hand::WORDS.width(&name.plain())).fold(0.0, f32::max);
        let side = (widest + 10.0).min(pen.width * 0.3);
        let mut y = legend(pen, 0.0, &self.keys)?;
        for scenario in &self.scenarios {
            y += pen.paragraph(0.0, y + 13.0, pen.width, Hand::BOLD, &scenario.heading) + 6.0;
            y += scenario.draw(pen, y, side, end_of_axis(end))?;
            pen.text(side, y + 15.0, Hand::SMALL, &"milliseconds".into());
            y += 38.0;
        }
        Ok(y - 16.0)
    }
}

impl Scenario {
    fn draw(&self, pen: &Pen, y: f32, side: f32, end: f64) -> Result<f32, Failed> {
        let rows = self.lanes.len();
        let height = rows as f32 * LANE + AXIS;
        // Leaves room on the right for half of the axis's last number.
        let area = pen.area((side, y), (pen.width - side - 14.0, height));
        let mut chart =
            ChartBuilder::on(&area).x_label_area_size(AXIS as i32).build_cartesian_2d(0.0..end, 0.0..rows as f64)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .y_labels(0)
            .x_labels(if is_narrow(pen) { 4 } else { 8 })
            .x_label_formatter(&tick)
            .x_max_light_lines(0)
            .bold_line_style(GRID.color())
            .axis_style(GRID.color())
            .draw()?;
        for (at, (name, stretches)) in self.lanes.iter().enumerate() {
            let hand = Hand::WORDS.end();
            pen.text(side - 8.0, y + (at as f32 + 0.5) * LANE + 4.5, hand, &fit(name, side - 8.0, hand));
            let low = (rows - at) as f64 - 0.86;
            for stretch in stretches {
                let corners = [(stretch.start.value, low), (stretch.end.value, low + 0.72)];
                let rectangle = Rectangle::new(corners, stretch.ink.color().filled());
                let tip = text![stretch.name.clone(), ", ", &stretch.start, " to ", &stretch.end];
                pen.mark(&tip, || chart.draw_series([rectangle]).map(|_| ()))?;
            }
        }
        Ok(height)
    }
}
