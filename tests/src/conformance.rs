//! Files that decoders encounter in practice, and the expected results.

use std::path::{Path, PathBuf};

use crate::trial::Outcome;

/// One file of a conformance folder, as its MANIFEST.csv describes it. Empty columns are `None`.
#[derive(Clone, Debug)]
pub struct ConformanceFile {
    /// The file's name in the folder.
    pub name: String,
    /// The file's path.
    pub path: PathBuf,
    /// Width and height as stored, if known.
    pub size: Option<(u32, u32)>,
    /// `jpeg`, `png`, …; `None` if it is not an image.
    pub format: Option<String>,
    /// The kind of file.
    pub category: String,
    /// Expectation of a decoder.
    pub expect: Expect,
    /// SHA-256 of the RGB pixels by Pillow (committed files).
    pub rgb_sha256: Option<String>,
    /// SHA-256 of the output of `djpeg -pnm` (shared files).
    pub djpeg_sha256: Option<String>,
    /// A PNG of Pillow's pixels, from which decoders may differ slightly.
    pub reference: Option<PathBuf>,
}

/// Expectation of a decoder for one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Return its pixels.
    Decode,
    /// Return its pixels, or report that it cannot read this kind of file.
    DecodeOrUnsupported,
    /// Return some pixels or an error: the file is damaged.
    PartialOrError,
    /// Return an error.
    Reject,
    /// Return an error before it spends much time or memory.
    RejectFast,
}

/// Every file that the MANIFEST.csv of `folder` lists.
///
/// # Errors
/// If the manifest is missing or does not have the expected columns.
pub fn files(folder: &Path) -> Result<Vec<ConformanceFile>, Outcome> {
    let mut reader = csv::Reader::from_path(folder.join("MANIFEST.csv"))?;
    let header = reader.headers()?.clone();
    let mut files = Vec::new();
    for record in reader.records() {
        let record = record?;
        let text = |name: &str| {
            let column = header.iter().position(|column| column == name)?;
            record.get(column).filter(|value| !value.is_empty()).map(str::to_owned)
        };
        files.push(file(folder, &text)?);
    }
    Ok(files)
}

fn file(folder: &Path, text: &dyn Fn(&str) -> Option<String>) -> Result<ConformanceFile, Outcome> {
    let required = |name: &str| text(name).ok_or_else(|| Outcome::failed(format!("a manifest row without '{name}'")));
    let name = required("file")?;
    let side = |name: &str| text(name).and_then(|value| value.parse().ok());
    Ok(ConformanceFile {
        path: folder.join(&name),
        size: side("width").zip(side("height")),
        format: text("format").filter(|format| format != "unknown"),
        category: required("category")?,
        expect: expect(&required("expect")?)?,
        rgb_sha256: text("rgb_sha256"),
        djpeg_sha256: text("djpeg_ppm_sha256"),
        reference: text("reference").map(|path| folder.join(path)),
        name,
    })
}

fn expect(text: &str) -> Result<Expect, Outcome> {
    match text {
        "decode" => Ok(Expect::Decode),
        "decode-or-unsupported" => Ok(Expect::DecodeOrUnsupported),
        "partial-or-error" => Ok(Expect::PartialOrError),
        "reject" => Ok(Expect::Reject),
        "reject-fast" => Ok(Expect::RejectFast),
        other => Err(Outcome::failed(format!("unknown expectation '{other}'"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::fixture;

    #[test]
    fn the_committed_manifest_is_complete() {
        let folder = fixture("conformance");
        let files = files(&folder).unwrap();
        assert!(files.iter().all(|file| file.path.is_file()), "a file of the manifest is missing");
        assert!(files.iter().filter_map(|file| file.reference.as_ref()).all(|path| path.is_file()));
        for expected in
            [Expect::Decode, Expect::DecodeOrUnsupported, Expect::PartialOrError, Expect::Reject, Expect::RejectFast]
        {
            assert!(files.iter().any(|file| file.expect == expected), "no file for {expected:?}");
        }
    }
}
