//! Messages with several images. Each image has an outcome, and the message is settled after the last one.

use std::sync::Mutex;
use std::time::Duration;

use super::settlement::{How, PutBack, Why};
use crate::{Stage, lock};

/// The images of a message.
#[derive(Debug)]
pub(super) struct MessageParts {
    ends: Mutex<PartEnds>,
}

#[derive(Debug)]
struct PartEnds {
    all: usize,
    left: usize,
    /// Images that go to the dead letters.
    dead: usize,
    /// The settlement so far.
    worst: (Stage, How),
}

impl MessageParts {
    pub(super) fn new(images: usize) -> Self {
        let worst = (Stage::Sink, How::Acknowledge);
        Self { ends: Mutex::new(PartEnds { all: images, left: images, dead: 0, worst }) }
    }

    /// Records the settlement that the image `id` calls for. Returns the message's after the last one: it comes again
    /// if any image has to be tried again, and is a dead letter if one failed for good.
    pub(super) fn end(&self, id: &str, stage: Stage, mut how: How) -> Option<(Stage, How)> {
        let mut ends = lock(&self.ends);
        ends.left = ends.left.saturating_sub(1);
        if let How::DeadLetter(letter) = &mut how {
            ends.dead += 1;
            letter.reason = format!("{id}: {}", letter.reason);
        }
        if rank(&how) > rank(&ends.worst.1) {
            ends.worst = (stage, how);
        }
        if ends.left > 0 {
            return None;
        }
        let (stage, mut how) = std::mem::replace(&mut ends.worst, (Stage::Sink, How::Acknowledge));
        if let How::DeadLetter(letter) = &mut how {
            letter.reason = format!("{} of {} images failed; {}", ends.dead, ends.all, letter.reason);
        }
        Some((stage, how))
    }
}

/// Orders settlements: the highest is the message's. A try that failed counts although others were not tried.
fn rank(how: &How) -> (u32, Duration) {
    match how {
        How::Acknowledge | How::Skip => (0, Duration::ZERO),
        How::DeadLetter(_) => (1, Duration::ZERO),
        How::PutBack(PutBack { why: Why::Held, delay, .. }) => (2, *delay),
        How::PutBack(PutBack { why: Why::Refused, delay, .. }) => (3, *delay),
        How::PutBack(PutBack { why: Why::Failed, delay, .. }) => (4, *delay),
    }
}

#[cfg(test)]
mod tests {
    use foveate_queue::DeadLetter;

    use super::*;

    fn back(why: Why, seconds: u64) -> How {
        How::PutBack(PutBack { why, delay: Duration::from_secs(seconds), failing_since: None, copied: None })
    }

    fn dead(reason: &str) -> How {
        How::DeadLetter(DeadLetter { stage: "decode".to_owned(), reason: reason.to_owned() })
    }

    #[test]
    fn a_message_ends_with_its_last_image_and_as_the_worst_of_them() {
        let parts = MessageParts::new(3);
        assert!(parts.end("a", Stage::Download, dead("404")).is_none());
        assert!(parts.end("b", Stage::Sink, How::Acknowledge).is_none());
        let end = parts.end("c", Stage::Sink, How::Acknowledge);
        let Some((Stage::Download, How::DeadLetter(letter))) = end else { panic!("{end:?}") };
        assert_eq!(letter.reason, "1 of 3 images failed; a: 404");

        let parts = MessageParts::new(5);
        for how in [dead("no image"), back(Why::Failed, 1), back(Why::Held, 9), back(Why::Failed, 2)] {
            assert!(parts.end("a", Stage::Process, how).is_none());
        }
        let end = parts.end("e", Stage::Sink, How::Acknowledge);
        let Some((Stage::Process, How::PutBack(PutBack { why: Why::Failed, delay, .. }))) = end else {
            panic!("{end:?}")
        };
        assert_eq!(delay, Duration::from_secs(2), "it was tried, and the longest delay holds");
    }
}
