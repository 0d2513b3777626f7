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

/// What the files of a run say, read and checked.
#[derive(Debug)]
pub struct Report(Run);

/// A figure that stands alone.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its name as a file, without the ending.
    pub name: &'static str,
    /// What it shows, as a finding where there is one.
    pub title: String,
    /// The figure as SVG, in light colours; letters ask for the font Roboto. Elements that show a number of the run
    /// have the attribute `data-from`: `FILE:LINE:COLUMN` of each field that it is from, with blanks between them.
    pub svg: String,
}

impl Report {
    /// Reads the files of a run that are in `folder`; [`foveate_schema`] says what they hold.
    ///
    /// # Errors
    /// [`ReportError::Nothing`] when none of them is there, [`ReportError::Malformed`] when one lacks a column or a
    /// number is none, [`ReportError::File`] when one cannot be read.
    pub fn read(folder: &Path) -> Result<Self, ReportError> {
        Run::read(folder).map(Self)
    }

    /// The files that the report could show and that are not there.
    pub fn missing(&self) -> Vec<Missing> {
        self.0.missing()
    }

    /// Every figure that can be made of what is there.
    ///
    /// # Errors
    /// [`ReportError::Malformed`] when a row lacks a number that its figure needs.
    pub fn figures(&self) -> Result<Vec<Figure>, ReportError> {
        self.plates()?.iter().map(|plate| self.figure(plate)).collect()
    }

    /// The page: text, figures for desk and phone in light and dark, the checklist, and where each number is from.
    ///
    /// # Errors
    /// As [`figures`](Self::figures).
    pub fn html(&self) -> Result<String, ReportError> {
        page::page(&self.0, &self.plates()?)
    }

    /// Writes the page to `out/report.html` and each figure to `out/figures/NAME.svg` and `NAME.png`; returns what
    /// was written.
    ///
    /// # Errors
    /// As [`figures`](Self::figures), and [`ReportError::File`] when a file cannot be written.
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
