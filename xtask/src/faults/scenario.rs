//! The jobs that are attacked, from `scenarios.toml`.

use anyhow::{Context, Result};
use serde::Deserialize;

/// One command line, and what its output's folder holds before.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AttackedJob {
    pub(super) name: String,
    /// `embed`, or `pack`; a merge is told by what was there before.
    #[serde(default = "embed")]
    pub(super) command: String,
    /// The output, relative to its folder.
    pub(super) output: String,
    /// Arguments beside the inputs and the output.
    #[serde(default)]
    pub(super) args: Vec<String>,
    /// The file that means "complete", relative to the folder.
    #[serde(default)]
    pub(super) main: String,
    #[serde(default)]
    pub(super) before: Before,
}

fn embed() -> String {
    "embed".to_owned()
}

/// Remains of earlier jobs, each given by its output and its arguments.
#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Before {
    #[default]
    Nothing,
    /// A complete output, which the job replaces.
    Replaced(String, Vec<String>),
    /// The output of a job that was killed half-way, which the job replaces.
    Killed(String, Vec<String>),
    /// A complete output of other names, which stays.
    Kept(String, Vec<String>),
    /// A complete output of other inputs, which the job updates.
    Updated(String, Vec<String>),
    /// A complete output, which the job merges into another one.
    Merged(String, Vec<String>),
    /// A complete output, which the job updates. Between the attack and the same command again, more happens.
    Lived(PhotoLife),
}

/// A folder of photos that changes, and what becomes of its output. Each photo is a letter, the file's name, and the
/// number of a photo, or `-` if it cannot be read now. Those of large letters are in a folder of their own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PhotoLife {
    /// First place of the output, if it is copied to the scenario's output.
    pub(super) copied_from: Option<String>,
    /// The photos of the output, of the attacked update, and of the same command again.
    pub(super) photos: [String; 3],
    /// Another job's arguments: it runs before the same command again, or while the attacked update waits.
    pub(super) between: Option<Vec<String>>,
    /// The words with which the last command refuses, and the attacked one unless there is a job in between.
    pub(super) refusal: Option<String>,
    /// The output has the rows of a fresh run of these photos with these arguments.
    pub(super) rows_of: (String, Vec<String>),
}

#[derive(Deserialize)]
struct Scenarios {
    scenario: Vec<AttackedJob>,
}

/// Every scenario, in the order of the report.
pub(super) fn all() -> Result<Vec<AttackedJob>> {
    let Scenarios { mut scenario } = toml::from_str(include_str!("scenarios.toml")).context("scenarios.toml")?;
    for scenario in scenario.iter_mut().filter(|scenario| scenario.main.is_empty()) {
        scenario.main.clone_from(&scenario.output);
    }
    Ok(scenario)
}

impl AttackedJob {
    /// Returns true if the command replaces what it finds.
    pub(super) fn replaces(&self) -> bool {
        matches!(self.before, Before::Replaced(..) | Before::Killed(..))
    }

    /// Returns true if the command needs what it finds. Its rows are others than those of the other scenarios.
    pub(super) fn continues(&self) -> bool {
        matches!(self.before, Before::Updated(..) | Before::Merged(..) | Before::Lived(..))
    }

    /// The words with which the attacked command refuses.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.life().filter(|life| life.between.is_none())?.refusal.as_deref()
    }

    pub(super) fn life(&self) -> Option<&PhotoLife> {
        match &self.before {
            Before::Lived(life) => Some(life),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_scenario_has_its_own_name() {
        let scenarios = super::all().unwrap();
        let names: std::collections::BTreeSet<_> = scenarios.iter().map(|scenario| &scenario.name).collect();
        assert_eq!((names.len(), scenarios.len()), (27, 27));
    }
}
