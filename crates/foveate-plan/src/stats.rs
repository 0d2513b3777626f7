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
        let (&min, &max) = (sorted.first()?, sorted.last()?);
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

/// The interval that contains another value like `values` with a probability of 95 %, if they are normally distributed:
/// mean ± t · s · √(1 + 1/n), s with n − 1. `None` for fewer than two values.
pub fn prediction_interval(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len() as f64;
    let (mean, freedom) = (mean(values)?, values.len() - 1);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let half = t_975(freedom)? * (squares / freedom as f64 * (1.0 + 1.0 / n)).sqrt();
    Some((mean - half, mean + half))
}

/// The 97.5 % quantile of Student's t distribution; `None` for no degrees of freedom. Up to ten it comes from the usual
/// table, to three decimals. Beyond, it comes from the first terms of its expansion in 1/freedom around the normal
/// quantile (Abramowitz and Stegun, 26.7.5), with an error below 0.001.
pub fn t_975(freedom: usize) -> Option<f64> {
    const TABLE: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    let at = freedom.checked_sub(1)?;
    let z: f64 = 1.959_964;
    let expansion = || {
        let v = freedom as f64;
        let terms = [
            z.powi(3) + z,
            5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z,
            3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z,
        ];
        z + terms[0] / (4.0 * v) + terms[1] / (96.0 * v * v) + terms[2] / (384.0 * v * v * v)
    };
    Some(TABLE.get(at).copied().unwrap_or_else(expansion))
}

/// The quantile of at least one value.
fn between(sorted: &[f64], q: f64) -> f64 {
    let at = q.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
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
}
