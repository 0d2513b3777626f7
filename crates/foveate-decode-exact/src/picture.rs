//! One picture, from marker segments to pixels: the state so far, and its memory.

use std::collections::TryReserveError;
use std::ops::Range;

use foveate_core::LimitError;
use foveate_decode::DecodeError;
use foveate_decode::jpeg::{Process, Structure};

use crate::bits::{BYTES, Bytes};
use crate::coefficients::{Block, Coefficients};
use crate::color::{self, ColorSpace};
use crate::frame::{ColorHints, Component, Frame, MAX_COMPONENTS};
use crate::huffman::Table;
use crate::isa::{Isa, Task};
use crate::kernels::{Kernels, Two};
use crate::output::Output;
use crate::scale::Scale;
use crate::scan::{self, Cursor, Scan, Scratch, Tables};
use crate::upsample::{self, Upsampling};
use crate::zigzag::natural;
use crate::{error::corrupt, idct};

/// Memory beyond this is freed after the picture that needed it.
const KEEP_BYTES: usize = 64 << 20;

/// Most blocks of a unit: sampling factors are at most 4.
const MAX_UNIT: usize = MAX_COMPONENTS * 4 * 4;

/// The state for decoding one picture; its memory is reused for the next one.
pub(crate) struct Picture {
    tables: Tables,
    /// The quantization tables in force, in natural order.
    quantization: [Option<Block>; 4],
    /// Each component's table, fixed by the component's first scan.
    latched: [Option<Block>; MAX_COMPONENTS],
    restart_interval: u32,
    /// A part of the present scan's data.
    window: Bytes,
    hints: ColorHints,
    /// Coefficients of the whole picture, if several scans provide them.
    pub(crate) coefficients: Coefficients,
    /// The last coefficient of each component, in coding order, that a scan must decode.
    needed: [usize; MAX_COMPONENTS],
    canvas: Canvas,
}

/// Samples on their way to becoming pixels.
struct Canvas {
    planes: [Plane; MAX_COMPONENTS],
    /// A row of each component at the picture's width.
    wide: [Vec<u8>; MAX_COMPONENTS],
    /// Number of finished pixel rows.
    finished: usize,
    /// The pixel rows that the output wants.
    wanted: Range<usize>,
}

/// The samples of two successive unit rows of one component; upsampling a row needs only its direct neighbours.
struct Plane {
    samples: Vec<u8>,
    stride: usize,
    /// Sample rows in a unit row.
    rows: usize,
    /// Samples on each side of a block.
    side: usize,
}

impl Plane {
    const EMPTY: Self = Self { samples: Vec::new(), stride: 0, rows: 0, side: 0 };

    fn reset(&mut self, component: &Component) {
        self.side = component.side;
        self.stride = component.blocks_across * component.side;
        self.rows = component.v * component.side;
        self.samples.resize(self.stride * self.rows * 2, 0);
    }

    /// A recently decoded row of the component.
    #[inline(always)]
    fn row(&self, y: usize) -> &[u8] {
        let start = y % (self.rows * 2) * self.stride;
        &self.samples[start..start + self.stride]
    }

    /// The first sample of a block in an even unit row.
    #[inline(always)]
    fn start(&self, x: usize, row: usize) -> usize {
        row * self.side * self.stride + x * self.side
    }

    /// The samples in a unit row; those of odd unit rows come behind.
    #[inline(always)]
    fn half(&self) -> usize {
        self.rows * self.stride
    }

    /// Turns a block of which only the first coefficient counts into samples.
    #[inline(always)]
    fn flat(&mut self, dc: i16, quantization: &Block, start: usize) {
        let samples = &mut self.samples[start..];
        match self.side {
            1 => samples[0] = idct::single_sample(dc, quantization[0]),
            side => idct::flat_block(dc, quantization[0], side, samples, self.stride),
        }
    }

    /// Turns two blocks into samples.
    #[inline(always)]
    fn transform(&mut self, kernels: impl Kernels, component: &Component, two: Two<'_>) {
        match component.reduction {
            None => kernels.blocks(two, &mut self.samples, self.stride),
            Some(reduction) => kernels.reduced_blocks(reduction, two, &mut self.samples, self.stride),
        }
    }
}

impl Picture {
    pub(crate) const EMPTY: Self = Self {
        tables: Tables::EMPTY,
        quantization: [None; 4],
        latched: [None; MAX_COMPONENTS],
        restart_interval: 0,
        window: [0; BYTES],
        hints: ColorHints { jfif: false, adobe_transform: None },
        coefficients: Coefficients::EMPTY,
        needed: [63; MAX_COMPONENTS],
        canvas: Canvas {
            planes: [Plane::EMPTY; MAX_COMPONENTS],
            wide: [const { Vec::new() }; MAX_COMPONENTS],
            finished: 0,
            wanted: 0..0,
        },
    };

    /// Decodes `encoded` into `out`; its `structure` must have been admitted. Returns whether `out` wants it.
    pub(crate) fn decode(
        &mut self,
        isa: Isa,
        encoded: &[u8],
        structure: &Structure,
        scale: Scale,
        out: &mut dyn Output,
    ) -> Result<bool, DecodeError> {
        (self.quantization, self.latched) = ([None; 4], [None; MAX_COMPONENTS]);
        (self.restart_interval, self.hints) = (0, ColorHints::default());
        let mut frame = None;
        let mut color_space = None;
        let mut at = 2;
        while let Some((marker, start)) = scan::next_marker(encoded, at) {
            if marker == 0xD9 {
                break;
            }
            if matches!(marker, 0x01 | 0xD0..=0xD8) {
                at = start;
                continue;
            }
            let payload = segment(encoded, start)?;
            at = start + 2 + payload.len();
            match marker {
                0xC4 => self.tables.define(payload)?,
                0xC0..=0xC2 => {
                    let new = Frame::parse(payload, structure, scale)?;
                    // Rows that wait for the next unit row come with it.
                    let Some(wanted) = out.begin(scale.of(structure.size), new.unit_rows + new.max_v)? else {
                        return Ok(false);
                    };
                    self.canvas.reset(&new, wanted);
                    if !is_streamed(structure) {
                        self.coefficients.clear(new.block_rows).map_err(|_| out_of_memory(structure))?;
                        self.needed = needed_coefficients(encoded, at, &new, structure);
                    }
                    frame = Some(new);
                }
                0xDA => {
                    let frame = frame.as_ref().ok_or_else(|| corrupt("a scan before the frame header"))?;
                    let space = *color_space.get_or_insert_with(|| self.hints.color_space(frame.components()));
                    at = self.scan(isa, encoded, at, payload, (frame, structure, space), out)?;
                }
                _ => self.header(marker, payload)?,
            }
        }
        match (frame, color_space) {
            (Some(frame), Some(space)) if !is_streamed(structure) => {
                let quantization = self.latched.map(|table| table.unwrap_or([0; 64]));
                let blocks = &mut self.coefficients;
                isa.run(Finish {
                    frame: &frame,
                    space,
                    quantization: &quantization,
                    blocks,
                    canvas: &mut self.canvas,
                    out,
                });
                Ok(true)
            }
            (Some(_), Some(_)) => Ok(true),
            _ => Err(corrupt("no scan")),
        }
    }

    /// Segments other than frame and scan headers.
    fn header(&mut self, marker: u8, payload: &[u8]) -> Result<(), DecodeError> {
        match (marker, payload) {
            (0xDB, _) => self.quantization_tables(payload)?,
            (0xDD, &[high, low, ..]) => self.restart_interval = u32::from(u16::from_be_bytes([high, low])),
            (0xE0, _) => self.hints.jfif |= payload.starts_with(b"JFIF\0") && payload.len() >= 14,
            (0xEE, [b'A', b'd', b'o', b'b', b'e', _, _, _, _, _, _, transform, ..]) => {
                self.hints.adobe_transform = Some(*transform);
            }
            _ => {}
        }
        Ok(())
    }

    fn quantization_tables(&mut self, mut payload: &[u8]) -> Result<(), DecodeError> {
        while let Some((&head, rest)) = payload.split_first() {
            let bad = || corrupt("bad quantization table");
            let table = self.quantization.get_mut(usize::from(head & 15)).ok_or_else(bad)?;
            let width = if head >> 4 == 0 { 1 } else { 2 };
            let entries = rest.get(..64 * width).ok_or_else(bad)?;
            let mut values = [0; 64];
            for (k, entry) in entries.chunks_exact(width).enumerate() {
                values[natural(k)] = entry.iter().fold(0u16, |value, &byte| value << 8 | u16::from(byte)) as i16;
            }
            *table = Some(values);
            payload = &rest[64 * width..];
        }
        Ok(())
    }

    /// Decodes one scan, whose data begins at `at`; returns the data's end.
    fn scan(
        &mut self,
        isa: Isa,
        encoded: &[u8],
        at: usize,
        header: &[u8],
        (frame, structure, space): (&Frame, &Structure, ColorSpace),
        out: &mut dyn Output,
    ) -> Result<usize, DecodeError> {
        let scan = Scan::parse(header, frame)?;
        let is_progressive = structure.process == Process::Progressive;
        scan.check_tables(&self.tables, is_progressive)?;
        for part in scan.parts() {
            let latched = &mut self.latched[part.component];
            if latched.is_none() {
                let index = frame.components()[part.component].quantization;
                let table = self.quantization.get(index).copied().flatten();
                *latched = Some(table.ok_or_else(|| corrupt(format!("quantization table {index} is not defined")))?);
            }
        }
        if !is_streamed(structure) && self.is_not_needed(&scan) {
            return Ok(at);
        }
        self.prepare_tables(frame, &scan, structure);
        let blocks = match scan.parts() {
            [_] => 1,
            parts => parts.iter().map(|part| frame.components()[part.component]).map(|own| own.h * own.v).sum(),
        };
        let mut cursor = Cursor::new(encoded, at, &mut self.window, blocks, self.restart_interval);
        if is_streamed(structure) {
            let quantization = self.latched.map(|table| table.unwrap_or([0; 64]));
            let (canvas, tables) = (&mut self.canvas, &self.tables);
            isa.run(Stream {
                frame,
                scan: &scan,
                space,
                quantization: &quantization,
                tables,
                cursor: &mut cursor,
                canvas,
                out,
            });
        } else {
            let blocks = &mut self.coefficients;
            let collect =
                Collect { frame, scan: &scan, is_progressive, tables: &self.tables, cursor: &mut cursor, blocks };
            isa.run(collect).map_err(|_| out_of_memory(structure))?;
        }
        Ok(cursor.window.source)
    }

    /// Returns true if the scan's coefficients change no pixel.
    fn is_not_needed(&self, scan: &Scan) -> bool {
        scan.parts().iter().all(|part| *scan.band().start() > self.needed[part.component])
    }

    /// Prepares the tables for what the scan does with them.
    fn prepare_tables(&mut self, frame: &Frame, scan: &Scan, structure: &Structure) {
        let is_sequential = structure.process != Process::Progressive;
        for part in scan.parts() {
            let (dc, ac) = (&mut self.tables.dc[part.dc], &mut self.tables.ac[part.ac]);
            // Sequential scans hold whole blocks, whatever their headers say.
            if is_sequential || *scan.band().start() == 0 {
                dc.prepare_differences();
            }
            if is_sequential || *scan.band().start() > 0 && !scan.refines_band() {
                ac.prepare_pairs();
            }
            if is_streamed(structure) && frame.components()[part.component].decoded() < 63 {
                ac.prepare_groups();
            }
        }
    }

    /// Frees memory beyond the usual amount.
    pub(crate) fn shrink(&mut self) {
        self.coefficients.shrink(KEEP_BYTES);
    }
}

fn out_of_memory(structure: &Structure) -> DecodeError {
    LimitError::OutOfMemory { size: structure.size }.into()
}

/// The last coefficient of each component, in coding order, that must be decoded: the last one that its transform reads
/// or that a needed scan refines. A refinement's coding depends on which coefficients of its band are not zero.
fn needed_coefficients(encoded: &[u8], at: usize, frame: &Frame, structure: &Structure) -> [usize; MAX_COMPONENTS] {
    let mut needed = [63; MAX_COMPONENTS];
    if structure.process != Process::Progressive {
        return needed;
    }
    for (needed, component) in needed.iter_mut().zip(frame.components()) {
        *needed = component.kept;
    }
    while needed != [63; MAX_COMPONENTS] {
        let before = needed;
        for scan in scans(encoded, at, frame).filter(Scan::refines_band) {
            let needed = &mut needed[scan.parts()[0].component];
            if scan.band().start() <= needed {
                *needed = (*scan.band().end()).max(*needed);
            }
        }
        if needed == before {
            break;
        }
    }
    needed
}

/// The well-formed scan headers from `at` on.
fn scans(encoded: &[u8], mut at: usize, frame: &Frame) -> impl Iterator<Item = Scan> {
    std::iter::from_fn(move || {
        loop {
            let (marker, start) = scan::next_marker(encoded, at)?;
            at = start;
            if marker == 0xD9 {
                return None;
            }
            if matches!(marker, 0x01 | 0xD0..=0xD8) {
                continue;
            }
            let payload = segment(encoded, start).ok()?;
            at += 2 + payload.len();
            if marker == 0xDA
                && let Ok(scan) = Scan::parse(payload, frame)
            {
                return Some(scan);
            }
        }
    })
}

/// Returns true if the picture's only scan holds all components, so that blocks become samples as they are decoded.
fn is_streamed(structure: &Structure) -> bool {
    structure.scans == 1 && structure.interleaved && structure.process != Process::Progressive
}

/// The payload of the segment whose length field is at `start`.
fn segment(encoded: &[u8], start: usize) -> Result<&[u8], DecodeError> {
    let length = encoded.get(start..).and_then(|rest| rest.first_chunk()).map(|&length| u16::from_be_bytes(length));
    length
        .and_then(|length| encoded.get(start + 2..start + usize::from(length)))
        .ok_or_else(|| corrupt("a segment is cut short"))
}

/// Decodes a sequential picture's only scan to pixels, one unit row at a time.
struct Stream<'t, 'd> {
    frame: &'t Frame,
    scan: &'t Scan,
    space: ColorSpace,
    quantization: &'t [Block; MAX_COMPONENTS],
    tables: &'t Tables,
    cursor: &'t mut Cursor<'d>,
    canvas: &'t mut Canvas,
    out: &'t mut dyn Output,
}

impl Task for Stream<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self, kernels: impl Kernels) {
        // A component's two blocks and the place of the first one while it waits for the other.
        let mut lanes = [([[0; 256]; 2], None); MAX_COMPONENTS];
        // A unit's blocks in their order.
        let mut blocks = self.scan.parts().iter().flat_map(|part| {
            let component = &self.frame.components()[part.component];
            let tables = (&self.tables.dc[part.dc], &self.tables.ac[part.ac]);
            let plane = &self.canvas.planes[part.component];
            let step = component.h * component.side;
            (0..component.v * component.h).map(move |i| {
                let start = plane.start(i % component.h, i / component.h);
                UnitBlock { component: part.component, tables, start, next: start, step, kept: component.decoded() }
            })
        });
        let Some(first) = blocks.next() else { return };
        let mut unit = [first; MAX_UNIT];
        let count = 1 + unit[1..].iter_mut().zip(blocks).map(|(block, next)| *block = next).count();
        for y in 0..self.frame.units_down {
            for block in &mut unit[..count] {
                block.next = block.start + if y % 2 == 1 { self.canvas.planes[block.component].half() } else { 0 };
            }
            for _ in 0..self.frame.units_across {
                self.cursor.begin_unit();
                for &mut UnitBlock { component: i, tables, ref mut next, step, kept, .. } in &mut unit[..count] {
                    let start = *next;
                    *next += step;
                    let (plane, quantization) = (&mut self.canvas.planes[i], &self.quantization[i]);
                    let (scratch, waiting) = &mut lanes[i];
                    let block: &mut Scratch = &mut scratch[usize::from(waiting.is_some())];
                    block[..64].fill(0);
                    let has_detail = !self.cursor.dry
                        && match kept {
                            63 => scan::sequential::<true>(self.cursor, i, tables, 63, block),
                            kept => scan::sequential::<false>(self.cursor, i, tables, kept, block),
                        };
                    if !has_detail || plane.side == 1 {
                        plane.flat(block[0], quantization, start);
                    } else if let Some(other) = waiting.take() {
                        let coefficients = [own(&scratch[0]), own(&scratch[1])];
                        let two = Two { coefficients, quantization, starts: [other, start] };
                        plane.transform(kernels, &self.frame.components()[i], two);
                    } else {
                        *waiting = Some(start);
                    }
                }
            }
            for (i, component) in self.frame.components().iter().enumerate() {
                let (scratch, waiting) = &mut lanes[i];
                if let Some(start) = waiting.take() {
                    let coefficients = [own(&scratch[0]); 2];
                    let two = Two { coefficients, quantization: &self.quantization[i], starts: [start; 2] };
                    self.canvas.planes[i].transform(kernels, component, two);
                }
            }
            self.canvas.finish_rows(kernels, self.frame, self.space, y, self.out);
            // The next marker is behind the rest of the scan.
            if self.canvas.is_complete() {
                return;
            }
        }
    }
}

/// One of a unit's blocks.
#[derive(Clone, Copy)]
struct UnitBlock<'t> {
    component: usize,
    tables: (&'t Table, &'t Table),
    /// The place of its samples in the first unit of an even row, and in the next unit.
    start: usize,
    next: usize,
    /// From one unit to the next.
    step: usize,
    /// The last coefficient to decode.
    kept: usize,
}

/// A block's coefficients.
#[inline(always)]
fn own(scratch: &Scratch) -> &Block {
    &scratch.as_chunks().0[0]
}

/// Decodes one of several scans into the whole picture's coefficients.
struct Collect<'t, 'd> {
    frame: &'t Frame,
    scan: &'t Scan,
    is_progressive: bool,
    tables: &'t Tables,
    cursor: &'t mut Cursor<'d>,
    blocks: &'t mut Coefficients,
}

impl Task for Collect<'_, '_> {
    type Output = Result<(), TryReserveError>;

    #[inline(always)]
    fn run(mut self, kernels: impl Kernels) -> Self::Output {
        match *self.scan.parts() {
            [part] => {
                let component = &self.frame.components()[part.component];
                let (across, down) = component.own_blocks;
                for y in 0..down {
                    let mut x = 0;
                    while x < across {
                        self.cursor.begin_unit();
                        self.block(kernels, 0, component, y, x)?;
                        x = self.cursor.pass(self.scan, self.blocks.row(component.first_row + y), x + 1, across);
                    }
                }
                Ok(())
            }
            _ => self.interleaved(kernels),
        }
    }
}

impl Collect<'_, '_> {
    #[inline(always)]
    fn interleaved(&mut self, kernels: impl Kernels) -> Result<(), TryReserveError> {
        for y in 0..self.frame.units_down {
            for x in 0..self.frame.units_across {
                self.cursor.begin_unit();
                for (slot, part) in self.scan.parts().iter().enumerate() {
                    let component = &self.frame.components()[part.component];
                    for row in 0..component.v {
                        for column in 0..component.h {
                            self.block(kernels, slot, component, y * component.v + row, x * component.h + column)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn block(
        &mut self,
        kernels: impl Kernels,
        slot: usize,
        component: &Component,
        y: usize,
        x: usize,
    ) -> Result<(), TryReserveError> {
        if self.cursor.dry {
            return Ok(());
        }
        let row = self.blocks.row(component.first_row + y);
        if row.is_empty() {
            if self.cursor.leaves_zero() {
                return Ok(());
            }
            row.fill(component.blocks_across)?;
        }
        let block = row.block(x);
        if self.is_progressive {
            scan::progressive(kernels, self.scan, self.cursor, slot, self.tables, block);
        } else {
            let part = self.scan.parts()[slot];
            let tables = (&self.tables.dc[part.dc], &self.tables.ac[part.ac]);
            let mut scratch: Scratch = [0; 256];
            let has_detail = scan::sequential::<true>(self.cursor, slot, tables, 63, &mut scratch);
            *block.coefficients = *own(&scratch);
            (*block.nonzero, *block.dc) = (if has_detail { u64::MAX } else { 0 }, scratch[0]);
        }
        Ok(())
    }
}

/// Turns a whole picture's coefficients into pixels.
struct Finish<'t> {
    frame: &'t Frame,
    space: ColorSpace,
    quantization: &'t [Block; MAX_COMPONENTS],
    blocks: &'t mut Coefficients,
    canvas: &'t mut Canvas,
    out: &'t mut dyn Output,
}

impl Task for Finish<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, kernels: impl Kernels) {
        for y in 0..self.frame.units_down {
            if self.canvas.is_complete() {
                return;
            }
            let parts = if self.canvas.is_above(self.frame, y) { &[] } else { self.frame.components() };
            for (i, component) in parts.iter().enumerate() {
                let (plane, quantization) = (&mut self.canvas.planes[i], &self.quantization[i]);
                for row in 0..component.v {
                    let blocks = self.blocks.blocks(component.first_row + y * component.v + row);
                    let zeros = std::iter::repeat_with(|| (None, 0));
                    let mut waiting = None;
                    for (x, (block, dc)) in blocks.chain(zeros).take(component.blocks_across).enumerate() {
                        let start = plane.start(x, row) + if y % 2 == 1 { plane.half() } else { 0 };
                        let Some(block) = block.filter(|_| component.side > 1) else {
                            plane.flat(dc, quantization, start);
                            continue;
                        };
                        block[0] = dc;
                        let block = &*block;
                        if let Some((other, first)) = waiting.take() {
                            let two = Two { coefficients: [first, block], quantization, starts: [other, start] };
                            plane.transform(kernels, component, two);
                        } else {
                            waiting = Some((start, block));
                        }
                    }
                    if let Some((start, block)) = waiting {
                        let two = Two { coefficients: [block; 2], quantization, starts: [start; 2] };
                        plane.transform(kernels, component, two);
                    }
                }
            }
            self.canvas.finish_rows(kernels, self.frame, self.space, y, self.out);
        }
    }
}

impl Canvas {
    fn reset(&mut self, frame: &Frame, wanted: Range<usize>) {
        (self.finished, self.wanted) = (0, wanted);
        for ((component, plane), wide) in frame.components().iter().zip(&mut self.planes).zip(&mut self.wide) {
            plane.reset(component);
            let repeats = match component.upsampling {
                Upsampling::None | Upsampling::FancyH1V2 => 1,
                Upsampling::FancyH2V1 | Upsampling::FancyH2V2 => 2,
                Upsampling::Repeat { h, .. } => h,
            };
            wide.resize(component.width * repeats, 0);
        }
    }

    /// Converts all rows whose samples are ready, now that unit row `y` is decoded.
    #[inline(always)]
    fn finish_rows(&mut self, kernels: impl Kernels, frame: &Frame, space: ColorSpace, y: usize, out: &mut dyn Output) {
        let decoded = (y + 1) * frame.unit_rows;
        let waits = frame.components().iter().any(|component| component.upsampling.needs_neighbours());
        let end = match (decoded < frame.height, waits) {
            (true, true) => decoded - frame.max_v,
            (true, false) => decoded,
            (false, _) => frame.height,
        };
        let first = self.finished.max(self.wanted.start);
        let last = end.min(self.wanted.end);
        if first < last {
            let rows = out.rows(last - first);
            for (y, row) in (first..last).zip(rows.chunks_exact_mut(frame.width)) {
                self.finish_row(kernels, frame, space, y, row);
            }
        }
        self.finished = end;
    }

    /// Returns true if all wanted rows are finished.
    fn is_complete(&self) -> bool {
        self.finished >= self.wanted.end
    }

    /// Returns true if no wanted row needs samples of unit row `y`, nor has a neighbour there.
    fn is_above(&self, frame: &Frame, y: usize) -> bool {
        (y + 2) * frame.unit_rows <= self.wanted.start
    }

    #[inline(always)]
    fn finish_row(&mut self, kernels: impl Kernels, frame: &Frame, space: ColorSpace, y: usize, out: &mut [[u8; 3]]) {
        let mut rows: [&[u8]; MAX_COMPONENTS] = [&[]; MAX_COMPONENTS];
        let parts = frame.components().iter().zip(&self.planes).zip(&mut self.wide);
        for (row, ((component, plane), wide)) in rows.iter_mut().zip(parts) {
            *row = full_width(component, plane, y, wide);
        }
        color::convert(kernels, space, rows, out);
    }
}

/// Row `y` of the picture, from one component.
#[inline(always)]
fn full_width<'a>(component: &Component, plane: &'a Plane, y: usize, wide: &'a mut [u8]) -> &'a [u8] {
    let last = component.height - 1;
    let own = (y / component.upsampling.rows()).min(last);
    let row = |y: usize| &plane.row(y)[..component.width];
    // The neighbour on the side of this row's half; rows beyond the edges repeat the outermost ones.
    let is_upper = y.is_multiple_of(2);
    let far = if is_upper { own.saturating_sub(1) } else { (own + 1).min(last) };
    match component.upsampling {
        Upsampling::None => return row(own),
        Upsampling::FancyH2V1 => upsample::fancy_h2v1(row(own), wide),
        Upsampling::FancyH1V2 => upsample::fancy_h1v2(row(own), row(far), if is_upper { 1 } else { 2 }, wide),
        Upsampling::FancyH2V2 => upsample::fancy_h2v2(row(own), row(far), wide),
        Upsampling::Repeat { h: 1, .. } => return row(own),
        Upsampling::Repeat { h, .. } => upsample::repeat(row(own), h, wide),
    }
    wide
}
