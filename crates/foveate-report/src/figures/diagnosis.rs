use super::plate::{Plate, Plates, both, key, least, not_run, whiskered};
use crate::ReportError;
use crate::chart::{Bar, Bars, Chart, Panel, single};
use crate::ink::{FORWARD, Ink, QUIET, READ};
use crate::run::Run;
use crate::shown::{Num, Text, text};
use crate::table::{Row, Table, group};

/// Returns the row of the stage that the verdict names.
pub(crate) fn culprit<'a>(rows: impl IntoIterator<Item = Row<'a>>) -> Option<Row<'a>> {
    rows.into_iter().find(|row| row.is("culprit", "yes"))
}

/// Groups rows by job: a set of photos, and the remedies that helped before.
fn jobs(table: &Table) -> Vec<Vec<Row<'_>>> {
    group(table.rows(), |row| ["photos", "step"].map(|column| row.text(column).to_owned()))
}

fn heading(rows: &[Row<'_>]) -> Text {
    match rows[0].number("step") {
        Some(step) if step.value > 0.0 => text![rows[0].word("photos"), ", after ", step, " remedies that helped"],
        _ => rows[0].word("photos"),
    }
}

pub(crate) fn ladder(run: &Run) -> Plates {
    let Some(table) = run.table("diagnosis.csv") else { return Ok(None) };
    let mut panels = Vec::new();
    for rows in jobs(table) {
        let bars = rows.iter().map(rung).collect::<Result<_, _>>()?;
        panels.push(Panel { heading: heading(&rows), bars });
    }
    let mut keys = vec![key(QUIET, "innocent")];
    keys.extend(
        culprit(table.rows()).map(|row| key(Ink::of_stage(row.text("adds")), text!["culprit: ", row.word("adds")])),
    );
    let title = match culprit(table.rows()) {
        Some(row) => text!["The culprit is ", row.word("adds"), ": ", drop_of(&row)],
        None => match kept(table) {
            Some(kept) => text!["No single stage is to blame: with all of them at work, ", kept],
            None => "No single stage is to blame".into(),
        },
    };
    Ok(Some(Plate {
        name: "diagnosis",
        title,
        caption: "The real pipeline with its data cached at one depth after the other: at the top everything but the \
                  forward is spared, and each bar below lets one more stage work. The culprit is the stage with which \
                  the rate drops the most. Whiskers are intervals that hold the median nineteen times in twenty."
            .into(),
        description: "Bars: images a second with the data cached at each depth; the stage that costs the most stands out.",
        note: Text::default(),
        chart: Chart::Bars(Bars { keys, axis: "images per second", one_scale: false, panels }),
    }))
}

/// Formats "throughput is so much of the shallowest depth's", for the first set: from its shallowest to its deepest
/// depth that ran.
pub(crate) fn kept(table: &Table) -> Option<Text> {
    let rows = jobs(table).into_iter().next()?;
    let mut rates = rows.iter().filter_map(|row| row.number("images_per_second"));
    let alone = rates.next()?;
    let share = Num { unit: "%", ..rates.next_back()?.over(&alone)? };
    Some(text!["throughput is ", share, " of the shallowest depth's"])
}

/// Formats "throughput drops by so much".
pub(crate) fn drop_of(row: &Row<'_>) -> Text {
    match row.number("drop") {
        Some(drop) => text!["throughput drops by ", drop],
        None => "throughput drops the most".into(),
    }
}

fn rung(row: &Row<'_>) -> Result<Bar, ReportError> {
    let adds = row.word("adds");
    let label = if adds.is_empty() { row.word("cached") } else { text![row.word("cached"), " (+ ", adds, ")"] };
    if let Some(why) = row.not_run() {
        return Ok(not_run(label, why));
    }
    let rate = row.need("images_per_second")?;
    let change = match row.number("drop") {
        Some(drop) if drop.value > 0.0 && row.is("significant", "yes") => text![" · drops ", drop],
        Some(_) if row.is("significant", "no") => " · no difference".into(),
        _ => Text::default(),
    };
    let is_culprit = row.is("culprit", "yes");
    let ink = if is_culprit { Ink::of_stage(row.text("adds")) } else { QUIET };
    let bar = whiskered(label, rate.clone(), both(row, "low", "high"), (ink, false), text![&rate, change]);
    Ok(Bar { bold: is_culprit, ..bar })
}

/// Returns the remedy with the largest expected gain, without those that were tried and gained nothing.
pub(crate) fn best<'a>(rows: impl IntoIterator<Item = Row<'a>>) -> Option<(Row<'a>, Num)> {
    let promises = |row: &Row<'_>| row.not_run().is_none() && ["", "gain"].contains(&row.text("effect"));
    let gains = rows.into_iter().filter(promises).filter_map(|row| Some((row, row.number("times")?)));
    least(gains, |(_, times)| -times.value)
}

pub(crate) fn remedies(run: &Run) -> Plates {
    let Some(table) = run.table("remedies.csv") else { return Ok(None) };
    let (mut panels, mut left_out) = (Vec::new(), Vec::new());
    for rows in jobs(table) {
        let mut bars: Vec<Bar> = Vec::new();
        if let Some(now) = rows.iter().find_map(|row| row.number("now")) {
            bars.push(single("as it is".into(), now, None));
        }
        for row in &rows {
            match row.number("predicted") {
                Some(predicted) if row.not_run().is_none() => bars.extend(remedy(row, predicted)),
                _ => left_out.push(row.word("remedy")),
            }
        }
        if !bars.is_empty() {
            panels.push(Panel { heading: heading(&rows), bars });
        }
    }
    if panels.is_empty() {
        return Ok(None);
    }
    let title = match best(table.rows()) {
        Some((row, times)) => text!["What to try first: ", row.word("remedy"), ", expected ", times],
        None => "What may help".into(),
    };
    let left_out = match Text::join(left_out, ", ") {
        none if none.is_empty() => none,
        names => text![" Without a figure, since they do not apply or cannot be predicted: ", names, "."],
    };
    Ok(Some(Plate {
        name: "remedies",
        title,
        caption: text![
            "What the fitted model expects of each remedy, and where one was tried, what was measured.",
            left_out
        ],
        description: "Bars: images a second expected of each remedy, beside what was measured.",
        note: Text::default(),
        chart: Chart::Bars(Bars {
            keys: vec![key(QUIET, "as it is"), key(FORWARD, "predicted"), key(READ, "measured")],
            axis: "images per second",
            one_scale: false,
            panels,
        }),
    }))
}

fn remedy(row: &Row<'_>, predicted: Num) -> Vec<Bar> {
    let value = text![&predicted, " · ", row.number("times")];
    let mut bars = vec![whiskered(row.word("remedy"), predicted, None, (FORWARD, false), value)];
    if let Some(measured) = row.number("measured") {
        let error = row.number("error").map_or_else(Text::default, |error| text![" · error ", error]);
        let value = text![&measured, error, " · ", row.word("effect")];
        let range = both(row, "measured_low", "measured_high");
        let bar = whiskered(row.word("remedy") + ", measured", measured, range, (READ, false), value);
        bars.push(Bar { bold: true, ..bar });
    }
    bars
}
