//! A search that was ended continues with its state, and finds the same.

use std::io::{Read, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use foveate_search::{Metric, Search, SearchError, SearchState, Vectors};

#[derive(Default)]
struct Memory {
    saved: Mutex<Option<Vec<u8>>>,
    saves: AtomicUsize,
    resumed: Mutex<Vec<Option<f64>>>,
}

impl SearchState for Memory {
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
    let calls = AtomicUsize::new(0);
    let is_ended = AtomicBool::new(false);
    let progress = |share: f64| {
        calls.fetch_add(1, Relaxed);
        is_ended.fetch_or(share >= end, Relaxed);
    };
    let is_cancelled = || is_ended.load(Relaxed);
    let mut search = Search { threads: 2, progress: &progress, is_cancelled: &is_cancelled, ..Search::default() };
    search.state = Some(memory);
    search.save_every = save_every;
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
    let of_groups = |found: foveate_search::Duplicates| -> Found {
        let groups = [0, 1].map(|number| found.groups(number)).concat();
        let rows = groups.iter().flat_map(|group| group.iter().map(|&row| (group[0], row, 0.0)));
        let examples = [0, 1].map(|number| found.examples(number)).concat();
        rows.chain(examples.iter().map(|pair| (pair.row, pair.other, pair.score))).collect()
    };
    let of_nearest = |found: foveate_search::Duplicates| -> Found {
        (0..asked.len() as u32).filter_map(|row| found.nearest(row).map(|(other, score)| (row, other, score))).collect()
    };
    let acts: [Act<'_>; 6] = [
        &|search| search.neighbors(&vectors, 5).map(flat),
        &|search| search.nearest(&asked, &vectors, 5).map(flat),
        &|search| search.pairs(&vectors, 0.6).map(of_pairs),
        &|search| search.pairs_with(&asked, &vectors, 0.6).map(of_pairs),
        &|search| search.duplicates(&vectors, None, &[0.6, 0.65], 6).map(of_groups),
        &|search| search.duplicates(&asked, Some(&vectors), &[0.6], 0).map(of_nearest),
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
            let (_, found) = run(acts[(number + 1) % acts.len()], &memory, Duration::MAX, 2.0);
            assert!(found.is_ok() && memory.resumed.lock().unwrap()[1].is_none());
            memory.saved.lock().unwrap().as_mut().unwrap().pop();
            assert!(run(act, &memory, Duration::MAX, 2.0).1.unwrap() == expected);
            assert!(memory.resumed.lock().unwrap()[2].is_none());
        }
    }
}

#[test]
fn a_damaged_state_is_ignored() {
    let mut random = fastrand::Rng::with_seed(10);
    let data: Vec<f32> = (0..3000 * 8).map(|_| random.f32() - 0.5).collect();
    let vectors = Vectors::new(&data, 8, Metric::Cosine).unwrap();
    let acts: [Act<'_>; 3] = [
        &|search| search.neighbors(&vectors, 3).map(|found| found.of(7).map(|(row, score)| (7, row, score)).collect()),
        &|search| search.pairs(&vectors, 0.95).map(|found| vec![(found.pairs.len() as u32, 0, 0.0)]),
        &|search| {
            search.duplicates(&vectors, None, &[0.95], 6).map(|found| vec![(found.groups(0).len() as u32, 0, 0.0)])
        },
    ];
    for act in acts {
        let memory = Memory::default();
        let (_, expected) = run(act, &Memory::default(), Duration::MAX, 2.0);
        assert!(run(act, &memory, Duration::ZERO, 0.5).1.is_err());
        let saved = memory.saved.lock().unwrap().clone().unwrap();
        let expected = expected.unwrap();
        for at in (0..saved.len()).step_by(saved.len() / 200).chain([saved.len() - 1]) {
            let mut damaged = saved.clone();
            damaged[at] ^= 1 << random.u32(..8);
            let damaged = Memory { saved: Mutex::new(Some(damaged)), ..Memory::default() };
            assert_eq!(run(act, &damaged, Duration::MAX, 2.0).1.unwrap(), expected, "byte {at}");
            assert_eq!(*damaged.resumed.lock().unwrap(), [None]);
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
