use super::plate::{Plate, RATE, bar, sentence, simple};
use crate::chart::{Bars, ChartBar, Panel};
use crate::svg::{FORWARD, Ink, QUIET, READ};
use crate::table::{CsvTable, TableRow};
use crate::text::{Num, Text, text};

/// The columns that the rows of one job have in common: a set of photos, and the remedies that helped before.
const JOB: [&str; 2] = ["photos", "step"];

/// Share of the encoder's own throughput from which a job is bound by it.
pub(super) const ENCODER_BOUND: f64 = 0.9;

/// Returns the row of the stage that the verdict names.
pub(super) fn culprit(table: &CsvTable) -> Option<TableRow<'_>> {
    table.rows().find(|row| row.is("culprit", "yes"))
}

fn heading(row: &TableRow<'_>) -> Text {
    match row.number("step") {
        Some(step) if step.value == 1.0 => text![row.word("photos"), ", after a remedy that helped"],
        Some(step) if step.value > 0.0 => text![row.word("photos"), ", after ", step, " remedies that helped"],
        _ => row.word("photos"),
    }
}

pub(super) fn ladder(table: &CsvTable) -> Option<Plate> {
    let mut panels = Vec::new();
    for rows in table.grouped(&JOB) {
        panels.push(Panel { heading: heading(&rows[0]), bars: rows.iter().map(rung).collect() });
    }
    let culprit = culprit(table);
    let mut bars = Bars::new("images per second", &[(QUIET, "innocent")], panels);
    bars.keys.extend(culprit.map(|row| (Ink::of_stage(row.text("adds")), text!["culprit: ", row.word("adds")])));
    let title = match (culprit, kept(table)) {
        (Some(row), _) => text!["The culprit is ", row.word("adds"), ": ", drop_of(&row)],
        (None, Some(kept)) if kept.value >= ENCODER_BOUND => {
            text!["The encoder is the limit: with all stages at work, throughput is ", kept, " of its own"]
        }
        (None, Some(kept)) => {
            text!["No single stage is to blame: with all of them at work, throughput is ", kept, " of the encoder's"]
        }
        (None, None) => "No single stage is to blame".into(),
    };
    Plate::new(title, Text::default(), bars)
}

/// Returns the share of the encoder's own throughput that the first set's job has: its deepest depth that ran ÷ its
/// shallowest.
pub(super) fn kept(table: &CsvTable) -> Option<Num> {
    let rows = table.grouped(&JOB).into_iter().next()?;
    let mut rates = rows.iter().filter_map(|row| row.number(RATE[0]));
    let alone = rates.next()?;
    rates.next_back()?.over(&alone, "%")
}

/// Formats "throughput drops by so much".
pub(super) fn drop_of(row: &TableRow<'_>) -> Text {
    match row.number("drop") {
        Some(drop) => text!["throughput drops by ", drop],
        None => "throughput drops the most".into(),
    }
}

fn rung(row: &TableRow<'_>) -> ChartBar {
    let adds = row.word("adds");
    let label = if adds.is_empty() { row.word("cached") } else { text![row.word("cached"), " (+ ", adds, ")"] };
    let change = match row.number("drop") {
        Some(drop) if drop.value > 0.0 && row.is("significant", "yes") => Some(text!["drops ", drop]),
        Some(_) if row.is("significant", "no") => Some("no difference".into()),
        _ => None,
    };
    let bold = row.is("culprit", "yes");
    let ink = if bold { Ink::of_stage(row.text("adds")) } else { QUIET };
    ChartBar { bold, ..bar(row, label, [RATE[0], "low", "high"], ink).and(change) }
}

/// Returns the remedy with the largest gain, measured or else expected, without those that were tried and gained
/// nothing, and those that need other photos.
pub(super) fn best(table: &CsvTable) -> Option<(TableRow<'_>, RemedyGain)> {
    let mut best: Option<(TableRow<'_>, RemedyGain)> = None;
    for row in table.rows() {
        if row.not_run().is_none()
            && ["", "gain"].contains(&row.text("effect"))
            && !row.is("vectors", "other")
            && let Some(gain) = RemedyGain::of(&row)
            && best.as_ref().is_none_or(|(_, most)| gain.times.value > most.times.value)
        {
            best = Some((row, gain));
        }
    }
    best
}

/// The gain of a remedy. A measurement beats a prediction.
pub(super) struct RemedyGain {
    /// `measured` or `expected`.
    pub(super) how: &'static str,
    pub(super) times: Num,
    pub(super) rate: Option<Num>,
}

impl RemedyGain {
    fn of(row: &TableRow<'_>) -> Option<Self> {
        if let Some(times) = row.number("measured_times") {
            return Some(Self { how: "measured", times, rate: row.number("measured") });
        }
        Some(Self { how: "expected", times: row.number("times")?, rate: row.number("predicted") })
    }
}

pub(super) fn remedies(table: &CsvTable) -> Option<Plate> {
    let mut panels = Vec::new();
    let mut left_out = Vec::new();
    let mut names = Vec::new();
    for rows in table.grouped(&JOB) {
        let now = rows.iter().find_map(|row| row.number("now"));
        let mut bars = Vec::new();
        if let Some(now) = now
            && let Some(once) = now.over(&now, "×")
        {
            bars.push(simple("as it is".into(), once, QUIET).and(Some(now)));
        }
        for row in &rows {
            // Options tell remedies of one name apart, such as several backends.
            let alike = rows.iter().filter(|other| {
                other.not_run().is_none()
                    && other.number("predicted").is_some()
                    && other.is("remedy", row.text("remedy"))
            });
            let alike = alike.count();
            let label = row.word(if alike > 1 { "change" } else { "remedy" });
            match row.number("predicted").filter(|_| row.not_run().is_none()) {
                Some(predicted) => bars.extend(remedy(row, label, predicted)),
                None if names.contains(&row.text("remedy")) => {}
                None => {
                    names.push(row.text("remedy"));
                    left_out.push(row.word("remedy"));
                }
            }
        }
        panels.push(Panel { heading: heading(&rows[0]), bars });
    }
    panels.retain(|panel| !panel.bars.is_empty());
    panels.first()?;
    let title = match best(table) {
        Some((row, gain)) => text!["What to try first: ", row.word("remedy"), ", ", gain.how, " ", gain.times],
        None => "What may help".into(),
    };
    let keys = [(QUIET, "as it is"), (FORWARD, "predicted"), (READ, "measured")];
    let bars = Bars::new("times the rate as it is", &keys, panels);
    let start = " Without a figure, since they do not apply or cannot be predicted: ";
    let more = sentence(start, Text::join(left_out, ", "));
    Plate::new(title, more, bars)
}

fn remedy(row: &TableRow<'_>, label: Text, predicted: Num) -> Vec<ChartBar> {
    let times = row.number("times").map(|times| simple(label.clone(), times, FORWARD).and(Some(predicted)));
    let measured = row.number("measured_times").map(|times| {
        let whisker = row.number("measured_times_low").zip(row.number("measured_times_high"));
        let bar = ChartBar { whisker, bold: true, ..simple(label + ", measured", times, READ) };
        bar.and(row.number("measured")).and(Some(row.word("effect")))
    });
    times.into_iter().chain(measured).collect()
}
