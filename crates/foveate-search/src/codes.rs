use crate::Vectors;
use crate::basis::Basis;
use crate::vectors::{RowsOf, dot};

/// Rows in a block. Blocks are what is compared with each other.
pub(crate) const BLOCK: usize = 1024;
/// Codes are multiplied in words of four.
pub(crate) const WORD: usize = 4;
/// Rows are multiplied together by these.
const ROWS: usize = 4;
/// Rows that are projected together.
const TOGETHER: usize = 64;
/// The largest limit, so that no sum of three exceeds 32 bits.
const MOST: f64 = (1 << 25) as f64;
/// A bias with which every sum reaches its limit, unless the other one is [`NEVER`].
const MOST_BIAS: f64 = (1 << 27) as f64;
/// Steps of the second codes of leading directions in a step of the first.
pub(crate) const REFINED: i32 = 32;
/// A sum with this number is rounded to a whole one, which then is in its last bits.
const WHOLE: f64 = (3_u64 << 51) as f64;
/// A bias with which no sum reaches a limit.
pub(crate) const NEVER: i32 = -(1 << 29);
/// A limit that every other sum reaches.
const ALWAYS: i32 = -(1 << 28);

/// Turns vectors into codes of their coordinates in a basis.
pub(crate) struct CodeScale<'a> {
    pub(crate) basis: &'a Basis,
    /// Codes of a row: the basis' width, in whole words.
    pub(crate) width: usize,
    step: f64,
    /// Typical length of a row's errors, in lengths of its codes.
    error: f64,
}

/// Turns what [`CodeScale`] leaves of vectors into codes: the errors of its codes, then the vectors' rest in all
/// dimensions.
pub(crate) struct FineScale {
    /// Codes of a row that are of errors.
    pub(crate) leading: usize,
    /// Codes of a row.
    pub(crate) width: usize,
    step: f64,
    /// The square of the rest's step, in units.
    pub(crate) times: i32,
    /// As that of [`CodeScale`].
    error: f64,
    /// The step's square of all sums.
    unit: f64,
}

/// 8-bit codes of rows, and what bounds their scores.
///
/// The score of two rows is at most the unit times `product + bias_a + bias_b`.
#[derive(Default)]
pub(crate) struct Codes {
    /// `[rows, width]`, rows in whole tiles.
    pub(crate) codes: Vec<i8>,
    pub(crate) biases: Vec<i32>,
}

/// Squares of lengths.
#[derive(Clone, Copy)]
struct CodedSquares {
    /// Of what the codes stand for.
    kept: f64,
    /// Of the errors.
    error: f64,
}

impl CodedSquares {
    /// Turns numbers into codes, and leaves their errors.
    fn code(numbers: &mut [f64], step: f64, codes: &mut [i8]) -> Self {
        let mut squares = Self { kept: 0.0, error: 0.0 };
        let steps = step.recip();
        for (x, code) in numbers.iter_mut().zip(codes) {
            let rounded = (*x * steps).clamp(-127.0, 127.0) + WHOLE;
            *code = rounded.to_bits() as i8;
            let kept = (rounded - WHOLE) * step;
            *x -= kept;
            squares.kept += kept * kept;
            squares.error += *x * *x;
        }
        squares
    }

    /// Lengths of errors in lengths of codes, for [`part`](Self::part).
    fn ratio(self) -> f64 {
        (self.error / self.kept.max(f64::MIN_POSITIVE)).sqrt().clamp(1e-6, 1.0)
    }

    /// This row's part in a bound of how much the product of two rows exceeds that of their codes. With codes `c`,
    /// errors `e` and any `ratio`, `c_a·e_b <= (ratio |c_a|² + |e_b|² / ratio) / 2`.
    fn part(self, ratio: f64) -> f64 {
        (self.kept * ratio + self.error / ratio + self.error) / 2.0
    }
}

impl<'a> CodeScale<'a> {
    /// Chooses the step for some rows, of vectors that are at most as long as `longest`. Others are cut off at the
    /// largest code, which their errors count.
    pub(crate) fn of(basis: &'a Basis, vectors: &Vectors<'_>, rows: &[u32], longest: f64) -> Self {
        let width = basis.width.next_multiple_of(WORD);
        let mut leading = basis.rows(vectors, rows).leading;
        let largest = leading.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
        // No limit is more than the square of the longest vector, and no product more than four times of it.
        let least = (6.0 * f64::from(REFINED) * longest * longest / MOST).sqrt().max(f64::MIN_POSITIVE.sqrt());
        let step = (largest / 127.0).max(least);
        let codes = &mut vec![0; leading.len()];
        Self { basis, width, step, error: CodedSquares::code(&mut leading, step, codes).ratio() }
    }

    /// Codes of rows, and with `fine` those of what they leave.
    pub(crate) fn code(&self, of: RowsOf<'_, '_>, fine: Option<&FineScale>, threads: usize) -> [Codes; 2] {
        let rows = of.rows.len().next_multiple_of(ROWS);
        let fine_width = fine.map_or(0, |fine| fine.width);
        let mut coarse = Codes { codes: vec![0; rows * self.width], biases: vec![NEVER; rows] };
        let mut rest = Codes { codes: vec![0; rows * fine_width], biases: vec![NEVER; rows * fine_width.min(1)] };
        let share = of.rows.len().div_ceil(threads.max(1)).max(1);
        std::thread::scope(|scope| {
            let mut codes = coarse.codes.chunks_mut(share * self.width);
            let mut biases = coarse.biases.chunks_mut(share);
            let mut rest_codes = rest.codes.chunks_mut((share * fine_width).max(1));
            let mut rest_biases = rest.biases.chunks_mut(share);
            for rows in of.rows.chunks(share) {
                let codes = codes.next().unwrap_or_default();
                let biases = biases.next().unwrap_or_default();
                let rest_codes = rest_codes.next().unwrap_or_default();
                let rest_biases = rest_biases.next().unwrap_or_default();
                scope.spawn(move || {
                    for (first, rows) in (0..).step_by(TOGETHER).zip(rows.chunks(TOGETHER)) {
                        let mut projected = self.basis.rows(of.vectors, rows);
                        if fine.is_some() {
                            self.basis.subtract(&mut projected.vectors, &projected.leading);
                        }
                        let leading = projected.leading.chunks_exact_mut(self.basis.width);
                        let vectors = projected.vectors.chunks_exact_mut(of.vectors.dim());
                        for (at, ((leading, vector), left)) in leading.zip(vectors).zip(projected.rests).enumerate() {
                            let number = first + at;
                            let length = dot(leading, leading);
                            let codes = &mut codes[number * self.width..][..self.width];
                            let squares = CodedSquares::code(leading, self.step, codes);
                            // A little more than all rounding in f64.
                            let slack = 1e-10 * (left.along.abs() + left.tail_square + length);
                            let part = left.along + left.tail_square / 2.0 + squares.part(self.error);
                            biases[number] = bias((part + slack) / self.unit());
                            if let Some(fine) = fine {
                                let codes = &mut rest_codes[number * fine_width..][..fine_width];
                                let part = left.along + self.rest(fine, leading, length, vector, codes);
                                rest_biases[number] = bias((part + slack) / fine.unit);
                            }
                        }
                    }
                });
            }
        });
        [coarse, rest]
    }

    /// Turns the errors of a row's codes and its rest into codes, and returns their part in the bound. `length` is the
    /// square of what the row's first codes stand for with their errors.
    fn rest(&self, fine: &FineScale, errors: &mut [f64], length: f64, rest: &mut [f64], codes: &mut [i8]) -> f64 {
        let (of_errors, of_rest) = codes.split_at_mut(fine.leading);
        let seconds = CodedSquares::code(errors, self.step / f64::from(REFINED), of_errors);
        let both = (length.sqrt() + seconds.error.sqrt()).powi(2);
        let leading = CodedSquares { kept: both, error: seconds.error }.part(self.error / f64::from(REFINED));
        // The product of two rows' second codes is not computed.
        leading + seconds.kept / 2.0 + CodedSquares::code(rest, fine.step, of_rest).part(fine.error)
    }

    /// The sum of codes' products and biases that a pair with this score reaches.
    pub(crate) fn limit(&self, score: f64) -> i32 {
        limit(score / self.unit())
    }

    /// The limits of a block's rows; what is left of the block wants nothing.
    pub(crate) fn limits(&self, scores: impl Iterator<Item = f64>) -> Vec<i32> {
        limits(scores, self.unit())
    }

    /// The score that is one in products of codes.
    fn unit(&self) -> f64 {
        self.step * self.step
    }
}

impl FineScale {
    /// Chooses the steps for some rows.
    pub(crate) fn of(coarse: &CodeScale<'_>, vectors: &Vectors<'_>, rows: &[u32]) -> Self {
        let mut projected = coarse.basis.rows(vectors, rows);
        coarse.basis.subtract(&mut projected.vectors, &projected.leading);
        let largest = projected.vectors.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
        let unit = coarse.unit() / f64::from(REFINED);
        let times = (largest / 127.0).powi(2) / unit;
        let times = times.ceil().clamp(1.0, 1024.0);
        let step = (times * unit).sqrt();
        let codes = &mut vec![0; projected.vectors.len()];
        let squares = CodedSquares::code(&mut projected.vectors, step, codes);
        let width = coarse.width + vectors.dim().next_multiple_of(WORD);
        Self { leading: coarse.width, width, step, times: times as i32, error: squares.ratio(), unit }
    }

    #[cfg(test)]
    pub(crate) fn with_widths(leading: usize, width: usize, times: i32) -> Self {
        Self { leading, width, step: 1.0, times, error: 1.0, unit: 1.0 }
    }

    /// As those of [`CodeScale`].
    pub(crate) fn limits(&self, scores: impl Iterator<Item = f64>) -> Vec<i32> {
        limits(scores, self.unit)
    }
}

fn bias(units: f64) -> i32 {
    units.ceil().min(MOST_BIAS) as i32
}

fn limit(units: f64) -> i32 {
    (units.floor() as i32).max(ALWAYS)
}

fn limits(scores: impl Iterator<Item = f64>, unit: f64) -> Vec<i32> {
    let mut limits: Vec<i32> = scores.take(BLOCK).map(|score| limit(score / unit)).collect();
    limits.resize(BLOCK, i32::MAX);
    limits
}

impl Codes {
    /// Rows, padding included.
    pub(crate) fn len(&self) -> usize {
        self.biases.len()
    }
}
