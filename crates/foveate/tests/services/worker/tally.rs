//! The outcomes of the messages.

use std::collections::BTreeMap;
use std::fmt;

use foveate::net::webhook::Secrets;
use foveate::queue::DeadLetter;
use foveate::worker::callback_id;
use foveate_net::photo_server::Call;
use serde_json::Value;

use super::jobs::{Item, Kind};
use super::stage::{SECRET, Stage};

/// The outcomes of messages that have all ended.
pub(crate) struct Tally {
    called: BTreeMap<String, Vec<Call>>,
    dead: BTreeMap<String, Vec<DeadLetter>>,
}

/// A callback's body.
struct Told {
    id: String,
    result: Value,
}

impl Told {
    fn read(call: &Call) -> Self {
        let body: Value = serde_json::from_slice(&call.body).unwrap();
        let id = body["id"].as_str().unwrap().to_owned();
        assert_eq!((body["version"].as_u64(), body["task"].as_str()), (Some(1), Some("embed")));
        Self { id, result: body["result"].clone() }
    }
}

impl Tally {
    /// Counts the outcomes, and checks each callback.
    pub(crate) fn take(stage: &Stage) -> Self {
        let secrets = Secrets::parse(SECRET).unwrap();
        let mut called: BTreeMap<String, Vec<Call>> = BTreeMap::new();
        for call in stage.photos.callbacks().calls().into_iter().filter(Call::is_taken) {
            let Told { id, .. } = Told::read(&call);
            assert_eq!(call.id, callback_id("embed", &id), "the same for the same message");
            assert_eq!(call.signature, secrets.sign(&call.id, call.timestamp.parse().unwrap(), &call.body));
            called.entry(id).or_default().push(call);
        }
        let mut dead: BTreeMap<String, Vec<DeadLetter>> = BTreeMap::new();
        for (id, letter) in stage.dead_letters() {
            dead.entry(id).or_default().push(letter);
        }
        Self { called, dead }
    }

    /// Checks that every item had its own outcome and no other, that no unknown item had any, and that the queue is
    /// empty.
    #[track_caller]
    pub(crate) fn check(&self, stage: &Stage, items: &[Item]) {
        for &item in items {
            let (called, dead) = (self.called.get(&item.id()), self.dead.get(&item.id()));
            match (item.kind.dies_of(), called, dead) {
                ([], Some(_), None) => {}
                (ways @ [_, ..], None, Some(letters)) => {
                    let is_it = |letter: &DeadLetter| {
                        ways.iter().any(|&(stage, reason)| letter.stage == stage && letter.reason.contains(reason))
                    };
                    assert!(letters.iter().all(is_it), "{}: {letters:?}", item.id());
                }
                (_, called, dead) => panic!("{}: called back {called:?}, dead {dead:?}", item.id()),
            }
        }
        assert_eq!(self.called.len() + self.dead.len(), items.len(), "strangers");
        let depth = stage.depth().unwrap();
        assert_eq!((depth.waiting, depth.leased), (0, 0));
        assert_eq!(depth.dead as usize, self.dead.values().map(Vec::len).sum::<usize>());
        self.check_vectors(stage, items);
    }

    /// Checks that the same photo always has the same result, whichever worker processed it and when.
    fn check_vectors(&self, stage: &Stage, items: &[Item]) {
        let mut results: BTreeMap<usize, Value> = BTreeMap::new();
        for &item in items {
            for call in self.called.get(&item.id()).into_iter().flatten() {
                let Told { result, .. } = Told::read(call);
                assert_eq!(result["embedding"].as_array().map(Vec::len), Some(64));
                let first = results.entry(stage.photo(item)).or_insert_with(|| result.clone());
                assert_eq!(*first, result, "{}", item.id());
            }
        }
        assert!(results.values().any(|result| result["embedding"] != results.values().next().unwrap()["embedding"]));
    }

    /// Returns the number of callbacks beyond the first of each message.
    pub(crate) fn called_again(&self) -> usize {
        self.called.values().map(|calls| calls.len() - 1).sum()
    }

    /// Returns the number of dead letters beyond the first of each message.
    pub(crate) fn dead_again(&self) -> usize {
        self.dead.values().map(|letters| letters.len() - 1).sum()
    }

    /// Returns the time of the first callback of each message that was called back more than once, in seconds since
    /// 1970.
    pub(crate) fn first_of_doubles(&self) -> Vec<u64> {
        let doubles = self.called.values().filter(|calls| calls.len() > 1);
        doubles.map(|calls| calls[0].timestamp.parse().unwrap()).collect()
    }

    pub(crate) fn called(&self) -> usize {
        self.called.len()
    }

    pub(crate) fn dead(&self) -> usize {
        self.dead.len()
    }

    /// Returns how many items of a kind have ended.
    fn ended(&self, kind: Kind) -> usize {
        let ids = self.called.keys().chain(self.dead.keys());
        ids.filter(|id| id.starts_with(&format!("{kind:?}-"))).count()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} called back (and {} again), ", self.called(), self.called_again())?;
        write!(f, "{} dead letters (and {} again);", self.dead(), self.dead_again())?;
        let kinds =
            [Kind::Photo, Kind::Slow, Kind::Flaky, Kind::Corrupt, Kind::Missing, Kind::Stall, Kind::Bomb, Kind::Huge];
        let counts = kinds.into_iter().map(|kind| (kind, self.ended(kind))).filter(|&(_, count)| count > 0);
        counts.into_iter().try_for_each(|(kind, count)| write!(f, " {count} {kind:?}"))
    }
}
