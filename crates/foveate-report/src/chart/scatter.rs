use crate::svg::{Chart, GRID, Hand, Ink, MUTED, Pen, QUIET};
use crate::text::{Num, Text, text, tick};

/// Pairs of numbers that should be equal, with a band around equality. Both axes are logarithmic.
pub(crate) struct Scatter {
    /// The meanings of the dots' colours.
    pub(crate) keys: Vec<(Ink, Text)>,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) dots: Vec<Dot>,
}

pub(crate) struct Dot {
    pub(crate) name: Text,
    pub(crate) ink: Ink,
    pub(crate) x: Num,
    pub(crate) y: Num,
}

/// Half the width of the band, as a fraction of the value.
const BAND: f64 = 0.1;

impl Chart for Scatter {
    fn draw(&self, pen: &mut Pen) -> f64 {
        const SIDE: f64 = 52.0;
        let dots: Vec<&Dot> = self.dots.iter().filter(|dot| dot.x.value > 0.0 && dot.y.value > 0.0).collect();
        let values = dots.iter().flat_map(|dot| [dot.x.value, dot.y.value]);
        let least = values.clone().fold(f64::INFINITY, f64::min) / 1.3;
        let most = values.fold(0.0, f64::max) * 1.3;
        let top = pen.legend(&self.keys) + 22.0;
        let size = (pen.width - SIDE - 8.0).min(400.0);
        pen.text(0.0, top - 10.0, Hand::SMALL, &self.y.into());
        if most == 0.0 {
            return top;
        }
        let at = |x: f64, y: f64| {
            let [right, up] =
                [x, y].map(|value| (value.clamp(least, most) / least).log10() / (most / least).log10() * size);
            (SIDE + right, top + size - up)
        };
        for value in round(least, most) {
            let words = tick(value).into();
            let (x, y) = at(value, value);
            pen.line(GRID, 1, [(x, top), (x, top + size)]);
            pen.line(GRID, 1, [(SIDE, y), (SIDE + size, y)]);
            pen.text(x, top + size + 15.0, Hand::TICK.middle(), &words);
            pen.text(SIDE - 6.0, y + 4.0, Hand::TICK.end(), &words);
        }
        let band = [
            at(least, least),
            at(least, least * (1.0 + BAND)),
            at(most / (1.0 + BAND), most),
            at(most, most),
            at(most, most * (1.0 - BAND)),
            at(least / (1.0 - BAND), least),
        ];
        pen.polygon(QUIET, 0.3, band);
        pen.line(MUTED, 1, [at(least, least), at(most, most)]);
        for Dot { name, ink, x, y } in dots {
            let tip = text![name.clone(), ": ", self.y, " ", y, ", ", self.x, " ", x];
            pen.mark(&tip, |pen| pen.circle(*ink, at(x.value, y.value), 5.0, true));
        }
        pen.text(SIDE + size / 2.0, top + size + 36.0, Hand::SMALL.middle(), &self.x.into());
        top + size + 44.0
    }
}

/// Returns round numbers between two: powers of ten, with those between them where there are few.
fn round(least: f64, most: f64) -> impl Iterator<Item = f64> {
    let steps: &[f64] = match most / least {
        1e3.. => &[1.0],
        10.0.. => &[1.0, 2.0, 5.0],
        _ => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
    };
    let decades = least.log10().floor() as i32..=most.log10().ceil() as i32;
    let round = decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
    round.filter(move |value| (least..=most).contains(value))
}
