//! Updates that are put in place: the time between their first rename and their last.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use crate::names::{STAGING, record_of};
use crate::{Layout, Prefix, SinkError};

/// The file that says how to put an update in place.
pub(crate) const PLAN: &str = "plan.json";
/// Folders of the work in progress.
pub(crate) const WORK: [&str; 2] = ["later", "rewritten"];

/// The folder of an update's work in progress.
pub(crate) fn work_folder(output: &Path, layout: Layout) -> PathBuf {
    match layout {
        Layout::Folder => output.join(STAGING).join("update"),
        Layout::File => record_of(output, "update"),
    }
}

/// Refuses to read an output while an update of it is put in place, or was interrupted at that.
pub(crate) fn check_in_place(output: &Path) -> Result<(), SinkError> {
    let plan = work_folder(output, Layout::of(output)).join(PLAN);
    wait_until_gone(output, || Ok(plan.exists()))
}

/// Does the same for an output in a store.
pub(crate) fn check_in_place_below(prefix: &dyn Prefix) -> Result<(), SinkError> {
    let plan = format!("{STAGING}/update/{PLAN}");
    wait_until_gone(Path::new(prefix.address()), || Ok(!prefix.list(&plan)?.is_empty()))
}

/// An update at work needs a moment for its renames.
fn wait_until_gone(output: &Path, is_there: impl Fn() -> Result<bool, SinkError>) -> Result<(), SinkError> {
    for _ in 0..10 {
        if !is_there()? {
            return Ok(());
        }
        sleep(Duration::from_millis(100));
    }
    Err(SinkError::Updating(output.to_owned()))
}
