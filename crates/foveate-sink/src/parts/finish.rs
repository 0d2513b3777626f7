//! A run's end: the files for its commit, and the remains of its work afterwards.

use std::collections::BTreeSet;
use std::fs::{self, File};

use foveate_core::error_chain;

use super::frame::FrameKind;
use super::run::{LocalWork, OpenRun};
use super::segment::Segment;
use crate::commit::{CommitPlan, PLAN, PlannedMove, clear_work};
use crate::inputs::INPUTS_HEADER;
use crate::names::{FAILURES, INPUTS};
use crate::place::SinkPlace;
use crate::publish::parent_of;
use crate::restored::write_lines;
use crate::site::{checked_json, name_of};
use crate::{Layout, ManifestFile, ManifestPart, OutputManifest, Published, SinkError, sync_folder};

/// The manifest in the work in progress.
const STAGED_MANIFEST: &str = "manifest.json";

impl OpenRun {
    fn rows(&self) -> u64 {
        self.sealed.iter().filter_map(|segment| segment.end.sealed.as_ref()).map(|part| part.rows).sum()
    }

    /// True if there is anything to publish other than failures.
    pub(super) fn has_parts(&self) -> bool {
        self.sealed.iter().any(has_files)
    }

    /// Puts the complete output in place. All parts are sealed by now.
    pub(super) fn finish(&mut self) -> Result<(Published, Option<OutputManifest>), SinkError> {
        self.upload.settle()?;
        let plan = self.plan()?;
        self.steps.step("write plan");
        self.site.work.replace(PLAN, checked_json(&plan))?;
        plan.follow(&self.site, &mut |step| self.steps.step(step))?;
        let mut names: Vec<&String> = plan.moves.iter().rev().map(|step| &step.to).collect();
        if let (Layout::Folder, Some(manifest)) = (self.site.layout, &plan.manifest) {
            // All parts, those that stay included, and then the records.
            names.retain(|name| !self.site.names.is_part(name));
            let parts = manifest.parts.iter().flat_map(|part| &part.files).map(|file| &file.name);
            names = parts.chain(names).collect();
        }
        let files = names.into_iter().map(|name| self.site.output.path(name)).collect();
        Ok((Published { files, rows: self.rows(), failures: self.failed, leftover: None }, plan.manifest))
    }

    /// Prepares all files that do not have their final name yet, and says how they get it.
    fn plan(&mut self) -> Result<CommitPlan, SinkError> {
        self.steps.step("write records");
        let base = self.site.manifest()?;
        if base.as_ref().map(OutputManifest::digest) != self.claim.base && self.claim.base.is_some() {
            return Err(SinkError::Replaced(self.options.output.clone()));
        }
        let failures = self.write_record(FAILURES, FrameKind::Failures)?;
        let inputs = self.write_record(INPUTS, FrameKind::Inputs)?;
        let mut moves = vec![planned(FAILURES, &failures.name)];
        let mut manifest = None;
        if self.has_parts() || self.options.packed {
            let mut records = vec![failures];
            if inputs.bytes > INPUTS_HEADER.len() as u64 {
                moves.push(planned(INPUTS, &inputs.name));
                records.insert(0, inputs);
            }
            let written = self.output_manifest(records);
            // A store's is written from the plan, by a request with a condition.
            if let SinkPlace::Folder(_) = self.site.work {
                self.steps.step("write manifest");
                self.site.work.replace(STAGED_MANIFEST, written.to_json().into_bytes().into())?;
            }
            moves.extend(self.main_moves(&written));
            manifest = Some(written);
        }
        let mut remove: BTreeSet<String> =
            base.iter().flat_map(|base| base.files()).map(|file| file.name.clone()).collect();
        if base.is_some() {
            remove.insert(self.site.manifest_name());
        }
        for kept in manifest.iter().flat_map(OutputManifest::files).map(|file| &file.name) {
            remove.remove(kept);
        }
        for PlannedMove { to, .. } in &moves {
            remove.remove(to);
        }
        Ok(CommitPlan { base: self.claim.base.clone(), moves, manifest, remove })
    }

    /// The moves of vectors and manifest. The last one makes the output complete.
    fn main_moves(&self, manifest: &OutputManifest) -> Vec<PlannedMove> {
        let last = planned(STAGED_MANIFEST, &name_of(&self.site.names.current().manifest()));
        let files = manifest.parts.iter().flat_map(|part| &part.files).map(|file| &file.name);
        if self.site.layout == Layout::File {
            let sealed = self.sealed.iter().filter_map(|segment| segment.end.sealed.as_ref());
            let written = sealed.flat_map(|part| &part.files).map(|file| &file.name);
            // The main file is first there, and last here.
            let mut moves: Vec<_> = written.zip(files).map(|(from, to)| planned(from, to)).chain([last]).collect();
            moves.reverse();
            return moves;
        }
        let mut moves = self.adopted.clone();
        if let SinkPlace::Folder(folder) = &self.site.work {
            moves.extend(files.filter(|name| folder.join(name).exists()).map(|name| planned(name, name)));
        }
        moves.push(last);
        moves
    }

    /// Writes a record of the whole output to the work in progress.
    fn write_record(&self, name: &str, kind: FrameKind) -> Result<ManifestFile, SinkError> {
        let path = self.local.folder().join(name);
        let file = File::create(&path).map_err(SinkError::io("create", &path))?;
        let (bytes, hash) = write_lines(&file, &path, kind, self.sealed.iter())?;
        file.sync_all().map_err(SinkError::io("sync", &path))?;
        if let SinkPlace::Objects { .. } = self.site.work {
            let content = fs::read(&path).map_err(SinkError::io("read", &path))?;
            self.site.work.replace(name, content.into())?;
        }
        let name = name_of(&self.site.names.current().beside(name));
        Ok(ManifestFile { name, bytes, xxh3: format!("{hash:016x}") })
    }

    fn output_manifest(&self, records: Vec<ManifestFile>) -> OutputManifest {
        let sealed = self.sealed.iter().filter(|segment| has_files(segment));
        let mut parts: Vec<ManifestPart> = sealed.filter_map(|segment| segment.end.sealed.clone()).collect();
        if self.site.layout == Layout::File {
            parts.truncate(1);
            parts.iter_mut().for_each(|part| self.name_as_file(part));
        }
        OutputManifest {
            complete: true,
            rows: self.rows(),
            failures: self.failed,
            watermark: self.watermark.index,
            parts,
            records,
            ..OutputManifest::begun(self.claim.settings.clone())
        }
    }

    /// Gives the files of a single file's only part the names that they get.
    fn name_as_file(&self, part: &mut ManifestPart) {
        part.part = 0;
        let Some(was) = part.files.first().map(|file| file.name.clone()) else { return };
        let main = self.site.main_name();
        for file in &mut part.files {
            // Sidecars have its name and their own.
            file.name = format!("{main}{}", file.name.strip_prefix(&was).unwrap_or_default());
        }
    }

    /// Removes the work in progress, every file of it closed. The output is complete by now, so an error is a note.
    pub(super) fn remove_work(self) -> Option<String> {
        self.steps.step("remove staging folder");
        let Self { site, local, open, upload, .. } = self;
        drop((open, upload));
        let removed = match local {
            LocalWork::Locked(staging) => staging.remove().and_then(|()| sync_folder(parent_of(&site.names.main()))),
            LocalWork::Temporary(folder) => clear_work(&site).and_then(|()| {
                let path = folder.path().to_owned();
                folder.close().map_err(SinkError::io("remove", &path))
            }),
        };
        removed.err().map(|error| error_chain(&error))
    }
}

fn has_files(segment: &Segment) -> bool {
    segment.end.sealed.as_ref().is_some_and(|part| !part.files.is_empty())
}

fn planned(from: &str, to: &str) -> PlannedMove {
    PlannedMove { is_later: false, from: from.to_owned(), to: to.to_owned() }
}
