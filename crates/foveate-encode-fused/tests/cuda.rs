//! The forward on a GPU: numerics, and batches in flight. Without a GPU it runs on the project's emulator, whose
//! streams work as late, as early or in as random an order as CUDA allows. With `FOVEATE_CUDA_TESTS=device` it runs on
//! a real device.

// Tests may unwrap, and they print what they compared.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::cell::RefCell;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use foveate_core::{BatchMemory, SampleType, Size, VectorBuf};
use foveate_cuda::{Device, DevicePixels, Pinned, Stream};
use foveate_cuda_emulator::for_trial;
use foveate_encode::{
    Batch, DType, EncodeError, EncodeSpans, Encoder, EncoderOptions, Overlap, Place, Pooling, conformance,
};
use foveate_encode_fused::{CudaEncoder, FusedEncoder, FusedTextEncoder};
use foveate_model::{Activation, Model, PixelLibrary, PooledWord, SeededWeights, TextModel};
use foveate_testkit::encoders::{
    FAMILIES, Goldens, HALF, STRICT, TEXT_FAMILIES, distance, encode, fixtures, tiny, worse,
};
use foveate_testkit::{by_length, data, ignore, run, trials};

fn main() -> ExitCode {
    let mut trials = trials![
        tiny_models_meet_their_goldens,
        small_models_meet_their_goldens,
        a_trained_model_agrees_with_the_cpu,
        other_widths_agree_with_the_cpu,
        families_agree_with_the_cpu,
        text_families_agree_with_the_cpu,
        texts_of_wide_heads_agree_with_the_cpu,
        texts_that_a_model_cannot_take_are_refused,
        conformance_in_every_precision,
        overlapped_batches_have_the_same_bits,
        class_tokens_alone_take_less_work,
        graphs_change_no_bits,
        plans_come_and_go,
        spans_lie_where_the_batch_was_under_way,
        the_last_batch_can_be_computed_again,
        misuse_is_told_and_harms_nothing,
        batches_under_way_may_be_dropped,
        a_steady_state_allocates_nothing,
        too_large_a_batch_is_out_of_memory,
        what_it_cannot_do_is_refused,
        an_older_device_has_f16,
        too_old_a_device_is_refused,
        a_driver_without_a_device_is_told,
        two_devices_share_pinned_memory,
        a_lost_context_is_told,
    ];
    // Others run them, each in a process of its own.
    let children = trials![child_older_device, child_too_old, child_no_device, child_two_devices, child_lost_context];
    trials.extend(children.into_iter().map(|child| child.with_ignored_flag(true)));
    run(trials)
}

const TINY: [&str; 3] = ["tiny", "tiny-reg", "tiny-swiglu"];
const DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];
/// The orders in which the emulator's streams run work that CUDA does not order.
const ORDERS: [&str; 4] = ["late", "eager", "random:1", "random:2"];
/// An input that is small for the emulator, yet more than one tile of attention wide.
const FEW_TOKENS: Size = Size::square(126);

/// A device to test on, and the lock for setting its order, because tests run in parallel.
struct Gpu {
    is_emulated: bool,
    _turn: MutexGuard<'static, ()>,
}

impl Gpu {
    fn get() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let is_emulated = foveate_cuda_emulator::is_chosen();
        if is_emulated {
            for_trial(foveate_cuda_emulator::load);
        }
        Self { is_emulated, _turn: turn }
    }

    /// Runs `test` in each of the orders; once on a real device, which has its own order.
    fn in_orders(&self, orders: &[&str], test: impl Fn(&str)) {
        if !self.is_emulated {
            return test("its own order");
        }
        for order in foveate_cuda_emulator::tested(orders) {
            foveate_cuda_emulator::set_order(order).unwrap();
            test(order);
        }
    }
}

/// A model of generated weights with DINOv2's head width, which the tensor cores' attention requires.
fn wide_heads(swiglu: bool) -> Model {
    let mut model = tiny("tiny-reg");
    model.preprocess.crop = Size::new(98, 126);
    model.network.hidden_size = 128;
    model.network.num_attention_heads = 2;
    model.network.mlp_hidden = 344;
    if swiglu {
        model.network.activation = Activation::GatedSilu;
    }
    model.weights = Box::new(SeededWeights::new(&model.network));
    model
}

/// A fixture model on the small input.
fn few_tokens(name: &str) -> Model {
    let mut model = tiny(name);
    model.preprocess.crop = FEW_TOKENS;
    model
}

fn options(dtype: DType, max_batch: usize) -> EncoderOptions {
    EncoderOptions {
        dtype,
        max_batch,
        device: "cuda".to_owned(),
        pooling: Pooling::ClsMean,
        ..EncoderOptions::default()
    }
}

fn with(options: EncoderOptions, settings: &[(&str, &str)]) -> EncoderOptions {
    let settings = settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    EncoderOptions { settings, ..options }
}

fn open(model: &Model, options: &EncoderOptions) -> CudaEncoder {
    CudaEncoder::new(model, options).unwrap()
}

fn pixels(model: &Model, seeds: impl IntoIterator<Item = u32>) -> Vec<u8> {
    seeds.into_iter().flat_map(|seed| conformance::noise(model.preprocess.crop, seed)).collect()
}

// ---- Numerics ----

/// The largest 1 - cosine and relative error of vectors.
#[derive(Clone, Copy, Debug, Default)]
struct Worst {
    angle: f64,
    error: f64,
}

impl Worst {
    fn add(&mut self, ours: &[f32], golden: &[f64]) {
        let (angle, error) = distance(ours, golden);
        assert!(angle.is_finite() && error.is_finite());
        (self.angle, self.error) = worse((self.angle, self.error), (angle, error));
    }

    /// Checks the tiers `strict` and `half`.
    fn check(self, what: &str, dtype: DType) {
        let tier = if dtype == DType::F32 { STRICT } else { HALF };
        println!("{what:<28} {:<4}  1 - cosine {:.1e}  relative error {:.1e}", dtype.name(), self.angle, self.error);
        tier.check(&format!("{what} in {}", dtype.name()), (self.angle, self.error));
    }
}

/// Compares vectors of one batch with the CPU's in f32.
fn compare_with_cpu(model: &Model, options: &EncoderOptions, pixels: &[u8]) -> Worst {
    let cpu = EncoderOptions { device: "cpu".to_owned(), dtype: DType::F32, settings: [].into(), ..options.clone() };
    let expected = encode(&mut FusedEncoder::new(model, &cpu).unwrap(), pixels);
    let vectors = encode(&mut open(model, options), pixels);
    let mut worst = Worst::default();
    for row in 0..vectors.rows() {
        let expected: Vec<f64> = expected.row(row).iter().map(|&value| value.into()).collect();
        worst.add(vectors.row(row), &expected);
    }
    worst
}

/// Compares `cls+mean` vectors of one batch of photos with `transformers`' goldens called `class` and `mean`.
fn compare(encoder: &mut CudaEncoder, goldens: &Goldens, crops: &Path, [class, mean]: [&str; 2]) -> Worst {
    let (input, most) = (encoder.spec().input, encoder.spec().max_batch);
    let (mut pixels, mut photos) = foveate_testkit::encoders::crops(crops, &goldens.names, input.width);
    photos.truncate(most);
    pixels.truncate(photos.len() * input.rgb_len().unwrap());
    let vectors = encode(encoder, &pixels);
    let half = vectors.dim() / 2;
    let mut worst = Worst::default();
    for (row, &photo) in photos.iter().enumerate() {
        worst.add(&vectors.row(row)[..half], &goldens.tensors[class][photo]);
        worst.add(&vectors.row(row)[half..], &goldens.tensors[mean][photo]);
    }
    worst
}

fn tiny_models_meet_their_goldens() {
    let gpu = Gpu::get();
    let folder = fixtures().join("goldens");
    gpu.in_orders(&["late"], |_| {
        for name in TINY {
            let goldens = Goldens::read(&folder.join(format!("embeddings_{name}.safetensors")));
            for dtype in DTYPES {
                let mut encoder = open(&tiny(name), &options(dtype, by_length(6, 30)));
                let crops = folder.join("crop_hf_pil");
                let keys = ["hf_pil.cls.f32", "hf_pil.patch_mean.f32"];
                compare(&mut encoder, &goldens, &crops, keys).check(name, dtype);
            }
        }
    });
}

/// DINOv2's own widths, in both attention kernels.
fn small_models_meet_their_goldens() {
    let gpu = Gpu::get();
    let crops = fixtures().join("goldens/crop_hf_pil");
    let goldens = Goldens::read(&fixtures().join("goldens/seeded_embeddings.safetensors"));
    let cases = [
        ("dinov2-small", "dinov2-small", DType::F32, "auto"),
        ("dinov2-small", "dinov2-small", DType::F16, "plain"),
        ("dinov2-with-registers-small", "dinov2-small-with-registers", DType::F16, "auto"),
        ("dinov2-small", "dinov2-small", DType::Bf16, "auto"),
    ];
    gpu.in_orders(&["late"], |_| {
        for (card, name, dtype, attention) in cases {
            // The emulator takes seconds per image.
            let options = with(options(dtype, if gpu.is_emulated { 2 } else { 30 }), &[("attention", attention)]);
            let mut encoder = open(&Model::seeded(card).unwrap(), &options);
            let keys = [format!("{name}.hf_pil.cls"), format!("{name}.hf_pil.patch_mean")];
            let worst = compare(&mut encoder, &goldens, &crops, [&keys[0], &keys[1]]);
            worst.check(&format!("{name} ({attention})"), dtype);
        }
    });
}

/// Trained weights, whose activations differ from those of random ones: compared with the CPU's forward.
fn a_trained_model_agrees_with_the_cpu() {
    let (gpu, model) = (Gpu::get(), Model::from_folder(&data("weights/vit-tiny-patch16-224")).unwrap());
    let goldens = Goldens::read(&fixtures().join("goldens/embeddings_tiny.safetensors"));
    let (mut pixels, _) =
        foveate_testkit::encoders::crops(&fixtures().join("goldens/crop_hf_pil"), &goldens.names, 224);
    pixels.truncate(by_length(4, 30) * Size::square(224).rgb_len().unwrap());
    gpu.in_orders(&["late"], |_| {
        for dtype in DTYPES {
            compare_with_cpu(&model, &options(dtype, 30), &pixels).check("vit-tiny", dtype);
        }
    });
}

/// Widths and sizes that no committed model has: another grid, heads of 64, a SwiGLU whose width is not a power of two.
fn other_widths_agree_with_the_cpu() {
    let gpu = Gpu::get();
    gpu.in_orders(&["random:3"], |_| {
        for swiglu in [false, true] {
            let model = wide_heads(swiglu);
            let pixels = pixels(&model, 0..3);
            for (dtype, attention) in
                [(DType::F32, "auto"), (DType::F16, "auto"), (DType::F16, "plain"), (DType::Bf16, "auto")]
            {
                let options = with(options(dtype, 3), &[("attention", attention)]);
                let what = if swiglu { "heads of 64, SwiGLU" } else { "heads of 64" };
                compare_with_cpu(&model, &options, &pixels).check(what, dtype);
            }
        }
    });
}

/// Every family, in every pooling that it has, on pixels of the type that its recipe gives. Its own pooling in every
/// precision.
fn families_agree_with_the_cpu() {
    let gpu = Gpu::get();
    let folder = data("families");
    gpu.in_orders(&["random:5"], |_| {
        for family in FAMILIES {
            let model = Model::from_folder(&folder.join(family)).unwrap();
            let mut pixels = pixels(&model, 0..3);
            let mut sample = SampleType::U8;
            if model.preprocess.resampler == PixelLibrary::TorchvisionF32 {
                sample = SampleType::F32;
                pixels = pixels.into_iter().flat_map(|value| (f32::from(value) * 0.99).to_ne_bytes()).collect();
            }
            for pooling in Pooling::ALL.into_iter().filter(|pooling| model.network.dim(*pooling).is_ok()) {
                let is_own = pooling == model.network.pooling;
                for dtype in DTYPES.into_iter().filter(|dtype| is_own || *dtype == DType::F32) {
                    let options = EncoderOptions { pooling, sample, ..options(dtype, 3) };
                    let what = format!("{family} {}", pooling.name());
                    compare_with_cpu(&model, &options, &pixels).check(&what, dtype);
                }
            }
        }
    });
}

/// Texts of different lengths, in two batches and some alone, in every precision.
fn compare_texts(gpu: &Gpu, what: &str, model: &TextModel) {
    let words = model.network.words.unwrap();
    let mut texts: Vec<Vec<u32>> = Vec::new();
    for tokens in [3, words.context, 1, 20, 30] {
        texts.push((0..tokens as u32).map(|i| (i * 7 + 5) % words.vocabulary as u32).collect());
    }
    let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
    let mut expected = VectorBuf::new();
    FusedTextEncoder::new(model, &EncoderOptions::default()).unwrap().encode(&texts, &mut expected).unwrap();
    for dtype in DTYPES {
        let mut encoder = FusedTextEncoder::new(model, &options(dtype, 3)).unwrap();
        let mut together = VectorBuf::new();
        encoder.encode(&texts, &mut together).unwrap();
        let mut alone = VectorBuf::new();
        let mut worst = Worst::default();
        for (row, text) in texts.iter().enumerate() {
            let expected: Vec<f64> = expected.row(row).iter().map(|&value| value.into()).collect();
            worst.add(together.row(row), &expected);
            if row % 3 == 0 {
                encoder.encode(&[text], &mut alone).unwrap();
                worst.add(alone.row(0), &expected);
                // The emulator has one algorithm for products of all sizes.
                assert!(alone.row(0) == together.row(row) || !gpu.is_emulated, "{what}, {}, text {row}", dtype.name());
            }
        }
        worst.check(what, dtype);
    }
}

fn text_families_agree_with_the_cpu() {
    let gpu = Gpu::get();
    gpu.in_orders(&["random:6"], |_| {
        for family in TEXT_FAMILIES {
            let model = TextModel::from_folder(&data("families").join(family)).unwrap();
            compare_texts(&gpu, &format!("{family} texts"), &model);
        }
    });
}

/// Heads of 64, which go through the tensor cores' attention, with a causal mask and without; generated weights.
fn texts_of_wide_heads_agree_with_the_cpu() {
    let gpu = Gpu::get();
    gpu.in_orders(&["late"], |_| {
        for causal in [true, false] {
            let mut model = TextModel::seeded("clip-vit-base-patch32").unwrap();
            let words = model.network.words.as_mut().unwrap();
            words.vocabulary = 50;
            words.causal = causal;
            words.pooled = PooledWord::Last;
            model.network.hidden_size = 128;
            model.network.num_attention_heads = 2;
            model.network.num_hidden_layers = 2;
            model.weights = Box::new(SeededWeights::new(&model.network));
            compare_texts(&gpu, if causal { "causal texts" } else { "texts" }, &model);
        }
    });
}

fn texts_that_a_model_cannot_take_are_refused() {
    let _gpu = Gpu::get();
    let model = TextModel::from_folder(&data("families/clip-gelu")).unwrap();
    let mut encoder = FusedTextEncoder::new(&model, &options(DType::F32, 2)).unwrap();
    for (ids, expected) in [(&[5; 78][..], "text 1 has 78 tokens"), (&[664], "text 1 has the token 664")] {
        let message = encoder.encode(&[&[1], ids], &mut VectorBuf::new()).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    let message = FusedTextEncoder::new(&model, &options(DType::I8, 2)).err().unwrap().to_string();
    assert!(message.contains("i8 on CUDA"), "{message}");
}

fn conformance_in_every_precision() {
    let gpu = Gpu::get();
    gpu.in_orders(&["random:4"], |_| {
        for (name, dtype) in TINY.into_iter().zip(DTYPES) {
            let model = few_tokens(name);
            conformance::check_with(&options(dtype, 5), model.network.hidden_size, |options| {
                Box::new(open(&model, options))
            });
        }
    });
}

// ---- Batches in flight ----

/// Sizes of successive batches: full ones, smaller ones, and a repeated size.
const BATCHES: [usize; 9] = [4, 4, 1, 4, 3, 2, 4, 1, 4];

fn batches(model: &Model) -> Vec<Vec<u8>> {
    let mut seed = 0..;
    BATCHES.iter().map(|&images| pixels(model, seed.by_ref().take(images))).collect()
}

fn one_by_one(encoder: &mut CudaEncoder, batches: &[Vec<u8>]) -> Vec<VectorBuf> {
    batches.iter().map(|pixels| encode(encoder, pixels)).collect()
}

/// Keeps as many batches in flight as possible; `fill` writes a batch's pixels into memory.
fn under_way(
    encoder: &mut CudaEncoder,
    batches: &[Vec<u8>],
    fill: impl Fn(&[u8]) -> Box<dyn BatchMemory>,
) -> (Vec<VectorBuf>, Vec<(Instant, EncodeSpans, Instant)>) {
    let (size, depth) = (encoder.spec().input, encoder.depth());
    let image = size.rgb_len().unwrap();
    let (mut rows, mut spans, mut asked) = (Vec::new(), Vec::new(), Vec::new());
    let mut collect = |encoder: &mut CudaEncoder, asked: Instant, pixels: &[u8]| {
        let mut out = VectorBuf::new();
        let collected = encoder.collect(&mut out).unwrap();
        assert_eq!(collected.batch.images, pixels.len() / image);
        if let Some(memory) = collected.batch.memory.host() {
            assert_eq!(&memory[..pixels.len()], pixels, "a batch's memory comes back as it was");
        }
        rows.push(out);
        spans.push((asked, collected.spans, Instant::now()));
    };
    for (i, pixels) in batches.iter().enumerate() {
        if i >= depth {
            collect(encoder, asked[i - depth], &batches[i - depth]);
        }
        asked.push(Instant::now());
        encoder.submit(Batch { memory: fill(pixels), images: pixels.len() / image, size }).unwrap();
    }
    for i in batches.len().saturating_sub(depth)..batches.len() {
        collect(encoder, asked[i], &batches[i]);
    }
    (rows, spans)
}

/// Returns device memory with pixels, copied there on a stream that has not been waited for. The host memory that the
/// copy reads goes to `kept`, because dropping it would wait for the copy.
fn on_device(device: &Device, stream: &Stream, pixels: &[u8], kept: &RefCell<Vec<Pinned>>) -> DevicePixels {
    let mut pinned = Pinned::new(device, pixels.len()).unwrap();
    pinned.as_mut_slice().copy_from_slice(pixels);
    let mut there = DevicePixels::new(device, pixels.len()).unwrap();
    stream.upload(&mut pinned, there.buffer(), pixels.len()).unwrap();
    there.filled_on(stream).unwrap();
    kept.borrow_mut().push(pinned);
    there
}

/// Vectors have the same bits in whatever memory batches lie, however many are in flight, in whatever order the device
/// works.
fn overlapped_batches_have_the_same_bits() {
    let gpu = Gpu::get();
    for (mut model, dtype) in [(tiny("tiny-swiglu"), DType::F32), (wide_heads(false), DType::F16)] {
        model.preprocess.crop = FEW_TOKENS;
        let batches = batches(&model);
        let expected = one_by_one(&mut open(&model, &options(dtype, 4)), &batches);
        gpu.in_orders(&ORDERS, |order| {
            let mut encoder = open(&model, &options(dtype, 4));
            let allocate = encoder.allocator(Place::Host);
            let device = Device::open(0).unwrap();
            let stream = Stream::new(&device).unwrap();
            let pinned = |pixels: &[u8]| {
                let mut memory = allocate(pixels.len() + 100).unwrap();
                memory.host_mut().unwrap()[..pixels.len()].copy_from_slice(pixels);
                memory
            };
            assert_eq!(under_way(&mut encoder, &batches, pinned).0, expected, "pinned, {order}");
            let plain = |pixels: &[u8]| Box::new(pixels.to_vec()) as Box<dyn BatchMemory>;
            assert_eq!(under_way(&mut encoder, &batches, plain).0, expected, "plain, {order}");
            let kept = RefCell::default();
            let there = |pixels: &[u8]| Box::new(on_device(&device, &stream, pixels, &kept)) as Box<dyn BatchMemory>;
            assert_eq!(under_way(&mut encoder, &batches, there).0, expected, "on the device, {order}");
            assert_eq!(one_by_one(&mut encoder, &batches), expected, "one by one, {order}");
        });
    }
}

/// If class tokens alone are pooled, the last block leaves the others out, and they are the same as with a mean.
fn class_tokens_alone_take_less_work() {
    let gpu = Gpu::get();
    let models = [wide_heads(false), wide_heads(true), few_tokens("tiny")];
    gpu.in_orders(&["late", "eager"], |_| {
        for model in &models {
            for dtype in DTYPES {
                let pixels = pixels(model, 1..4);
                let encode_as = |pooling| {
                    let before = blocks(&gpu);
                    let vectors = encode(&mut open(model, &EncoderOptions { pooling, ..options(dtype, 3) }), &pixels);
                    (vectors, blocks(&gpu) - before)
                };
                let ((both, all), (class, fewer)) = (encode_as(Pooling::ClsMean), encode_as(Pooling::Cls));
                let mut worst = Worst::default();
                for row in 0..3 {
                    let beside: Vec<f64> = both.row(row)[..class.dim()].iter().map(|&value| value.into()).collect();
                    worst.add(class.row(row), &beside);
                }
                worst.check("class tokens alone", dtype);
                assert!(fewer < all || !gpu.is_emulated, "{fewer} blocks, not fewer than {all}");
            }
        }
    });
}

/// The blocks of the kernels so far; 0 on a real device, which does not count them.
fn blocks(gpu: &Gpu) -> u64 {
    if gpu.is_emulated { foveate_cuda_emulator::counts().unwrap().blocks } else { 0 }
}

fn graphs_change_no_bits() {
    let gpu = Gpu::get();
    for pooling in [Pooling::ClsMean, Pooling::Head] {
        let model = match pooling {
            // A norm before the first block, rotary positions, attention pooling and a projection.
            Pooling::Head => Model::from_folder(&data("families/pe-core-timm")).unwrap(),
            _ => few_tokens("tiny"),
        };
        let batches = batches(&model);
        gpu.in_orders(&ORDERS, |order| {
            let encode_with = |graph| {
                let options = EncoderOptions { pooling, ..options(DType::F16, 4) };
                one_by_one(&mut open(&model, &with(options, &[("graph", graph)])), &batches)
            };
            assert_eq!(encode_with("on"), encode_with("off"), "{pooling:?}, {order}");
        });
    }
}

/// More sizes than plans are kept, and back again.
fn plans_come_and_go() {
    let gpu = Gpu::get();
    let mut model = tiny("tiny");
    model.preprocess.crop = Size::square(14);
    gpu.in_orders(&["late", "eager"], |order| {
        let mut encoder = open(&model, &options(DType::F32, 12));
        let all = encode(&mut encoder, &pixels(&model, 0..12));
        for images in (1..=12).chain([1, 12, 5]) {
            let part = encode(&mut encoder, &pixels(&model, 0..images));
            for row in 0..images as usize {
                let same = part.row(row).iter().zip(all.row(row)).all(|(a, b)| (a - b).abs() < 1e-4);
                assert!(same, "{images} images, {order}");
            }
        }
    });
}

fn spans_lie_where_the_batch_was_under_way() {
    let gpu = Gpu::get();
    let model = few_tokens("tiny");
    let batches = batches(&model);
    gpu.in_orders(&["late", "eager"], |_| {
        let mut encoder = open(&model, &options(DType::F32, 4));
        let (_, spans) = under_way(&mut encoder, &batches, |pixels| Box::new(pixels.to_vec()));
        for (asked, spans, seen) in &spans {
            let parts = [spans.copy_in, spans.forward, spans.copy_out];
            assert!(parts[0].0 >= *asked, "nothing is done before it is asked for");
            assert!(parts[2].0 + parts[2].1 <= *seen, "nothing is done after its end was seen");
            assert!(parts.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "one part after the other");
            assert!(spans.times().forward.as_nanos() > 0);
        }
        for pair in spans.windows(2) {
            let [(_, first, _), (_, second, _)] = pair else { unreachable!() };
            assert!(first.copy_in.0 <= second.copy_in.0 && first.copy_out.0 <= second.copy_out.0, "in their order");
        }
    });
}

fn the_last_batch_can_be_computed_again() {
    let gpu = Gpu::get();
    let model = few_tokens("tiny");
    gpu.in_orders(&ORDERS, |order| {
        let mut encoder = open(&model, &options(DType::F32, 4));
        let mut out = VectorBuf::new();
        assert!(encoder.resident().is_none());
        for seeds in [0..4, 4..7] {
            let expected = encode(&mut encoder, &pixels(&model, seeds));
            for _ in 0..2 {
                let times = encoder.resident().unwrap().encode_again(&mut out).unwrap();
                assert_eq!(out, expected, "{order}");
                assert!(times.forward > times.copy_in);
            }
        }
        let device = Device::open(0).unwrap();
        let kept = RefCell::default();
        let pixels = on_device(&device, &Stream::new(&device).unwrap(), &pixels(&model, 0..1), &kept);
        let batch = Batch { memory: Box::new(pixels), images: 1, size: encoder.spec().input };
        encoder.submit(batch).unwrap();
        encoder.collect(&mut out).unwrap();
        assert!(encoder.resident().is_none(), "it was the caller's");
    });
}

fn misuse_is_told_and_harms_nothing() {
    let gpu = Gpu::get();
    let model = tiny("tiny");
    gpu.in_orders(&["late"], |_| {
        let mut encoder = open(&model, &options(DType::F32, 2));
        let size = encoder.spec().input;
        let image = pixels(&model, [1]);
        let expected = encode(&mut encoder, &image);
        let batch = |images: usize, size: Size| Batch { memory: Box::new(image.clone()), images, size };
        let refused = |result: Result<(), EncodeError>, what: &str| match result {
            Err(EncodeError::Batch(reason)) => assert!(reason.contains(what), "{reason}"),
            other => panic!("{what}: {other:?}"),
        };
        let mut out = VectorBuf::new();
        refused(encoder.collect(&mut out).map(|_| ()), "no batch is under way");
        for _ in 0..encoder.depth() {
            encoder.submit(batch(1, size)).unwrap();
        }
        refused(encoder.submit(batch(1, size)), "collect one first");
        let pixels = foveate_core::PixelBatch::new(&image, size).unwrap();
        refused(encoder.encode(pixels, &mut out).map(|_| ()), "under way");
        refused(encoder.resident().unwrap().encode_again(&mut out).map(|_| ()), "under way");
        for _ in 0..encoder.depth() {
            encoder.collect(&mut out).unwrap();
            assert_eq!(out, expected);
        }
        refused(encoder.submit(batch(0, size)), "0 images");
        refused(encoder.submit(batch(3, size)), "3 images");
        refused(encoder.submit(batch(2, size)), "2 images in");
        refused(encoder.submit(batch(1, Size::new(size.width, 1))), "images are");
        assert_eq!(encode(&mut encoder, &image), expected);
    });
}

/// An encoder dropped while batches are in flight frees no memory that the device still uses; the emulator ends the
/// process otherwise.
fn batches_under_way_may_be_dropped() {
    let gpu = Gpu::get();
    let model = few_tokens("tiny-swiglu");
    gpu.in_orders(&ORDERS, |_| {
        let mut encoder = open(&model, &options(DType::F16, 4));
        for _ in 0..2 {
            let pixels = pixels(&model, 0..4);
            let mut memory = encoder.allocator(Place::Host)(pixels.len()).unwrap();
            memory.host_mut().unwrap().copy_from_slice(&pixels);
            encoder.submit(Batch { memory, images: 4, size: encoder.spec().input }).unwrap();
        }
        drop(encoder);
        Device::open(0).unwrap().synchronize().unwrap();
    });
}

/// Once each size has been encoded, a batch allocates no device memory.
fn a_steady_state_allocates_nothing() {
    let gpu = Gpu::get();
    let model = few_tokens("tiny");
    let batches = batches(&model);
    gpu.in_orders(&["eager"], |_| {
        let mut encoder = open(&model, &options(DType::F32, 4));
        one_by_one(&mut encoder, &batches);
        let device = Device::open(0).unwrap();
        let free = device.memory().unwrap().0;
        one_by_one(&mut encoder, &batches);
        if gpu.is_emulated {
            assert_eq!(device.memory().unwrap().0, free);
        }
        assert!(encoder.workspace_bytes() > 0);
    });
}

// ---- Errors ----

fn too_large_a_batch_is_out_of_memory() {
    let gpu = Gpu::get();
    gpu.in_orders(&["late"], |_| {
        let model = tiny("tiny");
        let error = CudaEncoder::new(&model, &options(DType::F32, 60_000)).err();
        if gpu.is_emulated {
            let Some(EncodeError::Engine(reason)) = error else { panic!("{error:?}") };
            let reason = reason.to_string();
            assert!(reason.starts_with("out of memory on the device: "), "{reason}");
            assert!(reason.ends_with("; a smaller batch takes less"), "{reason}");
        }
        // The failed attempt freed its memory.
        encode(&mut open(&model, &options(DType::F32, 1)), &pixels(&model, [0]));
    });
}

fn what_it_cannot_do_is_refused() {
    let gpu = Gpu::get();
    gpu.in_orders(&["late"], |_| {
        let refused = |model: &Model, options: &EncoderOptions| CudaEncoder::new(model, options).err().unwrap();
        let one = options(DType::F32, 1);
        for (name, what) in [("cuda:9", "no CUDA device 9: there "), ("cuda:x", "`cuda:N`")] {
            match refused(&tiny("tiny"), &EncoderOptions { device: name.to_owned(), ..one.clone() }) {
                EncodeError::Device { device, reason } => {
                    assert_eq!(device, name);
                    let reason = reason.to_string();
                    assert!(reason.contains(what) && !reason.contains('\n'), "{reason}");
                }
                other => panic!("{other:?}"),
            }
        }
        let error = refused(&tiny("tiny"), &with(one.clone(), &[("flash", "on")]));
        assert!(matches!(error, EncodeError::Unsupported(_)), "{error:?}");
        let mut odd = tiny("tiny");
        odd.network.num_attention_heads = 32;
        assert!(matches!(refused(&odd, &one), EncodeError::Unsupported(_)));
        let mut odd = tiny("tiny");
        odd.preprocess.crop = Size::new(224, 225);
        assert!(matches!(refused(&odd, &one), EncodeError::Model(_)));
    });
}

// ---- Other devices, each in its own process because the emulator reads its environment once ----

/// Runs the trial `name` of this file on an emulator with `environment`.
fn in_a_process_of_its_own(name: &str, environment: &[(&str, &str)]) {
    if !Gpu::get().is_emulated {
        ignore("needs devices that only the emulator has");
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--include-ignored", "--nocapture"])
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{name} ran: {text}");
}

fn an_older_device_has_f16() {
    in_a_process_of_its_own("child_older_device", &[("CUDA_EMULATOR_CC", "7.5")]);
}

fn child_older_device() {
    let gpu = Gpu::get();
    gpu.in_orders(&["late"], |_| {
        let model = wide_heads(false);
        let error = CudaEncoder::new(&model, &options(DType::Bf16, 1)).err();
        let Some(EncodeError::Unsupported(reason)) = error else { panic!("{error:?}") };
        assert!(reason.starts_with("bf16 on ") && reason.ends_with("; use f16"), "{reason}");
        let pixels = pixels(&model, 0..2);
        for dtype in [DType::F32, DType::F16] {
            compare_with_cpu(&model, &options(dtype, 2), &pixels).check("compute capability 7.5", dtype);
        }
    });
}

fn too_old_a_device_is_refused() {
    in_a_process_of_its_own("child_too_old", &[("CUDA_EMULATOR_CC", "7.0")]);
}

fn child_too_old() {
    let _gpu = Gpu::get();
    let error = CudaEncoder::new(&tiny("tiny"), &options(DType::F32, 1)).err();
    let Some(EncodeError::Device { reason, .. }) = error else { panic!("{error:?}") };
    assert!(reason.to_string().ends_with("(compute capability 7.0) is too old; 7.5 is the least"), "{reason}");
}

fn a_driver_without_a_device_is_told() {
    in_a_process_of_its_own("child_no_device", &[("CUDA_EMULATOR_DEVICES", "0")]);
}

fn child_no_device() {
    let _gpu = Gpu::get();
    let options = EncoderOptions { device: "cuda:1".to_owned(), ..options(DType::F32, 1) };
    let error = CudaEncoder::new(&tiny("tiny"), &options).err();
    let Some(EncodeError::Device { reason, .. }) = error else { panic!("{error:?}") };
    assert_eq!(reason.to_string(), "no CUDA device 1: there is none");
}

fn two_devices_share_pinned_memory() {
    in_a_process_of_its_own("child_two_devices", &[("CUDA_EMULATOR_DEVICES", "2")]);
}

/// Memory of one encoder's allocator alternates between both; memory on one device is refused by the other.
fn child_two_devices() {
    let gpu = Gpu::get();
    let model = few_tokens("tiny");
    gpu.in_orders(&ORDERS, |order| {
        let on = |device: &str| open(&model, &EncoderOptions { device: device.to_owned(), ..options(DType::F32, 2) });
        let mut encoders = [on("cuda:0"), on("cuda:1")];
        let pixels = pixels(&model, 0..2);
        let expected = encode(&mut encoders[0], &pixels);
        let (size, mut out) = (encoders[0].spec().input, VectorBuf::new());
        let mut memory = encoders[0].allocator(Place::Host)(pixels.len()).unwrap();
        memory.host_mut().unwrap().copy_from_slice(&pixels);
        for turn in 0..4 {
            let encoder = &mut encoders[turn % 2];
            encoder.submit(Batch { memory, images: 2, size }).unwrap();
            memory = encoder.collect(&mut out).unwrap().batch.memory;
            assert_eq!(out, expected, "{order}");
        }
        let memory = encoders[0].allocator(Place::Device)(pixels.len()).unwrap();
        let error = encoders[1].submit(Batch { memory, images: 2, size });
        assert!(matches!(error, Err(EncodeError::Batch(_))), "{error:?}");
    });
}

fn a_lost_context_is_told() {
    for order in ["late", "eager"] {
        in_a_process_of_its_own("child_lost_context", &[("CUDA_EMULATOR_ORDER", order)]);
    }
}

/// After an illegal access, every batch fails with its error, those under way too; so does another encoder.
fn child_lost_context() {
    let _gpu = Gpu::get();
    let (model, options) = (few_tokens("tiny"), options(DType::F32, 1));
    let mut encoder = open(&model, &options);
    let (image, size, mut out) = (pixels(&model, [1]), encoder.spec().input, VectorBuf::new());
    encode(&mut encoder, &image);
    foveate_cuda_emulator::fail_next_kernel(700).unwrap();
    let is_told = |error: EncodeError| {
        let told = foveate_core::error_chain(&error);
        assert!(told.contains("CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)"), "{told}");
    };
    for _ in 0..3 {
        let submitted =
            (0..2).try_for_each(|_| encoder.submit(Batch { memory: Box::new(image.clone()), images: 1, size }));
        is_told(submitted.and_then(|()| encoder.collect(&mut out)).err().unwrap());
    }
    is_told(CudaEncoder::new(&model, &options).err().unwrap());
}
