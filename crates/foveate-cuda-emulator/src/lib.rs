#![doc = include_str!("../README.md")]
#![cfg(unix)]
// The libraries that this crate builds are loaded by dlopen, and called through C.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use foveate_testkit::{Resource, program};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");
/// The folder of the kernels that the emulator runs, beside this crate.
const KERNELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../foveate-encode-fused/kernels");
/// `native`: the products use this machine's widest vectors, and the folder's name distinguishes machines. `hidden`:
/// every program sees these libraries' names, so they export only CUDA's.
const FLAGS: [&str; 7] = ["-std=c++20", "-O3", "-march=native", "-shared", "-fPIC", "-pthread", "-fvisibility=hidden"];
const DRIVER: &str = "libcuda.so.1";
const BLAS: &str = "libcublasLt.so.12";
/// Built only if libjpeg's headers are installed.
const JPEG: &str = "libnvjpeg.so.12";
/// The second folder of kernels.
const RESIZE_KERNELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../foveate-decode-nvjpeg/kernels");
/// Names that programs try before those above, as empty libraries that link to the emulator's. Without them, the
/// program would load a real library of such a name.
const ALIASES: [(&str, &str); 2] = [("libcuda.so", DRIVER), ("libcublasLt.so.13", BLAS)];

/// Returns the folder with the emulator's shared libraries under their real names, for a child's `LD_LIBRARY_PATH`.
///
/// The system's C++ compiler builds them on first use, once per state of the sources and kernels, under cargo's target
/// folder. Concurrent builds do not disturb each other.
///
/// # Errors
///
/// The reason why they cannot be built: no compiler, or the compiler's message.
pub fn folder() -> Result<PathBuf, String> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOLDER.get_or_init(build_once).clone()
}

/// Loads the emulator into this process. Later requests for `libcuda.so.1` or `libcublasLt` get it, for the process's
/// whole life.
///
/// Only a call to this function, or [`folder`] in a library path, ever loads the emulator into a program. It hides an
/// installed real driver from this process.
///
/// # Errors
///
/// The errors of [`folder`], and the loader's message.
pub fn load() -> Result<(), String> {
    static LOADED: OnceLock<Result<Library, String>> = OnceLock::new();
    LOADED.get_or_init(open_all).as_ref().map(|_| ()).map_err(Clone::clone)
}

/// Returns the `orders` that a test runs in: the first two, or with `FOVEATE_TESTS=full` all of them.
pub fn tested<'a>(orders: &'a [&'a str]) -> &'a [&'a str] {
    foveate_testkit::by_length(&orders[..orders.len().min(2)], orders)
}

/// Loads the emulator and sets the order in which this process's streams run from now on, with the values of
/// `CUDA_EMULATOR_ORDER` (`late`, `eager`, `random:SEED`).
///
/// # Errors
///
/// The errors of [`load`], and an unknown order.
pub fn set_order(order: &str) -> Result<(), String> {
    load()?;
    let name = CString::new(order).map_err(|error| error.to_string())?;
    // SAFETY: it has this signature, and takes a text that ends with a zero.
    let set: extern "C" fn(*const c_char) -> c_int = unsafe { own(DRIVER, "cuda_emulator_set_order") }?;
    if set(name.as_ptr()) == 0 { Ok(()) } else { Err(format!("the emulator has no order {order:?}")) }
}

/// Loads the emulator with nvJPEG.
///
/// # Errors
///
/// The errors of [`load`], and missing headers of libjpeg.
pub fn load_nvjpeg() -> Result<(), String> {
    load()?;
    if folder()?.join(JPEG).is_file() {
        return Ok(());
    }
    Err("the emulated nvJPEG needs libjpeg's headers (Debian: libjpeg-dev)".to_owned())
}

/// Makes later requests for the chip's JPEG engines, and preparations of their batches, fail with one of nvJPEG's
/// statuses; 0 ends that.
///
/// # Errors
///
/// The errors of [`load_nvjpeg`].
pub fn refuse_engines(status: c_int) -> Result<(), String> {
    load_nvjpeg()?;
    // SAFETY: it has this signature.
    let refuse: extern "C" fn(c_int) = unsafe { own(JPEG, "nvjpeg_emulator_refuse_engines") }?;
    refuse(status);
    Ok(())
}

/// Returns how often nvJPEG was prepared for a batch.
///
/// # Errors
///
/// The errors of [`load_nvjpeg`].
pub fn prepared_batches() -> Result<u64, String> {
    load_nvjpeg()?;
    // SAFETY: it has this signature.
    let count: extern "C" fn() -> u64 = unsafe { own(JPEG, "nvjpeg_emulator_prepared_batches") }?;
    Ok(count())
}

/// Makes the next kernel that runs fail with this `CUresult`, as 700 for an illegal address or 719: from then on, no
/// work of its device runs, and every call of the context returns the error, until the process ends.
///
/// # Errors
///
/// The errors of [`load`].
pub fn fail_next_kernel(status: c_int) -> Result<(), String> {
    load()?;
    // SAFETY: it has this signature.
    let fail: extern "C" fn(c_int) = unsafe { own(DRIVER, "cuda_emulator_fail_next_kernel") }?;
    fail(status);
    Ok(())
}

/// Returns a function of the emulator's own.
///
/// # Safety
///
/// `F` is the function's type, and the library is loaded.
unsafe fn own<F: Copy>(library: &str, name: &str) -> Result<F, String> {
    let path = folder()?.join(library);
    // SAFETY: the library is loaded already, so nothing is initialized here, and it stays loaded. The caller knows the
    // type.
    let found = unsafe { Library::open(Some(&path), RTLD_NOW).and_then(|library| library.get::<F>(name).map(|f| *f)) };
    found.map_err(|error| error.to_string())
}

/// Counts of events in this process that no result shows.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Captures that a call of another thread has spoilt.
    pub spoilt_captures: u64,
    /// Waits for a whole context, during which no thread's work overlaps.
    pub context_waits: u64,
    /// Waits for a context, a stream or an event in which a driver keeps the calling thread's core busy.
    pub spinning_waits: u64,
    /// Blocks of launched kernels, those of captures included, those of graphs' launches not.
    pub blocks: u64,
    /// Graphs' first launches that had to upload them.
    pub cold_launches: u64,
    /// Allocations of pinned memory.
    pub pinnings: u64,
}

/// Returns the counts so far.
///
/// # Errors
///
/// The errors of [`load`].
pub fn counts() -> Result<Counts, String> {
    load()?;
    let mut counts = Counts::default();
    // SAFETY: it has this signature, and fills a structure of this layout.
    let fill: extern "C" fn(&mut Counts) = unsafe { own(DRIVER, "cuda_emulator_counts") }?;
    fill(&mut counts);
    Ok(counts)
}

/// Returns true if trials run on the emulator: unless `FOVEATE_CUDA_TESTS=device` selects a real device.
pub fn is_chosen() -> bool {
    std::env::var_os("FOVEATE_CUDA_TESTS").is_none_or(|place| place != "device")
}

/// Returns the result of one of this crate's functions, for a trial. The trial is ignored without a C++ compiler, and
/// fails if there is one and the emulator cannot be built.
pub fn for_trial<T>(function: impl FnOnce() -> Result<T, String>) -> T {
    drop(program(Resource::Compiler, "c++"));
    function().unwrap_or_else(|reason| panic!("{reason}"))
}

/// Like [`for_trial`] with [`load`], for trials of nvJPEG, which are also ignored without libjpeg's headers.
pub fn load_nvjpeg_for_trial() {
    for_trial(load);
    if let Err(reason) = load_nvjpeg() {
        Resource::Libjpeg.missing(reason);
    }
}

/// Opens a library with global symbols.
fn open(path: &Path) -> Result<Library, String> {
    // SAFETY: these libraries are built from this crate's own sources, and their initializers read the environment and
    // allocate.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.map_err(|error| error.to_string())
}

/// Opens every library with global symbols, and returns the driver's.
fn open_all() -> Result<Library, String> {
    let folder = folder()?;
    let driver = open(&folder.join(DRIVER))?;
    // Never closed, because streams and memory live in them.
    let jpeg = folder.join(JPEG).is_file().then_some(JPEG);
    for name in std::iter::once(BLAS).chain(jpeg).chain(ALIASES.map(|(alias, _)| alias)) {
        std::mem::forget(open(&folder.join(name))?);
    }
    Ok(driver)
}

fn build_once() -> Result<PathBuf, String> {
    let folder = target_folder().join("cuda-emulator").join(format!("{:016x}", fingerprint()?));
    if folder.is_dir() {
        return Ok(folder);
    }
    let staging = folder.with_extension(format!("building-{}", std::process::id()));
    fs::create_dir_all(&staging).map_err(|error| format!("{}: {error}", staging.display()))?;
    let built = build(&staging);
    // The first of several builders wins; its files are the same as ours.
    let renamed = built.and_then(|()| match fs::rename(&staging, &folder) {
        Err(error) if !folder.is_dir() => Err(format!("{}: {error}", folder.display())),
        _ => Ok(folder),
    });
    // The remains of a build that failed, or lost.
    let _ = fs::remove_dir_all(&staging);
    renamed
}

fn build(out: &Path) -> Result<(), String> {
    std::thread::scope(|scope| {
        let driver = scope.spawn(|| {
            let mut sources = files_of(&Path::new(CRATE).join("src/driver"), &["cc"])?;
            sources.extend([Path::new(CRATE).join("src/shim/grid.cc"), compile_kernels(out)?]);
            link(out, DRIVER, &sources)
        });
        let blas = link(out, BLAS, &files_of(&Path::new(CRATE).join("src/cublaslt"), &["cc"])?);
        driver.join().map_err(|_| "the driver's build panicked".to_owned())?.and(blas)
    })?;
    if has_libjpeg() {
        link(out, JPEG, &files_of(&Path::new(CRATE).join("src/nvjpeg"), &["cc"])?)?;
    }
    ALIASES.iter().try_for_each(|(alias, target)| link_alias(out, alias, target))
}

/// Compiles the kernels apart from the rest, with a check of every access's alignment. The linker is not told of the
/// check, because it would ask for the compiler's library: `src/shim/grid.cc` handles what is found.
fn compile_kernels(out: &Path) -> Result<PathBuf, String> {
    let object = out.join("kernels.o");
    let mut compiler = Command::new("c++");
    compiler.args(FLAGS).args(["-c", "-fsanitize=alignment", "-fno-sanitize-recover=alignment"]);
    compiler.args(includes()).arg(Path::new(CRATE).join("src/shim/kernels.cc")).arg("-o").arg(&object);
    run(compiler).map(|()| object)
}

fn includes() -> [PathBuf; 4] {
    ["-I".into(), Path::new(CRATE).join("src"), "-I".into(), KERNELS.into()]
}

fn link(out: &Path, name: &str, sources: &[PathBuf]) -> Result<(), String> {
    let mut compiler = compiler(out, name);
    compiler.args(includes()).args(sources).arg("-ldl");
    if name == JPEG {
        compiler.arg("-ljpeg");
    }
    run(compiler)
}

/// Returns true if a program can be built on libjpeg.
fn has_libjpeg() -> bool {
    let mut compiler = Command::new("c++");
    let probe =
        compiler.args(["-include", "cstdio", "-include", "jpeglib.h", "-x", "c++", "-fsyntax-only", "/dev/null"]);
    probe.output().is_ok_and(|output| output.status.success())
}

fn link_alias(out: &Path, alias: &str, target: &str) -> Result<(), String> {
    let mut compiler = compiler(out, alias);
    compiler.args(["-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN"]).arg(out.join(target));
    run(compiler)
}

fn compiler(out: &Path, name: &str) -> Command {
    let mut compiler = Command::new("c++");
    compiler.args(FLAGS).arg(format!("-Wl,-soname,{name}")).arg("-o").arg(out.join(name));
    compiler
}

fn run(mut compiler: Command) -> Result<(), String> {
    let output = compiler
        .output()
        .map_err(|error| format!("the CUDA emulator needs a C++20 compiler named c++, and there is none: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("the CUDA emulator does not compile:\n{}", String::from_utf8_lossy(&output.stderr)))
}

/// A hash of everything that affects the libraries: sources, kernels, flags, and this machine's processor.
fn fingerprint() -> Result<u64, String> {
    let mut hasher = DefaultHasher::new();
    FLAGS.hash(&mut hasher);
    has_libjpeg().hash(&mut hasher);
    for folder in
        ["src", "src/driver", "src/cublaslt", "src/nvjpeg", "src/shim"].map(|folder| Path::new(CRATE).join(folder))
    {
        hash_files(&folder, &mut hasher)?;
    }
    hash_files(Path::new(KERNELS), &mut hasher)?;
    hash_files(Path::new(RESIZE_KERNELS), &mut hasher)?;
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    processor.lines().find(|line| line.starts_with("flags") || line.starts_with("Features")).hash(&mut hasher);
    Ok(hasher.finish())
}

fn hash_files(folder: &Path, hasher: &mut DefaultHasher) -> Result<(), String> {
    for file in files_of(folder, &["cc", "h", "cu", "cuh"])? {
        file.hash(hasher);
        fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?.hash(hasher);
    }
    Ok(())
}

/// The files with one of these endings, sorted.
fn files_of(folder: &Path, endings: &[&str]) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut files = Vec::new();
    for entry in entries.map_err(|error| format!("{}: {error}", folder.display()))? {
        let path = entry.path();
        if path.extension().and_then(|ending| ending.to_str()).is_some_and(|ending| endings.contains(&ending)) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Cargo's target folder: it contains a tag file and this process's program, unless that is one of rustdoc's.
fn target_folder() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let tagged = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file());
    tagged
        .map(Path::to_path_buf)
        .or_else(|| std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from))
        .unwrap_or_else(|| Path::new(CRATE).join("../../target"))
}
