//! The preprocessor compared with the CPU's. Without a GPU it runs on the project's emulator, whose streams work as
//! late, as early or in as random an order as CUDA allows. With `FOVEATE_CUDA_TESTS=device` it runs on a real device.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foveate_core::{BatchMemory, ImageViewMut, PixelBatch, PixelBuf, Size, Stage, VectorBuf, error_chain};
use foveate_cuda::nvjpeg::{Engines, Huffman, ImageDecoder, NvjpegHandle, Processors, Target};
use foveate_cuda::{Buffer, CudaError, Device, DevicePixels, Pinned, Stream};
use foveate_cuda_emulator as emulator;
use foveate_decode::conformance::JPEG_TOLERANCE;
use foveate_decode::{ByFormat, Decoder, DecoderOptions, Orientation, jpeg};
use foveate_decode_exact::ExactDecoder;
use foveate_decode_image::GenericDecoder;
use foveate_decode_nvjpeg::{NvjpegPreprocessor, resample};
use foveate_encode::{BATCH_SIZES, Encoder, EncoderOptions};
use foveate_encode_fused::CudaEncoder;
use foveate_model::Model;
use foveate_preprocess::conformance::{Subject, check};
use foveate_preprocess::{
    CpuPreprocessor, DeviceOptions, ItemFault, PreprocessError, PreprocessOptions, Preprocessor, StageClock, Untimed,
};
use foveate_resize::{Filter, Geometry, Resizer};
use foveate_resize_fir::FirResizer;
use foveate_testkit::{by_length, ignore, trials, workspace};

fn main() -> ExitCode {
    foveate_testkit::run(trials![
        it_conforms,
        batches_are_those_of_the_cpu,
        what_it_cannot_do_is_said_when_it_is_opened,
        engines_that_are_refused_are_done_without,
        engines_stay_within_their_targets,
        a_batch_that_the_engines_refuse_goes_to_the_cores,
        groups_of_other_sizes_prepare_nothing,
        decoders_leave_memory_to_the_model,
        large_batches_go_through_in_groups,
        both_groups_have_a_share_of_a_small_batch,
        what_the_host_prepares_meanwhile_is_in_its_place,
        larger_photos_make_the_device_wait_for_nothing,
        the_forward_captures_beside_workers_whose_memory_grows,
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

/// The safe interface refuses a picture of another size than its target, and a target that leaves its buffer.
fn engines_stay_within_their_targets() {
    let photo = photo();
    let Size { width, height } = jpeg::inspect(&photo, DecoderOptions::default().max_scans).unwrap().size;
    in_every_order(|| {
        let device = Device::open(0).unwrap();
        let stream = Stream::new(&device).unwrap();
        let engines = Engines::new(&NvjpegHandle::new(&device, Processors::EnginesToo).unwrap()).unwrap();
        let Some(mut engines) = engines else { ignore("the device has no JPEG engines") };
        let buffer = Buffer::zeroed(&device, width as usize * height as usize * 3).unwrap();
        let target = |offset, width| Target { buffer: &buffer, offset, width, height, pitch: width as usize * 3 };
        assert!(engines.take(&photo, target(0, width - 1)).unwrap().is_none());
        let beyond = engines.take(&photo, target(1, width)).unwrap().unwrap();
        assert!(matches!(engines.decode(&stream, &[beyond]), Err(CudaError::Misfit(_))));
        let within = engines.take(&photo, target(0, width)).unwrap().unwrap();
        assert!(engines.decode(&stream, &[within]).unwrap());
        // Its memory does not grow any more, which would wait for the device.
        let other = Buffer::zeroed(&device, buffer.bytes()).unwrap();
        let mut before = Pinned::new(&device, buffer.bytes()).unwrap();
        stream.download(&other, &mut before, buffer.bytes()).unwrap();
        let within = engines.take(&photo, Target { buffer: &other, ..target(0, width) }).unwrap().unwrap();
        assert!(engines.decode(&stream, &[within]).unwrap());
        stream.synchronize().unwrap();
        assert!(before.as_slice().iter().all(|&byte| byte == 0), "engines wait for the stream's earlier work");
    });
}

/// Also if the engines were prepared for a smaller group before.
fn a_batch_that_the_engines_refuse_goes_to_the_cores() {
    let _turn = turn();
    if !emulator::is_chosen() {
        ignore("a real device's engines cannot be refused");
    }
    emulator::load_nvjpeg_for_trial();
    let photo = photo();
    let options = PreprocessOptions::new(Geometry::Stretch { output: Size::square(14), filter: Filter::Bilinear });
    let mut preprocessor = nvjpeg(options, "auto").unwrap();
    let (_, expected) = run(&mut preprocessor, &[photo.as_slice(); 2], 14 * 14 * 3);
    emulator::refuse_engines(6).unwrap();
    let (prepared, made) = run(&mut preprocessor, &[photo.as_slice(); 8], 14 * 14 * 3);
    emulator::refuse_engines(0).unwrap();
    assert!(prepared.iter().all(Result::is_ok) && made == expected.repeat(4));
}

/// A group that is a little smaller than the last one is filled up; the encoded bytes' memory grows by doubling.
fn groups_of_other_sizes_prepare_nothing() {
    let _turn = turn();
    if !emulator::is_chosen() {
        ignore("a real library does not count");
    }
    emulator::load_nvjpeg_for_trial();
    let device = Device::open(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let mut engines = Engines::new(&NvjpegHandle::new(&device, Processors::EnginesToo).unwrap()).unwrap().unwrap();
    let photo = photo();
    let Size { width, height } = jpeg::inspect(&photo, DecoderOptions::default().max_scans).unwrap().size;
    let pitch = width as usize * 3;
    let buffers: Vec<Buffer> = (0..16).map(|_| Buffer::zeroed(&device, height as usize * pitch).unwrap()).collect();
    let mut decode = |images: usize| {
        let before = (emulator::prepared_batches().unwrap(), emulator::counts().unwrap().pinnings);
        let taken = |buffer| engines.take(&photo, Target { buffer, offset: 0, width, height, pitch }).unwrap().unwrap();
        let jpegs: Vec<_> = buffers[..images].iter().map(taken).collect();
        assert!(engines.decode(&stream, &jpegs).unwrap());
        (emulator::prepared_batches().unwrap() - before.0, emulator::counts().unwrap().pinnings - before.1)
    };
    let read = |buffer: &Buffer| {
        let mut pixels = vec![0_u8; buffer.bytes()];
        buffer.read(&mut pixels).unwrap();
        pixels
    };
    // One by one up to 16, each a new size to prepare.
    let grown = (1..=16).map(&mut decode).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(grown.0 == 16 && grown.1 <= 5, "{grown:?}");
    assert_eq!([15, 14, 16, 14].map(&mut decode), [(0, 0); 4]);
    assert_eq!(decode(13), (1, 0), "too few to be filled");
    assert!(buffers.iter().all(|buffer| read(buffer) == read(&buffers[0])));
}

/// A decoder's memory grows in small steps, because each worker has several.
fn decoders_leave_memory_to_the_model() {
    let _turn = turn();
    if !emulator::is_chosen() {
        ignore("a real library has memory of its own");
    }
    emulator::load_nvjpeg_for_trial();
    let photo = std::fs::read(workspace().join("examples/photos/hoodie.jpg")).unwrap();
    let Size { width, height } = jpeg::inspect(&photo, DecoderOptions::default().max_scans).unwrap().size;
    let device = Device::open(0).unwrap();
    let pitch = width as usize * 3;
    let stream = Stream::new(&device).unwrap();
    let buffer = Buffer::zeroed(&device, height as usize * pitch).unwrap();
    let mut decoder =
        ImageDecoder::new(&NvjpegHandle::new(&device, Processors::Cores).unwrap(), Huffman::Host).unwrap();
    let free = || device.memory().unwrap().0;
    let before = free();
    assert!(decoder.decode(&stream, &photo, &Target { buffer: &buffer, offset: 0, width, height, pitch }).unwrap());
    let coefficients = width as usize * height as usize * 3 * 2;
    assert!(before - free() <= coefficients + (2 << 20), "{} bytes", before - free());
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
    std::fs::read(workspace().join("examples/photos/hat.jpg")).unwrap()
}

type Batch = (Vec<Result<Size, ItemFault>>, Vec<u8>);

fn run(preprocessor: &mut dyn Preprocessor, images: &[&[u8]], image: usize) -> Batch {
    let mut memory = vec![0; images.len() * image];
    let mut prepared = Vec::new();
    preprocessor.preprocess(images, &mut memory, &mut prepared, &Untimed).unwrap();
    memory.truncate(prepared.iter().filter(|outcome| outcome.is_ok()).count() * image);
    (prepared, memory)
}

/// Photos, and every unusual and damaged file of the fixtures, have the same outcomes with the same messages, the same
/// sizes, and the same order. The emulated nvJPEG has libjpeg's pixels, as the CPU's decoder `exact` does, so pixels
/// are equal too. Real ones are within a JPEG decoder's freedom to round and upsample, except for those of damaged
/// data.
fn batches_are_those_of_the_cpu() {
    let root = workspace();
    let mut all = files(&root.join("tests/fixtures/conformance"));
    all.extend(files(&root.join("examples/photos")));
    all.retain(|(name, _)| !name.contains("reference") && !name.ends_with(".csv") && !name.ends_with(".json"));
    let images: Vec<&[u8]> = all.iter().map(|(_, bytes)| bytes.as_slice()).collect();
    assert!(images.len() > 60, "{} images", images.len());
    let output = Size::square(56);
    let image = output.rgb_len().unwrap();
    let crop = Geometry::ShortestEdgeCrop {
        edge: 64,
        longest: None,
        crop: output,
        filter: Filter::Bicubic,
        ties: foveate_resize::CropTies::Down,
    };
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

/// Counts what is decoded.
#[derive(Default)]
struct Decodes {
    /// Groups, by the device's clock.
    device: Cell<usize>,
    /// Images.
    host: Cell<usize>,
}

impl StageClock for Decodes {
    fn time(&self, stage: Stage, work: &mut dyn FnMut()) {
        self.host.set(self.host.get() + usize::from(stage == Stage::Decode));
        work();
    }

    fn span(&self, stage: Stage, _: Instant, _: Duration) {
        self.time(stage, &mut || ());
    }

    fn record(&self, stage: Stage, _: Duration) {
        self.device.set(self.device.get() + usize::from(stage == Stage::Decode));
    }
}

/// Returns the numbers of groups of the device and of images of the host for `images`, and the outcome.
fn decodes(backend: &str, images: &[&[u8]]) -> ([usize; 2], Batch) {
    let options = PreprocessOptions::new(Geometry::Stretch { output: Size::square(14), filter: Filter::Bilinear });
    let mut memory = vec![0; images.len() * 14 * 14 * 3];
    let mut prepared = Vec::new();
    let decodes = Decodes::default();
    let mut preprocessor = nvjpeg(options, backend).unwrap();
    preprocessor.preprocess(images, &mut memory, &mut prepared, &decodes).unwrap();
    ([decodes.device.get(), decodes.host.get()], (prepared, memory))
}

/// While the device works on one group, the host prepares the next.
fn both_groups_have_a_share_of_a_small_batch() {
    let photo = photo();
    in_every_order(|| {
        for (images, groups) in [(8, 4), (3, 3), (1, 1)] {
            let (decoded, (prepared, _)) = decodes("auto", &vec![photo.as_slice(); images]);
            assert!(decoded == [groups, 0] && prepared.iter().all(Result::is_ok), "{images} images: {decoded:?}");
        }
    });
}

/// A device that is late leaves a batch's last images to the host, one that is early leaves only what it cannot decode.
/// Rows are in the order of the images, and a damaged file among those of the host leaves no gap.
fn what_the_host_prepares_meanwhile_is_in_its_place() {
    if !emulator::is_chosen() {
        ignore("a real device is neither late nor early on request");
    }
    let folder = workspace().join("examples/photos");
    let names = ["hat.jpg", "hoodie.jpg", "astronaut_420.jpg", "chelsea_420_odd.jpg"];
    let files = names.map(|name| std::fs::read(folder.join(name)).unwrap());
    let mut images: Vec<&[u8]> = files.iter().cycle().take(8).map(Vec::as_slice).collect();
    images[6] = b"no image";
    let _turn = turn();
    emulator::load_nvjpeg_for_trial();
    // There are four groups of two. Before the third and the fourth, a late device is found at work once.
    for (order, decoded) in [("late", [3, 2]), ("eager", [4, 1])] {
        emulator::set_order(order).unwrap();
        let (_, alone) = decodes("auto", &images);
        let (shared, together) = decodes("mixed", &images);
        assert_eq!(shared, decoded, "{order}");
        assert!(together == alone && together.0[6].is_err(), "{order}");
    }
}

/// After the first group, groups of other sizes neither free memory nor make nvJPEG free some, which waits for all of
/// the device's work.
fn larger_photos_make_the_device_wait_for_nothing() {
    if !emulator::is_chosen() {
        ignore("a real driver does not count its waits");
    }
    let options = PreprocessOptions::new(Geometry::Stretch { output: Size::square(14), filter: Filter::Bilinear });
    let folder = workspace().join("examples/photos");
    let [small, large] = ["hoodie.jpg", "astronaut_420.jpg"].map(|name| std::fs::read(folder.join(name)).unwrap());
    in_every_order(|| {
        for backend in ["auto", "hybrid"] {
            let mut preprocessor = nvjpeg(options.clone(), backend).unwrap();
            // Both groups, and both decoders of each.
            run(&mut preprocessor, &vec![small.as_slice(); 130], 14 * 14 * 3);
            let before = emulator::counts().unwrap().context_waits;
            run(&mut preprocessor, &[large.as_slice(); 3], 14 * 14 * 3);
            assert_eq!(emulator::counts().unwrap().context_waits, before, "{backend}");
        }
    });
}

/// The forward meets new sizes of batches all the time, so it captures all the time. Beside it, workers open and decode
/// larger and larger images, so nvJPEG's memory and ours grow and go. Neither disturbs the other: every result is the
/// one that each has alone, and no capture is spoilt.
fn the_forward_captures_beside_workers_whose_memory_grows() {
    let rounds = by_length(2, 100);
    in_every_order(|| {
        let before = spoilt_captures();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let is_over = &is_over;
            for backend in ["auto", "hybrid"] {
                scope.spawn(move || grow_until(backend, is_over));
            }
            let forward = scope.spawn(|| forward_in_new_sizes(rounds)).join();
            is_over.store(true, Ordering::Relaxed);
            forward.unwrap();
        });
        assert_eq!(spoilt_captures(), before);
    });
}

/// 0 on a real device, where a spoilt capture costs a graph and shows in nothing else.
fn spoilt_captures() -> u64 {
    if emulator::is_chosen() { emulator::counts().unwrap().spoilt_captures } else { 0 }
}

/// Encodes batches of more sizes than an encoder keeps plans for, each often enough to be captured.
fn forward_in_new_sizes(rounds: usize) {
    let most = BATCH_SIZES + 1;
    let folder = workspace().join("tests/fixtures/models/tiny");
    let mut model = Model::from_folder(&folder).unwrap();
    model.preprocess.crop = Size::square(28);
    let options = EncoderOptions { device: "cuda".to_owned(), max_batch: most, ..EncoderOptions::default() };
    let mut encoder = CudaEncoder::new(&model, &options).unwrap();
    let input = encoder.spec().input;
    let dim = encoder.spec().dim;
    let pixels: Vec<u8> = (1..).take(most).flat_map(|seed| noise(input, seed)).collect();
    let mut encode = |images: usize| {
        let mut vectors = VectorBuf::new();
        let batch = &pixels[..images * input.rgb_len().unwrap()];
        encoder.encode(PixelBatch::new(batch, input).unwrap(), &mut vectors).unwrap();
        (0..images).flat_map(|row| vectors.row(row).to_vec()).collect::<Vec<f32>>()
    };
    let expected = encode(most);
    for images in (1..=most).cycle().take(rounds * most) {
        for _ in 0..3 {
            assert!(encode(images) == expected[..images * dim], "{images} images");
        }
    }
}

/// Decodes ever larger photos with a new preprocessor each time, until `is_over`.
fn grow_until(backend: &str, is_over: &AtomicBool) {
    let geometry = Geometry::Stretch { output: Size::square(14), filter: Filter::Bilinear };
    let options = PreprocessOptions::new(geometry);
    let root = workspace().join("examples/photos");
    let mut photos =
        ["hat.jpg", "chelsea_420_odd.jpg", "astronaut_420.jpg"].map(|name| std::fs::read(root.join(name)).unwrap());
    photos.sort_by_key(Vec::len);
    let images: Vec<&[u8]> = photos.iter().map(Vec::as_slice).collect();
    let expected = run(&mut cpu(options.clone()).unwrap(), &images, 14 * 14 * 3);
    while !is_over.load(Ordering::Relaxed) {
        let mut preprocessor = nvjpeg(options.clone(), backend).unwrap();
        for count in 1..=images.len() {
            let (prepared, made) = run(&mut preprocessor, &images[..count], 14 * 14 * 3);
            assert_eq!(prepared, expected.0[..count]);
            assert!(!emulator::is_chosen() || made == expected.1[..made.len()], "{backend}, {count} photos");
        }
    }
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
    let mut image = PixelBuf::default();
    let mut scratch = PixelBuf::default();
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
                Geometry::ShortestEdgeCrop {
                    edge: 32,
                    longest: None,
                    crop: Size::square(28),
                    filter,
                    ties: foveate_resize::CropTies::Down,
                },
                Geometry::ShortestEdgeCrop {
                    edge: 28,
                    longest: None,
                    crop: Size::square(28),
                    filter,
                    ties: foveate_resize::CropTies::Down,
                },
                Geometry::ShortestEdgeCrop {
                    edge: 20,
                    longest: None,
                    crop: Size::square(28),
                    filter,
                    ties: foveate_resize::CropTies::Down,
                },
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
