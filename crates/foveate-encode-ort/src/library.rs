//! The shared library: found, checked and loaded here, once for the process, and never by accident: any call into `ort`
//! before [`load`] has succeeded would look for it on its own and panic where there is none.

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

/// Names the library's file.
const VARIABLE: &str = "ORT_DYLIB_PATH";

const REMEDY: &str = "run `cargo xtask setup --only ort`, or `pip install onnxruntime` and set ORT_DYLIB_PATH to the \
                      file onnxruntime/capi/libonnxruntime.so.* of that package";

/// The loaded library. There is one in a process, and it stays.
pub(crate) struct Library {
    /// What every session belongs to. `ort` itself holds it only weakly.
    pub(crate) environment: Environment,
    /// What was loaded: a path, or a name that the system's loader found.
    pub(crate) path: PathBuf,
    /// `1.31.1`.
    pub(crate) version: String,
}

/// Why there is no library to use, in one line.
#[derive(Clone, Debug)]
pub(crate) struct Unavailable(String);

impl Unavailable {
    pub(crate) fn problem(self) -> Problem {
        Problem { cause: self.0, remedy: REMEDY.to_owned() }
    }

    /// The same for somebody who asked to run on `device`.
    pub(crate) fn on(self, device: &str) -> EncodeError {
        EncodeError::Device { device: device.to_owned(), reason: self.to_string().into() }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {REMEDY}", self.0)
    }
}

static LIBRARY: OnceLock<Library> = OnceLock::new();
static LOADING: Mutex<()> = Mutex::new(());

/// The library, loaded at the first call that finds it; a failure is not remembered. It is the file that
/// `ORT_DYLIB_PATH` names; where that is not set, the first of `libonnxruntime.so` and `libonnxruntime.so.1` (or what
/// the platform calls them) that is next to the program or where the system's loader looks.
pub(crate) fn load() -> Result<&'static Library, Unavailable> {
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

/// What keeps one file from being used.
enum Cause {
    /// The system's loader does not load it; its words.
    NotLoaded(String),
    /// It is something else, or of another time.
    Unfit(String),
}

impl Cause {
    fn of_variable(self) -> Unavailable {
        let (Self::NotLoaded(cause) | Self::Unfit(cause)) = self;
        Unavailable(format!("ONNX Runtime cannot be loaded: {cause} ({VARIABLE} names it)"))
    }
}

fn search() -> Result<Library, Unavailable> {
    let names = names();
    let found = names.iter().map(|name| open(Path::new(name)));
    let mut unfit = None;
    for result in found {
        match result {
            Ok(library) => return Ok(library),
            Err(Cause::Unfit(cause)) => unfit = unfit.or(Some(cause)),
            Err(Cause::NotLoaded(_)) => {}
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

/// As build scripts, and as distributions name it.
fn names() -> [String; 2] {
    use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
    let plain = format!("{DLL_PREFIX}onnxruntime{DLL_SUFFIX}");
    let versioned = format!("{plain}.1");
    [plain, versioned]
}

/// Loads `path`; one that is not absolute is looked for beside the program first.
fn open(path: &Path) -> Result<Library, Cause> {
    let builder = ort::init_from(path).map_err(cause)?;
    let environment = builder.with_name("foveate").with_telemetry(false).build();
    let environment = environment.map_err(|error| Cause::Unfit(format!("it does not start: {}", one_line(&error))))?;
    Ok(Library { environment, path: path.to_owned(), version: version(path) })
}

fn cause(error: LoadDynamicError) -> Cause {
    match error {
        LoadDynamicError::Dlopen { error, path } => {
            let words = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            // The loader's own words begin with the path, but for some of its errors.
            let path = path.display().to_string();
            let words = if words.contains(&path) { words } else { format!("{path}: {words}") };
            Cause::NotLoaded(one_line(&words))
        }
        LoadDynamicError::MissingApi { path } => {
            Cause::Unfit(format!("{} is another library: it has no OrtGetApiBase", path.display()))
        }
        LoadDynamicError::BadVersion { version_str, path } => Cause::Unfit(format!(
            "{} is version {version_str}, and 1.{} or newer is needed",
            path.display(),
            ort::MINOR_VERSION
        )),
        other => Cause::Unfit(one_line(&other)),
    }
}

/// What the library says of its build, or its file's name: `ort` does not pass the version on.
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
