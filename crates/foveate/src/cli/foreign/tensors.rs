//! Tensors of safetensors files.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use half::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use super::args::{ActOnVector, ForeignArgs, IdSource};
use crate::cli::exit::Usage;
use crate::cli::tables::ID_NAMES;

/// Longest header that is read, as in the library.
const MOST_HEADER: u64 = 100_000_000;

/// Reads the only tensor `[n, dim]` of f16, bf16, f32 or f64, or the one that is named, and ids from a tensor `[n]` of
/// whole numbers.
pub(super) fn read(path: &Path, args: &ForeignArgs, act: &mut ActOnVector<'_>) -> anyhow::Result<IdSource> {
    let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
    let mut start = [0; 8];
    file.read_exact(&mut start)?;
    let len = u64::from_le_bytes(start);
    if len > MOST_HEADER {
        bail!("it does not begin like a safetensors file");
    }
    let mut header = start.to_vec();
    file.by_ref().take(len).read_to_end(&mut header)?;
    let metadata: Metadata = serde_json::from_slice(&header[8..]).context("its header is damaged; save it again")?;
    let tensors = metadata.tensors();
    let mut names: Vec<&str> = tensors.keys().map(String::as_str).collect();
    names.sort_unstable();
    let of_name = |name: &str| {
        let found = tensors.get(name).copied();
        found.ok_or_else(|| Usage::from(anyhow!("it has no tensor '{name}'; its tensors are {}", names.join(", "))))
    };
    let vectors = match &args.vector_column {
        Some(name) => of_name(name)?,
        None => {
            let tables: Vec<&str> = names.iter().copied().filter(|name| tensors[*name].shape.len() == 2).collect();
            let [one] = tables.as_slice() else {
                let why = "none or several of its tensors have two dimensions; name one with --vector-column";
                return Err(Usage::from(anyhow!("{why}: {}", names.join(", "))).into());
            };
            of_name(one)?
        }
    };
    let ids = match &args.id_column {
        Some(name) => Some(name.as_str()),
        None if args.ids.is_empty() => ID_NAMES.into_iter().find(|name| tensors.contains_key(*name)),
        None => None,
    };
    let [rows, dim] = vectors.shape[..] else { bail!("the tensor has {} dimensions, not two", vectors.shape.len()) };
    let mut numbers = match ids {
        Some(name) => Some(whole_numbers(&mut file, header.len() as u64, of_name(name)?, rows)?.into_iter()),
        None => None,
    };
    file.seek(SeekFrom::Start(header.len() as u64 + vectors.data_offsets.0 as u64))?;
    let mut bytes = vec![0; (vectors.data_offsets.1 - vectors.data_offsets.0).checked_div(rows).unwrap_or(0)];
    let mut vector = Vec::with_capacity(dim);
    for _ in 0..rows {
        file.read_exact(&mut bytes).context("it ends before its last row; save it again")?;
        vector.clear();
        match vectors.dtype {
            Dtype::F32 => vector.extend(bytes.as_chunks().0.iter().map(|&x| f32::from_le_bytes(x))),
            Dtype::F16 => vector.extend(bytes.as_chunks().0.iter().map(|&x| f16::from_le_bytes(x).to_f32())),
            Dtype::BF16 => vector.extend(bytes.as_chunks().0.iter().map(|&x| bf16::from_le_bytes(x).to_f32())),
            Dtype::F64 => vector.extend(bytes.as_chunks().0.iter().map(|&x| f64::from_le_bytes(x) as f32)),
            other => return Err(Usage::from(anyhow!("vectors of {other:?} cannot be read; save f32")).into()),
        }
        let id = numbers.as_mut().and_then(Iterator::next).map(|number| number.to_string());
        act(id.as_deref(), &vector)?;
    }
    Ok(ids.map_or(IdSource::Numbers(names.join(", ")), |name| IdSource::Column(name.to_owned())))
}

fn whole_numbers(
    file: &mut (impl Read + Seek),
    start: u64,
    tensor: &TensorInfo,
    rows: usize,
) -> anyhow::Result<Vec<i64>> {
    if tensor.shape != [rows] {
        return Err(Usage::from(anyhow!("the ids have the shape {:?} for {rows} vectors", tensor.shape)).into());
    }
    file.seek(SeekFrom::Start(start + tensor.data_offsets.0 as u64))?;
    let mut bytes = vec![0; tensor.data_offsets.1 - tensor.data_offsets.0];
    file.read_exact(&mut bytes)?;
    match tensor.dtype {
        Dtype::I64 => Ok(bytes.as_chunks().0.iter().map(|&x| i64::from_le_bytes(x)).collect()),
        Dtype::I32 => Ok(bytes.as_chunks().0.iter().map(|&x| i32::from_le_bytes(x).into()).collect()),
        other => {
            Err(Usage::from(anyhow!("ids of {other:?} cannot be read; save i64, or name a file with --ids")).into())
        }
    }
}
