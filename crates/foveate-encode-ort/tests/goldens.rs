//! Compares ONNX files with the vectors that Hugging Face `transformers` computes from the same u8 crops.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

mod support;

use std::process::ExitCode;

use foveate_encode::{EncoderOptions, Graph, Pooling};
use foveate_encode_ort::OrtEncoder;
use foveate_testkit::{data, run, trials};
use support::{Goldens, TINY, fixtures, graph, need_onnx_runtime, options, tiny};

fn main() -> ExitCode {
    run(trials![
        graphs_with_baked_positions,
        graphs_that_interpolate_positions,
        shared_graphs_that_interpolate_positions,
        every_optimization_level_and_two_threads,
    ])
}

fn check(name: &str, graph: &Graph, options: &EncoderOptions) {
    let goldens = Goldens::read(&fixtures().join(format!("goldens/embeddings_{name}.safetensors")));
    let mut encoder = OrtEncoder::open(graph, options).unwrap();
    for recipe in ["hf_pil", "squash"] {
        goldens.check(&mut encoder, recipe, recipe);
    }
}

fn graphs_with_baked_positions() {
    need_onnx_runtime();
    TINY.iter().for_each(|name| check(name, &tiny(name), &options(Pooling::ClsMean, 30)));
}

/// They have other output shapes, and specify their number of registers.
fn graphs_that_interpolate_positions() {
    need_onnx_runtime();
    let committed = fixtures().join("models/tiny-swiglu/model.onnx");
    check("tiny-swiglu", &graph(committed, Some(0)), &options(Pooling::ClsMean, 30));
}

fn shared_graphs_that_interpolate_positions() {
    need_onnx_runtime();
    for (name, registers) in [("tiny", 0), ("tiny-reg", 4)] {
        let path = data(&format!("models/{name}/model.onnx"));
        check(name, &graph(path, Some(registers)), &options(Pooling::ClsMean, 30));
    }
}

fn every_optimization_level_and_two_threads() {
    need_onnx_runtime();
    for level in ["disable", "basic", "extended", "all"] {
        let settings = [("optimization".to_owned(), level.to_owned())].into();
        let options = EncoderOptions { settings, threads: 2, ..options(Pooling::ClsMean, 30) };
        check("tiny-reg", &tiny("tiny-reg"), &options);
    }
}
