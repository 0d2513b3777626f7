//! Outputs, read by other programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{LAYOUTS, Subject};
use crate::{Element, Existing, Layout, Rows, RunManifest, SinkOptions, Watermark};

/// Runs a Python script that opens the sink's output with independent libraries: `script ELEMENT FILE…`, for both
/// elements, as a file and as a folder, in one part and in several. The script knows the ten rows that this function
/// writes. Its exit code 77 means that a library is missing. Returns `Err(why)` if the script could not run.
pub fn read_elsewhere(subject: &Subject<'_>, script: &Path, scratch: &Path) -> Result<(), String> {
    for element in [Element::F32, Element::F16] {
        for layout in LAYOUTS {
            for part_items in [4, 100] {
                let name = format!("{}-{part_items}-{layout:?}", element.name());
                let extension = if layout == Layout::File { subject.extension } else { "d" };
                let output = scratch.join(name).with_extension(extension);
                let options = SinkOptions { element, layout, part_items, ..SinkOptions::new(output) };
                let files = write_ten_rows(subject, &options);
                let is_cut = layout == Layout::Folder && part_items == 4;
                assert_eq!(files.len(), if is_cut { 3 } else { 1 });
                run_script(script, element, &files)?;
            }
        }
    }
    Ok(())
}

fn write_ten_rows(subject: &Subject<'_>, options: &SinkOptions) -> Vec<PathBuf> {
    let mut sink = (subject.open)(options);
    let fingerprint = [("model".to_owned(), "tiny".to_owned())].into();
    sink.begin(&RunManifest { dim: 4, fingerprint, ..RunManifest::default() }, Existing::Refuse).unwrap();
    let index: Vec<u64> = (0..10).collect();
    let id: Vec<String> = index.iter().map(|i| format!("photos/{i},\n \"ż\".jpg")).collect();
    let vectors: Vec<f32> = (0..40).map(|i| i as f32 * 0.1).collect();
    let xxh3: Vec<u64> = index.iter().map(|i| i * 7).collect();
    let rows = Rows {
        index: &index,
        id: &id,
        vectors: &vectors,
        width: &[100; 10],
        height: &[200; 10],
        xxh3: &xxh3,
        columns: &[],
    };
    sink.append(&rows).unwrap();
    sink.commit(Watermark::from(10)).unwrap();
    let mut files = sink.finish().unwrap().files;
    files.retain(|file| file.extension().is_some_and(|extension| extension == subject.extension));
    files
}

fn run_script(script: &Path, element: Element, files: &[PathBuf]) -> Result<(), String> {
    let ran = Command::new("python3").arg(script).arg(element.name()).args(files).output();
    let output = ran.map_err(|error| format!("there is no python3 ({error})"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(77) {
        return Err(said.trim().to_owned());
    }
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
