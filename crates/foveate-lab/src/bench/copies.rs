use std::hint::black_box;
use std::time::Instant;

use foveate_core::VectorBuf;
use foveate_encode::{Batch, Encoder, EncoderSpec, Place, host_allocator};

use super::cells::{Attempt, Effort, Row, attempt, row};
use crate::stats::median;
use crate::{Lab, LabError, Setting, Table, schema};

/// Bytes of a component in f32; in u8 it has one.
const FLOAT: usize = 4;

/// Measures what a batch costs on its way to the network, as bytes and as floats: converting it, copying it within the
/// host's memory on one thread, and copying it to the device from pageable and from pinned memory.
///
/// Encoders take bytes, so floats to the device are a batch of four times as many images. The batch has a quarter of
/// the job's images, so that their floats fit.
///
/// # Errors
/// Fails if the encoder cannot be opened; [`LabError::Interrupted`].
pub fn copies(lab: &Lab<'_>, effort: &Effort) -> Result<Table, LabError> {
    let base = lab.rig.base();
    let images = base.batch.div_ceil(FLOAT);
    let mut encoder = lab.rig.open_encoder(&Setting { batch: images * FLOAT, ..base })?;
    let components = images * encoder.spec().input.rgb_len().unwrap_or_default();
    let mut table = Table::new(&schema::COPIES);
    lab.watch.doing("copies: within the host");
    let pixels: Vec<u8> = (0..components).map(|at| at as u8).collect();
    let mut floats = vec![0.0; components];
    let ms = timed(effort, || normalize(&pixels, encoder.spec(), black_box(&mut floats)));
    table.push(figures("convert", FLOAT, components, &Ok(CopyTimes { host_ms: ms, device_ms: Vec::new() })));
    let mut copy = pixels.clone();
    let mut copy_of_floats = floats.clone();
    let ms = timed(effort, || black_box(&mut copy).copy_from_slice(&pixels));
    table.push(figures("host", 1, components, &Ok(CopyTimes { host_ms: ms, device_ms: Vec::new() })));
    let ms = timed(effort, || black_box(&mut copy_of_floats).copy_from_slice(&floats));
    table.push(figures("host", FLOAT, components, &Ok(CopyTimes { host_ms: ms, device_ms: Vec::new() })));
    for from in ["pageable", "pinned"] {
        for size in [1, FLOAT] {
            lab.watch.doing(&format!("copies: to the device, from {from} memory"));
            let copied = attempt(lab, to_device(encoder.as_mut(), from == "pinned", size * images, effort))?;
            table.push(figures(from, size, components, &copied));
        }
    }
    Ok(table)
}

/// The times of copies in milliseconds.
struct CopyTimes {
    /// Of the thread that has the batch.
    host_ms: Vec<f64>,
    /// Of the device, by its clock; empty without one.
    device_ms: Vec<f64>,
}

/// Returns the row of a batch whose components have `size` bytes.
fn figures(from: &'static str, size: usize, components: usize, cell: &Attempt<CopyTimes>) -> Row {
    let dtype = if size == FLOAT { "f32" } else { "u8" };
    let bytes = size * components;
    row([("from", from.into()), ("dtype", dtype.into())], cell, |times| {
        let host = median(&times.host_ms);
        let device = median(&times.device_ms);
        let ms = host.unwrap_or_default() + device.unwrap_or_default();
        Row::from([
            ("samples", times.host_ms.len().into()),
            ("sample_seconds", (ms / 1e3).into()),
            ("bytes", bytes.into()),
            ("host_ms", host.into()),
            ("device_ms", device.into()),
            ("mb_per_second", (bytes as f64 / 1e3 / ms).into()),
        ])
    })
}

/// Returns the milliseconds of each call of `work`, after one that touches its memory.
fn timed(effort: &Effort, mut work: impl FnMut()) -> Vec<f64> {
    work();
    let began = Instant::now();
    let mut ms = Vec::new();
    while ms.len() < effort.samples || began.elapsed().as_secs_f64() < effort.seconds / 4.0 {
        let started = Instant::now();
        work();
        ms.push(started.elapsed().as_secs_f64() * 1e3);
    }
    ms
}

/// Converts pixels as a pipeline does whose encoder takes floats.
fn normalize(pixels: &[u8], spec: &EncoderSpec, out: &mut [f32]) {
    for (pixel, out) in pixels.as_chunks::<3>().0.iter().zip(out.as_chunks_mut::<3>().0) {
        for channel in 0..3 {
            out[channel] = (f32::from(pixel[channel]) / 255.0 - spec.mean[channel]) / spec.std[channel];
        }
    }
}

fn no_device() -> LabError {
    LabError::Setting("the forward reads the host's memory".to_owned())
}

/// Encodes a batch again and again, one at a time.
fn to_device(encoder: &mut dyn Encoder, pinned: bool, images: usize, effort: &Effort) -> Result<CopyTimes, LabError> {
    let size = encoder.spec().input;
    let overlap = encoder.overlap().ok_or_else(no_device)?;
    let allocate = if pinned { overlap.allocator(Place::Host) } else { host_allocator() };
    let mut batch = Batch { memory: allocate(images * size.rgb_len().unwrap_or_default())?, images, size };
    let mut times = CopyTimes { host_ms: Vec::new(), device_ms: Vec::new() };
    let mut vectors = VectorBuf::new();
    let began = Instant::now();
    // The first two batches of a size prepare it.
    while times.host_ms.len() < 2 + effort.samples || began.elapsed().as_secs_f64() < effort.seconds / 4.0 {
        let started = Instant::now();
        overlap.submit(batch)?;
        times.host_ms.push(started.elapsed().as_secs_f64() * 1e3);
        let collected = overlap.collect(&mut vectors)?;
        times.device_ms.push(collected.spans.copy_in.1.as_secs_f64() * 1e3);
        batch = collected.batch;
    }
    times.host_ms.drain(..2);
    times.device_ms.drain(..2);
    if times.device_ms.iter().all(|&ms| ms == 0.0) { Err(no_device()) } else { Ok(times) }
}
