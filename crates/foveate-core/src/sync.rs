use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose value is whole between any two statements, so that a panic elsewhere does not make it unusable.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
