//! Pillow's BOX filter: means of runs of pixels. Weights are 22-bit fixed point and the image between the passes is
//! u8, as in Pillow, so that every sample is equal.

use foveate_core::{CHANNELS, ImageView, ImageViewMut, Size};
use foveate_resize::ResizePlan;
use foveate_resize::axis::{Axis, axes, vertical_first};

use crate::rows::{Out, source_row};

/// Fractional bits of a weight.
const PRECISION: u32 = 22;

/// The run of source pixels `[first, end)` whose mean is an output pixel.
#[derive(Clone, Copy, Debug, PartialEq)]
struct BoxRun {
    first: u32,
    end: u32,
    /// 1 / length.
    weight: u32,
}

impl BoxRun {
    /// The run's mean, given its `sum`.
    fn mean(self, sum: u64) -> u8 {
        ((sum * u64::from(self.weight) + (1 << (PRECISION - 1))) >> PRECISION).min(255) as u8
    }
}

/// One axis's runs, reused until the geometry changes.
#[derive(Debug, Default)]
struct AxisRuns {
    axis: Option<Axis>,
    runs: Vec<BoxRun>,
}

impl AxisRuns {
    fn prepare(&mut self, axis: Axis) -> &[BoxRun] {
        if self.axis != Some(axis) {
            let grid = BoxGrid::of(axis);
            self.runs.clear();
            self.runs.extend((0..axis.target).map(|target| grid.run(target, axis.whole)));
            self.axis = Some(axis);
        }
        &self.runs
    }
}

/// The output pixels' positions. A crop of a resized image is computed as a part of the whole resize, with the same
/// operations on the same numbers as in Pillow.
struct BoxGrid {
    scale: f64,
    origin: f64,
    /// Output pixels left of the first one.
    skipped: f64,
}

impl BoxGrid {
    fn of(axis: Axis) -> Self {
        let whole = f64::from(axis.whole);
        let scaled = (whole * f64::from(axis.target) / axis.len).round();
        let scale = whole / scaled;
        let skipped = (axis.at / scale).round();
        let slack = whole * 1e-9;
        if (skipped * scale - axis.at).abs() <= slack && (f64::from(axis.target) * scale - axis.len).abs() <= slack {
            Self { scale, origin: 0.0, skipped }
        } else {
            Self { scale: axis.len / f64::from(axis.target), origin: axis.at, skipped: 0.0 }
        }
    }

    fn run(&self, target: u32, whole: u32) -> BoxRun {
        let centre = self.origin + (self.skipped + f64::from(target) + 0.5) * self.scale;
        let widening = self.scale.max(1.0);
        let support = 0.5 * widening;
        let narrowing = 1.0 / widening;
        // Cut off, not rounded.
        let [mut first, mut end] =
            [centre - support, centre + support].map(|at| (at + 0.5).clamp(0.0, f64::from(whole)) as u32);
        let start = first;
        let counts = |x: u32| {
            let distance = (f64::from(x - start) + f64::from(start) - centre + 0.5) * narrowing;
            distance > -0.5 && distance <= 0.5
        };
        while first + 1 < end && !counts(first) {
            first += 1;
        }
        while end > first + 1 && !counts(end - 1) {
            end -= 1;
        }
        let length = f64::from((end - first).max(1));
        BoxRun { first, end, weight: (0.5 + (1.0 / length) * f64::from(1 << PRECISION)) as u32 }
    }
}

/// Pillow's BOX resize, with its tables and the image between the passes.
#[derive(Debug, Default)]
pub(crate) struct BoxMean {
    columns: AxisRuns,
    rows: AxisRuns,
    between: Vec<u8>,
    sums: Vec<u64>,
}

impl BoxMean {
    /// Resamples into the plan's placement; the plan must have been checked.
    pub(crate) fn resize(&mut self, src: ImageView<'_>, plan: &ResizePlan, dst: ImageViewMut<'_>) {
        let size = src.size();
        let [x, y] = axes(plan, src.size());
        let mut out = Out::new(plan, dst);
        let columns = self.columns.prepare(x);
        let rows = self.rows.prepare(y);
        if vertical_first(plan, size) {
            let whole_rows = size.width as usize * CHANNELS;
            self.between.resize(rows.len() * whole_rows, 0);
            for (row, run) in self.between.chunks_exact_mut(whole_rows).zip(rows) {
                down(*run, |index| source_row(src, index), &mut self.sums, row);
            }
            for (index, row) in self.between.chunks_exact(whole_rows).enumerate() {
                across(columns, row, out.row(index));
            }
        } else {
            // Only the rows that the vertical pass reads.
            let first = rows[0].first;
            let end = rows[rows.len() - 1].end;
            let narrow = Size::new(x.target, end - first);
            let width = narrow.width as usize * CHANNELS;
            self.between.resize(narrow.height as usize * width, 0);
            for (index, row) in self.between.chunks_exact_mut(width).enumerate() {
                across(columns, source_row(src, first as usize + index), row);
            }
            for (index, run) in rows.iter().enumerate() {
                let between = &self.between;
                down(
                    *run,
                    |source| &between[(source - first as usize) * width..][..width],
                    &mut self.sums,
                    out.row(index),
                );
            }
        }
    }
}

/// Means along a row.
fn across(columns: &[BoxRun], row: &[u8], out: &mut [u8]) {
    for (out, run) in out.chunks_exact_mut(CHANNELS).zip(columns) {
        let mut sums = [0_u64; CHANNELS];
        for pixel in row[run.first as usize * CHANNELS..run.end as usize * CHANNELS].chunks_exact(CHANNELS) {
            for (sum, sample) in sums.iter_mut().zip(pixel) {
                *sum += u64::from(*sample);
            }
        }
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = run.mean(sum);
        }
    }
}

/// Means down the columns of some rows.
fn down<'a>(run: BoxRun, row: impl Fn(usize) -> &'a [u8], sums: &mut Vec<u64>, out: &mut [u8]) {
    sums.clear();
    sums.resize(out.len(), 0);
    for index in run.first..run.end {
        for (sum, sample) in sums.iter_mut().zip(row(index as usize)) {
            *sum += u64::from(*sample);
        }
    }
    for (out, sum) in out.iter_mut().zip(sums.iter()) {
        *out = run.mean(*sum);
    }
}
