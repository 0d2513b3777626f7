//! `foveate neighbors`, `duplicates`, `similar`, `clusters`, `sample` and `eval`.

mod clusters;
mod duplicates;
mod estimate;
mod eval;
mod files;
mod images;
mod index;
mod keep;
mod members;
mod neighbors;
pub(super) mod place;
mod sheet;
mod similar;
mod state;
pub(super) mod table;
pub(super) mod vectors;

use foveate::pipeline::Cancel;
use foveate::search::{Components, Search, SearchError, State, Stats};

pub(crate) use clusters::{clusters, sample};
pub(crate) use duplicates::duplicates;
pub(crate) use eval::eval;
pub(crate) use index::index;
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

/// Says what memory the search takes, before it takes it, and what `more` takes in addition.
fn announce(args: &SearchArgs, loaded: &Loaded, k: usize, more: impl FnOnce(&Search<'_>) -> u64) {
    loaded.tell(args);
    if args.quiet {
        return;
    }
    let (rows, dim) = (loaded.ids.len(), loaded.dim);
    let of_vectors = (rows * dim * 4) as u64;
    let (in_memory, disk) = match loaded.vectors {
        Components::Memory(_) => (of_vectors, String::new()),
        Components::File(_) => (0, format!("; the vectors are in a file of {}", human_bytes(of_vectors))),
    };
    // A row has its id's text and place, its hash, and its size.
    let of_images = loaded.ids.iter().map(|id| id.len() as u64 + 48).sum::<u64>();
    let mut search = Search::default();
    search.threads = args.threads.unwrap_or(search.threads);
    let bytes = in_memory + of_images + Search::memory(rows, dim, k) + more(&search);
    console::say!("{rows} vectors of {dim} dimensions; at most about {} of memory{disk}", human_bytes(bytes));
}

fn with_search<T>(
    args: &SearchArgs,
    cancel: &Cancel,
    state: Option<&StateFile>,
    work: impl FnOnce(&Search<'_>) -> T,
) -> T {
    let bar = progress::Share::new(args.quiet || args.json);
    let (show, is_cancelled) = (|share| bar.show(share), || cancel.is_cancelled());
    let mut search = Search { progress: &show, is_cancelled: &is_cancelled, ..Search::default() };
    search.threads = args.threads.unwrap_or(search.threads);
    search.state = state.map(|state| state as &dyn State);
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
