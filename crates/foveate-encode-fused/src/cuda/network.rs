//! The forward on one stream: our kernels, cuBLASLt's products, and memory that is allocated once.

use std::collections::VecDeque;

use foveate_cuda::blaslt::{self, Element, Operands, Product, Shape};
use foveate_cuda::{Buffer, CudaError, Device, Graph, Stream};
use foveate_encode::{BATCH_SIZES, EncodeError, EncoderOptions, Pooling};
use foveate_model::Network;
use foveate_model::parts::Parts;

use super::geometry::{BlockSizes, CudaGeometry};
use super::kernels::{CudaKernels, PackedTexts};
use super::settings::{AttentionKernel, CudaSettings};
use super::unavailable;
use super::weights::{CudaBlock, CudaLinear, CudaWeights};

/// Memory for cuBLASLt's intermediate sums: as much as its fastest products on the newest devices request.
const PRODUCT_WORKSPACE: usize = 32 << 20;
/// The number of batch sizes whose plans are kept: as many as a lane submits.
const PLANS: usize = BATCH_SIZES;

/// Fewest rows of texts' products: those of one tile.
const FEWEST_ROWS: usize = 128;

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
    /// Patches' samples, queries with keys and values, the MLP's hidden layer, or the vectors of a projection.
    wide: Buffer,
    /// A gated MLP's product, `[images · tokens, mlp]`.
    gated: Option<Buffer>,
    /// `[images, hidden]`: one token of each image, if the last block leaves no more.
    token: Option<Buffer>,
    products: Buffer,
}

/// The products and the graph for one batch size.
struct ProductPlan {
    images: usize,
    /// The tokens of all images.
    rows: usize,
    /// `None` for texts.
    patch: Option<Product>,
    blocks: BlockProducts,
    /// Of the block that leaves one token per image.
    last: Option<BlockProducts>,
    projection: Option<Product>,
    /// From the patches' product to the tokens, or to the projection.
    launch: Launch,
}

struct BlockProducts {
    qkv: Product,
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
        parts: &Parts<'_>,
        network: &Network,
        geometry: CudaGeometry,
        element: Element,
        settings: CudaSettings,
        options: &EncoderOptions,
    ) -> Result<Self, EncodeError> {
        let refused = |error| unavailable(&options.device, error);
        let blas = blaslt::Handle::new(device).map_err(refused)?;
        let kernels = CudaKernels::new(device, element, geometry.sample).map_err(refused)?;
        let weights = CudaWeights::new(device, parts, network, &geometry, element, &refused)?;
        let memory = Workspace::new(device, &geometry, element, options.max_batch.max(1)).map_err(refused)?;
        Ok(Self { geometry, element, settings, weights, kernels, blas, memory, plans: VecDeque::new() })
    }

    pub(super) fn geometry(&self) -> &CudaGeometry {
        &self.geometry
    }

    /// The workspace's size in bytes.
    pub(super) fn workspace_bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Enqueues the forward of `images` images on `stream`: `pixels` to `out`, f32 rows.
    pub(super) fn forward(
        &mut self,
        stream: &Stream,
        images: usize,
        pixels: &Buffer,
        out: &Buffer,
    ) -> Result<(), CudaError> {
        self.plan(images, images * self.geometry.tokens)?;
        // The memory of pixels and vectors differs from batch to batch, so the first and the last kernel are not part
        // of a graph.
        self.kernels.patchify(stream, &self.geometry, images, pixels, &self.memory.wide)?;
        self.run(stream, images, None, out)
    }

    /// Enqueues the forward of texts on `stream` to `out`, f32 rows.
    pub(super) fn forward_texts(
        &mut self,
        stream: &Stream,
        texts: &PackedTexts<'_>,
        out: &Buffer,
    ) -> Result<(), CudaError> {
        let most = self.memory.x.bytes() / (self.geometry.hidden * self.element.bytes());
        // Batches seldom have the same number of tokens, so their products are padded to a few sizes. What rows beyond
        // the texts hold goes nowhere: attention alone reads other rows, and it stays within a text.
        let rows = texts.rows.next_power_of_two().max(FEWEST_ROWS).min(most);
        self.plan(texts.count.next_power_of_two().min(most / self.geometry.tokens), rows)?;
        self.run(stream, texts.count, Some(texts), out)
    }

    /// Runs the plan that was moved to the end.
    fn run(
        &mut self,
        stream: &Stream,
        images: usize,
        texts: Option<&PackedTexts<'_>>,
        out: &Buffer,
    ) -> Result<(), CudaError> {
        let Self { geometry, settings, weights, kernels, memory, plans, .. } = self;
        // `plan` put it there.
        let Some(plan) = plans.back_mut() else { return Err(CudaError::Misfit(format!("no plan for {images}"))) };
        let tensor_cores = settings.attention == AttentionKernel::Auto;
        let rows = plan.rows;
        let blocks = ForwardPass { geometry, weights, kernels, memory, stream, tensor_cores, images, rows, texts };
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
        if weights.projection.is_some() {
            return kernels.widen_rows(stream, geometry, images, &memory.wide, out);
        }
        match &memory.token {
            None => kernels.pool(stream, geometry, images, texts, &memory.x, &weights.norm, out),
            Some(token) if geometry.pooling == Pooling::Cls => {
                kernels.pool(stream, &geometry.one_token(), images, None, token, &weights.norm, out)
            }
            Some(token) => kernels.widen_rows(stream, geometry, images, token, out),
        }
    }

    /// Moves the plan for `images` with `rows` tokens to the end; makes it first if there is none.
    fn plan(&mut self, images: usize, rows: usize) -> Result<(), CudaError> {
        let plan = match self.plans.iter().position(|plan| plan.images == images && plan.rows == rows) {
            Some(at) => self.plans.remove(at),
            None => None,
        };
        let plan = plan.map_or_else(|| self.new_plan(images, rows), Ok)?;
        if self.plans.len() == PLANS {
            self.plans.pop_front();
        }
        self.plans.push_back(plan);
        Ok(())
    }

    fn new_plan(&self, images: usize, rows: usize) -> Result<ProductPlan, CudaError> {
        let CudaGeometry { padded, hidden, layers, dim, .. } = self.geometry;
        let mut last = None;
        if let Some(block) = &self.weights.last {
            last = Some(self.block_products(rows, images, block.sizes)?);
        }
        let mut projection = None;
        if self.weights.projection.is_some() {
            projection = Some(self.planned(self.shape(images, hidden, CudaGeometry::pitch(dim)))?);
        }
        let patches = images * self.geometry.patches();
        let mut patch = None;
        if patches > 0 {
            patch = Some(self.planned(Shape { bias: false, ..self.shape(patches, padded, hidden) })?);
        }
        Ok(ProductPlan {
            images,
            rows,
            patch,
            blocks: self.block_products(rows, rows, layers)?,
            last,
            projection,
            launch: if self.settings.graph { Launch::First } else { Launch::Plain },
        })
    }

    /// Plans a block of `rows` tokens that goes on behind its attention with `left`: all, or the first of each image.
    fn block_products(&self, rows: usize, left: usize, sizes: BlockSizes) -> Result<BlockProducts, CudaError> {
        let CudaGeometry { tokens, hidden, .. } = self.geometry;
        // The rows that are left are among the others, and so far apart.
        let pitch = (left < rows).then_some(tokens * hidden);
        let output = Shape { accumulate: sizes.is_residual, pitch, ..self.shape(left, hidden, hidden) };
        Ok(BlockProducts {
            qkv: self.planned(self.shape(rows, hidden, 3 * hidden))?,
            output: self.planned(output)?,
            mlp_input: self.planned(self.shape(left, hidden, self.geometry.mlp_inputs(sizes)))?,
            mlp_output: self.planned(Shape { accumulate: true, ..self.shape(left, sizes.mlp, hidden) })?,
        })
    }

    /// A product with a bias.
    fn shape(&self, rows: usize, inputs: usize, outputs: usize) -> Shape {
        let tf32 = self.settings.tf32;
        Shape { rows, inputs, outputs, element: self.element, tf32, bias: true, accumulate: false, pitch: None }
    }

    fn planned(&self, shape: Shape) -> Result<Product, CudaError> {
        self.blas.plan(shape, &self.memory.products)
    }
}

impl Workspace {
    fn new(device: &Device, geometry: &CudaGeometry, element: Element, max_batch: usize) -> Result<Self, CudaError> {
        let CudaGeometry { padded, tokens, hidden, layers, .. } = *geometry;
        let take = |elements: usize| Buffer::zeroed(device, max_batch * elements * element.bytes());
        let wide = [
            geometry.patches() * padded,
            tokens * 3 * hidden,
            tokens * geometry.mlp_inputs(layers),
            geometry.probe.map_or(0, |sizes| sizes.mlp),
            CudaGeometry::pitch(geometry.dim),
        ];
        Ok(Self {
            x: take(tokens * hidden)?,
            narrow: take(tokens * hidden)?,
            wide: take(wide.into_iter().max().unwrap_or(0))?,
            gated: geometry.is_gated().then(|| take(tokens * layers.mlp)).transpose()?,
            token: geometry.leaves_one_token().then(|| take(hidden)).transpose()?,
            products: Buffer::zeroed(device, PRODUCT_WORKSPACE)?,
        })
    }

    fn bytes(&self) -> usize {
        let parts = [&self.x, &self.narrow, &self.wide, &self.products].into_iter();
        parts.chain(&self.gated).chain(&self.token).map(Buffer::bytes).sum()
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
    /// The tokens of all images, or texts' padded.
    rows: usize,
    /// `images` texts, if it is these.
    texts: Option<&'a PackedTexts<'a>>,
}

impl ForwardPass<'_> {
    fn run(&self, plan: &mut ProductPlan) -> Result<(), CudaError> {
        let Self { geometry, weights, kernels, memory, stream, images, texts, .. } = *self;
        let Workspace { x, narrow, wide, token, products, .. } = memory;
        let mut embedded = &weights.patch;
        let patches = Operands {
            x: wide,
            weight: &weights.patch,
            alpha: 1.0,
            bias: None,
            added: None,
            y: narrow,
            workspace: products,
        };
        if let Some(product) = &mut plan.patch {
            product.run(stream, &patches)?;
            embedded = narrow;
        }
        match &weights.stem_norm {
            None => kernels.embed(stream, geometry, images, texts, embedded, &weights.base, x)?,
            Some(norm) => {
                kernels.embed(stream, geometry, images, texts, embedded, &weights.base, wide)?;
                kernels.layer_norm(stream, geometry, self.rows, wide, None, norm, x)?;
            }
        }
        for block in &weights.blocks {
            self.block(&mut plan.blocks, block, geometry.tokens, x)?;
        }
        let token = token.as_ref().unwrap_or(x);
        if let Some((products, block)) = plan.last.as_mut().zip(weights.last.as_ref()) {
            self.block(products, block, 1, token)?;
        }
        if let Some((product, layer)) = plan.projection.as_mut().zip(weights.projection.as_ref()) {
            if geometry.probe.is_some() {
                return self.linear(product, token, layer, None, wide);
            }
            let pooled = texts.map(|texts| texts.pooled);
            kernels.layer_norm(stream, geometry, images, token, pooled, &weights.norm, narrow)?;
            self.linear(product, narrow, layer, None, wide)?;
        }
        Ok(())
    }

    /// A block on the tokens `x`. All go on behind its attention, or one of each image if `left` is 1, to the rows of
    /// `y`.
    fn block(&self, products: &mut BlockProducts, block: &CudaBlock, left: usize, y: &Buffer) -> Result<(), CudaError> {
        let Self { geometry, kernels, stream, images, texts, tensor_cores, .. } = *self;
        let Workspace { x, narrow, wide, gated, .. } = self.memory;
        let BlockSizes { heads, mlp, .. } = block.sizes;
        kernels.layer_norm(stream, geometry, self.rows, x, None, &block.norm1, narrow)?;
        self.linear(&mut products.qkv, narrow, &block.qkv, None, wide)?;
        if let Some(rotary) = &block.rotary {
            kernels.rotate(stream, geometry, images, rotary, wide)?;
        }
        kernels.attention(stream, geometry, heads, [images, left], texts, tensor_cores, wide, narrow)?;
        self.linear(&mut products.output, narrow, &block.output, Some(x), y)?;

        let rows = if left == 1 { images } else { self.rows };
        kernels.layer_norm(stream, geometry, rows, y, None, &block.norm2, narrow)?;
        self.linear(&mut products.mlp_input, narrow, &block.mlp_input, None, wide)?;
        let activated = match gated {
            Some(gated) => {
                kernels.swiglu(stream, [rows, mlp], wide, gated)?;
                gated
            }
            None => {
                kernels.activate(stream, geometry.activation, rows * mlp, wide)?;
                wide
            }
        };
        self.linear(&mut products.mlp_output, activated, &block.mlp_output, None, y)
    }

    /// Computes a layer. `added` is added to its outputs if the product's shape says so; by default, `y` is.
    fn linear(
        &self,
        product: &mut Product,
        x: &Buffer,
        layer: &CudaLinear,
        added: Option<&Buffer>,
        y: &Buffer,
    ) -> Result<(), CudaError> {
        let CudaLinear { weight, alpha, bias } = layer;
        let workspace = &self.memory.products;
        let operands = Operands { x, weight, alpha: *alpha, bias: Some(bias), added, y, workspace };
        product.run(self.stream, &operands)
    }
}
