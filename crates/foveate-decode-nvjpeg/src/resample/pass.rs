//! The kernels' input: passes over images, and the tables that these share.

use std::collections::HashMap;

use foveate_core::{CHANNELS, Size};
use foveate_decode::Orientation;
use foveate_resize::axis::Axis;
use foveate_resize::opencv_linear::{Edge, tap};
use foveate_resize::{Placement, ResizePlan};

use super::recipe::{Method, Order, Recipe};
use super::taps::{Kernel, Taps};

/// The layout of upright pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Source {
    in_tables: bool,
    /// The offset of pixel (0, 0), in bytes.
    start: i64,
    /// The distance to the pixel on the right, and to the one below, in bytes.
    step: [i64; 2],
    size: Size,
}

impl Source {
    /// The layout of an image of `stored` size in the arena that `turn` makes upright.
    pub(crate) fn turned(offset: usize, stored: Size, turn: Orientation) -> Self {
        use Orientation::{FlipHorizontal, FlipVertical, Rotate90, Rotate180, Rotate270, Transverse};
        let (pixel, row) = (CHANNELS as i64, i64::from(stored.width) * CHANNELS as i64);
        let mut start = offset as i64;
        let mut along = |step: i64, len: u32, backwards: bool| {
            if backwards {
                start += step * (i64::from(len) - 1);
            }
            if backwards { -step } else { step }
        };
        let column = along(pixel, stored.width, matches!(turn, FlipHorizontal | Rotate180 | Transverse | Rotate270));
        let row = along(row, stored.height, matches!(turn, FlipVertical | Rotate180 | Transverse | Rotate90));
        let step = if turn.transposes() { [row, column] } else { [column, row] };
        Self { in_tables: false, start, step, size: turn.apply_size(stored) }
    }

    fn upright(in_tables: bool, offset: usize, size: Size) -> Self {
        Self { in_tables, ..Self::turned(offset, size, Orientation::Normal) }
    }

    /// The part from column `x` and row `y` on.
    fn from(self, [x, y]: [u32; 2]) -> Self {
        let start = self.start + i64::from(x) * self.step[0] + i64::from(y) * self.step[1];
        Self { start, size: Size::new(self.size.width - x, self.size.height - y), ..self }
    }

    /// The offset of its first byte, and the one behind its last.
    fn reach(&self) -> [i64; 2] {
        let far = [self.size.width, self.size.height].map(|len| i64::from(len) - 1);
        let ends = [0, 1].map(|axis| self.step[axis] * far[axis]);
        let (before, behind) = ends.iter().partition::<Vec<i64>, _>(|&&end| end < 0);
        [self.start + before.iter().sum::<i64>(), self.start + behind.iter().sum::<i64>() + CHANNELS as i64]
    }
}

/// The destination of a pass.
#[derive(Clone, Copy, Debug)]
struct Goal {
    to_out: bool,
    offset: usize,
    size: Size,
    place: Placement,
}

/// One image in one pass: `Pass` in `resize.cu`.
#[derive(Debug)]
pub(crate) struct Pass {
    source: Source,
    goal: Goal,
    down: bool,
    /// The offsets of its tables, behind the passes.
    tables: [usize; 2],
    window: usize,
    precision: u32,
}

/// The number of `long long`s of a pass.
const WORDS: usize = 18;

impl Pass {
    pub(crate) const BYTES: usize = WORDS * 8;

    pub(crate) fn pixels(&self) -> u64 {
        self.goal.size.pixels()
    }

    /// Returns the pass in the kernels' form, with `base` bytes of passes before the tables.
    fn words(&self, base: usize) -> [i64; WORDS] {
        let (Source { in_tables, start, step, .. }, Goal { to_out, offset, size, place }) = (self.source, self.goal);
        let start = if in_tables { start + base as i64 } else { start };
        let [taps, weights] = self.tables.map(|at| (base + at) as i64);
        let wide = |size: Size| [i64::from(size.width), i64::from(size.height)];
        let ([width, height], [place_width, place_height]) = (wide(size), wide(place.size));
        [
            in_tables.into(),
            start,
            step[0],
            step[1],
            to_out.into(),
            offset as i64,
            width * CHANNELS as i64,
            width,
            height,
            place.x.into(),
            place.y.into(),
            place_width,
            place_height,
            self.down.into(),
            taps,
            weights,
            self.window as i64,
            self.precision.into(),
        ]
    }

    /// Whether it stays within memory of these sizes.
    pub(crate) fn fits(&self, tables: usize, arena: usize, out: usize) -> bool {
        let [first, end] = self.source.reach();
        let readable = if self.source.in_tables { tables } else { arena };
        let writable = if self.goal.to_out { out } else { arena };
        let made = self.goal.size.rgb_len().and_then(|len| len.checked_add(self.goal.offset));
        first >= 0 && end <= readable as i64 && made.is_some_and(|end| end <= writable)
    }
}

/// The passes of some images, and their tables.
#[derive(Default)]
pub(crate) struct ResampleBatch {
    /// `resample` into the arena.
    pub(crate) first: Vec<Pass>,
    /// `interpolate` into the output.
    pub(crate) linear: Vec<Pass>,
    /// `resample` into the output.
    pub(crate) last: Vec<Pass>,
    data: Vec<u8>,
    known: HashMap<[u64; 4], Convolution>,
}

/// The location of a convolution's taps.
#[derive(Clone, Copy)]
struct Convolution {
    tables: [usize; 2],
    window: usize,
    precision: u32,
}

impl ResampleBatch {
    /// Adds a decoded image, whose output begins at `out`, and whose intermediate image begins at `between`.
    pub(crate) fn add(&mut self, recipe: &Recipe, source: Source, between: usize, out: usize) {
        let goal = |plan: &ResizePlan| Goal { to_out: true, offset: out, size: plan.output, place: plan.placement };
        let kernel = match recipe.method {
            Method::Interpolation => return self.interpolate(recipe, source, goal(&recipe.plan)),
            Method::Convolution(kernel) => kernel,
        };
        let source = match recipe.order(kernel) {
            Order::Once { axis, down, skip } => {
                let pass = self.pass(source.from(skip), goal(&recipe.plan), axis, down, kernel);
                return self.last.push(pass);
            }
            Order::Twice { axis, down, skip, size, then } => {
                let goal = Goal { to_out: false, offset: between, size, place: Placement::whole(size) };
                let pass = self.pass(source.from(skip), goal, axis, down, kernel);
                self.first.push(pass);
                (Source::upright(false, between, size), then, !down)
            }
        };
        let (source, axis, down) = source;
        let pass = self.pass(source, goal(&recipe.plan), axis, down, kernel);
        self.last.push(pass);
    }

    /// Adds a finished image, `[height, width, 3]`, whose output begins at `out`.
    pub(crate) fn add_ready(&mut self, pixels: &[u8], size: Size, out: usize) {
        let source = Source::upright(true, self.data.len(), size);
        self.data.extend_from_slice(pixels);
        let goal = Goal { to_out: true, offset: out, size, place: Placement::whole(size) };
        let Convolution { tables, window, precision } =
            self.convolution([u64::from(size.width), 0, 0, 0], || Taps::copy(0, size.width));
        self.last.push(Pass { source, goal, down: false, tables, window, precision });
    }

    fn pass(&mut self, source: Source, goal: Goal, axis: Axis, down: bool, kernel: Kernel) -> Pass {
        let sides = u64::from(axis.whole) << 32 | u64::from(axis.target);
        let key = [axis.at.to_bits(), axis.len.to_bits(), sides, kernel.support.to_bits()];
        let Convolution { tables, window, precision } = self.convolution(key, || {
            if axis.is_copy() { Taps::copy(axis.at as u32, axis.target) } else { Taps::convolution(axis, kernel) }
        });
        Pass { source, goal, down, tables, window, precision }
    }

    /// Returns the location of these taps, and computes them at first use.
    fn convolution(&mut self, key: [u64; 4], compute: impl FnOnce() -> Taps) -> Convolution {
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let Taps { runs, weights, window, precision } = compute();
        let taps = self.table(runs.iter().flatten().flat_map(|number| number.to_le_bytes()));
        let weights = self.table(weights.iter().flat_map(|weight| weight.to_le_bytes()));
        let convolution = Convolution { tables: [taps, weights], window, precision };
        self.known.insert(key, convolution);
        convolution
    }

    fn interpolate(&mut self, recipe: &Recipe, source: Source, goal: Goal) {
        let [x, y] = recipe.axes();
        let tables = [(x, Edge::Snap), (y, Edge::Repeat)].map(|(axis, edge)| {
            self.table((0..axis.target).flat_map(|target| {
                let tap = tap(axis, target, edge);
                let [first, second] = tap.weights.map(i32::from);
                [tap.first.cast_signed(), tap.second.cast_signed(), first, second].map(i32::to_le_bytes).concat()
            }))
        });
        self.linear.push(Pass { source, goal, down: false, tables, window: 0, precision: 0 });
    }

    /// Appends a table, aligned to eight bytes.
    fn table(&mut self, bytes: impl Iterator<Item = u8>) -> usize {
        self.data.resize(self.data.len().next_multiple_of(8), 0);
        let start = self.data.len();
        self.data.extend(bytes);
        start
    }

    pub(crate) fn passes(&self) -> impl Iterator<Item = &Pass> {
        self.first.iter().chain(&self.linear).chain(&self.last)
    }

    /// The size of the passes and tables in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.base() + self.data.len()
    }

    fn base(&self) -> usize {
        self.passes().count() * Pass::BYTES
    }

    /// Writes the passes, first to last, and the tables behind them, to the start of `to`, which has room for them.
    pub(crate) fn write(&self, to: &mut [u8]) {
        let base = self.base();
        let (passes, rest) = to.split_at_mut(base);
        for (pass, place) in self.passes().zip(passes.chunks_exact_mut(Pass::BYTES)) {
            for (word, place) in pass.words(base).iter().zip(place.chunks_exact_mut(8)) {
                place.copy_from_slice(&word.to_le_bytes());
            }
        }
        rest[..self.data.len()].copy_from_slice(&self.data);
    }
}

#[cfg(test)]
mod tests {
    use foveate_core::PixelBuf;

    use super::*;

    /// The steps move pixels where `Orientation::apply` does.
    #[test]
    fn every_turn_is_in_the_steps() {
        let stored = Size::new(3, 2);
        for turn in Orientation::ALL {
            let (mut pixels, mut scratch) = (PixelBuf::default(), PixelBuf::default());
            for (number, sample) in (0..).zip(pixels.reset(stored).unwrap()) {
                *sample = number;
            }
            let bytes = pixels.as_slice().to_vec();
            turn.apply(&mut pixels, &mut scratch).unwrap();
            let source = Source::turned(0, stored, turn);
            assert_eq!((source.size, source.reach()), (pixels.size(), [0, 18]), "{turn:?}");
            for y in 0..source.size.height {
                for x in 0..source.size.width {
                    let at = source.from([x, y]).start as usize;
                    assert_eq!(bytes[at..at + 3], pixels.view().pixel(x, y), "{turn:?} ({x}, {y})");
                }
            }
        }
    }

    #[test]
    fn what_leaves_its_memory_does_not_fit() {
        let mut job = ResampleBatch::default();
        job.add_ready(&[7; 12], Size::square(2), 12);
        let pass = &job.last[0];
        assert!(pass.fits(12, 0, 24) && !pass.fits(11, 99, 24) && !pass.fits(12, 99, 23));
    }
}
