#![doc = include_str!("../README.md")]

mod canvas;
mod chart;
mod error;
mod figures;
mod font;
mod ink;
mod page;
mod png;
mod run;
mod shown;
mod table;

use std::path::{Path, PathBuf};

pub use error::ReportError;
use figures::{Plate, WIDE};
pub use run::Missing;
use run::Run;

/// The content of a run's files, read and checked.
#[derive(Debug)]
pub struct Report(Run);

/// A separate figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// File name without extension.
    pub name: &'static str,
    /// The title, as a finding if there is one.
    pub title: String,
    /// The figure as SVG, in light colours; its text needs the font Roboto. Elements that show a number of the run have
    /// the attribute `data-from`: `FILE:LINE:COLUMN` of each source field, separated by blanks.
    pub svg: String,
}

impl Report {
    /// Reads a run's files in `folder`; [`foveate_schema`] describes their content.
    ///
    /// # Errors
    /// [`ReportError::Nothing`] if none of them exists, [`ReportError::Malformed`] if one lacks a column or has an
    /// invalid number, [`ReportError::File`] if one cannot be read.
    pub fn read(folder: &Path) -> Result<Self, ReportError> {
        Run::read(folder).map(Self)
    }

    /// Returns the missing files that the report could show.
    pub fn missing(&self) -> Vec<Missing> {
        self.0.missing()
    }

    /// Draws every figure that the files allow.
    ///
    /// # Errors
    /// [`ReportError::Malformed`] if a row lacks a number that its figure needs.
    pub fn figures(&self) -> Result<Vec<Figure>, ReportError> {
        self.plates()?.iter().map(|plate| self.figure(plate)).collect()
    }

    /// Returns the page: text, figures for desktop and phone in light and dark, the checklist, and every number's
    /// origin.
    ///
    /// # Errors
    /// The errors of [`figures`](Self::figures).
    pub fn html(&self) -> Result<String, ReportError> {
        page::page(&self.0, &self.plates()?)
    }

    /// Writes the page to `out/report.html` and each figure to `out/figures/NAME.svg` and `NAME.png`; returns the
    /// written paths.
    ///
    /// # Errors
    /// The errors of [`figures`](Self::figures); [`ReportError::File`] if a file cannot be written.
    pub fn write(&self, out: &Path) -> Result<Vec<PathBuf>, ReportError> {
        let folder = out.join("figures");
        let mut files = vec![(out.join("report.html"), self.html()?.into_bytes())];
        for Figure { name, svg, .. } in self.figures()? {
            files.push((folder.join(format!("{name}.png")), png::rasterize(name, &svg)?));
            files.push((folder.join(format!("{name}.svg")), svg.into_bytes()));
        }
        std::fs::create_dir_all(&folder).map_err(|cause| ReportError::File {
            action: "write",
            path: folder.clone(),
            cause,
        })?;
        let write = |(path, bytes): (PathBuf, Vec<u8>)| match std::fs::write(&path, bytes) {
            Ok(()) => Ok(path),
            Err(cause) => Err(ReportError::File { action: "write", path, cause }),
        };
        files.into_iter().map(write).collect()
    }

    fn plates(&self) -> Result<Vec<Plate>, ReportError> {
        figures::plates(&self.0)
    }

    fn figure(&self, plate: &Plate) -> Result<Figure, ReportError> {
        let svg = plate.draw(WIDE)?.standalone(&plate.title, plate.description);
        Ok(Figure { name: plate.name, title: plate.title.plain(), svg })
    }
}
