//! The commit of an output: everything is ready in the work in progress, and a plan says how to put it in place.
//!
//! The plan is one file, written at once. From then on every writer of the output follows it to its end before anything
//! else, and every reader refuses the output. So what a reader sees is the old output or the new one. Nothing that the
//! old manifest names is removed before the new one is in place.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::manifest::is_plain_name;
use crate::names::STAGING;
use crate::place::SinkPlace;
use crate::site::{CLAIM, Claim, RunSite, checked_json, name_of, parse_checked};
use crate::{Layout, OutputManifest, SinkError};

/// The file of the work in progress with the plan.
pub(crate) const PLAN: &str = "commit";
/// The file that this process has locked.
pub(crate) const LOCK: &str = "lock";
/// The run whose parts an update takes, in the folder of the work in progress.
pub(crate) const LATER: &str = "later";

/// The steps that remain once everything is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommitPlan {
    /// Digest of the output that is replaced.
    pub(crate) base: Option<String>,
    /// Files in the work in progress, and their names in the output, in order. The last one means "complete".
    pub(crate) moves: Vec<PlannedMove>,
    /// `None` if no input gave a row: then the failures are all there is.
    pub(crate) manifest: Option<OutputManifest>,
    /// Names of files of the replaced output that the new one does not have.
    pub(crate) remove: BTreeSet<String>,
}

/// One file that gets its name in the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlannedMove {
    /// True if the file is in [`LATER`].
    pub(crate) is_later: bool,
    pub(crate) from: String,
    pub(crate) to: String,
}

impl CommitPlan {
    /// Parses a plan of any output.
    pub(crate) fn of_any(bytes: &[u8]) -> Result<Self, String> {
        let plan: Self = parse_checked(bytes)?;
        if let Some(manifest) = &plan.manifest {
            manifest.check_names()?;
        }
        match plan.moves.iter().find(|step| !is_plain_name(&step.from)) {
            Some(step) => Err(format!("it moves {:?}, which is no plain file name", step.from)),
            None => Ok(plan),
        }
    }

    /// Parses a plan, which may be a stranger's: it touches files of this run's output alone.
    fn parse(site: &RunSite, bytes: &[u8]) -> Result<Self, String> {
        let plan = Self::of_any(bytes)?;
        let names = plan.moves.iter().map(|step| &step.to).chain(&plan.remove);
        match names.into_iter().find(|name| !site.names.owns(name)) {
            Some(name) => Err(format!("it changes {name:?}, which is no file of this output")),
            None => Ok(plan),
        }
    }

    /// Puts everything in place. May run again after having been interrupted anywhere.
    ///
    /// # Errors
    /// [`SinkError::Replaced`] if another writer has replaced the output in a store, which has no locks.
    pub(crate) fn follow(&self, site: &RunSite, step: &mut dyn FnMut(&'static str)) -> Result<(), SinkError> {
        let manifest = name_of(&site.names.current().manifest());
        let later = later(site);
        let is_store = matches!(site.output, SinkPlace::Objects { .. });
        let found = if is_store { self.replaced(site, &manifest)? } else { None };
        for PlannedMove { is_later, from, to } in &self.moves {
            step("put in place");
            if let Some(written) = self.manifest.as_ref().filter(|_| is_store && *to == manifest) {
                let moved = site.output.exchange(to, found.as_deref(), written.to_json().into());
                match moved {
                    Err(SinkError::Differs(_)) => return Err(self.lost(site)?),
                    moved => moved?,
                }
                continue;
            }
            site.output.move_from(if *is_later { &later } else { &site.work }, from, to)?;
        }
        for name in &self.remove {
            step("remove old file");
            site.output.remove(name)?;
        }
        site.output.sync()
    }

    /// Reads the manifest of this name that the plan replaces, or has replaced; `None` if there is none.
    fn replaced(&self, site: &RunSite, name: &str) -> Result<Option<Vec<u8>>, SinkError> {
        let found = site.output.read(name)?;
        let digest = match &found {
            Some(json) => {
                let parsed = OutputManifest::parse(json);
                Some(parsed.map_err(|reason| SinkError::damaged(&site.output.path(name), reason))?.digest())
            }
            // That of an earlier version has another name.
            None => site.manifest()?.map(|manifest| manifest.digest()),
        };
        if digest == self.base || digest == self.manifest.as_ref().map(OutputManifest::digest) {
            return Ok(found);
        }
        Err(self.lost(site)?)
    }

    /// The error of a plan that came too late. Removes the plan, because readers wait for its end.
    fn lost(&self, site: &RunSite) -> Result<SinkError, SinkError> {
        if site.work.read(PLAN)?.as_deref() == Some(&checked_json(self)[..]) {
            site.work.remove(PLAN)?;
        }
        Ok(SinkError::Replaced(site.output.path("")))
    }
}

/// The place of an update's later run.
pub(crate) fn later(site: &RunSite) -> SinkPlace {
    update_work(site).below(LATER)
}

/// The place of an update's work in progress.
pub(crate) fn update_work(site: &RunSite) -> SinkPlace {
    match (&site.work, site.layout) {
        (SinkPlace::Folder(folder), Layout::File) => SinkPlace::Folder(folder.with_extension("update")),
        _ => site.output.below(&format!("{STAGING}/update")),
    }
}

/// Ends the commit of a run that was interrupted at that. Removes the work in progress of an update, which starts over,
/// and what a power failure brought back of a run that has ended.
pub(crate) fn end_commit(site: &RunSite, step: &mut dyn FnMut(&'static str)) -> Result<(), SinkError> {
    let plan = site.work.parse(PLAN, |json| CommitPlan::parse(site, json))?;
    let found = site.manifest()?.map(|manifest| manifest.digest());
    if let Some(plan) = plan {
        // Otherwise another run has replaced the output since.
        if found == plan.base || found == plan.manifest.as_ref().map(OutputManifest::digest) {
            plan.follow(site, step)?;
        }
    } else {
        // In a store, another writer may be at work. A damaged claim is for the run that reads it next.
        let is_folder = matches!(site.work, SinkPlace::Folder(_));
        let claim = if is_folder { site.work.parse(CLAIM, Claim::parse).ok().flatten() } else { None };
        if claim.is_none_or(|claim| claim.can_continue && (found.is_none() || claim.base == found)) {
            return Ok(());
        }
    }
    step("remove work in progress");
    clear_work(site)
}

/// Removes a finished run's work in progress: the claim first, and last the plan, which another writer would follow. A
/// folder's lock stays.
pub(crate) fn clear_work(site: &RunSite) -> Result<(), SinkError> {
    site.work.remove(CLAIM)?;
    for name in site.work.list()?.into_keys().filter(|name| name != PLAN && name != LOCK) {
        site.work.remove(&name)?;
    }
    if let SinkPlace::Objects { .. } = site.work {
        let later = later(site);
        for name in later.list()?.into_keys() {
            later.remove(&name)?;
        }
    }
    site.work.remove(PLAN)?;
    site.work.sync()
}

/// Refuses to read an output while it is put in place, or when that was interrupted.
pub(crate) fn check_in_place(site: &RunSite, output: &Path) -> Result<(), SinkError> {
    // A run at work needs a moment for its renames.
    for _ in 0..10 {
        if site.work.read(PLAN)?.is_none() {
            return Ok(());
        }
        sleep(Duration::from_millis(100));
    }
    Err(SinkError::Updating(output.to_owned()))
}
