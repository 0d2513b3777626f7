//! Fits lines to measured steps, and a store to measured requests.

use serde::{Deserialize, Serialize};

use crate::error::{at_least_one, positive};
use crate::{LinearStep, PlanError, Step, Storage, stats};

/// A line through measured steps, and its errors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepFit {
    /// The line.
    pub step: LinearStep,
    /// Median of |measured − line| ÷ measured.
    pub median_error: f64,
    /// Largest of |measured − line| ÷ measured.
    pub worst_error: f64,
}

impl StepFit {
    /// The line as a step.
    pub fn step(&self) -> Step {
        Step::Linear(self.step)
    }
}

/// Huber's constant: 95 % as efficient as plain least squares when the noise is normal.
const HUBER: f64 = 1.345;
/// The median of |x| of a standard normal variable is 1 ÷ this.
const MAD_TO_SIGMA: f64 = 1.4826;
const ROUNDS: usize = 50;

/// Fits `seconds = overhead + batch × per_item` to `(batch, seconds)` points; a batch may have several points.
///
/// Least squares of the *relative* residuals (weights 1 ÷ seconds²), because a timing's noise grows with the time and
/// small batches would otherwise not count. Robust: it begins with the Theil–Sen line (median of all slopes) and
/// reweights as Huber does, so that a stalled measurement among good ones hardly moves it. Neither coefficient is
/// negative: if the best line has a negative one, the result is the best line with that one at 0.
///
/// # Errors
/// [`PlanError`] with fewer than two different batches, a batch of 0, or seconds that are not positive and finite.
pub fn fit_step(points: &[(u32, f64)]) -> Result<StepFit, PlanError> {
    for &(batch, seconds) in points {
        at_least_one("a measured batch", batch)?;
        positive("the seconds of a measured batch", seconds)?;
    }
    let points: Vec<(f64, f64)> = points.iter().map(|&(batch, seconds)| (f64::from(batch), seconds)).collect();
    if points.iter().all(|point| point.0 == points[0].0) {
        return Err(PlanError::Impossible("a line needs steps of at least two different batches".to_owned()));
    }
    let mut line = theil_sen(&points);
    for _ in 0..ROUNDS {
        let errors = relative_errors(&points, line);
        let scale = (MAD_TO_SIGMA * median(&errors)).max(1e-12);
        let mut weighted = Vec::new();
        for (&(x, y), error) in points.iter().zip(errors) {
            weighted.push((x, y, (HUBER * scale / error.max(HUBER * scale)) / (y * y)));
        }
        line = weighted_line(&weighted);
    }
    let errors = relative_errors(&points, line);
    let worst_error = errors.iter().copied().fold(0.0, f64::max);
    Ok(StepFit { step: line, median_error: median(&errors), worst_error })
}

/// Measurements of a store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreRequests {
    /// Seconds of single requests for one byte.
    pub first_byte: Vec<f64>,
    /// Bytes and seconds of single requests for whole objects.
    pub whole: Vec<(f64, f64)>,
    /// Requests in flight, and the bytes per second of all of them together.
    pub together: Vec<(u32, f64)>,
}

/// Below this share of what Little's law gives, requests are taken to share a limit.
const SHARED: f64 = 0.8;
/// Share of the latency below which the time of the bytes cannot be told from it.
const NO_TIME: f64 = 0.05;

/// Fits a store's latency, bandwidth of a request, and limit of all requests together. It reads one object at a time.
///
/// The latency is the median request for one byte. The bandwidth is of the median request for an object, after that
/// time. If that cannot be told from none, it is the highest rate of all requests together. The limit is that rate, if
/// the most requests in flight gave clearly less than Little's law expects of them; otherwise no limit was seen.
///
/// # Errors
/// [`PlanError`] without a measurement of each kind, or for one that is not positive and finite.
pub fn fit_store(measured: &StoreRequests) -> Result<Storage, PlanError> {
    let StoreRequests { first_byte, whole, together } = measured;
    let latency = positive("the seconds of a request", stats::median(first_byte).ok_or_else(too_few_requests)?)?;
    for &(bytes, seconds) in whole {
        positive("the bytes of a request", bytes)?;
        positive("the seconds of a request", seconds)?;
    }
    let per_byte: Vec<f64> = whole.iter().map(|(bytes, seconds)| (seconds - latency).max(0.0) / bytes).collect();
    let per_byte = stats::median(&per_byte).ok_or_else(too_few_requests)?;
    let bytes = stats::mean(&whole.iter().map(|(bytes, _)| *bytes).collect::<Vec<_>>()).ok_or_else(too_few_requests)?;
    let &(most, last) = together.iter().max_by_key(|(requests, _)| *requests).ok_or_else(too_few_requests)?;
    let best = positive("the store's bytes per second", together.iter().map(|(_, rate)| *rate).fold(0.0, f64::max))?;
    let stream = if per_byte * bytes < NO_TIME * latency { best } else { 1.0 / per_byte };
    let alone = Storage::remote(latency, stream, 1);
    let expected = Storage { concurrency: most, ..alone }.images_per_second(bytes)? * bytes;
    let link_bytes_per_second = (last < SHARED * expected).then_some(best);
    Ok(Storage { link_bytes_per_second, ..alone })
}

fn relative_errors(points: &[(f64, f64)], line: LinearStep) -> Vec<f64> {
    points.iter().map(|&(x, y)| ((y - line.overhead - line.per_item * x) / y).abs()).collect()
}

/// The median of at least one value.
fn median(values: &[f64]) -> f64 {
    stats::median(values).unwrap_or(f64::NAN)
}

fn theil_sen(points: &[(f64, f64)]) -> LinearStep {
    let mut slopes = Vec::new();
    for (i, a) in points.iter().enumerate() {
        slopes.extend(points[..i].iter().filter(|b| b.0 != a.0).map(|b| (a.1 - b.1) / (a.0 - b.0)));
    }
    let per_item = median(&slopes);
    let overheads: Vec<f64> = points.iter().map(|&(x, y)| y - per_item * x).collect();
    LinearStep { overhead: median(&overheads), per_item }
}

fn too_few_requests() -> PlanError {
    PlanError::Impossible("a store's fit needs single requests and several at a time".to_owned())
}

/// Weighted least squares of `(x, y, weight)` with both coefficients at least zero.
fn weighted_line(points: &[(f64, f64, f64)]) -> LinearStep {
    let mut weight = 0.0;
    let mut mean_x = 0.0;
    let mut mean_y = 0.0;
    for (x, y, w) in points {
        weight += w;
        mean_x += w * x;
        mean_y += w * y;
    }
    mean_x /= weight;
    mean_y /= weight;
    let mut covariance = 0.0;
    let mut variance = 0.0;
    for (x, y, w) in points {
        covariance += w * ((x - mean_x) * (y - mean_y));
        variance += w * ((x - mean_x) * (x - mean_x));
    }
    let per_item = covariance / variance;
    let overhead = mean_y - per_item * mean_x;
    if per_item < 0.0 {
        LinearStep { overhead: mean_y, per_item: 0.0 }
    } else if overhead < 0.0 {
        let products: f64 = points.iter().map(|(x, y, w)| w * (x * y)).sum();
        let squares: f64 = points.iter().map(|(x, _, w)| w * (x * x)).sum();
        LinearStep { overhead: 0.0, per_item: products / squares }
    } else {
        LinearStep { overhead, per_item }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLISHED: [(u32, f64); 6] =
        [(32, 5.86e-3), (64, 6.70e-3), (128, 8.38e-3), (256, 11.74e-3), (512, 18.47e-3), (1024, 31.93e-3)];

    #[test]
    fn the_published_steps_are_a_line() {
        let fit = fit_step(&PUBLISHED).unwrap();
        assert!((fit.step.overhead - 5.02e-3).abs() < 0.01e-3, "{fit:?}");
        assert!((fit.step.per_item - 26.28e-6).abs() < 0.02e-6, "{fit:?}");
        assert!(fit.worst_error < 1e-3, "{fit:?}");
    }

    #[test]
    fn one_stalled_measurement_hardly_moves_it() {
        let mut points = PUBLISHED.to_vec();
        points.extend(PUBLISHED.map(|(batch, seconds)| (batch, seconds * 1.01)));
        points.push((64, 67e-3));
        let fit = fit_step(&points).unwrap();
        assert!((fit.step.overhead / 5.04e-3 - 1.0).abs() < 0.02, "{fit:?}");
        assert!((fit.step.per_item / 26.4e-6 - 1.0).abs() < 0.02, "{fit:?}");
        assert!(fit.worst_error > 0.8 && fit.median_error < 0.01, "{fit:?}");
    }

    #[test]
    fn coefficients_are_never_negative() {
        let falling = fit_step(&[(1, 2.0), (2, 1.5), (4, 1.0)]).unwrap();
        assert_eq!(falling.step.per_item, 0.0);
        let steep = fit_step(&[(1, 1.0), (2, 4.0), (4, 10.0)]).unwrap();
        assert_eq!(steep.step.overhead, 0.0);
        assert!(steep.step.per_item > 0.0);
    }

    /// Requests to a store of 100 ms, 30 MB/s per request and 60 MB/s at most, for objects of 300 kB.
    fn requests(most: u32) -> StoreRequests {
        let store = Storage { link_bytes_per_second: Some(60e6), ..Storage::remote(0.1, 30e6, 1) };
        let rate = |concurrency| Storage { concurrency, ..store }.images_per_second(300e3).unwrap() * 300e3;
        let numbers = [1, 4, 16, 64].into_iter().filter(|&number| number <= most);
        StoreRequests {
            first_byte: vec![0.1, 0.1, 0.4],
            whole: vec![(300e3, 0.11), (300e3, 0.11), (300e3, 0.9)],
            together: numbers.map(|number| (number, rate(number))).collect(),
        }
    }

    #[test]
    fn a_stores_latency_bandwidth_and_limit_come_out() {
        let fit = fit_store(&requests(64)).unwrap();
        assert!((fit.latency - 0.1).abs() < 1e-9 && (fit.stream_bytes_per_second / 30e6 - 1.0).abs() < 1e-9, "{fit:?}");
        assert!(fit.link_bytes_per_second.is_some_and(|limit| (limit / 60e6 - 1.0).abs() < 1e-9), "{fit:?}");
        assert_eq!(fit_store(&requests(16)).unwrap().link_bytes_per_second, None, "no limit was seen");
        // An answer of one byte may be as slow as one of all of them.
        let local = StoreRequests { whole: vec![(300e3, 0.09)], ..requests(4) };
        let best = local.together[1].1;
        assert_eq!(fit_store(&local).unwrap().stream_bytes_per_second, best);
        for missing in [
            StoreRequests { first_byte: Vec::new(), ..requests(4) },
            StoreRequests { whole: Vec::new(), ..requests(4) },
            StoreRequests { together: Vec::new(), ..requests(4) },
            StoreRequests { whole: vec![(0.0, 0.1)], ..requests(4) },
        ] {
            assert!(fit_store(&missing).is_err(), "{missing:?}");
        }
    }

    #[test]
    fn too_little_is_refused() {
        for points in [&[][..], &[(8, 1.0)], &[(8, 1.0), (8, 1.1)], &[(0, 1.0), (8, 1.0)], &[(4, 1.0), (8, f64::NAN)]] {
            assert!(fit_step(points).is_err(), "{points:?}");
        }
    }
}
