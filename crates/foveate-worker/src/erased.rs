//! Type-erased tasks, and recovery from their failures.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

use foveate_core::catch_panic;

use crate::{Output, Received, Task, TaskError, TaskLane};

/// An image that its task has prepared.
pub(crate) type Prepared = Box<dyn Any + Send>;

/// A file that a task has taken.
pub(crate) enum PreparedOrKnown {
    Prepared(Prepared),
    /// It needs no work.
    Known(Output),
}

/// A task's result for one image.
pub(crate) type Answer = Result<Output, TaskError>;

/// A [`Task`] without the image's type. It never panics.
pub(crate) trait AnyTask: Send + Sync {
    fn takes_texts(&self) -> bool;
    /// [`Task::known`], or else [`Task::prepare`].
    fn prepare_image(&self, received: Received<'_>) -> Result<PreparedOrKnown, TaskError>;
    fn prepare_words(&self, text: &str) -> Result<PreparedOrKnown, TaskError>;
}

impl<T: Task> AnyTask for T {
    fn takes_texts(&self) -> bool {
        Task::takes_texts(self)
    }

    fn prepare_image(&self, received: Received<'_>) -> Result<PreparedOrKnown, TaskError> {
        guarded(|| match self.known(&received) {
            Some(output) => Ok(PreparedOrKnown::Known(output)),
            None => Ok(PreparedOrKnown::Prepared(Box::new(self.prepare(received)?))),
        })
    }

    fn prepare_words(&self, text: &str) -> Result<PreparedOrKnown, TaskError> {
        guarded(|| Ok(PreparedOrKnown::Prepared(Box::new(self.prepare_text(text)?))))
    }
}

/// A [`TaskLane`] without its image type. It neither fails nor panics, and returns one answer per image.
pub(crate) trait AnyLane: Send {
    fn depth(&self) -> usize;
    fn submit(&mut self, batch: Vec<Prepared>);
    /// The answers of the oldest batch; empty without a batch.
    fn collect(&mut self) -> Vec<Answer>;
}

/// Returns one more lane, if there is one.
pub(crate) fn lane(task: &Arc<impl Task>) -> Option<Box<dyn AnyLane>> {
    Some(Box::new(Recovering { lane: Arc::clone(task).lane()?, batches: VecDeque::new() }))
}

/// A lane that survives errors: one bad image must not fail the rest of its batch.
struct Recovering<L: TaskLane> {
    lane: L,
    /// Oldest first.
    batches: VecDeque<RecoverableBatch<L::Prepared>>,
}

/// A batch under way or answered.
struct RecoverableBatch<P> {
    images: Vec<P>,
    /// `None` while it is under way.
    answers: Option<Vec<Answer>>,
}

impl<L: TaskLane> AnyLane for Recovering<L> {
    fn depth(&self) -> usize {
        self.lane.depth().max(1)
    }

    fn submit(&mut self, batch: Vec<Prepared>) {
        let images = batch.into_iter().map(|image| *image.downcast().unwrap_or_else(|_| unreachable!("made by it")));
        let images: Vec<L::Prepared> = images.collect();
        let submitted = guarded(|| self.lane.submit(&images));
        self.batches.push_back(RecoverableBatch { images, answers: None });
        if let Err(error) = submitted {
            self.recover(self.batches.len() - 1, &error);
        }
    }

    fn collect(&mut self) -> Vec<Answer> {
        if let Some(RecoverableBatch { images, answers: none @ None }) = self.batches.front_mut() {
            match collect(&mut self.lane, images.len()) {
                Ok(answers) => *none = Some(answers),
                Err(error) => self.recover(0, &error),
            }
        }
        self.batches.pop_front().and_then(|batch| batch.answers).unwrap_or_default()
    }
}

impl<L: TaskLane> Recovering<L> {
    /// Retries each image of the batches under way alone, after the batch at `failed` failed. If that batch has only
    /// one image, it is not retried.
    fn recover(&mut self, failed: usize, error: &TaskError) {
        let Self { lane, batches } = self;
        lane.abandon();
        for (at, batch) in batches.iter_mut().enumerate().filter(|(_, batch)| batch.answers.is_none()) {
            batch.answers = Some(match batch.images.len() {
                1 if at == failed => vec![Err(error.clone())],
                _ => batch.images.iter().map(|image| alone(lane, image)).collect(),
            });
        }
    }
}

fn alone<L: TaskLane>(lane: &mut L, image: &L::Prepared) -> Answer {
    let submitted = guarded(|| lane.submit(std::slice::from_ref(image)));
    let answers = submitted.and_then(|()| collect(lane, 1)).inspect_err(|_| lane.abandon());
    answers?.pop().unwrap_or_else(|| unreachable!("as many answers as images"))
}

fn collect<L: TaskLane>(lane: &mut L, images: usize) -> Result<Vec<Answer>, TaskError> {
    let answers = guarded(|| lane.collect())?;
    if answers.len() == images {
        return Ok(answers);
    }
    Err(TaskError::image(format!("the task gave {} answers for {images} images", answers.len())))
}

fn guarded<T>(work: impl FnOnce() -> Result<T, TaskError>) -> Result<T, TaskError> {
    catch_panic(work).unwrap_or_else(|message| Err(TaskError::image(format!("the task panicked: {message}"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InTurn;

    fn prepared(bytes: &[u8]) -> Vec<Prepared> {
        bytes.iter().map(|byte| Box::new(*byte) as Prepared).collect()
    }

    fn fine(byte: u8) -> Answer {
        Ok(Output::Json(byte.into()))
    }

    /// Answers each byte; 1 panics, 2 fails, 3 answers nothing.
    fn answer(batch: &[u8]) -> Result<Vec<Output>, TaskError> {
        assert!(!batch.contains(&1), "a one");
        if batch.contains(&2) {
            return Err(TaskError::machine("a two"));
        }
        Ok(batch.iter().filter(|&&byte| byte != 3).map(|&byte| Output::Json(byte.into())).collect())
    }

    fn process(bytes: &[u8]) -> Vec<Answer> {
        let mut lane = Recovering { lane: InTurn::new(answer), batches: VecDeque::new() };
        assert_eq!(lane.depth(), 1);
        lane.submit(prepared(bytes));
        lane.collect()
    }

    #[test]
    fn a_bad_image_fails_alone() {
        assert_eq!(process(&[7, 8]), [fine(7), fine(8)]);
        let answers = process(&[7, 1, 8, 2, 3, 9]);
        assert_eq!([&answers[0], &answers[2], &answers[5]], [&fine(7), &fine(8), &fine(9)]);
        let error = |i: usize| answers[i].clone().unwrap_err();
        assert_eq!((error(1).reason.as_str(), error(1).transient), ("the task panicked: a one", false));
        assert_eq!((error(3).reason.as_str(), error(3).transient), ("a two", true));
        assert_eq!(error(4).reason, "the task gave 0 answers for 1 images");
    }

    /// Three batches at once; failures appear when they are collected.
    impl TaskLane for VecDeque<Vec<u8>> {
        type Prepared = u8;

        fn depth(&self) -> usize {
            3
        }

        fn submit(&mut self, batch: &[u8]) -> Result<(), TaskError> {
            assert!(self.len() < 3, "no room");
            self.push_back(batch.to_vec());
            Ok(())
        }

        fn collect(&mut self) -> Result<Vec<Answer>, TaskError> {
            let batch = self.pop_front().ok_or_else(|| TaskError::machine("none under way"))?;
            Ok(answer(&batch)?.into_iter().map(Ok).collect())
        }

        fn abandon(&mut self) {
            self.clear();
        }
    }

    #[test]
    fn batches_that_are_lost_with_a_bad_one_are_answered_all_the_same() {
        let mut lane = Recovering { lane: VecDeque::new(), batches: VecDeque::new() };
        for batch in [&[4, 5][..], &[6, 1], &[7]] {
            lane.submit(prepared(batch));
        }
        assert_eq!(lane.collect(), [fine(4), fine(5)]);
        let second = lane.collect();
        assert_eq!(second[0], fine(6));
        assert_eq!(second[1].clone().unwrap_err().reason, "the task panicked: a one");
        lane.submit(prepared(&[8, 9]));
        assert_eq!([lane.collect(), lane.collect(), lane.collect()], [vec![fine(7)], vec![fine(8), fine(9)], vec![]]);
    }
}
