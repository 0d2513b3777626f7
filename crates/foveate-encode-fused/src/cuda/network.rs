//! The forward on one stream: our kernels, cuBLASLt's products, and memory that is allocated once.

use std::collections::VecDeque;

use foveate_cuda::blaslt::{self, Element, Operands, Product, Shape};
use foveate_cuda::{Buffer, CudaError, Device, Graph, Stream};
use foveate_encode::{BATCH_SIZES, EncodeError, EncoderSpec, Pooling};
use foveate_model::Model;

use super::geometry::CudaGeometry;
use super::kernels::CudaKernels;
use super::settings::{AttentionKernel, CudaSettings};
use super::unavailable;
use super::weights::{CudaBlock, CudaLinear, CudaWeights};

/// Memory for cuBLASLt's intermediate sums: as much as its fastest products on the newest devices request.
const PRODUCT_WORKSPACE: usize = 32 << 20;
/// The number of batch sizes whose plans are kept: as many as a lane submits.
const PLANS: usize = BATCH_SIZES;

/// A model on a device, and the memory for its largest batch.
pub(super) struct CudaNetwork {
    geometry: CudaGeometry,
    element: Element,
    settings: CudaSettings,
    weights: CudaWeights,
    kernels: CudaKernels,
    blas: blaslt::Handle,
    memory: Workspace,
    /// Least recently used first.
    plans: VecDeque<ProductPlan>,
}

/// A batch's intermediate values. Values that are never needed at the same time share memory, in the stream's order.
struct Workspace {
    /// `[images · tokens, hidden]`: the residual stream.
    x: Buffer,
    /// As large: `x` after a LayerNorm, attention's output, or the patches' products.
    narrow: Buffer,
    /// Patches' samples, queries with keys and values, or the MLP's hidden layer.
    wide: Buffer,
    /// SwiGLU's product, `[images · tokens, mlp]`.
    gated: Option<Buffer>,
    /// `[images, hidden]`: the class tokens after the last block, if they are all that is pooled.
    class: Option<Buffer>,
    products: Buffer,
}

/// The products and the graph for one batch size.
struct ProductPlan {
    images: usize,
    patch: Product,
    qkv: Product,
    output: Product,
    mlp_input: Product,
    mlp_output: Product,
    /// For the class tokens alone, if they are all that is pooled.
    last: Option<Last>,
    /// From the patches' product to the last block.
    launch: Launch,
}

/// The products behind the last block's attention, for one row per image.
struct Last {
    /// The workspace's.
    class: Buffer,
    output: Product,
    mlp_input: Product,
    mlp_output: Product,
}

/// The way in which a plan's blocks are launched.
enum Launch {
    /// Kernel by kernel: its first batch, which may be the only one of its size.
    First,
    /// Kernel by kernel, and captured for the next ones.
    Second,
    /// Kernel by kernel: graphs are switched off, or the capture failed.
    Plain,
    Graph(Graph),
}

impl CudaNetwork {
    pub(super) fn new(
        device: &Device,
        model: &Model,
        geometry: CudaGeometry,
        element: Element,
        settings: CudaSettings,
        spec: &EncoderSpec,
    ) -> Result<Self, EncodeError> {
        let refused = |error| unavailable(&spec.device, error);
        let blas = blaslt::Handle::new(device).map_err(refused)?;
        let kernels = CudaKernels::new(device, element).map_err(refused)?;
        let weights = CudaWeights::new(device, model, &geometry, element, &refused)?;
        let memory = Workspace::new(device, &geometry, element, spec.max_batch).map_err(refused)?;
        Ok(Self { geometry, element, settings, weights, kernels, blas, memory, plans: VecDeque::new() })
    }

    pub(super) fn geometry(&self) -> &CudaGeometry {
        &self.geometry
    }

    /// The workspace's size in bytes.
    pub(super) fn workspace_bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Enqueues the forward of `images` images on `stream`: `pixels` u8 to `out`, f32 rows.
    pub(super) fn forward(
        &mut self,
        stream: &Stream,
        images: usize,
        pixels: &Buffer,
        out: &Buffer,
    ) -> Result<(), CudaError> {
        self.plan(images)?;
        let Self { geometry, settings, weights, kernels, memory, plans, .. } = self;
        // `plan` put it there.
        let Some(plan) = plans.back_mut() else { return Err(CudaError::Misfit(format!("no plan for {images}"))) };
        // The memory of pixels and vectors differs from batch to batch, so these two kernels are not part of a graph.
        kernels.patchify(stream, geometry, images, pixels, &memory.wide)?;
        let tensor_cores = settings.attention == AttentionKernel::Auto;
        let mut blocks = ForwardPass { geometry, weights, kernels, memory, stream, tensor_cores, images };
        match &plan.launch {
            Launch::Graph(graph) => graph.launch(stream)?,
            Launch::Plain => blocks.run(plan)?,
            Launch::First => {
                blocks.run(plan)?;
                plan.launch = Launch::Second;
            }
            Launch::Second => {
                blocks.run(plan)?;
                // Capturing costs the host some time, which it has while the device computes this batch. A capture that
                // fails is no error, because the batch was launched already.
                let graph = Graph::capture(stream, || blocks.run(plan));
                plan.launch = graph.map_or(Launch::Plain, Launch::Graph);
            }
        }
        match &memory.class {
            Some(class) => kernels.pool(stream, &geometry.class_alone(), images, class, &weights.norm, out),
            None => kernels.pool(stream, geometry, images, &memory.x, &weights.norm, out),
        }
    }

    /// Moves the plan for `images` to the end; makes it first if there is none.
    fn plan(&mut self, images: usize) -> Result<(), CudaError> {
        let plan = match self.plans.iter().position(|plan| plan.images == images) {
            Some(at) => self.plans.remove(at),
            None => None,
        };
        let plan = plan.map_or_else(|| self.new_plan(images), Ok)?;
        if self.plans.len() == PLANS {
            self.plans.pop_front();
        }
        self.plans.push_back(plan);
        Ok(())
    }

    fn new_plan(&self, images: usize) -> Result<ProductPlan, CudaError> {
        let CudaGeometry { padded, tokens, hidden, mlp, .. } = self.geometry;
        let element = self.element;
        let tf32 = self.settings.tf32;
        let product = |rows, inputs, outputs, bias, accumulate, pitch| {
            let shape = Shape { rows: images * rows, inputs, outputs, element, tf32, bias, accumulate, pitch };
            self.blas.plan(shape, &self.memory.products)
        };
        let last = match &self.memory.class {
            None => None,
            Some(class) => Some(Last {
                class: class.clone(),
                // Its input has the class tokens among the others, so that its rows are far apart.
                output: product(1, hidden, hidden, true, true, Some(tokens * hidden))?,
                mlp_input: product(1, hidden, self.geometry.mlp_inputs(), true, false, None)?,
                mlp_output: product(1, mlp, hidden, true, true, None)?,
            }),
        };
        Ok(ProductPlan {
            last,
            images,
            patch: product(self.geometry.patches(), padded, hidden, false, false, None)?,
            qkv: product(tokens, hidden, 3 * hidden, true, false, None)?,
            output: product(tokens, hidden, hidden, true, true, None)?,
            mlp_input: product(tokens, hidden, self.geometry.mlp_inputs(), true, false, None)?,
            mlp_output: product(tokens, mlp, hidden, true, true, None)?,
            launch: if self.settings.graph { Launch::First } else { Launch::Plain },
        })
    }
}

impl Workspace {
    fn new(device: &Device, geometry: &CudaGeometry, element: Element, max_batch: usize) -> Result<Self, CudaError> {
        let CudaGeometry { padded, tokens, hidden, mlp, swiglu, .. } = *geometry;
        let take = |elements: usize| Buffer::zeroed(device, max_batch * elements * element.bytes());
        let wide = tokens * geometry.mlp_inputs().max(3 * hidden);
        Ok(Self {
            x: take(tokens * hidden)?,
            narrow: take(tokens * hidden)?,
            wide: take(wide.max(geometry.patches() * padded))?,
            gated: swiglu.then(|| take(tokens * mlp)).transpose()?,
            class: (geometry.pooling == Pooling::Cls).then(|| take(hidden)).transpose()?,
            products: Buffer::zeroed(device, PRODUCT_WORKSPACE)?,
        })
    }

    fn bytes(&self) -> usize {
        let parts = [&self.x, &self.narrow, &self.wide, &self.products].into_iter();
        parts.chain(&self.gated).chain(&self.class).map(Buffer::bytes).sum()
    }
}

/// One batch's pass from patches to tokens.
struct ForwardPass<'a> {
    geometry: &'a CudaGeometry,
    weights: &'a CudaWeights,
    kernels: &'a CudaKernels,
    memory: &'a Workspace,
    stream: &'a Stream,
    tensor_cores: bool,
    images: usize,
}

impl ForwardPass<'_> {
    fn run(&mut self, plan: &mut ProductPlan) -> Result<(), CudaError> {
        let Self { geometry, weights, kernels, memory, stream, images, .. } = *self;
        let Workspace { x, narrow, wide, products, .. } = memory;
        let operands = Operands {
            x: wide,
            weight: &weights.patch,
            alpha: 1.0,
            bias: None,
            added: None,
            y: narrow,
            workspace: products,
        };
        plan.patch.run(stream, &operands)?;
        kernels.embed(stream, geometry, images, narrow, &weights.base, x)?;
        let Some((last, before)) = weights.blocks.split_last() else { return Ok(()) };
        before.iter().try_for_each(|block| self.block(plan, block))?;
        match &mut plan.last {
            Some(of_class) => self.last_block(&mut plan.qkv, of_class, last),
            None => self.block(plan, last),
        }
    }

    fn block(&self, plan: &mut ProductPlan, block: &CudaBlock) -> Result<(), CudaError> {
        let rows = self.images * self.geometry.tokens;
        self.attend(&mut plan.qkv, block, self.geometry.tokens)?;
        self.linear(&mut plan.output, &self.memory.narrow, &block.output, &self.memory.x)?;
        self.perceive([&mut plan.mlp_input, &mut plan.mlp_output], block, rows, &self.memory.x)
    }

    /// The last block, of which only the class tokens are needed: their queries attend to all tokens, and the rest is
    /// one row per image, from `x` to `class`.
    fn last_block(&self, qkv: &mut Product, last: &mut Last, block: &CudaBlock) -> Result<(), CudaError> {
        self.attend(qkv, block, 1)?;
        let Workspace { x, narrow, products, .. } = self.memory;
        let CudaLinear { weight, alpha, bias } = &block.output;
        let y = &last.class;
        let operands =
            Operands { x: narrow, weight, alpha: *alpha, bias: Some(bias), added: Some(x), y, workspace: products };
        last.output.run(self.stream, &operands)?;
        self.perceive([&mut last.mlp_input, &mut last.mlp_output], block, self.images, &last.class)
    }

    /// Attention of the first `queries` tokens of each image, and perhaps of some more, from `x` to `narrow`.
    fn attend(&self, qkv: &mut Product, block: &CudaBlock, queries: usize) -> Result<(), CudaError> {
        let Self { geometry, kernels, stream, images, tensor_cores, .. } = *self;
        let Workspace { x, narrow, wide, .. } = self.memory;
        kernels.layer_norm(stream, [images * geometry.tokens, geometry.hidden], x, &block.norm1, narrow)?;
        self.linear(qkv, narrow, &block.qkv, wide)?;
        kernels.attention(stream, geometry, [images, queries], tensor_cores, wide, narrow)
    }

    /// Adds the MLP of `rows` rows of `x` to these.
    fn perceive(
        &self,
        [mlp_input, mlp_output]: [&mut Product; 2],
        block: &CudaBlock,
        rows: usize,
        x: &Buffer,
    ) -> Result<(), CudaError> {
        let Self { geometry, kernels, stream, .. } = *self;
        let Workspace { narrow, wide, .. } = self.memory;
        kernels.layer_norm(stream, [rows, geometry.hidden], x, &block.norm2, narrow)?;
        self.linear(mlp_input, narrow, &block.mlp_input, wide)?;
        let activated = match &self.memory.gated {
            Some(gated) => {
                kernels.swiglu(stream, [rows, geometry.mlp], wide, gated)?;
                gated
            }
            None => {
                kernels.gelu(stream, rows * geometry.mlp, wide)?;
                wide
            }
        };
        self.linear(mlp_output, activated, &block.mlp_output, x)
    }

    fn linear(&self, product: &mut Product, x: &Buffer, layer: &CudaLinear, y: &Buffer) -> Result<(), CudaError> {
        let CudaLinear { weight, alpha, bias } = layer;
        let workspace = &self.memory.products;
        let operands = Operands { x, weight, alpha: *alpha, bias: Some(bias), added: None, y, workspace };
        product.run(self.stream, &operands)
    }
}
