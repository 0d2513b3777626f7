//! `foveate report`.

use std::io::Write;

use foveate::lab::fit;
use foveate::report::{Check, Missing, Report};

use super::console;
use super::exit::Exit;
use super::lab_args::ReportArgs;
use super::plan;

pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<Exit> {
    // It follows from the other files, which may have been measured again.
    if let Err(problem) = plan::write_walls(&args.run) {
        console::say!("note: no walls by batch: {problem:#}");
    }
    let report = Report::read(&args.run)?;
    for Missing { file, made_by } in report.missing() {
        console::say!("note: no {file} (`foveate {made_by}` makes it), so it is left out");
    }
    let written = report.write(args.out.as_deref().unwrap_or(&args.run))?;
    let mut out = console::stdout();
    written.iter().try_for_each(|path| writeln!(out, "wrote {}", path.display()))?;
    write!(out, "{}", fit(&checklist(&report), 4))?;
    Ok(Exit::Complete)
}

/// Formats what the checklist finds: each answer that needs a look, and how many are good or unknown.
pub(crate) fn checklist(report: &Report) -> String {
    let checks = report.checklist();
    let mut text = "\nChecklist:\n".to_owned();
    for check in checks.iter().filter(|check| check.verdict == "look") {
        let Check { question, advice, source, .. } = check;
        text.push_str(&format!("  {question} {}: {advice} ({source})\n", check.value()));
    }
    for verdict in ["good", "unknown"] {
        let count = checks.iter().filter(|check| check.verdict == verdict).count();
        text.push_str(&format!("  {verdict}: {count} of {}\n", checks.len()));
    }
    text
}
