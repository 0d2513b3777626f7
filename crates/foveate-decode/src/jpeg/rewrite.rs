//! Rewrites a JPEG file into other bytes with the same picture, for libraries that would reject it or decode it slowly.

use super::{Markers, Process, SOI, Step, Structure};
use crate::DecodeError;

/// Rewrites the file with a header that no library complains about. Drops junk between the segments and segments that
/// do not affect the pixels (ICC profiles, EXIF, comments). Replaces JFIF and Adobe segments by known versions with the
/// same meaning. Bytes from the first scan on are copied unchanged.
///
/// Overwrites `out`, whose memory is reused from file to file.
///
/// # Errors
/// As [`super::inspect`], which runs first.
pub fn with_plain_header(bytes: &[u8], structure: &Structure, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    out.clear();
    out.extend_from_slice(SOI);
    let mut markers = Markers::new(bytes)?;
    loop {
        match markers.advance()? {
            Step::Marker(0xDA | 0xD9, _) => {
                out.extend_from_slice(&bytes[markers.start..]);
                return Ok(());
            }
            Step::End(_) => return Ok(()),
            Step::Marker(marker, _) if concerns_pixels(marker) => {
                let copy = out.len();
                out.extend_from_slice(&bytes[markers.start..markers.at]);
                make_known(marker, structure.components, &mut out[copy + 4..]);
            }
            Step::Marker(..) => {}
        }
    }
}

/// Frame header, tables, restart interval, JFIF and Adobe segments.
fn concerns_pixels(marker: u8) -> bool {
    matches!(marker, 0xC0..=0xCF | 0xDB | 0xDD | 0xE0 | 0xEE)
}

/// Gives a JFIF segment a version that libraries know. Gives an Adobe segment with an unknown colour transform the one
/// that libjpeg assumes for it.
fn make_known(marker: u8, components: u8, payload: &mut [u8]) {
    match (marker, payload) {
        (0xE0, [b'J', b'F', b'I', b'F', 0, major, ..]) => *major = 1,
        (0xEE, [b'A', b'd', b'o', b'b', b'e', _, _, _, _, _, _, transform, ..]) if *transform != 0 => {
            *transform = if components == 4 { 2 } else { 1 };
        }
        _ => {}
    }
}

/// Rewrites a progressive file without the scans that cannot affect libjpeg's decode at 1/8 scale. Returns `Ok(false)`
/// if there is no such scan, or if dropping one could affect the pixels; then decode the original file.
///
/// At 1/8, libjpeg makes one sample of a block from its DC coefficient alone, so all AC scans of a component decoded
/// this way can go. Components with half the samples in both directions (chroma of 4:2:0) become four samples per block
/// instead of being upsampled, and keep their scans. At 1/4 and larger scales no scan can go. libjpeg's reduced
/// transforms use rows and columns 0, 1, 3, 5 and 7 of a block (1/4), or all but 4 (1/2), and encoders do not split
/// scans between those.
///
/// libjpeg smooths pictures whose low AC coefficients are incomplete, so dropped scans would trigger smoothing.
/// Incomplete files are therefore left alone. In the others, quantization entry (2, 0) becomes zero: no transform to
/// one or four samples reads that coefficient, and libjpeg does not smooth where the entry is zero.
///
/// Damage inside a dropped scan goes unnoticed.
///
/// Overwrites `out`, whose memory is reused from file to file.
///
/// # Errors
/// As [`super::inspect`], which runs first.
pub fn without_unused_scans(bytes: &[u8], structure: &Structure, out: &mut Vec<u8>) -> Result<bool, DecodeError> {
    out.clear();
    let Some(mut picture) = Picture::new(structure) else { return Ok(false) };
    let mut markers = Markers::new(bytes)?;
    // Bytes from here on have been neither copied nor dropped.
    let mut pending = 0;
    let mut in_unused_scan = false;
    let mut dropped = false;
    loop {
        let step = markers.advance()?;
        if in_unused_scan && !matches!(step, Step::Marker(0x01 | 0xD0..=0xD7, _)) {
            (in_unused_scan, pending) = (false, markers.start);
        }
        match step {
            Step::Marker(0xDA, header) => match picture.scan(header) {
                Some(true) => {}
                Some(false) => {
                    out.extend_from_slice(&bytes[pending..markers.start]);
                    (in_unused_scan, dropped) = (true, true);
                }
                None => return Ok(false),
            },
            Step::Marker(0xC2, header) if !picture.frame(header) => return Ok(false),
            Step::Marker(0xDB, _) => {
                out.extend_from_slice(&bytes[pending..markers.at]);
                pending = markers.at;
                let tables = out.len() - (markers.at - markers.start) + 4;
                if !clear_entry_2_0(&mut out[tables..]) {
                    return Ok(false);
                }
            }
            Step::Marker(0xD9, _) => {
                out.extend_from_slice(&bytes[pending..markers.at]);
                return Ok(dropped && picture.is_complete());
            }
            Step::Marker(..) => {}
            Step::End(_) => return Ok(false),
        }
    }
}

/// Zigzag position of the coefficient in row 2, column 0.
const ENTRY_2_0: usize = 3;

/// Whether all tables of the segment are well-formed.
fn clear_entry_2_0(mut tables: &mut [u8]) -> bool {
    while let Some((&mut head, rest)) = tables.split_first_mut() {
        let width = if head >> 4 == 0 { 1 } else { 2 };
        let Some((table, others)) = rest.split_at_mut_checked(64 * width) else { return false };
        table[ENTRY_2_0 * width..][..width].fill(0);
        tables = others;
    }
    true
}

/// Number of leading coefficients that libjpeg checks to decide about smoothing.
const WATCHED: usize = 10;

/// What the scans so far say about a progressive picture.
struct Picture<'a> {
    structure: &'a Structure,
    /// Each component's id, once the frame header has been read.
    ids: [u8; 4],
    /// Number of bits still missing in each component's first coefficients; `None` if all are missing.
    missing_bits: [[Option<u8>; WATCHED]; 4],
}

impl<'a> Picture<'a> {
    /// `None` if every component uses all its coefficients at 1/8, or if there are more components than this code
    /// handles.
    fn new(structure: &'a Structure) -> Option<Self> {
        let sides = || (0..usize::from(structure.components)).map(|component| samples_at_eighth(structure, component));
        let suits = structure.process == Process::Progressive && structure.components <= 4;
        let suits = suits && sides().all(|side| side <= 2) && sides().any(|side| side == 1);
        suits.then_some(Self { structure, ids: [0; 4], missing_bits: [[None; WATCHED]; 4] })
    }

    /// Records the components' ids; returns false if they are not distinct.
    fn frame(&mut self, header: &[u8]) -> bool {
        let (specs, _) = header.get(6..).unwrap_or_default().as_chunks::<3>();
        for (i, [id, ..]) in specs.iter().enumerate().take(4) {
            if self.ids[..i].contains(id) {
                return false;
            }
            self.ids[i] = *id;
        }
        true
    }

    /// Whether a scan affects the pixels at 1/8; `None` if that cannot be decided for this picture.
    fn scan(&mut self, header: &[u8]) -> Option<bool> {
        let (selectors, &[start, end, approximation]) = header.get(1..)?.split_last_chunk()?;
        let mut shows = start == 0;
        for [id, _] in selectors.as_chunks().0 {
            let known = &self.ids[..usize::from(self.structure.components)];
            let component = known.iter().position(|known| known == id)?;
            let bits = &mut self.missing_bits[component];
            if start > 0 {
                // The first scan of a component also settles its quantization table.
                bits[0]?;
            }
            let told = bits.iter_mut().take(usize::from(end) + 1).skip(usize::from(start));
            told.for_each(|bits| *bits = Some(approximation & 15));
            shows |= samples_at_eighth(self.structure, component) > 1;
        }
        Some(shows)
    }

    /// Whether the coefficients that decide about smoothing are known to the last bit.
    fn is_complete(&self) -> bool {
        let components = &self.missing_bits[..usize::from(self.structure.components)];
        components.iter().flatten().all(|missing| *missing == Some(0))
    }
}

/// Samples per side that libjpeg makes of a component's block at 1/8. Subsampled components get more, in powers of two,
/// as long as the ratio allows it in both directions.
fn samples_at_eighth(structure: &Structure, component: usize) -> u8 {
    let all = &structure.sampling[..usize::from(structure.components)];
    let (h, v) = all[component];
    let max_h = all.iter().map(|factors| factors.0).max().unwrap_or(1);
    let max_v = all.iter().map(|factors| factors.1).max().unwrap_or(1);
    let fits = |side: &u8| max_h.is_multiple_of(h * side) && max_v.is_multiple_of(v * side);
    [8, 4, 2].into_iter().find(fits).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jpeg::inspect;

    /// 4:2:0 in the usual ten scans.
    const PROGRESSIVE: &[u8] = include_bytes!("../../samples/gradient_420_progressive.jpg");

    fn reduced(bytes: &[u8]) -> Option<Vec<u8>> {
        let mut out = vec![0xA5; 7];
        let structure = inspect(bytes, 500).unwrap();
        without_unused_scans(bytes, &structure, &mut out).unwrap().then_some(out)
    }

    /// Each segment's marker and payload.
    fn segments(bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut markers = Markers::new(bytes).unwrap();
        std::iter::from_fn(|| match markers.advance().unwrap() {
            Step::Marker(marker, payload) => Some((marker, payload.to_vec())),
            Step::End(_) => None,
        })
        .collect()
    }

    fn scans(bytes: &[u8]) -> Vec<Vec<u8>> {
        segments(bytes).into_iter().filter(|(marker, _)| *marker == 0xDA).map(|(_, header)| header).collect()
    }

    /// The bytes with every `from` replaced.
    fn with(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
        let (mut out, mut rest) = (Vec::new(), bytes);
        assert!(bytes.windows(from.len()).any(|window| window == from), "{from:02X?} is not there");
        while let Some(at) = rest.windows(from.len()).position(|window| window == from) {
            out.extend_from_slice(&[&rest[..at], to].concat());
            rest = &rest[at + from.len()..];
        }
        [&out, rest].concat()
    }

    #[test]
    fn lumas_ac_scans_go_and_all_else_stays() {
        let fewer = reduced(PROGRESSIVE).unwrap();
        let is_needed = |header: &Vec<u8>| header[header.len() - 3] == 0 || header[1] != 1;
        let needed: Vec<_> = scans(PROGRESSIVE).into_iter().filter(is_needed).collect();
        assert_eq!((scans(&fewer), needed.len()), (needed, 6));
        let others = |bytes| segments(bytes).into_iter().filter(|(marker, _)| !matches!(marker, 0xDA | 0xDB));
        assert!(others(&fewer).eq(others(PROGRESSIVE)));
        for (before, after) in segments(PROGRESSIVE).iter().zip(segments(&fewer)).filter(|(s, _)| s.0 == 0xDB) {
            let mut expected = before.1.clone();
            expected[1 + ENTRY_2_0] = 0;
            assert!(before.1 != expected && after.1 == expected);
        }
        let (structure, fewer) = (inspect(PROGRESSIVE, 500).unwrap(), inspect(&fewer, 500).unwrap());
        assert_eq!(Structure { scans: 10, component_scans: structure.component_scans, ..fewer }, structure);
    }

    #[test]
    fn entropy_coded_data_goes_with_its_scan() {
        let whole = with(PROGRESSIVE, &[0xFF, 0xD9], &[0xFF, 0xD3, 0x77, 0xFF, 0x01, 0x88, 0xFF, 0xFF, 0xD9]);
        // The last scan refines luma's AC: restart marker, TEM and fill byte are part of it.
        assert_eq!(reduced(&whole), reduced(PROGRESSIVE));
    }

    #[test]
    fn what_it_does_not_understand_is_left_alone() {
        let luma_ac_before_dc = {
            let scan = [0xFF, 0xDA, 0, 8, 1, 1, 0, 1, 5, 2];
            let first = PROGRESSIVE.windows(2).position(|pair| pair == [0xFF, 0xDA]).unwrap();
            [&PROGRESSIVE[..first], &scan, &PROGRESSIVE[first..]].concat()
        };
        let cases = [
            ("baseline", include_bytes!("../../samples/gradient.jpg").to_vec()),
            ("no end", PROGRESSIVE[..PROGRESSIVE.len() - 2].to_vec()),
            ("a bit missing in the end", with(PROGRESSIVE, &[1, 63, 0x10], &[1, 63, 0x21])),
            ("a table too short", with(PROGRESSIVE, &[0xFF, 0xDB, 0, 67], &[0xFF, 0xDB, 0, 66])),
            ("two components of one id", with(PROGRESSIVE, &[3, 0x11, 1], &[2, 0x11, 1])),
            ("AC first", luma_ac_before_dc),
        ];
        for (what, bytes) in cases {
            let mut out = Vec::new();
            // Some of these files have no valid structure of their own.
            let structure = inspect(&bytes, 500).unwrap_or_else(|_| inspect(PROGRESSIVE, 500).unwrap());
            assert!(!matches!(without_unused_scans(&bytes, &structure, &mut out), Ok(true)), "{what}");
        }
    }

    #[test]
    fn samples_at_an_eighth_are_libjpegs() {
        let sides = |sampling: [(u8, u8); 4], components| {
            let structure = Structure { sampling, components, ..inspect(PROGRESSIVE, 500).unwrap() };
            (0..usize::from(components)).map(|i| samples_at_eighth(&structure, i)).collect::<Vec<_>>()
        };
        let none = (0, 0);
        assert_eq!(sides([(1, 1), (1, 1), (1, 1), none], 3), [1, 1, 1]);
        assert_eq!(sides([(2, 2), (1, 1), (1, 1), none], 3), [1, 2, 2]);
        assert_eq!(sides([(2, 1), (1, 1), (1, 1), none], 3), [1, 1, 1]);
        assert_eq!(sides([(4, 4), (1, 1), (2, 1), none], 3), [1, 4, 2]);
        assert_eq!(sides([(3, 3), (1, 1), (1, 3), none], 3), [1, 1, 1]);
        assert_eq!(sides([(2, 2), none, none, none], 1), [1]);
        assert_eq!(sides([(1, 1), (2, 2), (1, 2), (2, 2)], 4), [2, 1, 1, 1]);
    }

    #[test]
    fn a_plain_header_keeps_what_concerns_the_pixels() {
        let segment = |marker, payload: &[u8]| {
            [&[0xFF, marker], ((payload.len() + 2) as u16).to_be_bytes().as_slice(), payload].concat()
        };
        let extras = [
            segment(0xE0, b"JFIF\0\x07\x02\0\0\x01\0\x01\0\0"),
            b"junk".to_vec(),
            segment(0xE1, b"Exif\0\0"),
            segment(0xE2, b"ICC_PROFILE\0\x09\x01"),
            segment(0xFE, b"a comment"),
            segment(0xEE, b"Adobe\0\x64\0\0\0\0\x07"),
        ]
        .concat();
        let odd = [SOI, &extras, &PROGRESSIVE[2..]].concat();
        let structure = inspect(&odd, 500).unwrap();
        let mut plain = vec![0xA5; 7];
        with_plain_header(&odd, &structure, &mut plain).unwrap();

        let expected =
            [SOI, &segment(0xE0, b"JFIF\0\x01\x02\0\0\x01\0\x01\0\0"), &segment(0xEE, b"Adobe\0\x64\0\0\0\0\x01")]
                .concat();
        assert!(plain.starts_with(&expected), "{:02X?}", &plain[..expected.len()]);
        assert_eq!(&plain[expected.len()..], &PROGRESSIVE[2..]);
        assert_eq!(inspect(&plain, 500).unwrap(), Structure { adobe_transform: Some(1), ..structure });
    }
}
