use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Limits what is done at once under one key, such as the requests to a host, in order of arrival.
#[derive(Debug)]
pub struct Turns {
    most: usize,
    keys: Mutex<HashMap<String, TurnUse>>,
}

/// The use of a key's turns. A key without any use is forgotten.
#[derive(Debug)]
pub struct TurnUse {
    /// Those that wait for a turn.
    pub waiting: usize,
    /// The beginning of each turn under way.
    pub active: Vec<Instant>,
    /// True if any turn has ended.
    pub has_ended: bool,
    semaphore: Arc<Semaphore>,
}

/// One of a key's turns, until it is dropped.
#[derive(Debug)]
pub struct KeyTurn {
    turns: Arc<Turns>,
    key: String,
    /// `None` while it waits.
    since: Option<Instant>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// At most `most` turns of each key at once, at least 1.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most: most.clamp(1, Semaphore::MAX_PERMITS), keys: Mutex::default() })
    }

    /// Waits for a turn.
    pub async fn take(self: &Arc<Self>, key: String) -> KeyTurn {
        let semaphore = self.wait(&key);
        let mut turn = KeyTurn { turns: Arc::clone(self), key, since: None, permit: None };
        turn.permit = semaphore.acquire_owned().await.ok();
        turn.begin();
        turn
    }

    /// The keys in use.
    pub fn uses(&self) -> MutexGuard<'_, HashMap<String, TurnUse>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, key: &str) -> Arc<Semaphore> {
        let mut keys = self.uses();
        let of_key = keys.entry(key.to_owned()).or_insert_with(|| TurnUse {
            waiting: 0,
            active: Vec::new(),
            has_ended: false,
            semaphore: Arc::new(Semaphore::new(self.most)),
        });
        of_key.waiting += 1;
        Arc::clone(&of_key.semaphore)
    }
}

impl KeyTurn {
    fn begin(&mut self) {
        let now = Instant::now();
        self.since = Some(now);
        if let Some(of_key) = self.turns.uses().get_mut(&self.key) {
            of_key.waiting -= 1;
            of_key.active.push(now);
        }
    }
}

impl Drop for KeyTurn {
    fn drop(&mut self) {
        let mut keys = self.turns.uses();
        let Some(of_key) = keys.get_mut(&self.key) else { return };
        match self.since {
            None => of_key.waiting -= 1,
            Some(since) => {
                of_key.has_ended = true;
                if let Some(place) = of_key.active.iter().position(|begin| *begin == since) {
                    of_key.active.swap_remove(place);
                }
            }
        }
        if of_key.waiting == 0 && of_key.active.is_empty() {
            keys.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// Those that wait, those under way, and whether any has ended.
    fn used(turns: &Turns, key: &str) -> (usize, usize, bool) {
        let TurnUse { waiting, active, has_ended, .. } = &turns.uses()[key];
        (*waiting, active.len(), *has_ended)
    }

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
        assert_eq!(used(&turns, "a"), (8, 2, false));
        drop(held);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), (0..8).collect::<Vec<_>>());
        assert!(turns.uses().is_empty(), "a key is remembered after its last turn");
    }

    #[tokio::test]
    async fn other_keys_do_not_wait_and_who_gives_up_leaves_nothing() {
        let turns = Turns::new(1);
        let soon = Duration::from_millis(20);
        let held = turns.take("a".to_owned()).await;
        drop(turns.take("b".to_owned()).await);
        assert!(timeout(soon, turns.take("a".to_owned())).await.is_err());
        assert_eq!(used(&turns, "a"), (0, 1, false));
        drop(held);
        drop(turns.take("a".to_owned()).await);
        assert!(turns.uses().is_empty());
    }
}
