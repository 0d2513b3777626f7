//! `foveate report`.

use std::io::Write;

use foveate::report::{Missing, Report};

use super::console;
use super::exit::Exit;
use super::lab_args::ReportArgs;

pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<Exit> {
    let report = Report::read(&args.run)?;
    for Missing { file, made_by } in report.missing() {
        console::say!("note: no {file} (`foveate {made_by}` makes it), so it is left out");
    }
    let written = report.write(args.out.as_deref().unwrap_or(&args.run))?;
    let mut out = console::stdout();
    written.iter().try_for_each(|path| writeln!(out, "wrote {}", path.display()))?;
    Ok(Exit::Complete)
}
