use super::end_of_axis;
use crate::svg::{Chart, Hand, Ink, Pen, ticks};
use crate::text::{Num, Text, text, tick};

/// A timeline: one lane for each worker and device, time from left to right.
pub(crate) struct Timeline {
    pub(crate) keys: Vec<(Ink, Text)>,
    pub(crate) scenarios: Vec<LaneGroup>,
}

pub(crate) struct LaneGroup {
    pub(crate) heading: Text,
    pub(crate) lanes: Vec<(Text, Vec<Stretch>)>,
}

pub(crate) struct Stretch {
    pub(crate) name: Text,
    pub(crate) start: Num,
    pub(crate) end: Num,
    pub(crate) ink: Ink,
}

const LANE: f64 = 24.0;

impl Chart for Timeline {
    fn draw(&self, pen: &mut Pen) -> f64 {
        let mut end = 0.0f64;
        let mut widest = 0.0f64;
        for (name, stretches) in self.scenarios.iter().flat_map(|scenario| &scenario.lanes) {
            widest = widest.max(Hand::PLAIN.width(&name.plain()));
            end = stretches.iter().map(|stretch| stretch.end.value).fold(end, f64::max);
        }
        let side = (widest + 10.0).min(pen.width * 0.3);
        // Leaves room on the right for half of the axis's last number.
        let whole = end_of_axis(end);
        let plot = pen.width - side - 20.0;
        let mut y = pen.legend(&self.keys);
        for LaneGroup { heading, lanes } in &self.scenarios {
            y += pen.paragraph(y + 13.0, Hand::BOLD, heading) + 6.0;
            let bottom = y + lanes.len() as f64 * LANE;
            let room = plot / (Hand::TICK.width(&tick(whole)) + 20.0);
            pen.axis_below(&ticks(whole, (room as usize).clamp(1, 8)), y, bottom, [0.0, whole], |value| {
                side + value / whole * plot
            });
            pen.text(side, bottom + 31.0, Hand::SMALL, &"milliseconds".into());
            for (name, stretches) in lanes {
                let hand = Hand::PLAIN.end();
                pen.text(side - 8.0, y + LANE / 2.0 + 4.5, hand, &hand.fit(name, side - 8.0));
                for Stretch { name, start, end, ink } in stretches {
                    let from = (side + start.value / whole * plot, y + 3.0);
                    let to = (side + end.value / whole * plot, y + LANE - 3.0);
                    pen.mark(&text![name.clone(), ", ", start, " to ", end], |pen| pen.rect(*ink, from, to));
                }
                y += LANE;
            }
            y = bottom + 58.0;
        }
        y - 16.0
    }
}
