//! Median and spread of measured values.

/// Median, minimum and maximum of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle value; for an even number of values, the mean of the two middle ones.
    pub median: f64,
    /// The least value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Spread {
    /// The spread of `values`; `None` without any.
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        let &min = sorted.first()?;
        let &max = sorted.last()?;
        Some(Self { median: between(&sorted, 0.5), min, max })
    }
}

/// The middle value; for an even number of values, the mean of the two middle ones. `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The value below which a share `q` (0..=1) of `values` lies, interpolated linearly between the two nearest ones;
/// `None` without values.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    (!values.is_empty()).then(|| between(&sorted(values), q))
}

/// The mean; `None` without values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The variance of the distribution that `values` are drawn from, with n − 1; `None` for fewer than two values.
pub fn variance(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| squares / (values.len() - 1) as f64)
}

/// The interval that contains another value like `values` with a probability of 95 %, if they are normally distributed:
/// mean ± t · s · √(1 + 1/n), s with n − 1. `None` for fewer than two values.
pub fn prediction_interval(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len() as f64;
    let mean = mean(values)?;
    let variance = variance(values)?;
    let half = t_975(values.len() - 1)? * (variance * (1.0 + 1.0 / n)).sqrt();
    Some((mean - half, mean + half))
}

/// The 97.5 % quantile of Student's t distribution; `None` for no degrees of freedom. Up to ten it comes from the usual
/// table, to three decimals. Beyond, it comes from the first terms of its expansion in 1/freedom around the normal
/// quantile (Abramowitz and Stegun, 26.7.5), with an error below 0.001.
pub fn t_975(freedom: usize) -> Option<f64> {
    const TABLE: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    if let Some(known) = TABLE.get(freedom.checked_sub(1)?) {
        return Some(*known);
    }
    let z: f64 = 1.959_964;
    let v = freedom as f64;
    let terms = [
        z.powi(3) + z,
        5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z,
        3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z,
    ];
    Some(z + terms[0] / (4.0 * v) + terms[1] / (96.0 * v * v) + terms[2] / (384.0 * v * v * v))
}

/// The upper end of the one-sided Clopper–Pearson interval of a share that `hits` of `n` draws hit: the share at which
/// so few hits have a probability of 1 − `confidence`. It is 1 if every draw is a hit, or there are no draws.
pub fn share_at_most(hits: usize, n: usize, confidence: f64) -> f64 {
    const HALVINGS: usize = 60;
    let alpha = 1.0 - confidence;
    match hits {
        hits if hits >= n => 1.0,
        0 => 1.0 - alpha.powf(1.0 / n as f64),
        hits => {
            let mut low = 0.0;
            let mut high = 1.0;
            for _ in 0..HALVINGS {
                let middle = f64::midpoint(low, high);
                if at_most(hits, n, middle) > alpha { low = middle } else { high = middle }
            }
            high
        }
    }
}

/// The probability of at most `hits` hits in `n` draws of a share, 0 < `share` < 1.
fn at_most(hits: usize, n: usize, share: f64) -> f64 {
    let mut log = n as f64 * (1.0 - share).ln();
    let mut sum = log.exp();
    for hit in 1..=hits {
        log += ((n + 1 - hit) as f64 / hit as f64).ln() + (share / (1.0 - share)).ln();
        sum += log.exp();
    }
    sum
}

/// The factor k of a one-sided normal tolerance bound: with `confidence`, at least `share` of a normal distribution
/// lies below the mean + k · s of `n` of its values. `None` for fewer than [`FEWEST_TOLERATED`].
///
/// This is Natrella's approximation (NIST/SEMATECH e-Handbook, 7.2.6.3). It is within 0.3 % from 50 values on. For
/// eight it is 1 % too small at 95 %, and 11 % too large at 99 %.
pub fn tolerance_factor(n: usize, share: f64, confidence: f64) -> Option<f64> {
    let z_share = normal_quantile(share);
    let z_confidence = normal_quantile(confidence);
    let a = 1.0 - z_confidence.powi(2) / (2.0 * (n.max(2) - 1) as f64);
    let b = z_share.powi(2) - z_confidence.powi(2) / n as f64;
    let root = (z_share.powi(2) - a * b).sqrt();
    (n >= FEWEST_TOLERATED).then(|| (z_share + root) / a)
}

/// Minimum number of values of a [`tolerance_factor`].
pub const FEWEST_TOLERATED: usize = 8;

/// The quantile of the normal distribution at `share`, 0.5 to 1, within 0.00045 (Abramowitz and Stegun, 26.2.23).
fn normal_quantile(share: f64) -> f64 {
    let t = (-2.0 * (1.0 - share).ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - above / below
}

/// The quantile of at least one value.
fn between(sorted: &[f64], q: f64) -> f64 {
    let at = q.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let below = sorted[at.floor() as usize];
    let above = sorted[at.ceil() as usize];
    below + (above - below) * at.fract()
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of(&[4.0, 1.0, 3.0, 2.0]).map(|spread| spread.median), Some(2.5));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn quantiles_lie_between_neighbours() {
        let values = [10.0, 30.0, 20.0];
        assert_eq!(
            [0.0, 0.25, 0.5, 1.0].map(|q| quantile(&values, q)),
            [Some(10.0), Some(15.0), Some(20.0), Some(30.0)]
        );
        assert_eq!((quantile(&[], 0.5), mean(&values)), (None, Some(20.0)));
    }

    /// Values from printed tables.
    #[test]
    fn t_is_as_tables_have_it() {
        let table = [(1, 12.706), (4, 2.776), (10, 2.228), (11, 2.201), (15, 2.131), (30, 2.042), (120, 1.980)];
        for (freedom, value) in table {
            assert!((t_975(freedom).unwrap() - value).abs() < 1e-3, "{freedom}: {:?}", t_975(freedom));
        }
        assert_eq!(t_975(0), None);
        assert!((t_975(1_000_000).unwrap() - 1.95996).abs() < 1e-5);
    }

    #[test]
    fn prediction_intervals_are_those_of_the_formula() {
        // Mean 4, s 2 (squares 4 + 0 + 4 over 2), t 4.303, √(4/3).
        let (low, high) = prediction_interval(&[2.0, 4.0, 6.0]).unwrap();
        let half = 4.303 * 2.0 * (4.0_f64 / 3.0).sqrt();
        assert!((low - (4.0 - half)).abs() < 1e-9 && (high - (4.0 + half)).abs() < 1e-9);
        assert_eq!((prediction_interval(&[1.0]), prediction_interval(&[])), (None, None));
    }

    /// Values from printed tables: shares that k hits of n allow at 95 %, and one-sided tolerance factors.
    #[test]
    fn bounds_are_as_tables_have_them() {
        for (hits, n, share) in [(0, 10, 0.2589), (0, 299, 0.00997), (1, 10, 0.3942), (2, 20, 0.2826), (5, 100, 0.1023)]
        {
            let bound = share_at_most(hits, n, 0.95);
            assert!((bound - share).abs() < 1e-4, "{hits} of {n}: {bound}");
        }
        assert_eq!([share_at_most(3, 3, 0.95), share_at_most(0, 0, 0.95)], [1.0, 1.0]);
        // Underflows unless it is computed by logarithms.
        assert!((share_at_most(1_000, 1_000_000, 0.95) - 0.001_054).abs() < 1e-5);
        let factors =
            [(8, 0.999, 5.688), (10, 0.99, 3.981), (50, 0.99, 2.862), (100, 0.999, 3.539)].map(|row| (row, 0.95));
        let strict = [(8, 0.9999, 9.024), (20, 0.9999, 5.974), (400, 0.9999, 4.073)].map(|row| (row, 0.99));
        for ((n, share, factor), confidence) in factors.into_iter().chain(strict) {
            let k = tolerance_factor(n, share, confidence).unwrap();
            assert!((0.985..=1.11).contains(&(k / factor)), "{n}: {k}");
            assert!(n < 50 || (k / factor - 1.0).abs() < 0.003, "{n}: {k}");
        }
        assert_eq!(tolerance_factor(FEWEST_TOLERATED - 1, 0.99, 0.95), None);
    }
}
