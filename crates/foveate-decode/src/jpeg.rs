//! A JPEG file's structure, read by walking its markers, without decoding and without allocating.
//!
//! The walk accepts what libjpeg accepts (fill bytes, junk between segments, anything after EOI) and refuses what
//! libjpeg calls a fatal error (a second SOI or SOF, reserved markers, impossible scan parameters), so that every
//! backend gives the same verdict on a damaged file, even if its own library tolerates more.

use std::borrow::Cow;

use foveate_core::{BoxError, PixelLimits, Size};
use memchr::memchr;

use crate::{DecodeError, DecoderOptions, ImageFormat};

const SOI: &[u8] = &[0xFF, 0xD8];

/// Coding process, from the frame header's marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// SOF0.
    Baseline,
    /// SOF1, sequential with more tables or 12-bit samples.
    Extended,
    /// SOF2.
    Progressive,
    /// SOF3 and SOF11.
    Lossless,
    /// SOF9 and SOF10: arithmetic instead of Huffman coding.
    Arithmetic,
    /// The remaining ones: hierarchical frames.
    Hierarchical,
}

impl Process {
    fn of(marker: u8) -> Self {
        match marker {
            0xC0 => Self::Baseline,
            0xC1 => Self::Extended,
            0xC2 => Self::Progressive,
            0xC3 | 0xCB => Self::Lossless,
            0xC9 | 0xCA => Self::Arithmetic,
            _ => Self::Hierarchical,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Extended => "extended sequential",
            Self::Progressive => "progressive",
            Self::Lossless => "lossless",
            Self::Arithmetic => "arithmetic",
            Self::Hierarchical => "hierarchical",
        }
    }
}

/// The end of the marker walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// At the end-of-image marker.
    Complete,
    /// At the end of the bytes, before an end-of-image marker.
    Truncated {
        /// End of the usable part: the end of the bytes, or the start of a segment that is cut short.
        at: usize,
    },
}

/// A JPEG file's structure, from its markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Structure {
    /// Size in the frame header; a height of 0 means that DNL gives it later, which no decoder here supports.
    pub size: Size,
    /// Coding process.
    pub process: Process,
    /// Bits per sample.
    pub precision: u8,
    /// Number of components, 1 to 255 (1 gray, 3 colour, 4 CMYK or YCCK).
    pub components: u8,
    /// Horizontal and vertical sampling factor, each 1 to 4, of the first four components; (0, 0) for absent ones.
    pub sampling: [(u8, u8); 4],
    /// True if the first scan holds every component.
    pub interleaved: bool,
    /// Colour transform named in Adobe's APP14 segment: 0 none, 1 YCbCr, 2 YCCK.
    pub adobe_transform: Option<u8>,
    /// Scans in the file.
    pub scans: u32,
    /// Components summed over all scans: how many passes a decoder makes over one component's blocks.
    pub component_scans: u32,
    /// True if a scan uses Huffman tables that the file omits, as Motion JPEG frames do; see [`completed`].
    pub needs_standard_tables: bool,
    /// Complete or truncated.
    pub ending: Ending,
}

/// Walks a JPEG file's markers, up to its end-of-image marker or the end of `bytes`.
///
/// Time is linear in `bytes`, and the walk stops at `max_scans`.
///
/// # Errors
/// [`DecodeError::Corrupt`] for a structure that libjpeg refuses too, [`DecodeError::Truncated`] when the bytes end
/// before the first scan's data, [`DecodeError::TooCostly`] for more than `max_scans` scans.
pub fn inspect(bytes: &[u8], max_scans: u32) -> Result<Structure, DecodeError> {
    let mut walk = Walk { max_scans, ..Walk::default() };
    let mut markers = Markers::new(bytes)?;
    let ending = loop {
        match markers.advance()? {
            MarkerStep::Marker(0xD9, _) => break Ending::Complete,
            MarkerStep::Marker(marker, payload) => walk.visit(marker, payload)?,
            MarkerStep::End(at) => break Ending::Truncated { at },
        }
    };
    walk.finish(ending, bytes.len())
}

impl Structure {
    /// Refuses files that exceed a limit, are cut short, or are of a kind that no Huffman-coded 8-bit decoder reads,
    /// before any decoding.
    ///
    /// # Errors
    /// [`DecodeError::Limit`], [`DecodeError::TooCostly`], [`DecodeError::Truncated`] (unless permitted) and
    /// [`DecodeError::Unsupported`].
    pub fn admit(&self, limits: PixelLimits, options: &DecoderOptions) -> Result<(), DecodeError> {
        self.admit_with(limits, options, &[Process::Baseline, Process::Extended, Process::Progressive])
    }

    /// [`Structure::admit`] for an 8-bit decoder that reads these processes.
    ///
    /// # Errors
    /// The same.
    pub fn admit_with(
        &self,
        limits: PixelLimits,
        options: &DecoderOptions,
        processes: &[Process],
    ) -> Result<(), DecodeError> {
        limits.check(self.size)?;
        self.check_cost(limits)?;
        if self.ending != Ending::Complete && !options.allow_truncated {
            return Err(truncated("the file ends before the end-of-image marker"));
        }
        let reason = match (processes.contains(&self.process), self.precision, self.components) {
            (false, ..) => format!("{} coding", self.process.name()),
            (true, 8, 1 | 3 | 4) => return Ok(()),
            (true, 8, n) => format!("{n} components"),
            (true, bits, _) => format!("{bits} bits per sample"),
        };
        Err(DecodeError::unsupported(ImageFormat::Jpeg, reason))
    }

    /// Bytes that a library takes for the coefficients of a picture in several scans, if it decodes one scan after the
    /// other: two for each sample. Zero for a picture in one scan.
    pub fn coefficient_bytes(&self) -> u64 {
        if self.scans < 2 { 0 } else { self.size.pixels().saturating_mul(2 * u64::from(self.components)) }
    }

    /// Scans cost time in proportion to the image's size, so the number of scans alone is no bound. The bound is on the
    /// pixels visited by all scans together: this many times the pixels of the largest permitted image. Encoders' usual
    /// progressive scripts visit every pixel about five times.
    const MAX_VISITS: u64 = 16;

    fn check_cost(&self, limits: PixelLimits) -> Result<(), DecodeError> {
        let visits = u128::from(self.size.pixels()) * u128::from(self.component_scans) / u128::from(self.components);
        if visits > u128::from(Self::MAX_VISITS) * u128::from(limits.max_pixels) {
            return Err(DecodeError::TooCostly(format!(
                "JPEG of {} in {} scans would take too long to decode",
                self.size, self.scans
            )));
        }
        Ok(())
    }
}

/// Returns `bytes` in a form that any library can read. Adds the standard Huffman tables where
/// [`Structure::needs_standard_tables`] is set, and an end-of-image marker after the usable part of a truncated file.
/// Whole files, the vast majority, are not copied.
pub fn completed<'a>(bytes: &'a [u8], structure: &Structure) -> Cow<'a, [u8]> {
    const EOI: &[u8] = &[0xFF, 0xD9];
    let (usable, ending) = match structure.ending {
        Ending::Complete => (bytes, &[][..]),
        Ending::Truncated { at } => (bytes.get(..at).unwrap_or(bytes), EOI),
    };
    let tables = if structure.needs_standard_tables { STANDARD_TABLES } else { &[] };
    match usable.split_at_checked(2) {
        Some((soi, rest)) if !tables.is_empty() || !ending.is_empty() => {
            Cow::Owned([soi, tables, rest, ending].concat())
        }
        _ => Cow::Borrowed(bytes),
    }
}

/// The typical tables of ISO/IEC 10918-1 K.3.3, as DHT segments (DC 0, AC 0, DC 1, AC 1).
const STANDARD_TABLES: &[u8] = include_bytes!("standard_tables.dht");

/// The payloads of the header segments called `marker` (`0xE1` for APP1), up to the first scan. Stops without an error
/// where the file is damaged.
pub fn header_segments(bytes: &[u8], marker: u8) -> impl Iterator<Item = &[u8]> {
    let mut markers = Markers::new(bytes).ok();
    std::iter::from_fn(move || match markers.as_mut()?.advance() {
        Ok(MarkerStep::Marker(0xDA | 0xD9, _) | MarkerStep::End(_)) | Err(_) => None,
        Ok(MarkerStep::Marker(found, payload)) => Some((found, payload)),
    })
    .filter_map(move |(found, payload)| (found == marker).then_some(payload))
}

/// Pillow's `convert("RGB")` of one pixel of a CMYK file, given as the file stores it. Like Pillow, assumes that every
/// such file is Adobe's, which stores 255 for no ink. For YCCK files, `stored` is libjpeg's conversion to CMYK.
#[inline(always)]
pub fn cmyk_to_rgb(stored: [u8; 4]) -> [u8; 3] {
    let [c, m, y, light] = stored;
    [c, m, y].map(|stored| {
        let product = u32::from(255 - stored) * u32::from(light) + 128;
        light.saturating_sub((((product >> 8) + product) >> 8) as u8)
    })
}

enum MarkerStep<'a> {
    /// A marker's code and its payload, without the length; the payload is empty for markers that have none.
    Marker(u8, &'a [u8]),
    /// No further marker, or a marker whose payload is cut off; holds the end of the usable bytes.
    End(usize),
}

struct Markers<'a> {
    bytes: &'a [u8],
    /// Start of the last marker, and where to look for the next one.
    start: usize,
    at: usize,
}

impl<'a> Markers<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        if bytes.starts_with(SOI) { Ok(Self { bytes, start: 0, at: 2 }) } else { Err(corrupt("no SOI marker")) }
    }

    fn advance(&mut self) -> Result<MarkerStep<'a>, DecodeError> {
        let Some(marker) = self.next_code() else { return Ok(MarkerStep::End(self.bytes.len())) };
        self.start = self.at - 2;
        if matches!(marker, 0x01 | 0xD0..=0xD9) {
            return Ok(MarkerStep::Marker(marker, &[]));
        }
        if !matches!(marker, 0xC0..=0xC7 | 0xC9..=0xCF | 0xDA..=0xDD | 0xE0..=0xEF | 0xFE) {
            return Err(corrupt(format!("reserved marker 0x{marker:02X}")));
        }
        let Some(&[high, low]) = self.bytes.get(self.at..self.at + 2).and_then(|b| b.first_chunk()) else {
            return Ok(MarkerStep::End(self.start));
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length < 2 {
            return Err(corrupt(format!("marker 0x{marker:02X} has length {length}")));
        }
        let Some(payload) = self.bytes.get(self.at + 2..self.at + length) else {
            return Ok(MarkerStep::End(self.start));
        };
        self.at += length;
        Ok(MarkerStep::Marker(marker, payload))
    }

    /// Finds the next marker's code, past entropy-coded data, stuffed zeros, fill bytes and junk.
    fn next_code(&mut self) -> Option<u8> {
        loop {
            self.at += memchr(0xFF, self.bytes.get(self.at..)?)?;
            match *self.bytes.get(self.at + 1)? {
                0xFF => self.at += 1,
                0x00 => self.at += 2,
                code => {
                    self.at += 2;
                    return Some(code);
                }
            }
        }
    }
}

#[derive(Default)]
struct Walk<'a> {
    frame: Option<FrameHeader<'a>>,
    adobe_transform: Option<u8>,
    interleaved: bool,
    scans: u32,
    component_scans: u32,
    /// Bit `id` of entry 0 (DC) or 1 (AC) is set once the table is defined.
    huffman_tables: [u8; 2],
    needs_standard_tables: bool,
    max_scans: u32,
}

struct FrameHeader<'a> {
    size: Size,
    process: Process,
    precision: u8,
    /// Three bytes each: id, sampling factors, quantization table.
    components: &'a [u8],
}

impl<'a> Walk<'a> {
    fn visit(&mut self, marker: u8, payload: &'a [u8]) -> Result<(), DecodeError> {
        match marker {
            0xD8 => Err(corrupt("a second SOI marker")),
            0xDA => self.scan(payload),
            0xC4 => self.huffman_tables(payload),
            0xCC => Ok(()),
            0xC0..=0xCF => self.frame(marker, payload),
            0xEE => {
                self.adobe(payload);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn frame(&mut self, marker: u8, payload: &'a [u8]) -> Result<(), DecodeError> {
        if self.frame.is_some() {
            return Err(corrupt("a second frame header"));
        }
        let Some((&[precision, h1, h0, w1, w0, count], components)) = payload.split_first_chunk() else {
            return Err(corrupt("frame header too short"));
        };
        if count == 0 || components.len() != usize::from(count) * 3 {
            return Err(corrupt(format!("frame header with {count} components has {} bytes", payload.len())));
        }
        for component in components.chunks_exact(3) {
            if !(1..=4).contains(&(component[1] >> 4)) || !(1..=4).contains(&(component[1] & 15)) {
                return Err(corrupt("sampling factor outside 1..=4"));
            }
        }
        let size = Size::new(u16::from_be_bytes([w1, w0]).into(), u16::from_be_bytes([h1, h0]).into());
        self.frame = Some(FrameHeader { size, process: Process::of(marker), precision, components });
        Ok(())
    }

    fn huffman_tables(&mut self, mut payload: &[u8]) -> Result<(), DecodeError> {
        while let Some((&head, rest)) = payload.split_first() {
            let class = usize::from(head >> 4);
            let id = head & 15;
            let values: usize = rest.iter().take(16).map(|&count| usize::from(count)).sum();
            if class > 1 || id > 3 || values > 256 || rest.len() < 16 + values {
                return Err(corrupt("bad Huffman table"));
            }
            self.huffman_tables[class] |= 1 << id;
            payload = &rest[16 + values..];
        }
        Ok(())
    }

    fn adobe(&mut self, payload: &[u8]) {
        if payload.starts_with(b"Adobe") && payload.len() >= 12 {
            self.adobe_transform = Some(payload[11]);
        }
    }

    fn scan(&mut self, payload: &[u8]) -> Result<(), DecodeError> {
        let Some(frame) = &self.frame else { return Err(corrupt("a scan before the frame header")) };
        let Some((&count @ 1..=4, rest)) = payload.split_first() else { return Err(corrupt("bad scan header")) };
        let Some((selectors, &[start, end, approximation])) = rest.split_last_chunk() else {
            return Err(corrupt("scan header too short"));
        };
        if selectors.len() != usize::from(count) * 2 {
            return Err(corrupt(format!("scan header of {count} components has {} bytes", payload.len())));
        }
        for (i, selector) in selectors.chunks_exact(2).enumerate() {
            let id = selector[0];
            // As in libjpeg, which skips the first `i` components, so that components with one id come in their order.
            if !frame.components.chunks_exact(3).skip(i).any(|c| c[0] == id) {
                return Err(corrupt(format!("scan of component {id}, which the frame does not have at this place")));
            }
            let most = frame.components.chunks_exact(3).filter(|c| c[0] == id).count();
            if selectors.chunks_exact(2).take(i + 1).filter(|earlier| earlier[0] == id).count() > most {
                return Err(corrupt(format!("scan has component {id} twice")));
            }
        }
        let progressive = frame.process == Process::Progressive;
        if progressive && !progression_is_possible(count, start, end, approximation) {
            return Err(corrupt(format!("impossible scan: Ss={start} Se={end} AhAl=0x{approximation:02X}")));
        }
        let tables = match frame.process {
            // Progressive scans hold either DC or AC coefficients, and a DC refinement is not Huffman-coded.
            Process::Progressive => [start == 0 && approximation >> 4 == 0, start > 0],
            Process::Baseline | Process::Extended => [true, true],
            _ => [false, false],
        };
        if self.scans == 0 {
            self.interleaved = usize::from(count) == frame.components.len() / 3;
        }
        self.check_tables(selectors, tables, progressive)?;
        self.scans += 1;
        self.component_scans = self.component_scans.saturating_add(count.into());
        if self.scans > self.max_scans {
            return Err(DecodeError::TooCostly(format!("JPEG has more than {} scans", self.max_scans)));
        }
        Ok(())
    }

    /// Checks that the tables exist that a scan refers to. Like libjpeg, assumes the standard tables for missing tables
    /// 0 and 1 of a sequential scan.
    fn check_tables(&mut self, selectors: &[u8], wanted: [bool; 2], progressive: bool) -> Result<(), DecodeError> {
        for selector in selectors.chunks_exact(2) {
            for (class, id) in [(0, selector[1] >> 4), (1, selector[1] & 15)] {
                if !wanted[class] || (id < 4 && self.huffman_tables[class] & 1 << id != 0) {
                    continue;
                }
                if progressive || id > 1 {
                    return Err(corrupt(format!("a scan uses Huffman table {id}, which is not defined")));
                }
                self.needs_standard_tables = true;
            }
        }
        Ok(())
    }

    fn finish(self, ending: Ending, len: usize) -> Result<Structure, DecodeError> {
        let what = if self.frame.is_some() { "scan" } else { "frame header" };
        let Some(frame) = self.frame.filter(|_| self.scans > 0) else {
            return Err(match ending {
                Ending::Complete => corrupt(format!("no {what}")),
                Ending::Truncated { .. } => truncated(format!("it ends at byte {len}, before any {what}")),
            });
        };
        let mut sampling = [(0, 0); 4];
        for (factors, component) in sampling.iter_mut().zip(frame.components.chunks_exact(3)) {
            *factors = (component[1] >> 4, component[1] & 15);
        }
        Ok(Structure {
            size: frame.size,
            process: frame.process,
            precision: frame.precision,
            components: (frame.components.len() / 3) as u8,
            sampling,
            interleaved: self.interleaved,
            adobe_transform: self.adobe_transform,
            scans: self.scans,
            component_scans: self.component_scans,
            needs_standard_tables: self.needs_standard_tables,
            ending,
        })
    }
}

/// The conditions of ISO/IEC 10918-1 G.1.1.1 on one scan of a progressive image.
fn progression_is_possible(components: u8, start: u8, end: u8, approximation: u8) -> bool {
    let high = approximation >> 4;
    let low = approximation & 15;
    let band = if start == 0 { end == 0 } else { start <= end && end <= 63 && components == 1 };
    band && low <= 13 && (high == 0 || high == low + 1)
}

fn corrupt(reason: impl Into<BoxError>) -> DecodeError {
    DecodeError::corrupt(ImageFormat::Jpeg, reason)
}

fn truncated(reason: impl Into<BoxError>) -> DecodeError {
    DecodeError::truncated(ImageFormat::Jpeg, reason)
}

#[cfg(test)]
mod tests {
    use foveate_core::error_chain;

    use super::*;

    const EOI: &[u8] = &[0xFF, 0xD9];

    fn segment(marker: u8, payload: &[u8]) -> Vec<u8> {
        [&[0xFF, marker], ((payload.len() + 2) as u16).to_be_bytes().as_slice(), payload].concat()
    }

    fn frame(marker: u8, width: u16, height: u16) -> Vec<u8> {
        let [w1, w0] = width.to_be_bytes();
        let [h1, h0] = height.to_be_bytes();
        segment(marker, &[8, h1, h0, w1, w0, 3, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1])
    }

    fn tables() -> Vec<u8> {
        STANDARD_TABLES.to_vec()
    }

    /// A scan of all three components with some entropy-coded bytes, a stuffed zero and a restart marker in it.
    fn scan() -> Vec<u8> {
        [segment(0xDA, &[3, 1, 0, 2, 0x11, 3, 0x11, 0, 63, 0]), vec![1, 2, 0xFF, 0, 3, 0xFF, 0xD0, 4]].concat()
    }

    /// A refinement of component 1's coefficient 1, bit 0.
    fn refinement() -> Vec<u8> {
        segment(0xDA, &[1, 1, 0, 1, 1, 0x10])
    }

    fn join(parts: &[&[u8]]) -> Vec<u8> {
        parts.concat()
    }

    fn reason(parts: &[&[u8]]) -> String {
        error_chain(&inspect(&join(parts), 10).unwrap_err())
    }

    #[test]
    fn a_whole_file_is_described() {
        let adobe = segment(0xEE, b"Adobe\0\x64\0\0\0\0\x01");
        // Fill bytes, junk between segments and bytes after EOI are acceptable.
        let file = join(&[SOI, &adobe, b"junk\xFF", &tables(), &frame(0xC0, 640, 480), &scan(), EOI, b"\xFF\xD8 more"]);
        let structure = inspect(&file, 10).unwrap();
        let expected = Structure {
            size: Size::new(640, 480),
            process: Process::Baseline,
            precision: 8,
            components: 3,
            sampling: [(2, 2), (1, 1), (1, 1), (0, 0)],
            interleaved: true,
            adobe_transform: Some(1),
            scans: 1,
            component_scans: 3,
            needs_standard_tables: false,
            ending: Ending::Complete,
        };
        assert_eq!(structure, expected);
        structure.admit(PixelLimits::DEFAULT, &DecoderOptions::default()).unwrap();
    }

    #[test]
    fn every_truncation_is_noticed() {
        let file = join(&[SOI, &tables(), &frame(0xC0, 640, 480), &scan(), EOI]);
        for end in 2..file.len() {
            let cut = &file[..end];
            let verdict = inspect(cut, 10).and_then(|s| s.admit(PixelLimits::DEFAULT, &DecoderOptions::default()));
            assert!(matches!(verdict, Err(DecodeError::Truncated { .. })), "cut at {end}: {verdict:?}");
        }
        let lenient = DecoderOptions { allow_truncated: true, ..DecoderOptions::default() };
        inspect(&file[..file.len() - 2], 10).unwrap().admit(PixelLimits::DEFAULT, &lenient).unwrap();
    }

    #[test]
    fn scans_are_limited_in_number_and_in_pixels() {
        let progressive = |width, height, scans: usize| {
            let first = segment(0xDA, &[3, 1, 0, 2, 0x11, 3, 0x11, 0, 0, 1]);
            join(&[SOI, &tables(), &frame(0xC2, width, height), &first, &refinement().repeat(scans - 1), EOI])
        };
        assert_eq!(inspect(&progressive(64, 64, 10), 10).unwrap().scans, 10);
        assert!(matches!(inspect(&progressive(64, 64, 11), 10), Err(DecodeError::TooCostly(_))));

        let admit = |width, height, scans| {
            let structure = inspect(&progressive(width, height, scans), 500).unwrap();
            structure.admit(PixelLimits::DEFAULT, &DecoderOptions::default())
        };
        admit(6000, 6000, 14).unwrap();
        admit(600, 600, 500).unwrap();
        assert!(matches!(admit(6000, 6000, 400), Err(DecodeError::TooCostly(_))));
        assert!(matches!(admit(60_000, 60_000, 2), Err(DecodeError::Limit(_))));
        assert!(matches!(admit(640, 0, 2), Err(DecodeError::Limit(_))));
    }

    #[test]
    fn what_libjpeg_refuses_is_refused() {
        let tables = tables();
        let frame = frame(0xC0, 8, 8);
        let scan = scan();
        let cases: &[(&[&[u8]], &str)] = &[
            (&[b"no JPEG"], "no SOI marker"),
            (&[SOI, EOI], "no frame header"),
            (&[SOI, &frame, EOI], "no scan"),
            (&[SOI, SOI, &frame, &scan, EOI], "a second SOI"),
            (&[SOI, &tables, &frame, &frame, &scan, EOI], "a second frame header"),
            (&[SOI, &tables, &scan, &frame, EOI], "a scan before the frame header"),
            (&[SOI, &tables, &frame, &scan, b"\xFF\xF6\0\x04..", EOI], "reserved marker 0xF6"),
            (&[SOI, b"\xFF\xE0\0\x01"], "marker 0xE0 has length 1"),
            (&[SOI, &segment(0xC0, &[8, 0, 8, 0, 8, 3, 1, 0x11, 0])], "frame header with 3 components"),
            (&[SOI, &segment(0xC0, &[8, 0, 8, 0, 8, 1, 1, 0x51, 0])], "sampling factor"),
            (&[SOI, &segment(0xC4, &[0x20; 17])], "bad Huffman table"),
            (&[SOI, &tables, &frame, &segment(0xDA, &[1, 9, 0, 0, 63, 0])], "scan of component 9"),
            (&[SOI, &tables, &frame, &segment(0xDA, &[2, 1, 0, 1, 0, 0, 63, 0])], "component 1, which the frame"),
            (&[SOI, &tables, &frame, &segment(0xDA, &[1, 1, 0x30, 0, 63, 0])], "Huffman table 3"),
            (&[SOI, &self::frame(0xC2, 8, 8), &segment(0xDA, &[1, 1, 0, 0, 0, 0])], "Huffman table 0"),
            (&[SOI, &tables, &self::frame(0xC2, 8, 8), &segment(0xDA, &[1, 1, 0, 5, 4, 0])], "impossible scan"),
            (&[SOI, &tables, &self::frame(0xC2, 8, 8), &segment(0xDA, &[1, 1, 0, 1, 5, 0x74])], "impossible scan"),
        ];
        for (parts, expected) in cases {
            let reason = reason(parts);
            assert!(reason.contains(expected), "{reason:?} does not say {expected:?}");
        }
    }

    #[test]
    fn kinds_that_nobody_reads_are_named() {
        let verdict = |parts: &[&[u8]]| {
            let structure = inspect(&join(parts), 10).unwrap();
            error_chain(&structure.admit(PixelLimits::DEFAULT, &DecoderOptions::default()).unwrap_err())
        };
        for (marker, expected) in [(0xC9, "arithmetic"), (0xC3, "lossless"), (0xC5, "hierarchical")] {
            assert!(verdict(&[SOI, &tables(), &frame(marker, 8, 8), &scan(), EOI]).contains(expected));
        }
        let twelve_bits = segment(0xC1, &[12, 0, 8, 0, 8, 1, 1, 0x11, 0]);
        let one = segment(0xDA, &[1, 1, 0, 0, 63, 0]);
        assert!(verdict(&[SOI, &tables(), &twelve_bits, &one, EOI]).contains("12 bits"));
        let two_components = segment(0xC0, &[8, 0, 8, 0, 8, 2, 1, 0x11, 0, 2, 0x11, 0]);
        assert!(verdict(&[SOI, &tables(), &two_components, &one, EOI]).contains("2 components"));
    }

    #[test]
    fn missing_standard_tables_are_put_in_front() {
        let bare = join(&[SOI, &frame(0xC0, 8, 8), &scan(), EOI]);
        let structure = inspect(&bare, 10).unwrap();
        assert!(structure.needs_standard_tables);
        let whole = completed(&bare, &structure);
        let structure = inspect(&whole, 10).unwrap();
        assert!(!structure.needs_standard_tables);
        assert!(matches!(completed(&whole, &structure), Cow::Borrowed(_)));
    }

    #[test]
    fn a_truncated_file_is_closed_before_the_segment_that_is_cut() {
        let file = join(&[SOI, &tables(), &frame(0xC0, 8, 8), &scan(), &tables(), EOI]);
        let cut = &file[..file.len() - 40];
        let structure = inspect(cut, 10).unwrap();
        let whole = completed(cut, &structure);
        assert_eq!(inspect(&whole, 10).unwrap(), Structure { ending: Ending::Complete, ..structure });
        // STANDARD_TABLES holds four segments; the last one is cut.
        assert!(whole.len() < cut.len() && cut.starts_with(&whole[..whole.len() - 2]));
    }

    #[test]
    fn header_segments_stop_at_the_first_scan() {
        let file = join(&[SOI, &segment(0xE1, b"one"), &segment(0xE0, b"no"), &scan(), &segment(0xE1, b"two")]);
        assert_eq!(header_segments(&file, 0xE1).collect::<Vec<_>>(), [b"one"]);
        assert_eq!(header_segments(b"not a JPEG", 0xE1).count(), 0);
    }
}
