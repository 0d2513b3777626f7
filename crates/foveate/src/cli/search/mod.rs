//! `foveate neighbors`, `duplicates`, `similar`, `clusters`, `sample`, `label`, `align` and `eval`.

#[cfg(feature = "text")]
mod align;
mod clusters;
mod duplicates;
mod estimate;
mod eval;
mod files;
mod images;
mod index;
mod keep;
#[cfg(feature = "text")]
mod label;
mod members;
mod model;
mod neighbors;
pub(super) mod place;
#[cfg(feature = "text")]
mod query_texts;
mod sheet;
mod similar;
mod state;
pub(super) mod table;
pub(super) mod vectors;

use foveate::pipeline::Cancel;
use foveate::profile::process::{peak_resident_bytes, resident_bytes};
use foveate::search::{Components, Search, SearchError, SearchState, Stats};

#[cfg(feature = "text")]
pub(crate) use align::align;
pub(crate) use clusters::{clusters, sample};
pub(crate) use duplicates::duplicates;
pub(crate) use eval::eval;
pub(crate) use index::index;
#[cfg(feature = "text")]
pub(crate) use label::label;
pub(crate) use neighbors::neighbors;
pub(crate) use similar::similar;

use super::search_args::SearchArgs;
use super::summary::human_bytes;
use super::{console, job, progress};
use state::StateFile;
use vectors::Loaded;

fn begin() -> anyhow::Result<Cancel> {
    let cancel = Cancel::default();
    job::on_signal(&cancel, || console::say!("\ninterrupted: ending the search; interrupt again to stop at once"))?;
    Ok(cancel)
}

/// Rows of a table that are written together.
const BLOCK: usize = 1 << 14;
/// Bytes that a file's writer collects at most.
const OF_WRITER: u64 = 48 << 20;

/// Says what memory the process takes at most, before the search begins: what it has, what the search takes (`of`),
/// and what a table of `table_rows` takes while it is written. Returns these bytes.
fn announce(args: &SearchArgs, loaded: &Loaded, table_rows: usize, of: impl FnOnce(&Search<'_>) -> u64) -> u64 {
    loaded.tell(args);
    let rows = loaded.ids.len();
    let dim = loaded.dim;
    let mut search = Search::default();
    search.threads = args.threads.unwrap_or(search.threads);
    let longest = loaded.ids.iter().map(|id| id.len()).max().unwrap_or(0) as u64;
    let table =
        table_rows.min(BLOCK) as u64 * (4 * longest + 128) + (table_rows as u64 * (2 * longest + 32)).min(OF_WRITER);
    let of_vectors = (rows * dim * 4) as u64;
    // Where the system does not say what there is, the vectors are most of it.
    let now = resident_bytes().unwrap_or(of_vectors);
    let before = peak_resident_bytes().unwrap_or(0);
    let bytes = before.max(now + of(&search) + search.memory_of_threads(rows) + table);
    if !args.quiet {
        let disk = match loaded.vectors {
            Components::Memory(_) => String::new(),
            Components::File(_) => format!("; the vectors are in a file of {}", human_bytes(of_vectors)),
        };
        console::say!("{rows} vectors of {dim} dimensions; at most about {} of memory{disk}", human_bytes(bytes));
    }
    bytes
}

fn with_search<T>(
    args: &SearchArgs,
    cancel: &Cancel,
    state: Option<&StateFile>,
    work: impl FnOnce(&Search<'_>) -> T,
) -> T {
    let bar = progress::Share::new(args.quiet || args.json);
    let is_cancelled = || cancel.is_cancelled();
    let show = |share| bar.show(share);
    let mut search = Search { progress: &show, is_cancelled: &is_cancelled, ..Search::default() };
    search.threads = args.threads.unwrap_or(search.threads);
    search.state = state.map(|state| state as &dyn SearchState);
    let done = work(&search);
    bar.clear();
    done
}

fn unless_cancelled<T>(done: Result<T, SearchError>) -> anyhow::Result<Option<T>> {
    match done {
        Err(SearchError::Cancelled) => Ok(None),
        done => Ok(Some(done?)),
    }
}

fn of_pairs(Stats { pairs, scored, width }: Stats) -> String {
    format!(
        "{pairs} pairs compared in {width} directions, {:.2} % in full",
        100.0 * scored as f64 / pairs.max(1) as f64
    )
}

fn warn_of_skipped(rows: usize) {
    if rows > 0 {
        console::say!("warning: {rows} rows are not finite and were left out; `foveate inspect` counts them");
    }
}
