//! `cargo xtask tidy`: the rules that protect the architecture, each a small function over the [`Tree`].

use std::path::Path;

use anyhow::{Result, bail};

use crate::figures;
use crate::rules::{TidyFinding, ceilings, circles, layers, locks, manifests, sources, texts};
use crate::tree::Tree;

type Rule = fn(&Tree) -> Vec<TidyFinding>;

/// Every rule by name, in the order of the report.
pub(crate) const RULES: &[(&str, Rule)] = &[
    ("crate-map", layers::crate_map),
    ("backend-features", layers::backend_features),
    ("backend-table", layers::backend_table),
    ("third-party", layers::third_party),
    ("import-circles", circles::import_circles),
    ("ceilings", ceilings::ceilings),
    ("foreign-types", sources::foreign_types),
    ("unsafe-code", sources::unsafe_code),
    ("unfinished", sources::unfinished),
    ("crate-docs", sources::crate_docs),
    ("silent-passes", sources::silent_passes),
    ("folder-name", manifests::folder_name),
    ("inheritance", manifests::inheritance),
    ("workspace-versions", manifests::workspace_versions),
    ("default-members", manifests::default_members),
    ("figures", figures::check),
    ("measured-files", figures::unlisted),
    ("changelog", texts::changelog),
    ("machine-paths", texts::machine_paths),
    ("cargo-config", texts::cargo_config),
    ("feature-table", texts::feature_table),
    ("width", texts::width),
    ("commit-subjects", texts::commit_subjects),
];

#[derive(clap::Args)]
pub(crate) struct TidyArgs {
    /// First lower the ceilings of crates that have shrunk (xtask/ceilings.toml); raises none
    #[arg(long)]
    lower: bool,
}

pub(crate) fn run_with(root: &Path, args: &TidyArgs) -> Result<()> {
    if args.lower {
        ceilings::lower(root, &Tree::load(root)?)?;
    }
    run(root)
}

/// Checks the workspace at `root`; fails if any rule is violated.
pub(crate) fn run(root: &Path) -> Result<()> {
    run_except(root, "")
}

/// Checks all rules but one.
pub(crate) fn run_except(root: &Path, left_out: &str) -> Result<()> {
    let tree = Tree::load(root)?;
    let rules = RULES.iter().filter(|(name, _)| *name != left_out);
    let mut findings: Vec<(&str, Vec<TidyFinding>)> = rules.map(|(name, rule)| (*name, rule(&tree))).collect();
    findings.push(("lock-files", locks::stale(root)?));
    let mut broken = 0;
    for (name, findings) in &findings {
        broken += findings.len();
        findings.iter().for_each(|finding| println!("{}: [{name}] {}", finding.at, finding.message));
    }
    if broken > 0 {
        bail!("tidy: {broken} finding(s)");
    }
    println!("tidy: {} rules hold for {} packages and {} files", findings.len(), tree.packages.len(), tree.files.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::fake;

    #[test]
    fn a_well_kept_workspace_has_no_findings() {
        for (name, rule) in RULES {
            let findings = rule(&fake::tree());
            assert!(findings.is_empty(), "{name}: {findings:?}");
        }
    }

    #[test]
    fn this_workspace_is_tidy() {
        run(&crate::cargo::root()).unwrap();
    }
}
