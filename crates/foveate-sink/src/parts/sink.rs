//! [`PartSink`] and [`FileParts`]: the two ways to make parts.

use std::path::PathBuf;

use super::PartFormat;
use super::run::OpenRun;
use super::taken::{Phase, StepProbe};
use crate::checks;
use crate::place::MOST_OBJECT;
use crate::{
    Existing, Failure, InputRecord, Layout, ManifestPart, OutputManifest, Published, Rows, RunManifest, SinkError,
    SinkOptions, VectorSink, Watermark,
};

/// A crash-safe [`VectorSink`] that stores parts of format `F`, in files or below a prefix of an object store.
///
/// After any error but [`SinkError::Misuse`] the sink accepts no more calls; drop it and begin again with a new one.
///
/// In a store, several writers of the same job do no harm: an object is created once, and must have the bytes that
/// every other writer has for it. There a run continues after its last complete part, on any machine.
pub struct PartSink<F> {
    options: SinkOptions,
    format: F,
    phase: Phase<OpenRun>,
    steps: StepProbe,
}

/// Opens the sink for `options`.
pub fn open<F: PartFormat + 'static>(options: &SinkOptions, format: F) -> Box<dyn VectorSink> {
    Box::new(PartSink::new(options.clone(), format))
}

impl<F: PartFormat> PartSink<F> {
    /// A sink for `options`; writes nothing and makes no request before `begin`.
    pub fn new(options: SinkOptions, format: F) -> Self {
        let layout = if options.prefix.is_some() { Layout::Folder } else { options.layout };
        Self { options: SinkOptions { layout, ..options }, format, phase: Phase::New, steps: StepProbe::default() }
    }

    /// Calls `probe` before every step that changes the disk, so that a test can see the state after a crash there.
    #[cfg(feature = "conformance")]
    #[must_use]
    pub fn with_probe(mut self, probe: crate::conformance::Probe) -> Self {
        self.steps = StepProbe::seen_by(probe);
        self
    }

    /// The caller's settings plus the options that must not change within a run.
    fn settings(&self, manifest: &RunManifest) -> RunManifest {
        let mut settings = checks::settings(&self.options, self.format.name(), manifest);
        if self.options.layout == Layout::Folder {
            settings.fingerprint.insert(RunManifest::PART_ITEMS.to_owned(), self.options.part_items.to_string());
        }
        settings
    }

    /// A part is one request.
    fn check_part_size(&self, dim: usize) -> Result<(), SinkError> {
        let row = (dim * self.options.element.bytes()) as u64;
        if self.options.prefix.is_none() || self.options.part_items.saturating_mul(row) <= MOST_OBJECT {
            return Ok(());
        }
        let most = MOST_OBJECT / row;
        Err(SinkError::Unsupported(format!(
            "parts of {} items in an object store, where a part is sent in one request; {most} items are the most",
            self.options.part_items
        )))
    }

    /// Runs one call on the open run; an error that may have left files half-written ends the run.
    fn on_run<T>(
        &mut self,
        call: &str,
        act: impl FnOnce(&mut OpenRun, &mut F) -> Result<T, SinkError>,
    ) -> Result<T, SinkError> {
        let mut run = self.phase.take(call)?;
        let result = act(&mut run, &mut self.format);
        self.phase.put_back(run, result)
    }
}

impl<F: PartFormat> VectorSink for PartSink<F> {
    fn begin(&mut self, manifest: &RunManifest, existing: Existing) -> Result<Watermark, SinkError> {
        self.phase.check_new()?;
        checks::check(&self.options, manifest)?;
        self.format.check_columns(&self.options)?;
        self.check_part_size(manifest.dim)?;
        let mut run = OpenRun::begin(&self.options, self.settings(manifest), existing, self.steps.clone())?;
        // A crash may have happened between a commit and the sealing of the parts that it completed.
        run.seal_complete(&mut self.format)?;
        let watermark = run.watermark;
        self.phase = Phase::Open(Box::new(run));
        Ok(watermark)
    }

    fn failures(&mut self) -> Result<u64, SinkError> {
        self.on_run("failures", |run, _| Ok(run.failed))
    }

    fn append(&mut self, rows: &Rows<'_>) -> Result<(), SinkError> {
        self.on_run("append", |run, _| run.take_rows(rows))
    }

    fn fail(&mut self, failures: &[Failure]) -> Result<(), SinkError> {
        self.on_run("fail", |run, _| run.take_failures(failures))
    }

    fn record(&mut self, inputs: &[InputRecord]) -> Result<(), SinkError> {
        self.on_run("record", |run, _| run.take_inputs(inputs))
    }

    fn adopt(&mut self, part: &ManifestPart, is_later: bool) -> Result<(), SinkError> {
        self.on_run("adopt", |run, format| run.adopt(part, is_later, format))
    }

    fn commit(&mut self, watermark: Watermark) -> Result<(), SinkError> {
        self.on_run("commit", |run, format| match run.adopting {
            Some(_) => run.commit_adopted(watermark),
            None => run.commit(watermark, format),
        })
    }

    fn finish(&mut self) -> Result<Published, SinkError> {
        let is_empty_wanted = self.options.publish_empty;
        let published = self.on_run("finish", |run, format| {
            run.taken.check_finish()?;
            run.taken.close();
            run.seal_rest(format)?;
            // A run without items is complete with one empty part.
            if !run.has_parts() && (run.failed == 0 || is_empty_wanted) {
                run.seal(run.origin().1, format)?;
            }
            Ok(run.finish()?.0)
        })?;
        let leftover = self.phase.take("finish")?.remove_work();
        self.phase = Phase::Done;
        Ok(Published { leftover, ..published })
    }
}

impl<F: PartFormat> std::fmt::Debug for PartSink<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartSink").field("format", &self.format.name()).field("options", &self.options).finish()
    }
}

/// Parts that the caller writes, one file each: shards of images. Of as many items as the caller likes, so that a job
/// continues after its last complete one.
///
/// After any error it accepts no more calls.
pub struct FileParts {
    run: OpenRun,
    extension: String,
}

impl FileParts {
    /// Begins or continues the output in a folder, whose files end in `.extension`. `settings` are all that decides
    /// their bytes. Returns also where the caller continues.
    ///
    /// # Errors
    /// Those of [`VectorSink::begin`].
    pub fn begin(
        options: &SinkOptions,
        settings: RunManifest,
        existing: Existing,
        extension: &str,
    ) -> Result<(Self, Watermark), SinkError> {
        checks::check_place(options)?;
        let run = OpenRun::begin(options, settings, existing, StepProbe::default())?;
        let watermark = run.watermark;
        Ok((Self { run, extension: extension.to_owned() }, watermark))
    }

    /// The path of the next part, which replaces a file that is there.
    pub fn next_file(&self) -> PathBuf {
        self.run.next_file(&self.extension)
    }

    /// Records failed items, in source order. They are durable with the next part.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn fail(&mut self, failure: &Failure) -> Result<(), SinkError> {
        self.run.take_failures(std::slice::from_ref(failure))
    }

    /// Makes a part of the file at [`Self::next_file`], which has `members`, and of the failures since; `None` for
    /// these alone, after which no other part follows. All items below the watermark are durable then.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn seal(&mut self, members: Option<u64>, watermark: Watermark) -> Result<(), SinkError> {
        self.run.seal_file(members.map(|members| (self.extension.as_str(), members)), watermark)
    }

    /// Adds a fact to the manifest that is known at the end.
    pub fn note(&mut self, name: &str, value: String) {
        self.run.claim.settings.info.insert(name.to_owned(), value);
    }

    /// Publishes the complete output. Returns its manifest, and why something is left of the work in progress; see
    /// [`Published::leftover`].
    ///
    /// # Errors
    /// If it cannot be put in place.
    pub fn finish(mut self) -> Result<(OutputManifest, Option<String>), SinkError> {
        let (_, manifest) = self.run.finish()?;
        let manifest = manifest.ok_or_else(|| SinkError::Misuse("parts of files are not packed".to_owned()))?;
        Ok((manifest, self.run.remove_work()))
    }
}
