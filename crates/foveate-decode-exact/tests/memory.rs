//! A large baseline picture that is decoded by rows is never whole in memory. Linux alone reports the peak.
#![cfg(target_os = "linux")]

use std::ops::Range;

use foveate_core::{PixelBuf, Size};
use foveate_decode::conformance::samples;
use foveate_decode::{DecodeHint, DecoderOptions, RowDecoder, RowSink};
use foveate_decode_exact::ExactDecoder;
use foveate_profile::process::peak_resident_bytes;

const SIZE: Size = Size::new(4000, 3000);
const MOST: u64 = 4 << 20;

/// Counts samples.
struct Count(usize);

impl RowSink for Count {
    fn begin(&mut self, size: Size) -> Option<Range<u32>> {
        (size == SIZE).then_some(0..size.height)
    }

    fn rows(&mut self, samples: &[u8]) {
        self.0 += samples.len();
    }
}

/// A 4:2:0 file whose data is noise, of about as many bytes as a photo's. After damage, decoding continues at the next
/// row of units, because each begins with a restart marker.
fn noise() -> Vec<u8> {
    let sample = samples::WAVES;
    let place = |marker| sample.windows(2).position(|pair| pair == [0xFF, marker]).expect("a segment");
    let (frame, scan) = (place(0xC0), place(0xDA));
    let data = scan + 2 + usize::from(u16::from_be_bytes([sample[scan + 2], sample[scan + 3]]));
    let (across, down) = (SIZE.width.div_ceil(16) as u16, SIZE.height.div_ceil(16) as usize);
    let (len, [high, low]) = (SIZE.pixels() as usize / 3 / down, across.to_be_bytes());
    let mut bytes = Vec::with_capacity(data + 6 + down * (len + 2));
    bytes.extend_from_slice(&sample[..scan]);
    bytes.extend([0xFF, 0xDD, 0, 4, high, low]);
    bytes.extend_from_slice(&sample[scan..data]);
    bytes[frame + 5..frame + 7].copy_from_slice(&(SIZE.height as u16).to_be_bytes());
    bytes[frame + 7..frame + 9].copy_from_slice(&(SIZE.width as u16).to_be_bytes());
    let mut state = 1_u32;
    for row in 0..down {
        bytes.extend(std::iter::repeat_n((), len).map(|()| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8 & 0x7F // no marker
        }));
        bytes.extend([0xFF, if row + 1 < down { 0xD0 + (row % 8) as u8 } else { 0xD9 }]);
    }
    bytes
}

#[test]
fn twelve_megapixels_by_rows_take_four_megabytes() {
    let (bytes, mut samples) = (noise(), Count(0));
    let floor = peak_resident_bytes().expect("Linux reports it");
    let mut decoder = ExactDecoder::new(DecoderOptions::default());
    let (hint, mut strip) = (DecodeHint::default(), PixelBuf::default());
    let decoded = decoder.decode_rows(&bytes, hint, &mut strip, &mut samples).expect("a baseline file");
    let more = peak_resident_bytes().expect("Linux reports it") - floor;
    assert_eq!((decoded.expect("rows").native, samples.0), (SIZE, SIZE.rgb_len().expect("36 MB")));

    assert!(more <= MOST, "{more} bytes more than before");
}
