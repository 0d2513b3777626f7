//! One picture, from marker segments to pixels: the state so far, and its memory.

use foveate_core::{LimitError, PixelBuf};
use foveate_decode::DecodeError;
use foveate_decode::jpeg::{Process, Structure};

use crate::color::{self, ColorSpace};
use crate::frame::{BLOCK, ColorHints, Component, Frame, MAX_COMPONENTS};
use crate::isa::{Isa, Task};
use crate::kernels::Kernels;
use crate::scan::{self, Block, Cursor, Scan, Tables, natural};
use crate::upsample::{self, Upsampling};
use crate::{error::corrupt, idct};

/// Memory beyond this is freed after the picture that needed it.
const KEEP_BYTES: usize = 64 << 20;

/// The state for decoding one picture; its memory is reused for the next one.
pub(crate) struct Picture {
    tables: Tables,
    /// The quantization tables in force, in natural order.
    quantization: [Option<Block>; 4],
    /// Each component's table, fixed by the component's first scan.
    latched: [Option<Block>; MAX_COMPONENTS],
    restart_interval: u32,
    hints: ColorHints,
    /// Coefficients of the whole picture, if several scans provide them.
    coefficients: Vec<Block>,
    canvas: Canvas,
}

/// Samples on their way to becoming pixels.
struct Canvas {
    planes: [Plane; MAX_COMPONENTS],
    /// A row of each component at the picture's width.
    wide: [Vec<u8>; MAX_COMPONENTS],
    sums: Vec<u16>,
    /// Number of finished pixel rows.
    finished: usize,
}

/// The samples of two successive unit rows of one component; upsampling a row needs only its direct neighbours.
struct Plane {
    samples: Vec<u8>,
    stride: usize,
    /// Sample rows in a unit row.
    rows: usize,
}

impl Plane {
    const EMPTY: Self = Self { samples: Vec::new(), stride: 0, rows: 0 };

    fn reset(&mut self, component: &Component) {
        self.stride = component.blocks_across * BLOCK;
        self.rows = component.v * BLOCK;
        self.samples.resize(self.stride * self.rows * 2, 0);
    }

    /// A recently decoded row of the component.
    #[inline(always)]
    fn row(&self, y: usize) -> &[u8] {
        let start = y % (self.rows * 2) * self.stride;
        &self.samples[start..start + self.stride]
    }

    /// The samples from a block's first one on.
    #[inline(always)]
    fn block(&mut self, x: usize, y: usize) -> (&mut [u8], usize) {
        let start = y * BLOCK % (self.rows * 2) * self.stride + x * BLOCK;
        (&mut self.samples[start..start + (BLOCK - 1) * self.stride + BLOCK], self.stride)
    }
}

impl Picture {
    pub(crate) const EMPTY: Self = Self {
        tables: Tables::EMPTY,
        quantization: [None; 4],
        latched: [None; MAX_COMPONENTS],
        restart_interval: 0,
        hints: ColorHints { jfif: false, adobe_transform: None },
        coefficients: Vec::new(),
        canvas: Canvas {
            planes: [Plane::EMPTY; MAX_COMPONENTS],
            wide: [const { Vec::new() }; MAX_COMPONENTS],
            sums: Vec::new(),
            finished: 0,
        },
    };

    /// Decodes `encoded` into `out`; its `structure` must have been admitted.
    pub(crate) fn decode(
        &mut self,
        isa: Isa,
        encoded: &[u8],
        structure: &Structure,
        out: &mut PixelBuf,
    ) -> Result<(), DecodeError> {
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
                    let new = Frame::parse(payload, structure)?;
                    out.reset(structure.size)?;
                    self.canvas.reset(&new);
                    if !is_streamed(structure) {
                        self.clear_coefficients(&new, structure)?;
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
                let (pixels, _) = out.as_mut_slice().as_chunks_mut();
                let blocks = &self.coefficients;
                isa.run(Finish {
                    frame: &frame,
                    space,
                    quantization: &quantization,
                    blocks,
                    canvas: &mut self.canvas,
                    pixels,
                });
                Ok(())
            }
            (Some(_), Some(_)) => Ok(()),
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

    fn clear_coefficients(&mut self, frame: &Frame, structure: &Structure) -> Result<(), DecodeError> {
        self.coefficients.clear();
        let reserved = self.coefficients.try_reserve_exact(frame.blocks);
        reserved.map_err(|_| LimitError::OutOfMemory { size: structure.size })?;
        self.coefficients.resize(frame.blocks, [0; 64]);
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
        out: &mut PixelBuf,
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
        let mut cursor = Cursor::new(encoded, at, self.restart_interval);
        if is_streamed(structure) {
            let quantization = self.latched.map(|table| table.unwrap_or([0; 64]));
            let (pixels, _) = out.as_mut_slice().as_chunks_mut();
            let (canvas, tables) = (&mut self.canvas, &self.tables);
            isa.run(Stream {
                frame,
                scan: &scan,
                space,
                quantization: &quantization,
                tables,
                cursor: &mut cursor,
                canvas,
                pixels,
            });
        } else {
            let blocks = &mut self.coefficients;
            isa.run(Collect { frame, scan: &scan, is_progressive, tables: &self.tables, cursor: &mut cursor, blocks });
        }
        Ok(cursor.bits.position())
    }

    /// Frees memory beyond the usual amount.
    pub(crate) fn shrink(&mut self) {
        if self.coefficients.capacity() * size_of::<Block>() > KEEP_BYTES {
            self.coefficients = Vec::new();
        }
    }
}

/// Whether the picture's only scan holds all components, so that blocks become samples as they are decoded.
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
    pixels: &'t mut [[u8; 3]],
}

impl Task for Stream<'_, '_> {
    #[inline(always)]
    fn run(self, kernels: impl Kernels) {
        for y in 0..self.frame.units_down {
            for x in 0..self.frame.units_across {
                self.cursor.begin_unit();
                for (slot, part) in self.scan.parts().iter().enumerate() {
                    let component = &self.frame.components()[part.component];
                    let (dc, ac) = (&self.tables.dc[part.dc], &self.tables.ac[part.ac]);
                    let quantization = &self.quantization[part.component];
                    let plane = &mut self.canvas.planes[part.component];
                    for row in 0..component.v {
                        for column in 0..component.h {
                            let mut block = [0; 64];
                            let last = if self.cursor.dry {
                                0
                            } else {
                                scan::sequential(self.cursor, slot, dc, ac, &mut block)
                            };
                            let (samples, stride) = plane.block(x * component.h + column, y * component.v + row);
                            if last == 0 {
                                idct::flat_block(block[0], quantization[0], samples, stride);
                            } else {
                                kernels.block(&block, quantization, samples, stride);
                            }
                        }
                    }
                }
                self.cursor.dry |= self.cursor.bits.exhausted();
            }
            self.canvas.finish_rows(kernels, self.frame, self.space, y, self.pixels);
        }
    }
}

/// Decodes one of several scans into the whole picture's coefficients.
struct Collect<'t, 'd> {
    frame: &'t Frame,
    scan: &'t Scan,
    is_progressive: bool,
    tables: &'t Tables,
    cursor: &'t mut Cursor<'d>,
    blocks: &'t mut [Block],
}

impl Task for Collect<'_, '_> {
    #[inline(always)]
    fn run(mut self, _kernels: impl Kernels) {
        match *self.scan.parts() {
            [part] => {
                let component = self.frame.components()[part.component];
                for y in 0..component.height.div_ceil(BLOCK) {
                    let first = component.first_block + y * component.blocks_across;
                    for x in 0..component.width.div_ceil(BLOCK) {
                        self.cursor.begin_unit();
                        self.block(0, first + x);
                        self.cursor.dry |= self.cursor.bits.exhausted();
                    }
                }
            }
            _ => self.interleaved(),
        }
    }
}

impl Collect<'_, '_> {
    #[inline(always)]
    fn interleaved(&mut self) {
        for y in 0..self.frame.units_down {
            for x in 0..self.frame.units_across {
                self.cursor.begin_unit();
                for (slot, part) in self.scan.parts().iter().enumerate() {
                    let component = &self.frame.components()[part.component];
                    for row in 0..component.v {
                        let first = component.first_block + (y * component.v + row) * component.blocks_across;
                        for column in 0..component.h {
                            self.block(slot, first + x * component.h + column);
                        }
                    }
                }
                self.cursor.dry |= self.cursor.bits.exhausted();
            }
        }
    }

    #[inline(always)]
    fn block(&mut self, slot: usize, index: usize) {
        if self.cursor.dry {
            return;
        }
        let block = &mut self.blocks[index];
        if self.is_progressive {
            scan::progressive(self.scan, self.cursor, slot, self.tables, block);
        } else {
            let part = self.scan.parts()[slot];
            *block = [0; 64];
            scan::sequential(self.cursor, slot, &self.tables.dc[part.dc], &self.tables.ac[part.ac], block);
        }
    }
}

/// Turns a whole picture's coefficients into pixels.
struct Finish<'t> {
    frame: &'t Frame,
    space: ColorSpace,
    quantization: &'t [Block; MAX_COMPONENTS],
    blocks: &'t [Block],
    canvas: &'t mut Canvas,
    pixels: &'t mut [[u8; 3]],
}

impl Task for Finish<'_> {
    #[inline(always)]
    fn run(self, kernels: impl Kernels) {
        for y in 0..self.frame.units_down {
            for (i, component) in self.frame.components().iter().enumerate() {
                for row in y * component.v..(y + 1) * component.v {
                    let first = component.first_block + row * component.blocks_across;
                    for x in 0..component.blocks_across {
                        let (samples, stride) = self.canvas.planes[i].block(x, row);
                        kernels.block(&self.blocks[first + x], &self.quantization[i], samples, stride);
                    }
                }
            }
            self.canvas.finish_rows(kernels, self.frame, self.space, y, self.pixels);
        }
    }
}

impl Canvas {
    fn reset(&mut self, frame: &Frame) {
        self.finished = 0;
        let mut widest = 0;
        for ((component, plane), wide) in frame.components().iter().zip(&mut self.planes).zip(&mut self.wide) {
            plane.reset(component);
            let repeats = match component.upsampling {
                Upsampling::None | Upsampling::FancyH1V2 => 1,
                Upsampling::FancyH2V1 | Upsampling::FancyH2V2 => 2,
                Upsampling::Repeat { h, .. } => h,
            };
            wide.resize(component.width * repeats, 0);
            widest = component.width.max(widest);
        }
        self.sums.resize(widest, 0);
    }

    /// Converts all rows whose samples are ready, now that unit row `y` is decoded.
    #[inline(always)]
    fn finish_rows(
        &mut self,
        kernels: impl Kernels,
        frame: &Frame,
        space: ColorSpace,
        y: usize,
        pixels: &mut [[u8; 3]],
    ) {
        let decoded = (y + 1) * frame.max_v * BLOCK;
        let waits = frame.components().iter().any(|component| component.upsampling.needs_neighbours());
        let end = match (decoded < frame.height, waits) {
            (true, true) => decoded - frame.max_v,
            (true, false) => decoded,
            (false, _) => frame.height,
        };
        for y in self.finished..end {
            let row = &mut pixels[y * frame.width..(y + 1) * frame.width];
            self.finish_row(kernels, frame, space, y, row);
        }
        self.finished = end;
    }

    #[inline(always)]
    fn finish_row(&mut self, kernels: impl Kernels, frame: &Frame, space: ColorSpace, y: usize, out: &mut [[u8; 3]]) {
        let mut rows: [&[u8]; MAX_COMPONENTS] = [&[]; MAX_COMPONENTS];
        let (planes, sums) = (&self.planes, &mut self.sums);
        let parts = frame.components().iter().zip(planes).zip(&mut self.wide);
        for (row, ((component, plane), wide)) in rows.iter_mut().zip(parts) {
            *row = full_width(component, plane, y, wide, sums);
        }
        color::convert(kernels, space, rows, out);
    }
}

/// Row `y` of the picture, from one component.
#[inline(always)]
fn full_width<'a>(component: &Component, plane: &'a Plane, y: usize, wide: &'a mut [u8], sums: &mut [u16]) -> &'a [u8] {
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
        Upsampling::FancyH2V2 => upsample::fancy_h2v2(row(own), row(far), sums, wide),
        Upsampling::Repeat { h: 1, .. } => return row(own),
        Upsampling::Repeat { h, .. } => upsample::repeat(row(own), h, wide),
    }
    wide
}
