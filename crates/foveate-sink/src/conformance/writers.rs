//! Properties of several writers of an output, and of a store whose requests go wrong.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::bench::SinkBench;
use super::files::{FileTree, same, snapshot};
use super::sample::{SMALL, SampleRun, USUAL};
use super::store::{FolderPrefix, RequestFault};
use crate::commit::PLAN;
use crate::{Existing, SinkError, SinkOptions};

impl SinkBench<'_> {
    pub(super) fn two_writers_are_one_too_many(&self) {
        let job = SampleRun::new();
        let folder = self.folder("locked");
        let mut first = self.begun(&folder, &job).0;
        for existing in [Existing::Resume, Existing::Refuse, Existing::Overwrite] {
            let result = self.sink(&folder).begin(&job.manifest, existing);
            assert!(matches!(result, Err(SinkError::Locked(_))), "{existing:?}: {result:?}");
        }
        job.take(&mut *first, &job.rounds(0, USUAL)).unwrap();
        let published = first.finish().unwrap();
        self.check(&job, &published, &job.rows());
    }

    /// They make the same objects in either order. Nothing is left of either.
    pub(super) fn two_writers_do_no_harm(&self) {
        let job = SampleRun::new();
        let expected = self.reference("one-writer");
        let as_folder = SinkBench { in_store: false, scratch: self.scratch.join("local"), ..*self };
        same(&as_folder.reference("folder"), &expected, "in a store and in a folder");
        let rounds = job.rounds(0, SMALL);
        for lead in [0, 3, rounds.len()] {
            let folder = self.folder(&format!("two-writers-{lead}"));
            let (mut first, _) = self.begun(&folder, &job);
            job.take(&mut *first, &rounds[..lead]).unwrap();
            let (mut second, index) = self.begun(&folder, &job);
            job.take(&mut *second, &job.rounds(index, USUAL)).unwrap();
            job.take(&mut *first, &rounds[lead..]).unwrap();
            first.finish().unwrap();
            let published = second.finish().unwrap();
            self.check(&job, &published, &job.rows());
            same(&expected, &snapshot(&folder), &format!("{lead} rounds before the second writer"));
        }
    }

    pub(super) fn a_writer_of_other_bytes_is_refused(&self) {
        let job = SampleRun::new();
        let folder = self.folder("other-bytes");
        let mut other = SampleRun::new();
        other.outcomes[0].1 = false;
        let first = self.sink(&folder);
        let (mut second, _) = self.begun(&folder, &other);
        let published = job.finish(first, Existing::Resume, USUAL).unwrap();
        let before = snapshot(&folder);
        let refused = other.take(&mut *second, &other.rounds(0, USUAL));
        let Err(SinkError::Differs(path)) = refused else { panic!("{refused:?}") };
        assert!(path.to_string_lossy().contains("part-00000"), "{}", path.display());
        drop(second);
        same(&before, &snapshot(&folder), "after a refusal");
        self.check(&job, &published, &job.rows());
    }

    /// Each request of a run in turn, alone or, as when the writer dies, with all that follow.
    pub(super) fn any_request_may_go_wrong(&self) {
        for existing in [Existing::Resume, Existing::Overwrite] {
            let (calm, old) = self.finds(existing, "calm");
            SampleRun::new().finish(self.sink(&calm), existing, USUAL).unwrap();
            let expected = snapshot(&calm);
            for fault in [RequestFault::IsTheEnd, RequestFault::LosesItsAnswer, RequestFault::IsRepeated] {
                let mut number = 0;
                while self.goes_wrong(existing, (number, fault), &old, &expected) {
                    number += 1;
                }
            }
        }
    }

    /// Returns false if the run has fewer requests.
    fn goes_wrong(
        &self,
        existing: Existing,
        fault: (usize, RequestFault),
        old: &FileTree,
        expected: &FileTree,
    ) -> bool {
        let at = format!("{:?} of request {} over {existing:?}", fault.1, fault.0);
        let (folder, _) = self.finds(existing, &at);
        let options = self.options(&folder);
        let prefix = Arc::new(FolderPrefix { fault: Some(fault), ..FolderPrefix::new(&options.output) });
        let faulty = SinkOptions { prefix: Some(prefix.clone()), ..options };
        let first = SampleRun::new().finish((self.subject.open)(&faulty), existing, USUAL);
        let is_complete = first.as_ref().is_ok_and(|published| published.leftover.is_none());
        assert!(is_complete || fault.1 != RequestFault::IsRepeated, "{at}: {first:?}");
        // A reader finds the old output, with new parts that its manifest does not name, or the new one, or waits.
        let found = snapshot(&folder);
        let waits = found.keys().any(|path| path.ends_with(PLAN));
        assert!(has_all(&found, old) || has_all(&found, expected) || waits, "{at}: {:?}", found.keys());
        self.repeat(&folder, existing, &at);
        same(expected, &snapshot(&folder), &at);
        prefix.requests.load(Ordering::Relaxed) > fault.0
    }

    /// Another writer replaces the manifest, or creates it, just before this one does.
    pub(super) fn a_commit_that_comes_too_late_is_refused(&self) {
        let name = Path::new("x/_manifest.json");
        let job = SampleRun::new();
        let folder = self.folder("rival");
        self.complete(&folder, &SampleRun::of_model("rival"), USUAL);
        let rival = snapshot(&folder).remove(name);
        for existing in [Existing::Resume, Existing::Overwrite] {
            let (folder, _) = self.finds(existing, "late");
            let options = self.options(&folder);
            let prefix = FolderPrefix { rival: rival.clone(), ..FolderPrefix::new(&options.output) };
            let late = SinkOptions { prefix: Some(Arc::new(prefix)), ..options };
            let refused = job.finish((self.subject.open)(&late), existing, USUAL);
            assert!(matches!(refused, Err(SinkError::Replaced(_))), "{existing:?}: {refused:?}");
            let found = snapshot(&folder);
            assert_eq!(found.get(name), rival.as_ref(), "the first writer's stays");
            assert!(!found.keys().any(|path| path.ends_with(PLAN)), "readers need not wait");
            job.finish(self.sink(&folder), Existing::Overwrite, USUAL).unwrap();
        }
    }
}

/// Returns true if `found` has every file of `tree`.
fn has_all(found: &FileTree, tree: &FileTree) -> bool {
    tree.iter().all(|(name, bytes)| found.get(name) == Some(bytes))
}
