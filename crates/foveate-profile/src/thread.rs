//! Small numbers for threads, and values kept per thread.

use std::sync::{Mutex, OnceLock, PoisonError};

/// A thread's slot and serial number, from its first event to its end. The slot is below the maximum number of
/// simultaneous threads and unique while the thread lives; the serial number is never reused.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) slot: usize,
    pub(crate) serial: u64,
}

struct Slots {
    free: Vec<usize>,
    slots: usize,
    serials: u64,
}

static SLOTS: Mutex<Slots> = Mutex::new(Slots { free: Vec::new(), slots: 0, serials: 0 });

thread_local! {
    static LEASE: Lease = Lease::take();
}

impl Lease {
    fn take() -> Self {
        let mut slots = SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
        slots.serials += 1;
        let slot = slots.free.pop().unwrap_or_else(|| {
            slots.slots += 1;
            slots.slots - 1
        });
        Self { slot, serial: slots.serials }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The lock also publishes this thread's writes to the next thread in its slot.
        SLOTS.lock().unwrap_or_else(PoisonError::into_inner).free.push(self.slot);
    }
}

/// The calling thread's slot; none in destructors that run after a thread has ended.
#[inline]
pub(crate) fn slot() -> Option<usize> {
    LEASE.try_with(|lease| lease.slot).ok()
}

/// Runs `work` with the calling thread's lease, or with a temporary one if the thread has ended.
pub(crate) fn with_lease<T>(work: impl Fn(&Lease) -> T) -> T {
    LEASE.try_with(&work).unwrap_or_else(|_| work(&Lease::take()))
}

/// Room for 2^SEGMENTS − 1 simultaneous threads.
const SEGMENTS: usize = 32;

/// One value per slot, created on first use. Values never move, so that references to them need no lock: segment `s`
/// has room for 2^s of them.
#[derive(Debug)]
pub(crate) struct PerThread<T> {
    segments: [OnceLock<Box<[ThreadPlace<T>]>>; SEGMENTS],
}

/// Aligned so that no two threads write to the same pair of cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct ThreadPlace<T>(OnceLock<T>);

impl<T> Default for PerThread<T> {
    fn default() -> Self {
        Self { segments: [const { OnceLock::new() }; SEGMENTS] }
    }
}

impl<T> PerThread<T> {
    #[inline]
    pub(crate) fn get_or_init(&self, slot: usize, make: impl FnOnce() -> T) -> &T {
        let segment = (slot + 1).ilog2() as usize;
        let values =
            self.segments[segment].get_or_init(|| (0..1 << segment).map(|_| ThreadPlace(OnceLock::new())).collect());
        values[slot + 1 - (1 << segment)].0.get_or_init(make)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.segments.iter().filter_map(OnceLock::get).flatten().filter_map(|place| place.0.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn threads_at_once_have_slots_of_their_own_and_later_ones_take_them_over() {
        let round = || {
            let barrier = Barrier::new(16);
            std::thread::scope(|scope| {
                let work = || {
                    barrier.wait();
                    let lease = with_lease(|lease| (lease.slot, lease.serial));
                    barrier.wait();
                    lease
                };
                let threads: Vec<_> = (0..16).map(|_| scope.spawn(work)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            })
        };
        let rounds: Vec<_> = (0..8).map(|_| round()).collect();
        for leases in &rounds {
            let mut slots: Vec<usize> = leases.iter().map(|lease| lease.0).collect();
            slots.sort_unstable();
            slots.dedup();
            assert_eq!(slots.len(), 16);
        }
        let mut serials: Vec<u64> = rounds.iter().flatten().map(|lease| lease.1).collect();
        serials.sort_unstable();
        serials.dedup();
        assert_eq!(serials.len(), 8 * 16);
        // Other tests run in parallel and take slots too, yet 128 threads did not take 128 slots.
        assert!(rounds.iter().flatten().all(|lease| lease.0 < 64), "{rounds:?}");
    }

    #[test]
    fn values_are_made_once_and_kept() {
        let values = PerThread::default();
        for slot in [0, 1, 2, 3, 6, 7, 1000] {
            assert_eq!(*values.get_or_init(slot, || slot), slot);
        }
        assert_eq!(*values.get_or_init(7, || 0), 7);
        assert_eq!(values.iter().copied().collect::<Vec<_>>(), [0, 1, 2, 3, 6, 7, 1000]);
    }
}
