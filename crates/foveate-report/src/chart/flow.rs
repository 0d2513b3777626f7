use crate::svg::{At, Chart, GRID, Hand, Ink, MUTED, Pen};
use crate::text::{Num, Text, text};

/// Stations in a row, joined by arrows, each filled to its share.
pub(crate) struct FlowChart(pub(crate) Vec<Station>);

pub(crate) struct Station {
    pub(crate) name: String,
    pub(crate) share: Num,
    pub(crate) detail: Num,
    pub(crate) ink: Ink,
}

const GAP: f64 = 26.0;
const HEIGHT: f64 = 80.0;
const STEP: f64 = HEIGHT + 30.0;

impl Chart for FlowChart {
    fn draw(&self, pen: &mut Pen) -> f64 {
        let columns = if pen.is_narrow() { 2 } else { 5 };
        let wide = ((pen.width - GAP * (columns - 1) as f64) / columns as f64).floor() - 1.0;
        let mut before = None;
        for (at, station) in self.0.iter().enumerate() {
            let place = (1.0 + (at % columns) as f64 * (wide + GAP), 1.0 + (at / columns) as f64 * STEP);
            station.draw(pen, place, wide);
            if let Some(before) = before.replace(place) {
                arrow(pen, before, place, wide);
            }
        }
        self.0.len().div_ceil(columns) as f64 * STEP - (STEP - HEIGHT) + 2.0
    }
}

impl Station {
    fn draw(&self, pen: &mut Pen, (x, y): At, wide: f64) {
        let right = x + wide;
        let bottom = y + HEIGHT;
        pen.mark(&text![&*self.name, ": ", &self.share, ", ", &self.detail], |pen| {
            pen.rect(GRID, (x, bottom - 12.0), (right, bottom));
            pen.rect(self.ink, (x, bottom - 12.0), (x + wide * self.share.value.clamp(0.0, 1.0), bottom));
            pen.line(GRID, 2, [(x, y), (right, y), (right, bottom), (x, bottom), (x, y - 1.0)]);
        });
        pen.text(x + 10.0, y + 22.0, Hand::BOLD, &self.name.as_str().into());
        pen.text(x + 10.0, y + 42.0, Hand::PLAIN, &Text::from(&self.share));
        pen.text(x + 10.0, y + 59.0, Hand::SMALL, &Text::from(&self.detail));
    }
}

/// Draws an arrow from one station to the next: straight, or down and around to the start of the next row.
fn arrow(pen: &mut Pen, from: At, to: At, wide: f64) {
    const HEAD: f64 = 5.0;
    let middle = from.1 + HEIGHT / 2.0 - 6.0;
    let (path, (x, y), back) = if from.1 == to.1 {
        let tip = (to.0 - 4.0, middle);
        (vec![(from.0 + wide + 3.0, middle), tip], tip, [(-HEAD, -HEAD), (-HEAD, HEAD)])
    } else {
        let left = to.0 + wide / 2.0;
        let right = from.0 + wide / 2.0;
        let between = (from.1 + HEIGHT + to.1) / 2.0;
        let tip = (left, to.1 - 4.0);
        let path = vec![(right, from.1 + HEIGHT + 3.0), (right, between), (left, between), tip];
        (path, tip, [(-HEAD, -HEAD), (HEAD, -HEAD)])
    };
    pen.line(MUTED, 2, path);
    pen.polygon(MUTED, 1.0, [(0.0, 0.0), back[0], back[1]].map(|(right, down)| (x + right, y + down)));
}
