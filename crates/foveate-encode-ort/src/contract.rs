//! A graph's inputs and outputs, inferred from their names, types and shapes.

use foveate_core::{CHANNELS, Size};
use foveate_encode::{DType, Graph, Pooling};
use ort::value::{Outlet, TensorElementType, ValueType};

/// An input or an output.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) element: GraphElement,
    /// `None` for a length that the call decides. Empty if the file does not specify it.
    pub(crate) shape: Vec<Option<usize>>,
}

/// Element types of images and vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GraphElement {
    U8,
    F32,
    F16,
    Bf16,
    Other(&'static str),
}

/// Order of an image's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageLayout {
    /// `[n, 3, h, w]`.
    Planes,
    /// `[n, h, w, 3]`.
    Pixels,
}

/// The input of images.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GraphInput {
    /// Raw samples for u8, normalized ones otherwise.
    pub(crate) element: GraphElement,
    pub(crate) layout: ImageLayout,
    /// The number of images that the graph requires, if it is fixed.
    pub(crate) batch: Option<usize>,
}

/// The output of vectors.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GraphOutput {
    /// Finished vectors, `[n, d]`, to be concatenated.
    Vectors(Vec<Tensor>),
    /// Tokens after the final LayerNorm, `[n, tokens, d]`, the class token first, the patches last.
    Tokens(Tensor),
}

/// A graph's input and output.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Contract {
    pub(crate) input: GraphInput,
    pub(crate) output: GraphOutput,
}

impl Tensor {
    pub(crate) fn new(outlet: &Outlet) -> Self {
        let (element, shape) = match outlet.dtype() {
            ValueType::Tensor { ty, shape, .. } => {
                (GraphElement::new(*ty), shape.iter().map(|&n| usize::try_from(n).ok()).collect())
            }
            _ => (GraphElement::Other("no tensor"), Vec::new()),
        };
        Self { name: outlet.name().to_owned(), element, shape }
    }

    fn is_vectors(&self) -> bool {
        self.element.is_float() && self.shape.len() == 2
    }

    fn is_tokens(&self) -> bool {
        self.element.is_float() && self.shape.len() == 3
    }

    fn refused(&self, problem: &str) -> String {
        format!("its input is {}: {problem}", self.describe())
    }

    /// `pixel_values f32 [?, 3, 224, 224]`.
    fn describe(&self) -> String {
        let lengths = self.shape.iter();
        let shape: Vec<String> =
            lengths.map(|length| length.map_or("?".to_owned(), |length| length.to_string())).collect();
        format!("{} {} [{}]", self.name, self.element.name(), shape.join(", "))
    }
}

impl GraphElement {
    fn new(element: TensorElementType) -> Self {
        match element {
            TensorElementType::Uint8 => Self::U8,
            TensorElementType::Float32 => Self::F32,
            TensorElementType::Float16 => Self::F16,
            TensorElementType::Bfloat16 => Self::Bf16,
            TensorElementType::Float64 => Self::Other("f64"),
            TensorElementType::Int64 => Self::Other("i64"),
            TensorElementType::Int32 => Self::Other("i32"),
            TensorElementType::Int8 => Self::Other("i8"),
            _ => Self::Other("another type"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Other(name) => name,
        }
    }

    fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::Bf16)
    }

    fn dtype(self) -> Option<DType> {
        match self {
            Self::F32 => Some(DType::F32),
            Self::F16 => Some(DType::F16),
            Self::Bf16 => Some(DType::Bf16),
            Self::U8 | Self::Other(_) => None,
        }
    }
}

impl Contract {
    /// Infers the input and output of `graph` from these inputs and outputs, or returns what is wrong with them.
    pub(crate) fn new(graph: &Graph, pooling: Pooling, inputs: &[Tensor], outputs: &[Tensor]) -> Result<Self, String> {
        Ok(Self { input: input(graph.input, inputs)?, output: output(pooling, outputs)? })
    }

    /// The graph's precision, judged by its input and output; the precision in between is not visible.
    pub(crate) fn dtype(&self) -> DType {
        let outputs = self.output.tensors().iter().map(|tensor| tensor.element);
        let reduced =
            outputs.chain([self.input.element]).filter_map(GraphElement::dtype).find(|&dtype| dtype != DType::F32);
        reduced.unwrap_or(DType::F32)
    }
}

impl GraphOutput {
    pub(crate) fn tensors(&self) -> &[Tensor] {
        match self {
            Self::Vectors(tensors) => tensors,
            Self::Tokens(tensor) => std::slice::from_ref(tensor),
        }
    }
}

fn input(size: Size, inputs: &[Tensor]) -> Result<GraphInput, String> {
    let [tensor] = inputs else {
        return Err(format!("it takes {}, and what is needed is one input of images", list(inputs)));
    };
    let &[batch, second, third, fourth] = tensor.shape.as_slice() else {
        return Err(tensor.refused("images have four dimensions, [n, 3, h, w] or [n, h, w, 3]"));
    };
    if !matches!(tensor.element, GraphElement::U8 | GraphElement::F32 | GraphElement::F16) {
        return Err(tensor.refused("images can be given as u8, f32 and f16"));
    }
    if batch == Some(0) {
        return Err(tensor.refused("it takes no images"));
    }
    let height = size.height as usize;
    let width = size.width as usize;
    let [is_planes, is_pixels] = [[CHANNELS, height, width], [height, width, CHANNELS]].map(|needed| {
        [second, third, fourth].into_iter().zip(needed).all(|(found, needed)| found.is_none_or(|found| found == needed))
    });
    // If the shape does not distinguish the two, convention decides.
    let layout = if is_pixels && (!is_planes || tensor.element == GraphElement::U8) {
        ImageLayout::Pixels
    } else if is_planes {
        ImageLayout::Planes
    } else {
        return Err(tensor.refused(&format!(
            "the images are RGB of {size}, as the model's preprocessor_config.json says; change that, or use a graph \
             that was exported for this size"
        )));
    };
    Ok(GraphInput { element: tensor.element, layout, batch })
}

/// Chooses the outputs: finished vectors if the graph has all that are needed, by the names of our own exporter; else
/// tokens, to be pooled here; else a pooler's output. That is the last choice because the poolers of some models do
/// more than select the class token.
fn output(pooling: Pooling, outputs: &[Tensor]) -> Result<GraphOutput, String> {
    fn vectors<'a>(outputs: &'a [Tensor], name: &str) -> Option<&'a Tensor> {
        outputs.iter().find(|tensor| tensor.name == name && tensor.is_vectors())
    }
    let finished: &[&str] = match pooling {
        Pooling::Cls => &["cls"],
        Pooling::Mean => &["patch_mean"],
        Pooling::ClsMean => &["cls", "patch_mean"],
        Pooling::Register => &["register"],
        Pooling::Head => &["head"],
    };
    if let Some(tensors) = finished.iter().map(|name| vectors(outputs, name).cloned()).collect() {
        return Ok(GraphOutput::Vectors(tensors));
    }
    let named = outputs
        .iter()
        .find(|tensor| tensor.name == "last_hidden_state" && (tensor.is_tokens() || tensor.shape.is_empty()));
    let is_of_tokens = !matches!(pooling, Pooling::Register | Pooling::Head);
    if let Some(tokens) = named.or_else(|| only(outputs, Tensor::is_tokens)).filter(|_| is_of_tokens) {
        return Ok(GraphOutput::Tokens(tokens.clone()));
    }
    if matches!(pooling, Pooling::Cls | Pooling::Head)
        && let Some(tensor) = vectors(outputs, "image_embeds")
            .or_else(|| vectors(outputs, "pooler_output"))
            .or_else(|| only(outputs, Tensor::is_vectors))
    {
        return Ok(GraphOutput::Vectors(vec![tensor.clone()]));
    }
    Err(format!(
        "it gives {}, and pooling '{}' needs tokens `last_hidden_state` [n, tokens, d] or vectors {} [n, d]",
        list(outputs),
        pooling.name(),
        finished.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" and ")
    ))
}

/// Returns the tensor that `fits`, if there is exactly one.
fn only(tensors: &[Tensor], fits: impl Fn(&Tensor) -> bool) -> Option<&Tensor> {
    let mut fitting = tensors.iter().filter(|tensor| fits(tensor));
    fitting.next().filter(|_| fitting.next().is_none())
}

fn list(tensors: &[Tensor]) -> String {
    match tensors {
        [] => "nothing".to_owned(),
        tensors => tensors.iter().map(Tensor::describe).collect::<Vec<_>>().join(", "),
    }
}

/// Returns the index of the first patch among `tokens`, which are the class token, registers and one token per patch.
/// The number of `registers` comes from the model's config.json, or else from the tokens that remain for the smallest
/// square patch that divides the input. `None` if the tokens are not such a sequence.
pub(crate) fn first_patch(tokens: usize, registers: Option<usize>, input: Size) -> Option<usize> {
    /// More than any published model has. A larger remainder indicates another architecture.
    const MAX_REGISTERS: usize = 16;
    let width = input.width as usize;
    let height = input.height as usize;
    let sides = (1..=width.min(height)).filter(|side| width.is_multiple_of(*side) && height.is_multiple_of(*side));
    let patches = sides.map(|side| (width / side) * (height / side));
    let mut prefixes = patches.filter_map(|patches| tokens.checked_sub(patches).filter(|&prefix| prefix > 0));
    match registers {
        Some(registers) => prefixes.find(|&prefix| prefix == 1 + registers),
        None => prefixes.next().filter(|&prefix| prefix <= 1 + MAX_REGISTERS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, element: GraphElement, shape: &[usize]) -> Tensor {
        let shape = shape.iter().map(|&length| (length > 0).then_some(length)).collect();
        Tensor { name: name.to_owned(), element, shape }
    }

    const SIZE: Size = Size { width: 224, height: 112 };

    fn input_of(element: GraphElement, shape: &[usize]) -> Result<GraphInput, String> {
        input(SIZE, &[tensor("x", element, shape)])
    }

    #[test]
    fn the_layout_of_images_follows_from_the_shape() {
        let found = |element, shape: &[usize]| input_of(element, shape).map(|input| (input.layout, input.batch));
        assert_eq!(found(GraphElement::F32, &[0, 3, 112, 224]), Ok((ImageLayout::Planes, None)));
        assert_eq!(found(GraphElement::F16, &[4, 3, 0, 0]), Ok((ImageLayout::Planes, Some(4))));
        assert_eq!(found(GraphElement::F32, &[1, 112, 224, 3]), Ok((ImageLayout::Pixels, Some(1))));
        assert_eq!(found(GraphElement::U8, &[0, 0, 0, 3]), Ok((ImageLayout::Pixels, None)));
        assert_eq!(found(GraphElement::U8, &[0, 3, 112, 224]), Ok((ImageLayout::Planes, None)));
        assert_eq!(found(GraphElement::U8, &[0; 4]), Ok((ImageLayout::Pixels, None)));
        assert_eq!(found(GraphElement::F32, &[0; 4]), Ok((ImageLayout::Planes, None)));
    }

    #[test]
    fn other_inputs_are_refused_with_what_they_are() {
        let refusal = |element, shape: &[usize]| input_of(element, shape).unwrap_err();
        assert!(
            refusal(GraphElement::F32, &[0, 3, 518, 518])
                .contains("f32 [?, 3, 518, 518]: the images are RGB of 224x112")
        );
        assert!(refusal(GraphElement::F32, &[0, 3, 224, 112]).contains("RGB of 224x112"));
        assert!(refusal(GraphElement::F32, &[0, 1, 112, 224]).contains("RGB"));
        assert!(refusal(GraphElement::Other("i64"), &[0, 3, 112, 224]).contains("u8, f32 and f16"));
        assert!(refusal(GraphElement::Bf16, &[0, 3, 112, 224]).contains("u8, f32 and f16"));
        assert!(refusal(GraphElement::F32, &[3, 112, 224]).contains("four dimensions"));
        assert!(input(SIZE, &[]).unwrap_err().contains("it takes nothing"));
        let two = [tensor("a", GraphElement::F32, &[0, 3, 0, 0]), tensor("b", GraphElement::Other("i64"), &[1])];
        assert!(input(SIZE, &two).unwrap_err().contains("a f32 [?, 3, ?, ?], b i64 [1]"));
    }

    #[test]
    fn vectors_come_from_our_names_then_tokens_then_a_pooler() {
        let tokens = tensor("last_hidden_state", GraphElement::F32, &[0, 257, 64]);
        let pooler = tensor("pooler_output", GraphElement::F32, &[0, 64]);
        let class = tensor("cls", GraphElement::F32, &[0, 64]);
        let mean = tensor("patch_mean", GraphElement::F32, &[0, 64]);
        let all = [pooler.clone(), tokens.clone(), mean.clone(), class.clone()];
        let vectors =
            |tensors: &[&Tensor]| Ok(GraphOutput::Vectors(tensors.iter().map(|&tensor| tensor.clone()).collect()));
        assert_eq!(output(Pooling::Cls, &all), vectors(&[&class]));
        assert_eq!(output(Pooling::Mean, &all), vectors(&[&mean]));
        assert_eq!(output(Pooling::ClsMean, &all), vectors(&[&class, &mean]));
        assert_eq!(output(Pooling::ClsMean, &all[..3]), Ok(GraphOutput::Tokens(tokens.clone())));
        assert_eq!(output(Pooling::Cls, &all[..2]), Ok(GraphOutput::Tokens(tokens.clone())));
        assert_eq!(output(Pooling::Cls, &all[..1]), vectors(&[&pooler]));
        assert!(
            output(Pooling::Mean, &all[..1]).unwrap_err().contains("pooler_output f32 [?, 64], and pooling 'mean'")
        );
        let other = tensor("output", GraphElement::F16, &[0, 64]);
        assert_eq!(output(Pooling::Cls, std::slice::from_ref(&other)), vectors(&[&other]));
        assert!(output(Pooling::Cls, &[other.clone(), tensor("logits", GraphElement::F32, &[0, 1000])]).is_err());
        assert!(output(Pooling::Cls, &[tensor("ids", GraphElement::Other("i64"), &[0, 64])]).is_err());
    }

    #[test]
    fn the_precision_is_that_of_the_ends() {
        let contract = |input, output: GraphElement| {
            let input = GraphInput { element: input, layout: ImageLayout::Planes, batch: None };
            Contract { input, output: GraphOutput::Tokens(tensor("x", output, &[0, 257, 64])) }.dtype()
        };
        assert_eq!(contract(GraphElement::F32, GraphElement::F32), DType::F32);
        assert_eq!(contract(GraphElement::U8, GraphElement::F32), DType::F32);
        assert_eq!(contract(GraphElement::U8, GraphElement::F16), DType::F16);
        assert_eq!(contract(GraphElement::F16, GraphElement::F32), DType::F16);
        assert_eq!(contract(GraphElement::F32, GraphElement::Bf16), DType::Bf16);
    }

    #[test]
    fn patches_begin_behind_the_registers() {
        let square = Size::square(224);
        for (tokens, registers, first) in [
            (257, None, Some(1)), // patch 14
            (261, None, Some(5)), // patch 14, 4 registers
            (201, None, Some(5)), // patch 16, 4 registers
            (197, None, Some(1)), // patch 16
            (785, None, Some(1)), // patch 8
            (257, Some(0), Some(1)),
            (261, Some(4), Some(5)),
            (261, Some(0), None), // not what config.json says
            (196, None, None),    // patches alone
            (256, None, None),
            (1, None, None),
            (0, None, None),
        ] {
            assert_eq!(first_patch(tokens, registers, square), first, "{tokens} tokens, registers {registers:?}");
        }
        assert_eq!(first_patch(1 + 16 * 8, None, SIZE), Some(1));
        assert_eq!(first_patch(5 + 16 * 8, None, SIZE), Some(5));
    }
}
