//! The lane's contract, tested with a real encoder on a tiny model and with a device that keeps batches in flight.
// A test's panic is its report.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use foveate_core::{BatchMemory, PixelBatch, Size, VectorBuf, error_chain};
use foveate_encode::{BATCH_SIZES, EncodeError, Encoder, EncoderOptions, Place, conformance};
use foveate_encode_fused::FusedEncoder;
use foveate_model::Model;
use foveate_pipeline::lane::{Landed, Lane, LaneError, Normalize, batch_memory};
use foveate_preprocess::Granularity;

use foveate_testkit::device::{Device, Notes};

fn fused(max_batch: usize) -> FusedEncoder {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models/tiny");
    let options = EncoderOptions { max_batch, ..EncoderOptions::default() };
    FusedEncoder::new(&Model::from_folder(&folder).unwrap(), &options).unwrap()
}

#[test]
fn vectors_are_the_encoders_whatever_else_is_in_the_memory() {
    let mut encoder = fused(3);
    let input = encoder.spec().input;
    let pixels: Vec<u8> = (0..3).flat_map(|seed| conformance::noise(input, seed)).collect();
    let mut lane = Lane::new(Box::new(fused(3)), Normalize::Off);
    let mut unit = Lane::new(Box::new(fused(3)), Normalize::L2);
    assert_eq!((lane.depth(), lane.has_room(), lane.is_empty()), (1, true, true));
    for images in 1..=3 {
        let mut expected = VectorBuf::new();
        let batch = PixelBatch::new(&pixels, input).unwrap().slice(0..images).unwrap();
        encoder.encode(batch, &mut expected).unwrap();
        let run = |lane: &mut Lane<usize>| {
            lane.submit(Box::new(pixels.clone()), images, VectorBuf::new(), images).unwrap();
            assert!(!lane.has_room());
            let landed = lane.collect().unwrap().unwrap();
            assert_eq!((landed.tag, landed.memory.host()), (images, Some(&pixels[..])));
            assert!(landed.spans.is_some() && landed.not_finite.is_empty());
            landed.vectors
        };
        assert_eq!(run(&mut lane), expected);
        let unit = run(&mut unit);
        for row in 0..images {
            let length = |row: &[f32]| row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
            assert!((length(unit.row(row)) - 1.0).abs() < 1e-6);
            let scale = length(expected.row(row)) as f32;
            assert!(unit.row(row).iter().zip(expected.row(row)).all(|(a, b)| (a * scale - b).abs() < 1e-5));
        }
    }
}

const INPUT: Size = Size::new(2, 1);
const IMAGE: usize = 6;
const DIM: usize = 2;

/// A first sample on which the device fails.
const BROKEN: u8 = 255;
/// A first sample whose vector is infinite.
const INFINITE: u8 = 254;

/// A device that returns `missing` rows too few. An image's vector is its first sample and its place in the batch.
fn device(max_batch: usize, missing: usize) -> Device {
    Device::new((INPUT, DIM, max_batch), move |batch, out| {
        let rows = out.reset(batch.images - missing, DIM).chunks_exact_mut(DIM);
        for (at, (row, image)) in rows.zip(batch.memory.host().unwrap().chunks_exact(IMAGE)).enumerate() {
            if image[0] == BROKEN {
                return Err(EncodeError::Engine("an illegal address".into()));
            }
            row.copy_from_slice(&[if image[0] == INFINITE { f32::INFINITY } else { f32::from(image[0]) }, at as f32]);
        }
        Ok(())
    })
}

fn lane(max_batch: usize) -> (Lane<usize>, Arc<Mutex<Notes>>) {
    let device = device(max_batch, 0);
    let notes = device.notes();
    (Lane::new(Box::new(device), Normalize::Off), notes)
}

/// Makes memory for `room` images: the first ones have these samples, those behind them are not part of the batch.
fn memory(room: usize, samples: &[u8]) -> Box<dyn BatchMemory> {
    let spare = std::iter::repeat_n(&100, room - samples.len());
    Box::new(samples.iter().chain(spare).flat_map(|&sample| [sample; IMAGE]).collect::<Vec<u8>>())
}

fn check(landed: &Landed<usize>, samples: &[u8]) {
    let expected: Vec<f32> = samples.iter().zip(0_u8..).flat_map(|(&s, at)| [f32::from(s), f32::from(at)]).collect();
    assert_eq!((landed.vectors.as_slice(), landed.vectors.rows()), (&expected[..], samples.len()));
}

#[test]
fn batches_come_back_in_order_and_padding_never_does() {
    for max in [1, 2, 7, 20, 33] {
        let (mut lane, notes) = lane(max);
        let mut expected = VecDeque::new();
        let collect = |lane: &mut Lane<usize>, expected: &mut VecDeque<(usize, Vec<u8>)>| {
            let (tag, samples) = expected.pop_front().unwrap();
            let landed = lane.collect().unwrap().unwrap();
            assert_eq!((landed.tag, landed.memory.bytes()), (tag, max * IMAGE));
            check(&landed, &samples);
        };
        for tag in 0..=2 * max {
            if !lane.has_room() {
                collect(&mut lane, &mut expected);
            }
            let samples: Vec<u8> = (0..tag % (max + 1)).map(|at| (tag + at) as u8).collect();
            lane.submit(memory(max, &samples), samples.len(), VectorBuf::new(), tag).unwrap();
            expected.push_back((tag, samples));
        }
        while !lane.is_empty() {
            collect(&mut lane, &mut expected);
        }
        assert!(expected.is_empty() && lane.collect().unwrap().is_none());
        let notes = notes.lock().unwrap();
        assert!(notes.sizes.len() <= BATCH_SIZES && notes.sizes.last() <= Some(&max), "{max}: {:?}", notes.sizes);
        assert!(notes.most <= 3 && (max < 3 || notes.most == 3), "{max}: {}", notes.most);
    }
}

#[test]
fn a_batch_is_padded_no_further_than_its_memory() {
    let (mut lane, notes) = lane(32);
    lane.submit(memory(20, &[7; 19]), 19, VectorBuf::new(), 0).unwrap();
    check(&lane.collect().unwrap().unwrap(), &[7; 19]);
    assert_eq!(notes.lock().unwrap().sizes, BTreeSet::from([20]));
}

#[test]
fn an_error_takes_what_is_in_hand_and_leaves_a_lane_that_works() {
    let (mut lane, _) = lane(4);
    for (tag, sample) in [1, BROKEN, 3].into_iter().enumerate() {
        lane.submit(memory(4, &[sample]), 1, VectorBuf::new(), tag).unwrap();
    }
    check(&lane.collect().unwrap().unwrap(), &[1]);
    let error = lane.collect().err().unwrap();
    assert_eq!(error_chain(&error), "encoder failed: an illegal address");
    assert!(lane.is_empty() && lane.collect().unwrap().is_none());
    lane.submit(memory(4, &[5, 6]), 2, VectorBuf::new(), 9).unwrap();
    lane.submit(memory(4, &[8]), 1, VectorBuf::new(), 10).unwrap();
    lane.abandon();
    assert!(lane.is_empty());
    lane.submit(memory(4, &[7]), 1, VectorBuf::new(), 11).unwrap();
    let landed = lane.collect().unwrap().unwrap();
    assert_eq!(landed.tag, 11, "what was abandoned does not come back");
    check(&landed, &[7]);
}

#[test]
fn a_dropped_lane_leaves_nothing_on_the_device() {
    let collected = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&collected);
    let device = Device::new((INPUT, DIM, 4), move |batch, out| {
        out.reset(batch.images, DIM);
        count.fetch_add(1, Relaxed);
        Ok(())
    });
    let mut lane = Lane::new(Box::new(device), Normalize::Off);
    for tag in 0..2 {
        lane.submit(memory(4, &[1]), 1, VectorBuf::new(), tag).unwrap();
    }
    assert_eq!(collected.load(Relaxed), 0, "both are under way");
    drop(lane);
    assert_eq!(collected.load(Relaxed), 2);
}

#[test]
fn what_is_no_vector_is_named() {
    let mut lane = Lane::new(Box::new(device(8, 0)), Normalize::L2);
    lane.submit(memory(8, &[3, INFINITE, 4, INFINITE]), 4, VectorBuf::new(), ()).unwrap();
    let landed = lane.collect().unwrap().unwrap();
    assert_eq!((landed.not_finite, landed.vectors.rows()), (vec![1, 3], 4));
    assert_eq!(landed.vectors.row(0), [1.0, 0.0]);

    let mut lane = Lane::new(Box::new(device(8, 1)), Normalize::Off);
    lane.submit(memory(8, &[3, 4]), 2, VectorBuf::new(), ()).unwrap();
    let error = lane.collect().err().unwrap();
    assert!(matches!(error, LaneError::Shape { rows: 1, dim: DIM, images: 2 }), "{error}");
}

#[test]
fn memory_is_where_it_is_filled_and_read() {
    let lanes = |count| -> (Vec<Lane<usize>>, Arc<Mutex<Notes>>) {
        let (first, notes) = lane(4);
        (std::iter::once(first).chain((1..count).map(|_| lane(4).0)).collect(), notes)
    };
    for (granularity, count, place) in [
        (Granularity::Image, 1, Place::Host),
        (Granularity::Batch, 1, Place::Device),
        (Granularity::Batch, 2, Place::Host),
    ] {
        let (mut lanes, notes) = lanes(count);
        assert_eq!(batch_memory(&mut lanes, granularity)(12).unwrap().bytes(), 12);
        assert_eq!(notes.lock().unwrap().places, [place], "{granularity:?}, {count}");
    }
    let mut on_host = [Lane::<()>::new(Box::new(fused(1)), Normalize::Off)];
    assert!(batch_memory(&mut on_host, Granularity::Batch)(12).unwrap().host().is_some());
}
