//! Results as CSV files.

use foveate_benches::{Result, Spread, host};

use crate::Args;

/// The rows of a CSV file. The machine's columns are added to each.
pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[&str]) -> Self {
        let columns = ["host", "cores"].iter().chain(columns);
        Self { header: columns.map(|&name| name.to_owned()).collect(), rows: Vec::new() }
    }

    pub(crate) fn push(&mut self, values: impl IntoIterator<Item = String>) {
        let machine = [host::processor(), host::cores().to_string()];
        // Commas would need quotes, which not every reader of a table understands.
        self.rows.push(machine.into_iter().chain(values).map(|value| value.replace(',', ";")).collect());
    }
}

/// Median, least and most of `of(value)`, as three values of a table.
pub(crate) fn three(spread: &Spread, of: impl Fn(f64) -> f64) -> [String; 3] {
    let [a, b] = [of(spread.min), of(spread.max)];
    [of(spread.median), a.min(b), a.max(b)].map(|value| format!("{value:.4}"))
}

/// Writes a table to the folder that the arguments name, if they do.
pub(crate) fn save(args: &Args, name: &str, table: &Table) -> Result<()> {
    let Some(folder) = &args.csv else { return Ok(()) };
    let mut file = csv::Writer::from_path(folder.join(name))?;
    file.write_record(&table.header)?;
    for row in &table.rows {
        file.write_record(row)?;
    }
    Ok(file.flush()?)
}
