//! Tells the broker what became of messages.

use std::sync::Arc;
use std::time::Instant;

use foveate_queue::{DeadLetter, Delivery, QueueError, Receipt};

use super::leases::Key;
use super::{Core, Ticket};
use crate::Stage;

/// Receipts that are acknowledged or released by one call.
const TOGETHER: usize = 100;

/// A message that is done with here.
pub(super) struct Settle {
    key: Key,
    queue: usize,
    delivery: Arc<Delivery>,
    stage: Stage,
    how: How,
    tries: u32,
}

pub(super) enum How {
    Acknowledge,
    Release(std::time::Duration),
    DeadLetter(DeadLetter),
}

impl Settle {
    pub(super) fn new(ticket: Ticket, stage: Stage, how: How) -> Self {
        Self { key: ticket.key, queue: ticket.queue, delivery: ticket.delivery, stage, how, tries: 0 }
    }

    pub(super) fn dead(ticket: Ticket, stage: Stage, reason: String) -> Self {
        Self::new(ticket, stage, How::DeadLetter(DeadLetter { stage: stage.name().to_owned(), reason }))
    }

    /// Of the message's latest delivery; of the first, where it is not held any more.
    fn receipt(&self, core: &Core) -> Receipt {
        core.leases.receipt(self.key).unwrap_or_else(|| self.delivery.receipt.clone())
    }
}

/// Settles until the queue is closed.
pub(super) fn run(core: &Core) {
    let watch = core.watch("settle");
    while let Some(due) = core.settling.pop(TOGETHER) {
        let mut acknowledged: Vec<Vec<Settle>> = core.queues().iter().map(|_| Vec::new()).collect();
        let mut others = Vec::new();
        for settle in due {
            match settle.how {
                How::Acknowledge => acknowledged[settle.queue].push(settle),
                How::Release(_) | How::DeadLetter(_) => others.push(settle),
            }
        }
        for (queue, settles) in acknowledged.into_iter().enumerate().filter(|(_, settles)| !settles.is_empty()) {
            let receipts: Vec<Receipt> = settles.iter().map(|settle| settle.receipt(core)).collect();
            let busy = watch.busy();
            let results = core.queues()[queue].acknowledge(&receipts);
            drop(busy);
            let ends = receipts.iter().zip(results);
            settles
                .into_iter()
                .zip(ends)
                .for_each(|(settle, (receipt, result))| settled(core, settle, receipt, result));
        }
        for settle in others {
            // Somebody else's by now, who will say what becomes of it.
            if !core.leases.is_held(settle.key) {
                core.metrics().settled(core.queues()[settle.queue].name(), "lost", settle.stage);
                continue;
            }
            // Each by itself: a broker that is down answers each after a while.
            let busy = watch.busy();
            let receipt = settle.receipt(core);
            let result = one(core, &settle, receipt.clone());
            drop(busy);
            settled(core, settle, &receipt, result);
        }
    }
}

fn one(core: &Core, settle: &Settle, receipt: Receipt) -> Result<(), QueueError> {
    let queue = &core.queues()[settle.queue];
    match &settle.how {
        How::DeadLetter(letter) => queue.dead_letter(&Delivery { receipt, ..(*settle.delivery).clone() }, letter),
        How::Release(delay) => first(queue.release(&[receipt], *delay)),
        How::Acknowledge => first(queue.acknowledge(&[receipt])),
    }
}

fn first(results: Vec<Result<(), QueueError>>) -> Result<(), QueueError> {
    results.into_iter().next().unwrap_or(Ok(()))
}

fn settled(core: &Core, mut settle: Settle, receipt: &Receipt, result: Result<(), QueueError>) {
    let queue = core.queues()[settle.queue].name();
    match result {
        Err(error) if error.is_transient() && core.leases.is_held(settle.key) => {
            settle.tries += 1;
            tracing::warn!(queue, %error, tries = settle.tries, "cannot settle a message yet");
            let again = Instant::now() + core.options.reconnect.after(settle.tries, None);
            // Closed: the worker is at its end, and the message comes back by itself.
            let _ = core.settling.push(again, settle);
        }
        // It was delivered again in the meantime, and went on as the same: that delivery is to be settled, too.
        _ if !core.leases.ended(settle.key, receipt) && core.leases.is_held(settle.key) => {
            let _ = core.settling.push(Instant::now(), settle);
        }
        Ok(()) => {
            let how = match settle.how {
                How::Acknowledge => "acknowledged",
                How::Release(_) => "released",
                How::DeadLetter(_) => "dead",
            };
            core.metrics().settled(queue, how, settle.stage);
            if core.options.sink.is_none() {
                core.meter.finished();
            }
        }
        Err(error) => {
            tracing::warn!(queue, %error, "cannot settle a message; it may be delivered again");
            core.metrics().settled(queue, "lost", settle.stage);
        }
    }
}
