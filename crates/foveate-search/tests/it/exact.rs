//! Every search finds what brute force finds, with scores summed in f64.

use foveate_search::{Classifier, Linkage, Metric, Pair, Search, SearchError, Vectors, groups};

type Found = Vec<Vec<(u32, f64)>>;

/// Rows of several kinds: noise, clusters with copies, a spectrum as trained models have it, and odd ones.
fn data(kind: &str, count: usize, dim: usize, seed: u64) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut normal = move || (0..12).map(|_| random.f32()).sum::<f32>() - 6.0;
    let mut rows: Vec<Vec<f32>> = match kind {
        "noise" => (0..count).map(|_| (0..dim).map(|_| normal()).collect()).collect(),
        "clusters" => {
            let centres: Vec<Vec<f32>> = (0..20).map(|_| (0..dim).map(|_| normal()).collect()).collect();
            let width = |at: usize| if at.is_multiple_of(3) { 0.0 } else { 0.05 };
            (0..count).map(|at| centres[at % 20].iter().map(|x| x + width(at) * normal()).collect()).collect()
        }
        // A common part, and a spread that falls with the dimension.
        "spectrum" => (0..count).map(|_| (0..dim).map(|d| 0.5 + 3.0 * normal() / (1 + d) as f32).collect()).collect(),
        "same" => vec![vec![0.3; dim]; count],
        _ => unreachable!("{kind}"),
    };
    if kind == "noise" && count > 8 {
        rows[3].fill(0.0);
        rows[5][dim / 2] = f32::NAN;
        rows[6][0] = f32::INFINITY;
        rows[7].iter_mut().for_each(|x| *x *= 1e4);
    }
    rows.concat()
}

fn plainly(queries: &Vectors<'_>, vectors: &Vectors<'_>, k: usize, is_same: bool) -> Found {
    let (finite, of_queries): (Vec<_>, Vec<_>) = (vectors.finite().collect(), queries.finite().collect());
    let mut found = vec![Vec::new(); queries.len()];
    for query in of_queries {
        let others = finite.iter().filter(|&&row| !is_same || row != query);
        let mut all: Vec<_> = others.map(|&row| (row, queries.score(query, vectors, row))).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all.truncate(k);
        found[query as usize] = all;
    }
    found
}

fn search(threads: usize) -> Search<'static> {
    Search { threads, ..Search::default() }
}

const KINDS: [&str; 4] = ["noise", "clusters", "spectrum", "same"];

#[test]
fn neighbours_are_those_of_brute_force() {
    for (kind, count, dim) in KINDS.into_iter().flat_map(|kind| [(kind, 2100, 96), (kind, 37, 5), (kind, 1, 3)]) {
        let data = data(kind, count, dim, 1);
        for metric in [Metric::Cosine, Metric::Dot] {
            let vectors = Vectors::new(&data, dim, metric).unwrap();
            let mut expected = plainly(&vectors, &vectors, 50, true);
            for k in [50, 7, 1] {
                expected.iter_mut().for_each(|row| row.truncate(k));
                for threads in [1, 3] {
                    let found = search(threads).neighbors(&vectors, k).unwrap();
                    let found: Found = (0..found.len()).map(|row| found.of(row).collect()).collect();
                    assert!(found == expected, "{kind} {count} {metric:?} k {k}, {threads} threads");
                }
            }
        }
    }
}

#[test]
fn queries_find_what_brute_force_finds() {
    for kind in KINDS {
        for (count, of_queries, dim) in [(3000, 1100, 200), (3000, 40, 200), (900, 300, 8), (50, 1300, 8), (2, 5, 4)] {
            let (data, asked) = (data(kind, count, dim, 1), data(kind, of_queries, dim, 2));
            for metric in [Metric::Cosine, Metric::Dot] {
                let vectors = Vectors::new(&data, dim, metric).unwrap();
                let queries = Vectors::new(&asked, dim, metric).unwrap();
                let found = search(2).nearest(&queries, &vectors, 7).unwrap();
                let found: Found = (0..found.len()).map(|row| found.of(row).collect()).collect();
                assert!(found == plainly(&queries, &vectors, 7, false), "{kind} {count} {metric:?}");
            }
        }
    }
}

#[test]
fn pairs_are_those_of_brute_force() {
    for kind in KINDS {
        let dim = if kind == "spectrum" { 160 } else { 80 };
        let count = 2500;
        let (data, news) = (data(kind, count, dim, 1), data(kind, 300, dim, 1 + u64::from(kind == "noise")));
        let vectors = Vectors::new(&data, dim, Metric::Cosine).unwrap();
        let news = Vectors::new(&news, dim, Metric::Cosine).unwrap();
        for threshold in [0.3, 0.95, 0.999_999] {
            let plain = |a: &Vectors<'_>, b: &Vectors<'_>, is_same: bool| -> Vec<Pair> {
                let rows: Vec<_> = b.finite().collect();
                let pairs = a.finite().flat_map(|row| rows.iter().map(move |&other| (row, other)));
                let pairs = pairs.filter(|(row, other)| !is_same || row < other);
                pairs
                    .map(|(row, other)| Pair { row, other, score: a.score(row, b, other) })
                    .filter(|pair| pair.score >= threshold)
                    .collect()
            };
            let search = search(2);
            let found = search.pairs(&vectors, threshold).unwrap().pairs;
            assert!(found == plain(&vectors, &vectors, true), "{kind} {threshold}");
            let found = search.pairs_with(&news, &vectors, threshold).unwrap().pairs;
            let of_news = plain(&news, &vectors, false);
            assert!(found == of_news, "{kind} {threshold}, with others");
            // What is kept of pairs is what all of them say.
            let nearest = search.duplicates(&news, Some(&vectors), &[threshold], 0).unwrap();
            for row in 0..news.len() as u32 {
                let pairs = of_news.iter().filter(|pair| pair.row == row);
                let best = pairs.max_by(|a, b| a.score.total_cmp(&b.score).then(b.other.cmp(&a.other)));
                assert_eq!(nearest.nearest(row), best.map(|pair| (pair.other, pair.score)), "{kind} {threshold} {row}");
            }
            let mut pairs = plain(&vectors, &vectors, true);
            pairs.sort_by(|a, b| a.score.total_cmp(&b.score));
            let values = [threshold, 0.97, 0.999_999_9].map(|value| threshold.max(value));
            let digest = search.duplicates(&vectors, None, &values, 6).unwrap();
            for (number, value) in values.into_iter().enumerate() {
                let reaching = &pairs[pairs.partition_point(|pair| pair.score < value)..];
                // Of very many pairs, the plain way takes long.
                if reaching.len() < 1_000_000 {
                    assert_eq!(digest.groups(number), groups(reaching, Linkage::Single), "{kind} {value}");
                }
                assert_eq!(digest.examples(number), &reaching[..reaching.len().min(6)], "{kind} {value}");
            }
        }
    }
}

#[test]
fn more_pairs_than_wanted_are_refused() {
    let data = vec![1.0; 200 * 8];
    let vectors = Vectors::new(&data, 8, Metric::Cosine).unwrap();
    let few = Search { most_pairs: 19_899, ..search(2) };
    assert!(matches!(few.pairs(&vectors, 0.9), Err(SearchError::TooManyPairs(19_899))));
    let enough = Search { most_pairs: 19_900, ..search(2) };
    assert_eq!(enough.pairs(&vectors, 0.9).unwrap().pairs.len(), 19_900);
    let cancelled = Search { is_cancelled: &|| true, ..search(2) };
    assert!(matches!(cancelled.groups(&[], Linkage::Single), Ok(groups) if groups.is_empty()));
    let pair = Pair { row: 0, other: 1, score: 1.0 };
    assert!(matches!(cancelled.groups(&[pair], Linkage::Single), Err(SearchError::Cancelled)));
}

#[test]
fn few_scores_are_computed_where_the_spread_is_in_few_directions() {
    let data = data("spectrum", 6000, 384, 1);
    let vectors = Vectors::new(&data, 384, Metric::Cosine).unwrap();
    let search = search(2);
    let stats = search.neighbors(&vectors, 10).unwrap().stats();
    assert_eq!(stats.pairs, 6000 * 5999 / 2);
    assert!(stats.scored < stats.pairs / 10 && stats.width < 384, "{stats:?}");
}

#[test]
fn memory_grows_with_rows_and_neighbours() {
    let of = Search::memory;
    // Codes of 384 and twice of 128 directions, 44 bytes of numbers, and 12 for each neighbour.
    assert_eq!(of(2_000_000, 384, 10) - of(1_000_000, 384, 10), 804_000_000);
    assert_eq!(of(1_000_000, 384, 0) - of(0, 384, 0), 684_000_000);
    assert_eq!(of(1_000_000, 32, 0) - of(0, 32, 0), 76_000_000);
}

#[test]
fn what_cannot_be_searched_is_said() {
    assert!(Vectors::new(&[1.0; 7], 2, Metric::Dot).is_err());
    assert!(Vectors::new(&[], 0, Metric::Dot).is_err());
    let a = [1.0; 6];
    let b = [1.0; 4];
    let wide = Vectors::new(&a, 3, Metric::Dot).unwrap();
    let narrow = Vectors::new(&b, 2, Metric::Dot).unwrap();
    let error = search(1).nearest(&narrow, &wide, 1).err().unwrap();
    assert_eq!(error.to_string(), "queries of 2 dimensions cannot be compared with vectors of 3");
    let cancelled = Search { is_cancelled: &|| true, ..search(1) };
    assert!(cancelled.neighbors(&wide, 1).is_err());
    let empty = Vectors::new(&[], 3, Metric::Cosine).unwrap();
    assert!(empty.is_empty() && search(2).neighbors(&empty, 3).unwrap().is_empty());
    assert_eq!(search(2).nearest(&wide, &Vectors::new(&[], 3, Metric::Dot).unwrap(), 3).unwrap().of(0).count(), 0);
}

#[test]
fn rows_that_are_left_out_are_nobodys_neighbours() {
    let data = data("clusters", 60, 8, 1);
    let mut vectors = Vectors::new(&data, 8, Metric::Cosine).unwrap();
    vectors.leave_out((0..60).filter(|row| row % 2 == 1));
    let found = search(2).neighbors(&vectors, 100).unwrap();
    for row in 0..60 {
        let others: Vec<_> = found.of(row).map(|(other, _)| other).collect();
        assert!(others.iter().all(|other| other % 2 == 0) && others.len() == if row % 2 == 0 { 29 } else { 0 });
    }
}

#[test]
fn classes_are_those_of_each_pair_of_row_and_class() {
    for (kind, count, dim) in [("noise", 300, 96), ("spectrum", 129, 33), ("same", 1, 4)] {
        let data = data(kind, count, dim, 2);
        let of_classes = self::data("clusters", 41, dim, 3);
        let vectors = Vectors::new(&data, dim, Metric::Cosine).unwrap();
        let classes = Vectors::new(&of_classes, dim, Metric::Cosine).unwrap();
        for (bias, k, threshold) in [(None, 41, 0.0), (None, 3, 0.1), (Some(-5.0), 7, 0.2)] {
            let classifier = Classifier { scale: 20.0, bias, k, threshold };
            let found = search(3).classify(&vectors, &classes, &classifier).unwrap();
            assert_eq!(found, search(1).classify(&vectors, &classes, &classifier).unwrap(), "threads");
            let finite: Vec<u32> = vectors.finite().collect();
            assert_eq!(found.len(), count);
            for (row, found) in (0..).zip(found) {
                assert_eq!(found.is_some(), finite.contains(&row), "{kind} {row}");
                let Some(found) = found else { continue };
                let logits: Vec<f64> =
                    (0..41).map(|class| 20.0 * vectors.score(row, &classes, class) + bias.unwrap_or(0.0)).collect();
                let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
                let probability = |logit: f64| match bias {
                    None => logit.exp() / sum,
                    Some(_) => 1.0 / (1.0 + (-logit).exp()),
                };
                let expected = logits.iter().filter(|&&logit| probability(logit) >= threshold).count().min(k);
                assert_eq!(found.len(), expected, "{kind} {row}");
                assert!(found.is_sorted_by(|a, b| a.score >= b.score), "{kind} {row}");
                for one in found {
                    let logit = logits[one.class as usize];
                    assert!((f64::from(one.probability) - probability(logit)).abs() < 1e-6, "{kind} {row} {one:?}");
                    let better = logits.iter().filter(|&&other| other > logit + 1e-9).count();
                    assert!(better < k, "{kind} {row}: {better} are better than {one:?}");
                }
            }
        }
    }
}
