//! The shared library: found, checked and loaded here, once per process, and never by accident. Any call into `ort`
//! before [`load`] has succeeded would search for it and panic if it is missing.

use std::error::Error as _;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use foveate_core::Problem;
use foveate_encode::EncodeError;
use ort::LoadDynamicError;
use ort::environment::Environment;

use crate::error::one_line;

/// The variable with the library's path.
const VARIABLE: &str = "ORT_DYLIB_PATH";

const REMEDY: &str = "run `cargo xtask setup --only ort`, or `pip install onnxruntime` and set ORT_DYLIB_PATH to the \
                      file onnxruntime/capi/libonnxruntime.so.* of that package";

/// The loaded library. There is one per process, and it stays loaded.
pub(crate) struct OrtLibrary {
    /// The owner of every session. `ort` itself holds it only weakly.
    pub(crate) environment: Environment,
    /// The loaded file: a path, or a name that the system's loader found.
    pub(crate) path: PathBuf,
    /// `1.31.1`.
    pub(crate) version: String,
}

/// Reason that there is no usable library, in one line.
#[derive(Clone, Debug)]
pub(crate) struct Unavailable(String);

impl Unavailable {
    pub(crate) fn problem(self) -> Problem {
        Problem { cause: self.0, remedy: REMEDY.to_owned() }
    }

    /// Returns the error for a request to run on `device`.
    pub(crate) fn on(self, device: &str) -> EncodeError {
        EncodeError::Device { device: device.to_owned(), reason: self.to_string().into() }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {REMEDY}", self.0)
    }
}

static LIBRARY: OnceLock<OrtLibrary> = OnceLock::new();
static LOADING: Mutex<()> = Mutex::new(());

/// Returns the library, loaded at the first call that finds it; a failure is not cached. It is the file that
/// `ORT_DYLIB_PATH` names. Otherwise it is the first of `libonnxruntime.so` and `libonnxruntime.so.1` (or the
/// platform's names) in the program's folder or on the system loader's path.
pub(crate) fn load() -> Result<&'static OrtLibrary, Unavailable> {
    let _one_at_a_time = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = LIBRARY.get() {
        return Ok(library);
    }
    let library = match std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => open(Path::new(&path)).map_err(|cause| cause.of_variable())?,
        None => search()?,
    };
    Ok(LIBRARY.get_or_init(|| library))
}

/// Reason that a file cannot be used.
enum LibraryFault {
    /// The system's loader refuses it, with this message.
    NotLoaded(String),
    /// It is another library, or another version.
    Unfit(String),
}

impl LibraryFault {
    fn of_variable(self) -> Unavailable {
        let (Self::NotLoaded(cause) | Self::Unfit(cause)) = self;
        Unavailable(format!("ONNX Runtime cannot be loaded: {cause} ({VARIABLE} names it)"))
    }
}

fn search() -> Result<OrtLibrary, Unavailable> {
    let names = names();
    let found = names.iter().map(|name| open(Path::new(name)));
    let mut unfit = None;
    for result in found {
        match result {
            Ok(library) => return Ok(library),
            Err(LibraryFault::Unfit(cause)) => unfit = unfit.or(Some(cause)),
            Err(LibraryFault::NotLoaded(_)) => {}
        }
    }
    Err(Unavailable(match unfit {
        Some(cause) => format!("ONNX Runtime cannot be loaded: {cause}"),
        None => format!(
            "ONNX Runtime is not there: no {} beside the program or where the system's loader looks, and {VARIABLE} is \
             not set",
            names[0]
        ),
    }))
}

/// The file names of build scripts and of distributions.
fn names() -> [String; 2] {
    use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
    let plain = format!("{DLL_PREFIX}onnxruntime{DLL_SUFFIX}");
    let versioned = format!("{plain}.1");
    [plain, versioned]
}

/// Loads `path`; a relative one is searched in the program's folder first.
fn open(path: &Path) -> Result<OrtLibrary, LibraryFault> {
    let builder = ort::init_from(path).map_err(cause)?;
    let environment = builder.with_name("foveate").with_telemetry(false).build();
    let environment =
        environment.map_err(|error| LibraryFault::Unfit(format!("it does not start: {}", one_line(&error))))?;
    Ok(OrtLibrary { environment, path: path.to_owned(), version: version(path) })
}

fn cause(error: LoadDynamicError) -> LibraryFault {
    match error {
        LoadDynamicError::Dlopen { error, path } => {
            let words = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            // Most of the loader's messages begin with the path, but not all.
            let path = path.display().to_string();
            let words = if words.contains(&path) { words } else { format!("{path}: {words}") };
            LibraryFault::NotLoaded(one_line(&words))
        }
        LoadDynamicError::MissingApi { path } => {
            LibraryFault::Unfit(format!("{} is another library: it has no OrtGetApiBase", path.display()))
        }
        LoadDynamicError::BadVersion { version_str, path } => LibraryFault::Unfit(format!(
            "{} is version {version_str}, and 1.{} or newer is needed",
            path.display(),
            ort::MINOR_VERSION
        )),
        other => LibraryFault::Unfit(one_line(&other)),
    }
}

/// Returns the library's version from its build information or its file name, because `ort` does not pass it on.
fn version(path: &Path) -> String {
    let of_build = ort::info().split_once("git-branch=rel-").map(|(_, rest)| rest);
    let of_name = path.file_name().and_then(OsStr::to_str).and_then(|name| name.split_once(".so."));
    let version = of_build.or(of_name.map(|(_, version)| version)).unwrap_or_default();
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
    match version[..end].trim_end_matches('.') {
        "" => format!("1.{} or newer", ort::MINOR_VERSION),
        version => version.to_owned(),
    }
}
