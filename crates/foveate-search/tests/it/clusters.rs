//! Clusters and rows that are spread out, on data whose answer is known or found plainly.

use foveate_search::{ClusterOptions, Metric, Search, Vectors};

/// Rows around centres, some twice and some not finite.
fn data(count: usize, dim: usize, centres: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(4);
    let mut normal = move || (0..12).map(|_| random.f32()).sum::<f32>() - 6.0;
    let centres: Vec<Vec<f32>> = (0..centres).map(|_| (0..dim).map(|_| normal()).collect()).collect();
    let mut rows: Vec<Vec<f32>> =
        (0..count).map(|at| centres[at % centres.len()].iter().map(|x| x + 0.02 * normal()).collect()).collect();
    rows[1] = rows[1 + centres.len()].clone();
    rows[7][dim / 2] = f32::NAN;
    rows[9].fill(0.0);
    rows.concat()
}

#[test]
fn clusters_are_those_that_rows_were_made_of() {
    let data = data(3000, 24, 12);
    let vectors = Vectors::new(&data, 24, Metric::Dot).unwrap();
    let search = |threads: usize| Search { threads, ..Search::default() };
    let options = ClusterOptions { k: 12, rounds: 30, batch: 500 };
    let found = search(1).clusters(&vectors, &options).unwrap();
    assert!(found == search(3).clusters(&vectors, &options).unwrap());
    assert_eq!(found.len(), 12);
    assert!(found.of(7).is_none() && found.of(9).is_some());
    for row in (0..3000).filter(|row| ![7, 9].contains(row)) {
        let first = if row % 12 == 7 { 19 } else { row % 12 };
        let first = if first == 9 { 21 } else { first };
        assert_eq!(found.of(row).unwrap().0, found.of(first).unwrap().0, "{row}");
    }
    let centres = Vectors::new(found.centres(), 24, Metric::Cosine).unwrap();
    let rows = Vectors::new(&data, 24, Metric::Cosine).unwrap();
    for row in rows.finite() {
        let scores = (0..12).map(|centre| (centre, rows.score(row, &centres, centre)));
        let best = scores.min_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        assert_eq!(found.of(row as usize), best);
    }
    for centre in found.centres().chunks_exact(24) {
        assert!((centre.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
    }
    let members = found.members();
    assert_eq!(members.iter().map(Vec::len).sum::<usize>(), 2999);
    for (cluster, rows) in (0..).zip(&members) {
        assert!(rows.is_sorted_by(|a, b| (b.1, a.0) <= (a.1, b.0)), "{rows:?}");
        assert!(rows.iter().all(|&(row, score)| found.of(row as usize) == Some((cluster, score))));
    }
}

#[test]
fn clusters_of_few_rows_are_not_empty() {
    let data = [1.0, 0.0, 2.0, 0.0, 0.0, 1.0, 0.0, 3.0_f32];
    let vectors = Vectors::new(&data, 2, Metric::Cosine).unwrap();
    for (k, expected) in [(1, 1), (2, 2), (50, 2)] {
        let found = Search::default().clusters(&vectors, &ClusterOptions { k, ..Default::default() }).unwrap();
        assert_eq!(found.len(), expected);
    }
    let none = Vectors::new(&[f32::NAN; 4], 2, Metric::Cosine).unwrap();
    let found = Search::default().clusters(&none, &ClusterOptions::default()).unwrap();
    assert!(found.is_empty() && found.members().is_empty() && found.of(0).is_none());
    let cancelled = Search { is_cancelled: &|| true, ..Search::default() };
    assert!(cancelled.clusters(&vectors, &ClusterOptions::default()).is_err());
    assert!(cancelled.spread_out(&vectors, 3).is_err());
}

#[test]
fn rows_that_are_spread_out_are_those_of_plain_greedy_search() {
    let data = data(400, 10, 30);
    let vectors = Vectors::new(&data, 10, Metric::Cosine).unwrap();
    let rows: Vec<u32> = vectors.finite().collect();
    let found = Search { threads: 3, ..Search::default() }.spread_out(&vectors, 1000).unwrap();
    assert_eq!(found.len(), 399);
    assert_eq!(found[0].1, None);
    for (at, &(row, score)) in found.iter().enumerate().skip(1).take(60) {
        let chosen = &found[..at];
        let nearest = |row: u32| chosen.iter().map(|&(to, _)| vectors.score(row, &vectors, to)).fold(-2.0, f64::max);
        let others = rows.iter().copied().filter(|&row| chosen.iter().all(|&(other, _)| other != row));
        let expected = others.map(|row| (row, nearest(row))).min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        assert_eq!((row, score), (expected.0, Some(expected.1)));
    }
    let mut all: Vec<u32> = found.iter().map(|&(row, _)| row).collect();
    all.sort_unstable();
    assert!(all == rows && Search::default().spread_out(&vectors, 0).unwrap().is_empty());
}
