//! The emulated driver through cudarc, in every order.

mod common;

use common::{child, dies, in_every_order, inside, text};
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdevice_attribute, CUevent_flags, CUgraphInstantiate_flags, CUresult, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaEvent, CudaSlice, CudaStream, DevicePtr, DevicePtrMut, PinnedHostSlice};
use std::sync::Arc;

const N: usize = 1000;

fn numbers(from: u32) -> Vec<u32> {
    (from..).take(N).collect()
}

fn pinned(context: &Arc<CudaContext>, values: &[u32]) -> PinnedHostSlice<u32> {
    // SAFETY: filled before anyone reads it.
    let mut memory = unsafe { context.alloc_pinned::<u32>(values.len()) }.unwrap();
    memory.as_mut_slice().unwrap().copy_from_slice(values);
    memory
}

/// Cudarc makes streams wait for each other by itself; these tests say themselves what waits for what.
fn plain_context() -> Arc<CudaContext> {
    let context = CudaContext::new(0).unwrap();
    // SAFETY: every test below waits where it has to, or shows what happens when it does not.
    unsafe { context.disable_event_tracking() };
    context
}

fn timed(context: &Arc<CudaContext>) -> CudaEvent {
    context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).unwrap()
}

#[test]
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

#[test]
fn no_device_is_an_error() {
    fn body() {
        assert_eq!(CudaContext::new(0).unwrap_err().0, CUresult::CUDA_ERROR_NO_DEVICE);
    }
    in_every_order("no_device_is_an_error", &[("CUDA_EMULATOR_DEVICES", "0")], body);
}

#[test]
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
            // Reading waits for the copies.
            assert_eq!(sink.as_slice().unwrap(), numbers(3));
        }
    }
    in_every_order("copies_arrive", &[], body);
}

#[test]
fn fresh_memory_is_not_a_number() {
    fn body() {
        let context = CudaContext::new(0).unwrap();
        let stream = context.default_stream();
        // SAFETY: reading what nobody wrote is the point.
        let memory = unsafe { stream.alloc::<f32>(N) }.unwrap();
        assert!(stream.clone_dtoh(&memory).unwrap().iter().all(|value| value.is_nan()));
    }
    in_every_order("fresh_memory_is_not_a_number", &[], body);
}

/// One stream writes, another reads; `wait` says whether it waits for the first. Gives what arrived.
fn write_here_read_there(wait: bool) -> Vec<u32> {
    let context = plain_context();
    let (writer, reader) = (context.new_stream().unwrap(), context.new_stream().unwrap());
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

/// Copies that tell cudarc nothing, so that it does not wait by itself.
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

#[test]
fn a_stream_that_waits_reads_what_was_written() {
    fn body() {
        for _ in 0..20 {
            assert_eq!(write_here_read_there(true), numbers(500));
        }
    }
    in_every_order("a_stream_that_waits_reads_what_was_written", &[], body);
}

#[test]
fn a_missing_wait_shows() {
    if inside() {
        let right = (0..20).all(|_| write_here_read_there(false) == numbers(500));
        assert!(right, "stale values");
        return;
    }
    // In order `eager` the mistake stays hidden: that order alone proves nothing.
    for (order, shows) in [("late", true), ("random:1", true), ("random:2", true), ("eager", false)] {
        let Some(output) = child("a_missing_wait_shows", &[("CUDA_EMULATOR_ORDER", order)]) else { return };
        assert_eq!(text(&output).contains("stale values"), shows, "{order}: {}", text(&output));
    }
}
