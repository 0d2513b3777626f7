//! The effects of a change that a run's CSV files already hold.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{Context, Setting, schema};

/// The files that measure whole jobs, with their columns of rates. Trials beside the current setting come first.
static JOBS: [(&schema::Schema, &str); 5] = [
    (&schema::REMEDIES, "measured"),
    (&schema::WORKER_SWEEP, "images_per_second"),
    (&schema::JOB_BATCH_SWEEP, "images_per_second"),
    (&schema::HEADLINE, "images_per_second"),
    (&schema::PLAN, "measured"),
];

/// The source of a measurement that the diagnosis made itself.
pub(super) const TRIAL: &str = "trial";

/// A measured change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct KnownChange {
    /// Images per second after it.
    pub(super) rate: f64,
    /// After ÷ before.
    pub(super) times: f64,
    /// The file that says so.
    pub(super) file: String,
}

/// A row of a CSV file, by its columns.
type CsvCells = BTreeMap<String, String>;

fn is(row: &CsvCells, name: &str, value: &str) -> bool {
    row.get(name).is_some_and(|cell| cell == value)
}

fn number(row: &CsvCells, name: &str) -> Option<f64> {
    row.get(name)?.parse().ok().filter(|&value| value > 0.0)
}

/// Returns the rate of the first row that has this setting's columns.
fn rate_of(rows: &[CsvCells], setting: &Setting, column: &str) -> Option<f64> {
    let cells = setting.columns();
    let row = rows.iter().find(|row| cells.iter().all(|(name, cell)| is(row, name, &cell.to_string())));
    number(row?, column)
}

/// The rows of a run's files about these photos on this machine, without those that were disturbed.
#[derive(Debug, Default)]
pub(super) struct Measurements(Vec<(&'static str, &'static str, Vec<CsvCells>)>);

impl Measurements {
    pub(super) fn read(folder: Option<&Path>, photos: &str, context: &Context) -> Self {
        let Some(folder) = folder else { return Self::default() };
        // Model, device, processor, cores and version. Day and seed may differ.
        let names = schema::CONTEXT.iter().map(|column| column.name);
        let same: Vec<(&str, String)> = names.zip(context.values()).take(5).collect();
        let mut files = Vec::new();
        for (schema, rate) in &JOBS {
            let Ok(mut reader) = csv::Reader::from_path(folder.join(schema.file)) else { continue };
            let mut rows: Vec<CsvCells> = reader.deserialize().flatten().collect();
            rows.retain(|row| {
                is(row, "photos", photos)
                    && is(row, "disturbed", "")
                    && same.iter().all(|(name, value)| is(row, name, value))
            });
            files.push((schema.file, *rate, rows));
        }
        Self(files)
    }

    /// Returns the measured effect of changing `from` to `to`, which is called `change`.
    pub(super) fn of(&self, from: &Setting, to: &Setting, change: &str) -> Option<KnownChange> {
        self.0.iter().find_map(|(file, column, rows)| {
            let (rate, times) = if *file == schema::REMEDIES.file {
                let before = from.to_string();
                let mut trials = rows.iter().filter(|row| is(row, "source", TRIAL) && is(row, "setting", &before));
                let row = trials.find(|row| is(row, "change", change))?;
                (number(row, column)?, number(row, "measured_times")?)
            } else {
                // Files without a column for what changes do not know it.
                let before = rate_of(rows, from, column)?;
                let after = rate_of(rows, to, column).filter(|_| from.columns() != to.columns())?;
                (after, after / before)
            };
            Some(KnownChange { rate, times, file: (*file).to_owned() })
        })
    }
}
