//! The encoder: it feeds sessions and reads their outputs.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
#[cfg(feature = "cuda")]
use std::time::Duration;
use std::time::Instant;

use foveate_core::{PixelBatch, VectorBuf};
use foveate_encode::{
    DType, EncodeError, EncodeTimes, Encoder, EncoderOptions, EncoderSpec, Graph, Overlap, Pooling, Resident,
};
use ort::session::{HasSelectedOutputs, OutputSelector, RunOptions, Session};
use ort::value::DynValue;

#[cfg(feature = "cuda")]
use crate::binding::{DeviceBinding, download};
use crate::contract::{Contract, GraphElement, GraphOutput, Tensor, first_patch};
use crate::error::{engine, malformed};
use crate::feed::ImageFeed;
use crate::library::load;
use crate::plan::SessionPlan;
use crate::provider::OrtDevice;
use crate::rows::Take;

/// An ONNX graph on ONNX Runtime.
pub struct OrtEncoder {
    spec: EncoderSpec,
    /// Each engine takes the next part of the batch.
    engines: Vec<OrtEngine>,
    /// The outputs to read, and how.
    outputs: Vec<(Tensor, Take)>,
    /// Images per run.
    step: usize,
    /// The number of images of the last batch that are still on the device; none if the batch took more than one run.
    #[cfg(feature = "cuda")]
    resident: usize,
}

/// A session with one input, and memory for it.
struct OrtEngine {
    session: Session,
    feed: ImageFeed,
    road: Road,
}

/// The path of images to the graph and of outputs back.
enum Road {
    /// Through the host's memory.
    Host(RunOptions<HasSelectedOutputs>),
    #[cfg(feature = "cuda")]
    Gpu(Box<DeviceBinding>),
}

impl Road {
    fn new(device: OrtDevice, session: &Session, outputs: &[Tensor]) -> ort::Result<Self> {
        #[cfg(feature = "cuda")]
        if let OrtDevice::Cuda(id) | OrtDevice::TensorRt(id) = device {
            let outputs = outputs.iter().map(|tensor| tensor.name.clone()).collect();
            return Ok(Self::Gpu(Box::new(DeviceBinding::on_gpu(session, id, outputs)?)));
        }
        let _ = (device, session);
        let wanted = outputs.iter().fold(OutputSelector::no_default(), |wanted, tensor| wanted.with(&tensor.name));
        Ok(Self::Host(RunOptions::new()?.with_outputs(wanted)))
    }
}

impl OrtEncoder {
    /// Loads the shared library if necessary, opens sessions of `graph`, and runs one on a black image. This run tests
    /// the session and shows the width of its vectors.
    ///
    /// Images are passed in the graph's type: u8 unchanged, f32 and f16 normalized with `graph.mean` and `graph.std`;
    /// as `[n, h, w, 3]` or `[n, 3, h, w]`; with a variable or a fixed batch size.
    ///
    /// Vectors are the outputs `cls` and `patch_mean` if the graph has them. Else they are pooled from the tokens
    /// `last_hidden_state` (or the only output with three dimensions). Else class vectors are its `pooler_output` or
    /// only output.
    ///
    /// On the CPU, `options.threads` threads are divided among sessions. A session with one thread computes one image
    /// at a time, with the same bits in every batch and on any number of such sessions. That is also faster than
    /// threads that share an image. Every session has a copy of the weights. The number of sessions is the largest that
    /// keeps the copies below a gigabyte, or the setting `sessions`. The other setting is `optimization`.
    ///
    /// On a GPU there is one session, which takes whole batches. The settings are `optimization`, `tf32` (`on` or
    /// `off`, the default) and, on `tensorrt:N`, `engine_cache`. The run on a black image also shows where the graph is
    /// computed: a graph whose products or attention ONNX Runtime would run on the CPU is refused.
    ///
    /// # Errors
    /// - [`EncodeError::Device`] if the library or the device is missing.
    /// - [`EncodeError::Model`] for a graph that cannot be read or does not match the above.
    /// - [`EncodeError::Unsupported`] for unknown settings and for another precision than the graph's (but TensorRT
    ///   computes f32 graphs in f16 and bf16 too).
    pub fn open(graph: &Graph, options: &EncoderOptions) -> Result<Self, EncodeError> {
        let plan = SessionPlan::new(graph, options)?;
        let first = plan.session()?;
        let contract = contract(graph, options.pooling, &first)?;
        if contract.input.element == GraphElement::U8 {
            options.only_u8("a graph with images of u8")?;
        }
        let dtype = precision(&contract, plan.device, options)?;

        let mut engines = vec![OrtEngine::new(first, &contract, &plan)?];
        let (outputs, dim) = engines[0].measure(&contract.output, options.pooling, graph)?;
        plan.check_placement(&mut engines[0].session)?;
        for _ in 1..plan.sessions {
            engines.push(OrtEngine::new(plan.session()?, &contract, &plan)?);
        }
        let max_batch = options.max_batch.max(1);
        let alone = plan.device == OrtDevice::Cpu && plan.threads == 1;
        let step = contract.input.batch.unwrap_or(if alone { 1 } else { max_batch.div_ceil(plan.sessions) });
        Ok(Self {
            spec: EncoderSpec {
                input: graph.input,
                sample: options.sample,
                mean: graph.mean,
                std: graph.std,
                dim,
                pooling: options.pooling,
                device: plan.device.to_string(),
                dtype,
                max_batch,
                // In a run of several images, their number may change the library's order of summation.
                batch_invariant: alone && step == 1,
                kernels: load().ok().map(|library| format!("ONNX Runtime {}", library.version)),
            },
            engines,
            outputs,
            step,
            #[cfg(feature = "cuda")]
            resident: 0,
        })
    }
}

impl Encoder for OrtEncoder {
    fn spec(&self) -> &EncoderSpec {
        &self.spec
    }

    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        self.spec.check(batch)?;
        #[cfg(feature = "cuda")]
        {
            self.resident = if batch.len() <= self.step { batch.len() } else { 0 };
        }
        let Self { spec, engines, outputs, step, .. } = self;
        let rows = out.reset(batch.len(), spec.dim);
        let parts = (0..batch.len()).step_by(*step);
        let parts = parts.filter_map(|first| batch.slice(first..batch.len().min(first + *step)));
        share(engines, outputs, spec.dim, parts.zip(rows.chunks_mut(*step * spec.dim)))
    }

    #[cfg(feature = "cuda")]
    fn resident(&mut self) -> Option<&mut dyn Resident> {
        let is_on_gpu = matches!(self.engines[0].road, Road::Gpu(_));
        (is_on_gpu && self.resident > 0).then_some(self as _)
    }

    #[cfg(not(feature = "cuda"))]
    fn resident(&mut self) -> Option<&mut dyn Resident> {
        None
    }

    fn overlap(&mut self) -> Option<&mut dyn Overlap> {
        None
    }
}

#[cfg(feature = "cuda")]
impl Resident for OrtEncoder {
    fn encode_again(&mut self, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        let Self { spec, engines, outputs, resident, .. } = self;
        match &mut engines[0] {
            OrtEngine { session, road: Road::Gpu(bound), .. } if *resident > 0 => {
                compute(session, bound, outputs, out.reset(*resident, spec.dim), spec.dim)
            }
            _ => Err(EncodeError::Batch("none is on the device".to_owned())),
        }
    }
}

/// Lets every engine compute the next part until none is left.
fn share<'a, I>(
    engines: &mut [OrtEngine],
    outputs: &[(Tensor, Take)],
    dim: usize,
    parts: I,
) -> Result<EncodeTimes, EncodeError>
where
    I: Iterator<Item = (PixelBatch<'a>, &'a mut [f32])> + Send,
{
    let parts = Mutex::new(parts);
    let work = |engine: &mut OrtEngine| -> Result<EncodeTimes, EncodeError> {
        let mut times = EncodeTimes::default();
        loop {
            // The lock is free again before the computation.
            let next = parts.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((images, rows)) = next else { return Ok(times) };
            times += engine.fill(images, outputs, rows, dim)?;
        }
    };
    let started = Instant::now();
    let Some((first, others)) = engines.split_first_mut() else { return Ok(EncodeTimes::default()) };
    let sum = std::thread::scope(|scope| {
        let others: Vec<_> = others.iter_mut().map(|engine| scope.spawn(|| work(engine))).collect();
        let own = work(first);
        let results = others.into_iter().map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        let mut sum = own?;
        for times in results {
            sum += times?;
        }
        Ok(sum)
    })?;
    Ok(sum.side_by_side(started.elapsed()))
}

impl OrtEngine {
    fn new(session: Session, contract: &Contract, plan: &SessionPlan<'_>) -> Result<Self, EncodeError> {
        let road = Road::new(plan.device, &session, contract.output.tensors()).map_err(|error| engine(&error))?;
        Ok(Self { session, feed: ImageFeed::new(&contract.input, plan.graph.mean, plan.graph.std), road })
    }

    /// Computes the vectors of `images`, `[n, dim]`.
    fn fill(
        &mut self,
        images: PixelBatch<'_>,
        outputs: &[(Tensor, Take)],
        rows: &mut [f32],
        dim: usize,
    ) -> Result<EncodeTimes, EncodeError> {
        let Self { session, feed, road } = self;
        let started = Instant::now();
        match road {
            Road::Host(options) => {
                let input = [feed.tensor(images)?];
                let fed = Instant::now();
                let results = session.run_with_options(input, options).map_err(|error| engine(&error))?;
                let computed = Instant::now();
                for (i, (tensor, take)) in outputs.iter().enumerate() {
                    take.fill(tensor, &results[i], rows, dim)?;
                }
                Ok(EncodeTimes { copy_in: fed - started, forward: computed - fed, copy_out: computed.elapsed() })
            }
            #[cfg(feature = "cuda")]
            Road::Gpu(bound) => {
                bound.upload(feed, images)?;
                let copy_in = started.elapsed();
                Ok(EncodeTimes { copy_in, ..compute(session, bound, outputs, rows, dim)? })
            }
        }
    }

    /// Runs one black image; returns how the outputs form a row, and the row's length.
    fn measure(
        &mut self,
        output: &GraphOutput,
        pooling: Pooling,
        graph: &Graph,
    ) -> Result<(Vec<(Tensor, Take)>, usize), EncodeError> {
        let black = vec![0; graph.input.rgb_len().unwrap_or_default()];
        let Some(image) = PixelBatch::new(&black, graph.input) else {
            return Err(malformed(graph, "the size of its images is not one that an image can have"));
        };
        let mut dim = 0;
        let mut takes = Vec::new();
        for (tensor, shape) in output.tensors().iter().zip(self.shapes(image)?) {
            let take = take(output, &shape, dim, pooling, graph)
                .map_err(|problem| malformed(graph, format!("its output {} is {shape:?}: {problem}", tensor.name)))?;
            dim += take.components();
            takes.push((tensor.clone(), take));
        }
        Ok((takes, dim))
    }

    /// Returns the shapes of the outputs for `image`.
    fn shapes(&mut self, image: PixelBatch<'_>) -> Result<Vec<Vec<usize>>, EncodeError> {
        let Self { session, feed, road } = self;
        match road {
            Road::Host(options) => {
                let input = [feed.tensor(image)?];
                let results = session.run_with_options(input, options).map_err(|error| engine(&error))?;
                Ok(results.values().map(|value| shape(&value)).collect())
            }
            #[cfg(feature = "cuda")]
            Road::Gpu(bound) => {
                bound.upload(feed, image)?;
                let results = bound.run(session).map_err(|error| engine(&error))?;
                // Copied like every batch's outputs, because the first copy takes longer than others.
                let values = results.values().map(|value| Ok(shape(&download(&value)?)));
                values.collect::<ort::Result<_>>().map_err(|error| engine(&error))
            }
        }
    }
}

/// Computes the vectors of the images on the device.
#[cfg(feature = "cuda")]
fn compute(
    session: &mut Session,
    bound: &mut DeviceBinding,
    outputs: &[(Tensor, Take)],
    rows: &mut [f32],
    dim: usize,
) -> Result<EncodeTimes, EncodeError> {
    let started = Instant::now();
    let results = bound.run(session).map_err(|error| engine(&error))?;
    let computed = Instant::now();
    for (i, (tensor, take)) in outputs.iter().enumerate() {
        let value = download(&results[i]).map_err(|error| engine(&error))?;
        take.fill(tensor, &value, rows, dim)?;
    }
    Ok(EncodeTimes { copy_in: Duration::ZERO, forward: computed - started, copy_out: computed.elapsed() })
}

fn shape(value: &DynValue) -> Vec<usize> {
    value.shape().iter().map(|&n| usize::try_from(n).unwrap_or(0)).collect()
}

/// Decides how an output of `shape` becomes part of a row, from component `at` on.
fn take(output: &GraphOutput, shape: &[usize], at: usize, pooling: Pooling, graph: &Graph) -> Result<Take, String> {
    match (output, shape) {
        (GraphOutput::Vectors(_), &[_, width @ (1..)]) => Ok(Take::Vector { at, width }),
        (GraphOutput::Tokens(_), &[_, tokens, width @ (1..)]) => {
            let first_patch = first_patch(tokens, graph.registers, graph.input);
            let first_patch = first_patch.ok_or_else(|| not_tokens(tokens, graph))?;
            Ok(Take::Tokens { tokens, width, first_patch, pooling })
        }
        _ => Err("no vector of an image can be read from that".to_owned()),
    }
}

fn not_tokens(tokens: usize, graph: &Graph) -> String {
    let registers = match graph.registers {
        Some(registers) => format!("{registers} registers, as config.json says,"),
        None => "some registers".to_owned(),
    };
    format!(
        "{tokens} tokens are not a class token, {registers} and a grid of square patches of {} pixels; only models of \
         that kind can be run",
        graph.input
    )
}

fn contract(graph: &Graph, pooling: Pooling, session: &Session) -> Result<Contract, EncodeError> {
    let inputs: Vec<Tensor> = session.inputs().iter().map(Tensor::new).collect();
    let outputs: Vec<Tensor> = session.outputs().iter().map(Tensor::new).collect();
    Contract::new(graph, pooling, &inputs, &outputs).map_err(|problem| malformed(graph, problem))
}

/// Checks the precision: a graph computes only in the precision it was exported in, but TensorRT converts f32.
fn precision(contract: &Contract, device: OrtDevice, options: &EncoderOptions) -> Result<DType, EncodeError> {
    let converts = matches!(device, OrtDevice::TensorRt(_)) && contract.dtype() == DType::F32;
    if contract.dtype() == options.dtype || converts {
        return Ok(options.dtype);
    }
    let found = contract.dtype().name();
    let asked = options.dtype.name();
    Err(EncodeError::Unsupported(format!(
        "the graph is {found}, not {asked}: ask for {found}, or export it in {asked}"
    )))
}
