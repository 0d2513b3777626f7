//! Matrix products with cuBLASLt, found at run time.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Arc, OnceLock};

use crate::buffer::Buffer;
use crate::capture::{Lazy, no_capture};
use crate::device::Device;
use crate::driver::Handle as Raw;
use crate::error::{CudaError, one_line};
use crate::library::functions;
use crate::stream::Stream;
use crate::toolkit;

type Status = c_int;

/// `cublasLtMatmulAlgo_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Algorithm {
    data: [u64; 8],
}

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct FoundAlgorithm {
    pub(crate) algorithm: Algorithm,
    pub(crate) workspace_bytes: usize,
    pub(crate) status: Status,
    pub(crate) waves: f32,
    reserved: [c_int; 4],
}

functions! {
    /// Declared as in cuBLASLt 11 and unchanged since.
    Functions {
        fn cublasLtCreate(*mut Raw) -> Status;
        fn cublasLtDestroy(Raw) -> Status;
        fn cublasLtGetVersion() -> usize;
        fn cublasLtGetStatusName(Status) -> *const c_char;
        fn cublasLtMatmulDescCreate(*mut Raw, c_int, c_int) -> Status;
        fn cublasLtMatmulDescDestroy(Raw) -> Status;
        fn cublasLtMatmulDescSetAttribute(Raw, c_int, *const c_void, usize) -> Status;
        fn cublasLtMatrixLayoutCreate(*mut Raw, c_int, u64, u64, i64) -> Status;
        fn cublasLtMatrixLayoutDestroy(Raw) -> Status;
        fn cublasLtMatmulPreferenceCreate(*mut Raw) -> Status;
        fn cublasLtMatmulPreferenceDestroy(Raw) -> Status;
        fn cublasLtMatmulPreferenceSetAttribute(Raw, c_int, *const c_void, usize) -> Status;
        fn cublasLtMatmulAlgoGetHeuristic(
            Raw, Raw, Raw, Raw, Raw, Raw, Raw, c_int, *mut FoundAlgorithm, *mut c_int,
        ) -> Status;
        fn cublasLtMatmul(
            Raw, Raw, *const c_void, *const c_void, Raw, *const c_void, Raw, *const c_void, *const c_void, Raw,
            *mut c_void, Raw, *const c_void, *mut c_void, usize, Raw,
        ) -> Status;
    }
}

/// The library, loaded once.
struct LtLibrary {
    functions: Functions,
    path: String,
}

const REMEDY: &str = "install CUDA's cuBLAS, or `pip install nvidia-cublas-cu12` (`nvidia-cublas` for CUDA 13) and name \
                      its lib folder in FOVEATE_CUDA_LIB";

impl LtLibrary {
    fn get() -> Result<&'static Self, CudaError> {
        static LIBRARY: OnceLock<Result<LtLibrary, CudaError>> = OnceLock::new();
        let library = LIBRARY.get_or_init(|| {
            toolkit::find(("cuBLASLt", "libcublasLt.so", REMEDY), Functions::of)
                .map(|(functions, path)| Self { functions, path })
        });
        library.as_ref().map_err(Clone::clone)
    }

    fn check(&self, function: &'static str, status: Status) -> Result<(), CudaError> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: any number is a valid argument; the answer is a string that the library owns.
        let name = unsafe {
            let name = (self.functions.cublasLtGetStatusName)(status);
            (!name.is_null()).then(|| CStr::from_ptr(name))
        };
        let name = name.map_or_else(|| format!("error {status}"), |name| one_line(&name.to_string_lossy()));
        Err(CudaError::Call { function, name, detail: String::new() })
    }
}

/// The library's release: `cuBLASLt 12.8.4`. Needs the driver, but no device.
///
/// # Errors
/// [`CudaError::Library`] if it is missing, with the paths that were tried; the errors of [`Device::names`].
pub fn release() -> Result<String, CudaError> {
    let library = LtLibrary::get()?;
    // SAFETY: no preconditions.
    let number = unsafe { (library.functions.cublasLtGetVersion)() };
    let major = if number >= 100_000 { 10_000 } else { 1_000 };
    Ok(format!("cuBLASLt {}.{}.{}", number / major, number % major / 100, number % 100))
}

/// Finds the library: its [release] and the path it was loaded as (`cuBLASLt 12.8.4 (libcublasLt.so.12)`).
///
/// # Errors
/// Those of [`release`].
pub fn find() -> Result<String, CudaError> {
    Ok(format!("{} ({})", release()?, LtLibrary::get()?.path))
}

/// cuBLASLt on a device. Clones share the handle.
#[derive(Clone)]
pub struct Handle(Arc<LtOpened>);

struct LtOpened {
    library: &'static LtLibrary,
    device: Device,
    handle: Raw,
}

/// The element type of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// Single precision.
    F32,
    /// Half precision, summed in single.
    F16,
    /// bfloat16, summed in single.
    Bf16,
}

impl Element {
    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// `cudaDataType`.
    const fn code(self) -> c_int {
        match self {
            Self::F32 => 0,
            Self::F16 => 2,
            Self::Bf16 => 14,
        }
    }
}

/// A product `y = x · weightᵀ`, and what is added to it; all arrays are row-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Rows of `x` and `y`.
    pub rows: usize,
    /// Columns of `x` and of `weight`.
    pub inputs: usize,
    /// Rows of `weight`, columns of `y`.
    pub outputs: usize,
    /// Element type of all four arrays.
    pub element: Element,
    /// True if f32 is rounded to TF32 before it is multiplied.
    pub tf32: bool,
    /// True if `bias` is added to every row.
    pub bias: bool,
    /// True if an array of `y`'s shape is added.
    pub accumulate: bool,
    /// Elements from a row of `x`, and of the added array, to the next, if these take some rows of a larger array.
    /// Everything else is contiguous.
    pub pitch: Option<usize>,
}

/// The operands of a product.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a> {
    /// `[rows, inputs]`.
    pub x: &'a Buffer,
    /// `[outputs, inputs]`.
    pub weight: &'a Buffer,
    /// Multiplies the products, before bias and added array.
    pub alpha: f32,
    /// `[outputs]`; read if the shape has a bias.
    pub bias: Option<&'a Buffer>,
    /// `[rows, outputs]`; read if the shape accumulates. `None` for `y`'s previous content, if the shape has no pitch.
    pub added: Option<&'a Buffer>,
    /// `[rows, outputs]`.
    pub y: &'a Buffer,
    /// Memory for intermediate sums, no smaller than the one that the product was planned with. Products that share it
    /// must take turns.
    pub workspace: &'a Buffer,
}

// The numbers below are cuBLASLt's.
const NOT_SUPPORTED: Status = 15;
const COMPUTE_F32: c_int = 68;
const COMPUTE_F32_TF32: c_int = 77;
const SCALE_F32: c_int = 0;
const DESC_TRANSPOSE_A: c_int = 3;
const DESC_EPILOGUE: c_int = 7;
const DESC_BIAS_POINTER: c_int = 8;
const TRANSPOSE: c_int = 1;
const EPILOGUE_BIAS: c_int = 4;
const PREFERENCE_WORKSPACE_BYTES: c_int = 1;
const PREFERENCE_REDUCTION_SCHEMES: c_int = 3;
/// Sums that several blocks share are added in f32. The other schemes add them in the output's type, which may be f16.
const REDUCTION_IN_COMPUTE_TYPE: u32 = 2;

/// These numbers' names in the headers.
#[cfg(test)]
pub(crate) const NUMBERS: &[(&str, i64)] = &[
    ("CUBLAS_STATUS_NOT_SUPPORTED", NOT_SUPPORTED as i64),
    ("CUBLAS_COMPUTE_32F", COMPUTE_F32 as i64),
    ("CUBLAS_COMPUTE_32F_FAST_TF32", COMPUTE_F32_TF32 as i64),
    ("CUDA_R_32F", SCALE_F32 as i64),
    ("CUDA_R_32F", Element::F32.code() as i64),
    ("CUDA_R_16F", Element::F16.code() as i64),
    ("CUDA_R_16BF", Element::Bf16.code() as i64),
    ("CUBLASLT_MATMUL_DESC_TRANSA", DESC_TRANSPOSE_A as i64),
    ("CUBLASLT_MATMUL_DESC_EPILOGUE", DESC_EPILOGUE as i64),
    ("CUBLASLT_MATMUL_DESC_BIAS_POINTER", DESC_BIAS_POINTER as i64),
    ("CUBLAS_OP_T", TRANSPOSE as i64),
    ("CUBLASLT_EPILOGUE_BIAS", EPILOGUE_BIAS as i64),
    ("CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES", PREFERENCE_WORKSPACE_BYTES as i64),
    ("CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK", PREFERENCE_REDUCTION_SCHEMES as i64),
    ("CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE", REDUCTION_IN_COMPUTE_TYPE as i64),
];

impl Handle {
    /// Finds the library and initializes it on `device`.
    ///
    /// # Errors
    /// [`CudaError::Library`] if it is missing; the library's own errors otherwise.
    pub fn new(device: &Device) -> Result<Self, CudaError> {
        let library = LtLibrary::get()?;
        // The library uses the thread's current context.
        device.call("cuCtxSetCurrent", |_| 0)?;
        let _no_capture = no_capture();
        let mut handle = Raw::NULL;
        // SAFETY: `handle` is a valid place for the handle.
        library.check("cublasLtCreate", unsafe { (library.functions.cublasLtCreate)(&mut handle) })?;
        Ok(Self(Arc::new(LtOpened { library, device: device.clone(), handle })))
    }

    /// Lets the library choose an algorithm for products of this shape, which uses at most `workspace` for intermediate
    /// sums.
    ///
    /// # Errors
    /// [`CudaError::Call`] if it has none; the library's own errors otherwise.
    pub fn plan(&self, shape: Shape, workspace: &Buffer) -> Result<Product, CudaError> {
        Product::new(self, shape, workspace)
    }
}

impl Drop for LtOpened {
    fn drop(&mut self) {
        let destroy = self.library.functions.cublasLtDestroy;
        // SAFETY: the handle is owned, and no work that the device was given uses it any more.
        let _ = self.device.after_all_work("cublasLtDestroy", |_| unsafe { destroy(self.handle) });
    }
}

/// The algorithm for products of one shape.
pub struct Product {
    handle: Handle,
    shape: Shape,
    description: LtObject,
    weight: LtObject,
    x: LtObject,
    /// The added array, if it is not described as `y` is.
    added: Option<LtObject>,
    y: LtObject,
    algorithm: Algorithm,
    workspace_bytes: usize,
    code: Lazy,
}

impl Product {
    /// Describes the product in cuBLASLt's column-major view, `yᵀ = op(weight) · xᵀ`: a row-major `[rows, columns]` is
    /// its `columns × rows`.
    fn new(handle: &Handle, shape: Shape, workspace: &Buffer) -> Result<Self, CudaError> {
        let Shape { rows, inputs, outputs, element, pitch, .. } = shape;
        let mut product = Self {
            description: LtObject::description(handle, shape, workspace)?,
            weight: LtObject::matrix(handle, element, [outputs, inputs], inputs)?,
            x: LtObject::matrix(handle, element, [rows, inputs], pitch.unwrap_or(inputs))?,
            added: pitch.map(|pitch| LtObject::matrix(handle, element, [rows, outputs], pitch)).transpose()?,
            y: LtObject::matrix(handle, element, [rows, outputs], outputs)?,
            algorithm: Algorithm { data: [0; 8] },
            workspace_bytes: 0,
            code: Lazy::default(),
            handle: handle.clone(),
            shape,
        };
        let found = product.ask(workspace.bytes())?;
        product.algorithm = found.algorithm;
        product.workspace_bytes = found.workspace_bytes;
        Ok(product)
    }

    /// The description of the added array.
    fn added(&self) -> Raw {
        self.added.as_ref().unwrap_or(&self.y).raw
    }

    fn ask(&self, workspace_bytes: usize) -> Result<FoundAlgorithm, CudaError> {
        let library = self.handle.0.library;
        let handle = self.handle.0.handle;
        let preference = LtObject::preference(&self.handle, workspace_bytes)?;
        let mut found = FoundAlgorithm {
            algorithm: self.algorithm,
            workspace_bytes: 0,
            status: NOT_SUPPORTED,
            waves: 0.0,
            reserved: [0; 4],
        };
        let mut count = 0;
        let description = self.description.raw;
        let y = self.y.raw;
        self.handle.0.device.call("cuCtxSetCurrent", |_| 0)?;
        let _no_capture = no_capture();
        // SAFETY: all objects are alive; there is room for the one requested answer, and for the number of answers.
        let status = unsafe {
            (library.functions.cublasLtMatmulAlgoGetHeuristic)(
                handle,
                description,
                self.weight.raw,
                self.x.raw,
                self.added(),
                y,
                preference.raw,
                1,
                &mut found,
                &mut count,
            )
        };
        library.check("cublasLtMatmulAlgoGetHeuristic", status)?;
        library.check("cublasLtMatmulAlgoGetHeuristic", if count == 1 { found.status } else { NOT_SUPPORTED })?;
        Ok(found)
    }

    /// The shape it computes.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Bytes of the workspace that it uses.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace_bytes
    }

    /// Enqueues the product on `stream`. Returns at once.
    ///
    /// # Errors
    /// [`CudaError::Misfit`] if an operand is too small or a bias is missing; the library's own errors otherwise.
    pub fn run(&mut self, stream: &Stream, operands: &Operands<'_>) -> Result<(), CudaError> {
        self.check(operands)?;
        let Operands { x, weight, y, workspace, .. } = *operands;
        if let Some(bias) = operands.bias.filter(|_| self.shape.bias) {
            self.description.set(DESC_BIAS_POINTER, &bias.address())?;
        }
        let added = operands.added.unwrap_or(y);
        for buffer in
            [Some(x), Some(weight), Some(added), Some(y), Some(workspace), operands.bias].into_iter().flatten()
        {
            stream.need(buffer.allocation());
        }
        let library = self.handle.0.library;
        let handle = self.handle.0.handle;
        let alpha = operands.alpha;
        let beta = if self.shape.accumulate { 1.0_f32 } else { 0.0 };
        let alpha = std::ptr::from_ref(&alpha).cast();
        let beta = std::ptr::from_ref(&beta).cast();
        let [x, weight, added, y, workspace] = [x, weight, added, y, workspace]
            .map(|buffer| std::ptr::without_provenance_mut::<c_void>(buffer.address() as usize));
        self.code.using(|| {
            let mut status = 0;
            // SAFETY: all objects are alive, the operands are as large as these declare, and the memory that the device
            // uses is freed only afterwards. The factors are read before the call returns.
            stream.device().call("cuCtxSetCurrent", |_| unsafe {
                status = (library.functions.cublasLtMatmul)(
                    handle,
                    self.description.raw,
                    alpha,
                    weight,
                    self.weight.raw,
                    x,
                    self.x.raw,
                    beta,
                    added,
                    self.added(),
                    y,
                    self.y.raw,
                    std::ptr::from_ref(&self.algorithm).cast(),
                    workspace,
                    self.workspace_bytes,
                    stream.handle(),
                );
                0
            })?;
            library.check("cublasLtMatmul", status)
        })
    }

    fn check(&self, operands: &Operands<'_>) -> Result<(), CudaError> {
        let Shape { rows, inputs, outputs, element, bias, accumulate, pitch, .. } = self.shape;
        let bytes = element.bytes();
        operands.x.check_room((rows.saturating_sub(1) * pitch.unwrap_or(inputs) + inputs) * bytes)?;
        match operands.added {
            Some(added) => added.check_room((rows.saturating_sub(1) * pitch.unwrap_or(outputs) + outputs) * bytes)?,
            None if accumulate && pitch.is_some() => {
                return Err(CudaError::Misfit("rows of a larger array are added, and none is given".to_owned()));
            }
            None => {}
        }
        operands.weight.check_room(outputs * inputs * bytes)?;
        operands.y.check_room(rows * outputs * bytes)?;
        operands.workspace.check_room(self.workspace_bytes)?;
        match operands.bias {
            Some(values) => values.check_room(outputs * bytes),
            None if bias => Err(CudaError::Misfit("the product's shape has a bias, its operands have none".to_owned())),
            None => Ok(()),
        }
    }
}

/// One of the library's small host objects, with its destructor.
struct LtObject {
    handle: Handle,
    raw: Raw,
    // SAFETY: a type; `drop` says why the call is sound.
    destroy: unsafe extern "C" fn(Raw) -> Status,
}

impl LtObject {
    fn description(handle: &Handle, shape: Shape, stand_in: &Buffer) -> Result<Self, CudaError> {
        let LtOpened { library, .. } = &*handle.0;
        let compute = if shape.tf32 && shape.element == Element::F32 { COMPUTE_F32_TF32 } else { COMPUTE_F32 };
        let mut raw = Raw::NULL;
        // SAFETY: `raw` is a valid place for the handle.
        let status = unsafe { (library.functions.cublasLtMatmulDescCreate)(&mut raw, compute, SCALE_F32) };
        library.check("cublasLtMatmulDescCreate", status)?;
        let mut description =
            Self { handle: handle.clone(), raw, destroy: library.functions.cublasLtMatmulDescDestroy };
        description.set(DESC_TRANSPOSE_A, &TRANSPOSE)?;
        if shape.bias {
            description.set(DESC_EPILOGUE, &EPILOGUE_BIAS)?;
            // Each run sets its own; until then, the library gets an address with the alignment that they all have.
            description.set(DESC_BIAS_POINTER, &stand_in.address())?;
        }
        Ok(description)
    }

    /// Describes a row-major `[rows, columns]`, whose rows are `pitch` elements apart, for the library.
    fn matrix(handle: &Handle, element: Element, [rows, columns]: [usize; 2], pitch: usize) -> Result<Self, CudaError> {
        let LtOpened { library, .. } = &*handle.0;
        let mut raw = Raw::NULL;
        let height = columns as u64;
        let width = rows as u64;
        let stride = i64::try_from(pitch).unwrap_or(i64::MAX);
        let create = library.functions.cublasLtMatrixLayoutCreate;
        // SAFETY: `raw` is a valid place for the handle; invalid sizes are refused.
        let status = unsafe { create(&mut raw, element.code(), height, width, stride) };
        library.check("cublasLtMatrixLayoutCreate", status)?;
        Ok(Self { handle: handle.clone(), raw, destroy: library.functions.cublasLtMatrixLayoutDestroy })
    }

    fn preference(handle: &Handle, workspace_bytes: usize) -> Result<Self, CudaError> {
        let LtOpened { library, .. } = &*handle.0;
        let mut raw = Raw::NULL;
        // SAFETY: `raw` is a valid place for the handle.
        let status = unsafe { (library.functions.cublasLtMatmulPreferenceCreate)(&mut raw) };
        library.check("cublasLtMatmulPreferenceCreate", status)?;
        let preference =
            Self { handle: handle.clone(), raw, destroy: library.functions.cublasLtMatmulPreferenceDestroy };
        preference.prefer(PREFERENCE_WORKSPACE_BYTES, &workspace_bytes)?;
        preference.prefer(PREFERENCE_REDUCTION_SCHEMES, &REDUCTION_IN_COMPUTE_TYPE)?;
        Ok(preference)
    }

    /// Sets an attribute of a preference.
    fn prefer<T: Copy>(&self, attribute: c_int, value: &T) -> Result<(), CudaError> {
        let library = self.handle.0.library;
        let pointer = std::ptr::from_ref(value).cast();
        let set = library.functions.cublasLtMatmulPreferenceSetAttribute;
        // SAFETY: the preference is alive; the library refuses a value of another size than the attribute's.
        let status = unsafe { set(self.raw, attribute, pointer, size_of::<T>()) };
        library.check("cublasLtMatmulPreferenceSetAttribute", status)
    }

    /// Sets an attribute of a description.
    fn set<T: Copy>(&mut self, attribute: c_int, value: &T) -> Result<(), CudaError> {
        let library = self.handle.0.library;
        let pointer = std::ptr::from_ref(value).cast();
        let set = library.functions.cublasLtMatmulDescSetAttribute;
        // SAFETY: the description is alive; the library refuses a value of another size than the attribute's.
        let status = unsafe { set(self.raw, attribute, pointer, size_of::<T>()) };
        library.check("cublasLtMatmulDescSetAttribute", status)
    }
}

impl Drop for LtObject {
    fn drop(&mut self) {
        // SAFETY: the object is owned. It lies on the host, and the device's work no longer needs it.
        unsafe { (self.destroy)(self.raw) };
    }
}

/// The library of this `release` takes every attribute that a product is described with.
#[cfg(test)]
pub(crate) fn describe_a_product(functions: &Functions, release: usize) {
    let mut description = Raw::NULL;
    let mut layout = Raw::NULL;
    let mut preference = Raw::NULL;
    // SAFETY: each is a valid place for the handle.
    let made = unsafe {
        [
            (functions.cublasLtMatmulDescCreate)(&mut description, COMPUTE_F32, SCALE_F32),
            (functions.cublasLtMatrixLayoutCreate)(&mut layout, Element::Bf16.code(), 384, 257, 384),
            (functions.cublasLtMatmulPreferenceCreate)(&mut preference),
        ]
    };
    assert_eq!(made, [0; 3]);
    let address = 256_u64;
    let bytes = 1_usize << 20;
    let describe = functions.cublasLtMatmulDescSetAttribute;
    let prefer = functions.cublasLtMatmulPreferenceSetAttribute;
    // SAFETY: the objects are alive until they are destroyed, and each value has the given size.
    let taken = unsafe {
        [
            describe(description, DESC_TRANSPOSE_A, std::ptr::from_ref(&TRANSPOSE).cast(), 4),
            describe(description, DESC_EPILOGUE, std::ptr::from_ref(&EPILOGUE_BIAS).cast(), 4),
            describe(description, DESC_BIAS_POINTER, std::ptr::from_ref(&address).cast(), 8),
            prefer(preference, PREFERENCE_WORKSPACE_BYTES, std::ptr::from_ref(&bytes).cast(), 8),
            prefer(preference, PREFERENCE_REDUCTION_SCHEMES, std::ptr::from_ref(&REDUCTION_IN_COMPUTE_TYPE).cast(), 4),
            (functions.cublasLtMatmulDescDestroy)(description),
            (functions.cublasLtMatrixLayoutDestroy)(layout),
            (functions.cublasLtMatmulPreferenceDestroy)(preference),
        ]
    };
    assert_eq!(taken, [0; 8]);
    // SAFETY: no preconditions.
    let version = unsafe { (functions.cublasLtGetVersion)() };
    assert_eq!(version / 10_000, release);
}
