//! The timeline of a job before and after a change, simulated from measured service times.

use foveate_plan::{Place, SimOutcome, Span};

use crate::{Calibration, LabError, Setting, Table, schema};

/// Number of batches before the window, during which the queues fill.
const WARM_UP: f64 = 3.0;
/// Utilization below which readers have no lane, because it would be empty.
const WORTH_A_LANE: f64 = 0.02;

/// Simulates `before` and `after`, and returns which thread worked on what in a window of about `batches` batches,
/// [`schema::TIMELINE`]. The window has the same length for both, the time that `before` takes for the batches. So the
/// denser timeline is the faster one.
///
/// # Errors
/// The errors of [`Calibration::predict`].
pub fn timeline(
    calibration: &Calibration,
    before: &Setting,
    after: &Setting,
    batches: u32,
    seed: u64,
) -> Result<Table, LabError> {
    let window = calibration.predict(before)?.model.cycle_seconds * f64::from(batches.max(1));
    let mut table = Table::new(&schema::TIMELINE);
    let change = before.changes_to(after);
    for (scenario, setting) in [("before".to_owned(), before), (format!("after: {change}"), after)] {
        add(&mut table, &scenario, calibration, setting, window, seed)?;
    }
    Ok(table)
}

fn add(
    table: &mut Table,
    scenario: &str,
    calibration: &Calibration,
    setting: &Setting,
    window: f64,
    seed: u64,
) -> Result<(), LabError> {
    let model = calibration.predict(setting)?.model;
    let from = model.fill_seconds + WARM_UP * model.cycle_seconds;
    // Enough to reach beyond the window if the simulation is faster than the model.
    let batches = (2.0 * (from + window) / model.cycle_seconds).ceil() as u64 + 1;
    let mut simulation = calibration.simulation(setting, batches * setting.batch as u64, seed)?;
    simulation.timeline = Some((from, from + window));
    let outcome = simulation.run()?;
    for span in outcome.timeline.iter().filter(|span| has_a_lane(&outcome, span.place)) {
        let ms = |seconds: f64| (seconds - from).clamp(0.0, window) * 1e3;
        table.push([
            ("scenario", scenario.into()),
            ("lane", span.lane().into()),
            ("stage", what(span).into()),
            ("start_ms", ms(span.start).into()),
            ("end_ms", ms(span.end).into()),
            ("batch", span.batch.into()),
        ]);
    }
    Ok(())
}

fn has_a_lane(outcome: &SimOutcome, place: Place) -> bool {
    let busy = outcome.stages.iter().find(|stage| stage.name == place.name()).map_or(0.0, |stage| stage.utilization);
    place != Place::Reader || busy >= WORTH_A_LANE
}

fn what(span: &Span) -> &'static str {
    match span.place {
        Place::Reader => "read",
        Place::Worker => "decode and resize",
        Place::Encoder => "forward",
        Place::Writer => "write",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::calibrate::KnownCosts;

    #[test]
    fn lanes_of_a_timeline_do_not_overlap_and_a_faster_decoder_makes_them_denser() {
        let costs = KnownCosts { read: 2e-3, decode: 16e-3, resize: 4e-3, forward: 7e-3, forward_call: 20e-3 };
        let before = Setting::plain();
        let after = Setting { workers: 3, ..before.clone() };
        let calibration = Calibration::known(2, &costs, &[before.clone(), after.clone()]);
        let table = timeline(&calibration, &before, &after, 3, 7).unwrap();
        let text = |row: usize, column: &str| table.get(row, column).to_string();
        let mut lanes: BTreeMap<(String, String), Vec<[f64; 2]>> = BTreeMap::new();
        for row in 0..table.len() {
            let span = ["start_ms", "end_ms"].map(|column| table.number(row, column).unwrap());
            lanes.entry((text(row, "scenario"), text(row, "lane"))).or_default().push(span);
        }
        for (lane, spans) in &lanes {
            assert!(spans.iter().all(|[start, end]| start <= end), "{lane:?}");
            assert!(spans.windows(2).all(|pair| pair[0][1] <= pair[1][0] + 1e-6), "{lane:?}: {spans:?}");
        }
        let busy = |scenario: &str, lane: &str| {
            let spans = &lanes[&(scenario.to_owned(), lane.to_owned())];
            spans.iter().map(|[start, end]| end - start).sum::<f64>()
        };
        assert!(busy("after: workers 1 to 3", "encoder") > 1.5 * busy("before", "encoder"), "{lanes:?}");
        assert!(lanes.contains_key(&("after: workers 1 to 3".to_owned(), "worker 3".to_owned())), "{lanes:?}");
    }
}
