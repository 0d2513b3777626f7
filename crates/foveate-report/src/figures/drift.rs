use super::plate::{Plate, absent, sentence};
use crate::chart::{Frontier, Spot};
use crate::table::{CsvTable, TableRow};
use crate::text::{Text, text};

/// The columns that drift depends on.
const CONFIGURATION: [&str; 5] = ["decoder", "decode_scale", "resizer", "encoder", "dtype"];

pub(super) fn frontier(table: &CsvTable) -> Option<Plate> {
    let ran: Vec<TableRow<'_>> = table.rows().filter(|row| row.not_run().is_none()).collect();
    let first = ran.first()?;
    let mut spots = Vec::new();
    for row in &ran {
        if let Some((x, y)) = row.number("drift_max").zip(row.number("images_per_second")) {
            let is_chosen = row.is("chosen", "yes");
            spots.push(Spot { name: changes(row, first), x, y, is_within: row.is("within", "yes"), is_chosen });
        }
    }
    let budget = first.number("budget");
    let chosen = ran.iter().find(|row| row.is("chosen", "yes"));
    let within = budget.as_ref().map_or_else(|| "the budget".into(), |budget| text!["a drift of ", budget]);
    let title = match chosen {
        Some(row) if changes(row, first).plain() == "default" => {
            text!["Within ", within, ", nothing is faster than the default"]
        }
        Some(row) => {
            let [now, before] = [row, first].map(|row| row.number("images_per_second"));
            let times = now.zip(before).and_then(|(now, before)| now.over(&before, "×"));
            text!["Within ", within, ", ", changes(row, first), " is the fastest: ", times, " the default"]
        }
        None => "Speed and drift of every configuration".into(),
    };
    let more = chosen.map_or_else(Text::default, |row| sentence(" The chosen one: ", row.word("why")));
    let x = "most drift of a photo";
    let y = "images per second";
    Plate::new(title, more + absent(table, &CONFIGURATION), Frontier { x, y, limit: budget, spots })
}

/// Names a configuration by its differences from the first one.
fn changes(row: &TableRow<'_>, first: &TableRow<'_>) -> Text {
    let changed = CONFIGURATION.into_iter().filter(|column| row.text(column) != first.text(column));
    let changed = changed.map(|column| match column {
        // A decoder and a resizer may have the same name.
        "decoder" | "resizer" => text![row.word(column), " ", column],
        _ => row.word(column),
    });
    let changed = Text::join(changed, " + ");
    if changed.is_empty() { "default".into() } else { changed }
}
