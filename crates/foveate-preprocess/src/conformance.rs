//! The conformance suite: the behaviour required of every [`Preprocessor`], for its tests (cargo feature
//! `conformance`).
//!
//! ```ignore
//! #[test]
//! fn conforms() {
//!     let open = |options: &_| Ok(Box::new(MyPreprocessor::open(options)?) as _);
//!     foveate_preprocess::conformance::check(&Subject::on_host(&open));
//! }
//! ```
//!
//! The preprocessor must read baseline and progressive JPEG and have the filter [`Filter::Bilinear`].

use std::cell::RefCell;
use std::time::{Duration, Instant};

use foveate_core::{BatchMemory, PixelBuf, PixelLimits, Size, Stage};
use foveate_decode::Orientation;
use foveate_decode::conformance::{JPEG_TOLERANCE, samples};
use foveate_resize::{Filter, Geometry};

use crate::{ItemFault, OrientationPolicy, PreprocessError, PreprocessOptions, Preprocessor, StageClock, Untimed};

/// Opens a preprocessor.
pub type Open<'a> = &'a dyn Fn(PreprocessOptions) -> Result<Box<dyn Preprocessor>, PreprocessError>;

/// The preprocessor under test, and the memory that it writes to.
pub struct Subject<'a> {
    /// Opens the preprocessor.
    pub open: Open<'a>,
    /// Makes a batch's memory of this many bytes.
    pub memory: &'a dyn Fn(usize) -> Box<dyn BatchMemory>,
    /// Reads such memory's bytes.
    pub read: &'a dyn Fn(&dyn BatchMemory) -> Vec<u8>,
}

impl<'a> Subject<'a> {
    /// Tests with ordinary host memory.
    pub fn on_host(open: Open<'a>) -> Self {
        Self {
            open,
            memory: &|bytes| Box::new(vec![0_u8; bytes]),
            read: &|memory| memory.host().unwrap_or_else(|| panic!("memory of the host")).to_vec(),
        }
    }
}

/// Runs the whole suite.
///
/// # Panics
/// If the preprocessor breaks a rule of the trait; the message says which.
pub fn check(subject: &Subject<'_>) {
    subject.pixels_are_those_of_the_image();
    subject.what_fails_leaves_no_gap();
    subject.every_image_has_its_outcome();
    subject.an_image_does_not_depend_on_its_batch();
    subject.empty_and_hopeless_batches_are_batches();
    subject.limits_hold();
    subject.orientation_is_applied_or_ignored();
    subject.a_batch_without_room_is_refused();
    subject.stages_are_timed();
}

const GOOD: [&[u8]; 4] = [samples::JPEG, samples::WAVES, samples::JPEG_GRAY, samples::JPEG_PROGRESSIVE];
/// An empty image, one cut off in its header, and one cut off in its data.
const BAD: [&[u8]; 4] =
    [b"", b"no image at all", samples::JPEG.split_at(60).0, samples::WAVES.split_at(samples::WAVES.len() / 2).0];
/// Largest difference of a sample between turning an image before and after resampling. Each of the two passes may
/// round the other way.
/// may round the other way.
const TURNED_TOLERANCE: u8 = 2;

type Prepared = Vec<Result<Size, ItemFault>>;

impl Subject<'_> {
    fn opened(&self, options: PreprocessOptions) -> Box<dyn Preprocessor> {
        (self.open)(options).unwrap_or_else(|error| panic!("it cannot be opened: {error}"))
    }

    /// Prepares a batch in memory of exactly its size, and returns the prepared images.
    fn run(&self, preprocessor: &mut dyn Preprocessor, output: Size, images: &[&[u8]]) -> (Prepared, Vec<Vec<u8>>) {
        let image = output.rgb_len().unwrap_or(0);
        let mut memory = (self.memory)(image * images.len());
        // Earlier entries must be gone afterwards.
        let mut prepared = vec![Ok(Size::square(1)); 3];
        preprocessor
            .preprocess(images, memory.as_mut(), &mut prepared, &Untimed)
            .unwrap_or_else(|error| panic!("a batch of {} images: {error}", images.len()));
        assert_eq!(prepared.len(), images.len(), "one outcome for each image");
        let made = prepared.iter().filter(|outcome| outcome.is_ok()).count();
        let bytes = (self.read)(memory.as_ref());
        (prepared, bytes.chunks_exact(image).take(made).map(<[u8]>::to_vec).collect())
    }

    fn alone(&self, options: PreprocessOptions, image: &[u8]) -> (Result<Size, ItemFault>, Option<Vec<u8>>) {
        let output = options.geometry.output();
        let (mut prepared, mut made) = self.run(self.opened(options).as_mut(), output, &[image]);
        (prepared.remove(0), made.pop())
    }

    /// Without resampling, the output equals the decoder's pixels.
    fn pixels_are_those_of_the_image(&self) {
        for (jpeg, expected) in &samples::LIBJPEG[..3] {
            let (outcome, pixels) = self.alone(stretch(samples::SIZE), jpeg);
            assert_eq!(outcome, Ok(samples::SIZE), "the image's size");
            let pixels = pixels.unwrap_or_default();
            assert!(pixels.len() == expected.len() && furthest(&pixels, expected) <= JPEG_TOLERANCE, "its pixels");
        }
    }

    /// Prepared images follow each other without gaps, in order, no matter which others fail.
    fn what_fails_leaves_no_gap(&self) {
        let mut preprocessor = self.opened(small());
        let alone: Vec<Vec<u8>> = GOOD.iter().filter_map(|good| self.alone(small(), good).1).collect();
        assert_eq!(alone.len(), GOOD.len(), "every good image alone");
        for mask in 0..1_u32 << 8 {
            let is_good: [bool; 8] = std::array::from_fn(|at| mask >> at & 1 == 1);
            let images: Vec<&[u8]> = (0..8).map(|at| if is_good[at] { GOOD[at % 4] } else { BAD[at % 4] }).collect();
            let (prepared, made) = self.run(preprocessor.as_mut(), OUTPUT, &images);
            let expected: Vec<&Vec<u8>> = (0..8).filter(|&at| is_good[at]).map(|at| &alone[at % 4]).collect();
            assert!((0..8).all(|at| prepared[at].is_ok() == is_good[at]), "{mask:08b}: {prepared:?}");
            assert!(made.iter().eq(expected), "images of batch {mask:08b}");
        }
    }

    /// Reported sizes are those before resizing, and each fault names the stage that found it.
    fn every_image_has_its_outcome(&self) {
        let sizes = [samples::SIZE, samples::WAVES_SIZE, samples::SIZE, samples::SIZE];
        let images = [GOOD, BAD].concat();
        let (prepared, _) = self.run(self.opened(small()).as_mut(), OUTPUT, &images);
        assert_eq!(prepared[..4], sizes.map(Ok));
        for outcome in &prepared[4..] {
            let fault = outcome.as_ref().expect_err("a bad image");
            assert!(fault.stage == Stage::Decode && !fault.reason.is_empty(), "{fault:?}");
        }
    }

    /// The same preprocessor prepares an image identically, regardless of earlier images and of the rest of the batch.
    fn an_image_does_not_depend_on_its_batch(&self) {
        let mut preprocessor = self.opened(small());
        let images: Vec<&[u8]> = (0..97).map(|at| GOOD[at * at % 4]).collect();
        let (_, first) = self.run(preprocessor.as_mut(), OUTPUT, &images);
        self.run(preprocessor.as_mut(), OUTPUT, &BAD);
        let backwards: Vec<&[u8]> = images.iter().rev().copied().collect();
        let (_, second) = self.run(preprocessor.as_mut(), OUTPUT, &backwards);
        assert_eq!(first.len(), images.len());
        assert!(first.iter().eq(second.iter().rev()), "a batch and the same one backwards");
    }

    fn empty_and_hopeless_batches_are_batches(&self) {
        let mut preprocessor = self.opened(small());
        assert_eq!(self.run(preprocessor.as_mut(), OUTPUT, &[]), (vec![], vec![]));
        let (prepared, made) = self.run(preprocessor.as_mut(), OUTPUT, &BAD);
        assert!(prepared.iter().all(Result::is_err) && made.is_empty());
    }

    fn limits_hold(&self) {
        let pixels = samples::SIZE.pixels();
        let limited = |max_pixels| PreprocessOptions { limits: PixelLimits { max_pixels }, ..small() };
        let (prepared, made) = self.run(self.opened(limited(pixels)).as_mut(), OUTPUT, &GOOD);
        assert_eq!((prepared[1].is_err(), made.len()), (true, 3), "an image above the limit among others");
        let (outcome, _) = self.alone(limited(pixels - 1), samples::JPEG);
        assert!(outcome.is_err_and(|fault| fault.stage == Stage::Decode), "an image one pixel above the limit");
    }

    fn orientation_is_applied_or_ignored(&self) {
        let (_, upright) = self.alone(small(), samples::JPEG);
        let upright = upright.unwrap_or_default();
        for turn in Orientation::ALL {
            let jpeg = with_orientation(samples::JPEG, turn);
            let ignoring = PreprocessOptions { orientation: OrientationPolicy::Ignore, ..small() };
            assert_eq!(self.alone(ignoring, &jpeg), (Ok(samples::SIZE), Some(upright.clone())), "{turn:?}, ignored");

            let mut expected = PixelBuf::default();
            let mut scratch = PixelBuf::default();
            let made = expected.reset(OUTPUT).map(|samples| samples.copy_from_slice(&upright));
            assert!(made.is_ok() && turn.apply(&mut expected, &mut scratch).is_ok());
            let (outcome, pixels) = self.alone(small(), &jpeg);
            assert_eq!(outcome, Ok(turn.apply_size(samples::SIZE)), "{turn:?}: the size upright");
            let off = furthest(&pixels.unwrap_or_default(), expected.as_slice());
            assert!(off <= TURNED_TOLERANCE, "{turn:?}: pixels are {off} off");
        }
    }

    fn a_batch_without_room_is_refused(&self) {
        let mut memory = (self.memory)(OUTPUT.rgb_len().unwrap_or(0) * 2 - 1);
        let mut prepared = Vec::new();
        let images = [samples::JPEG; 2];
        let refused = self.opened(small()).preprocess(&images, memory.as_mut(), &mut prepared, &Untimed);
        assert!(matches!(refused, Err(PreprocessError::Unsupported(_))), "{refused:?}");
    }

    fn stages_are_timed(&self) {
        let clock = TimedStages::default();
        let mut prepared = Vec::new();
        let mut memory = (self.memory)(OUTPUT.rgb_len().unwrap_or(0) * 4);
        let done = self.opened(small()).preprocess(&GOOD, memory.as_mut(), &mut prepared, &clock);
        assert!(done.is_ok());
        for stage in [Stage::Decode, Stage::Resize] {
            assert!(clock.0.borrow().contains(&stage), "{stage:?} is not timed");
        }
    }
}

/// Square, so that a turned image has the same output.
const OUTPUT: Size = Size::square(14);

fn small() -> PreprocessOptions {
    stretch(OUTPUT)
}

fn stretch(output: Size) -> PreprocessOptions {
    PreprocessOptions::new(Geometry::Stretch { output, filter: Filter::Bilinear })
}

/// The largest difference between two samples; the maximum for images of different lengths.
fn furthest(a: &[u8], b: &[u8]) -> u8 {
    if a.len() != b.len() {
        return u8::MAX;
    }
    a.iter().zip(b).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0)
}

/// The same file with an EXIF orientation.
fn with_orientation(jpeg: &[u8], turn: Orientation) -> Vec<u8> {
    // One entry: tag, type SHORT, count, value.
    let tiff = [b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".as_slice(), &[turn.exif()], &[0; 6]].concat();
    let payload = [b"Exif\0\0", tiff.as_slice()].concat();
    let length = (payload.len() as u16 + 2).to_be_bytes();
    [&jpeg[..2], &[0xFF, 0xE1], &length, &payload, &jpeg[2..]].concat()
}

/// Records which stages were timed.
#[derive(Default)]
struct TimedStages(RefCell<Vec<Stage>>);

impl StageClock for TimedStages {
    fn time(&self, stage: Stage, work: &mut dyn FnMut()) {
        self.0.borrow_mut().push(stage);
        work();
    }

    fn span(&self, stage: Stage, _: Instant, time: Duration) {
        self.record(stage, time);
    }

    fn record(&self, stage: Stage, _: Duration) {
        self.0.borrow_mut().push(stage);
    }
}
