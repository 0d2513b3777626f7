//! The emulated cuBLASLt through cudarc, compared with plain sums in f64.

// Raw calls, and mistakes that the emulator must detect; helpers of tests fail as tests do.
#![allow(unsafe_code, clippy::unwrap_used)]

mod common;

use std::ffi::c_void;
use std::process::ExitCode;
use std::sync::Arc;

use common::in_every_order;
use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys::cublasComputeType_t::{self as Compute, CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32};
use cudarc::cublaslt::sys::cublasLtMatmulDescAttributes_t as DescAttribute;
use cudarc::cublaslt::sys::cublasLtMatmulPreferenceAttributes_t as PrefAttribute;
use cudarc::cublaslt::sys::cublasLtMatrixLayoutAttribute_t as LayoutAttribute;
use cudarc::cublaslt::sys::cublasStatus_t::{self, CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_NOT_SUPPORTED};
use cudarc::cublaslt::sys::cudaDataType_t::{self as Type, CUDA_R_16BF, CUDA_R_16F, CUDA_R_32F};
use cudarc::cublaslt::sys::{self, cublasLtEpilogue_t as Epilogue};
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr};
use foveate_testkit::{run, trial, trials};
use half::{bf16, f16};

fn main() -> ExitCode {
    let mut trials =
        trials![products_are_the_sums, a_product_in_a_graph_runs_again, what_the_library_refuses_is_refused];
    // A measurement.
    trials.push(trial("speed", speed).with_ignored_flag(true));
    run(trials)
}

const WORKSPACE: usize = 1 << 16;
/// The content of the result's padding, which must not be written.
const UNTOUCHED: f64 = 77.0;

#[derive(Clone, Copy, Debug)]
struct Case {
    factors: Type,
    result: Type,
    compute: Compute,
    transposed: (bool, bool),
    epilogue: Epilogue,
    alpha: f32,
    beta: f32,
    /// C is D's own memory.
    in_place: bool,
    batch: i32,
    m: usize,
    n: usize,
    k: usize,
}

/// Sizes that are no multiple of any block, and a depth of more than one.
const PLAIN: Case = Case {
    factors: CUDA_R_32F,
    result: CUDA_R_32F,
    compute: CUBLAS_COMPUTE_32F,
    transposed: (false, false),
    epilogue: Epilogue::CUBLASLT_EPILOGUE_DEFAULT,
    alpha: 1.0,
    beta: 0.0,
    in_place: false,
    batch: 1,
    m: 67,
    n: 29,
    k: 301,
};

/// A column-major matrix, or several, with padding below each column and after each matrix.
struct Matrix {
    kind: Type,
    rows: usize,
    columns: usize,
    leading: usize,
    stride: usize,
    values: Vec<f64>,
}

fn bytes_of(kind: Type) -> usize {
    if kind == CUDA_R_32F { 4 } else { 2 }
}

fn encode(kind: Type, value: f64) -> Vec<u8> {
    match kind {
        CUDA_R_16F => f16::from_f64(value).to_le_bytes().to_vec(),
        CUDA_R_16BF => bf16::from_f64(value).to_le_bytes().to_vec(),
        _ => (value as f32).to_le_bytes().to_vec(),
    }
}

fn decode(kind: Type, bytes: &[u8]) -> f64 {
    match kind {
        CUDA_R_16F => f16::from_le_bytes([bytes[0], bytes[1]]).to_f64(),
        CUDA_R_16BF => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f64(),
        _ => f64::from(f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
    }
}

/// Bits of mantissa, including the leading one.
fn digits(kind: Type) -> i32 {
    match kind {
        CUDA_R_16F => 11,
        CUDA_R_16BF => 8,
        _ => 24,
    }
}

/// Rounds to this many bits of mantissa, ties to even.
fn rounded(value: f64, digits: i32) -> f64 {
    if value == 0.0 {
        return value;
    }
    let unit = (value.abs().log2().floor() as i32 - digits + 1) as f64;
    (value / unit.exp2()).round_ties_even() * unit.exp2()
}

impl Matrix {
    fn new(kind: Type, rows: usize, columns: usize, batch: usize, mut value: impl FnMut() -> f64) -> Self {
        let leading = rows + 3;
        let stride = leading * columns + 5;
        let values = (0..stride * batch).map(|_| decode(kind, &encode(kind, value()))).collect();
        Self { kind, rows, columns, leading, stride, values }
    }

    fn at(&self, matrix: usize, row: usize, column: usize) -> f64 {
        self.values[matrix * self.stride + column * self.leading + row]
    }

    fn upload(&self, stream: &Arc<CudaStream>) -> CudaSlice<u8> {
        let bytes: Vec<u8> = self.values.iter().flat_map(|value| encode(self.kind, *value)).collect();
        stream.clone_htod(&bytes).unwrap()
    }

    fn layout(&self, batch: i32) -> sys::cublasLtMatrixLayout_t {
        let rows = self.rows as u64;
        let columns = self.columns as u64;
        let layout = result::create_matrix_layout(self.kind, rows, columns, self.leading as i64).unwrap();
        let stride = self.stride as i64;
        // SAFETY: the values have the attributes' types.
        unsafe {
            let batches = LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
            result::set_matrix_layout_attribute(layout, batches, (&raw const batch).cast(), 4).unwrap();
            let offset = LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
            result::set_matrix_layout_attribute(layout, offset, (&raw const stride).cast(), 8).unwrap();
        }
        layout
    }
}

/// Numbers between -1 and 1, the same for the same seed.
fn noise(mut seed: u64) -> impl FnMut() -> f64 {
    move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
}

/// One product's operands, on the host and on the device, and its descriptions. Tests may corrupt them.
struct Setup {
    case: Case,
    stream: Arc<CudaStream>,
    matrices: [Matrix; 4],
    bias: Matrix,
    memory: Vec<CudaSlice<u8>>,
    handle: sys::cublasLtHandle_t,
    description: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 4],
    /// A, B, C, D and the workspace.
    pointers: [u64; 5],
    workspace_bytes: usize,
    /// The smallest alignment that the algorithm is chosen for.
    alignment: u32,
}

impl Setup {
    fn new(case: Case) -> Self {
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        let Case { m, n, k, .. } = case;
        let batch = case.batch as usize;
        let oriented = |rows, columns, transposed| if transposed { (columns, rows) } else { (rows, columns) };
        let a = oriented(m, k, case.transposed.0);
        let b = oriented(k, n, case.transposed.1);
        let c = Matrix::new(case.result, m, n, batch, noise(3));
        let d = if case.in_place {
            Matrix::new(case.result, m, n, batch, noise(3))
        } else {
            Matrix::new(case.result, m, n, batch, || UNTOUCHED)
        };
        let factor = |(rows, columns), seed| Matrix::new(case.factors, rows, columns, batch, noise(seed));
        let matrices = [factor(a, 1), factor(b, 2), c, d];
        let bias = Matrix::new(case.result, m, 1, batch, noise(4));
        let mut memory: Vec<_> = matrices.iter().chain([&bias]).map(|matrix| matrix.upload(&stream)).collect();
        memory.push(stream.alloc_zeros(WORKSPACE).unwrap());
        let address = |index: usize| memory[index].device_ptr(&stream).0;
        let c_place = if case.in_place { 3 } else { 2 };
        let pointers = [address(0), address(1), address(c_place), address(3), address(5)];
        let layouts = [0, 1, 2, 3].map(|index: usize| matrices[index].layout(case.batch));
        let description = result::create_matmul_desc(case.compute, CUDA_R_32F).unwrap();
        let handle = result::create_handle().unwrap();
        let bias_pointer = address(4);
        let bias_stride = bias.stride as i64;
        let workspace_bytes = WORKSPACE;
        let alignment = 256;
        let setup = Self {
            case,
            stream,
            matrices,
            bias,
            memory,
            handle,
            description,
            layouts,
            pointers,
            workspace_bytes,
            alignment,
        };
        setup.describe(DescAttribute::CUBLASLT_MATMUL_DESC_TRANSA, &i32::from(case.transposed.0)).unwrap();
        setup.describe(DescAttribute::CUBLASLT_MATMUL_DESC_TRANSB, &i32::from(case.transposed.1)).unwrap();
        setup.describe(DescAttribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &(case.epilogue as u32)).unwrap();
        setup.describe(DescAttribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias_pointer).unwrap();
        setup.describe(DescAttribute::CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &bias_stride).unwrap();
        setup
    }

    fn describe<T>(&self, attribute: DescAttribute, value: &T) -> Result<(), CublasError> {
        let size = size_of::<T>();
        // SAFETY: the value has this many bytes.
        unsafe { result::set_matmul_desc_attribute(self.description, attribute, (&raw const *value).cast(), size) }
    }

    fn algorithm(&self) -> Result<sys::cublasLtMatmulAlgo_t, CublasError> {
        use PrefAttribute as P;
        let preference = result::create_matmul_pref()?;
        let [a, b, c, d] = self.layouts;
        let alignments = [
            P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        ];
        // SAFETY: the values have the attributes' types, and everything named is alive.
        unsafe {
            let most = WORKSPACE;
            let workspace = P::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
            result::set_matmul_pref_attribute(preference, workspace, (&raw const most).cast(), 8)?;
            // The sums are f32 ones, in whatever order.
            let scheme = P::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK;
            let in_compute_type = 2_u32;
            result::set_matmul_pref_attribute(preference, scheme, (&raw const in_compute_type).cast(), 4)?;
            for attribute in alignments {
                result::set_matmul_pref_attribute(preference, attribute, (&raw const self.alignment).cast(), 4)?;
            }
            let found = result::get_matmul_algo_heuristic(self.handle, self.description, a, b, c, d, preference);
            result::destroy_matmul_pref(preference)?;
            Ok(found?.algo)
        }
    }

    fn enqueue(&self) -> Result<(), CublasError> {
        let algorithm = self.algorithm()?;
        let [a, b, c, d, workspace] = self.pointers.map(|pointer| pointer as *mut c_void);
        let alpha = (&raw const self.case.alpha).cast();
        let beta = (&raw const self.case.beta).cast();
        let la = self.layouts[0];
        let lb = self.layouts[1];
        let lc = self.layouts[2];
        let ld = self.layouts[3];
        let stream = self.stream.cu_stream().cast();
        let bytes = self.workspace_bytes;
        let handle = self.handle;
        let description = self.description;
        // SAFETY: the operands live until `self` is dropped, after the wait for the stream.
        unsafe {
            result::matmul(
                handle,
                description,
                alpha,
                beta,
                a,
                la,
                b,
                lb,
                c,
                lc,
                d,
                ld,
                &algorithm,
                workspace,
                bytes,
                stream,
            )
        }
    }

    fn status(&self) -> Option<cublasStatus_t> {
        self.enqueue().err().map(|error| error.0)
    }

    fn result(&self) -> Vec<f64> {
        let bytes = self.stream.clone_dtoh(&self.memory[3]).unwrap();
        bytes.chunks(bytes_of(self.case.result)).map(|bytes| decode(self.case.result, bytes)).collect()
    }

    /// Returns the sum in f64, and the sum of the absolute values.
    fn expected(&self, matrix: usize, row: usize, column: usize) -> (f64, f64) {
        let [a, b, c, _] = &self.matrices;
        let tf32 = self.case.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
        let factor = |value| if tf32 { rounded(value, 11) } else { value };
        let mut sum = 0.0;
        let mut size = 0.0;
        for depth in 0..self.case.k {
            let left = if self.case.transposed.0 { a.at(matrix, depth, row) } else { a.at(matrix, row, depth) };
            let right = if self.case.transposed.1 { b.at(matrix, column, depth) } else { b.at(matrix, depth, column) };
            sum += factor(left) * factor(right);
            size += (left * right).abs();
        }
        sum = sum * f64::from(self.case.alpha) + f64::from(self.case.beta) * c.at(matrix, row, column);
        if self.case.epilogue == Epilogue::CUBLASLT_EPILOGUE_BIAS {
            sum += self.bias.at(matrix, row, 0);
        }
        (sum, size * f64::from(self.case.alpha).abs() + 2.0)
    }

    fn check(&self) {
        let got = self.result();
        let d = &self.matrices[3];
        let mut untouched = vec![true; got.len()];
        // Each of k additions in f32 loses at most half a unit of the sum so far; the store loses one of its type.
        let f32_unit = (-24_f64).exp2();
        let unit = (-f64::from(digits(self.case.result))).exp2();
        for (matrix, column, row) in (0..self.case.batch as usize).flat_map(|matrix| {
            (0..self.case.n).flat_map(move |column| (0..self.case.m).map(move |row| (matrix, column, row)))
        }) {
            let index = matrix * d.stride + column * d.leading + row;
            untouched[index] = false;
            let (want, size) = self.expected(matrix, row, column);
            let allowed = want.abs() * unit * 1.01 + (self.case.k as f64).sqrt() * 4.0 * f32_unit * size;
            let difference = (got[index] - want).abs();
            assert!(difference <= allowed, "{:?}: [{row}, {column}] is {} and not {want}", self.case, got[index]);
        }
        let around = untouched.iter().zip(&got).zip(&d.values).filter(|((untouched, _), _)| **untouched);
        assert!(
            around.clone().count() > 0 && around.clone().all(|((_, got), before)| got == before),
            "{:?}",
            self.case
        );
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        self.stream.synchronize().unwrap();
        // SAFETY: they are not used any more.
        unsafe {
            for layout in self.layouts {
                result::destroy_matrix_layout(layout).unwrap();
            }
            result::destroy_matmul_desc(self.description).unwrap();
            result::destroy_handle(self.handle).unwrap();
        }
    }
}

fn check(case: Case) {
    let setup = Setup::new(case);
    setup.enqueue().unwrap();
    setup.check();
}

fn products_are_the_sums() {
    fn body() {
        let kinds = [
            (CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F),
            (CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32),
            (CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F),
            (CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F),
            (CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F),
            (CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F),
        ];
        let scales = [(1.0, 0.0, false), (1.0, 1.0, true), (0.5, -0.25, false)];
        for (factors, result, compute) in kinds {
            for transposed in [(false, false), (true, false), (false, true), (true, true)] {
                for epilogue in [Epilogue::CUBLASLT_EPILOGUE_DEFAULT, Epilogue::CUBLASLT_EPILOGUE_BIAS] {
                    for (alpha, beta, in_place) in scales {
                        check(Case { factors, result, compute, transposed, epilogue, alpha, beta, in_place, ..PLAIN });
                    }
                }
            }
            check(Case { factors, result, compute, batch: 3, epilogue: Epilogue::CUBLASLT_EPILOGUE_BIAS, ..PLAIN });
            check(Case { factors, result, compute, m: 1, n: 1, k: 1, ..PLAIN });
        }
    }
    in_every_order("products_are_the_sums", &[], body);
}

fn a_product_in_a_graph_runs_again() {
    fn body() {
        let case = Case { beta: 1.0, in_place: true, ..PLAIN };
        let setup = Setup::new(case);
        setup.stream.synchronize().unwrap();
        setup.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
        setup.enqueue().unwrap();
        let graph = setup.stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().unwrap();
        graph.launch().unwrap();
        setup.check();
        // Adds to the first result once more.
        graph.launch().unwrap();
        let once = setup.expected(0, 5, 6).0;
        let c = setup.matrices[2].at(0, 5, 6);
        let twice = setup.result()[6 * setup.matrices[3].leading + 5];
        assert!((twice - (2.0 * once - c)).abs() < 1e-4, "{twice}");
    }
    in_every_order("a_product_in_a_graph_runs_again", &[], body);
}

fn what_the_library_refuses_is_refused() {
    fn body() {
        use DescAttribute as D;
        let half = Case { factors: CUDA_R_16F, result: CUDA_R_16F, ..PLAIN };
        let with_bias = |case| Case { epilogue: Epilogue::CUBLASLT_EPILOGUE_BIAS, ..case };
        let refused = |case: Case, spoil: &dyn Fn(&mut Setup), status| {
            let mut setup = Setup::new(case);
            assert_eq!(setup.status(), None, "it is the spoiling that is refused");
            spoil(&mut setup);
            assert_eq!(setup.status(), Some(status));
        };
        let unsupported =
            |case: Case| assert_eq!(Setup::new(case).status(), Some(CUBLAS_STATUS_NOT_SUPPORTED), "{case:?}");
        unsupported(Case { compute: CUBLAS_COMPUTE_32F_FAST_TF32, ..half });
        unsupported(Case { result: CUDA_R_16F, ..PLAIN });
        unsupported(Case { result: CUDA_R_16BF, ..half });
        unsupported(Case { compute: Compute::CUBLAS_COMPUTE_64F, ..PLAIN });
        unsupported(Case { epilogue: Epilogue::CUBLASLT_EPILOGUE_GELU_BIAS, ..PLAIN });

        let f32_bias =
            |setup: &mut Setup| setup.describe(D::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &(CUDA_R_32F as i32)).unwrap();
        refused(with_bias(half), &f32_bias, CUBLAS_STATUS_NOT_SUPPORTED);
        let no_bias = |setup: &mut Setup| setup.describe(D::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &0_u64).unwrap();
        refused(with_bias(PLAIN), &no_bias, CUBLAS_STATUS_INVALID_VALUE);
        let turned = |setup: &mut Setup| setup.describe(D::CUBLASLT_MATMUL_DESC_TRANSA, &1_i32).unwrap();
        refused(PLAIN, &turned, CUBLAS_STATUS_INVALID_VALUE);
        let narrow = |setup: &mut Setup| {
            let leading = setup.matrices[0].rows as i64 - 1;
            let attribute = LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_LD;
            // SAFETY: the value has the attribute's type.
            unsafe { result::set_matrix_layout_attribute(setup.layouts[0], attribute, (&raw const leading).cast(), 8) }
                .unwrap();
        };
        refused(PLAIN, &narrow, CUBLAS_STATUS_INVALID_VALUE);
        refused(PLAIN, &|setup| setup.pointers[1] += 128, CUBLAS_STATUS_NOT_SUPPORTED);
        refused(PLAIN, &|setup| setup.pointers[1] += 2, CUBLAS_STATUS_INVALID_VALUE);
        refused(PLAIN, &|setup| setup.pointers[0] = 0, CUBLAS_STATUS_INVALID_VALUE);
        refused(PLAIN, &|setup| setup.pointers[3] = setup.pointers[0], CUBLAS_STATUS_INVALID_VALUE);
        refused(PLAIN, &|setup| setup.pointers[4] += 16, CUBLAS_STATUS_INVALID_VALUE);
        refused(PLAIN, &|setup| setup.workspace_bytes = 0, CUBLAS_STATUS_INVALID_VALUE);
        let batch = Case { batch: 3, ..PLAIN };
        let lonely = |setup: &mut Setup| {
            let attribute = LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
            let one = 1_i32;
            // SAFETY: the value has the attribute's type.
            unsafe { result::set_matrix_layout_attribute(setup.layouts[1], attribute, (&raw const one).cast(), 4) }
                .unwrap();
        };
        refused(batch, &lonely, CUBLAS_STATUS_INVALID_VALUE);

        let setup = Setup::new(PLAIN);
        let size = setup.describe(D::CUBLASLT_MATMUL_DESC_TRANSA, &1_u64).unwrap_err();
        assert_eq!(size.0, CUBLAS_STATUS_INVALID_VALUE, "an attribute of the wrong size");
        // An algorithm that was chosen for a smaller alignment takes a less aligned pointer.
        let mut shifted = Setup::new(PLAIN);
        shifted.alignment = 16;
        shifted.pointers[0] += 16;
        assert_eq!(shifted.status(), None);
    }
    in_every_order("what_the_library_refuses_is_refused", &[], body);
}

/// `cargo test -p foveate-cuda-emulator --test products -- --ignored --nocapture` prints the products' speed for one
/// 224 px image through DINOv2-small.
fn speed() {
    fn body() {
        for kind in [CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF] {
            let shapes = [(1152, 384), (384, 384), (1536, 384), (384, 1536)];
            let mut seconds = 0.0;
            for (m, k) in shapes {
                let setup =
                    Setup::new(Case { factors: kind, result: kind, transposed: (true, false), m, n: 257, k, ..PLAIN });
                setup.stream.synchronize().unwrap();
                let start = std::time::Instant::now();
                for _ in 0..12 {
                    setup.enqueue().unwrap();
                }
                setup.stream.synchronize().unwrap();
                seconds += start.elapsed().as_secs_f64();
            }
            let sums: usize = shapes.iter().map(|(m, k)| m * k * 257 * 12).sum();
            eprintln!("{kind:?}: {seconds:.3} s, {:.1} G multiplications per second", sums as f64 / seconds / 1e9);
        }
    }
    foveate_cuda_emulator::for_trial(foveate_cuda_emulator::load);
    body();
}
