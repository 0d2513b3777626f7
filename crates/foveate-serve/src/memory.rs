//! Bounds the bytes of all requests together.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::ApiProblem;

/// Bytes per permit of the semaphore, which counts in 32 bits.
const UNIT: u64 = 1024;

/// Room for the bytes of unfinished requests.
#[derive(Clone, Debug)]
pub(crate) struct BodyMemory {
    units: Arc<Semaphore>,
    all: u64,
}

/// A share of the room; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct MemoryClaim {
    memory: BodyMemory,
    held: Option<OwnedSemaphorePermit>,
}

impl BodyMemory {
    pub(crate) fn new(bytes: u64) -> Self {
        let all = bytes.div_ceil(UNIT).min(u64::from(u32::MAX));
        Self { units: Arc::new(Semaphore::new(all as usize)), all }
    }

    /// An empty claim.
    pub(crate) fn claim(&self) -> MemoryClaim {
        MemoryClaim { memory: self.clone(), held: None }
    }

    /// Claimed bytes.
    pub(crate) fn taken(&self) -> u64 {
        (self.all - self.units.available_permits() as u64) * UNIT
    }

    fn full(&self) -> ApiProblem {
        ApiProblem::full(format!("{} KiB of requests are in hand, and there may be {}", self.taken() / UNIT, self.all))
    }
}

impl MemoryClaim {
    /// Grows the claim to `bytes` if there is room. A claim never shrinks.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> Result<(), ApiProblem> {
        let held = self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits) as u64;
        let all = self.memory.all;
        if bytes > all * UNIT {
            let detail = format!("the request needs {} KiB, and there may be {all} of all requests", bytes / UNIT);
            return Err(ApiProblem::impossible(detail, "send several requests, or ask for fewer results"));
        }
        let more = bytes.div_ceil(UNIT).saturating_sub(held);
        if more == 0 {
            return Ok(());
        }
        // As many as `all` fit into 32 bits.
        let permit = Arc::clone(&self.memory.units).try_acquire_many_owned(more as u32);
        let permit = permit.map_err(|_| self.memory.full())?;
        match &mut self.held {
            Some(held) => held.merge(permit),
            None => self.held = Some(permit),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_share_the_room_and_give_it_back() {
        let memory = BodyMemory::new(10 * UNIT);
        let (mut one, mut other) = (memory.claim(), memory.claim());
        one.grow_to(1).unwrap();
        one.grow_to(4 * UNIT).unwrap();
        one.grow_to(2 * UNIT).unwrap();
        assert_eq!(memory.taken(), 4 * UNIT);
        let problem = other.grow_to(6 * UNIT + 1).unwrap_err();
        assert_eq!(problem.detail, "4 KiB of requests are in hand, and there may be 10");
        other.grow_to(6 * UNIT).unwrap();
        assert_eq!(
            other.grow_to(11 * UNIT).unwrap_err().detail,
            "the request needs 11 KiB, and there may be 10 of all requests"
        );
        drop(one);
        assert_eq!(memory.taken(), 6 * UNIT);
        other.grow_to(10 * UNIT).unwrap();
    }
}
