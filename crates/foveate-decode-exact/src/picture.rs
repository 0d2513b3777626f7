//! One picture, from marker segments to pixels: the state so far, and its memory.

use std::ops::Range;

use foveate_core::{LimitError, Region};
use foveate_decode::DecodeError;
use foveate_decode::jpeg::{Process, Structure};

use crate::bits::{BYTES, Bits, Bytes};
use crate::coefficients::{CoefficientBlock, Coefficients, StoredCoefficients};
use crate::color::{self, ColorSpace};
use crate::frame::{ColorHints, Component, Frame, MAX_COMPONENTS};
use crate::huffman::HuffmanTable;
use crate::isa::{Isa, IsaTask};
use crate::kernels::{JpegKernels, Two};
use crate::output::PixelOutput;
use crate::scale::EighthsScale;
use crate::scan::{self, Cursor, Scan, ScanScratch, Tables};
use crate::upsample::{self, Upsampling};
use crate::zigzag::natural;
use crate::{error::corrupt, idct};

/// Memory beyond this is freed after the picture that needed it.
const KEEP_BYTES: usize = 64 << 20;

/// Windows beyond these are freed, too.
const KEEP_WINDOWS: usize = 32;

/// Unit rows that each scan decodes before the next one's turn: few, so that their coefficients stay in a core's own
/// caches.
const STRIP: usize = 2;

/// Most blocks of a unit: sampling factors are at most 4.
const MAX_UNIT: usize = MAX_COMPONENTS * 4 * 4;

/// The state for decoding one picture; its memory is reused for the next one.
pub(crate) struct JpegPicture {
    pub(crate) tables: Tables,
    /// The quantization tables in force, in natural order.
    quantization: [Option<CoefficientBlock>; 4],
    /// Each component's table, fixed by the component's first scan.
    latched: [Option<CoefficientBlock>; MAX_COMPONENTS],
    restart_interval: u32,
    /// A part of each scan's data.
    windows: Vec<Box<Bytes>>,
    hints: ColorHints,
    /// Scans that wait for the ones behind them.
    waiting: Vec<WaitingScan>,
    /// Coefficients of a few unit rows, if several scans provide them.
    coefficients: Coefficients,
    canvas: Canvas,
}

/// A scan whose data begins at `at`.
struct WaitingScan {
    scan: Scan,
    at: usize,
    restart_interval: u32,
}

/// Samples on their way to becoming pixels.
struct Canvas {
    planes: [ComponentPlane; MAX_COMPONENTS],
    /// A row of each component at the picture's width.
    wide: [Vec<u8>; MAX_COMPONENTS],
    /// Number of finished pixel rows.
    finished: usize,
    /// The pixel rows that the output wants.
    rows: Range<usize>,
    /// The units across that its columns need; the others have no samples and no pixels.
    units: Range<usize>,
}

/// The samples of two successive unit rows of one component; upsampling a row needs only its direct neighbours.
struct ComponentPlane {
    samples: Vec<u8>,
    stride: usize,
    /// Sample rows in a unit row.
    rows: usize,
    /// Samples on each side of a block.
    side: usize,
}

impl ComponentPlane {
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
    fn flat(&mut self, dc: i16, quantization: &CoefficientBlock, start: usize) {
        let samples = &mut self.samples[start..];
        match self.side {
            1 => samples[0] = idct::single_sample(dc, quantization[0]),
            side => idct::flat_block(dc, quantization[0], side, samples, self.stride),
        }
    }

    /// Turns two blocks into samples.
    #[inline(always)]
    fn transform(&mut self, kernels: impl JpegKernels, component: &Component, two: Two<'_>) {
        match component.reduction {
            None => kernels.blocks(two, &mut self.samples, self.stride),
            Some(reduction) => kernels.reduced_blocks(reduction, two, &mut self.samples, self.stride),
        }
    }
}

impl JpegPicture {
    pub(crate) const EMPTY: Self = Self {
        tables: Tables::EMPTY,
        quantization: [None; 4],
        latched: [None; MAX_COMPONENTS],
        restart_interval: 0,
        windows: Vec::new(),
        hints: ColorHints { jfif: false, adobe_transform: None },
        waiting: Vec::new(),
        coefficients: Coefficients::EMPTY,
        canvas: Canvas {
            planes: [ComponentPlane::EMPTY; MAX_COMPONENTS],
            wide: [const { Vec::new() }; MAX_COMPONENTS],
            finished: 0,
            rows: 0..0,
            units: 0..0,
        },
    };

    /// Decodes `encoded` into `out`; its `structure` must have been admitted. Returns whether `out` wants it.
    pub(crate) fn decode(
        &mut self,
        isa: Isa,
        encoded: &[u8],
        structure: &Structure,
        scale: EighthsScale,
        out: &mut dyn PixelOutput,
    ) -> Result<bool, DecodeError> {
        self.quantization = [None; 4];
        self.latched = [None; MAX_COMPONENTS];
        self.restart_interval = 0;
        self.hints = ColorHints::default();
        self.tables.begin();
        self.waiting.clear();
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
                    self.canvas.reset(&new, &wanted);
                    frame = Some(new);
                }
                0xDA => {
                    let frame = frame.as_ref().ok_or_else(|| corrupt("a scan before the frame header"))?;
                    let space = *color_space.get_or_insert_with(|| self.hints.color_space(frame.components()));
                    let scan = self.scan(payload, frame, structure)?;
                    if is_streamed(structure) {
                        at = self.stream(isa, encoded, at, (frame, &scan, space), out);
                    } else {
                        self.waiting.push(WaitingScan { scan, at, restart_interval: self.restart_interval });
                    }
                }
                _ => self.header(marker, payload)?,
            }
        }
        let (Some(frame), Some(space)) = (frame, color_space) else { return Err(corrupt("no scan")) };
        if !is_streamed(structure) {
            self.weave(isa, encoded, (&frame, structure, space), out)?;
        }
        Ok(true)
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
            let table = self.quantization.get_mut(usize::from(head & 15)).ok_or_else(bad_quantization)?;
            let width = if head >> 4 == 0 { 1 } else { 2 };
            let entries = rest.get(..64 * width).ok_or_else(bad_quantization)?;
            let mut values = [0; 64];
            for (k, entry) in entries.chunks_exact(width).enumerate() {
                values[natural(k)] = entry.iter().fold(0u16, |value, &byte| value << 8 | u16::from(byte)) as i16;
            }
            *table = Some(values);
            payload = &rest[64 * width..];
        }
        Ok(())
    }

    /// Reads a scan header, and keeps the tables that the scan needs.
    fn scan(&mut self, header: &[u8], frame: &Frame, structure: &Structure) -> Result<Scan, DecodeError> {
        let mut scan = Scan::parse(header, frame)?;
        scan.hold_tables(&mut self.tables, structure.process == Process::Progressive)?;
        for part in scan.parts() {
            let latched = &mut self.latched[part.component];
            if latched.is_none() {
                let index = frame.components()[part.component].quantization;
                let table = self.quantization.get(index).copied().flatten();
                *latched = Some(table.ok_or_else(|| corrupt(format!("quantization table {index} is not defined")))?);
            }
        }
        Ok(scan)
    }

    /// Decodes the only scan, whose data begins at `at`, to pixels; returns the data's end.
    fn stream(
        &mut self,
        isa: Isa,
        encoded: &[u8],
        at: usize,
        (frame, scan, space): (&Frame, &Scan, ColorSpace),
        out: &mut dyn PixelOutput,
    ) -> usize {
        scan.prepare_tables(&mut self.tables, false);
        for part in scan.parts() {
            if frame.components()[part.component].decoded() < 63 {
                self.tables.ac.tables[part.ac].prepare_groups();
            }
        }
        let quantization = self.latched.map(|table| table.unwrap_or([0; 64]));
        let [window] = windows(&mut self.windows, 1) else { unreachable!("one window") };
        let mut cursor = Cursor::new(encoded, at, window, blocks(frame, scan), self.restart_interval);
        let tables = &self.tables;
        let canvas = &mut self.canvas;
        isa.run(SequentialStream {
            frame,
            scan,
            space,
            quantization: &quantization,
            tables,
            cursor: &mut cursor,
            canvas,
            out,
        });
        cursor.window.source
    }

    /// Decodes all scans to pixels, a few unit rows of each in turn.
    fn weave(
        &mut self,
        isa: Isa,
        encoded: &[u8],
        (frame, structure, space): (&Frame, &Structure, ColorSpace),
        out: &mut dyn PixelOutput,
    ) -> Result<(), DecodeError> {
        let is_progressive = structure.process == Process::Progressive;
        if is_progressive {
            let needed = needed_coefficients(&self.waiting, frame);
            self.waiting.retain(|WaitingScan { scan, .. }| {
                scan.parts().iter().any(|part| *scan.band().start() <= needed[part.component])
            });
        }
        for waiting in &self.waiting {
            waiting.scan.prepare_tables(&mut self.tables, is_progressive);
        }
        let strip = (0..STRIP).flat_map(|_| frame.components());
        self.coefficients
            .reset(strip.flat_map(|own| std::iter::repeat_n(own.blocks_across, own.v)))
            .map_err(|_| DecodeError::from(LimitError::OutOfMemory { size: structure.size }))?;
        let windows = windows(&mut self.windows, self.waiting.len());
        let mut scans: Vec<_> = std::iter::zip(&self.waiting, windows)
            .map(|(WaitingScan { scan, at, restart_interval }, window)| {
                (scan, Cursor::new(encoded, *at, window, blocks(frame, scan), *restart_interval))
            })
            .collect();
        isa.run(Weave {
            frame,
            space,
            is_progressive,
            quantization: &self.latched.map(|table| table.unwrap_or([0; 64])),
            tables: &self.tables,
            scans: &mut scans,
            coefficients: &mut self.coefficients,
            canvas: &mut self.canvas,
            out,
        });
        Ok(())
    }

    /// Frees memory beyond the usual amount.
    pub(crate) fn shrink(&mut self) {
        self.coefficients.shrink(KEEP_BYTES);
        self.windows.truncate(KEEP_WINDOWS);
        self.tables.shrink();
    }
}

/// This many windows, of which untouched parts take no memory.
fn windows(windows: &mut Vec<Box<Bytes>>, count: usize) -> &mut [Box<Bytes>] {
    while windows.len() < count {
        let zeros = vec![0; BYTES].into_boxed_slice();
        windows.push(zeros.try_into().unwrap_or_else(|_| unreachable!("as many bytes")));
    }
    &mut windows[..count]
}

/// The blocks of a scan's unit.
fn blocks(frame: &Frame, scan: &Scan) -> usize {
    match scan.parts() {
        [_] => 1,
        parts => parts.iter().map(|part| frame.components()[part.component]).map(|own| own.h * own.v).sum(),
    }
}

/// The last coefficient of each component, in coding order, that must be decoded: the last one that its transform reads
/// or that a needed scan refines. A refinement's coding depends on which coefficients of its band are not zero.
fn needed_coefficients(scans: &[WaitingScan], frame: &Frame) -> [usize; MAX_COMPONENTS] {
    let mut needed = [63; MAX_COMPONENTS];
    for (needed, component) in needed.iter_mut().zip(frame.components()) {
        *needed = component.kept;
    }
    loop {
        let before = needed;
        for scan in scans.iter().map(|waiting| &waiting.scan).filter(|scan| scan.refines_band()) {
            let needed = &mut needed[scan.parts()[0].component];
            if scan.band().start() <= needed {
                *needed = (*scan.band().end()).max(*needed);
            }
        }
        if needed == before {
            return needed;
        }
    }
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
struct SequentialStream<'t, 'd> {
    frame: &'t Frame,
    scan: &'t Scan,
    space: ColorSpace,
    quantization: &'t [CoefficientBlock; MAX_COMPONENTS],
    tables: &'t Tables,
    cursor: &'t mut Cursor<'d>,
    canvas: &'t mut Canvas,
    out: &'t mut dyn PixelOutput,
}

impl IsaTask for SequentialStream<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(mut self, kernels: impl JpegKernels) {
        // Each component's blocks: two pairs, of which one is transformed while the next block is decoded.
        let mut lanes = [BlockLane::EMPTY; MAX_COMPONENTS];
        let mut ready = None;
        // A unit's blocks in their order.
        let mut blocks = self.scan.parts().iter().flat_map(|part| {
            let component = &self.frame.components()[part.component];
            let tables = (&self.tables.dc.tables[part.dc], &self.tables.ac.tables[part.ac]);
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
        let mut unread: ScanScratch = [0; 256];
        let mut bits = self.cursor.bits;
        for y in 0..self.frame.units_down {
            for block in &mut unit[..count] {
                block.next = block.start + if y % 2 == 1 { self.canvas.planes[block.component].half() } else { 0 };
            }
            let needed = self.canvas.needed(self.frame, y);
            for x in 0..self.frame.units_across {
                bits = self.cursor.begin_unit(bits);
                if !needed.contains(&x) {
                    for block in &mut unit[..count] {
                        bits = block.pass(self.cursor, bits, &mut unread);
                    }
                    continue;
                }
                for &mut UnitBlock { component, tables, ref mut next, step, kept, .. } in &mut unit[..count] {
                    let i = component % MAX_COMPONENTS; // so that no index needs a check
                    let start = *next;
                    *next += step;
                    let dc;
                    (bits, dc) = match self.cursor.dry {
                        true => (bits, 0),
                        false => scan::first(self.cursor, bits, i, tables.0),
                    };
                    if let Some(pair) = ready.take() {
                        self.transform(kernels, &lanes, pair);
                    }
                    let lane = &mut lanes[i];
                    let block = &mut lane.blocks[lane.pair % 2][usize::from(lane.waiting.is_some())];
                    block[..64].fill(0);
                    block[0] = dc;
                    let mut has_detail = false;
                    if !self.cursor.dry {
                        let bytes = &*self.cursor.window.bytes;
                        (bits, has_detail) = match kept {
                            63 => scan::rest::<true>(bytes, bits, tables.1, 63, block),
                            kept => scan::rest::<false>(bytes, bits, tables.1, kept, block),
                        };
                    }
                    let plane = &mut self.canvas.planes[i];
                    if !has_detail || plane.side == 1 {
                        plane.flat(dc, &self.quantization[i], start);
                    } else if let Some(other) = lane.waiting.take() {
                        ready = Some(Ready { component: i, pair: lane.pair, starts: [other, start] });
                        lane.pair ^= 1;
                    } else {
                        lane.waiting = Some(start);
                    }
                }
            }
            if let Some(pair) = ready.take() {
                self.transform(kernels, &lanes, pair);
            }
            for component in 0..self.frame.components().len() {
                let BlockLane { blocks, pair, waiting } = &mut lanes[component];
                if let Some(start) = waiting.take() {
                    blocks[*pair][1] = blocks[*pair][0];
                    let ready = Ready { component, pair: *pair, starts: [start; 2] };
                    self.transform(kernels, &lanes, ready);
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

impl SequentialStream<'_, '_> {
    #[inline(always)]
    fn transform(&mut self, kernels: impl JpegKernels, lanes: &[BlockLane; MAX_COMPONENTS], ready: Ready) {
        let Ready { component: i, pair, starts } = ready;
        let [first, second] = &lanes[i % MAX_COMPONENTS].blocks[pair % 2];
        let two = Two { coefficients: [own(first), own(second)], quantization: &self.quantization[i], starts };
        self.canvas.planes[i].transform(kernels, &self.frame.components()[i], two);
    }
}

/// A component's blocks on their way to the transform.
#[derive(Clone, Copy)]
struct BlockLane {
    blocks: [[ScanScratch; 2]; 2],
    /// The pair that the next block belongs to.
    pair: usize,
    /// The place of the pair's first block while it waits for the other.
    waiting: Option<usize>,
}

impl BlockLane {
    const EMPTY: Self = Self { blocks: [[[0; 256]; 2]; 2], pair: 0, waiting: None };
}

/// A pair of blocks to transform.
struct Ready {
    component: usize,
    pair: usize,
    starts: [usize; 2],
}

/// One of a unit's blocks.
#[derive(Clone, Copy)]
struct UnitBlock<'t> {
    component: usize,
    tables: (&'t HuffmanTable, &'t HuffmanTable),
    /// The place of its samples in the first unit of an even row, and in the next unit.
    start: usize,
    next: usize,
    /// From one unit to the next.
    step: usize,
    /// The last coefficient to decode.
    kept: usize,
}

impl UnitBlock<'_> {
    /// Passes over a block whose samples nobody needs.
    #[inline(always)]
    fn pass(&mut self, cursor: &mut Cursor<'_>, bits: Bits, unread: &mut ScanScratch) -> Bits {
        self.next += self.step;
        if cursor.dry {
            return bits;
        }
        let (bits, _) = scan::first(cursor, bits, self.component % MAX_COMPONENTS, self.tables.0);
        scan::rest::<true>(cursor.window.bytes, bits, self.tables.1, 63, unread).0
    }
}

/// A block's coefficients.
#[inline(always)]
fn own(scratch: &ScanScratch) -> &CoefficientBlock {
    &scratch.as_chunks().0[0]
}

/// Decodes a picture's scans to pixels, a strip of unit rows at a time.
struct Weave<'t, 'd> {
    frame: &'t Frame,
    space: ColorSpace,
    is_progressive: bool,
    quantization: &'t [CoefficientBlock; MAX_COMPONENTS],
    tables: &'t Tables,
    scans: &'t mut [(&'t Scan, Cursor<'d>)],
    coefficients: &'t mut Coefficients,
    canvas: &'t mut Canvas,
    out: &'t mut dyn PixelOutput,
}

impl IsaTask for Weave<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(mut self, kernels: impl JpegKernels) {
        for first in (0..self.frame.units_down).step_by(STRIP) {
            if self.canvas.is_complete() {
                return;
            }
            let strip = first..self.frame.units_down.min(first + STRIP);
            self.coefficients.clear();
            for (scan, cursor) in &mut *self.scans {
                let frame = self.frame;
                let is_progressive = self.is_progressive;
                let tables = self.tables;
                let collect = Collect { frame, scan, is_progressive, tables };
                collect.run(kernels, cursor, self.coefficients, strip.clone());
            }
            for (row, y) in strip.enumerate() {
                self.transform(kernels, row, y);
                self.canvas.finish_rows(kernels, self.frame, self.space, y, self.out);
            }
        }
    }
}

impl Weave<'_, '_> {
    /// Turns the strip's unit row `row`, the picture's `y`, into samples.
    #[inline(always)]
    fn transform(&mut self, kernels: impl JpegKernels, row: usize, y: usize) {
        let units = self.canvas.needed(self.frame, y);
        for (i, component) in self.frame.components().iter().enumerate() {
            let plane = &mut self.canvas.planes[i];
            let quantization = &self.quantization[i];
            let columns = component.block_columns(&units);
            for v in 0..component.v {
                let blocks = self.coefficients.blocks(row * self.frame.block_rows + component.first_row + v);
                let mut waiting = None;
                for (x, (block, dc)) in blocks.enumerate().take(columns.end).skip(columns.start) {
                    let start = plane.start(x, v) + if y % 2 == 1 { plane.half() } else { 0 };
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
    }
}

/// Decodes a scan's part of a strip.
#[derive(Clone, Copy)]
struct Collect<'t> {
    frame: &'t Frame,
    scan: &'t Scan,
    is_progressive: bool,
    tables: &'t Tables,
}

impl Collect<'_> {
    #[inline(always)]
    fn run(self, kernels: impl JpegKernels, cursor: &mut Cursor<'_>, rows: &mut Coefficients, strip: Range<usize>) {
        let mut bits = cursor.bits;
        match *self.scan.parts() {
            [part] => {
                let component = &self.frame.components()[part.component];
                let (across, down) = component.own_blocks;
                for y in strip.start * component.v..down.min(strip.end * component.v) {
                    let above = y - strip.start * component.v;
                    let row = above / component.v * self.frame.block_rows + component.first_row + above % component.v;
                    let row = rows.row(row);
                    let mut x = 0;
                    while x < across {
                        bits = cursor.begin_unit(bits);
                        bits = self.block(kernels, cursor, bits, 0, row.block(x));
                        x = cursor.pass(self.scan, row, x + 1, across);
                    }
                }
            }
            _ => {
                for y in 0..strip.len() {
                    for x in 0..self.frame.units_across {
                        bits = self.unit(kernels, cursor, rows, (y, x), bits);
                    }
                }
            }
        }
        cursor.bits = bits;
    }

    /// Decodes the blocks of all components in one place.
    #[inline(always)]
    fn unit(
        self,
        kernels: impl JpegKernels,
        cursor: &mut Cursor<'_>,
        rows: &mut Coefficients,
        (y, x): (usize, usize),
        bits: Bits,
    ) -> Bits {
        let mut bits = cursor.begin_unit(bits);
        for (slot, part) in self.scan.parts().iter().enumerate() {
            let component = &self.frame.components()[part.component];
            for v in 0..component.v {
                let row = rows.row(y * self.frame.block_rows + component.first_row + v);
                for h in 0..component.h {
                    bits = self.block(kernels, cursor, bits, slot, row.block(x * component.h + h));
                }
            }
        }
        bits
    }

    #[inline(always)]
    fn block(
        self,
        kernels: impl JpegKernels,
        cursor: &mut Cursor<'_>,
        bits: Bits,
        slot: usize,
        block: StoredCoefficients<'_>,
    ) -> Bits {
        if cursor.dry {
            return bits;
        }
        if self.is_progressive {
            return scan::progressive(kernels, self.scan, cursor, bits, slot, self.tables, block);
        }
        let part = self.scan.parts()[slot];
        let mut scratch: ScanScratch = [0; 256];
        let (bits, dc) = scan::first(cursor, bits, slot, &self.tables.dc.tables[part.dc]);
        scratch[0] = dc;
        let ac = &self.tables.ac.tables[part.ac];
        let (bits, has_detail) = scan::rest::<true>(cursor.window.bytes, bits, ac, 63, &mut scratch);
        *block.coefficients = *own(&scratch);
        *block.nonzero = if has_detail { u64::MAX } else { 0 };
        *block.dc = dc;
        bits
    }
}

impl Canvas {
    fn reset(&mut self, frame: &Frame, wanted: &Region) {
        self.finished = 0;
        self.rows = wanted.rows.start as usize..frame.height.min(wanted.rows.end as usize);
        self.units = frame.units(wanted.columns.start as usize..wanted.columns.end as usize);
        for ((component, plane), wide) in frame.components().iter().zip(&mut self.planes).zip(&mut self.wide) {
            plane.reset(component);
            wide.resize(component.width * component.upsampling.columns(), 0);
        }
    }

    /// Converts all rows whose samples are ready, now that unit row `y` is decoded.
    #[inline(always)]
    fn finish_rows(
        &mut self,
        kernels: impl JpegKernels,
        frame: &Frame,
        space: ColorSpace,
        y: usize,
        out: &mut dyn PixelOutput,
    ) {
        let decoded = (y + 1) * frame.unit_rows;
        let waits = frame.components().iter().any(|component| component.upsampling.needs_neighbours());
        let end = match (decoded < frame.height, waits) {
            (true, true) => decoded - frame.max_v,
            (true, false) => decoded,
            (false, _) => frame.height,
        };
        let first = self.finished.max(self.rows.start);
        let last = end.min(self.rows.end);
        if first < last {
            let rows = out.rows(last - first);
            for (y, row) in (first..last).zip(rows.chunks_exact_mut(frame.width)) {
                self.finish_row(kernels, frame, space, y, &mut row[frame.columns(&self.units)]);
            }
        }
        self.finished = end;
    }

    /// Returns true if all wanted rows are finished.
    fn is_complete(&self) -> bool {
        self.finished >= self.rows.end
    }

    /// The units of unit row `y` whose samples a wanted pixel needs.
    fn needed(&self, frame: &Frame, y: usize) -> Range<usize> {
        let is_above = (y + 2) * frame.unit_rows <= self.rows.start;
        if is_above { 0..0 } else { self.units.clone() }
    }

    /// Makes the pixels of row `y` that the units hold.
    #[inline(always)]
    fn finish_row(
        &mut self,
        kernels: impl JpegKernels,
        frame: &Frame,
        space: ColorSpace,
        y: usize,
        out: &mut [[u8; 3]],
    ) {
        let mut rows: [&[u8]; MAX_COMPONENTS] = [&[]; MAX_COMPONENTS];
        let parts = frame.components().iter().zip(&self.planes).zip(&mut self.wide);
        for (row, ((component, plane), wide)) in rows.iter_mut().zip(parts) {
            *row = full_width(component, plane, &self.units, y, wide);
        }
        color::convert(kernels, space, rows, out);
    }
}

/// The error of a table that is cut off, or has a number above 3.
fn bad_quantization() -> DecodeError {
    corrupt("bad quantization table")
}

/// The units' part of row `y` of the picture, from one component.
#[inline(always)]
fn full_width<'a>(
    component: &Component,
    plane: &'a ComponentPlane,
    units: &Range<usize>,
    y: usize,
    wide: &'a mut [u8],
) -> &'a [u8] {
    let blocks = component.block_columns(units);
    let columns = blocks.start * component.side..component.width.min(blocks.end * component.side);
    let wide = &mut wide[..columns.len() * component.upsampling.columns()];
    let last = component.height - 1;
    let own = (y / component.upsampling.rows()).min(last);
    let near = &plane.row(own)[columns.clone()];
    // The neighbour on the side of this row's half; rows beyond the edges repeat the outermost ones.
    let is_upper = y.is_multiple_of(2);
    let far = &plane.row(if is_upper { own.saturating_sub(1) } else { (own + 1).min(last) })[columns];
    match component.upsampling {
        Upsampling::None => return near,
        Upsampling::FancyH2V1 => upsample::fancy_h2v1(near, wide),
        Upsampling::FancyH1V2 => {
            upsample::fancy_h1v2(near, far, if is_upper { 1 } else { 2 }, wide);
        }
        Upsampling::FancyH2V2 => upsample::fancy_h2v2(near, far, wide),
        Upsampling::Repeat { h: 1, .. } => return near,
        Upsampling::Repeat { h, .. } => upsample::repeat(near, h, wide),
    }
    wide
}
