//! The default decoders give Pillow's pixels for every class of files that `make.py` generates. The files beside it are
//! its output for one seed. `cargo xtask pixels` compares others, in the folder that `FOVEATE_PIXELS` names.

mod compare;

use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn generated_files_have_pillows_pixels() {
    let committed = || Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pillow/files");
    let generated = std::env::var_os("FOVEATE_PIXELS").map(PathBuf::from);
    let cases = compare::cases(&generated.clone().unwrap_or_else(committed)).unwrap();
    let verdicts: Vec<_> = cases.iter().map(|case| (case, case.verdict())).collect();
    let (table, wrong) = compare::report(&verdicts);
    if let Some(folder) = generated {
        fs::write(folder.join("table.md"), table).unwrap();
    }
    assert!(verdicts.len() > 80 && wrong.is_empty(), "{} cases\n{}", verdicts.len(), wrong.join("\n"));
}
