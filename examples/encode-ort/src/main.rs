//! Runs an ONNX file on one image, with only foveate's ONNX Runtime encoder.
//!
//! `ORT_DYLIB_PATH` must name the shared library, such as `onnxruntime/capi/libonnxruntime.so.1.*` of the Python
//! package.

use std::error::Error;
use std::path::Path;

use foveate_core::{PixelBatch, Size, VectorBuf};
use foveate_encode::{Encoder, EncoderOptions, Graph, GraphFormat, GraphSource};
use foveate_encode_ort::OrtEncoder;

/// The first components by Python's onnxruntime with the same file; numpy normalized the image.
const GOLDEN: [f32; 4] = [-0.495_607_26, 0.161_954_49, -0.631_993, 0.460_708_86];

fn main() -> Result<(), Box<dyn Error>> {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models");
    let graph = Graph {
        name: "tiny".to_owned(),
        format: GraphFormat::Onnx,
        source: GraphSource::File(models.join("tiny/model.baked224.onnx")),
        input: Size::square(224),
        mean: [0.485, 0.456, 0.406],
        std: [0.229, 0.224, 0.225],
        registers: None,
    };
    let mut encoder = OrtEncoder::open(&graph, &EncoderOptions::default())?;

    // A gradient: red to the right, green downwards, blue along the diagonal.
    let image: Vec<u8> =
        (0..224u32 * 224).flat_map(|i| [i % 224, i / 224, (i % 224 + i / 224) / 2]).map(|v| v as u8).collect();
    let batch = PixelBatch::new(&image, encoder.spec().input).ok_or("not one image of the model's size")?;
    let mut vectors = VectorBuf::new();
    encoder.encode(batch, &mut vectors)?;

    println!("{:?}", vectors.row(0));
    let worst = vectors.row(0).iter().zip(GOLDEN).map(|(value, golden)| (value - golden).abs()).fold(0.0, f32::max);
    if vectors.dim() != 64 || worst.is_nan() || worst > 1e-5 {
        return Err(format!("not the golden vector: {worst} off").into());
    }
    Ok(())
}
