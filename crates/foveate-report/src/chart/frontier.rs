use super::end_of_axis;
use crate::svg::{At, Chart, FORWARD, GRID, Hand, MUTED, Pen, QUIET, READ, ticks};
use crate::text::{Num, Text, text, tick};

/// Rates over drifts, with a line through those that are faster than any with as little drift. The axis of drifts is
/// logarithmic, with a separate place for none.
pub(crate) struct Frontier {
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    /// The most that is permitted.
    pub(crate) limit: Option<Num>,
    pub(crate) spots: Vec<Spot>,
}

pub(crate) struct Spot {
    pub(crate) name: Text,
    pub(crate) x: Num,
    pub(crate) y: Num,
    pub(crate) is_within: bool,
    pub(crate) is_chosen: bool,
}

impl Frontier {
    /// Returns the spots on the line, from the least drift on.
    fn frontier(&self) -> Vec<&Spot> {
        let mut spots: Vec<&Spot> = self.spots.iter().collect();
        spots.sort_by(|a, b| a.x.value.total_cmp(&b.x.value).then(b.y.value.total_cmp(&a.y.value)));
        let mut most = f64::NEG_INFINITY;
        spots.retain(|spot| {
            let is_faster = spot.y.value > most;
            most = most.max(spot.y.value);
            is_faster
        });
        spots
    }
}

impl Chart for Frontier {
    fn draw(&self, pen: &mut Pen) -> f64 {
        const ZERO: f64 = 36.0;
        let keys = [(READ, "chosen"), (FORWARD, "within the budget"), (QUIET, "beyond it, or not surely within")];
        let top = pen.legend(&keys.map(|(ink, name)| (ink, name.into()))) + 22.0;
        let bottom = top + if pen.is_narrow() { 240.0 } else { 320.0 };
        let end = end_of_axis(self.spots.iter().map(|spot| spot.y.value).fold(0.0, f64::max)) * 1.12;
        let rates = ticks(end, 5);
        let left = rates.iter().map(|&rate| Hand::TICK.width(&tick(rate))).fold(0.0, f64::max) + 8.0;
        let right = pen.width - 8.0;
        let mut least = f64::INFINITY;
        let mut most = 0.0f64;
        for drift in self.spots.iter().map(|spot| &spot.x).chain(&self.limit).filter(|drift| drift.value > 0.0) {
            least = least.min(drift.value);
            most = most.max(drift.value);
        }
        let decades = [least, most].map(f64::log10);
        let x = |drift: f64| {
            let part = (drift.log10() - decades[0] + 0.2) / (decades[1] - decades[0] + 0.4);
            if drift > 0.0 { left + 2.0 * ZERO + part * (right - left - 2.0 * ZERO) } else { left + ZERO }
        };
        let at = |spot: &Spot| (x(spot.x.value), bottom - spot.y.value / end * (bottom - top));

        pen.text(0.0, top - 10.0, Hand::SMALL, &self.y.into());
        for rate in rates {
            let y = bottom - rate / end * (bottom - top);
            pen.line(GRID, 1, [(left, y), (right, y)]);
            pen.text(left - 6.0, y + 4.0, Hand::TICK.end(), &tick(rate).into());
        }
        pen.text(x(0.0), bottom + 16.0, Hand::TICK.middle(), &"0".into());
        if most > 0.0 {
            for power in decades[0].ceil() as i32..=decades[1].floor() as i32 {
                let x = x(10f64.powi(power));
                pen.line(GRID, 1, [(x, top), (x, bottom)]);
                pen.text(x, bottom + 16.0, Hand::TICK.middle(), &format!("1e{power}").into());
            }
        }
        if let Some(limit) = &self.limit {
            let x = x(limit.value);
            let tip = text!["budget ", limit];
            pen.mark(&tip, |pen| pen.line(MUTED, 2, [(x, top), (x, bottom)]));
            pen.text(x - 6.0, top + 10.0, Hand::SMALL.end(), &"budget".into());
        }
        let frontier = self.frontier();
        let mut steps: Vec<At> = Vec::new();
        for spot in &frontier {
            let (x, y) = at(spot);
            steps.extend(steps.last().map(|&(_, before)| (x, before)));
            steps.push((x, y));
        }
        pen.line(FORWARD, 2, steps);
        for spot in &self.spots {
            let (ink, radius) = match spot.is_within {
                _ if spot.is_chosen => (READ, 7.0),
                true => (FORWARD, 5.0),
                false => (QUIET, 5.0),
            };
            pen.mark(&self.tip(spot), |pen| pen.circle(ink, at(spot), radius, true));
        }
        let mut named: Vec<(At, &Spot)> = self.spots.iter().map(|spot| (at(spot), spot)).collect();
        named.sort_by_key(|(_, spot)| (!spot.is_chosen, !frontier.iter().any(|on| std::ptr::eq(*on, *spot))));
        write_names(pen, right, &named);
        pen.text(f64::midpoint(left, right), bottom + 38.0, Hand::SMALL.middle(), &self.x.into());
        bottom + 46.0
    }
}

impl Frontier {
    fn tip(&self, spot: &Spot) -> Text {
        text![spot.name.clone(), ": ", &spot.y, ", ", self.x, " ", &spot.x]
    }
}

/// Writes the names next to their spots, higher or lower where another name is in the way.
fn write_names(pen: &mut Pen, right: f64, spots: &[(At, &Spot)]) {
    const ROW: f64 = 15.0;
    let mut written: Vec<(f64, f64, f64)> = Vec::new();
    for &((x, y), spot) in spots {
        let hand = if spot.is_chosen { Hand::BOLD } else { Hand::SMALL };
        let wide = hand.width(&spot.name.plain());
        let from = if x + 4.0 + wide > right { (x - 4.0 - wide).max(0.0) } else { x + 4.0 };
        let mut rows = [-8.0, 17.0, -23.0, 32.0, -38.0, 47.0].into_iter().map(|below| y + below);
        let free = rows.find(|y| {
            !written.iter().any(|(start, end, other)| from < *end && from + wide > *start && (y - other).abs() < ROW)
        });
        let y = free.unwrap_or(y - 8.0);
        pen.text(from, y, hand, &spot.name);
        written.push((from, from + wide, y));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(x: f64, y: f64) -> Spot {
        let number = |value| Num::derived(value, "", "", &[]);
        Spot { name: Text::default(), x: number(x), y: number(y), is_within: true, is_chosen: false }
    }

    #[test]
    fn the_line_goes_through_the_fastest_up_to_each_drift() {
        let spots = [(0.0, 1.0), (1e-3, 4.0), (1e-5, 3.0), (1e-4, 2.0), (1e-5, 2.5), (1e-2, 4.0)];
        let chart = Frontier { x: "", y: "", limit: None, spots: spots.map(|(x, y)| spot(x, y)).into() };
        let line: Vec<_> = chart.frontier().into_iter().map(|spot| (spot.x.value, spot.y.value)).collect();
        assert_eq!(line, [(0.0, 1.0), (1e-5, 3.0), (1e-3, 4.0)]);
    }
}
