//! A search that was ended continues with its state, and finds the same.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use foveate_search::{Metric, Search, SearchError, State, Vectors};

#[derive(Default)]
struct Memory {
    saved: Mutex<Option<Vec<u8>>>,
    saves: AtomicUsize,
    resumed: Mutex<Vec<Option<f64>>>,
}

impl State for Memory {
    fn load(&self) -> Option<Box<dyn Read + '_>> {
        let saved = self.saved.lock().unwrap().clone()?;
        Some(Box::new(std::io::Cursor::new(saved)))
    }

    fn save(&self, write: &dyn Fn(&mut dyn Write) -> std::io::Result<()>) {
        let mut bytes = Vec::new();
        write(&mut bytes).unwrap();
        *self.saved.lock().unwrap() = Some(bytes);
        self.saves.fetch_add(1, Relaxed);
    }

    fn resumed(&self, share: Option<f64>) {
        self.resumed.lock().unwrap().push(share);
    }
}

type Found = Vec<(u32, u32, f64)>;
type Act<'a> = &'a dyn Fn(&Search<'_>) -> Result<Found, SearchError>;

/// Runs a search with a state and returns how often it told its progress, too. It ends at this share.
fn run(act: Act<'_>, memory: &Memory, save_every: Duration, end: f64) -> (usize, Result<Found, SearchError>) {
    let (calls, is_ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    let progress = |share: f64| {
        calls.fetch_add(1, Relaxed);
        is_ended.fetch_or(share >= end, Relaxed);
    };
    let is_cancelled = || is_ended.load(Relaxed);
    let search =
        Search { threads: 2, progress: &progress, is_cancelled: &is_cancelled, state: Some(memory), save_every };
    let found = act(&search);
    (calls.into_inner(), found)
}

#[test]
fn a_search_that_was_ended_continues() {
    let mut random = fastrand::Rng::with_seed(8);
    let data: Vec<f32> = (0..9000 * 24).map(|_| random.f32() - 0.5).collect();
    let vectors = Vectors::new(&data, 24, Metric::Cosine).unwrap();
    let asked = Vectors::new(&data[..2000 * 24], 24, Metric::Cosine).unwrap();
    let flat = |found: foveate_search::Neighbors| -> Found {
        (0..found.len() as u32)
            .flat_map(|row| found.of(row as usize).map(move |(other, score)| (row, other, score)))
            .collect()
    };
    let of_pairs = |found: foveate_search::Pairs| -> Found {
        found.pairs.into_iter().map(|pair| (pair.row, pair.other, pair.score)).collect()
    };
    let acts: [Act<'_>; 4] = [
        &|search| search.neighbors(&vectors, 5).map(flat),
        &|search| search.nearest(&asked, &vectors, 5).map(flat),
        &|search| search.pairs(&vectors, 0.6).map(of_pairs),
        &|search| search.pairs_with(&asked, &vectors, 0.6).map(of_pairs),
    ];
    for (number, act) in acts.into_iter().enumerate() {
        let (all, expected) = run(act, &Memory::default(), Duration::MAX, 2.0);
        let expected = expected.unwrap();
        assert!(!expected.is_empty());
        for end in [0.05, 0.3, 0.9] {
            let memory = Memory::default();
            let (before, cancelled) = run(act, &memory, Duration::ZERO, end);
            assert!(matches!(cancelled, Err(SearchError::Cancelled)));
            assert!(memory.saves.load(Relaxed) > 2 || end < 0.1, "saved at times");
            let (after, found) = run(act, &memory, Duration::MAX, 2.0);
            assert!(found.unwrap() == expected && after < all && before + after <= all, "{number} {end} {after} {all}");
            let share = memory.resumed.lock().unwrap()[0].unwrap();
            assert!(share > 0.0 && (share - end).abs() < 0.1, "{share} {end}");
            // The state is of no other search.
            let (_, found) = run(acts[(number + 1) % 4], &memory, Duration::MAX, 2.0);
            assert!(found.is_ok() && memory.resumed.lock().unwrap()[1].is_none());
            memory.saved.lock().unwrap().as_mut().unwrap().pop();
            assert!(run(act, &memory, Duration::MAX, 2.0).1.unwrap() == expected);
            assert!(memory.resumed.lock().unwrap()[2].is_none());
        }
    }
}

#[test]
fn other_vectors_begin_anew() {
    let mut random = fastrand::Rng::with_seed(9);
    let mut data: Vec<f32> = (0..3000 * 8).map(|_| random.f32() - 0.5).collect();
    let memory = Memory::default();
    let neighbors = |data: &[f32], metric: Metric, k: usize, memory: &Memory, end: f64| {
        let vectors = Vectors::new(data, 8, metric).unwrap();
        let act = |search: &Search<'_>| {
            search.neighbors(&vectors, k).map(|found| found.of(0).map(|(row, score)| (0, row, score)).collect())
        };
        run(&act, memory, Duration::MAX, end).1
    };
    assert!(neighbors(&data, Metric::Cosine, 3, &memory, 0.5).is_err());
    neighbors(&data, Metric::Cosine, 3, &memory, 2.0).unwrap();
    neighbors(&data, Metric::Dot, 3, &memory, 2.0).unwrap();
    neighbors(&data, Metric::Cosine, 4, &memory, 2.0).unwrap();
    data[999] += 1e-6;
    neighbors(&data, Metric::Cosine, 3, &memory, 2.0).unwrap();
    let resumed: Vec<bool> = memory.resumed.lock().unwrap().iter().map(Option::is_some).collect();
    assert_eq!(resumed, [true, false, false, false]);
}
