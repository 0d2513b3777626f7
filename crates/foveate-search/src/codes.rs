use crate::Vectors;
use crate::basis::Basis;
use crate::search::joined;
use crate::vectors::RowsOf;

/// Rows in a block. Blocks are what is compared with each other.
pub(crate) const BLOCK: usize = 1024;
/// Codes are multiplied in words of four.
pub(crate) const WORD: usize = 4;
/// Rows are multiplied together by these.
const ROWS: usize = 4;
/// The largest bias and limit, so that no sum of three exceeds 32 bits.
const MOST: f64 = (1 << 25) as f64;
/// A sum with this number is rounded to a whole one, which then is in its last bits.
const WHOLE: f64 = (3_u64 << 51) as f64;
/// A bias with which no sum reaches a limit.
pub(crate) const NEVER: i32 = -(1 << 29);
/// A limit that every other sum reaches.
const ALWAYS: i32 = -(1 << 28);

/// Turns numbers into codes.
pub(crate) struct CodeScale<'a> {
    pub(crate) basis: &'a Basis,
    /// Codes of a row: the basis' width, in whole words.
    pub(crate) width: usize,
    step: f64,
}

/// 8-bit codes of rows, and what bounds their scores.
///
/// The score of two rows is at most `step² (q_a·q_b + bias_a + bias_b)`.
#[derive(Default)]
pub(crate) struct Codes {
    /// `[rows, width]`, rows in whole tiles.
    pub(crate) codes: Vec<i8>,
    pub(crate) biases: Vec<i32>,
}

/// Rows before the largest code of all of them is known.
struct Bounded {
    codes: Vec<i8>,
    /// Of each row, the error of its codes, and its part of the bound without that.
    parts: Vec<(f64, f64)>,
    /// The largest length of a row of codes.
    longest: f64,
}

impl<'a> CodeScale<'a> {
    /// Chooses the step for some rows, of vectors that are at most as long as `longest`. Others are cut off at the
    /// largest code, which their errors count.
    pub(crate) fn of(basis: &'a Basis, vectors: &Vectors<'_>, rows: &[u32], longest: f64) -> Self {
        let mut vector = vec![0.0; vectors.dim()];
        let mut projected = vec![0.0; basis.width];
        let mut largest = 0.0_f64;
        for &row in rows {
            vectors.scaled(row, &mut vector);
            basis.project(&mut vector, &mut projected);
            largest = projected.iter().fold(largest, |largest, x| largest.max(x.abs()));
        }
        // No bias is more than six times the square of the longest vector.
        let least = (6.0 * longest * longest / MOST).sqrt().max(f64::MIN_POSITIVE.sqrt());
        Self { basis, width: basis.width.next_multiple_of(WORD), step: (largest / 127.0).max(least) }
    }

    /// Codes of rows that are compared with each other, and with other rows.
    pub(crate) fn both(&self, sides: [RowsOf<'_, '_>; 2], threads: usize) -> [Codes; 2] {
        let coded = sides.map(|side| self.code(side.vectors, side.rows, threads));
        let longest = coded[0].longest.max(coded[1].longest);
        coded.map(|Bounded { codes, parts, .. }| {
            let mut biases = vec![NEVER; codes.len() / self.width];
            for (bias, (error, part)) in biases.iter_mut().zip(parts) {
                *bias = self.units(part + longest * error).ceil() as i32;
            }
            Codes { codes, biases }
        })
    }

    fn code(&self, vectors: &Vectors<'_>, rows: &[u32], threads: usize) -> Bounded {
        let mut codes = vec![0; rows.len().next_multiple_of(ROWS) * self.width];
        let mut parts = vec![(0.0, 0.0); rows.len()];
        let share = rows.len().div_ceil(threads.max(1)).max(1);
        let longest = std::thread::scope(|scope| {
            let shares = rows.chunks(share).zip(codes.chunks_mut(share * self.width)).zip(parts.chunks_mut(share));
            let threads: Vec<_> = shares
                .map(|((rows, codes), parts)| scope.spawn(move || self.code_share(vectors, rows, codes, parts)))
                .collect();
            threads.into_iter().map(joined).fold(0.0, f64::max)
        });
        Bounded { codes, parts, longest }
    }

    /// Returns the largest length of a row of codes.
    fn code_share(&self, vectors: &Vectors<'_>, rows: &[u32], codes: &mut [i8], parts: &mut [(f64, f64)]) -> f64 {
        let mut vector = vec![0.0; vectors.dim()];
        let mut projected = vec![0.0; self.basis.width];
        let mut longest = 0.0_f64;
        for ((&row, codes), part) in rows.iter().zip(codes.chunks_exact_mut(self.width)).zip(parts) {
            vectors.scaled(row, &mut vector);
            let rest = self.basis.project(&mut vector, &mut projected);
            let mut error = 0.0;
            let mut length = 0.0;
            for (code, &x) in codes.iter_mut().zip(&projected) {
                let rounded = (x / self.step).clamp(-127.0, 127.0) + WHOLE;
                *code = rounded.to_bits() as i8;
                let kept = (rounded - WHOLE) * self.step;
                error += (x - kept) * (x - kept);
                length += kept * kept;
            }
            longest = longest.max(length.sqrt());
            // A little more than all rounding in f64.
            let slack = 1e-10 * (rest.along.abs() + rest.tail_square + length);
            *part = (error.sqrt(), rest.along + rest.tail_square / 2.0 + error / 2.0 + slack);
        }
        longest
    }

    /// The sum of codes' products and biases that a pair with this score reaches.
    pub(crate) fn limit(&self, score: f64) -> i32 {
        if score == f64::NEG_INFINITY { ALWAYS } else { (self.units(score).floor() as i32).max(ALWAYS) }
    }

    /// The limits of a block's rows; what is left of the block wants nothing.
    pub(crate) fn limits(&self, scores: impl Iterator<Item = f64>) -> Vec<i32> {
        let mut limits: Vec<i32> = scores.take(BLOCK).map(|score| self.limit(score)).collect();
        limits.resize(BLOCK, i32::MAX);
        limits
    }

    fn units(&self, score: f64) -> f64 {
        score / (self.step * self.step)
    }
}

impl Codes {
    /// Rows, padding included.
    pub(crate) fn len(&self) -> usize {
        self.biases.len()
    }
}
