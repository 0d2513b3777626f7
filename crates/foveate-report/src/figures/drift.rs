use super::plate::{Plate, absent, sentence};
use crate::chart::{Frontier, Spot};
use crate::table::{Row, Table};
use crate::text::{Text, text};

/// The columns that drift depends on.
const CONFIGURATION: [&str; 5] = ["decoder", "decode_scale", "resizer", "encoder", "dtype"];

pub(super) fn frontier(table: &Table) -> Option<Plate> {
    let ran: Vec<Row<'_>> = table.rows().filter(|row| row.not_run().is_none()).collect();
    let first = ran.first()?;
    let name = |row: &Row<'_>| {
        let changed = CONFIGURATION.into_iter().filter(|column| row.text(column) != first.text(column));
        let changed = Text::join(changed.map(|column| value(row, column)), " + ");
        if changed.is_empty() { "default".into() } else { changed }
    };
    let spot = |row: &Row<'_>| {
        let (is_within, is_chosen) = (row.is("within", "yes"), row.is("chosen", "yes"));
        Some(Spot {
            name: name(row),
            x: row.number("drift_max")?,
            y: row.number("images_per_second")?,
            is_within,
            is_chosen,
        })
    };
    let rate = |row: &Row<'_>| row.number("images_per_second");
    let budget = first.number("budget");
    let chosen = ran.iter().find(|row| row.is("chosen", "yes"));
    let within = budget.as_ref().map_or_else(|| "the budget".into(), |budget| text!["a drift of ", budget]);
    let title = match chosen {
        Some(row) if name(row).plain() == "default" => text!["Within ", within, ", nothing is faster than the default"],
        Some(row) => {
            let times = rate(row).zip(rate(first)).and_then(|(now, before)| now.over(&before, "×"));
            text!["Within ", within, ", ", name(row), " is the fastest: ", times, " the default"]
        }
        None => "Speed and drift of every configuration".into(),
    };
    let more = chosen.map_or_else(Text::default, |row| sentence(" The chosen one: ", row.word("why")));
    let (x, y) = ("most drift of a photo", "images per second");
    let spots = ran.iter().filter_map(spot).collect();
    Plate::new(title, more + absent(table, &CONFIGURATION), Frontier { x, y, limit: budget, spots })
}

/// Formats a setting: a decoder and a resizer may have the same name.
fn value(row: &Row<'_>, column: &'static str) -> Text {
    match column {
        "decoder" | "resizer" => text![row.word(column), " ", column],
        _ => row.word(column),
    }
}
