//! A large picture that is decoded by rows is never whole in memory. Linux alone reports the peak.
#![cfg(target_os = "linux")]

use foveate_core::{PixelBuf, Region, Size};
use foveate_decode::conformance::samples;
use foveate_decode::{DecodeHint, DecoderOptions, RowDecoder, RowSink};
use foveate_decode_exact::ExactDecoder;
use foveate_profile::process::peak_resident_bytes;

const SIZE: Size = Size::new(4000, 3000);
const MOST: u64 = 4 << 20;

/// Counts samples.
struct Count(usize);

impl RowSink for Count {
    fn begin(&mut self, size: Size) -> Option<Region> {
        (size == SIZE).then_some(Region { columns: 0..size.width, rows: 0..size.height })
    }

    fn rows(&mut self, samples: &[u8]) {
        self.0 += samples.len();
    }
}

/// The sample with this many pixels and noise in place of its data, in each scan about as many bytes as in a photo.
/// After damage, decoding continues at the scan's next row, because each begins with a restart marker.
fn noise(sample: &[u8]) -> Vec<u8> {
    let segment = |at: usize| at + 2 + usize::from(u16::from_be_bytes([sample[at + 2], sample[at + 3]]));
    let mut bytes = sample[..2].to_vec();
    let mut at = 2;
    let mut state = 1_u32;
    while sample[at + 1] != 0xD9 {
        let header = &sample[at..segment(at)];
        at += header.len();
        match header[1] {
            0xC0..=0xC2 => {
                let first = bytes.len();
                bytes.extend_from_slice(header);
                bytes[first + 5..first + 7].copy_from_slice(&(SIZE.height as u16).to_be_bytes());
                bytes[first + 7..first + 9].copy_from_slice(&(SIZE.width as u16).to_be_bytes());
            }
            0xDA => {
                // 4:2:0: units of all components and blocks of chroma have 16 x 16 pixels, blocks of luma 8 x 8.
                let side = if header[4..6] == [1, 1] { 8 } else { 16 };
                let [high, low] = (SIZE.width.div_ceil(side) as u16).to_be_bytes();
                bytes.extend([0xFF, 0xDD, 0, 4, high, low]);
                bytes.extend_from_slice(header);
                let rows = SIZE.height.div_ceil(side);
                for row in 0..rows {
                    bytes.extend((0..SIZE.pixels() / 8 / u64::from(rows)).map(|_| {
                        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        (state >> 24) as u8 & 0x7F // no marker
                    }));
                    if row + 1 < rows {
                        bytes.extend([0xFF, 0xD0 + (row % 8) as u8]);
                    }
                }
                while sample[at] != 0xFF || matches!(sample[at + 1], 0 | 0xD0..=0xD7) {
                    at += 1;
                }
            }
            _ => bytes.extend_from_slice(header),
        }
    }
    bytes.extend([0xFF, 0xD9]);
    bytes
}

#[test]
fn twelve_megapixels_by_rows_take_four_megabytes() {
    for sample in [samples::WAVES, samples::JPEG_PROGRESSIVE] {
        let bytes = noise(sample);
        let mut samples = Count(0);
        let floor = peak_resident_bytes().expect("Linux reports it");
        let mut decoder = ExactDecoder::new(DecoderOptions::default());
        let hint = DecodeHint::default();
        let mut strip = PixelBuf::default();
        let decoded = decoder.decode_rows(&bytes, hint, &mut strip, &mut samples).expect("a whole file");
        let more = peak_resident_bytes().expect("Linux reports it") - floor;
        assert_eq!((decoded.expect("rows").native, samples.0), (SIZE, SIZE.rgb_len().expect("36 MB")));
        assert!(more <= MOST, "{more} bytes more than before");
    }
}
