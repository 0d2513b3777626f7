//! The forward on one stream: our kernels, cuBLASLt's products, and memory that is allocated once.

use std::collections::VecDeque;

use foveate_cuda::blaslt::{self, Element, Operands, Product, Shape};
use foveate_cuda::{Buffer, CudaError, Device, Graph, Stream};
use foveate_dinov2::Model;
use foveate_encode::{BATCH_SIZES, EncodeError, EncoderSpec};

use super::geometry::Geometry;
use super::kernels::Kernels;
use super::settings::{Attention, Settings};
use super::unavailable;
use super::weights::{Linear, Weights};

/// Memory for cuBLASLt's intermediate sums: as much as its fastest products on the newest devices request.
const PRODUCT_WORKSPACE: usize = 32 << 20;
/// The number of batch sizes whose plans are kept: as many as a lane submits.
const PLANS: usize = BATCH_SIZES;

/// A model on a device, and the memory for its largest batch.
pub(super) struct Network {
    geometry: Geometry,
    element: Element,
    settings: Settings,
    weights: Weights,
    kernels: Kernels,
    blas: blaslt::Handle,
    memory: Workspace,
    /// Least recently used first.
    plans: VecDeque<Plan>,
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
    products: Buffer,
}

/// The products and the graph for one batch size.
struct Plan {
    images: usize,
    patch: Product,
    qkv: Product,
    output: Product,
    mlp_input: Product,
    mlp_output: Product,
    /// From the patches' product to the last block.
    launch: Launch,
}

/// How a plan's blocks are launched.
enum Launch {
    /// Kernel by kernel: its first batch, which may be the only one of its size.
    First,
    /// Kernel by kernel, and captured for the next ones.
    Second,
    /// Kernel by kernel: graphs are switched off, or the capture failed.
    Plain,
    Graph(Graph),
}

impl Network {
    pub(super) fn new(
        device: &Device,
        model: &Model,
        geometry: Geometry,
        element: Element,
        settings: Settings,
        spec: &EncoderSpec,
    ) -> Result<Self, EncodeError> {
        let refused = |error| unavailable(&spec.device, error);
        let blas = blaslt::Handle::new(device).map_err(refused)?;
        let kernels = Kernels::new(device, element).map_err(refused)?;
        let weights = Weights::new(device, model, &geometry, element, &refused)?;
        let memory = Workspace::new(device, &geometry, element, spec.max_batch).map_err(refused)?;
        Ok(Self { geometry, element, settings, weights, kernels, blas, memory, plans: VecDeque::new() })
    }

    pub(super) fn geometry(&self) -> &Geometry {
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
        let tensor_cores = settings.attention == Attention::Auto;
        let mut blocks = Pass { geometry, weights, kernels, memory, stream, tensor_cores, images };
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
        kernels.pool(stream, geometry, images, &memory.x, &weights.norm, out)
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

    fn new_plan(&self, images: usize) -> Result<Plan, CudaError> {
        let Geometry { padded, tokens, hidden, mlp, .. } = self.geometry;
        let product = |rows: usize, inputs: usize, outputs: usize, bias: bool, accumulate: bool| {
            let (element, tf32) = (self.element, self.settings.tf32);
            let shape = Shape { rows: images * rows, inputs, outputs, element, tf32, bias, accumulate };
            self.blas.plan(shape, &self.memory.products)
        };
        Ok(Plan {
            images,
            patch: product(self.geometry.patches(), padded, hidden, false, false)?,
            qkv: product(tokens, hidden, 3 * hidden, true, false)?,
            output: product(tokens, hidden, hidden, true, true)?,
            mlp_input: product(tokens, hidden, self.geometry.mlp_inputs(), true, false)?,
            mlp_output: product(tokens, mlp, hidden, true, true)?,
            launch: if self.settings.graph { Launch::First } else { Launch::Plain },
        })
    }
}

impl Workspace {
    fn new(device: &Device, geometry: &Geometry, element: Element, max_batch: usize) -> Result<Self, CudaError> {
        let Geometry { padded, tokens, hidden, mlp, swiglu, .. } = *geometry;
        let take = |elements: usize| Buffer::zeroed(device, max_batch * elements * element.bytes());
        let wide = tokens * geometry.mlp_inputs().max(3 * hidden);
        Ok(Self {
            x: take(tokens * hidden)?,
            narrow: take(tokens * hidden)?,
            wide: take(wide.max(geometry.patches() * padded))?,
            gated: swiglu.then(|| take(tokens * mlp)).transpose()?,
            products: Buffer::zeroed(device, PRODUCT_WORKSPACE)?,
        })
    }

    fn bytes(&self) -> usize {
        let parts = [Some(&self.x), Some(&self.narrow), Some(&self.wide), self.gated.as_ref(), Some(&self.products)];
        parts.into_iter().flatten().map(Buffer::bytes).sum()
    }
}

/// One batch's pass from patches to tokens.
struct Pass<'a> {
    geometry: &'a Geometry,
    weights: &'a Weights,
    kernels: &'a Kernels,
    memory: &'a Workspace,
    stream: &'a Stream,
    tensor_cores: bool,
    images: usize,
}

impl Pass<'_> {
    fn run(&mut self, plan: &mut Plan) -> Result<(), CudaError> {
        let Self { geometry, weights, kernels, memory, stream, images, .. } = *self;
        let Workspace { x, narrow, wide, .. } = memory;
        self.product(&mut plan.patch, wide, &weights.patch, None, narrow)?;
        kernels.embed(stream, geometry, images, narrow, &weights.base, x)?;
        (0..weights.blocks.len()).try_for_each(|layer| self.block(plan, layer))
    }

    fn block(&self, plan: &mut Plan, layer: usize) -> Result<(), CudaError> {
        let Self { geometry, kernels, stream, images, tensor_cores, .. } = *self;
        let Workspace { x, narrow, wide, .. } = self.memory;
        let (block, rows) = (&self.weights.blocks[layer], images * geometry.tokens);
        kernels.layer_norm(stream, [rows, geometry.hidden], x, &block.norm1, narrow)?;
        self.linear(&mut plan.qkv, narrow, &block.qkv, wide)?;
        kernels.attention(stream, geometry, images, tensor_cores, wide, narrow)?;
        self.linear(&mut plan.output, narrow, &block.output, x)?;
        kernels.layer_norm(stream, [rows, geometry.hidden], x, &block.norm2, narrow)?;
        self.linear(&mut plan.mlp_input, narrow, &block.mlp_input, wide)?;
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
        self.linear(&mut plan.mlp_output, activated, &block.mlp_output, x)
    }

    fn linear(&self, product: &mut Product, x: &Buffer, layer: &Linear, y: &Buffer) -> Result<(), CudaError> {
        self.product(product, x, &layer.weight, Some(&layer.bias), y)
    }

    fn product(
        &self,
        product: &mut Product,
        x: &Buffer,
        weight: &Buffer,
        bias: Option<&Buffer>,
        y: &Buffer,
    ) -> Result<(), CudaError> {
        product.run(self.stream, &Operands { x, weight, bias, y, workspace: &self.memory.products })
    }
}
