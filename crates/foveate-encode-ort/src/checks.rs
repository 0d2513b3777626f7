//! Checks of what only a GPU uses, with the host's memory in its place. `tests/host.rs` runs them, because a unit test
//! cannot report that ONNX Runtime is missing.

#![allow(clippy::unwrap_used, reason = "a check reports by panicking")]

use std::path::Path;

use foveate_core::{PixelBatch, Size};
use ort::memory::{Allocator, MemoryInfo};
use ort::session::{Session, SessionInputValue};
use ort::value::{DynValue, Tensor};

use crate::binding::{DeviceBinding, download};
use crate::contract::{GraphElement, GraphInput, ImageLayout};
use crate::feed::ImageFeed;
use crate::{library, placement};

/// The outputs of the graphs.
const OUTPUTS: [&str; 2] = ["cls", "patch_mean"];

/// Checks that runs with bound memory give what runs without it give, on the graphs in `folder`: for any sequence of
/// batch sizes, and for a second run on the same upload.
///
/// # Panics
/// Panics if they do not, and without ONNX Runtime.
pub fn bound_runs_give_what_others_give(folder: &Path) {
    for (graph, element, layout) in [
        ("u8-nhwc", GraphElement::U8, ImageLayout::Pixels),
        ("u8-nchw", GraphElement::U8, ImageLayout::Planes),
        ("f32-nchw", GraphElement::F32, ImageLayout::Planes),
        ("f16-nhwc", GraphElement::F16, ImageLayout::Pixels),
    ] {
        let environment = &library::load().ok().unwrap().environment;
        let path = folder.join(graph).with_extension("onnx");
        let mut session = Session::builder(environment).unwrap().commit_from_file(path).unwrap();
        let mut feed = ImageFeed::new(&GraphInput { element, layout, batch: None }, [0.5; 3], [0.25; 3]);
        let outputs = OUTPUTS.map(str::to_owned).to_vec();
        let mut bound = DeviceBinding::new(&session, MemoryInfo::default(), Allocator::default(), outputs).unwrap();
        for images in [3, 1, 1, 4] {
            compare(&mut session, &mut feed, &mut bound, images);
        }
    }
}

/// Compares the outputs of a batch, with bound memory and without.
fn compare(session: &mut Session, feed: &mut ImageFeed, bound: &mut DeviceBinding, images: usize) {
    const SIZE: Size = Size { width: 8, height: 6 };
    let pixels: Vec<u8> = (0..images * 8 * 6 * 3).map(|i| (i * 31 + images) as u8).collect();
    let batch = PixelBatch::new(&pixels, SIZE).unwrap();
    let expected = {
        let results = session.run([feed.tensor(batch).unwrap()]).unwrap();
        OUTPUTS.map(|name| values(&results[name]))
    };
    bound.upload(feed, batch).unwrap();
    for _ in 0..2 {
        let results = bound.run(session).unwrap();
        let results = [0, 1].map(|i| values(&download(&results[i]).unwrap()));
        assert_eq!(results, expected, "{images} images");
    }
}

fn values(value: &DynValue) -> Vec<f32> {
    match value.try_extract_tensor::<f32>() {
        Ok((_, values)) => values.to_vec(),
        Err(_) => value.try_extract_tensor::<half::f16>().unwrap().1.iter().map(|v| v.to_f32()).collect(),
    }
}

/// Checks that a network that runs on the CPU is seen to do so, on a model of images of 224 x 224.
///
/// # Panics
/// Panics if it is not, and without ONNX Runtime.
pub fn a_network_on_the_cpu_is_seen_there(model: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let builder = Session::builder(&library::load().ok().unwrap().environment).unwrap();
    let builder = builder.with_profiling(folder.path().join("run")).unwrap();
    let mut session = { builder }.commit_from_file(model).unwrap();
    let black = Tensor::from_array(([1usize, 3, 224, 224], vec![0f32; 3 * 224 * 224])).unwrap();
    session.run([black.into_dyn().into()] as [SessionInputValue<'_>; 1]).unwrap();
    let refused = placement::check(Path::new(&session.end_profiling().unwrap())).unwrap_err();
    assert!(refused.contains("MatMul") && refused.ends_with("would run on the CPU"), "{refused}");
}
