//! The places of the tensors of a PyTorch checkpoint. Such a file is a zip archive of stored members: a pickle that
//! describes the tensors, and the bytes of each storage. candle's reader takes tensors out of the pickle and runs
//! nothing that it names.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use candle_core::pickle::{TensorInfo, read_pth_tensor_info};
use candle_core::{DType, Layout};
use foveate_core::catch_panic;
use rawzip::{CompressionMethod, RECOMMENDED_BUFFER_SIZE, ZipArchive};
use safetensors::Dtype;

use crate::ModelError;
use crate::stored::StoredTensor;

/// The tensors of the file at `path`.
pub(crate) fn tensors(path: &Path) -> Result<Vec<StoredTensor>, ModelError> {
    located_tensors(path).map_err(|problem| ModelError::malformed(path, problem))
}

fn located_tensors(path: &Path) -> Result<Vec<StoredTensor>, String> {
    let infos = catch_panic(|| read_pth_tensor_info(path, false, None));
    let infos = infos.and_then(|infos| infos.map_err(|error| error.to_string()));
    let convert = "convert it with `save_pretrained(..., safe_serialization=True)`";
    let infos = infos.map_err(|why| format!("no checkpoint of PyTorch 1.6 or later ({why}); {convert}"))?;
    let storages = storages(path).map_err(|error| format!("not a zip archive: {error}"))?;
    let mut tensors = Vec::new();
    for info in infos {
        let place = locate(&info, &storages);
        tensors.push(place.map_err(|problem| format!("tensor '{}' {problem}; {convert}", info.name))?);
    }
    Ok(tensors)
}

/// The bytes of every stored member, by name.
fn storages(path: &Path) -> Result<HashMap<String, (u64, u64)>, rawzip::Error> {
    let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
    let archive = ZipArchive::from_file(File::open(path)?, &mut buffer)?;
    let mut members = Vec::new();
    let mut entries = archive.entries(&mut buffer);
    while let Some(entry) = entries.next_entry()? {
        if entry.compression_method() == CompressionMethod::STORE {
            let name = String::from_utf8_lossy(entry.file_path().as_bytes()).into_owned();
            members.push((name, entry.wayfinder()));
        }
    }
    let mut places = HashMap::new();
    for (name, member) in members {
        places.insert(name, archive.get_entry(member)?.compressed_data_range());
    }
    Ok(places)
}

fn locate(info: &TensorInfo, storages: &HashMap<String, (u64, u64)>) -> Result<StoredTensor, String> {
    let layout: &Layout = &info.layout;
    if !layout.is_contiguous() {
        return Err("is not contiguous".to_owned());
    }
    let dtype = match info.dtype {
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F64 => Dtype::F64,
        DType::I64 => Dtype::I64,
        DType::U8 => Dtype::U8,
        other => return Err(format!("is {other:?}")),
    };
    let &(start, end) = storages.get(&info.path).ok_or("has no bytes in the archive")?;
    let bytes = layout.shape().elem_count().checked_mul(info.dtype.size_in_bytes());
    let offset = start.checked_add(layout.start_offset() as u64);
    let last = offset.zip(bytes).and_then(|(offset, bytes)| offset.checked_add(bytes as u64));
    match (offset, last) {
        (Some(offset), Some(last)) if last <= end => {
            Ok(StoredTensor { name: info.name.clone(), offset, dtype, shape: layout.dims().to_vec() })
        }
        _ => Err("reaches beyond its bytes in the archive".to_owned()),
    }
}
