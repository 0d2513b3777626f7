//! The placement, number and settings of a graph's sessions.

use std::collections::BTreeMap;
#[cfg(feature = "cuda")]
use std::path::Path;

use foveate_encode::{DType, EncodeError, EncoderOptions, Graph, GraphSource};
use ort::ep::ExecutionProviderDispatch;
use ort::session::Session;
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};

use crate::error::{engine, malformed, one_line};
use crate::files;
use crate::library::{OrtLibrary, load};
use crate::provider::{OrtDevice, Wishes, refused};

type Settings = BTreeMap<String, String>;

/// The setting for how far ONNX Runtime may rewrite the graph.
const OPTIMIZATION: &str = "optimization";
/// The setting for the number of sessions, each with a copy of the graph, that share the threads.
const SESSIONS: &str = "sessions";
/// The setting that allows a GPU to round the factors of f32 products to 10 bits.
const TF32: &str = "tf32";
/// The limit on the size of all copies of a graph, if the number of sessions is not set.
const MAX_COPIES_BYTES: u64 = 1 << 30;

/// Settings for the sessions of one graph.
pub(crate) struct SessionPlan<'a> {
    library: &'static OrtLibrary,
    pub(crate) graph: &'a Graph,
    pub(crate) device: OrtDevice,
    optimization: GraphOptimizationLevel,
    /// The number of sessions.
    pub(crate) sessions: usize,
    /// Threads per session.
    pub(crate) threads: usize,
    wishes: Wishes,
    /// The profile of the session on a GPU, which shows the placement of its nodes.
    #[cfg(feature = "cuda")]
    profile: Option<tempfile::TempDir>,
}

impl<'a> SessionPlan<'a> {
    pub(crate) fn new(graph: &'a Graph, options: &EncoderOptions) -> Result<Self, EncodeError> {
        let device = OrtDevice::parse(&options.device)?;
        let settings = options.settings(match device {
            OrtDevice::Cpu => &[OPTIMIZATION, SESSIONS],
            OrtDevice::Cuda(_) => &[OPTIMIZATION, TF32],
            OrtDevice::TensorRt(_) => &["engine_cache", OPTIMIZATION, TF32],
        })?;
        let optimization = optimization(settings)?;
        let tf32 = tf32(settings)?;
        let threads = options.threads.max(1);
        let sessions = if device == OrtDevice::Cpu { sessions(graph, options, threads)? } else { 1 };
        let wishes = Wishes::new(tf32);
        // A device that this build does not support must not require a library.
        device.providers(&wishes)?;
        check_tf32(device, options.dtype, tf32)?;
        let library = load().map_err(|unavailable| unavailable.on(&options.device))?;
        let threads = threads / sessions;
        let plan = Self {
            library,
            graph,
            device,
            optimization,
            sessions,
            threads,
            wishes,
            #[cfg(feature = "cuda")]
            profile: None,
        };
        plan.on_device(options)
    }

    #[cfg(not(feature = "cuda"))]
    fn on_device(self, _: &EncoderOptions) -> Result<Self, EncodeError> {
        Ok(self)
    }

    /// The plan with the additions for a GPU.
    #[cfg(feature = "cuda")]
    fn on_device(mut self, options: &EncoderOptions) -> Result<Self, EncodeError> {
        if self.device == OrtDevice::Cpu {
            return Ok(self);
        }
        // Checked before any file is read or written.
        crate::probe::probe(self.library, self.device)?;
        let folder = tempfile::tempdir();
        let folder = folder.map_err(|error| EncodeError::Engine(format!("no folder for a profile: {error}").into()))?;
        self.profile = Some(folder);
        #[cfg(feature = "tensorrt")]
        if let OrtDevice::TensorRt(_) = self.device {
            // A session on the CPU, only to learn the input's name and shape.
            let outline = builder(self.library, GraphOptimizationLevel::Disable, self.threads);
            let outline = self.commit(outline.map_err(|error| engine(&error))?)?;
            let cache = options.settings.get(crate::engines::ENGINE_CACHE).map(String::as_str);
            let max_batch = options.max_batch.max(1);
            let source = &self.graph.source;
            let tf32 = self.wishes.tf32;
            let engines = crate::engines::EngineCaches::new(&outline, source, options.dtype, tf32, max_batch, cache)?;
            self.wishes.engines = Some(engines);
        }
        #[cfg(not(feature = "tensorrt"))]
        let _ = options;
        Ok(self)
    }

    pub(crate) fn session(&self) -> Result<Session, EncodeError> {
        let builder = self.builder(&self.device.providers(&self.wishes)?)?;
        #[cfg(feature = "cuda")]
        let builder = match &self.profile {
            Some(folder) => {
                let profiled = builder.with_profiling(folder.path().join("run"));
                profiled.map_err(|error| engine(&ort::Error::from(error)))?
            }
            None => builder,
        };
        self.commit(builder)
    }

    fn builder(&self, providers: &[ExecutionProviderDispatch]) -> Result<SessionBuilder, EncodeError> {
        let builder = builder(self.library, self.optimization, self.threads).map_err(|error| engine(&error))?;
        let builder = builder.with_execution_providers(providers);
        builder.map_err(|error| refused(self.device, &one_line(&error)))
    }

    fn commit(&self, mut builder: SessionBuilder) -> Result<Session, EncodeError> {
        let session = match &self.graph.source {
            GraphSource::File(path) => builder.commit_from_file(path),
            GraphSource::Memory(bytes) => builder.commit_from_memory(bytes),
        };
        session.map_err(|error| match one_line(&error) {
            words if self.device != OrtDevice::Cpu && is_of_device(&words) => refused(self.device, &words),
            words => malformed(self.graph, words),
        })
    }

    #[cfg(not(feature = "cuda"))]
    pub(crate) fn check_placement(&self, _: &mut Session) -> Result<(), EncodeError> {
        Ok(())
    }

    /// Refuses a session on a GPU whose first run was computed elsewhere. On the CPU there is nothing to check.
    #[cfg(feature = "cuda")]
    pub(crate) fn check_placement(&self, session: &mut Session) -> Result<(), EncodeError> {
        if self.profile.is_none() {
            return Ok(());
        }
        let path = session.end_profiling().map_err(|error| engine(&error))?;
        crate::placement::check(Path::new(&path)).map_err(|problem| EncodeError::Device {
            device: self.device.to_string(),
            reason: format!("{} cannot be computed there: {problem}; use cpu, or another export", self.graph.name)
                .into(),
        })
    }
}

fn optimization(settings: &Settings) -> Result<GraphOptimizationLevel, EncodeError> {
    match settings.get(OPTIMIZATION).map(String::as_str) {
        None | Some("all") => Ok(GraphOptimizationLevel::All),
        Some("extended") => Ok(GraphOptimizationLevel::Level2),
        Some("basic") => Ok(GraphOptimizationLevel::Level1),
        Some("disable") => Ok(GraphOptimizationLevel::Disable),
        Some(other) => Err(EncodeError::Unsupported(format!(
            "setting '{OPTIMIZATION}' is '{other}', not disable, basic, extended or all"
        ))),
    }
}

fn tf32(settings: &Settings) -> Result<bool, EncodeError> {
    match settings.get(TF32).map(String::as_str) {
        None | Some("off") => Ok(false),
        Some("on") => Ok(true),
        Some(other) => Err(EncodeError::Unsupported(format!("setting '{TF32}' is '{other}', not on or off"))),
    }
}

/// Refuses f32 on TensorRT with TF32: it uses TF32 unless NVIDIA's variable forbids it, and ONNX Runtime has no option.
fn check_tf32(device: OrtDevice, dtype: DType, tf32: bool) -> Result<(), EncodeError> {
    const VARIABLE: &str = "NVIDIA_TF32_OVERRIDE";
    let is_forbidden = std::env::var_os(VARIABLE).is_some_and(|value| value == "0");
    match device {
        OrtDevice::TensorRt(_) if dtype == DType::F32 && !tf32 && !is_forbidden => Err(EncodeError::Unsupported(
            format!("f32 without TF32 on {device}, unless {VARIABLE}=0 is in the environment; or say {TF32}=on"),
        )),
        _ => Ok(()),
    }
}

/// Returns the number of sessions that share `threads`: a divisor of them.
fn sessions(graph: &Graph, options: &EncoderOptions, threads: usize) -> Result<usize, EncodeError> {
    match options.settings.get(SESSIONS) {
        Some(setting) => match setting.parse() {
            Ok(sessions) if sessions > 0 && threads.is_multiple_of(sessions) => Ok(sessions),
            _ => {
                let problem = format!("setting '{SESSIONS}' is '{setting}', which does not divide {threads} threads");
                Err(EncodeError::Unsupported(problem))
            }
        },
        None => {
            let most = MAX_COPIES_BYTES / files::bytes(&graph.source).max(1);
            let mut divisors = (1..=threads).rev().filter(|&sessions| threads.is_multiple_of(sessions));
            Ok(divisors.find(|&sessions| sessions as u64 <= most).unwrap_or(1))
        }
    }
}

/// Returns true if the error of opening a session concerns its device rather than its graph.
fn is_of_device(words: &str) -> bool {
    ["CUDA failure", "CUDNN failure", "CUBLAS failure", "CUDA error", "Failed to load library"]
        .iter()
        .any(|sign| words.contains(sign))
}

/// Creates a session builder. `threads` counts all threads of a session, including the caller's. They sleep when idle,
/// because spinning would take cores from other work.
fn builder(library: &OrtLibrary, optimization: GraphOptimizationLevel, threads: usize) -> ort::Result<SessionBuilder> {
    let builder = Session::builder(&library.environment)?.with_optimization_level(optimization)?;
    let builder = builder.with_intra_threads(threads)?.with_inter_threads(1)?;
    Ok(builder.with_intra_op_spinning(false)?.with_inter_op_spinning(false)?)
}
