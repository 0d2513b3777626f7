//! Tasks of any kind behind one type, and what is done when one of them fails.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use foveate_core::panic_message;

use crate::{Output, Picture, Task, TaskError};

/// An image that is ready for the task that made it so.
pub(crate) type Prepared = Box<dyn Any + Send>;

/// A [`Task`] whose images are of no particular type. It never panics, and answers for each image.
pub(crate) trait AnyTask: Send + Sync {
    fn prepare(&self, picture: &Picture<'_>) -> Result<Prepared, TaskError>;
    fn process(&self, batch: Vec<Prepared>) -> Vec<Result<Output, TaskError>>;
}

impl<T: Task> AnyTask for T {
    fn prepare(&self, picture: &Picture<'_>) -> Result<Prepared, TaskError> {
        let prepared = catch_unwind(AssertUnwindSafe(|| self.preprocess(picture)));
        let prepared = prepared.unwrap_or_else(|panic| {
            Err(TaskError::image(format!("the task panicked: {}", panic_message(panic.as_ref()))))
        })?;
        Ok(Box::new(prepared))
    }

    fn process(&self, batch: Vec<Prepared>) -> Vec<Result<Output, TaskError>> {
        let typed = |image: Prepared| *image.downcast::<T::Prepared>().unwrap_or_else(|_| unreachable!("made by it"));
        let batch: Vec<T::Prepared> = batch.into_iter().map(typed).collect();
        match whole(self, &batch) {
            Ok(outputs) => outputs.into_iter().map(Ok).collect(),
            Err(error) if batch.len() == 1 => vec![Err(error)],
            // One bad image must not take its neighbours with it.
            Err(_) => batch.iter().map(|image| alone(self, image)).collect(),
        }
    }
}

fn alone<T: Task>(task: &T, image: &T::Prepared) -> Result<Output, TaskError> {
    let mut outputs = whole(task, std::slice::from_ref(image))?;
    outputs.pop().ok_or_else(|| unreachable!("as many answers as images"))
}

fn whole<T: Task>(task: &T, batch: &[T::Prepared]) -> Result<Vec<Output>, TaskError> {
    let outputs = catch_unwind(AssertUnwindSafe(|| task.process(batch))).unwrap_or_else(|panic| {
        Err(TaskError::image(format!("the task panicked: {}", panic_message(panic.as_ref()))))
    })?;
    if outputs.len() == batch.len() {
        return Ok(outputs);
    }
    Err(TaskError::image(format!("the task gave {} answers for {} images", outputs.len(), batch.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says the first byte; 1 panics, 2 fails, 3 answers nothing.
    struct First;

    impl Task for First {
        type Prepared = u8;

        fn preprocess(&self, picture: &Picture<'_>) -> Result<u8, TaskError> {
            picture.bytes.first().copied().ok_or_else(|| TaskError::image("empty").at("decode"))
        }

        fn process(&self, batch: &[u8]) -> Result<Vec<Output>, TaskError> {
            assert!(!batch.contains(&1), "a one");
            if batch.contains(&2) {
                return Err(TaskError::machine("a two"));
            }
            Ok(batch.iter().filter(|&&byte| byte != 3).map(|&byte| Output::Json(byte.into())).collect())
        }
    }

    fn process(bytes: &[u8]) -> Vec<Result<Output, TaskError>> {
        let prepare = |byte: &u8| First.prepare(&Picture { id: "x", bytes: &[*byte], metadata: None }).unwrap();
        AnyTask::process(&First, bytes.iter().map(prepare).collect())
    }

    #[test]
    fn a_bad_image_fails_alone() {
        let fine = |byte: u8| Ok(Output::Json(byte.into()));
        assert_eq!(process(&[7, 8]), [fine(7), fine(8)]);
        let answers = process(&[7, 1, 8, 2, 3, 9]);
        assert_eq!([&answers[0], &answers[2], &answers[5]], [&fine(7), &fine(8), &fine(9)]);
        let error = |i: usize| answers[i].clone().unwrap_err();
        assert_eq!((error(1).reason.as_str(), error(1).transient), ("the task panicked: a one", false));
        assert_eq!((error(3).reason.as_str(), error(3).transient), ("a two", true));
        assert_eq!(error(4).reason, "the task gave 0 answers for 1 images");
    }
}
