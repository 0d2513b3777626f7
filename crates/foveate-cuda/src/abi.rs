//! Compares the declarations with NVIDIA's headers, and the numbers that they are called with with NVIDIA's libraries.
//!
//! The declarations are written out as a C++ program of assertions. `cargo xtask ci --only cuda-abi` gets the headers
//! and libraries of the oldest release that is supported and of a newest one, and runs these tests.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::io::Write as _;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::driver::Handle;
use crate::{blaslt, device, driver, graph, module, nvjpeg, pinned};

/// A type's spelling in C.
pub(crate) trait InC {
    fn in_c() -> String;
}

macro_rules! in_c {
    ($($type:ty: $spelling:literal,)*) => {
        $(impl InC for $type {
            fn in_c() -> String {
                $spelling.to_owned()
            }
        })*
    };
}

in_c! {
    c_char: "char",
    u8: "unsigned char",
    c_int: "int",
    c_uint: "unsigned",
    i64: "long long",
    // `size_t` and `unsigned long long` are one type here, and to the assertions.
    u64: "unsigned long long",
    usize: "unsigned long long",
    f32: "float",
    c_void: "void",
    Handle: "void*",
    nvjpeg::NvjpegImage: "nvjpegImage_t",
    blaslt::FoundAlgorithm: "cublasLtMatmulHeuristicResult_t",
}

impl<T: InC> InC for *mut T {
    fn in_c() -> String {
        format!("{}*", T::in_c())
    }
}

impl<T: InC> InC for *const T {
    fn in_c() -> String {
        format!("{} const*", T::in_c())
    }
}

// SAFETY: a type.
impl<A: InC, B: InC, C: InC, R: InC> InC for unsafe extern "C" fn(A, B, C) -> R {
    fn in_c() -> String {
        function(&[A::in_c(), B::in_c(), C::in_c()], &R::in_c())
    }
}

/// The type of a pointer to a function.
pub(crate) fn function(arguments: &[String], result: &str) -> String {
    format!("{result} (*)({})", arguments.join(", "))
}

/// Assertions that hold if `Ours` is passed as `Theirs` is. Handles and enumerations have types of their own in C; here
/// they are untyped pointers and integers.
const PREAMBLE: &str = "
#include <cstddef>
#include <type_traits>
#include <cuda.h>
#include <cublasLt.h>
#include <nvjpeg.h>

// The headers of CUDA 12.0 lack the flag, and their library refuses it.
#ifndef NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION
#define NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION 1 << 5
#endif

template <class Theirs, class Ours>
constexpr bool same() {
    using T = std::remove_cv_t<Theirs>;
    using O = std::remove_cv_t<Ours>;
    if constexpr (std::is_pointer_v<T> && std::is_pointer_v<O>) {
        using To = std::remove_pointer_t<T>;
        using Oo = std::remove_pointer_t<O>;
        // What the other side only reads may be constant here; what it writes may not.
        if (std::is_const_v<Oo> && !std::is_const_v<To>) return false;
        if constexpr (std::is_void_v<Oo>) return !std::is_pointer_v<To>;
        else return same<To, Oo>();
    } else if constexpr (std::is_pointer_v<T> || std::is_pointer_v<O> || std::is_class_v<T> || std::is_class_v<O>) {
        return std::is_same_v<T, O>;
    } else if constexpr (std::is_enum_v<T>) {
        return sizeof(T) == sizeof(O) && std::is_integral_v<O>;
    } else {
        return sizeof(T) == sizeof(O) && std::is_floating_point_v<T> == std::is_floating_point_v<O> &&
               std::is_signed_v<T> == std::is_signed_v<O>;
    }
}

template <class Theirs, class Ours>
struct Functions : std::false_type {};
template <class R, class... A, class S, class... B>
struct Functions<R (*)(A...), S (*)(B...)> {
    static constexpr bool parameters() {
        if constexpr (sizeof...(A) == sizeof...(B)) return (same<A, B>() && ...);
        else return false;
    }
    static constexpr bool value = same<R, S>() && parameters();
};

#define FUNCTION(name, ...) static_assert(Functions<decltype(&name), __VA_ARGS__>::value, \"parameters of \" #name)
#define NUMBER(name, ours) static_assert(static_cast<long long>(name) == ours, \"value of \" #name)
";

/// A program that compiles if `functions` and `numbers` are those of the headers.
fn program(functions: &[(&str, String)], numbers: &[(&str, i64)]) -> String {
    let functions = functions.iter().map(|(name, ours)| format!("FUNCTION({name}, {ours});\n"));
    let numbers = numbers.iter().map(|(name, ours)| format!("NUMBER({name}, {ours});\n"));
    PREAMBLE.to_owned() + &functions.chain(numbers).collect::<String>()
}

fn functions() -> Vec<(&'static str, String)> {
    let optional = ("nvjpegGetHardwareDecoderInfo", nvjpeg::DecoderInfo::in_c());
    [driver::Functions::in_c(), blaslt::Functions::in_c(), nvjpeg::Functions::in_c(), vec![optional]].concat()
}

fn numbers() -> Vec<(&'static str, i64)> {
    [driver::NUMBERS, device::NUMBERS, graph::NUMBERS, module::NUMBERS, pinned::NUMBERS]
        .concat()
        .into_iter()
        .chain(blaslt::NUMBERS.iter().copied())
        .chain(nvjpeg::NUMBERS.iter().copied())
        .chain(layouts().map(|(name, ours)| (name, i64::try_from(ours).unwrap())))
        .collect()
}

/// Sizes and offsets of structures.
fn layouts() -> [(&'static str, usize); 9] {
    use blaslt::{Algorithm, FoundAlgorithm};
    use nvjpeg::NvjpegImage;
    [
        ("sizeof(cublasLtMatmulAlgo_t)", size_of::<Algorithm>()),
        ("sizeof(cublasLtMatmulHeuristicResult_t)", size_of::<FoundAlgorithm>()),
        ("offsetof(cublasLtMatmulHeuristicResult_t, algo)", offset_of!(FoundAlgorithm, algorithm)),
        ("offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize)", offset_of!(FoundAlgorithm, workspace_bytes)),
        ("offsetof(cublasLtMatmulHeuristicResult_t, state)", offset_of!(FoundAlgorithm, status)),
        ("offsetof(cublasLtMatmulHeuristicResult_t, wavesCount)", offset_of!(FoundAlgorithm, waves)),
        ("sizeof(nvjpegImage_t)", size_of::<NvjpegImage>()),
        ("offsetof(nvjpegImage_t, channel)", offset_of!(NvjpegImage, channel)),
        ("offsetof(nvjpegImage_t, pitch)", offset_of!(NvjpegImage, pitch)),
    ]
}

/// The folder of NVIDIA's wheels, unpacked.
fn wheels() -> PathBuf {
    std::env::var_os("FOVEATE_CUDA_HEADERS").expect("FOVEATE_CUDA_HEADERS names the wheels' folder").into()
}

/// The folders of each release's headers.
fn releases() -> [Vec<PathBuf>; 2] {
    let nvidia = wheels().join("nvidia");
    let releases: [&[&str]; 2] = [&["cuda_runtime", "cuda_nvcc", "cuda_cccl", "cublas", "nvjpeg"], &["cu13"]];
    releases.map(|names| names.iter().map(|name| nvidia.join(name).join("include")).collect())
}

/// The compiler's complaints about the program.
fn compile(headers: &[PathBuf], program: &str) -> String {
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-fsyntax-only", "-Wno-deprecated-declarations", "-x", "c++"]);
    for folder in headers {
        compiler.arg("-isystem").arg(folder);
    }
    compiler.arg("-").stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = compiler.spawn().unwrap();
    child.stdin.take().unwrap().write_all(program.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { String::new() } else { format!("c++ refuses it: {said}") }
}

#[test]
#[ignore = "needs NVIDIA's headers: cargo xtask ci --only cuda-abi"]
fn the_declarations_are_those_of_the_headers() {
    for headers in releases() {
        assert_eq!(compile(&headers, &program(&functions(), &numbers())), "");
    }
}

/// Each declaration is compared: with any other in its place, the program does not compile.
#[test]
#[ignore = "needs NVIDIA's headers: cargo xtask ci --only cuda-abi"]
fn another_declaration_is_refused() {
    let mut expected = Vec::new();
    let functions = functions().into_iter().map(|(name, ours)| {
        expected.push(format!("parameters of {name}"));
        (name, ours.replace("(*)(", "(*)(double, ").replace("(double, )", "(double)"))
    });
    let functions: Vec<_> = functions.collect();
    let numbers: Vec<_> = numbers().into_iter().map(|(name, ours)| (name, ours + 1)).collect();
    expected.extend(numbers.iter().map(|(name, _)| format!("value of {name}")));
    for headers in releases() {
        let said = compile(&headers, &program(&functions, &numbers));
        let accepted: Vec<&String> = expected.iter().filter(|message| !said.contains(*message)).collect();
        assert!(accepted.is_empty(), "{accepted:?}\n{said}");
    }
}

/// NVIDIA's libraries without a device: cuBLASLt describes products, nvJPEG refuses to start.
#[test]
#[ignore = "needs NVIDIA's libraries: cargo xtask ci --only cuda-abi"]
fn the_libraries_take_the_numbers() {
    let nvidia = wheels().join("nvidia");
    for (blas, jpeg, release) in [
        ("cublas/lib/libcublasLt.so.12", "nvjpeg/lib/libnvjpeg.so.12", 12),
        ("cu13/lib/libcublasLt.so.13", "cu13/lib/libnvjpeg.so.13", 13),
    ] {
        blaslt::describe_a_product(&open(&nvidia.join(blas), blaslt::Functions::of), release);
        nvjpeg::refuse_without_a_device(&open(&nvidia.join(jpeg), nvjpeg::Functions::of), release);
    }
}

#[allow(unsafe_code)]
fn open<F>(path: &Path, functions: fn(libloading::Library) -> Result<F, &'static str>) -> F {
    // SAFETY: NVIDIA's libraries may be loaded at any time; their initializers do not touch our state.
    let library = unsafe { libloading::Library::new(path) }.unwrap();
    functions(library).unwrap_or_else(|missing| panic!("{} has no {missing}", path.display()))
}
