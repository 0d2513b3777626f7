//! The places where resources are searched.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::resource::{Missing, Resource};

/// The data set, beside the checkout.
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
/// Debian's folder for servers, which is not in every user's `PATH`.
const SERVERS: &str = "/usr/sbin";
/// Prints the arguments that are not modules. It does not import them, because that takes seconds for some.
const FIND_MODULES: &str = "import importlib.util as util, sys; \
                            print(*[name for name in sys.argv[1:] if not util.find_spec(name)], sep=', ')";

/// Returns the workspace's folder, which holds `tests/fixtures` and `examples/photos`. `FOVEATE_WORKSPACE` names it for
/// a test program that runs elsewhere than it was built.
pub fn workspace() -> PathBuf {
    std::env::var_os("FOVEATE_WORKSPACE")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), PathBuf::from)
}

/// Returns a file or folder of the shared data set. Ends the trial if it is missing.
#[track_caller]
pub fn data(path: &str) -> PathBuf {
    find_data(path).unwrap_or_else(|missing| missing.end())
}

/// Returns a file or folder of the shared data set, without ending a trial. It is for code that lists trials.
///
/// # Errors
/// [`Missing`], which can end a trial later.
pub fn find_data(path: &str) -> Result<PathBuf, Missing> {
    let found = Path::new(DATA).join(path);
    if found.exists() {
        return Ok(found);
    }
    Err(Missing::new(Resource::Data, format!("there is no ../shared/data/{path}")))
}

/// Returns a command for a program in `PATH` that is part of `resource`. Ends the trial if it is missing.
#[track_caller]
pub fn program(resource: Resource, name: &str) -> Command {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).chain([SERVERS.into()]).map(|folder| folder.join(name));
    match found.into_iter().find(|path| path.is_file()) {
        Some(path) => Command::new(path),
        None => resource.missing(format!("there is no {name} in PATH")),
    }
}

/// Returns a command for a Python with these modules. Ends the trial if Python or a module is missing.
#[track_caller]
pub fn python(modules: &[&'static str]) -> Command {
    static FOUND: Mutex<BTreeMap<Vec<&'static str>, Result<(), String>>> = Mutex::new(BTreeMap::new());
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let outcome = found.entry(modules.into()).or_insert_with(|| find_modules(modules)).clone();
    drop(found);
    match outcome {
        Ok(()) => Command::new(interpreter()),
        Err(why) => Resource::Python.missing(why),
    }
}

fn interpreter() -> OsString {
    std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into())
}

fn find_modules(modules: &[&str]) -> Result<(), String> {
    let interpreter = interpreter();
    let name = interpreter.display();
    let output = Command::new(&interpreter).args(["-c", FIND_MODULES]).args(modules).output();
    let output = output.map_err(|error| format!("{name} does not start ({error})"))?;
    let missing = String::from_utf8_lossy(&output.stdout);
    match (output.status.success(), missing.trim()) {
        (true, "") => Ok(()),
        (true, missing) => Err(format!("{name} has no {missing}")),
        (false, _) => Err(format!("{name} fails: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
