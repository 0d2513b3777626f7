//! A shared library that is missing, wrong or too old: a one-line error, which is not cached. Every case runs in its
//! own process, because a process loads the library once.

// Tests may unwrap.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod support;

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use foveate_core::Backend;
use foveate_encode::{EncodeError, EncoderOptions};
use foveate_encode_ort::OrtEncoder;
use foveate_testkit::encoders::said;
use foveate_testkit::{Resource, ignore, trials};
use support::{need_onnx_runtime, registry, tiny};

const VARIABLE: &str = "ORT_DYLIB_PATH";
/// Makes a process of this program the child.
const CHILD: &str = "FOVEATE_TEST_CHILD";
/// Tells the child which file to replace by the real library after its first attempt.
const REPLACE: &str = "FOVEATE_TEST_REPLACE";
/// The real library.
const REAL: &str = "FOVEATE_TEST_REAL";
const REMEDY: &str = "run `cargo xtask setup --only ort`, or `pip install onnxruntime`";

fn main() -> ExitCode {
    if std::env::var_os(CHILD).is_some() {
        child();
        return ExitCode::SUCCESS;
    }
    foveate_testkit::run(trials![
        a_file_that_is_not_there,
        a_file_that_is_no_library,
        another_library,
        a_library_that_is_too_old,
        without_the_variable_it_is_looked_for_beside_the_program,
        cuda_that_cannot_be_had_is_an_error_in_one_line,
        tensorrt_that_cannot_be_had_is_an_error_in_one_line,
    ])
}

/// Prints the errors of opening an encoder, before and after the real library is put in place.
fn child() {
    println!("first: {}", attempt());
    if let (Some(file), Some(real)) = (std::env::var_os(REPLACE), std::env::var_os(REAL)) {
        let _ = std::fs::remove_file(&file);
        symlink(real, file).unwrap();
        println!("then: {}", attempt());
        assert_eq!(registry().get("ort").unwrap().health().problem, None);
    }
}

fn attempt() -> String {
    let health = registry().get("ort").unwrap().health();
    match OrtEncoder::open(&tiny("tiny"), &EncoderOptions::default()) {
        Ok(_) => format!("works with {} on {}", health.library.unwrap(), health.devices.join(" ")),
        Err(error @ EncodeError::Device { .. }) => {
            let problem = health.problem.unwrap();
            let text = said(&error);
            assert_eq!(text, format!("device cpu unavailable: {}; {}", problem.cause, problem.remedy));
            text
        }
        Err(other) => panic!("{other}"),
    }
}

/// Returns the lines that the child prints.
fn run(program: &Path, variable: Option<&Path>, replace: Option<&Path>) -> Vec<String> {
    let mut command = Command::new(program);
    command.env(CHILD, "1").env_remove(VARIABLE);
    if let Some(path) = variable {
        command.env(VARIABLE, path);
    }
    if let Some(path) = replace {
        command.env(REPLACE, path).env(REAL, std::env::var_os(VARIABLE).unwrap());
    }
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let lines = text.lines().filter_map(|line| line.split_once("first: ").or(line.split_once("then: ")));
    lines.map(|(_, message)| message.to_owned()).collect()
}

/// Skips the trial if the variable names no library to give to a child.
fn need_a_library_by_name() {
    need_onnx_runtime();
    if std::env::var_os(VARIABLE).is_none() {
        Resource::OnnxRuntime.missing(format!("{VARIABLE} is not set"));
    }
}

/// `file` at the variable's path is refused with `cause`; the real library in its place then works.
fn refused(put: impl FnOnce(&Path), cause: &str) {
    need_a_library_by_name();
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libonnxruntime.so");
    put(&library);
    let lines = run(&program(), Some(&library), Some(&library));
    let [first, then] = lines.as_slice() else { panic!("{lines:?}") };
    let expected = format!("device cpu unavailable: ONNX Runtime cannot be loaded: {}", library.display());
    assert!(first.starts_with(&expected) && first.contains(cause) && first.contains(REMEDY), "{first}");
    assert!(first.contains("(ORT_DYLIB_PATH names it)"), "{first}");
    assert!(then.starts_with("works with ONNX Runtime 1.") && then.ends_with("on cpu"), "{then}");
}

fn program() -> PathBuf {
    std::env::current_exe().unwrap()
}

fn a_file_that_is_not_there() {
    refused(|_| {}, "No such file or directory");
}

fn a_file_that_is_no_library() {
    refused(|path| std::fs::write(path, "not a library").unwrap(), "file too short");
}

/// Compiles `source` to a library with the C compiler that Rust links with.
fn compile(source: &str, library: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("library.c");
    std::fs::write(&file, source).unwrap();
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([library, &file]).status().unwrap();
    assert!(status.success());
}

fn another_library() {
    refused(|path| compile("int unrelated(void) { return 0; }", path), "is another library: it has no OrtGetApiBase");
}

fn a_library_that_is_too_old() {
    let source = r#"
        static const void *api(unsigned version) { return 0; }
        static const char *version(void) { return "1.10.0"; }
        static const struct { const void *(*api)(unsigned); const char *(*version)(void); } base = { api, version };
        const void *OrtGetApiBase(void) { return &base; }
    "#;
    let needed = format!("is version 1.10.0, and 1.{} or newer is needed", ort::MINOR_VERSION);
    refused(|path| compile(source, path), &needed);
}

fn without_the_variable_it_is_looked_for_beside_the_program() {
    need_a_library_by_name();
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    std::fs::copy(self::program(), &program).unwrap();
    let library = folder.path().join("libonnxruntime.so");
    let lines = run(&program, None, Some(&library));
    let [first, then] = lines.as_slice() else { panic!("{lines:?}") };
    if first.starts_with("works") {
        ignore("the system has a libonnxruntime.so");
    }
    let expected = "ONNX Runtime is not there: no libonnxruntime.so beside the program or where the system's loader \
                    looks, and ORT_DYLIB_PATH is not set";
    assert!(first.contains(expected) && first.contains(REMEDY), "{first}");
    assert!(then.starts_with("works"), "{then}");
}

fn cuda_that_cannot_be_had_is_an_error_in_one_line() {
    cannot_be_had("cuda:0");
}

fn tensorrt_that_cannot_be_had_is_an_error_in_one_line() {
    cannot_be_had("tensorrt:0");
}

/// The CPU package's library has no GPU, and a build without the feature has no provider.
fn cannot_be_had(device: &str) {
    let settings = [("tf32".to_owned(), "on".to_owned())].into();
    let options = EncoderOptions { device: device.to_owned(), settings, ..EncoderOptions::default() };
    match OrtEncoder::open(&tiny("tiny"), &options).map(|_| ()) {
        Ok(()) => ignore(format!("{device} works here")),
        Err(error @ EncodeError::Device { .. }) => {
            let text = said(&error);
            assert!(text.starts_with(&format!("device {device} unavailable: ")) && !text.contains('\n'), "{text}");
            let remedies = ["rebuild with `-F ort-", "onnxruntime-gpu", "ort-cuda", "driver", "tensorrt-cu13"];
            assert!(remedies.iter().any(|remedy| text.contains(remedy)), "{text}");
        }
        Err(other) => panic!("{other}"),
    }
}
