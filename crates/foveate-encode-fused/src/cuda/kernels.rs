//! Our kernels. A function around each checks what the compiler cannot: that every block stays within its buffers.

use foveate_core::SampleType;
use foveate_cuda::blaslt::Element;
use foveate_cuda::{Arg, Buffer, CudaError, Device, Kernel, Module, Stream};
use foveate_encode::Pooling;
use foveate_model::Activation;

use super::geometry::CudaGeometry;

/// The kernels for compute capability 8.0 and every later device, gzipped PTX.
const PTX: [&[u8]; 3] = [
    include_bytes!("../../kernels/forward.f32.sm_80.ptx.gz"),
    include_bytes!("../../kernels/forward.f16.sm_80.ptx.gz"),
    include_bytes!("../../kernels/forward.bf16.sm_80.ptx.gz"),
];
/// The kernels for compute capability 7.5, which lacks bfloat16.
const OLD_PTX: [&[u8]; 2] = [
    include_bytes!("../../kernels/forward.f32.sm_75.ptx.gz"),
    include_bytes!("../../kernels/forward.f16.sm_75.ptx.gz"),
];

/// The head width that the tensor cores' attention supports.
pub(super) const TENSOR_HEAD: usize = 64;

/// The kernels for one element type, compiled for a device. Their arrays are row-major; `kernels/forward.cu` documents
/// each computation. `x` is of the element type, factors and offsets are f32.
pub(super) struct CudaKernels {
    element: Element,
    patchify: Kernel,
    embed: Kernel,
    layer_norm: Kernel,
    activate: Kernel,
    swiglu: Kernel,
    rotate: Kernel,
    attention: Kernel,
    /// Only for the element types that tensor cores multiply.
    attention_mma: Option<Kernel>,
    pool: Kernel,
    widen_rows: Kernel,
}

/// A LayerNorm's factors and offsets.
pub(super) struct CudaNorm {
    pub(super) scale: Buffer,
    pub(super) shift: Buffer,
    pub(super) eps: f32,
}

/// The rotation of patches' queries and keys, f32: see [`foveate_model::RotaryTable`].
#[derive(Clone)]
pub(super) struct CudaRotary {
    /// `[patches, half]`.
    pub(super) cos: Buffer,
    pub(super) sin: Buffer,
    pub(super) half: usize,
}

/// Texts on the device, one behind the other: i32. Each has 1 to `tokens` tokens, and every id is below the vocabulary.
pub(super) struct PackedTexts<'a> {
    /// `[rows]`.
    pub(super) ids: &'a Buffer,
    /// `[count + 1]`: each text's first row, and the end of the last one.
    pub(super) starts: &'a Buffer,
    /// `[count]`: the rows of the pooled tokens, if it is one of each text.
    pub(super) pooled: &'a Buffer,
    pub(super) count: usize,
    pub(super) rows: usize,
}

/// Elements that a block of `activate` and `swiglu` computes.
const ACTIVATIONS: usize = 2048;
/// Queries that a block of either attention computes.
const QUERIES: usize = 64;
/// Rows that a block of `layer_norm` computes.
const NORMS: usize = 4;

impl CudaKernels {
    /// Loads the kernels for one element type, and for pixels of one type.
    pub(super) fn new(device: &Device, element: Element, sample: SampleType) -> Result<Self, CudaError> {
        let (suffix, ptx, old) = match element {
            Element::F32 => ("f32", PTX[0], OLD_PTX[0]),
            Element::F16 => ("f16", PTX[1], OLD_PTX[1]),
            // A device that lacks it does not take its kernels.
            Element::Bf16 => ("bf16", PTX[2], PTX[2]),
        };
        let module = Module::from_gzip(device, if device.compute_capability() < (8, 0) { old } else { ptx })?;
        let kernel = |name: &str| module.kernel(&format!("{name}_{suffix}"));
        Ok(Self {
            element,
            patchify: kernel(match sample {
                SampleType::U8 => "patchify",
                SampleType::F32 => "patchify_f32",
            })?,
            embed: kernel("embed")?,
            layer_norm: kernel("layer_norm")?,
            activate: kernel("activate")?,
            swiglu: kernel("swiglu")?,
            rotate: kernel("rotate")?,
            attention: kernel("attention")?,
            attention_mma: if element == Element::F32 { None } else { Some(kernel("attention_mma")?) },
            pool: kernel("pool")?,
            widen_rows: kernel("widen_rows")?,
        })
    }

    /// Converts `pixels` `[images, height, width, 3]`, u8 or f32, to `patches` `[images · patches, padded]`.
    pub(super) fn patchify(
        &self,
        stream: &Stream,
        geometry: &CudaGeometry,
        images: usize,
        pixels: &Buffer,
        patches: &Buffer,
    ) -> Result<(), CudaError> {
        let CudaGeometry { rows, columns, patch, padded, .. } = *geometry;
        check(pixels, images * geometry.image_bytes())?;
        self.check(patches, images * rows * columns * padded)?;
        let args = [Arg::Buffer(pixels), Arg::Buffer(patches), int(rows)?, int(columns)?, int(patch)?, int(padded)?];
        let grid = [size(rows * columns)?, size(images)?, 1];
        // SAFETY: these are its arguments; it reads every pixel and writes every element of what was checked above.
        unsafe { self.patchify.launch(stream, grid, 128, &args) }
    }

    /// Adds `patches` `[images · patches, hidden]` and `base` `[tokens, hidden]` into `x` `[images · tokens, hidden]`.
    /// For texts, `patches` are the words, `[vocabulary, hidden]`.
    #[allow(clippy::too_many_arguments)] // the kernel's own
    pub(super) fn embed(
        &self,
        stream: &Stream,
        geometry: &CudaGeometry,
        images: usize,
        texts: Option<&PackedTexts<'_>>,
        patches: &Buffer,
        base: &Buffer,
        x: &Buffer,
    ) -> Result<(), CudaError> {
        let CudaGeometry { tokens, prefix, hidden, .. } = *geometry;
        if texts.is_none() {
            self.check(patches, images * (tokens - prefix) * hidden)?;
        }
        check(base, tokens * hidden * size_of::<f32>())?;
        self.check(x, images * tokens * hidden)?;
        let args = [
            Arg::Buffer(patches),
            Arg::Buffer(base),
            texts.map_or(Arg::Null, |texts| Arg::Buffer(texts.ids)),
            starts_of(texts),
            Arg::Buffer(x),
            int(tokens)?,
            int(prefix)?,
            int(hidden)?,
        ];
        // SAFETY: these are its arguments; a block reads and writes one token's row of what was checked above, or the
        // row of a word.
        unsafe { self.embed.launch(stream, [size(tokens)?, size(images)?, 1], 128, &args) }
    }

    /// Normalizes `x` `[rows, hidden]` into `y` of the same shape; or from a larger `x` the rows that are `taken`, i32
    /// `[rows]`.
    #[allow(clippy::too_many_arguments)] // the kernel's own
    pub(super) fn layer_norm(
        &self,
        stream: &Stream,
        geometry: &CudaGeometry,
        rows: usize,
        x: &Buffer,
        taken: Option<&Buffer>,
        norm: &CudaNorm,
        y: &Buffer,
    ) -> Result<(), CudaError> {
        let CudaGeometry { width, hidden, .. } = *geometry;
        self.check(x, rows * hidden)?;
        self.check(y, rows * hidden)?;
        norm.check(hidden)?;
        let args = [
            Arg::Buffer(x),
            Arg::Buffer(&norm.scale),
            Arg::Buffer(&norm.shift),
            Arg::Buffer(y),
            taken.map_or(Arg::Null, Arg::Buffer),
            int(rows)?,
            int(width)?,
            int(hidden)?,
            Arg::F32(norm.eps),
        ];
        // SAFETY: these are its arguments; warps beyond `rows` do nothing, the others stay in their row. Texts' pooled
        // rows are among those of `x`.
        unsafe { self.layer_norm.launch(stream, [size(rows.div_ceil(NORMS))?, 1, 1], 128, &args) }
    }

    /// Applies an activation that is not gated to `x` `[count]` in place; `count` is a multiple of 8.
    pub(super) fn activate(
        &self,
        stream: &Stream,
        activation: Activation,
        count: usize,
        x: &Buffer,
    ) -> Result<(), CudaError> {
        self.check(x, count)?;
        let function = match activation {
            Activation::Gelu | Activation::GatedSilu => 0,
            Activation::GeluTanh => 1,
            Activation::QuickGelu => 2,
            Activation::Relu => 3,
        };
        let args = [Arg::Buffer(x), long(count)?, Arg::I32(function)];
        // SAFETY: these are its arguments; threads beyond `count` do nothing.
        unsafe { self.activate.launch(stream, [size(count.div_ceil(ACTIVATIONS))?, 1, 1], 256, &args) }
    }

    /// Gates `x` `[rows, 2 · mlp]` into `y` `[rows, mlp]`; `mlp` is a multiple of 8.
    pub(super) fn swiglu(
        &self,
        stream: &Stream,
        [rows, mlp]: [usize; 2],
        x: &Buffer,
        y: &Buffer,
    ) -> Result<(), CudaError> {
        self.check(x, rows * 2 * mlp)?;
        self.check(y, rows * mlp)?;
        let args = [Arg::Buffer(x), Arg::Buffer(y), long(rows)?, int(mlp)?];
        let grid = [size((rows * mlp).div_ceil(ACTIVATIONS))?, 1, 1];
        // SAFETY: these are its arguments; threads beyond `rows · mlp` do nothing.
        unsafe { self.swiglu.launch(stream, grid, 256, &args) }
    }

    /// Rotates the queries and keys of patches in `qkv` `[images · tokens, 3, heads, dim]` in place.
    pub(super) fn rotate(
        &self,
        stream: &Stream,
        geometry: &CudaGeometry,
        images: usize,
        rotary: &CudaRotary,
        qkv: &Buffer,
    ) -> Result<(), CudaError> {
        let CudaGeometry { tokens, prefix, hidden, layers, .. } = *geometry;
        let dim = hidden / layers.heads;
        self.check(qkv, images * tokens * 3 * hidden)?;
        check(&rotary.cos, geometry.patches() * rotary.half * size_of::<f32>())?;
        check(&rotary.sin, geometry.patches() * rotary.half * size_of::<f32>())?;
        let args = [
            Arg::Buffer(qkv),
            Arg::Buffer(&rotary.cos),
            Arg::Buffer(&rotary.sin),
            int(tokens)?,
            int(prefix)?,
            int(layers.heads)?,
            int(dim)?,
            int(rotary.half)?,
        ];
        let grid = [size(tokens - prefix)?, size(images)?, 1];
        // SAFETY: these are its arguments; a block stays in the heads of one token of what was checked above.
        unsafe { self.rotate.launch(stream, grid, 128, &args) }
    }

    /// Computes attention from `qkv` `[images · tokens, 3, heads, dim]` to `out` `[images · tokens, heads, dim]`, for
    /// the first `queries` tokens of each image, or each of the texts, at least. It uses tensor cores if `tensor_cores`
    /// is set and they support the shape.
    #[allow(clippy::too_many_arguments)] // the kernel's own
    pub(super) fn attention(
        &self,
        stream: &Stream,
        geometry: &CudaGeometry,
        heads: usize,
        [images, queries]: [usize; 2],
        texts: Option<&PackedTexts<'_>>,
        tensor_cores: bool,
        qkv: &Buffer,
        out: &Buffer,
    ) -> Result<(), CudaError> {
        let CudaGeometry { tokens, width, hidden, causal, .. } = *geometry;
        let dim = hidden / heads;
        self.check(qkv, images * tokens * 3 * hidden)?;
        self.check(out, images * tokens * hidden)?;
        let (kernel, has_dim) = match &self.attention_mma {
            Some(kernel) if tensor_cores && dim == TENSOR_HEAD => (kernel, false),
            _ => (&self.attention, true),
        };
        let scale = Arg::F32(1.0 / ((width / heads) as f32).sqrt());
        let qkv = Arg::Buffer(qkv);
        let out = Arg::Buffer(out);
        let starts = starts_of(texts);
        let tokens_arg = int(tokens)?;
        let heads_arg = int(heads)?;
        let causal = Arg::I32(causal.into());
        let with_dim = [qkv, out, starts, tokens_arg, heads_arg, int(dim)?, causal, scale];
        let without = [qkv, out, starts, tokens_arg, heads_arg, causal, scale];
        let args = if has_dim { &with_dim[..] } else { &without[..] };
        let grid = [size(queries.div_ceil(QUERIES))?, size(heads)?, size(images)?];
        // SAFETY: these are the chosen kernel's arguments; queries and keys beyond `tokens`, or a text's end, are
        // neither read nor written, the others stay in their image and head.
        unsafe { kernel.launch(stream, grid, 128, args) }
    }

    /// Pools `x` `[images · tokens, hidden]` after the last LayerNorm to f32 rows `[images, vector]`; or each of the
    /// texts.
    #[allow(clippy::too_many_arguments)] // the kernel's own
    pub(super) fn pool(
        &self,
        stream: &Stream,
        geometry: &CudaGeometry,
        images: usize,
        texts: Option<&PackedTexts<'_>>,
        x: &Buffer,
        norm: &CudaNorm,
        out: &Buffer,
    ) -> Result<(), CudaError> {
        let CudaGeometry { tokens, prefix, width, hidden, pooling, token, dim, .. } = *geometry;
        self.check(x, images * tokens * hidden)?;
        norm.check(hidden)?;
        check(out, images * dim * size_of::<f32>())?;
        let mode = match pooling {
            Pooling::Cls | Pooling::Register | Pooling::Head => 0,
            Pooling::Mean => 1,
            Pooling::ClsMean => 2,
        };
        let args = [
            Arg::Buffer(x),
            Arg::Buffer(&norm.scale),
            Arg::Buffer(&norm.shift),
            Arg::Buffer(out),
            starts_of(texts),
            int(tokens)?,
            int(prefix)?,
            int(width)?,
            int(hidden)?,
            int(token)?,
            Arg::I32(mode),
            Arg::F32(norm.eps),
        ];
        // SAFETY: these are its arguments; a block reads one image's tokens and writes one row of what was checked
        // above.
        unsafe { self.pool.launch(stream, [size(images)?, 1, 1], 256, &args) }
    }

    /// Converts `x` `[images, vector]`, rows padded, to f32 rows `[images, vector]`.
    pub(super) fn widen_rows(
        &self,
        stream: &Stream,
        geometry: &CudaGeometry,
        images: usize,
        x: &Buffer,
        out: &Buffer,
    ) -> Result<(), CudaError> {
        let pitch = CudaGeometry::pitch(geometry.dim);
        self.check(x, images * pitch)?;
        check(out, images * geometry.dim * size_of::<f32>())?;
        let args = [Arg::Buffer(x), Arg::Buffer(out), int(geometry.dim)?, int(pitch)?];
        // SAFETY: these are its arguments; a block reads and writes one row of what was checked above.
        unsafe { self.widen_rows.launch(stream, [size(images)?, 1, 1], 128, &args) }
    }

    fn check(&self, buffer: &Buffer, elements: usize) -> Result<(), CudaError> {
        check(buffer, elements * self.element.bytes())
    }
}

impl CudaNorm {
    fn check(&self, width: usize) -> Result<(), CudaError> {
        check(&self.scale, width * size_of::<f32>())?;
        check(&self.shift, width * size_of::<f32>())
    }
}

fn check(buffer: &Buffer, bytes: usize) -> Result<(), CudaError> {
    if bytes <= buffer.bytes() {
        return Ok(());
    }
    Err(CudaError::Misfit(format!("a kernel needs {bytes} bytes of a buffer that has {}", buffer.bytes())))
}

fn starts_of<'a>(texts: Option<&PackedTexts<'a>>) -> Arg<'a> {
    texts.map_or(Arg::Null, |texts| Arg::Buffer(texts.starts))
}

fn int(value: usize) -> Result<Arg<'static>, CudaError> {
    i32::try_from(value).map(Arg::I32).map_err(|_| too_large(value))
}

fn long(value: usize) -> Result<Arg<'static>, CudaError> {
    i64::try_from(value).map(Arg::I64).map_err(|_| too_large(value))
}

fn size(value: usize) -> Result<u32, CudaError> {
    u32::try_from(value).map_err(|_| too_large(value))
}

fn too_large(value: usize) -> CudaError {
    CudaError::Misfit(format!("{value} is too large for a kernel"))
}
