use std::fmt;

/// Permitted distance of samples from the expected ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Its name in messages.
    pub name: &'static str,
    /// Largest difference of any sample, in steps.
    pub max: u8,
    /// Least share of the samples within one step.
    pub within_one: f64,
}

impl Tolerance {
    /// Every sample is equal.
    pub const EXACT: Self = Self { name: "exact", max: 0, within_one: 1.0 };

    /// No sample is more than one step off.
    pub const ONE_STEP: Self = Self { name: "one-step", max: 1, within_one: 1.0 };

    /// Within 1 step on at least 99.9 % of the samples and never more than 2: the `hf` recipe's limit against Pillow,
    /// from the same decoded pixels.
    pub const PILLOW_U8: Self = Self { name: "pillow-u8", max: 2, within_one: 0.999 };

    /// Returns the difference, or an error that names it if it is too large.
    ///
    /// # Panics
    /// If the images have different lengths.
    pub fn compare(&self, actual: &[u8], expected: &[u8]) -> Result<Difference, String> {
        let difference = Difference::between(actual, expected);
        if difference.max <= self.max && difference.within_one >= self.within_one {
            Ok(difference)
        } else {
            Err(format!("{difference}; '{}' allows {} and {:.2} %", self.name, self.max, 100.0 * self.within_one))
        }
    }

    /// Panics with `what` if samples are too far apart.
    #[track_caller]
    pub fn assert(&self, what: &str, actual: &[u8], expected: &[u8]) {
        if let Err(reason) = self.compare(actual, expected) {
            panic!("{what}: {reason}");
        }
    }
}

/// Distance of samples from the expected ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Largest difference of any sample, in steps.
    pub max: u8,
    /// Share of equal samples.
    pub equal: f64,
    /// Share of samples at most one step off.
    pub within_one: f64,
}

impl Difference {
    /// Compares two images of the same size.
    ///
    /// # Panics
    /// If the images have different lengths.
    pub fn between(actual: &[u8], expected: &[u8]) -> Self {
        assert_eq!(actual.len(), expected.len(), "images of different sizes");
        let steps = actual.iter().zip(expected).map(|(a, b)| a.abs_diff(*b));
        let [equal, within_one] =
            [0, 1].map(|limit| steps.clone().filter(|&step| step <= limit).count() as f64 / actual.len().max(1) as f64);
        Self { max: steps.max().unwrap_or(0), equal, within_one }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let equal = 100.0 * self.equal;
        let within_one = 100.0 * self.within_one;
        write!(f, "up to {} steps off, {within_one:.3} % within 1, {equal:.3} % equal", self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_counted() {
        let difference = Difference::between(&[10, 10, 10, 10], &[10, 11, 8, 10]);
        assert_eq!(difference, Difference { max: 2, equal: 0.5, within_one: 0.75 });
    }

    #[test]
    fn tolerances_refuse_what_is_beyond_them() {
        let expected = [100; 1000];
        let mut actual = expected;
        actual[0] = 101;
        assert!(Tolerance::EXACT.compare(&actual, &expected).is_err());
        Tolerance::PILLOW_U8.compare(&actual, &expected).unwrap();
        actual[0] = 102;
        Tolerance::PILLOW_U8.compare(&actual, &expected).unwrap();
        actual[1] = 102; // 99.8 % within 1
        assert!(Tolerance::PILLOW_U8.compare(&actual, &expected).is_err());
        actual = expected;
        actual[0] = 103;
        assert!(Tolerance::PILLOW_U8.compare(&actual, &expected).is_err());
    }
}
