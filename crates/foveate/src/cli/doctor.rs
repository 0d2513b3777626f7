//! `foveate doctor`: shows which library and devices each backend uses on this machine, and a remedy for each that does
//! not work.

use std::io::Write;

use foveate::backends::{Visit, visit_all};
use foveate::core::{Backend, Health, Problem, Registry};
use foveate::rig;
use serde_json::{Value, json};

use super::args::ListArgs;
use super::console;
use super::exit::Exit;

/// The state of one backend of the table.
struct Finding {
    kind: &'static str,
    name: String,
    /// `None` if it is not compiled in.
    health: Option<Health>,
}

pub(crate) fn run(args: &ListArgs) -> anyhow::Result<Exit> {
    let mut findings = Findings(Vec::new());
    visit_all(&mut findings);
    let Findings(findings) = findings;
    let mut out = console::stdout();
    if args.json {
        let findings: Vec<Value> = findings.iter().map(Finding::json).collect();
        writeln!(out, "{}", json!({ "machine": machine(), "backends": findings }))?;
    } else {
        print(&mut out, &findings)?;
    }
    let is_broken = findings.iter().any(|finding| finding.problem().is_some());
    Ok(if is_broken { Exit::Fault } else { Exit::Complete })
}

struct Findings(Vec<Finding>);

impl Visit for Findings {
    fn visit<B: Backend>(&mut self, registry: &Registry<B>) {
        self.0.extend(registry.known().iter().map(|name| {
            let health = registry.get(name).ok().map(Backend::health);
            Finding { kind: registry.kind(), name: (*name).to_owned(), health }
        }));
    }
}

impl Finding {
    fn problem(&self) -> Option<&Problem> {
        self.health.as_ref()?.problem.as_ref()
    }

    /// Names the library that it computes with; `-` if unknown.
    fn library(&self) -> String {
        match &self.health {
            None => "-".to_owned(),
            Some(Health { library: Some(library), .. }) => library.clone(),
            Some(Health { problem: Some(_), .. }) => "not found".to_owned(),
            Some(_) => "none needed".to_owned(),
        }
    }

    fn devices(&self) -> String {
        self.health.as_ref().map_or_else(String::new, |health| health.devices.join(", "))
    }

    /// Returns the remedy, or `None` if none is needed.
    fn remedy(&self) -> Option<String> {
        match &self.health {
            // Brokers and stores run elsewhere, and containers are read in Rust: this machine needs no setup for them.
            None if ["queue", "store", "container"].contains(&self.kind) => {
                Some(format!("rebuild with `-F {}`", self.name))
            }
            None => Some(format!("`cargo xtask setup --only {0}`, then rebuild with `-F {0}`", self.name)),
            Some(_) => self.problem().map(|problem| problem.remedy.clone()),
        }
    }

    fn state(&self) -> &'static str {
        match (&self.health, self.problem()) {
            (None, _) => "not compiled",
            (_, None) => "ok",
            (_, Some(_)) => "broken",
        }
    }

    fn json(&self) -> Value {
        json!({
            "kind": self.kind,
            "name": self.name,
            "compiled": self.health.is_some(),
            "state": self.state(),
            "library": self.health.as_ref().and_then(|health| health.library.clone()),
            "devices": self.health.as_ref().map(|health| health.devices.clone()).unwrap_or_default(),
            "cause": self.problem().map(|problem| problem.cause.clone()),
            "remedy": self.remedy(),
        })
    }
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {}-{}, {cores} cores", rig::processor(), std::env::consts::ARCH, std::env::consts::OS)
}

fn print(out: &mut impl Write, findings: &[Finding]) -> std::io::Result<()> {
    writeln!(out, "foveate {} on {}\n", foveate::VERSION, machine())?;
    let mut rows = vec![["kind", "name", "state", "device", "library"].map(str::to_owned)];
    for f in findings {
        rows.push([f.kind.to_owned(), f.name.clone(), f.state().to_owned(), f.devices(), f.library()]);
    }
    let [a, b, c, d] = [0, 1, 2, 3].map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
    for [kind, name, state, device, library] in &rows {
        writeln!(out, "{kind:<a$}  {name:<b$}  {state:<c$}  {device:<d$}  {library}")?;
    }
    for finding in findings.iter().filter(|finding| finding.problem().is_some()) {
        let cause = finding.problem().map_or("", |problem| &problem.cause);
        writeln!(out, "\n{} {}: {cause}", finding.kind, finding.name)?;
        writeln!(out, "  remedy: {}", finding.remedy().unwrap_or_default())?;
    }
    let mut missing: Vec<&str> = findings.iter().filter(|f| f.health.is_none()).map(|f| f.name.as_str()).collect();
    missing.sort_unstable();
    missing.dedup();
    if !missing.is_empty() {
        let names = missing.join(",");
        writeln!(out, "\nnot compiled: `cargo xtask setup --only {names}`, then rebuild with `-F {names}`")?;
    }
    Ok(())
}
