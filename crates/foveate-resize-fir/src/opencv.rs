//! OpenCV's `resize(…, INTER_LINEAR)` on u8: two by two neighbours, 11-bit fixed-point weights, horizontal pass first.

use foveate_core::{CHANNELS, ImageView, ImageViewMut};
use foveate_resize::ResizePlan;
use foveate_resize::axis::{Axis, axes};
use foveate_resize::opencv_linear::{Edge, Tap, tap};

use crate::rows::{Out, source_row};

/// One axis's taps, reused until the geometry changes.
#[derive(Debug, Default)]
struct AxisTaps {
    key: Option<(Axis, Edge)>,
    taps: Vec<Tap>,
}

impl AxisTaps {
    fn prepare(&mut self, plan: Axis, edge: Edge) {
        if self.key != Some((plan, edge)) {
            self.taps.clear();
            self.taps.extend((0..plan.target).map(|target| tap(plan, target, edge)));
            self.key = Some((plan, edge));
        }
    }
}

/// OpenCV's bilinear resize, with the tables and rows it needs.
#[derive(Debug, Default)]
pub(crate) struct OpencvLinear {
    columns: AxisTaps,
    rows: AxisTaps,
    gathered: Gathered,
    /// The two source rows that the current output row lies between, resampled horizontally; 15-bit values.
    lines: [ResampledRow; 2],
}

#[derive(Debug, Default)]
struct ResampledRow {
    source_row: Option<u32>,
    samples: Vec<i16>,
}

impl OpencvLinear {
    /// Resamples into the plan's placement; the plan must have been checked.
    pub(crate) fn resize(&mut self, src: ImageView<'_>, plan: &ResizePlan, dst: ImageViewMut<'_>) {
        let [x, y] = axes(plan, src.size());
        let out = Out::new(plan, dst);
        if x.is_copy() && y.is_copy() {
            copy(src, x.at as usize, y.at as usize, out);
        } else if x.halves() && y.halves() {
            halve(src, x.at as usize, y.at as usize, out);
        } else {
            self.interpolate(src, x, y, out);
        }
    }

    fn interpolate(&mut self, src: ImageView<'_>, x: Axis, y: Axis, mut out: Out<'_>) {
        self.columns.prepare(x, Edge::Snap);
        self.rows.prepare(y, Edge::Repeat);
        for line in &mut self.lines {
            line.source_row = None; // any content is from another image
            line.samples.resize(x.target as usize * CHANNELS, 0);
        }
        self.gathered.prepare(&self.columns.taps);
        for (index, tap) in self.rows.taps.iter().enumerate() {
            let [upper, lower] = &mut self.lines;
            if upper.source_row != Some(tap.first) && lower.source_row == Some(tap.first) {
                std::mem::swap(upper, lower);
            }
            upper.load(src, tap.first, &self.columns.taps, &mut self.gathered);
            if tap.second == tap.first {
                blend(&upper.samples, &upper.samples, tap.weights, out.row(index));
            } else {
                lower.load(src, tap.second, &self.columns.taps, &mut self.gathered);
                blend(&upper.samples, &lower.samples, tap.weights, out.row(index));
            }
        }
    }
}

impl ResampledRow {
    fn load(&mut self, src: ImageView<'_>, row: u32, columns: &[Tap], gathered: &mut Gathered) {
        if self.source_row != Some(row) {
            self.source_row = Some(row);
            gathered.read(source_row(src, row as usize), columns);
            gathered.blend(&mut self.samples);
        }
    }
}

/// The neighbours of every sample of a horizontally resampled row, and their weights. Gathering them first leaves
/// arithmetic without indexing, which the compiler vectorizes.
#[derive(Debug, Default)]
struct Gathered {
    first: Vec<u8>,
    second: Vec<u8>,
    weights: [Vec<i16>; 2],
}

impl Gathered {
    fn prepare(&mut self, columns: &[Tap]) {
        for side in [&mut self.first, &mut self.second] {
            side.resize(columns.len() * CHANNELS, 0);
        }
        for (side, weights) in self.weights.iter_mut().enumerate() {
            weights.clear();
            weights.extend(columns.iter().flat_map(|tap| [tap.weights[side]; CHANNELS]));
        }
    }

    fn read(&mut self, row: &[u8], columns: &[Tap]) {
        let sides = self.first.chunks_exact_mut(CHANNELS).zip(self.second.chunks_exact_mut(CHANNELS));
        for ((first, second), tap) in sides.zip(columns) {
            first.copy_from_slice(&row[tap.first as usize * CHANNELS..][..CHANNELS]);
            second.copy_from_slice(&row[tap.second as usize * CHANNELS..][..CHANNELS]);
        }
    }

    /// Blends with 11-bit weights; the low 4 bits of the 19-bit result are dropped, as in OpenCV's vertical pass.
    fn blend(&self, line: &mut [i16]) {
        let first = self.first.iter().zip(&self.weights[0]);
        let second = self.second.iter().zip(&self.weights[1]);
        for ((out, (&a, &left)), (&b, &right)) in line.iter_mut().zip(first).zip(second) {
            let sum = i32::from(i16::from(a)) * i32::from(left) + i32::from(i16::from(b)) * i32::from(right);
            *out = (sum >> 4) as i16;
        }
    }
}

/// The vertical pass: each product keeps its high half, then two bits are rounded away.
fn blend(upper: &[i16], lower: &[i16], [above, below]: [i16; 2], out: &mut [u8]) {
    for ((out, &upper), &lower) in out.iter_mut().zip(upper).zip(lower) {
        let upper = ((i32::from(upper) * i32::from(above)) >> 16) as i16;
        let lower = ((i32::from(lower) * i32::from(below)) >> 16) as i16;
        *out = ((upper + lower + 2) >> 2).clamp(0, 255) as u8;
    }
}

fn copy(src: ImageView<'_>, x: usize, y: usize, mut out: Out<'_>) {
    for row in 0..out.rows() {
        let target = out.row(row);
        target.copy_from_slice(&source_row(src, y + row)[x * CHANNELS..][..target.len()]);
    }
}

/// OpenCV turns an exact shrink by two into the mean of two by two pixels, halves rounded up.
fn halve(src: ImageView<'_>, x: usize, y: usize, mut out: Out<'_>) {
    for row in 0..out.rows() {
        let [upper, lower] =
            [0, 1].map(|below| source_row(src, y + 2 * row + below)[x * CHANNELS..].chunks_exact(2 * CHANNELS));
        for ((out, upper), lower) in out.row(row).chunks_exact_mut(CHANNELS).zip(upper).zip(lower) {
            for channel in 0..CHANNELS {
                let sum = [upper, lower].map(|pair| u16::from(pair[channel]) + u16::from(pair[CHANNELS + channel]));
                out[channel] = ((sum[0] + sum[1] + 2) >> 2) as u8;
            }
        }
    }
}
