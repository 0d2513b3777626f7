//! The encoder: a session, fed and read.

use std::fmt::Display;

use foveate_core::{PixelBatch, VectorBuf};
use foveate_encode::{
    AnyModel, EncodeError, Encoder, EncoderOptions, EncoderSpec, Graph, GraphFormat, GraphSource, Pooling,
};
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ort::session::{HasSelectedOutputs, OutputSelector, RunOptions, Session, SessionOutputs};

use crate::contract::{Contract, Output, Tensor, first_patch};
use crate::feed::Feed;
use crate::library::{Library, load, one_line};
use crate::provider::{Device, refused};
use crate::rows::Take;

/// The setting that says how far ONNX Runtime may rewrite the graph.
const OPTIMIZATION: &str = "optimization";

/// An ONNX graph on ONNX Runtime.
pub struct OrtEncoder {
    spec: EncoderSpec,
    engine: Engine,
    /// What is read, and how.
    outputs: Vec<(Tensor, Take)>,
    /// Images of one run.
    step: usize,
}

/// A session with one input, and memory for it.
struct Engine {
    session: Session,
    options: RunOptions<HasSelectedOutputs>,
    feed: Feed,
}

impl OrtEncoder {
    /// Loads the shared library if it is not there yet, makes a session of `graph` with `options.threads` threads, and
    /// runs it on one black image, which tells the width of its vectors and that it works at all.
    ///
    /// Images go in as the graph takes them: u8 as they are, f32 and f16 normalized with `graph.mean` and `graph.std`; as
    /// `[n, h, w, 3]` or `[n, 3, h, w]`; any number at a time or the one that the graph was made for. Vectors are its
    /// outputs `cls` and `patch_mean` if it has them, else pooled from the tokens `last_hidden_state` (or of whatever
    /// name, if no other output has three dimensions), else, for class vectors, its `pooler_output` or only output.
    ///
    /// # Errors
    /// [`EncodeError::Device`] when the library or the device is not there, [`EncodeError::Model`] for a graph that
    /// cannot be read or does not fit the above, [`EncodeError::Unsupported`] for another precision than the graph's
    /// and for settings that there are not.
    pub fn open(graph: &Graph, options: &EncoderOptions) -> Result<Self, EncodeError> {
        let optimization = optimization(options)?;
        let device = Device::parse(&options.device)?;
        let providers = device.providers()?;
        let library = load().map_err(|unavailable| unavailable.on(&options.device))?;
        let builder = builder(library, optimization, options.threads.max(1)).map_err(|error| engine(&error))?;
        let builder = builder.with_execution_providers(providers);
        let builder = builder.map_err(|error| refused(device, &one_line(&error)))?;
        let session = commit(builder, graph)?;
        let contract = contract(graph, options.pooling, &session)?;
        check_precision(&contract, options)?;

        let mut engine = Engine::new(session, &contract, graph)?;
        let (outputs, dim) = engine.measure(&contract.output, options.pooling, graph)?;
        let max_batch = options.max_batch.max(1);
        Ok(Self {
            spec: EncoderSpec {
                input: graph.input,
                mean: graph.mean,
                std: graph.std,
                dim,
                pooling: options.pooling,
                device: device.to_string(),
                dtype: contract.dtype(),
                max_batch,
                batch_invariant: false,
            },
            engine,
            outputs,
            step: contract.input.batch.unwrap_or(max_batch),
        })
    }

    /// The same from the model as the registry hands it over, a [`Graph`].
    pub(crate) fn open_any(model: &AnyModel, options: &EncoderOptions) -> Result<Self, EncodeError> {
        match model.downcast_ref::<Graph>() {
            Some(graph) if graph.format == GraphFormat::Onnx => Self::open(graph, options),
            _ => Err(EncodeError::Model("not an ONNX graph".to_owned())),
        }
    }
}

impl Encoder for OrtEncoder {
    fn spec(&self) -> &EncoderSpec {
        &self.spec
    }

    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<(), EncodeError> {
        self.spec.check(batch)?;
        let Self { spec, engine, outputs, step } = self;
        let rows = out.reset(batch.len(), spec.dim);
        for (first, rows) in (0..batch.len()).step_by(*step).zip(rows.chunks_mut(*step * spec.dim)) {
            let Some(images) = batch.slice(first..batch.len().min(first + *step)) else { continue };
            let results = engine.run(images)?;
            for (i, (tensor, take)) in outputs.iter().enumerate() {
                take.fill(tensor, &results[i], rows, spec.dim)?;
            }
        }
        Ok(())
    }
}

impl Engine {
    fn new(session: Session, contract: &Contract, graph: &Graph) -> Result<Self, EncodeError> {
        let wanted = contract.output.tensors().iter();
        let wanted = wanted.fold(OutputSelector::no_default(), |wanted, tensor| wanted.with(&tensor.name));
        let options = RunOptions::new().map_err(|error| engine(&error))?.with_outputs(wanted);
        Ok(Self { session, options, feed: Feed::new(&contract.input, graph.mean, graph.std) })
    }

    /// The wanted outputs, in the order of the contract.
    fn run(&mut self, images: PixelBatch<'_>) -> Result<SessionOutputs<'_>, EncodeError> {
        let Self { session, options, feed } = self;
        session.run_with_options([feed.tensor(images)?], options).map_err(|error| engine(&error))
    }

    /// Runs one black image, and says how its outputs become a row, and of how many components.
    fn measure(
        &mut self,
        output: &Output,
        pooling: Pooling,
        graph: &Graph,
    ) -> Result<(Vec<(Tensor, Take)>, usize), EncodeError> {
        let black = vec![0; graph.input.rgb_len().unwrap_or_default()];
        let Some(image) = PixelBatch::new(&black, graph.input) else {
            return Err(malformed(graph, "the size of its images is not one that an image can have"));
        };
        let results = self.run(image)?;
        let mut dim = 0;
        let mut takes = Vec::new();
        for (i, tensor) in output.tensors().iter().enumerate() {
            let shape: Vec<usize> = results[i].shape().iter().map(|&n| usize::try_from(n).unwrap_or(0)).collect();
            let take = take(output, &shape, dim, pooling, graph)
                .map_err(|problem| malformed(graph, format!("its output {} is {shape:?}: {problem}", tensor.name)))?;
            dim += take.components();
            takes.push((tensor.clone(), take));
        }
        Ok((takes, dim))
    }
}

/// How an output of `shape` becomes a part of a row, from component `at` on.
fn take(output: &Output, shape: &[usize], at: usize, pooling: Pooling, graph: &Graph) -> Result<Take, String> {
    match (output, shape) {
        (Output::Vectors(_), &[_, width @ (1..)]) => Ok(Take::Vector { at, width }),
        (Output::Tokens(_), &[_, tokens, width @ (1..)]) => {
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

fn optimization(options: &EncoderOptions) -> Result<GraphOptimizationLevel, EncodeError> {
    match options.settings(&[OPTIMIZATION])?.get(OPTIMIZATION).map(String::as_str) {
        None | Some("all") => Ok(GraphOptimizationLevel::All),
        Some("extended") => Ok(GraphOptimizationLevel::Level2),
        Some("basic") => Ok(GraphOptimizationLevel::Level1),
        Some("disable") => Ok(GraphOptimizationLevel::Disable),
        Some(other) => Err(EncodeError::Unsupported(format!(
            "setting '{OPTIMIZATION}' is '{other}', not disable, basic, extended or all"
        ))),
    }
}

/// `threads` are all that a session has, the caller's among them, and they sleep when there is nothing to do: the cores
/// they would spin on are others' to use.
fn builder(library: &Library, optimization: GraphOptimizationLevel, threads: usize) -> ort::Result<SessionBuilder> {
    let builder = Session::builder(&library.environment)?.with_optimization_level(optimization)?;
    let builder = builder.with_intra_threads(threads)?.with_inter_threads(1)?;
    Ok(builder.with_intra_op_spinning(false)?.with_inter_op_spinning(false)?)
}

fn commit(mut builder: SessionBuilder, graph: &Graph) -> Result<Session, EncodeError> {
    let session = match &graph.source {
        GraphSource::File(path) => builder.commit_from_file(path),
        GraphSource::Memory(bytes) => builder.commit_from_memory(bytes),
    };
    session.map_err(|error| malformed(graph, one_line(&error)))
}

fn contract(graph: &Graph, pooling: Pooling, session: &Session) -> Result<Contract, EncodeError> {
    let inputs: Vec<Tensor> = session.inputs().iter().map(Tensor::new).collect();
    let outputs: Vec<Tensor> = session.outputs().iter().map(Tensor::new).collect();
    Contract::new(graph, pooling, &inputs, &outputs).map_err(|problem| malformed(graph, problem))
}

/// A graph is computed in the precision that it was exported in, and no other.
fn check_precision(contract: &Contract, options: &EncoderOptions) -> Result<(), EncodeError> {
    let (found, asked) = (contract.dtype().name(), options.dtype.name());
    if found == asked {
        return Ok(());
    }
    Err(EncodeError::Unsupported(format!(
        "the graph is {found}, not {asked}: ask for {found}, or export it in {asked}"
    )))
}

fn malformed(graph: &Graph, problem: impl Display) -> EncodeError {
    EncodeError::Model(format!("{}: {problem}", graph.name))
}

/// What ONNX Runtime says, in one line.
pub(crate) fn engine(error: &ort::Error) -> EncodeError {
    EncodeError::Engine(one_line(error))
}
