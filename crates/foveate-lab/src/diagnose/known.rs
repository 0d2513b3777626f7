//! What a run's CSV files already measured of a change.

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
pub(super) struct Known {
    /// Images per second after it.
    pub(super) rate: f64,
    /// After ÷ before.
    pub(super) times: f64,
    /// The file that says so.
    pub(super) file: String,
}

type Row = BTreeMap<String, String>;

fn is(row: &Row, name: &str, value: &str) -> bool {
    row.get(name).is_some_and(|cell| cell == value)
}

fn number(row: &Row, name: &str) -> Option<f64> {
    row.get(name)?.parse().ok().filter(|&value| value > 0.0)
}

/// The rows of a run's files about these photos on this machine, without those that were disturbed.
#[derive(Debug, Default)]
pub(super) struct Measurements(Vec<(&'static str, &'static str, Vec<Row>)>);

impl Measurements {
    pub(super) fn read(folder: Option<&Path>, photos: &str, context: &Context) -> Self {
        let Some(folder) = folder else { return Self::default() };
        // Model, device, processor, cores and version. Day and seed may differ.
        let names = schema::CONTEXT.iter().map(|column| column.name);
        let same: Vec<(&str, String)> = names.zip(context.values()).take(5).collect();
        let is_usable = |row: &Row| {
            is(row, "photos", photos)
                && is(row, "disturbed", "")
                && same.iter().all(|(name, value)| is(row, name, value))
        };
        let rows = |file: &str| -> Option<Vec<Row>> {
            let mut reader = csv::Reader::from_path(folder.join(file)).ok()?;
            Some(reader.deserialize::<Row>().flatten().filter(|row| is_usable(row)).collect())
        };
        let files = JOBS.iter().filter_map(|(schema, rate)| Some((schema.file, *rate, rows(schema.file)?)));
        Self(files.collect())
    }

    /// Returns the measured effect of changing `from` to `to`, which is called `change`.
    pub(super) fn of(&self, from: &Setting, to: &Setting, change: &str) -> Option<Known> {
        self.0.iter().find_map(|(file, column, rows)| {
            let known = |rate, times| Known { rate, times, file: (*file).to_owned() };
            if *file == schema::REMEDIES.file {
                let before = from.to_string();
                let is_trial = |row: &&Row| is(row, "source", TRIAL) && is(row, "setting", &before);
                let row = rows.iter().filter(is_trial).find(|row| is(row, "change", change))?;
                return Some(known(number(row, column)?, number(row, "measured_times")?));
            }
            let rate = |of: &Setting| {
                let cells = of.columns();
                let is_of = |row: &&Row| cells.iter().all(|(name, cell)| is(row, name, &cell.to_string()));
                number(rows.iter().find(is_of)?, column)
            };
            // Files without a column for what changes do not know it.
            let (before, after) = (rate(from)?, rate(to).filter(|_| from.columns() != to.columns())?);
            Some(known(after, after / before))
        })
    }
}
