use plotters::prelude::*;

use super::marks::{Failed, is_narrow, stroke};
use crate::canvas::{Hand, Pen};
use crate::ink::{GRID, Ink, MUTED};
use crate::shown::{Num, Text};

/// Stations in a row, joined by arrows, each filled to its share.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) stations: Vec<Station>,
}

#[derive(Clone, Debug)]
pub(crate) struct Station {
    pub(crate) name: String,
    pub(crate) share: Num,
    pub(crate) detail: Text,
    pub(crate) ink: Ink,
}

const GAP: f32 = 26.0;
const BOX: f32 = 80.0;
const STEP: f32 = BOX + 30.0;

impl Flow {
    pub(crate) fn draw(&self, pen: &Pen) -> Result<f32, Failed> {
        let columns = if is_narrow(pen) { 2 } else { 5 };
        let wide = ((pen.width - GAP * (columns - 1) as f32) / columns as f32).floor();
        let place = |at: usize| {
            let (row, column) = (at / columns, at % columns);
            (column as f32 * (wide + GAP), 1.0 + row as f32 * STEP)
        };
        for (at, station) in self.stations.iter().enumerate() {
            station.draw(pen, place(at), wide)?;
            if at > 0 {
                arrow(pen, place(at - 1), place(at), wide)?;
            }
        }
        let rows = self.stations.len().div_ceil(columns);
        Ok(rows as f32 * STEP - (STEP - BOX) + 2.0)
    }
}

impl Station {
    fn draw(&self, pen: &Pen, (x, y): (f32, f32), wide: f32) -> Result<(), Failed> {
        let area = pen.area((x, y), (wide, BOX));
        let (right, bottom) = (wide as i32, BOX as i32);
        let full = (wide * self.share.value.clamp(0.0, 1.0) as f32).round() as i32;
        let tip = Text::from(self.name.as_str()) + ": " + &self.share + ", " + self.detail.clone();
        pen.mark(&tip, || {
            area.draw(&Rectangle::new([(0, 0), (right, bottom)], stroke(GRID, 2)))?;
            area.draw(&Rectangle::new([(0, bottom - 12), (right, bottom)], GRID.color().filled()))?;
            area.draw(&Rectangle::new([(0, bottom - 12), (full, bottom)], self.ink.color().filled()))
        })?;
        pen.text(x + 10.0, y + 22.0, Hand::BOLD, &self.name.as_str().into());
        pen.text(x + 10.0, y + 42.0, Hand::WORDS, &Text::from(&self.share));
        pen.text(x + 10.0, y + 59.0, Hand::SMALL, &self.detail);
        Ok(())
    }
}

/// Draws an arrow from one station to the next: straight, or down and around to the start of the next row.
fn arrow(pen: &Pen, from: (f32, f32), to: (f32, f32), wide: f32) -> Result<(), Failed> {
    const HEAD: i32 = 5;
    let area = pen.area((0.0, 0.0), (pen.width, to.1 + BOX));
    let point = |x: f32, y: f32| (x.round() as i32, y.round() as i32);
    let middle = BOX / 2.0 - 6.0;
    let (path, tip, down) = if from.1 == to.1 {
        let (start, tip) = (point(from.0 + wide + 3.0, from.1 + middle), point(to.0 - 4.0, to.1 + middle));
        (vec![start, tip], tip, false)
    } else {
        let half = wide / 2.0;
        let between = (from.1 + BOX + to.1) / 2.0;
        let tip = point(to.0 + half, to.1 - 4.0);
        let start = point(from.0 + half, from.1 + BOX + 3.0);
        (vec![start, point(from.0 + half, between), point(to.0 + half, between), tip], tip, true)
    };
    area.draw(&PathElement::new(path, stroke(MUTED, 2)))?;
    let (x, y) = tip;
    let back =
        if down { [(x - HEAD, y - HEAD), (x + HEAD, y - HEAD)] } else { [(x - HEAD, y - HEAD), (x - HEAD, y + HEAD)] };
    area.draw(&Polygon::new(vec![tip, back[0], back[1]], MUTED.color().filled()))
}
