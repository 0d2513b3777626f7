//! Files of both formats.

use std::sync::Arc;

use arrow_schema::Fields;
use foveate_source::FetchError;
use foveate_source::blob::Blob;

use crate::choice::Choice;
use crate::fault::guarded;
use crate::ipc::IpcBatches;
use crate::pages::ParquetBatches;
use crate::table::BatchReader;

/// Endings of the names of Arrow IPC files.
pub(crate) const ARROW: [&str; 2] = ["arrow", "feather"];

/// Opens a file's batches: Arrow IPC if its name ends so, otherwise Parquet.
pub(crate) fn open_batches(
    blob: &Arc<dyn Blob>,
    choose: impl FnOnce(&Fields) -> Result<Choice, FetchError>,
) -> Result<(Box<dyn BatchReader>, Choice), FetchError> {
    let extension = blob.name().rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    guarded(|| {
        if ARROW.contains(&extension.as_str()) {
            let (batches, choice) = IpcBatches::open(blob, choose)?;
            return Ok((Box::new(batches) as Box<dyn BatchReader>, choice));
        }
        let (batches, choice) = ParquetBatches::open(blob, choose)?;
        Ok((Box::new(batches) as Box<dyn BatchReader>, choice))
    })
}
