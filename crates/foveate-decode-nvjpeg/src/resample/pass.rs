//! The kernels' input: passes over images, and the tables that these share.

use std::collections::HashMap;

use foveate_core::{CHANNELS, Size};
use foveate_decode::Orientation;
use foveate_resize::Placement;
use foveate_resize::axis::Axis;
use foveate_resize::opencv_linear::{Edge, tap};

use super::arena::{SLACK, pitch};
use super::recipe::{Method, Order, ResampleRecipe};
use super::taps::{Kernel, Taps};

/// The layout of upright pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ResampleSource {
    in_tables: bool,
    /// The offset of pixel (0, 0), in bytes.
    start: i64,
    /// The distance to the pixel on the right, and to the one below, in bytes.
    step: [i64; 2],
    size: Size,
}

impl ResampleSource {
    /// The layout of an image of `stored` size in the arena that `turn` makes upright.
    pub(crate) fn turned(offset: usize, stored: Size, turn: Orientation) -> Self {
        Self::new(offset, stored, pitch(stored.width), turn)
    }

    fn new(offset: usize, stored: Size, pitch: usize, turn: Orientation) -> Self {
        use Orientation::{FlipHorizontal, FlipVertical, Rotate90, Rotate180, Rotate270, Transverse};
        let pixel = CHANNELS as i64;
        let mut start = offset as i64;
        let mut column = pixel;
        if matches!(turn, FlipHorizontal | Rotate180 | Transverse | Rotate270) {
            start += pixel * (i64::from(stored.width) - 1);
            column = -pixel;
        }
        let mut row = pitch as i64;
        if matches!(turn, FlipVertical | Rotate180 | Transverse | Rotate90) {
            start += row * (i64::from(stored.height) - 1);
            row = -row;
        }
        let step = if turn.transposes() { [row, column] } else { [column, row] };
        Self { in_tables: false, start, step, size: turn.apply_size(stored) }
    }

    /// The layout of an upright image in the tables, without padding.
    fn ready(offset: usize, size: Size) -> Self {
        let pitch = size.width as usize * CHANNELS;
        Self { in_tables: true, ..Self::new(offset, size, pitch, Orientation::Normal) }
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
    /// The distance between rows.
    pitch: usize,
    place: Placement,
}

impl Goal {
    /// The batch's image at `offset`.
    fn out(offset: usize, size: Size, place: Placement) -> Self {
        Self { to_out: true, offset, size, pitch: size.width as usize * CHANNELS, place }
    }

    /// The image between two passes.
    fn between(offset: usize, size: Size) -> Self {
        Self { to_out: false, offset, size, pitch: pitch(size.width), place: Placement::whole(size) }
    }
}

/// One image in one pass: `ResamplePass` in `resize.cu`.
#[derive(Debug)]
pub(crate) struct ResamplePass {
    source: ResampleSource,
    goal: Goal,
    down: bool,
    /// The offsets of its tables, behind the passes.
    tables: [usize; 2],
    window: usize,
    precision: u32,
}

/// The longest side of an image, whose rows the kernels count in 32 bits.
const LONGEST: u32 = 1 << 24;

/// The numbers of a pass's `long long`s and `int`s.
const NUMBERS: [usize; 2] = [4, 16];

impl ResamplePass {
    pub(crate) const BYTES: usize = NUMBERS[0] * 8 + NUMBERS[1] * 4;

    /// The number of threads that compute it.
    pub(crate) fn threads(&self) -> u64 {
        let Size { width, height } = self.goal.size;
        let columns = if self.down && self.is_wide() { self.words(width) } else { u64::from(width) };
        columns * u64::from(height)
    }

    /// The number of the source's words that a row of so many pixels is in.
    fn words(&self, width: u32) -> u64 {
        let lead = self.source.start.rem_euclid(4).unsigned_abs();
        (lead + u64::from(width) * CHANNELS as u64).div_ceil(4)
    }

    /// Returns true if its kernel reads four bytes at a time.
    fn is_wide(&self) -> bool {
        let ResampleSource { in_tables, step, .. } = self.source;
        let whole = !self.down || (step[1] % 4 == 0 && self.goal.place == Placement::whole(self.goal.size));
        step[0] == CHANNELS as i64 && !in_tables && whole
    }

    /// Writes the pass in the kernels' form, with `base` bytes of passes before the tables.
    fn write(&self, base: usize, to: &mut [u8]) {
        let ResampleSource { in_tables, start, step, .. } = self.source;
        let Goal { size, place, .. } = &self.goal;
        let start = if in_tables { start + base as i64 } else { start };
        let [taps, weights] = self.tables.map(|at| (base + at) as i64);
        let (offsets, ints) = to.split_at_mut(NUMBERS[0] * 8);
        for (number, place) in [start, self.goal.offset as i64, taps, weights].iter().zip(offsets.chunks_exact_mut(8)) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        // `fits` refuses larger sizes before a launch.
        let numbers: [i32; NUMBERS[1]] = [
            step[0] as i32,
            step[1] as i32,
            self.goal.pitch as i32,
            in_tables.into(),
            self.goal.to_out.into(),
            size.width as i32,
            size.height as i32,
            place.x as i32,
            place.y as i32,
            place.size.width as i32,
            place.size.height as i32,
            self.down.into(),
            self.is_wide().into(),
            self.window as i32,
            self.precision as i32,
            0,
        ];
        for (number, place) in numbers.iter().zip(ints.chunks_exact_mut(4)) {
            place.copy_from_slice(&number.to_le_bytes());
        }
    }

    /// Returns true if it stays within memory of these sizes.
    pub(crate) fn fits(&self, tables: usize, arena: usize, out: usize) -> bool {
        let [first, end] = self.source.reach();
        let readable = if self.source.in_tables { tables } else { arena };
        let writable = if self.goal.to_out { out } else { arena };
        let Goal { offset, size, pitch, .. } = self.goal;
        let behind = if self.is_wide() { SLACK as i64 } else { 0 };
        let made = pitch.checked_mul(size.height as usize).and_then(|len| len.checked_add(offset));
        let is_small = [size.width, size.height, self.source.size.width, self.source.size.height]
            .into_iter()
            .all(|side| side <= LONGEST);
        is_small && first >= 0 && end + behind <= readable as i64 && made.is_some_and(|end| end <= writable)
    }
}

/// The passes of some images, and their tables.
#[derive(Default)]
pub(crate) struct ResampleBatch {
    /// `resample` into the arena.
    pub(crate) first: Vec<ResamplePass>,
    /// `interpolate` into the output.
    pub(crate) linear: Vec<ResamplePass>,
    /// `resample` into the output.
    pub(crate) last: Vec<ResamplePass>,
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
    pub(crate) fn add(&mut self, recipe: &ResampleRecipe, source: ResampleSource, between: usize, out: usize) {
        let goal = Goal::out(out, recipe.plan.output, recipe.plan.placement);
        let kernel = match recipe.method {
            Method::Interpolation => return self.interpolate(recipe, source, goal),
            Method::Convolution(kernel) => kernel,
        };
        let source = match recipe.order(kernel) {
            Order::Once { axis, down, skip } => {
                let pass = self.pass(source.from(skip), goal, axis, down, kernel);
                return self.last.push(pass);
            }
            Order::Twice { axis, down, skip, size, then } => {
                let pass = self.pass(source.from(skip), Goal::between(between, size), axis, down, kernel);
                self.first.push(pass);
                (ResampleSource::turned(between, size, Orientation::Normal), then, !down)
            }
        };
        let (source, axis, down) = source;
        let pass = self.pass(source, goal, axis, down, kernel);
        self.last.push(pass);
    }

    /// Adds a finished image, `[height, width, 3]`, whose output begins at `out`.
    pub(crate) fn add_ready(&mut self, pixels: &[u8], size: Size, out: usize) {
        let source = ResampleSource::ready(self.data.len(), size);
        self.data.extend_from_slice(pixels);
        let goal = Goal::out(out, size, Placement::whole(size));
        let Convolution { tables, window, precision } =
            self.convolution([u64::from(size.width), 0, 0, 0], || Taps::copy(0, size.width));
        self.last.push(ResamplePass { source, goal, down: false, tables, window, precision });
    }

    fn pass(&mut self, source: ResampleSource, goal: Goal, axis: Axis, down: bool, kernel: Kernel) -> ResamplePass {
        let sides = u64::from(axis.whole) << 32 | u64::from(axis.target);
        let key = [axis.at.to_bits(), axis.len.to_bits(), sides, kernel.support.to_bits()];
        let Convolution { tables, window, precision } = self.convolution(key, || {
            if axis.is_copy() { Taps::copy(axis.at as u32, axis.target) } else { Taps::convolution(axis, kernel) }
        });
        ResamplePass { source, goal, down, tables, window, precision }
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

    fn interpolate(&mut self, recipe: &ResampleRecipe, source: ResampleSource, goal: Goal) {
        let [x, y] = recipe.axes();
        let tables = [(x, Edge::Snap), (y, Edge::Repeat)].map(|(axis, edge)| {
            self.table((0..axis.target).flat_map(|target| {
                let tap = tap(axis, target, edge);
                let [first, second] = tap.weights.map(i32::from);
                [tap.first.cast_signed(), tap.second.cast_signed(), first, second].map(i32::to_le_bytes).concat()
            }))
        });
        self.linear.push(ResamplePass { source, goal, down: false, tables, window: 0, precision: 0 });
    }

    /// Appends a table, aligned to eight bytes.
    fn table(&mut self, bytes: impl Iterator<Item = u8>) -> usize {
        self.data.resize(self.data.len().next_multiple_of(8), 0);
        let start = self.data.len();
        self.data.extend(bytes);
        start
    }

    pub(crate) fn passes(&self) -> impl Iterator<Item = &ResamplePass> {
        self.first.iter().chain(&self.linear).chain(&self.last)
    }

    /// The size of the passes and tables in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.base() + self.data.len()
    }

    fn base(&self) -> usize {
        self.passes().count() * ResamplePass::BYTES
    }

    /// Writes the passes, first to last, and the tables behind them, to the start of `to`, which has room for them.
    pub(crate) fn write(&self, to: &mut [u8]) {
        let base = self.base();
        let (passes, rest) = to.split_at_mut(base);
        for (pass, place) in self.passes().zip(passes.chunks_exact_mut(ResamplePass::BYTES)) {
            pass.write(base, place);
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
            let mut pixels = PixelBuf::default();
            let mut scratch = PixelBuf::default();
            for (number, sample) in (0..).zip(pixels.reset(stored).unwrap()) {
                *sample = number;
            }
            // Rows of nine bytes, twelve bytes apart.
            let bytes = pixels.as_slice().chunks(9).flat_map(|row| [row, &[99; 3]].concat()).collect::<Vec<u8>>();
            turn.apply(&mut pixels, &mut scratch).unwrap();
            let source = ResampleSource::turned(0, stored, turn);
            assert_eq!((source.size, source.reach()), (pixels.size(), [0, 21]), "{turn:?}");
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
