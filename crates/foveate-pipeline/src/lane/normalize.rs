/// The scaling of vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Normalize {
    /// As the model returns them.
    #[default]
    Off,
    /// Divided by their Euclidean length; a zero vector stays zero.
    L2,
}

impl Normalize {
    /// Both, the usual one first.
    pub const ALL: [Self; 2] = [Self::Off, Self::L2];

    /// The name on the command line and in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::L2 => "l2",
        }
    }

    /// Scales each row of `dim` components of `vectors` in place.
    pub fn apply(self, vectors: &mut [f32], dim: usize) {
        if self == Self::L2 && dim > 0 {
            vectors.chunks_exact_mut(dim).for_each(unit_length);
        }
    }
}

/// Sums the squares in f64, so that the order of summation does not affect the result.
fn unit_length(row: &mut [f32]) {
    let length = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
    if length > 0.0 {
        row.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_length_leaves_zero_vectors_alone() {
        let mut rows = [3.0, 4.0, 0.0, 0.0];
        Normalize::L2.apply(&mut rows, 2);
        assert_eq!(rows, [0.6, 0.8, 0.0, 0.0]);
    }
}
