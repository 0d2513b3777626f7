//! The preprocessor compared with the CPU's. Without a GPU it runs on the project's emulator, whose streams work as
//! late, as early or in as random an order as CUDA allows. With `FOVEATE_CUDA_TESTS=device` it runs on a real device.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foveate_core::{BatchMemory, ImageViewMut, PixelBuf, Size, error_chain};
use foveate_cuda::{Device, DevicePixels};
use foveate_cuda_emulator as emulator;
use foveate_decode::conformance::JPEG_TOLERANCE;
use foveate_decode::{ByFormat, Decoder, Orientation};
use foveate_decode_exact::ExactDecoder;
use foveate_decode_image::GenericDecoder;
use foveate_decode_nvjpeg::{NvjpegPreprocessor, resample};
use foveate_preprocess::conformance::{Subject, check};
use foveate_preprocess::{
    CpuPreprocessor, DeviceOptions, ItemFault, PreprocessError, PreprocessOptions, Preprocessor, Untimed,
};
use foveate_resize::{Filter, Geometry, Resizer};
use foveate_resize_fir::FirResizer;
use foveate_testkit::{ignore, trials};

fn main() -> ExitCode {
    foveate_testkit::run(trials![
        it_conforms,
        batches_are_those_of_the_cpu,
        what_it_cannot_do_is_said_when_it_is_opened,
        engines_that_are_refused_are_done_without,
        large_batches_go_through_in_groups,
        samples_are_those_of_fir,
    ])
}

/// The orders in which the emulator's streams run work that CUDA does not order.
const ORDERS: [&str; 4] = ["late", "eager", "random:1", "random:2"];

/// Trials run in parallel, and the order is global.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `test` in each order, once on a real device.
fn in_every_order(test: impl Fn()) {
    let _turn = turn();
    if !emulator::is_chosen() {
        return test();
    }
    emulator::load_nvjpeg_for_trial();
    for order in emulator::tested(&ORDERS) {
        emulator::set_order(order).unwrap();
        test();
    }
}

fn cpu(options: PreprocessOptions) -> Result<CpuPreprocessor, PreprocessError> {
    let decoder = || {
        let options = Default::default();
        let jpeg: Box<dyn Decoder> = Box::new(ExactDecoder::new(options));
        let others: Box<dyn Decoder> = Box::new(GenericDecoder::new(options));
        Ok(Box::new(ByFormat::new(vec![jpeg, others])) as Box<dyn Decoder>)
    };
    CpuPreprocessor::open(Arc::new(decoder), Arc::new(|| Ok(Box::new(FirResizer::new()))), options)
}

fn nvjpeg(options: PreprocessOptions, backend: &str) -> Result<NvjpegPreprocessor, PreprocessError> {
    NvjpegPreprocessor::open(DeviceOptions {
        device: "cuda".to_owned(),
        fallback: cpu(options.clone())?,
        options,
        settings: [("backend".to_owned(), backend.to_owned())].into(),
    })
}

/// For any reason, such as a container without the driver's video library.
fn engines_that_are_refused_are_done_without() {
    let _turn = turn();
    if !emulator::is_chosen() {
        ignore("a real device's engines cannot be refused");
    }
    emulator::load_nvjpeg_for_trial();
    for status in 1..=10 {
        emulator::refuse_engines(status).unwrap();
        let geometry = Geometry::Stretch { output: Size::square(14), filter: Filter::Bilinear };
        let opened = ["auto", "hardware"].map(|backend| nvjpeg(PreprocessOptions::new(geometry), backend));
        emulator::refuse_engines(0).unwrap();
        let [Ok(mut auto), Err(refused)] = opened else { panic!("status {status}") };
        let message = foveate_core::error_chain(&refused);
        assert!(message.contains("NVJPEG_STATUS_") && message.contains("backend=auto"), "{message}");
        let (prepared, _) = run(&mut auto, &[&photo()], 14 * 14 * 3);
        assert!(prepared[0].is_ok());
    }
}

fn it_conforms() {
    in_every_order(|| {
        let device = Device::open(0).unwrap();
        for backend in ["auto", "hybrid", "gpu"] {
            let open = |options| Ok(Box::new(nvjpeg(options, backend)?) as Box<dyn Preprocessor>);
            check(&Subject::on_host(&open));
            check(&Subject {
                open: &open,
                memory: &|bytes| Box::new(DevicePixels::new(&device, bytes).unwrap()),
                read: &|memory| read(memory),
            });
        }
    });
}

fn read(memory: &dyn BatchMemory) -> Vec<u8> {
    let mut bytes = vec![0; memory.bytes()];
    let pixels = memory.as_any().downcast_ref::<DevicePixels>().expect("memory of the device");
    pixels.buffer().read(&mut bytes).unwrap();
    bytes
}

/// Returns every file under a folder, sorted.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let file = |path: std::path::PathBuf| match path.is_dir() {
        true => files(&path),
        false => vec![(path.display().to_string(), std::fs::read(&path).unwrap())],
    };
    paths.into_iter().flat_map(file).collect()
}

fn photo() -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/photos/hat.jpg")).unwrap()
}

type Batch = (Vec<Result<Size, ItemFault>>, Vec<u8>);

fn run(preprocessor: &mut dyn Preprocessor, images: &[&[u8]], image: usize) -> Batch {
    let (mut memory, mut prepared) = (vec![0; images.len() * image], Vec::new());
    preprocessor.preprocess(images, &mut memory, &mut prepared, &Untimed).unwrap();
    memory.truncate(prepared.iter().filter(|outcome| outcome.is_ok()).count() * image);
    (prepared, memory)
}

/// Photos, and every unusual and damaged file of the fixtures, have the same outcomes with the same messages, the same
/// sizes, and the same order. The emulated nvJPEG has libjpeg's pixels, as the CPU's decoder `exact` does, so pixels
/// are equal too. Real ones are within a JPEG decoder's freedom to round and upsample, except for those of damaged
/// data.
fn batches_are_those_of_the_cpu() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = files(&root.join("tests/fixtures/conformance"));
    all.extend(files(&root.join("examples/photos")));
    all.retain(|(name, _)| !name.contains("reference") && !name.ends_with(".csv") && !name.ends_with(".json"));
    let images: Vec<&[u8]> = all.iter().map(|(_, bytes)| bytes.as_slice()).collect();
    assert!(images.len() > 60, "{} images", images.len());
    let output = Size::square(56);
    let image = output.rgb_len().unwrap();
    let crop = Geometry::ShortestEdgeCrop { edge: 64, crop: output, filter: Filter::Bicubic };
    let squash = Geometry::Stretch { output, filter: Filter::OpenCvLinear };
    for (geometry, backend) in [(crop, "auto"), (squash, "hybrid")] {
        let options = PreprocessOptions::new(geometry);
        let (said, pixels) = run(&mut cpu(options.clone()).unwrap(), &images, image);
        in_every_order(|| {
            let (prepared, made) = run(&mut nvjpeg(options.clone(), backend).unwrap(), &images, image);
            for (((name, _), said), prepared) in all.iter().zip(&said).zip(&prepared) {
                assert_eq!(said, prepared, "{name} with {backend}");
            }
            let names = all.iter().zip(&said).filter(|(_, outcome)| outcome.is_ok()).map(|((name, _), _)| name);
            for ((name, made), pixels) in names.zip(made.chunks(image)).zip(pixels.chunks(image)) {
                let off = made.iter().zip(pixels).map(|(a, b)| a.abs_diff(*b)).max();
                let tolerance = if emulator::is_chosen() { 0 } else { JPEG_TOLERANCE };
                // Its last scans are missing, and every release of libjpeg estimates them differently.
                let is_unfinished = name.ends_with("partial_progressive.jpg");
                let is_free = is_unfinished || (!emulator::is_chosen() && name.contains("damaged"));
                assert!(is_free || off <= Some(tolerance), "{name} with {backend}: {off:?} off");
            }
            assert_eq!(made.len(), pixels.len());
        });
    }
}

/// There is no silent fallback for options that the device does not support.
fn what_it_cannot_do_is_said_when_it_is_opened() {
    let geometry = |filter| Geometry::Stretch { output: Size::square(8), filter };
    let refused = |filter, backend| {
        nvjpeg(PreprocessOptions::new(geometry(filter)), backend).err().map(|error| error_chain(&error))
    };
    in_every_order(|| {
        assert!(refused(Filter::Lanczos3, "hardware").is_none_or(|said| said.contains("no JPEG engines")));
        assert!(refused(Filter::OpenCvArea, "auto").is_some_and(|said| said.contains("no filter OpenCvArea")));
        assert!(refused(Filter::Box, "auto").is_some_and(|said| said.contains("no filter Box")));
        assert!(refused(Filter::Bicubic, "fast").is_some_and(|said| said.contains("backend=fast")));
    });
}

/// A batch whose decoded pixels are many times a group's limit passes in groups, with the same result.
fn large_batches_go_through_in_groups() {
    let photo = photo();
    let options = PreprocessOptions::new(Geometry::Stretch { output: Size::square(14), filter: Filter::Bilinear });
    let image = 14 * 14 * 3;
    let images = vec![photo.as_slice(); 150];
    let (_, expected) = run(&mut cpu(options.clone()).unwrap(), &images[..1], image);
    in_every_order(|| {
        let (prepared, made) = run(&mut nvjpeg(options.clone(), "auto").unwrap(), &images, image);
        assert!(prepared.iter().all(Result::is_ok) && made.len() == images.len() * image);
        assert!(!emulator::is_chosen() || made[..image] == expected, "the first of them");
        assert!(made.chunks(image).all(|other| *other == made[..image]), "150 times the same image");
    });
}

/// Noise, in which every wrong tap and every other rounding shows.
fn noise(size: Size, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 24) as u8
    };
    (0..size.rgb_len().unwrap()).map(next).collect()
}

fn on_the_cpu(pixels: &[u8], stored: Size, turn: Orientation, geometry: Geometry) -> Vec<u8> {
    let (mut image, mut scratch) = (PixelBuf::default(), PixelBuf::default());
    image.reset(stored).unwrap().copy_from_slice(pixels);
    turn.apply(&mut image, &mut scratch).unwrap();
    let plan = geometry.plan(image.size());
    let mut out = vec![0; plan.output.rgb_len().unwrap()];
    let view = ImageViewMut::new(&mut out, plan.output).unwrap();
    FirResizer::new().resize(image.view(), &plan, view).unwrap();
    out
}

/// Every filter and turn, shrinking and growing, cropped, padded, copied, extreme: every sample equals the CPU's.
fn samples_are_those_of_fir() {
    let _turn = turn();
    if emulator::is_chosen() {
        emulator::for_trial(|| emulator::set_order("late"));
    }
    let device = Device::open(0).unwrap();
    let filters = [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos3, Filter::OpenCvLinear];
    let sizes = [
        (1, 1),
        (2, 3),
        (28, 28),
        (28, 90),
        (90, 28),
        (56, 56),
        (57, 43),
        (43, 57),
        (31, 200),
        (200, 31),
        (333, 250),
        (20, 640),
        (640, 20),
        (64, 64),
        (65, 64),
        (3, 100),
    ];
    let mut turns = Orientation::ALL.into_iter().cycle();
    let mut compared = 0;
    for (seed, (width, height)) in (1..).zip(sizes) {
        let stored = Size::new(width, height);
        let pixels = noise(stored, seed);
        for filter in filters {
            let turn = turns.next().unwrap();
            for geometry in [
                Geometry::Stretch { output: Size::new(28, 28), filter },
                Geometry::Stretch { output: Size::new(37, 21), filter },
                Geometry::ShortestEdgeCrop { edge: 32, crop: Size::square(28), filter },
                Geometry::ShortestEdgeCrop { edge: 28, crop: Size::square(28), filter },
                Geometry::ShortestEdgeCrop { edge: 20, crop: Size::square(28), filter },
            ] {
                let expected = on_the_cpu(&pixels, stored, turn, geometry);
                let made = resample(&device, &pixels, stored, turn, geometry).unwrap();
                assert!(made == expected, "{stored} {turn:?} {geometry:?}");
                compared += made.len();
            }
        }
        // So that a size is tested with other turns and other filters.
        turns.next();
    }
    assert!(compared > 500_000, "{compared} samples");
}
