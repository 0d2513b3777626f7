use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Limits what is done at once under one key, such as the requests to a host, in order of arrival.
#[derive(Debug)]
pub struct Turns {
    most: usize,
    /// The keys in use, so there are never more than tasks.
    keys: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// One of a key's turns, until it is dropped.
#[derive(Debug)]
pub struct KeyTurn {
    turns: Arc<Turns>,
    key: String,
    semaphore: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// At most `most` turns of each key at once, at least 1.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most: most.clamp(1, Semaphore::MAX_PERMITS), keys: Mutex::default() })
    }

    /// Waits for a turn.
    pub async fn take(self: &Arc<Self>, key: String) -> KeyTurn {
        let semaphore = Arc::clone(self.lock().entry(key.clone()).or_insert_with(|| Semaphore::new(self.most).into()));
        let mut turn = KeyTurn { turns: Arc::clone(self), key, semaphore, permit: None };
        turn.permit = Arc::clone(&turn.semaphore).acquire_owned().await.ok();
        turn
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Semaphore>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KeyTurn {
    fn drop(&mut self) {
        self.permit = None;
        let mut keys = self.turns.lock();
        // The map's and this one: every other user took it under this lock.
        if Arc::strong_count(&self.semaphore) == 2 {
            keys.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn turns_are_given_in_order_and_never_too_many() {
        let turns = Turns::new(2);
        let held = (turns.take("a".to_owned()).await, turns.take("a".to_owned()).await);
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for i in 0..8 {
            let (turns, order) = (Arc::clone(&turns), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let _turn = turns.take("a".to_owned()).await;
                order.lock().unwrap().push(i);
            }));
            tokio::task::yield_now().await;
        }
        assert!(order.lock().unwrap().is_empty());
        drop(held);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), (0..8).collect::<Vec<_>>());
        assert!(turns.lock().is_empty(), "a key is remembered after its last turn");
    }

    #[tokio::test]
    async fn other_keys_do_not_wait_and_who_gives_up_leaves_nothing() {
        let turns = Turns::new(1);
        let soon = Duration::from_millis(20);
        let held = turns.take("a".to_owned()).await;
        drop(turns.take("b".to_owned()).await);
        assert!(timeout(soon, turns.take("a".to_owned())).await.is_err());
        drop(held);
        drop(turns.take("a".to_owned()).await);
        assert!(turns.lock().is_empty());
    }
}
