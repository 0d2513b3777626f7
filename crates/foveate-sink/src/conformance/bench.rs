//! Properties of one writer of an output.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{FileTree, same, snapshot};
use super::sample::{CallSizes, DIM, SampleRun, USUAL};
use super::store::FolderPrefix;
use super::subject::{COLUMNS, PART, Stored, StoredColumns, Subject, options, with_columns};
use crate::{
    Element, Existing, InputRecord, Layout, Published, Rows, RunState, SinkError, SinkOptions, VectorSink, Watermark,
};

pub(super) struct SinkBench<'a> {
    pub(super) subject: &'a Subject<'a>,
    pub(super) layout: Layout,
    pub(super) columns: &'a [&'a str],
    /// The output is in an object store.
    pub(super) in_store: bool,
    pub(super) scratch: PathBuf,
}

impl SinkBench<'_> {
    pub(super) fn folder(&self, name: &str) -> PathBuf {
        let folder = self.scratch.join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    pub(super) fn options(&self, folder: &Path) -> SinkOptions {
        let mut options = with_columns(options(folder, self.subject.extension, self.layout), self.columns);
        if self.in_store {
            options.prefix = Some(Arc::new(FolderPrefix::new(&options.output)));
        }
        options
    }

    /// The item at which a run goes on that has committed the items below `index`.
    fn kept(&self, index: u64) -> u64 {
        if self.in_store { index - index % PART } else { index }
    }

    pub(super) fn job(&self) -> SampleRun {
        SampleRun { columns: self.columns.len(), ..SampleRun::new() }
    }

    pub(super) fn sink(&self, folder: &Path) -> Box<dyn VectorSink> {
        (self.subject.open)(&self.options(folder))
    }

    pub(super) fn begun(&self, folder: &Path, job: &SampleRun) -> (Box<dyn VectorSink>, u64) {
        let mut sink = self.sink(folder);
        let Watermark { index, .. } = sink.begin(&job.manifest, Existing::Resume).unwrap();
        (sink, index)
    }

    pub(super) fn complete(&self, folder: &Path, job: &SampleRun, sizes: CallSizes) -> Published {
        job.finish(self.sink(folder), Existing::Resume, sizes).unwrap()
    }

    /// The bytes of an uninterrupted run.
    pub(super) fn reference(&self, name: &str) -> FileTree {
        let folder = self.folder(name);
        self.complete(&folder, &self.job(), USUAL);
        snapshot(&folder)
    }

    /// A folder with what a run finds there: a shorter output of another job if it overwrites one, or nothing.
    pub(super) fn finds(&self, existing: Existing, name: &str) -> (PathBuf, FileTree) {
        let folder = self.folder(&format!("{name}-{existing:?}"));
        if existing == Existing::Overwrite {
            let mut old = SampleRun { columns: self.columns.len(), ..SampleRun::of_model("old") };
            old.outcomes.truncate(9);
            self.complete(&folder, &old, USUAL);
        }
        let found = snapshot(&folder);
        (folder, found)
    }

    /// Runs the job again after a disturbance, before which it may not have begun to overwrite.
    pub(super) fn repeat(&self, folder: &Path, existing: Existing, at: &str) {
        match self.job().finish(self.sink(folder), Existing::Resume, USUAL) {
            Ok(_) | Err(SinkError::AlreadyComplete(_)) => {}
            Err(SinkError::OtherRun(other)) if existing == Existing::Overwrite && other.state == RunState::Complete => {
                self.job().finish(self.sink(folder), existing, USUAL).unwrap();
            }
            Err(error) => panic!("{at}: {error}"),
        }
    }

    pub(super) fn check(&self, job: &SampleRun, published: &Published, expected: &Stored) {
        assert_eq!(published.rows, expected.len() as u64, "rows");
        assert_eq!(published.failures, job.failures(job.end()), "failures");
        assert!(published.files.iter().all(|file| file.is_file()), "every published file is there");
        assert_eq!(&(self.subject.read)(published), expected);
        job.check_failures(published);
    }

    /// Checks the properties of files and of objects in a store.
    pub(super) fn holds_everywhere(&self) {
        self.halves_round_to_nearest_even();
        self.no_rows_is_a_valid_output();
        self.only_failures_are_no_output();
        self.bytes_do_not_depend_on_calls();
        self.an_interruption_after_any_round_is_made_good();
        self.another_run_is_refused_by_name();
        self.existing_outputs_are_respected();
        self.misuse_is_an_error();
        self.shards_share_a_folder();
        if self.subject.read_columns.is_some() {
            SinkBench { columns: &COLUMNS, scratch: self.scratch.join("columns"), ..*self }.columns_come_back();
        }
    }

    fn halves_round_to_nearest_even(&self) {
        let job = SampleRun::new();
        let options = SinkOptions { element: Element::F16, ..self.options(&self.folder("f16")) };
        let published = job.finish((self.subject.open)(&options), Existing::Resume, USUAL).unwrap();
        let mut expected = job.rows();
        for value in expected.iter_mut().flat_map(|(_, vector)| vector) {
            *value = half::f16::from_f64(f64::from(*value)).to_f32();
        }
        self.check(&job, &published, &expected);
    }

    fn no_rows_is_a_valid_output(&self) {
        let job = SampleRun { outcomes: Vec::new(), ..SampleRun::new() };
        let published = self.complete(&self.folder("empty"), &job, USUAL);
        self.check(&job, &published, &Vec::new());
    }

    fn only_failures_are_no_output(&self) {
        let mut job = SampleRun::new();
        job.outcomes.iter_mut().for_each(|(_, stored)| *stored = false);
        let folder = self.folder("failures");
        let overwritten = self.folder("failures-overwrite");
        self.complete(&overwritten, &SampleRun::new(), USUAL);
        // The second run of the same job starts over.
        let cases = [(&folder, Existing::Resume), (&folder, Existing::Resume), (&overwritten, Existing::Overwrite)];
        for (folder, existing) in cases {
            let published = job.finish(self.sink(folder), existing, USUAL).unwrap();
            assert_eq!((published.rows, published.failures), (0, job.failures(job.end())));
            assert_eq!(published.files.len(), 1, "{:?}", published.files);
            job.check_failures(&published);
            assert_eq!(snapshot(folder).len(), 1, "{:?}", snapshot(folder).keys());
        }
    }

    /// Columns take part in all that concerns rows.
    fn columns_come_back(&self) {
        let job = self.job();
        let published = self.complete(&self.folder("fresh"), &job, USUAL);
        self.check(&job, &published, &job.rows());
        let expected: StoredColumns = job.items(0, job.end(), true).map(|(index, _)| job.values(index)).collect();
        assert!((self.subject.read_columns.unwrap())(&published) == expected, "columns do not come back");
        self.bytes_do_not_depend_on_calls();
        self.an_interruption_after_any_round_is_made_good();
        self.other_columns_are_refused();
    }

    fn other_columns_are_refused(&self) {
        let job = self.job();
        let folder = self.folder("other-columns");
        self.begin_some(&job, &folder);
        let before = snapshot(&folder);
        for (columns, difference) in
            [(&["caption", "b"][..], "caption,a url → caption,b"), (&[], "caption,a url → (none)")]
        {
            let refused = self.refusal(&with_columns(self.options(&folder), columns), "tiny");
            assert!(refused.contains(&format!("sink.columns: {difference}")), "{refused}");
        }
        same(&before, &snapshot(&folder), "after a refusal");
        let (mut sink, index) = self.begun(&folder, &job);
        for columns in [0, 1] {
            let fewer = SampleRun { columns, ..job.clone() }.append(&mut *sink, index, job.end());
            assert!(matches!(fewer, Err(SinkError::Misuse(_))), "{fewer:?}");
        }
    }

    fn bytes_do_not_depend_on_calls(&self) {
        let expected = self.reference("calls");
        for (rows, commit_every) in [(1, 1), (1, 7), (2, 3), (5, 1), (7, 2), (100, 1)] {
            let folder = self.folder(&format!("calls-{rows}-{commit_every}"));
            self.complete(&folder, &self.job(), CallSizes { rows, commit_every });
            same(&expected, &snapshot(&folder), &format!("{rows} per call, {commit_every} calls per commit"));
        }
    }

    fn an_interruption_after_any_round_is_made_good(&self) {
        let expected = self.reference("uninterrupted");
        let job = self.job();
        let sizes = CallSizes { rows: 3, commit_every: 2 };
        let rounds = job.rounds(0, sizes);
        for stop in 0..=rounds.len() {
            let folder = self.folder(&format!("interrupted-{stop}"));
            job.take(&mut *self.begun(&folder, &job).0, &rounds[..stop]).unwrap();
            let committed = rounds[..stop].iter().rev().find(|round| round.commits).map_or(0, |round| round.to);
            let mut sink = self.sink(&folder);
            let found = sink.begin(&job.manifest, Existing::Resume).unwrap();
            assert_eq!(found, job.watermark(self.kept(committed)), "watermark after {stop} rounds");
            assert_eq!(sink.failures().unwrap(), job.failures(found.index), "failures after {stop} rounds");
            drop(sink);
            let published = self.complete(&folder, &job, sizes);
            self.check(&job, &published, &job.rows());
            same(&expected, &snapshot(&folder), &format!("interrupted after {stop} rounds"));
        }
    }

    fn another_run_is_refused_by_name(&self) {
        let folder = self.folder("other");
        self.begin_some(&SampleRun::new(), &folder);
        let before = snapshot(&folder);
        let refused = self.refusal(&self.options(&folder), "large");
        assert!(refused.contains("model: tiny → large") && !refused.contains("recipe"), "{refused}");
        let half = self.refusal(&SinkOptions { element: Element::F16, ..self.options(&folder) }, "tiny");
        assert!(half.contains("f32 → f16"), "{half}");
        same(&before, &snapshot(&folder), "after a refusal");
        // Facts that do not affect the bytes are not compared.
        let mut job = SampleRun::new();
        job.manifest.info.insert("version".into(), "0.2.0".into());
        self.complete(&folder, &job, USUAL);
    }

    /// Returns the reason why a run for this model is refused as one of another job.
    fn refusal(&self, options: &SinkOptions, model: &str) -> String {
        let refused = (self.subject.open)(options).begin(&SampleRun::of_model(model).manifest, Existing::Resume);
        let Err(error @ SinkError::OtherRun(_)) = refused else { panic!("{refused:?}") };
        error.to_string()
    }

    /// Leaves a run that was interrupted between commits.
    fn begin_some(&self, job: &SampleRun, folder: &Path) {
        job.take(&mut *self.begun(folder, job).0, &job.rounds(0, CallSizes { rows: 3, commit_every: 2 })[..3]).unwrap();
    }

    fn existing_outputs_are_respected(&self) {
        let job = SampleRun::new();
        let folder = self.folder("existing");
        let begin = |existing| self.sink(&folder).begin(&job.manifest, existing);
        self.begin_some(&job, &folder);
        assert!(matches!(begin(Existing::Refuse), Err(SinkError::Interrupted(_))));
        assert_eq!(begin(Existing::Overwrite).unwrap(), Watermark::from(0));
        self.complete(&folder, &job, USUAL);
        let complete = snapshot(&folder);
        assert!(matches!(begin(Existing::Refuse), Err(SinkError::Exists(_))));
        let Err(SinkError::AlreadyComplete(done)) = begin(Existing::Resume) else { panic!("it is complete") };
        self.check(&job, &done.published, &job.rows());
        let inputs: Vec<_> = done.inputs.unwrap().read().unwrap().map(Result::unwrap).collect();
        let recorded = job.inputs(0, job.end()).into_iter().map(|input| InputRecord { place: 0, ..input });
        assert_eq!(inputs, recorded.collect::<Vec<_>>());
        let refused = self.refusal(&self.options(&folder), "another");
        assert!(refused.contains("model: tiny → another"), "{refused}");
        same(&complete, &snapshot(&folder), "after a complete output was kept");
        let shorter = SampleRun { outcomes: job.outcomes[..6].to_vec(), ..job.clone() };
        let published = shorter.finish(self.sink(&folder), Existing::Overwrite, USUAL).unwrap();
        self.check(&shorter, &published, &shorter.rows());
        let fresh = self.folder("existing-fresh");
        self.complete(&fresh, &shorter, USUAL);
        if self.in_store {
            // The parts have numbers that those of the old output had not.
            assert_eq!(snapshot(&fresh).len(), snapshot(&folder).len(), "after overwriting");
        } else {
            same(&snapshot(&fresh), &snapshot(&folder), "after overwriting");
        }
    }

    fn misuse_is_an_error(&self) {
        let job = SampleRun::new();
        let folder = self.folder("misuse");
        let mut sink = self.sink(&folder);
        let sink = &mut *sink;
        misuse(job.append(sink, 0, 2), "append before begin");
        misuse(sink.commit(Watermark::from(0)), "commit before begin");
        misuse(sink.finish().map(drop), "finish before begin");
        let mut flat = job.manifest.clone();
        flat.dim = 0;
        misuse(sink.begin(&flat, Existing::Resume).map(drop), "vectors without components");
        sink.begin(&job.manifest, Existing::Resume).unwrap();
        misuse(sink.begin(&job.manifest, Existing::Resume).map(drop), "begin twice");
        job.append(sink, 0, 6).unwrap();
        misuse(job.append(sink, 2, 7), "rows out of order");
        misuse(sink.commit(Watermark::from(3)), "a watermark below rows");
        misuse(sink.finish().map(drop), "finish with rows not committed");
        let id = ["a".to_owned()];
        let fits =
            Rows { index: &[7], id: &id, vectors: &[0.0; DIM], width: &[1], height: &[1], xxh3: &[1], columns: &[] };
        misuse(sink.append(&Rows { vectors: &[0.0], ..fits }), "a vector that is too short");
        misuse(sink.append(&Rows { id: &[], ..fits }), "columns of different length");
        job.fail(sink, 0, 6).unwrap();
        misuse(job.fail(sink, 0, 6), "failures out of order");
        sink.commit(Watermark::from(6)).unwrap();
        misuse(sink.commit(Watermark::from(5)), "a watermark that goes back");
        // None of these calls did any harm.
        job.take(sink, &job.rounds(6, USUAL)).unwrap();
        let published = sink.finish().unwrap();
        self.check(&job, &published, &job.rows());
        misuse(sink.finish().map(drop), "finish twice");
        misuse(job.append(sink, 20, 24), "append after finish");
    }

    fn shards_share_a_folder(&self) {
        let folder = self.folder("shards");
        let whole = SampleRun::new();
        let (start, end) = whole.outcomes.split_at(11);
        let mut stored = Vec::new();
        for (shard, first, outcomes) in [(0, 0, start), (1, 11, end)] {
            let job = SampleRun { first, outcomes: outcomes.to_vec(), ..SampleRun::new() };
            let options = SinkOptions { shard: Some((shard, 2)), first_index: first, ..self.options(&folder) };
            let begun = (self.subject.open)(&options).begin(&job.manifest, Existing::Resume).unwrap();
            assert_eq!(begun, Watermark::from(first));
            let published = job.finish((self.subject.open)(&options), Existing::Resume, USUAL).unwrap();
            self.check(&job, &published, &job.rows());
            stored.extend((self.subject.read)(&published));
            let name = format!("-0000{shard}-of-00002");
            let is_named = published.files.iter().all(|file| file.to_string_lossy().contains(&name));
            assert!(is_named, "{:?}", published.files);
        }
        assert_eq!(stored, whole.rows());
    }
}

/// Checks that a call was refused as misuse.
fn misuse(result: Result<(), SinkError>, what: &str) {
    assert!(matches!(result, Err(SinkError::Misuse(_))), "{what}: {result:?}");
}
