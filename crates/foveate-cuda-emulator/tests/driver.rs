//! The emulated driver through cudarc, in every order.

// Raw calls, and mistakes that the emulator must detect; helpers of tests fail as tests do.
#![allow(unsafe_code, clippy::unwrap_used)]

mod common;

use common::{child, dies, in_every_order, inside, passed, text};
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{
    self, CUdevice_attribute, CUevent_flags, CUgraphInstantiate_flags, CUresult, CUstreamCaptureMode,
};
use cudarc::driver::{CudaContext, CudaEvent, CudaSlice, CudaStream, DevicePtr, DevicePtrMut, PinnedHostSlice};
use cudarc::nvrtc::Ptx;
use foveate_testkit::{run, trials};
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    run(trials![
        a_device_says_what_it_is,
        no_device_is_an_error,
        copies_arrive,
        fresh_memory_is_not_a_number,
        a_stream_that_waits_reads_what_was_written,
        a_missing_wait_shows,
        pinned_memory_that_is_reused_too_early_shows,
        pinned_memory_that_is_freed_too_early_ends_the_process,
        a_copy_beyond_its_memory_ends_the_process,
        memory_that_was_freed_ends_the_process,
        host_memory_in_the_place_of_device_memory_ends_the_process,
        the_host_cannot_read_device_memory,
        devices_have_memories_of_their_own,
        memory_of_another_device_ends_the_process,
        memory_runs_out_and_comes_back,
        events_tell_the_time,
        whoever_asks_twice_has_waited,
        the_default_stream_and_blocking_streams_wait_for_each_other,
        a_graph_runs_what_was_captured_again,
        a_capture_follows_events_into_other_streams,
        a_capture_refuses_what_it_cannot_hold,
        host_functions_run_in_their_stream_and_may_not_call,
        modules_need_ptx_for_this_device,
        a_kernel_runs_with_the_arguments_of_its_launch,
        a_kernel_that_leaves_its_memory_crashes,
        a_misaligned_access_ends_the_process,
        a_stream_that_goes_takes_its_capture_along,
        launches_are_held_to_the_shared_memory_that_was_asked_for,
        launches_of_one_graph_follow_each_other,
        old_ptx_ends_the_process,
        threads_share_a_device,
    ])
}

const N: usize = 1000;
const SIGSEGV: i32 = 11;

fn numbers(from: u32) -> Vec<u32> {
    (from..).take(N).collect()
}

fn pinned(context: &Arc<CudaContext>, values: &[u32]) -> PinnedHostSlice<u32> {
    // SAFETY: it is filled before it is read.
    let mut memory = unsafe { context.alloc_pinned::<u32>(values.len()) }.unwrap();
    memory.as_mut_slice().unwrap().copy_from_slice(values);
    memory
}

/// Cudarc inserts waits between streams by itself; these tests order streams explicitly.
fn plain_context() -> Arc<CudaContext> {
    let context = CudaContext::new(0).unwrap();
    // SAFETY: every test below waits where it must, or shows the effect of a missing wait.
    unsafe { context.disable_event_tracking() };
    context
}

fn timed(context: &Arc<CudaContext>) -> CudaEvent {
    context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).unwrap()
}

fn a_device_says_what_it_is() {
    fn body() {
        let context = CudaContext::new(0).unwrap();
        assert_eq!(context.name().unwrap(), "Emulated GPU");
        assert_eq!(context.compute_capability().unwrap(), (7, 5));
        assert_eq!(context.total_mem().unwrap(), 1 << 20);
        assert_eq!(CudaContext::device_count().unwrap(), 2);
        let warp = context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE).unwrap();
        assert_eq!(warp, 32);
        let other = CudaContext::new(1).unwrap();
        assert_ne!(context.uuid().unwrap().bytes, other.uuid().unwrap().bytes);
        let none = CudaContext::new(2).unwrap_err();
        assert_eq!(none.0, CUresult::CUDA_ERROR_INVALID_DEVICE);
    }
    let variables = [("CUDA_EMULATOR_CC", "7.5"), ("CUDA_EMULATOR_DEVICES", "2"), ("CUDA_EMULATOR_MEMORY", "1048576")];
    in_every_order("a_device_says_what_it_is", &variables, body);
}

fn no_device_is_an_error() {
    fn body() {
        assert_eq!(CudaContext::new(0).unwrap_err().0, CUresult::CUDA_ERROR_NO_DEVICE);
    }
    in_every_order("no_device_is_an_error", &[("CUDA_EMULATOR_DEVICES", "0")], body);
}

fn copies_arrive() {
    fn body() {
        let context = CudaContext::new(0).unwrap();
        for stream in [context.default_stream(), context.new_stream().unwrap(), context.per_thread_stream()] {
            let mut first = stream.clone_htod(&numbers(1)).unwrap();
            let mut second = stream.alloc_zeros::<u32>(N).unwrap();
            assert_eq!(stream.clone_dtoh(&second).unwrap(), vec![0; N]);
            stream.memcpy_dtod(&first, &mut second).unwrap();
            stream.memcpy_htod(&numbers(7), &mut first).unwrap();
            assert_eq!(stream.clone_dtoh(&second).unwrap(), numbers(1));
            assert_eq!(stream.clone_dtoh(&first.slice(10..20)).unwrap(), numbers(17)[..10]);
            let source = pinned(&context, &numbers(3));
            let mut sink = pinned(&context, &numbers(0));
            stream.memcpy_htod(&source, &mut second).unwrap();
            stream.memcpy_dtoh(&second, &mut sink).unwrap();
            // Cudarc itself skips this wait if there is only one stream.
            stream.synchronize().unwrap();
            assert_eq!(sink.as_slice().unwrap(), numbers(3));
        }
    }
    in_every_order("copies_arrive", &[], body);
}

fn fresh_memory_is_not_a_number() {
    fn body() {
        let context = CudaContext::new(0).unwrap();
        let stream = context.default_stream();
        // SAFETY: reading uninitialized memory is the point.
        let memory = unsafe { stream.alloc::<f32>(N) }.unwrap();
        assert!(stream.clone_dtoh(&memory).unwrap().iter().all(|value| value.is_nan()));
    }
    in_every_order("fresh_memory_is_not_a_number", &[], body);
}

/// One stream writes, another reads; `wait` decides whether it waits for the first. Returns what it read.
fn write_here_read_there(wait: bool) -> Vec<u32> {
    let context = plain_context();
    let writer = context.new_stream().unwrap();
    let reader = context.new_stream().unwrap();
    let mut memory = writer.clone_htod(&numbers(1)).unwrap();
    writer.synchronize().unwrap();
    let source = pinned(&context, &numbers(500));
    let mut sink = pinned(&context, &numbers(0));
    let event = context.new_event(None).unwrap();
    copy_in(&writer, &source, &mut memory);
    event.record(&writer).unwrap();
    if wait {
        reader.wait(&event).unwrap();
    }
    copy_out(&reader, &memory, &mut sink);
    reader.synchronize().unwrap();
    let arrived = sink.as_slice().unwrap().to_vec();
    context.synchronize().unwrap();
    arrived
}

/// Copies without cudarc's knowledge, so that it does not wait by itself.
fn copy_in(stream: &Arc<CudaStream>, from: &PinnedHostSlice<u32>, to: &mut CudaSlice<u32>) {
    let values = from.as_slice().unwrap();
    let (address, _guard) = to.device_ptr_mut(stream);
    // SAFETY: both live until the caller has waited.
    unsafe { result::memcpy_htod_async(address, values, stream.cu_stream()) }.unwrap();
}

fn copy_out(stream: &Arc<CudaStream>, from: &CudaSlice<u32>, to: &mut PinnedHostSlice<u32>) {
    let values = to.as_mut_slice().unwrap();
    let (address, _guard) = from.device_ptr(stream);
    // SAFETY: both live until the caller has waited.
    unsafe { result::memcpy_dtoh_async(values, address, stream.cu_stream()) }.unwrap();
}

fn a_stream_that_waits_reads_what_was_written() {
    fn body() {
        for _ in 0..20 {
            assert_eq!(write_here_read_there(true), numbers(500));
        }
    }
    in_every_order("a_stream_that_waits_reads_what_was_written", &[], body);
}

fn a_missing_wait_shows() {
    if inside() {
        let right = (0..20).all(|_| write_here_read_there(false) == numbers(500));
        assert!(right, "stale values");
        return;
    }
    // In order `eager` the mistake stays hidden: that order alone proves nothing.
    for (order, shows) in [("late", true), ("random:1", true), ("random:2", true), ("eager", false)] {
        let output = child("a_missing_wait_shows", &[("CUDA_EMULATOR_ORDER", order)]);
        assert_eq!(text(&output).contains("stale values"), shows, "{order}: {}", text(&output));
    }
}

fn pinned_memory_that_is_reused_too_early_shows() {
    fn body() {
        let context = plain_context();
        let stream = context.new_stream().unwrap();
        let mut memory = stream.alloc_zeros::<u32>(N).unwrap();
        let mut source = pinned(&context, &numbers(1));
        copy_in(&stream, &source, &mut memory);
        source.as_mut_slice().unwrap().fill(7);
        assert_eq!(stream.clone_dtoh(&memory).unwrap(), vec![7; N], "the copy took what was there when it ran");
    }
    if inside() {
        return body();
    }
    passed(&child("pinned_memory_that_is_reused_too_early_shows", &[]));
}

fn pinned_memory_that_is_freed_too_early_ends_the_process() {
    dies(
        "pinned_memory_that_is_freed_too_early_ends_the_process",
        "pinned memory was freed while a copy still needed it",
        || {
            let context = plain_context();
            let stream = context.new_stream().unwrap();
            let mut memory = stream.alloc_zeros::<u32>(N).unwrap();
            let source = pinned(&context, &numbers(1));
            copy_in(&stream, &source, &mut memory);
            drop(source);
            stream.synchronize().unwrap();
        },
    );
}

fn a_copy_beyond_its_memory_ends_the_process() {
    dies("a_copy_beyond_its_memory_ends_the_process", "leave an allocation of 4000", || {
        let stream = plain_context().new_stream().unwrap();
        let memory = stream.alloc_zeros::<u32>(N).unwrap();
        // SAFETY: it is not, which is the point.
        let longer = unsafe { stream.upgrade_device_ptr::<u32>(memory.leak(), N + 1) };
        let _ = stream.clone_dtoh(&longer);
    });
}

fn memory_that_was_freed_ends_the_process() {
    dies("memory_that_was_freed_ends_the_process", "was freed", || {
        let stream = plain_context().new_stream().unwrap();
        let memory = stream.alloc_zeros::<u32>(N).unwrap();
        let address = memory.leak();
        // SAFETY: it is not, which is the point.
        unsafe {
            drop(stream.upgrade_device_ptr::<u32>(address, N));
            let _ = result::memcpy_dtoh_async(&mut numbers(0), address, stream.cu_stream());
        }
    });
}

fn host_memory_in_the_place_of_device_memory_ends_the_process() {
    dies("host_memory_in_the_place_of_device_memory_ends_the_process", "is no device pointer", || {
        let stream = plain_context().new_stream().unwrap();
        let host = numbers(0);
        // SAFETY: it is not, which is the point.
        let _ = unsafe { result::memcpy_dtoh_async(&mut numbers(0), host.as_ptr() as u64, stream.cu_stream()) };
    });
}

fn the_host_cannot_read_device_memory() {
    fn body() {
        let stream = plain_context().default_stream();
        let address = stream.clone_htod(&numbers(0)).unwrap().leak();
        stream.synchronize().unwrap();
        // SAFETY: it is not, which is the point.
        let value = unsafe { std::ptr::read_volatile(address as *const u32) };
        panic!("read {value}");
    }
    if inside() {
        return body();
    }
    let output = child("the_host_cannot_read_device_memory", &[]);
    let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
    assert_eq!(signal, Some(SIGSEGV), "{}", text(&output));
}

fn devices_have_memories_of_their_own() {
    fn body() {
        let first = CudaContext::new(0).unwrap();
        let second = CudaContext::new(1).unwrap();
        let here = first.new_stream().unwrap();
        let there = second.new_stream().unwrap();
        let source = here.clone_htod(&numbers(1)).unwrap();
        let mut copy = there.alloc_zeros::<u32>(N).unwrap();
        there.memcpy_dtod(&source, &mut copy).unwrap();
        assert_eq!(there.clone_dtoh(&copy).unwrap(), numbers(1));
        assert_eq!(first.mem_get_info().unwrap(), second.mem_get_info().unwrap());
    }
    in_every_order("devices_have_memories_of_their_own", &[("CUDA_EMULATOR_DEVICES", "2")], body);
}

fn memory_of_another_device_ends_the_process() {
    fn body() {
        let first = CudaContext::new(0).unwrap();
        let second = CudaContext::new(1).unwrap();
        let address = first.default_stream().clone_htod(&numbers(0)).unwrap().leak();
        first.synchronize().unwrap();
        let stream = second.new_stream().unwrap();
        // SAFETY: it is not, which is the point.
        let _ = unsafe { result::memcpy_dtoh_async(&mut numbers(0), address, stream.cu_stream()) };
    }
    if inside() {
        return body();
    }
    let output = child("memory_of_another_device_ends_the_process", &[("CUDA_EMULATOR_DEVICES", "2")]);
    assert!(text(&output).contains("belongs to another device"), "{}", text(&output));
}

fn memory_runs_out_and_comes_back() {
    fn body() {
        let context = CudaContext::new(0).unwrap();
        let stream = context.default_stream();
        let half = stream.alloc_zeros::<u8>(1 << 19).unwrap();
        let more = stream.alloc_zeros::<u8>((1 << 19) + 1).unwrap_err();
        assert_eq!(more.0, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        drop(half);
        // The free is enqueued; an allocation that needs its memory waits for it.
        let whole = stream.alloc_zeros::<u8>(1 << 20).unwrap();
        assert_eq!(context.mem_get_info().unwrap(), (0, 1 << 20));
        drop(whole);
        context.synchronize().unwrap();
        assert_eq!(context.mem_get_info().unwrap(), (1 << 20, 1 << 20));
    }
    in_every_order("memory_runs_out_and_comes_back", &[("CUDA_EMULATOR_MEMORY", "1048576")], body);
}

fn events_tell_the_time() {
    fn body() {
        let context = plain_context();
        let stream = context.new_stream().unwrap();
        let start = timed(&context);
        let middle = timed(&context);
        let end = timed(&context);
        assert_eq!(start.elapsed_ms(&end).unwrap_err().0, CUresult::CUDA_ERROR_INVALID_HANDLE, "never recorded");
        start.record(&stream).unwrap();
        let mut memory = stream.alloc_zeros::<u32>(1 << 20).unwrap();
        middle.record(&stream).unwrap();
        stream.memset_zeros(&mut memory).unwrap();
        end.record(&stream).unwrap();
        end.synchronize().unwrap();
        let first = start.elapsed_ms(&middle).unwrap();
        let second = middle.elapsed_ms(&end).unwrap();
        let whole = start.elapsed_ms(&end).unwrap();
        assert!(first > 0.0 && second > 0.0 && (first + second - whole).abs() < 0.01, "{first} + {second} = {whole}");
        let untimed = context.new_event(None).unwrap();
        untimed.record(&stream).unwrap();
        untimed.synchronize().unwrap();
        assert_eq!(start.elapsed_ms(&untimed).unwrap_err().0, CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    in_every_order("events_tell_the_time", &[], body);
}

fn whoever_asks_twice_has_waited() {
    fn body() {
        let context = plain_context();
        let stream = context.new_stream().unwrap();
        let event = timed(&context);
        event.record(&stream).unwrap();
        assert!(!event.try_is_complete().unwrap(), "late means that it is not done yet");
        assert!(event.try_is_complete().unwrap());
    }
    if inside() {
        return body();
    }
    passed(&child("whoever_asks_twice_has_waited", &[("CUDA_EMULATOR_ORDER", "late")]));
}

fn the_default_stream_and_blocking_streams_wait_for_each_other() {
    fn body() {
        let context = plain_context();
        let default = context.default_stream();
        let raw = result::stream::create(result::stream::StreamKind::Default).unwrap();
        // SAFETY: destroyed below, after its last use.
        let blocking = unsafe { context.wrap_borrowed_stream(raw) };
        for _ in 0..10 {
            let mut memory = default.alloc_zeros::<u32>(N).unwrap();
            blocking.memcpy_htod(&numbers(5), &mut memory).unwrap();
            let mut sink = pinned(&context, &numbers(0));
            copy_out(&default, &memory, &mut sink);
            let event = timed(&context);
            event.record(&blocking).unwrap();
            event.synchronize().unwrap();
            assert_eq!(sink.as_slice().unwrap(), numbers(5));
        }
        context.synchronize().unwrap();
        drop(blocking);
        // SAFETY: it is not used any more.
        unsafe { result::stream::destroy(raw) }.unwrap();
    }
    in_every_order("the_default_stream_and_blocking_streams_wait_for_each_other", &[], body);
}

const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
const NO_FLAGS: CUgraphInstantiate_flags = CUgraphInstantiate_flags(0);

fn a_graph_runs_what_was_captured_again() {
    fn body() {
        let context = plain_context();
        let stream = context.new_stream().unwrap();
        let mut memory = stream.alloc_zeros::<u32>(N).unwrap();
        let mut copy = stream.alloc_zeros::<u32>(N).unwrap();
        let mut source = pinned(&context, &numbers(1));
        stream.synchronize().unwrap();
        stream.begin_capture(GLOBAL).unwrap();
        copy_in(&stream, &source, &mut memory);
        stream.memcpy_dtod(&memory, &mut copy).unwrap();
        let graph = stream.end_capture(NO_FLAGS).unwrap().unwrap();
        assert_eq!(stream.clone_dtoh(&copy).unwrap(), vec![0; N], "capturing runs nothing");
        for round in 0..3 {
            source.as_mut_slice().unwrap().copy_from_slice(&numbers(round));
            graph.launch().unwrap();
            assert_eq!(stream.clone_dtoh(&copy).unwrap(), numbers(round));
        }
    }
    in_every_order("a_graph_runs_what_was_captured_again", &[], body);
}

fn a_capture_follows_events_into_other_streams() {
    fn body() {
        let context = plain_context();
        let stream = context.new_stream().unwrap();
        let side = context.new_stream().unwrap();
        let fork = context.new_event(None).unwrap();
        let join = context.new_event(None).unwrap();
        let mut memory = stream.alloc_zeros::<u32>(N).unwrap();
        let mut copy = stream.alloc_zeros::<u32>(N).unwrap();
        let source = pinned(&context, &numbers(1));
        stream.synchronize().unwrap();
        stream.begin_capture(GLOBAL).unwrap();
        copy_in(&stream, &source, &mut memory);
        fork.record(&stream).unwrap();
        side.wait(&fork).unwrap();
        side.memcpy_dtod(&memory, &mut copy).unwrap();
        assert_eq!(side.capture_status().unwrap(), sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE);
        assert_eq!(fork.synchronize().unwrap_err().0, CUresult::CUDA_ERROR_CAPTURED_EVENT);
        join.record(&side).unwrap();
        stream.wait(&join).unwrap();
        let graph = stream.end_capture(NO_FLAGS).unwrap().unwrap();
        assert_eq!(side.capture_status().unwrap(), sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE);
        graph.launch().unwrap();
        assert_eq!(stream.clone_dtoh(&copy).unwrap(), numbers(1));
    }
    in_every_order("a_capture_follows_events_into_other_streams", &[], body);
}

/// The calls that end a capture with an error, and the errors.
fn a_capture_refuses_what_it_cannot_hold() {
    fn fails_with(
        error: CUresult,
        spoil: impl FnOnce(&Arc<CudaContext>, &Arc<CudaStream>, &Arc<CudaStream>) -> Result<(), DriverError>,
    ) {
        let context = plain_context();
        let stream = context.new_stream().unwrap();
        let side = context.new_stream().unwrap();
        stream.begin_capture(GLOBAL).unwrap();
        assert_eq!(spoil(&context, &stream, &side).unwrap_err().0, error);
        let ended = stream.end_capture(NO_FLAGS).map(|_| ()).unwrap_err();
        assert_eq!(ended.0, CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        // The stream can be used again.
        stream.synchronize().unwrap();
    }
    fn body() {
        let unsupported = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        fails_with(unsupported, |_, stream, _| stream.synchronize());
        fails_with(unsupported, |context, _, _| context.synchronize());
        // SAFETY: refused.
        fails_with(unsupported, |_, _, _| unsafe { result::malloc_sync(16) }.map(|_| ()));
        // SAFETY: refused.
        fails_with(unsupported, |context, _, _| unsafe { context.alloc_pinned::<u32>(4) }.map(|_| ()));
        fails_with(unsupported, |context, _, side| {
            let event = context.new_event(None)?;
            event.record(side)?;
            event.try_is_complete().map(|_| ())
        });
        fails_with(CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION, |context, stream, side| {
            let event = context.new_event(None)?;
            event.record(side)?;
            stream.wait(&event)
        });
        unjoined();
    }
    fn unjoined() {
        let context = plain_context();
        let stream = context.new_stream().unwrap();
        let side = context.new_stream().unwrap();
        let mut memory = side.alloc_zeros::<u32>(N).unwrap();
        context.synchronize().unwrap();
        stream.begin_capture(GLOBAL).unwrap();
        let fork = context.new_event(None).unwrap();
        fork.record(&stream).unwrap();
        side.wait(&fork).unwrap();
        side.memset_zeros(&mut memory).unwrap();
        let ended = stream.end_capture(NO_FLAGS).map(|_| ()).unwrap_err();
        assert_eq!(ended.0, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
        context.synchronize().unwrap();
    }
    in_every_order("a_capture_refuses_what_it_cannot_hold", &[], body);
}

fn host_functions_run_in_their_stream_and_may_not_call() {
    fn body() {
        let context = plain_context();
        let stream = context.new_stream().unwrap();
        static SEEN: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(-1);
        // SAFETY: the function is safe; the driver's type requires the keyword.
        unsafe extern "C" fn ask(_: *mut std::ffi::c_void) {
            let mut count = 0;
            // SAFETY: `count` is a valid place for the number.
            let status = unsafe { sys::cuDeviceGetCount(&mut count) };
            SEEN.store(status as i32, std::sync::atomic::Ordering::SeqCst);
        }
        // SAFETY: the function reads no memory that could be freed.
        unsafe { sys::cuLaunchHostFunc(stream.cu_stream(), Some(ask), std::ptr::null_mut()) }.result().unwrap();
        stream.synchronize().unwrap();
        let answer = SEEN.load(std::sync::atomic::Ordering::SeqCst);
        assert_eq!(answer, CUresult::CUDA_ERROR_NOT_PERMITTED as i32);
    }
    in_every_order("host_functions_run_in_their_stream_and_may_not_call", &[], body);
}

fn modules_need_ptx_for_this_device() {
    fn body() {
        let context = CudaContext::new(0).unwrap();
        let load = |text: &str| context.load_module(Ptx::from_src(text)).map(|_| ()).map_err(|error| error.0);
        assert_eq!(load("int main() {}"), Err(CUresult::CUDA_ERROR_INVALID_PTX));
        assert_eq!(load(".version 7.5\n.target sm_90\n.address_size 64"), Err(CUresult::CUDA_ERROR_INVALID_PTX));
        assert_eq!(load(".version 99.0\n.target sm_80"), Err(CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION));
        assert_eq!(load("\u{7f}ELF"), Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU));
        let module = context.load_module(Ptx::from_src(GELU)).unwrap();
        assert_eq!(module.load_function("activate_f16").map(|_| ()).unwrap_err().0, CUresult::CUDA_ERROR_NOT_FOUND);
        assert_eq!(module.load_function("nobodys_kernel").map(|_| ()).unwrap_err().0, CUresult::CUDA_ERROR_NOT_FOUND);
        let gelu = module.load_function("activate_f32").unwrap();
        assert_eq!(gelu.shared_size_bytes().unwrap(), 4 * 32 + 16);
        assert_eq!(gelu.max_threads_per_block().unwrap(), 256);
        assert_eq!(gelu.ptx_version().unwrap(), 75);
    }
    in_every_order("modules_need_ptx_for_this_device", &[], body);
}

/// The interface of a kernel that the emulator has, with text that a parser must skip.
const GELU: &str = "//
.version 7.5 // .entry not_this(
.target sm_75
.address_size 64
/* .entry nor_this() {} */
.shared .align 4 .b8 table[16];
.extern .shared .align 16 .b8 dynamic[];
.func helper(.param .b64 p) { ret; }
.visible .entry activate_f32(
    .param .u64 .ptr .global .align 16 activate_f32_param_0,
    .param .u64 activate_f32_param_1,
    .param .u32 activate_f32_param_2
)
.maxntid 256, 1, 1
{
    .shared .align 4 .b32 own[32];
    { mov.u64 %rd1, table; mov.u64 %rd2, table; mov.u64 %rd3, dynamic; }
    ret;
}
.visible .entry nobodys_kernel() { ret; }
";

fn a_kernel_runs_with_the_arguments_of_its_launch() {
    use cudarc::driver::{LaunchConfig, PushKernelArg};
    fn body() {
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let gelu = context.load_module(Ptx::from_src(GELU)).unwrap().load_function("activate_f32").unwrap();
        let mut x = stream.clone_htod(&[1.0f32; 16]).unwrap();
        let mut count = 8_i64;
        let launch = |threads| LaunchConfig { grid_dim: (1, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: these are the kernel's parameters.
        unsafe {
            let refused =
                stream.launch_builder(&gelu).arg(&mut x).arg(&count).arg(&0_i32).launch(launch(512)).unwrap_err();
            assert_eq!(refused.0, CUresult::CUDA_ERROR_INVALID_VALUE, "compiled for 256 threads");
            stream.launch_builder(&gelu).arg(&mut x).arg(&count).arg(&0_i32).launch(launch(256)).unwrap();
        }
        // The launch has already copied its arguments.
        count += 8;
        let values = stream.clone_dtoh(&x).unwrap();
        assert!(values[..8].iter().all(|value| (value - 0.841_345).abs() < 1e-5), "{count} {values:?}");
        assert_eq!(values[8..], [1.0; 8]);
    }
    in_every_order("a_kernel_runs_with_the_arguments_of_its_launch", &[], body);
}

fn a_kernel_that_leaves_its_memory_crashes() {
    use cudarc::driver::{LaunchConfig, PushKernelArg};
    if inside() {
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let gelu = context.load_module(Ptx::from_src(GELU)).unwrap().load_function("activate_f32").unwrap();
        let mut x = stream.clone_htod(&[1.0f32; 64]).unwrap();
        let launch = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: it is not, which is the point: there are 64 and not 72.
        unsafe { stream.launch_builder(&gelu).arg(&mut x).arg(&72_i64).arg(&0_i32).launch(launch) }.unwrap();
        return stream.synchronize().unwrap();
    }
    let output = child("a_kernel_that_leaves_its_memory_crashes", &[]);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(SIGSEGV), "{}", text(&output));
}

/// Kernels access 16 bytes at once, which a device does only at multiples of 16.
fn a_misaligned_access_ends_the_process() {
    use cudarc::driver::{LaunchConfig, PushKernelArg};
    dies("a_misaligned_access_ends_the_process", "misaligned access to a 'const struct uint4', 4 bytes off", || {
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let gelu = context.load_module(Ptx::from_src(GELU)).unwrap().load_function("activate_f32").unwrap();
        let mut x = stream.clone_htod(&[1.0f32; 64]).unwrap();
        let launch = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: it is not, which is the point: the numbers begin 4 bytes into the memory.
        unsafe { stream.launch_builder(&gelu).arg(&mut x.slice_mut(1..)).arg(&8_i64).arg(&0_i32).launch(launch) }
            .unwrap();
        stream.synchronize().unwrap();
    });
}

/// A capture that was never ended does not block the next one.
fn a_stream_that_goes_takes_its_capture_along() {
    fn body() {
        let context = plain_context();
        let lost = context.new_stream().unwrap();
        lost.begin_capture(GLOBAL).unwrap();
        drop(lost);
        let stream = context.default_stream();
        let memory = stream.clone_htod(&numbers(1)).unwrap();
        assert_eq!(stream.clone_dtoh(&memory).unwrap(), numbers(1));
        context.synchronize().unwrap();
    }
    in_every_order("a_stream_that_goes_takes_its_capture_along", &[], body);
}

fn launches_are_held_to_the_shared_memory_that_was_asked_for() {
    use cudarc::driver::{LaunchConfig, PushKernelArg};
    use sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as DYNAMIC;
    fn body() {
        let context = plain_context();
        let stream = context.new_stream().unwrap();
        let gelu = context.load_module(Ptx::from_src(GELU)).unwrap().load_function("activate_f32").unwrap();
        let mut x = stream.clone_htod(&[1.0f32; 8]).unwrap();
        stream.synchronize().unwrap();
        // Captured and never run: the kernel itself does not use that memory.
        stream.begin_capture(GLOBAL).unwrap();
        let mut launch = |bytes| {
            let shape = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: bytes };
            // SAFETY: these are the kernel's parameters.
            unsafe { stream.launch_builder(&gelu).arg(&mut x).arg(&8_i64).arg(&0_i32).launch(shape) }
                .map(drop)
                .map_err(|error| error.0)
        };
        // 48 KiB for the kernel's declaration (144 bytes) and the launch's addition, until more is requested.
        let refused = Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        let declared = 144;
        assert_eq!(launch((48 << 10) - declared), Ok(()));
        assert_eq!(launch((48 << 10) - declared + 1), refused);
        let most = (163 << 10) - 144;
        gelu.set_attribute(DYNAMIC, most).unwrap();
        assert_eq!(launch(most as u32), Ok(()));
        assert_eq!(gelu.set_attribute(DYNAMIC, most + 1).map_err(|error| error.0), refused);
        stream.end_capture(NO_FLAGS).unwrap();
    }
    in_every_order("launches_are_held_to_the_shared_memory_that_was_asked_for", &[], body);
}

/// One graph on two streams: its second run waits for the first, though the streams do not.
fn launches_of_one_graph_follow_each_other() {
    use cudarc::driver::{LaunchConfig, PushKernelArg};
    fn body() {
        let context = plain_context();
        let stream = context.new_stream().unwrap();
        let other = context.new_stream().unwrap();
        let gelu = context.load_module(Ptx::from_src(GELU)).unwrap().load_function("activate_f32").unwrap();
        let mut x = stream.clone_htod(&[1.0f32; 8]).unwrap();
        context.synchronize().unwrap();
        stream.begin_capture(GLOBAL).unwrap();
        let launch = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: these are the kernel's parameters.
        unsafe { stream.launch_builder(&gelu).arg(&mut x).arg(&8_i64).arg(&0_i32).launch(launch) }.unwrap();
        let graph = stream.end_capture(NO_FLAGS).unwrap().unwrap();
        graph.launch().unwrap();
        // SAFETY: the graph and its memory live until the end of this function.
        unsafe { result::graph::launch(graph.cu_graph_exec(), other.cu_stream()) }.unwrap();
        // gelu(gelu(1))
        let value = other.clone_dtoh(&x).unwrap()[0];
        assert!((value - 0.673_011).abs() < 1e-5, "{value}");
    }
    in_every_order("launches_of_one_graph_follow_each_other", &[], body);
}

fn old_ptx_ends_the_process() {
    dies("old_ptx_ends_the_process", "takes other parameters than its source", || {
        let context = CudaContext::new(0).unwrap();
        let old = GELU.replace(".param .u64 activate_f32_param_1", ".param .u32 activate_f32_param_1");
        let module = context.load_module(Ptx::from_src(old)).unwrap();
        let _ = module.load_function("activate_f32");
    });
}

/// Threads with their own streams, each of which also waits for another thread's stream.
fn threads_share_a_device() {
    fn body() {
        let context = plain_context();
        let shared = context.new_stream().unwrap();
        let event = timed(&context);
        let mut memory = shared.clone_htod(&numbers(9)).unwrap();
        shared.memset_zeros(&mut memory).unwrap();
        shared.memcpy_htod(&numbers(3), &mut memory).unwrap();
        event.record(&shared).unwrap();
        let work = |_| {
            let stream = context.new_stream().unwrap();
            for round in 0..50 {
                stream.wait(&event).unwrap();
                let mut copy = stream.alloc_zeros::<u32>(N).unwrap();
                stream.memcpy_dtod(&memory, &mut copy).unwrap();
                assert_eq!(stream.clone_dtoh(&copy).unwrap(), numbers(3));
                stream.memcpy_htod(&numbers(round), &mut copy).unwrap();
                assert_eq!(stream.clone_dtoh(&copy).unwrap(), numbers(round));
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|thread| drop(scope.spawn(move || work(thread)))));
    }
    in_every_order("threads_share_a_device", &[], body);
}
