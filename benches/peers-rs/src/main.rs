//! Vectors of one batch by rten or tract: `foveate-peers LIBRARY MODEL.onnx PIXELS THREADS BATCH HEIGHT WIDTH`.
//!
//! PIXELS is a file of RGB samples. For each line of its input, the program computes the batch once and answers with a
//! line, the number of bytes, and the vectors (f32, little-endian). `n/a REASON` says that it cannot.

use std::error::Error;
use std::io::{BufRead, Write};
use std::sync::Arc;

use rten_tensor::{NdTensorView, prelude::*};
use tract_linalg::multithread::{Executor, set_default_executor};
use tract_onnx::prelude::{DatumExt, Framework, InferenceModelExt, IntoRunnable, Tensor, tvec};

type Failure = Box<dyn Error>;
/// The outputs of one batch, each with its vectors one after the other.
type Forward = Box<dyn FnMut() -> Result<Vec<Vec<f32>>, Failure>>;

fn rten(model: &str, pixels: Vec<u8>, threads: usize, shape: [usize; 4]) -> Result<Forward, Failure> {
    let mut options = rten::ModelOptions::with_all_ops();
    // As rten's guide to performance says: weights in the kernels' layout from the start.
    let model = options.prepack_weights(true).load_file(model)?;
    let pool = Arc::new(rten::ThreadPool::with_num_threads(threads));
    let (input, outputs) = (model.input_ids()[0], model.output_ids().to_vec());
    Ok(Box::new(move || {
        let pixels = NdTensorView::from_data(shape, &pixels[..]);
        let options = rten::RunOptions::default().with_thread_pool(Some(Arc::clone(&pool)));
        let outputs = model.run(vec![(input, pixels.into())], &outputs, Some(options))?;
        let vectors = |value: rten::Value| Ok(value.into_tensor::<f32>().ok_or("an output that is not f32")?.to_vec());
        outputs.into_iter().map(vectors).collect()
    }))
}

fn tract(model: &str, pixels: Vec<u8>, threads: usize, shape: [usize; 4]) -> Result<Forward, Failure> {
    set_default_executor(Executor::multithread(threads));
    // Shapes within the file are of any batch; the input's shape gives all of them.
    let model = tract_onnx::onnx().with_ignore_value_info(true).model_for_path(model)?;
    let model = model.with_input_fact(0, u8::fact(shape).into())?.into_optimized()?.into_runnable()?;
    let pixels = Tensor::from_shape(&shape, &pixels)?;
    Ok(Box::new(move || {
        let outputs = model.run(tvec!(pixels.clone().into()))?;
        let vectors = |value: &Tensor| Ok(value.view().as_slice::<f32>()?.to_vec());
        outputs.iter().map(|value| vectors(value)).collect()
    }))
}

fn open(arguments: &[String]) -> Result<(Forward, usize), Failure> {
    let [library, model, pixels, numbers @ ..] = arguments else { return Err("LIBRARY MODEL PIXELS".into()) };
    let numbers: Vec<usize> = numbers.iter().map(|number| number.parse()).collect::<Result<_, _>>()?;
    let &[threads, batch, height, width] = &numbers[..] else { return Err("THREADS BATCH HEIGHT WIDTH".into()) };
    let (pixels, shape) = (std::fs::read(pixels)?, [batch, height, width, 3]);
    let forward = match library.as_str() {
        "rten" => rten(model, pixels, threads, shape),
        "tract" => tract(model, pixels, threads, shape),
        _ => Err("a library is rten or tract".into()),
    };
    Ok((forward?, batch))
}

/// Returns the vectors with all outputs of an image side by side.
fn rows(outputs: &[Vec<f32>], batch: usize) -> Vec<u8> {
    let row = |at| outputs.iter().flat_map(move |output| output.chunks(output.len() / batch).nth(at).unwrap_or(&[]));
    (0..batch).flat_map(row).flat_map(|value| value.to_le_bytes()).collect()
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut opened = open(&arguments);
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        line?;
        let answer = match &mut opened {
            Ok((forward, batch)) => forward().map(|outputs| rows(&outputs, *batch)).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match answer {
            Ok(vectors) => {
                writeln!(out, "{}", vectors.len())?;
                out.write_all(&vectors)?;
            }
            Err(reason) => writeln!(out, "n/a {}", reason.split_whitespace().collect::<Vec<_>>().join(" "))?,
        }
        out.flush()?;
    }
    Ok(())
}
