//! The encoder: a session, fed and read.

use std::fmt::Display;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use foveate_core::{PixelBatch, VectorBuf};
use foveate_encode::{
    AnyModel, EncodeError, EncodeTimes, Encoder, EncoderOptions, EncoderSpec, Graph, GraphFormat, GraphSource, Overlap,
    Pooling,
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
/// The setting that says how many copies of the graph share the threads.
const SESSIONS: &str = "sessions";
/// What all copies of a graph may take where nobody says how many there are to be.
const MAX_COPIES_BYTES: u64 = 1 << 30;

/// An ONNX graph on ONNX Runtime.
pub struct OrtEncoder {
    spec: EncoderSpec,
    /// Each computes the next images that none has taken.
    engines: Vec<Engine>,
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
    /// Loads the shared library if it is not there yet, makes sessions of `graph`, and runs one on a black image, which
    /// tells the width of its vectors and that it works at all.
    ///
    /// Images go in as the graph takes them: u8 as they are, f32 and f16 normalized with `graph.mean` and `graph.std`; as
    /// `[n, h, w, 3]` or `[n, 3, h, w]`; any number at a time or the one that the graph was made for. Vectors are its
    /// outputs `cls` and `patch_mean` if it has them, else pooled from the tokens `last_hidden_state` (or of whatever
    /// name, if no other output has three dimensions), else, for class vectors, its `pooler_output` or only output.
    ///
    /// On the CPU, `options.threads` threads are divided among sessions. A session with one thread computes one image
    /// at a time, whose bits are then the same in every batch and on any number of such sessions; that is also faster
    /// than threads that share an image. Every session holds the weights, so there are as many as stay below a
    /// gigabyte together, or what the setting `sessions` says. The other setting is `optimization`.
    ///
    /// # Errors
    /// [`EncodeError::Device`] when the library or the device is not there, [`EncodeError::Model`] for a graph that
    /// cannot be read or does not fit the above, [`EncodeError::Unsupported`] for another precision than the graph's
    /// and for settings that there are not.
    pub fn open(graph: &Graph, options: &EncoderOptions) -> Result<Self, EncodeError> {
        let optimization = optimization(options)?;
        let device = Device::parse(&options.device)?;
        let threads = options.threads.max(1);
        let sessions = if device == Device::Cpu { sessions(graph, options, threads)? } else { 1 };
        // A device that this build cannot have is no reason to ask for a library.
        device.providers()?;
        let library = load().map_err(|unavailable| unavailable.on(&options.device))?;
        let open = || session(library, graph, device, optimization, threads / sessions);
        let first = open()?;
        let contract = contract(graph, options.pooling, &first)?;
        check_precision(&contract, options)?;

        let mut engines = vec![Engine::new(first, &contract, graph)?];
        let (outputs, dim) = engines[0].measure(&contract.output, options.pooling, graph)?;
        for _ in 1..sessions {
            engines.push(Engine::new(open()?, &contract, graph)?);
        }
        let max_batch = options.max_batch.max(1);
        let alone = device == Device::Cpu && threads / sessions == 1;
        let step = contract.input.batch.unwrap_or(if alone { 1 } else { max_batch.div_ceil(sessions) });
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
                // In runs of several images, the library may order its sums by how many there are.
                batch_invariant: alone && step == 1,
            },
            engines,
            outputs,
            step,
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

    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        self.spec.check(batch)?;
        let Self { spec, engines, outputs, step } = self;
        let rows = out.reset(batch.len(), spec.dim);
        let parts = (0..batch.len()).step_by(*step);
        let parts = parts.filter_map(|first| batch.slice(first..batch.len().min(first + *step)));
        share(engines, outputs, spec.dim, parts.zip(rows.chunks_mut(*step * spec.dim)))
    }

    fn encode_resident(&mut self, _: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        Err(EncodeError::on_the_host())
    }

    fn overlap(&mut self) -> Option<&mut dyn Overlap> {
        None
    }
}

/// Lets every engine compute the next part until there is none.
fn share<'a, I>(
    engines: &mut [Engine],
    outputs: &[(Tensor, Take)],
    dim: usize,
    parts: I,
) -> Result<EncodeTimes, EncodeError>
where
    I: Iterator<Item = (PixelBatch<'a>, &'a mut [f32])> + Send,
{
    let parts = Mutex::new(parts);
    let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = |engine: &mut Engine| -> Result<EncodeTimes, EncodeError> {
        let mut times = EncodeTimes::default();
        while let Some((images, rows)) = next() {
            times += engine.fill(images, outputs, rows, dim)?;
        }
        Ok(times)
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

impl Engine {
    fn new(session: Session, contract: &Contract, graph: &Graph) -> Result<Self, EncodeError> {
        let wanted = contract.output.tensors().iter();
        let wanted = wanted.fold(OutputSelector::no_default(), |wanted, tensor| wanted.with(&tensor.name));
        let options = RunOptions::new().map_err(|error| engine(&error))?.with_outputs(wanted);
        Ok(Self { session, options, feed: Feed::new(&contract.input, graph.mean, graph.std) })
    }

    /// The wanted outputs, in the order of the contract, and when their input was ready.
    fn run(&mut self, images: PixelBatch<'_>) -> Result<(SessionOutputs<'_>, Instant), EncodeError> {
        let Self { session, options, feed } = self;
        let input = [feed.tensor(images)?];
        let fed = Instant::now();
        session.run_with_options(input, options).map(|outputs| (outputs, fed)).map_err(|error| engine(&error))
    }

    /// The vectors of `images`, `[n, dim]`. Between a graph's input and its outputs, copies to a device and back are part
    /// of the forward.
    fn fill(
        &mut self,
        images: PixelBatch<'_>,
        outputs: &[(Tensor, Take)],
        rows: &mut [f32],
        dim: usize,
    ) -> Result<EncodeTimes, EncodeError> {
        let started = Instant::now();
        let (results, fed) = self.run(images)?;
        let computed = Instant::now();
        outputs.iter().enumerate().try_for_each(|(i, (tensor, take))| take.fill(tensor, &results[i], rows, dim))?;
        Ok(EncodeTimes { copy_in: fed - started, forward: computed - fed, copy_out: computed.elapsed() })
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
        let (results, _) = self.run(image)?;
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
    match options.settings(&[OPTIMIZATION, SESSIONS])?.get(OPTIMIZATION).map(String::as_str) {
        None | Some("all") => Ok(GraphOptimizationLevel::All),
        Some("extended") => Ok(GraphOptimizationLevel::Level2),
        Some("basic") => Ok(GraphOptimizationLevel::Level1),
        Some("disable") => Ok(GraphOptimizationLevel::Disable),
        Some(other) => Err(EncodeError::Unsupported(format!(
            "setting '{OPTIMIZATION}' is '{other}', not disable, basic, extended or all"
        ))),
    }
}

/// How many sessions share `threads`: a divisor of them.
fn sessions(graph: &Graph, options: &EncoderOptions, threads: usize) -> Result<usize, EncodeError> {
    let divides = |&sessions: &usize| sessions > 0 && threads.is_multiple_of(sessions);
    match options.settings.get(SESSIONS) {
        Some(setting) => setting.parse().ok().filter(divides).ok_or_else(|| {
            let problem = format!("setting '{SESSIONS}' is '{setting}', which does not divide {threads} threads");
            EncodeError::Unsupported(problem)
        }),
        None => {
            let most = MAX_COPIES_BYTES / bytes(&graph.source).max(1);
            Ok((1..=threads).rev().filter(divides).find(|&sessions| sessions as u64 <= most).unwrap_or(1))
        }
    }
}

/// Bytes of a graph with its weights. A file that cannot be seen has none, and is not opened later either.
fn bytes(source: &GraphSource) -> u64 {
    match source {
        GraphSource::Memory(bytes) => bytes.len() as u64,
        GraphSource::File(path) => ["", ".data", "_data"].iter().map(|suffix| file_bytes(path, suffix)).sum(),
    }
}

fn file_bytes(path: &Path, suffix: &str) -> u64 {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

fn session(
    library: &Library,
    graph: &Graph,
    device: Device,
    optimization: GraphOptimizationLevel,
    threads: usize,
) -> Result<Session, EncodeError> {
    let builder = builder(library, optimization, threads).map_err(|error| engine(&error))?;
    let builder = builder.with_execution_providers(device.providers()?);
    let mut builder = builder.map_err(|error| refused(device, &one_line(&error)))?;
    let session = match &graph.source {
        GraphSource::File(path) => builder.commit_from_file(path),
        GraphSource::Memory(bytes) => builder.commit_from_memory(bytes),
    };
    session.map_err(|error| malformed(graph, one_line(&error)))
}

/// `threads` are all that a session has, the caller's among them, and they sleep when there is nothing to do: the cores
/// they would spin on are others' to use.
fn builder(library: &Library, optimization: GraphOptimizationLevel, threads: usize) -> ort::Result<SessionBuilder> {
    let builder = Session::builder(&library.environment)?.with_optimization_level(optimization)?;
    let builder = builder.with_intra_threads(threads)?.with_inter_threads(1)?;
    Ok(builder.with_intra_op_spinning(false)?.with_inter_op_spinning(false)?)
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
