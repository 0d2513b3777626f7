#![doc = include_str!("../README.md")]

mod chart;
mod checklist;
mod error;
mod figures;
mod page;
pub mod schema;
mod svg;
mod table;
mod text;

use std::path::{Path, PathBuf};

pub use checklist::Check;
pub use error::ReportError;
pub use table::Missing;
use table::RunTables;
pub use text::escape;

/// The content of a run's files, read and checked.
#[derive(Debug)]
pub struct Report(RunTables);

/// A separate figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// File name without extension.
    pub name: &'static str,
    /// The title, as a finding if there is one.
    pub title: String,
    /// The figure as SVG, light or dark as the viewer prefers. Elements that show a number of the run have the
    /// attribute `data-from`: `FILE:LINE:COLUMN` of each source field, separated by blanks.
    pub svg: String,
}

impl Report {
    /// Reads a run's files in `folder`; [`schema`] describes their content. A file may lack columns.
    ///
    /// # Errors
    /// [`ReportError::Nothing`] if none of them exists, [`ReportError::Malformed`] if one is no such table or has an
    /// invalid number, [`ReportError::File`] if one cannot be read.
    pub fn read(folder: &Path) -> Result<Self, ReportError> {
        RunTables::read(folder).map(Self)
    }

    /// Returns the missing files that the report could show.
    pub fn missing(&self) -> Vec<Missing> {
        self.0.missing()
    }

    /// Returns the questions that find a bottleneck, answered from the files; none without a profile.
    pub fn checklist(&self) -> Vec<Check> {
        checklist::checklist(&self.0)
    }

    /// Draws every figure that the files allow.
    ///
    /// # Errors
    /// [`ReportError::Malformed`] if a row lacks a number that its figure needs.
    pub fn figures(&self) -> Result<Vec<Figure>, ReportError> {
        let mut figures = Vec::new();
        for (name, plate) in figures::plates(&self.0)?.drawn {
            let svg = plate.draw(svg::WIDE, Some(page::caption(name)));
            figures.push(Figure { name, title: plate.title.plain(), svg });
        }
        Ok(figures)
    }

    /// Returns the page: text, figures for desktop and phone, and the files' content as JSON, from which its script
    /// makes tables.
    ///
    /// # Errors
    /// The errors of [`figures`](Self::figures).
    pub fn html(&self) -> Result<String, ReportError> {
        Ok(page::page(&self.0, &figures::plates(&self.0)?))
    }

    /// Writes the page to `out/report.html` and each figure to `out/figures/NAME.svg`; returns the written paths.
    ///
    /// # Errors
    /// The errors of [`figures`](Self::figures); [`ReportError::File`] if a file cannot be written.
    pub fn write(&self, out: &Path) -> Result<Vec<PathBuf>, ReportError> {
        let folder = out.join("figures");
        let mut files = vec![(out.join("report.html"), self.html()?)];
        files.extend(
            self.figures()?.into_iter().map(|figure| (folder.join(figure.name).with_extension("svg"), figure.svg)),
        );
        std::fs::create_dir_all(&folder).map_err(|cause| ReportError::File { action: "write", path: folder, cause })?;
        let mut written = Vec::new();
        for (path, text) in files {
            match std::fs::write(&path, text) {
                Ok(()) => written.push(path),
                Err(cause) => return Err(ReportError::File { action: "write", path, cause }),
            }
        }
        Ok(written)
    }
}
