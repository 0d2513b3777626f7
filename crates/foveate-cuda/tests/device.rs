//! The wrappers on a device: the emulator, in every order that its streams may take, or with
//! `FOVEATE_CUDA_TESTS=device` a real one. The emulator ends the process if memory is used after it was freed.

// Tests may unwrap, and one launches a kernel.
#![allow(unsafe_code, clippy::unwrap_used)]

use std::process::ExitCode;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use foveate_core::BatchMemory;
use foveate_cuda::blaslt::{self, Element, Operands, Shape};
use foveate_cuda::{Arg, Buffer, CudaError, Device, DevicePixels, Event, Graph, Module, Pinned, Stream};
use foveate_cuda_emulator::{Counts, for_trial};
use foveate_testkit::{ignore, run, trials};
use half::{bf16, f16};

fn main() -> ExitCode {
    run(trials![
        a_device_says_what_it_is,
        memory_goes_there_and_back,
        pinned_memory_waits_for_its_copies,
        pinned_memory_waits_for_every_stream,
        events_order_streams,
        whatever_is_dropped_waits_for_the_device,
        events_tell_the_time,
        waits_leave_the_core_to_others,
        graphs_keep_their_memory,
        captures_wait_for_those_who_wait_for_the_device,
        what_loads_code_waits_for_captures,
        a_capture_that_fails_leaves_the_stream_usable,
        copies_do_not_leave_their_memory,
        memory_that_is_not_there_is_told,
        kernels_that_do_not_compile_are_told,
        products_are_what_they_say,
        products_take_rows_of_larger_arrays,
        operands_that_do_not_fit_are_refused,
    ])
}

/// Runs `test` on device 0 in every order.
fn on_a_device(test: impl Fn(&Device)) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if !foveate_cuda_emulator::is_chosen() {
        return test(&Device::open(0).unwrap());
    }
    for order in ["late", "eager", "random:1", "random:2"] {
        for_trial(|| foveate_cuda_emulator::set_order(order));
        test(&Device::open(0).unwrap());
    }
}

const BYTES: usize = 100_000;

fn pattern(seed: usize) -> Vec<u8> {
    (0..BYTES).map(|i| (i * 31 + seed * 7 + i / 251) as u8).collect()
}

fn pinned(device: &Device, seed: usize) -> Pinned {
    let mut memory = Pinned::new(device, BYTES).unwrap();
    memory.as_mut_slice().copy_from_slice(&pattern(seed));
    memory
}

fn a_device_says_what_it_is() {
    on_a_device(|device| {
        assert_eq!(Device::names().unwrap()[0], device.name());
        assert!(device.compute_capability() >= (5, 0) && device.multiprocessors() > 0);
        let (free, total) = device.memory().unwrap();
        assert!(free > 0 && free <= total);
        let Err(CudaError::NoDevice { ordinal: 99, devices }) = Device::open(99) else { panic!("device 99") };
        assert_eq!(devices, Device::names().unwrap());
    });
}

fn memory_goes_there_and_back() {
    on_a_device(|device| {
        let buffer = Buffer::from_slice(device, &[1.0_f32, -2.5, f32::MAX]).unwrap();
        let mut values = [0.0_f32; 3];
        buffer.read(&mut values).unwrap();
        assert_eq!(values, [1.0, -2.5, f32::MAX]);
        assert!(matches!(buffer.read(&mut [0_u8; 13]), Err(CudaError::Misfit(_))));
        let mut zeros = [1_u8; 7];
        Buffer::zeroed(device, 7).unwrap().read(&mut zeros).unwrap();
        assert_eq!(zeros, [0; 7]);
    });
}

/// Access to the bytes of pinned memory waits for the copies that it was lent to.
fn pinned_memory_waits_for_its_copies() {
    on_a_device(|device| {
        let stream = Stream::new(device).unwrap();
        let there = Buffer::zeroed(device, BYTES).unwrap();
        let mut from = pinned(device, 1);
        let mut to = pinned(device, 2);
        stream.upload(&mut from, &there, BYTES).unwrap();
        from.host_mut().unwrap().fill(0);
        stream.download(&there, &mut to, BYTES).unwrap();
        assert_eq!(to.host().unwrap(), pattern(1));
    });
}

/// Also if the last of them is on another stream than the first.
fn pinned_memory_waits_for_every_stream() {
    on_a_device(|device| {
        let streams = [Stream::new(device).unwrap(), Stream::new(device).unwrap()];
        let there = [Buffer::zeroed(device, BYTES).unwrap(), Buffer::zeroed(device, BYTES).unwrap()];
        let mut from = pinned(device, 3);
        for (stream, there) in streams.iter().zip(&there) {
            stream.upload(&mut from, there, BYTES).unwrap();
        }
        from.as_mut_slice().fill(0);
        for there in &there {
            let mut copied = vec![0_u8; BYTES];
            there.read(&mut copied).unwrap();
            assert_eq!(copied, pattern(3));
        }
    });
}

fn events_order_streams() {
    on_a_device(|device| {
        let [fill, drain] = [Stream::new(device).unwrap(), Stream::new(device).unwrap()];
        let mut pixels = DevicePixels::new(device, BYTES).unwrap();
        let mut to = pinned(device, 0);
        for seed in 4..7 {
            let mut from = pinned(device, seed);
            fill.upload(&mut from, pixels.buffer(), BYTES).unwrap();
            pixels.filled_on(&fill).unwrap();
            pixels.wait_on(&drain).unwrap();
            drain.download(pixels.buffer(), &mut to, BYTES).unwrap();
            assert_eq!(to.as_slice(), pattern(seed));
        }
        assert!(pixels.host().is_none() && BatchMemory::bytes(&pixels) == BYTES);
    });
}

fn whatever_is_dropped_waits_for_the_device() {
    on_a_device(|device| {
        let stream = Stream::new(device).unwrap();
        let mut from = pinned(device, 8);
        let there = Buffer::zeroed(device, BYTES).unwrap();
        let mut to = pinned(device, 9);
        stream.upload(&mut from, &there, BYTES).unwrap();
        drop(from);
        stream.download(&there, &mut to, BYTES).unwrap();
        drop((there, stream));
        assert_eq!(to.as_slice(), pattern(8));
    });
}

fn events_tell_the_time() {
    on_a_device(|device| {
        let stream = Stream::new(device).unwrap();
        let [first, second] = [Event::new(device).unwrap(), Event::new(device).unwrap()];
        stream.record(&first).unwrap();
        stream.record(&second).unwrap();
        second.synchronize().unwrap();
        assert!(second.seconds_since(&first).unwrap() >= 0.0);
        let never = Event::new(device).unwrap();
        never.synchronize().unwrap();
        assert!(matches!(second.seconds_since(&never), Err(CudaError::Call { .. })));
    });
}

/// A graph keeps the memory it works with, and runs each time it is launched, not when it is captured. It is on the
/// device before its first launch, and its end does not wait.
fn graphs_keep_their_memory() {
    on_a_device(|device| {
        let stream = Stream::new(device).unwrap();
        let there = Buffer::zeroed(device, 64).unwrap();
        let x = Buffer::from_slice(device, &[2.0_f32; 16]).unwrap();
        let weight = Buffer::from_slice(device, &[1.0_f32; 16]).unwrap();
        let workspace = Buffer::zeroed(device, 1 << 20).unwrap();
        let blas = blaslt::Handle::new(device).unwrap();
        let mut product = blas.plan(shape(4, 4, 4, Element::F32, false, true), &workspace).unwrap();
        let operands =
            Operands { x: &x, weight: &weight, alpha: 1.0, bias: None, added: None, y: &there, workspace: &workspace };
        // The library loads the product's kernel at its first run, which a capture forbids.
        product.run(&stream, &operands).unwrap();
        let before = counts();
        let brief = Graph::capture(&stream, || product.run(&stream, &operands)).unwrap();
        brief.launch(&stream).unwrap();
        // Perhaps while it runs.
        drop(brief);
        let after = counts();
        assert_eq!((after.cold_launches, after.context_waits), (before.cold_launches, before.context_waits));
        let graph = Graph::capture(&stream, || product.run(&stream, &operands)).unwrap();
        drop((x, weight, workspace, product));
        let mut values = [0.0_f32; 16];
        there.read(&mut values).unwrap();
        assert_eq!(values, [16.0; 16], "captured, not done");
        graph.launch(&stream).unwrap();
        graph.launch(&stream).unwrap();
        there.read(&mut values).unwrap();
        assert_eq!(values, [32.0; 16], "added twice more");
    });
}

/// The emulator's counts; zeros on a real device.
fn counts() -> Counts {
    if foveate_cuda_emulator::is_chosen() { foveate_cuda_emulator::counts().unwrap() } else { Counts::default() }
}

/// While one thread captures, others may take, fill and drop memory, and wait for the device.
fn captures_wait_for_those_who_wait_for_the_device() {
    const ROUNDS: usize = 40;
    on_a_device(|device| {
        let capture = || {
            let stream = Stream::new(device).unwrap();
            let memory = || Buffer::from_slice(device, &[1.0_f32; 16]).unwrap();
            let x = memory();
            let weight = memory();
            let y = memory();
            let workspace = Buffer::zeroed(device, 1 << 20).unwrap();
            let mut product = blaslt::Handle::new(device)
                .unwrap()
                .plan(shape(4, 4, 4, Element::F32, false, true), &workspace)
                .unwrap();
            let operands =
                Operands { x: &x, weight: &weight, alpha: 1.0, bias: None, added: None, y: &y, workspace: &workspace };
            for _ in 0..ROUNDS {
                let graph = Graph::capture(&stream, || {
                    std::thread::yield_now();
                    product.run(&stream, &operands)
                });
                graph.unwrap().launch(&stream).unwrap();
            }
            let mut values = [0.0_f32; 16];
            y.read(&mut values).unwrap();
            assert_eq!(values, [1.0 + 4.0 * ROUNDS as f32; 16]);
        };
        std::thread::scope(|scope| {
            let captures = [scope.spawn(capture), scope.spawn(capture)];
            while captures.iter().any(|thread| !thread.is_finished()) {
                let buffer = Buffer::from_slice(device, &pattern(1)).unwrap();
                buffer.read(&mut [0_u8; 9]).unwrap();
                Buffer::zeroed(device, 100).unwrap();
                device.synchronize().unwrap();
            }
        });
    });
}

/// A kernel that the emulator has; a real device runs this one, which does nothing.
const KERNEL: &str = "
.version 7.5
.target sm_75
.address_size 64
.visible .entry activate_f32(.param .u64 x, .param .u64 count, .param .u32 function) { ret; }
";

type FirstUse<'a> = &'a mut (dyn FnMut() -> Result<(), CudaError> + Send);

/// The driver loads code lazily, and may wait for the whole device then. So first uses wait for another thread's
/// capture to end; a library's handle and pinned memory too.
fn what_loads_code_waits_for_captures() {
    on_a_device(|device| {
        let stream = Stream::new(device).unwrap();
        let memory = |bytes| Buffer::zeroed(device, bytes).unwrap();
        let x = memory(64);
        let y = memory(64);
        let workspace = memory(1 << 20);
        let blas = blaslt::Handle::new(device).unwrap();
        let product_shape = shape(4, 4, 4, Element::F32, false, false);
        let mut product = blas.plan(product_shape, &workspace).unwrap();
        let operands =
            Operands { x: &x, weight: &x, alpha: 1.0, bias: None, added: None, y: &y, workspace: &workspace };
        let module = Module::from_ptx(device, KERNEL).unwrap();
        let kernel = module.kernel("activate_f32").unwrap();
        let mut pinned = Some(Pinned::new(device, 1).unwrap());
        let mut graph = Some(Graph::capture(&stream, || Ok::<_, CudaError>(())).unwrap());
        // SAFETY: these are the kernel's parameters, and it accesses nothing.
        let launch = || unsafe { kernel.launch(&stream, [1; 3], 32, &[Arg::Buffer(&x), Arg::I64(0), Arg::I32(0)]) };
        let mut uses: [(&str, FirstUse<'_>); 9] = [
            ("a module", &mut || Module::from_ptx(device, KERNEL).map(drop)),
            ("a module's kernel", &mut || module.kernel("activate_f32").map(drop)),
            ("a kernel's first launch", &mut || launch()),
            ("cuBLASLt's handle", &mut || blaslt::Handle::new(device).map(drop)),
            ("a product", &mut || blas.plan(product_shape, &workspace).map(drop)),
            ("a product's first run", &mut || product.run(&stream, &operands)),
            ("pinned memory", &mut || Pinned::new(device, 1).map(drop)),
            ("the end of pinned memory", &mut || {
                drop(pinned.take());
                Ok(())
            }),
            ("the end of a graph", &mut || {
                drop(graph.take());
                Ok(())
            }),
        ];
        let capturing = Stream::new(device).unwrap();
        for (what, first_use) in &mut uses {
            let (begin, begun) = mpsc::channel();
            let (end, ended) = mpsc::channel();
            std::thread::scope(|scope| {
                let user = scope.spawn(move || {
                    begun.recv().unwrap();
                    let used = first_use();
                    end.send(()).unwrap();
                    used
                });
                let graph = Graph::capture(&capturing, || {
                    begin.send(()).unwrap();
                    // It does not come before the end of the capture.
                    let _ = ended.recv_timeout(Duration::from_millis(100));
                    Ok::<_, CudaError>(())
                });
                assert!(graph.is_ok(), "{what}: {:?}", graph.err());
                let used = user.join().unwrap();
                assert!(used.is_ok(), "{what}: {used:?}");
            });
        }
    });
}

/// Who waits for the device, a stream, an event or a copy sleeps, so that decoders have the core.
fn waits_leave_the_core_to_others() {
    if !foveate_cuda_emulator::is_chosen() {
        ignore("a real driver does not count its waits");
    }
    on_a_device(|device| {
        let stream = Stream::new(device).unwrap();
        let event = Event::new(device).unwrap();
        let mut memory = pinned(device, 1);
        let there = Buffer::zeroed(device, BYTES).unwrap();
        let before = foveate_cuda_emulator::counts().unwrap().spinning_waits;
        stream.upload(&mut memory, &there, BYTES).unwrap();
        stream.record(&event).unwrap();
        event.synchronize().unwrap();
        stream.download(&there, &mut memory, BYTES).unwrap();
        assert_eq!(memory.as_slice(), pattern(1));
        stream.synchronize().unwrap();
        Buffer::from_slice(device, &pattern(1)).unwrap().read(&mut [0_u8; 9]).unwrap();
        assert_eq!(foveate_cuda_emulator::counts().unwrap().spinning_waits, before);
    });
}

fn a_capture_that_fails_leaves_the_stream_usable() {
    on_a_device(|device| {
        let stream = Stream::new(device).unwrap();
        let failed = Graph::capture(&stream, || Err::<(), _>(CudaError::Misfit("on purpose".to_owned())));
        assert!(matches!(failed, Err(CudaError::Misfit(_))));
        let mut from = pinned(device, 1);
        let there = Buffer::zeroed(device, BYTES).unwrap();
        stream.upload(&mut from, &there, BYTES).unwrap();
        stream.synchronize().unwrap();
    });
}

fn copies_do_not_leave_their_memory() {
    on_a_device(|device| {
        let stream = Stream::new(device).unwrap();
        let mut host = Pinned::new(device, 100).unwrap();
        let there = Buffer::zeroed(device, 50).unwrap();
        for bytes in [51, 101] {
            assert!(matches!(stream.upload(&mut host, &there, bytes), Err(CudaError::Misfit(_))));
            assert!(matches!(stream.download(&there, &mut host, bytes), Err(CudaError::Misfit(_))));
        }
        assert!(matches!(host.as_f32(26), Err(CudaError::Misfit(_))));
    });
}

fn memory_that_is_not_there_is_told() {
    on_a_device(|device| {
        let (free, total) = device.memory().unwrap();
        match Buffer::zeroed(device, 2 * total) {
            // Other processes may use a real device meanwhile, and the driver itself takes some.
            Err(CudaError::OutOfMemory { bytes, free: left, total: all }) => {
                assert_eq!((bytes, all), (2 * total, total));
                assert!(left == free || !foveate_cuda_emulator::is_chosen() && left <= total, "{left} of {free} bytes");
            }
            other => panic!("{other:?}"),
        }
        Buffer::zeroed(device, 1000).unwrap();
    });
}

fn kernels_that_do_not_compile_are_told() {
    on_a_device(|device| match Module::from_ptx(device, "this is\nno PTX") {
        Err(CudaError::Kernels(reason)) => assert!(!reason.contains('\n'), "{reason}"),
        other => panic!("{other:?}"),
    });
}

// ---- Products ----

fn shape(rows: usize, inputs: usize, outputs: usize, element: Element, bias: bool, accumulate: bool) -> Shape {
    Shape { rows, inputs, outputs, element, tf32: false, bias, accumulate, pitch: None }
}

/// Small multiples of 1/8, which every element type represents exactly.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 37 + seed * 11) % 17) as f32 / 8.0 - 1.0).collect()
}

fn upload(device: &Device, element: Element, values: &[f32]) -> Buffer {
    match element {
        Element::F32 => Buffer::from_slice(device, values),
        Element::F16 => Buffer::from_slice(device, &values.iter().map(|&v| f16::from_f32(v)).collect::<Vec<_>>()),
        Element::Bf16 => Buffer::from_slice(device, &values.iter().map(|&v| bf16::from_f32(v)).collect::<Vec<_>>()),
    }
    .unwrap()
}

fn read(buffer: &Buffer, element: Element, count: usize) -> Vec<f32> {
    let mut bits = vec![0_u8; count * element.bytes()];
    buffer.read(&mut bits).unwrap();
    let halves = bits.as_chunks::<2>().0.iter().map(|&bytes| u16::from_le_bytes(bytes));
    match element {
        Element::F32 => bits.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect(),
        Element::F16 => halves.map(|bits| f16::from_bits(bits).to_f32()).collect(),
        Element::Bf16 => halves.map(|bits| bf16::from_bits(bits).to_f32()).collect(),
    }
}

fn products_are_what_they_say() {
    let rows = 19;
    let inputs = 24;
    let outputs = 40;
    let x = numbers(rows * inputs, 1);
    let weight = numbers(outputs * inputs, 2);
    let bias = numbers(outputs, 3);
    let before = numbers(rows * outputs, 4);
    on_a_device(|device| {
        let stream = Stream::new(device).unwrap();
        let blas = blaslt::Handle::new(device).unwrap();
        let workspace = Buffer::zeroed(device, 1 << 20).unwrap();
        for element in [Element::F32, Element::F16, Element::Bf16] {
            let on_device = |values: &[f32]| upload(device, element, values);
            let x_there = on_device(&x);
            let weight_there = on_device(&weight);
            let bias_there = on_device(&bias);
            for (has_bias, accumulate, alpha) in [(false, false, 1.0), (true, false, 0.25), (true, true, 1.0)] {
                let y = on_device(&before);
                let shape = shape(rows, inputs, outputs, element, has_bias, accumulate);
                let mut product = blas.plan(shape, &workspace).unwrap();
                let x_there = &x_there;
                let weight_there = &weight_there;
                let bias_there = has_bias.then_some(&bias_there);
                let operands = Operands {
                    x: x_there,
                    weight: weight_there,
                    alpha,
                    bias: bias_there,
                    added: None,
                    y: &y,
                    workspace: &workspace,
                };
                product.run(&stream, &operands).unwrap();
                for (i, got) in read(&y, element, rows * outputs).into_iter().enumerate() {
                    let row = i / outputs;
                    let output = i % outputs;
                    let terms = (0..inputs).map(|k| x[row * inputs + k] * weight[output * inputs + k]);
                    let mut want = alpha * terms.sum::<f32>();
                    want += if has_bias { bias[output] } else { 0.0 };
                    want += if accumulate { before[i] } else { 0.0 };
                    let step = if element == Element::Bf16 { 1.0 / 128.0 } else { 1.0 / 1024.0 };
                    assert!((got - want).abs() <= want.abs() * step, "{shape:?}: {got}, not {want}");
                }
            }
        }
    });
}

/// One row in three of `x` and of the added array; the result is contiguous.
fn products_take_rows_of_larger_arrays() {
    let rows = 5;
    let inputs = 16;
    let outputs = 16;
    let apart = 3;
    let x = numbers(apart * rows * inputs, 1);
    let weight = numbers(outputs * inputs, 2);
    let before = numbers(apart * rows * outputs, 4);
    on_a_device(|device| {
        let stream = Stream::new(device).unwrap();
        let workspace = Buffer::zeroed(device, 1 << 20).unwrap();
        let on_device = |values: &[f32]| upload(device, Element::F32, values);
        let x_there = on_device(&x);
        let weight_there = on_device(&weight);
        let before_there = on_device(&before);
        let y = Buffer::zeroed(device, rows * outputs * 4).unwrap();
        let shape = shape(rows, inputs, outputs, Element::F32, false, true);
        let shape = Shape { pitch: Some(apart * inputs), ..shape };
        let mut product = blaslt::Handle::new(device).unwrap().plan(shape, &workspace).unwrap();
        let added = Some(&before_there);
        let operands = Operands {
            x: &x_there,
            weight: &weight_there,
            alpha: 1.0,
            bias: None,
            added,
            y: &y,
            workspace: &workspace,
        };
        product.run(&stream, &operands).unwrap();
        assert!(product.run(&stream, &Operands { added: None, ..operands }).is_err());
        let made = read(&y, Element::F32, rows * outputs);
        for (at, made) in made.iter().enumerate() {
            let row = apart * (at / outputs);
            let column = at % outputs;
            let pairs = x[row * inputs..].iter().zip(&weight[column * inputs..]).take(inputs);
            let expected = pairs.map(|(x, weight)| x * weight).sum::<f32>() + before[row * outputs + column];
            assert_eq!(*made, expected, "row {row}, column {column}");
        }
    });
}

fn operands_that_do_not_fit_are_refused() {
    on_a_device(|device| {
        let stream = Stream::new(device).unwrap();
        let workspace = Buffer::zeroed(device, 1 << 20).unwrap();
        let blas = blaslt::Handle::new(device).unwrap();
        let mut product = blas.plan(shape(8, 8, 8, Element::F32, true, false), &workspace).unwrap();
        let whole = Buffer::zeroed(device, 256).unwrap();
        let short = Buffer::zeroed(device, 255).unwrap();
        let bias = Buffer::zeroed(device, 32).unwrap();
        let other = Buffer::zeroed(device, 256).unwrap();
        let x = &whole;
        let weight = &whole;
        let y = &other;
        let fits = Operands { x, weight, alpha: 1.0, bias: Some(&bias), added: None, y, workspace: &workspace };
        product.run(&stream, &fits).unwrap();
        for wrong in [
            Operands { x: &short, ..fits },
            Operands { weight: &short, ..fits },
            Operands { y: &short, ..fits },
            Operands { bias: None, ..fits },
        ] {
            assert!(matches!(product.run(&stream, &wrong), Err(CudaError::Misfit(_))));
        }
        let workspace = product.workspace_bytes();
        assert!(product.shape().rows == 8 && workspace <= 1 << 20);
        assert!(workspace > 0 || !foveate_cuda_emulator::is_chosen(), "the library may use the workspace");
        assert!(blaslt::find().unwrap().starts_with("cuBLASLt "));
    });
}
