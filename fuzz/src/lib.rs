//! The contract that every decoder must keep for any input bytes.

use std::cell::RefCell;
use std::ops::Range;

use foveate_core::{FaultScope, PixelBuf, PixelLimits, Region, Size};
use foveate_decode::{DecodeError, DecodeHint, Decoder, DecoderOptions, ImageFormat, RowSink, sniff};

/// Small, so that each input takes little time; large enough for the size in every seed's header.
const LIMITS: PixelLimits = PixelLimits { max_pixels: 1 << 20 };

/// Decodes `bytes` under both truncation policies and checks the promises of [`Decoder`]: an error leaves the buffer
/// empty and concerns one item, pixels have the native size, and they do not depend on what the buffer held before.
pub fn check_decoder(make: impl Fn(DecoderOptions) -> Box<dyn Decoder>, bytes: &[u8]) {
    for allow_truncated in [false, true] {
        let options = DecoderOptions { allow_truncated, ..DecoderOptions::default() };
        let mut decoder = make(options);
        BUFFERS.with_borrow_mut(|[first, second]| {
            dirty(first, 0x00);
            dirty(second, 0xA5);
            let outcome = decoder.decode(bytes, DecodeHint::default(), first);
            match &outcome {
                Ok(decoded) => assert_eq!(first.size(), decoded.native),
                Err(error) => check_error(error, first),
            }
            let again = decoder.decode(bytes, DecodeHint::default(), second);
            assert_eq!(outcome.is_ok(), again.is_ok(), "the second attempt ends otherwise: {again:?}");
            assert!(first.as_slice() == second.as_slice(), "pixels depend on what the buffer held before");
        });
    }
}

/// Decodes `bytes` twice if they begin as a file of one format, so that a target does not search the others, and checks
/// that both attempts end alike. The limit is smaller: instrumented, these decoders take seconds for a megapixel of
/// tiny tiles.
pub fn check_format(format: ImageFormat, make: impl Fn() -> Box<dyn Decoder>, bytes: &[u8]) {
    if sniff(bytes).is_ok_and(|found| found == format) {
        let limits = PixelLimits { max_pixels: 1 << 15 };
        let mut first = PixelBuf::new(limits);
        let mut second = PixelBuf::new(limits);
        dirty(&mut second, 0xA5);
        match make().decode(bytes, DecodeHint::default(), &mut first) {
            Ok(decoded) => assert_eq!(first.size(), decoded.native),
            Err(error) => check_error(&error, &first),
        }
        let _ = make().decode(bytes, DecodeHint::default(), &mut second);
        assert!(first.as_slice() == second.as_slice(), "pixels depend on what the buffer held before");
    }
}

/// Decodes `bytes` at every reduced scale in both kinds, under both truncation policies, and checks that each attempt
/// ends as decoding at native size does: with pixels, or with the same error.
pub fn check_reduced(make: impl Fn(DecoderOptions) -> Box<dyn Decoder>, bytes: &[u8]) {
    for allow_truncated in [false, true] {
        let options = DecoderOptions { allow_truncated, ..DecoderOptions::default() };
        let mut decoder = make(options);
        BUFFERS.with_borrow_mut(|[first, second]| {
            let whole = decoder.decode(bytes, DecodeHint::default(), first).map_err(|error| error.to_string());
            let least = first.size().min_side();
            for (eighths, low_frequencies) in (1..8).flat_map(|eighths| [(eighths, false), (eighths, true)]) {
                let hint = DecodeHint { min_side: Some((least * eighths).div_ceil(8)), low_frequencies };
                dirty(first, 0x00);
                dirty(second, 0xA5);
                let outcomes = [&mut *first, &mut *second].map(|buffer| {
                    let outcome = decoder.decode(bytes, hint, buffer);
                    outcome.inspect_err(|error| check_error(error, buffer)).map_err(|error| error.to_string())
                });
                assert_eq!(outcomes, [whole.clone(), whole.clone()], "{hint:?}");
                assert!(first.size().min_side() >= hint.min_side.unwrap_or(0) || whole.is_err(), "{hint:?}");
                assert!(first.as_slice() == second.as_slice(), "pixels depend on what the buffer held before");
            }
        });
    }
}

/// Decodes `bytes` by rows, at native size and at two reduced scales, under both truncation policies, and checks that
/// the wanted rows, or the error, are those of the whole image, whatever the strip held before. A sink that wants none
/// gets none.
pub fn check_rows(make: impl Fn(DecoderOptions) -> Box<dyn Decoder>, bytes: &[u8]) {
    for allow_truncated in [false, true] {
        let options = DecoderOptions { allow_truncated, ..DecoderOptions::default() };
        let mut decoder = make(options);
        BUFFERS.with_borrow_mut(|[whole, strip]| {
            let mut least = None; // of the native size
            for (eighths, low_frequencies, thirds) in
                [(8, false, 0..3), (8, false, 1..2), (4, false, 0..2), (3, true, 2..3)]
            {
                let min_side = least.map(|least: u32| (least * eighths).div_ceil(8));
                let hint = DecodeHint { min_side, low_frequencies };
                let outcome = decoder.decode(bytes, hint, whole).map_err(|error| error.to_string());
                least = least.or(Some(whole.size().min_side()));
                dirty(strip, 0xA5);
                let mut sink = Rows { thirds, ..Rows::default() };
                let rows = decoder.rows().expect("a decoder of rows");
                let by_rows = rows.decode_rows(bytes, hint, strip, &mut sink);
                if let Err(error) = &by_rows {
                    assert_eq!(error.scope(), FaultScope::Item, "one file would stop the run: {error}");
                }
                match by_rows.map_err(|error| error.to_string()) {
                    Ok(None) => panic!("no rows, and the sink wants them: {hint:?}"),
                    by_rows => assert_eq!(by_rows.map(Option::unwrap), outcome, "{hint:?}"),
                }
                if outcome.is_ok() {
                    assert_eq!(sink.size, whole.size(), "{hint:?}");
                    let row = whole.as_slice().len() / whole.size().height as usize;
                    let wanted = sink.wanted();
                    let wanted = &whole.as_slice()[wanted.start as usize * row..wanted.end as usize * row];
                    assert!(sink.samples == wanted, "rows differ from the whole image: {hint:?}");
                    let mut refusing = Rows::default();
                    let refused = rows.decode_rows(bytes, hint, strip, &mut refusing);
                    assert!(matches!(refused, Ok(None)) && refusing.samples.is_empty(), "{hint:?}: {refused:?}");
                }
            }
        });
    }
}

/// A sink that collects these thirds of an image's rows, if any.
#[derive(Default)]
struct Rows {
    thirds: Range<u32>,
    size: Size,
    samples: Vec<u8>,
}

impl Rows {
    fn wanted(&self) -> Range<u32> {
        let at = |third| self.size.height * third / 3;
        at(self.thirds.start)..at(self.thirds.end)
    }
}

impl RowSink for Rows {
    fn begin(&mut self, size: Size) -> Option<Region> {
        self.size = size;
        self.samples.clear();
        (!self.thirds.is_empty()).then(|| Region { columns: 0..size.width, rows: self.wanted() })
    }

    fn rows(&mut self, samples: &[u8]) {
        self.samples.extend_from_slice(samples);
    }
}

thread_local! {
    static BUFFERS: RefCell<[PixelBuf; 2]> = RefCell::new([PixelBuf::new(LIMITS), PixelBuf::new(LIMITS)]);
}

fn dirty(buffer: &mut PixelBuf, value: u8) {
    if let Ok(samples) = buffer.reset(Size::new(1024, 64)) {
        samples.fill(value);
    }
}

fn check_error(error: &DecodeError, buffer: &PixelBuf) {
    assert!(buffer.size().is_empty(), "the buffer is not empty after: {error}");
    assert_eq!(error.scope(), FaultScope::Item, "one file would stop the run: {error}");
}
