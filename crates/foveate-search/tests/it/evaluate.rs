//! Figures of labels, against those computed plainly.

use foveate_search::{Metric, Search, Vectors, difference};

/// Rows around ten points, with labels of which some are missing, wrong, or of one row.
fn data(count: usize, dim: usize, width: f32) -> (Vec<f32>, Vec<Option<u32>>) {
    let mut random = fastrand::Rng::with_seed(6);
    let centres: Vec<f32> = (0..10 * dim).map(|_| random.f32() - 0.5).collect();
    let mut rows: Vec<f32> = Vec::new();
    let mut labels: Vec<Option<u32>> = Vec::new();
    for row in 0..count {
        let centre = &centres[row % 10 * dim..][..dim];
        rows.extend(centre.iter().map(|x| x + width * (random.f32() - 0.5)));
        labels.push((row % 7 != 3).then_some(if row % 11 == 5 { 4 } else { row as u32 % 10 }));
    }
    labels[8] = Some(77);
    rows[12 * dim] = f32::NAN;
    (rows, labels)
}

#[test]
fn figures_are_those_of_brute_force() {
    let (data, labels) = data(600, 16, 1.2);
    let vectors = Vectors::new(&data, 16, Metric::Cosine).unwrap();
    let found = Search::default().evaluate(&vectors, &labels, 30).unwrap();
    assert_eq!(found.classes, 10);
    let known: Vec<u32> = vectors.finite().filter(|&row| labels[row as usize].is_some()).collect();
    let mut right = [0.0; 5];
    for row in 0..600 {
        let others = known.iter().filter(|&&other| other != row);
        let mut near: Vec<_> = others.map(|&other| (vectors.score(row, &vectors, other), other)).collect();
        near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let is_same = |other: u32| labels[other as usize] == labels[row as usize];
        let same = near.iter().filter(|near| is_same(near.1)).count();
        let counts = known.contains(&row) && same > 0;
        assert_eq!(found.probe.of(row as usize).is_some(), counts);
        if !counts {
            assert!([&found.recall_1, &found.map_at_r, &found.knn].iter().all(|f| f.of(row as usize).is_none()));
            continue;
        }
        let recall = |k: usize| f64::from(u8::from(near[..k].iter().any(|near| is_same(near.1))));
        let r = same.min(30);
        let precision = |k: usize| near[..k].iter().filter(|near| is_same(near.1)).count() as f64 / k as f64;
        let average = (1..=r).filter(|&k| is_same(near[k - 1].1)).map(precision).sum::<f64>() / r as f64;
        let mut votes = std::collections::BTreeMap::<_, f64>::new();
        near[..20].iter().for_each(|near| *votes.entry(labels[near.1 as usize]).or_default() += (near.0 / 0.07).exp());
        let vote = *votes.iter().max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0;
        let expected = [recall(1), recall(5), recall(10), average, f64::from(u8::from(vote == labels[row as usize]))];
        let figures = [&found.recall_1, &found.recall_5, &found.recall_10, &found.map_at_r, &found.knn];
        for ((figure, expected), right) in figures.into_iter().zip(expected).zip(&mut right) {
            assert!((figure.of(row as usize).unwrap() - expected).abs() < 1e-6);
            *right += expected;
        }
    }
    let rows = found.knn.rows as f64;
    assert!(
        (found.recall_1.mean - right[0] / rows).abs() < 1e-9 && (found.map_at_r.mean - right[3] / rows).abs() < 1e-6
    );
    let all = [&found.recall_1, &found.recall_5, &found.recall_10, &found.map_at_r, &found.knn, &found.probe];
    assert!(all.iter().all(|figure| figure.low < figure.mean && figure.mean < figure.high && figure.rows > 400));
}

#[test]
fn a_linear_model_finds_what_is_linear() {
    let (data, labels) = data(600, 16, 0.4);
    let search = |threads: usize| Search { threads, ..Search::default() };
    let vectors = Vectors::new(&data, 16, Metric::Cosine).unwrap();
    let found = search(2).evaluate(&vectors, &labels, 1000).unwrap();
    let again = search(1).evaluate(&vectors, &labels, 1000).unwrap();
    assert!((0..600).all(|row| found.probe.of(row) == again.probe.of(row)));
    // One label of eleven is wrong, but for those of label 4.
    assert!((0.87..0.95).contains(&found.probe.mean), "{:?}", found.probe.mean);
    let mut random = fastrand::Rng::with_seed(7);
    let chance: Vec<_> = labels.iter().map(|label| label.map(|_| random.u32(..10))).collect();
    let by_chance = search(2).evaluate(&vectors, &chance, 1000).unwrap();
    assert!((0.04..0.14).contains(&by_chance.probe.mean), "{}", by_chance.probe.mean);
    let paired = difference(&found.probe, &by_chance.probe);
    assert!((paired.mean - (found.probe.mean - by_chance.probe.mean)).abs() < 0.01 && paired.low > 0.6);
}

#[test]
fn labels_that_say_nothing_have_no_figures() {
    let data = [1.0, 0.0, 0.0, 1.0_f32];
    let vectors = Vectors::new(&data, 2, Metric::Cosine).unwrap();
    for labels in [[None, None], [Some(1), Some(2)], [Some(1), None]] {
        let found = Search::default().evaluate(&vectors, &labels, 10).unwrap();
        assert!(found.classes == 0 && found.probe.rows == 0 && found.knn.mean.is_nan());
    }
    let found = Search::default().evaluate(&vectors, &[Some(3), Some(3)], 10).unwrap();
    assert_eq!((found.recall_1.mean, found.map_at_r.mean, found.probe.mean), (1.0, 1.0, 1.0));
    let error = Search::default().evaluate(&vectors, &[None], 10).err().unwrap();
    assert_eq!(error.to_string(), "1 labels are not those of 2 rows");
    let cancelled = Search { is_cancelled: &|| true, ..Search::default() };
    assert!(cancelled.evaluate(&vectors, &[None, None], 10).is_err());
}

/// Image 2 has two texts, of which the second is nearer to image 0; image 3 has none.
#[test]
fn retrieval_counts_any_text_of_an_image() {
    let images = [1.0, 0.0, 0.0, 1.0, 0.6, 0.8, -1.0, 0.0];
    let texts = [1.0, 0.1, 0.1, 1.0, 0.6, 0.8, 1.0, 0.05];
    let images = Vectors::new(&images, 2, Metric::Cosine).unwrap();
    let texts = Vectors::new(&texts, 2, Metric::Cosine).unwrap();
    let found = Search::default().retrieval(&texts, &images, &[0, 1, 2, 2]).unwrap();
    let means: Vec<(&str, f64, usize)> = found.iter().map(|(name, figure)| (*name, figure.mean, figure.rows)).collect();
    assert_eq!(means[0], ("text → image recall@1", 0.75, 4));
    assert_eq!(means[1], ("text → image recall@5", 1.0, 4));
    assert_eq!((means[3].1, means[3].2), (2.0 / 3.0, 3), "the nearest text of image 0 is one of image 2");
}
