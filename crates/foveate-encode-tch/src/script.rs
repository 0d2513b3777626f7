//! TorchScript files: networks with their weights.

use std::ops::Range;
use std::sync::Arc;

use foveate_core::{CHANNELS, PixelBatch, Size};
use foveate_encode::{DType, EncodeError, Graph, GraphSource, Pooling, normalize_nchw};
use tch::{CModule, Device, IValue, Kind, TchError, Tensor};

use crate::cuda::PinnedStaging;
use crate::network::{engine, first_line};

/// A DINOv2 network's name for its tokens after the final LayerNorm.
const TOKENS: &str = "last_hidden_state";

/// A network from a TorchScript file on a device. Clones share it.
#[derive(Clone)]
pub(crate) struct Script {
    module: Arc<CModule>,
    device: Device,
    kind: Kind,
    mean: [f32; 3],
    std: [f32; 3],
    /// Width of the tokens.
    hidden: usize,
    /// The tokens that are patches; `None` if the network returns vectors.
    patches: Option<Range<i64>>,
    /// Normalized samples, `[n, 3, h, w]`.
    samples: Vec<f32>,
}

impl Script {
    /// Reads the file and runs it once, to learn its output's form.
    pub(crate) fn new(graph: &Graph, device: Device, kind: Kind) -> Result<Self, EncodeError> {
        let module = load(graph, device)?;
        check_precision(&module, kind)?;
        let mut script = Self {
            module: Arc::new(module),
            device,
            kind,
            mean: graph.mean,
            std: graph.std,
            hidden: 0,
            patches: None,
            samples: Vec::new(),
        };
        let black = vec![0; graph.input.pixels() as usize * CHANNELS];
        let batch = PixelBatch::new(&black, graph.input)
            .ok_or_else(|| EncodeError::Model(format!("no image is {} pixels", graph.input).into()))?;
        let samples = script.upload(batch, &mut PinnedStaging::default())?;
        let tokens = script.tokens(&samples)?;
        match tokens.size()[..] {
            [1, hidden] => script.hidden = hidden as usize,
            [1, tokens, hidden] => {
                script.hidden = hidden as usize;
                let patches = patches(tokens as usize, graph.input, graph.registers)?;
                script.patches = Some(patches.start as i64..patches.end as i64);
            }
            ref other => {
                return Err(unusable(format!("its output is {other:?}, neither [n, tokens, width] nor [n, width]")));
            }
        }
        Ok(script)
    }

    /// Width of the tokens.
    pub(crate) fn hidden(&self) -> usize {
        self.hidden
    }

    /// Refuses to pool what the network does not return.
    pub(crate) fn check(&self, pooling: Pooling) -> Result<(), EncodeError> {
        let (is_fitting, returned) = match self.patches {
            None => (matches!(pooling, Pooling::Cls | Pooling::Head), "one vector an image, no tokens"),
            Some(_) => (!matches!(pooling, Pooling::Register | Pooling::Head), "tokens, and no vector of its own"),
        };
        if !is_fitting {
            let what = format!("pooling '{}': the file gives {returned}", pooling.name());
            return Err(EncodeError::Unsupported(what));
        }
        Ok(())
    }

    /// Computes the vectors of a batch on the device, `[n, dim]`.
    pub(crate) fn vectors(&mut self, samples: &Tensor, pooling: Pooling) -> Result<Tensor, EncodeError> {
        let tokens = self.tokens(samples)?;
        self.pool(&tokens, pooling).map_err(engine)
    }

    fn pool(&self, tokens: &Tensor, pooling: Pooling) -> Result<Tensor, TchError> {
        let Some(Range { start, end }) = self.patches else { return Ok(tokens.shallow_clone()) };
        let class = tokens.f_select(1, 0)?;
        if pooling == Pooling::Cls {
            return Ok(class);
        }
        let mean = tokens.f_narrow(1, start, end - start)?.f_mean_dim(1, false, Kind::Float)?;
        if pooling == Pooling::Mean {
            return Ok(mean);
        }
        Tensor::f_cat(&[class.f_to_kind(Kind::Float)?, mean], 1)
    }

    /// Copies the batch to the device: normalized, `[n, 3, h, w]`, if that is the host; else as u8, `[n, h, w, 3]`,
    /// which is a quarter of the bytes.
    pub(crate) fn upload(&mut self, batch: PixelBatch<'_>, staging: &mut PinnedStaging) -> Result<Tensor, EncodeError> {
        let Size { width, height } = batch.size();
        let images = batch.len() as i64;
        let channels = CHANNELS as i64;
        let height = i64::from(height);
        let width = i64::from(width);
        if self.device != Device::Cpu {
            let shape = [images, height, width, channels];
            return staging.upload(batch.as_slice(), &shape, self.device).map_err(engine);
        }
        normalize_nchw(batch, self.mean, self.std, &mut self.samples);
        let samples = Tensor::f_from_slice(&self.samples);
        let shape = [images, channels, height, width];
        samples.and_then(|samples| samples.f_view(shape)?.f_to_kind(self.kind)).map_err(engine)
    }

    /// Converts an uploaded batch to the network's input.
    fn normalized(&self, samples: &Tensor) -> Result<Tensor, TchError> {
        if samples.f_kind()? != Kind::Uint8 {
            return Ok(samples.shallow_clone());
        }
        let mut constants = Vec::new();
        // libtorch divides by a tensor, but multiplies by a number's inverse.
        for values in [&[255.0][..], &self.mean, &self.std] {
            constants.push(Tensor::f_from_slice(values)?.f_view([-1, 1, 1])?.f_to(samples.device())?);
        }
        let planes = samples.f_permute([0, 3, 1, 2])?.f_to_kind(Kind::Float)?.f_contiguous()?;
        planes.f_div(&constants[0])?.f_sub(&constants[1])?.f_div(&constants[2])?.f_to_kind(self.kind)
    }

    /// Computes the network's output for a batch: `[n, tokens, width]` or `[n, width]`.
    fn tokens(&mut self, samples: &Tensor) -> Result<Tensor, EncodeError> {
        let output = self.module.forward_is(&[IValue::Tensor(self.normalized(samples).map_err(engine)?)]);
        let tokens = find_tokens(output.map_err(engine)?)?;
        let images = samples.size()[0];
        let rows = tokens.size().first().copied().unwrap_or(0);
        if rows != images {
            return Err(unusable(format!("{images} images give {rows} rows; was it traced with a fixed batch?")));
        }
        Ok(tokens)
    }
}

fn load(graph: &Graph, device: Device) -> Result<CModule, EncodeError> {
    let module = match &graph.source {
        GraphSource::File(path) => CModule::load_on_device(path, device),
        GraphSource::Memory(bytes) => CModule::load_data_on_device(&mut &bytes[..], device),
    };
    let mut module =
        module.map_err(|error| EncodeError::Model(format!("{}: {}", graph.name, first_line(&error)).into()))?;
    module.f_set_eval().map_err(engine)?;
    Ok(module)
}

/// Checks the precision: a file computes in that of its parameters. (A frozen file has none.)
fn check_precision(module: &CModule, kind: Kind) -> Result<(), EncodeError> {
    for (name, parameter) in module.named_parameters().map_err(engine)? {
        let found = parameter.f_kind().map_err(engine)?;
        if found != kind {
            let asked = precision(kind);
            let found = precision(found);
            let what = format!(
                "{asked}: the TorchScript file computes in {found} ('{name}' is); convert the module before saving it"
            );
            return Err(EncodeError::Unsupported(what));
        }
    }
    Ok(())
}

fn precision(kind: Kind) -> &'static str {
    match kind {
        Kind::Float => DType::F32.name(),
        Kind::Half => DType::F16.name(),
        Kind::BFloat16 => DType::Bf16.name(),
        _ => "another type",
    }
}

/// Finds the tokens in a network's output: its only tensor, the first of several, or the one of that name.
fn find_tokens(output: IValue) -> Result<Tensor, EncodeError> {
    match output {
        IValue::Tensor(tensor) => Ok(tensor),
        IValue::TensorList(tensors) => first(tensors),
        IValue::Tuple(values) | IValue::GenericList(values) => find_tokens(first(values)?),
        IValue::GenericDict(entries) => {
            let named = entries.into_iter().find(|(key, _)| *key == IValue::String(TOKENS.to_owned()));
            let (_, value) =
                named.ok_or_else(|| unusable(format!("its outputs have names, and none is '{TOKENS}'")))?;
            find_tokens(value)
        }
        _ => Err(unusable("its output is neither a tensor, nor a tuple, list or dictionary of tensors".to_owned())),
    }
}

fn first<T>(values: Vec<T>) -> Result<T, EncodeError> {
    values.into_iter().next().ok_or_else(|| unusable("its output is empty".to_owned()))
}

/// Returns the range of patches among `tokens`: the last ones, behind the class token and the registers. If the number
/// of registers is unknown, the patches are the finest grid of square ones that fits.
fn patches(tokens: usize, input: Size, registers: Option<usize>) -> Result<Range<usize>, EncodeError> {
    let grids = (1..=input.width.min(input.height))
        .filter(|&side| input.width.is_multiple_of(side) && input.height.is_multiple_of(side));
    let mut grids = grids.map(|side| (input.width / side) as usize * (input.height / side) as usize);
    let count = match registers {
        Some(registers) => tokens.checked_sub(1 + registers).filter(|&count| count > 0),
        None => grids.find(|&count| count < tokens),
    };
    let count = count.ok_or_else(|| unusable(format!("{tokens} tokens are too few for an image of {input}")))?;
    Ok(tokens - count..tokens)
}

fn unusable(problem: String) -> EncodeError {
    EncodeError::Model(format!("the TorchScript file cannot be used: {problem}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_are_the_last_tokens() {
        let square = Size::square(224);
        assert_eq!(patches(257, square, Some(0)).unwrap(), 1..257);
        assert_eq!(patches(257, square, None).unwrap(), 1..257);
        assert_eq!(patches(261, square, None).unwrap(), 5..261);
        assert_eq!(patches(261, square, Some(4)).unwrap(), 5..261);
        // The given number wins over the inferred one.
        assert_eq!(patches(261, square, Some(64)).unwrap(), 65..261);
        assert_eq!(patches(22, Size::new(98, 42), None).unwrap(), 1..22);
        assert!(patches(4, square, Some(3)).is_err());
        assert!(patches(1, square, None).is_err());
    }

    #[test]
    fn tokens_are_found_in_every_kind_of_output() {
        let tensor = |value: i64| IValue::Tensor(Tensor::from_slice(&[value]));
        let found = |output| find_tokens(output).map(|tensor| i64::try_from(&tensor).unwrap());
        assert_eq!(found(tensor(1)).unwrap(), 1);
        assert_eq!(found(IValue::Tuple(vec![tensor(2), tensor(3)])).unwrap(), 2);
        assert_eq!(found(IValue::GenericList(vec![tensor(4), tensor(5)])).unwrap(), 4);
        assert_eq!(found(IValue::TensorList(vec![Tensor::from_slice(&[6i64])])).unwrap(), 6);
        let named = |name: &str, value| (IValue::String(name.to_owned()), tensor(value));
        let outputs = vec![named("pooler_output", 7), named(TOKENS, 8)];
        assert_eq!(found(IValue::GenericDict(outputs)).unwrap(), 8);
        assert!(found(IValue::GenericDict(vec![named("pooler_output", 7)])).is_err());
        assert!(found(IValue::Tuple(vec![])).is_err());
        assert!(found(IValue::Int(3)).is_err());
    }
}
