use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use half::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::Metadata;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::hash::{hex, sha256_of};
use crate::layout::NameTable;
use crate::parts::transposed;
use crate::stored::StoredTensor;
use crate::{ModelError, Network, TensorSpec, Weights};

/// The single file of an unsharded checkpoint.
pub(crate) const SINGLE_FILE: &str = "model.safetensors";
/// The config of a model in open_clip's layout.
pub(crate) const OPEN_CLIP_CONFIG: &str = "open_clip_config.json";
/// The weights of such a model.
pub(crate) const OPEN_CLIP_FILE: &str = "open_clip_model.safetensors";
/// The list of shards of a sharded checkpoint.
pub(crate) const INDEX_FILE: &str = "model.safetensors.index.json";

/// The same in PyTorch's format, which is read if there are no safetensors and the crate has the feature `pickle`.
const PICKLE_FILE: &str = "pytorch_model.bin";
const PICKLE_INDEX_FILE: &str = "pytorch_model.bin.index.json";

/// The format's own limit on a header.
const MAX_HEADER: u64 = 100_000_000;
/// Bytes read at a time, so that loading needs little more memory than the tensor itself.
const READ_BYTES: usize = 1 << 18;
/// The first bytes of the pointer file that a clone without git-lfs has in place of the weights.
const LFS_POINTER: &[u8; 8] = b"version ";
/// The tensors of one or several files in safetensors' or PyTorch's format, read on demand.
///
/// The files stay open, and each tensor is read at its offset. There is no memory map, hence no `unsafe`, and a
/// truncated file cannot invalidate a page. f16 and bf16 are widened to f32.
pub struct Checkpoint {
    files: Vec<WeightFile>,
    /// What the files have, by their own names without prefix.
    stored: HashMap<String, Location>,
    /// What the network has, by its names.
    tensors: HashMap<String, TensorPlace>,
    hash: String,
}

struct WeightFile {
    path: PathBuf,
    file: Mutex<File>,
    sha256: String,
}

/// The place of a tensor of the network.
struct TensorPlace {
    /// Laid one behind the other.
    parts: Vec<Location>,
    shape: Vec<usize>,
    /// True if the file has rows for columns.
    is_transposed: bool,
}

/// The location of a tensor in a file, or of some of its rows.
#[derive(Clone)]
struct Location {
    file: usize,
    offset: u64,
    dtype: Dtype,
    shape: Vec<usize>,
}

impl Checkpoint {
    /// Opens the weights in `folder`: `model.safetensors`, or the shards that `model.safetensors.index.json` lists;
    /// with the feature `pickle` and without these, `pytorch_model.bin` or the shards of its index. Reads the files
    /// once, for their hash.
    ///
    /// # Errors
    /// [`ModelError::Read`] and [`ModelError::Malformed`] if a file is missing, truncated or of another format, or if
    /// the index and the shards disagree. The tensors must be those of `network`: none missing, none of another shape
    /// or of a dtype other than f32, f16 and bf16, and no unknown ones of the model's own. Others are ignored.
    pub(crate) fn open(folder: &Path, network: &Network, layout: &NameTable) -> Result<Self, ModelError> {
        let mut checkpoint =
            Self { files: Vec::new(), stored: HashMap::new(), tensors: HashMap::new(), hash: String::new() };
        let names = [SINGLE_FILE, INDEX_FILE, OPEN_CLIP_FILE, PICKLE_FILE, PICKLE_INDEX_FILE];
        let Some(name) = names.into_iter().find(|name| folder.join(name).exists()) else {
            let problem = format!("no weights: none of {} is there", names.join(", "));
            return Err(ModelError::malformed(folder, problem));
        };
        let path = folder.join(name);
        match name {
            INDEX_FILE | PICKLE_INDEX_FILE => checkpoint.add_shards(folder, &path, layout)?,
            _ => checkpoint.add_file(&path, layout)?,
        }
        checkpoint.place_all(network, layout, &path)?;
        checkpoint.hash_files()?;
        Ok(checkpoint)
    }

    /// The checkpoint's files, with the SHA-256 of each.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.files.iter().map(|file| (file.path.as_path(), file.sha256.as_str()))
    }

    /// Reads a tensor of one value that is no part of the network. `None` if the files lack it.
    pub(crate) fn scalar(&self, name: &str) -> Result<Option<f32>, ModelError> {
        let Some(location) = self.stored.get(name) else { return Ok(None) };
        self.check_tensor(location, name, &[])?;
        Ok(self.read_part(name, location)?.first().copied())
    }

    fn add_shards(&mut self, folder: &Path, index: &Path, layout: &NameTable) -> Result<(), ModelError> {
        let weight_map = read_weight_map(index)?;
        let shards: BTreeSet<&String> = weight_map.values().collect();
        for shard in shards {
            self.add_file(&folder.join(shard), layout)?;
        }
        for (name, shard) in &weight_map {
            let found = self.stored.get(layout.strip(name)).map(|place| &self.files[place.file].path);
            if found.is_none_or(|path| *path != folder.join(shard)) {
                let problem = format!("'{name}' is not in {shard}, where the index says it is; fetch the model again");
                return Err(ModelError::malformed(index, problem));
            }
        }
        Ok(())
    }

    fn add_file(&mut self, path: &Path, layout: &NameTable) -> Result<(), ModelError> {
        let mut file = File::open(path).map_err(|cause| ModelError::read(path, cause))?;
        refuse_pointer(&mut file, path)?;
        let tensors = match path.extension() {
            Some(extension) if extension == "bin" => of_pickle(path)?,
            _ => of_safetensors(&mut file, path)?,
        };
        for StoredTensor { name, offset, dtype, shape } in tensors {
            let location = Location { file: self.files.len(), offset, dtype, shape };
            if self.stored.insert(layout.strip(&name).to_owned(), location).is_some() {
                return Err(ModelError::malformed(path, format!("tensor '{name}' is in the checkpoint twice")));
            }
        }
        self.files.push(WeightFile { path: path.to_owned(), file: Mutex::new(file), sha256: String::new() });
        Ok(())
    }

    /// Finds every tensor of `network`, and refuses a checkpoint that has others or more. `path` is for messages.
    fn place_all(&mut self, network: &Network, layout: &NameTable, path: &Path) -> Result<(), ModelError> {
        let mut known = BTreeSet::new();
        for spec in network.tensors() {
            let place = self.place(&spec, layout, path, &mut known)?;
            self.tensors.extend(place.map(|place| (spec.name, place)));
        }
        let own = self.stored.keys().filter(|name| layout.is_own(name));
        // The smallest name, so that the message does not depend on a hash table's order.
        match own.filter(|name| !known.contains(name.as_str())).min() {
            Some(extra) => {
                let problem = format!(
                    "tensor '{extra}' has no place in the model that the config describes; are the two of one model?"
                );
                Err(ModelError::malformed(path, problem))
            }
            None => Ok(()),
        }
    }

    /// Finds one tensor, and adds the names that it has in the file to `known`. `None` if it may be missing, and is.
    fn place(
        &self,
        spec: &TensorSpec,
        layout: &NameTable,
        path: &Path,
        known: &mut BTreeSet<String>,
    ) -> Result<Option<TensorPlace>, ModelError> {
        let stored = layout.find(&spec.name);
        let mut shape = spec.shape.clone();
        if stored.is_transposed {
            shape.reverse();
        }
        // A part has as many rows as its siblings.
        shape[0] = shape[0] * stored.part.1 / stored.names.len();
        let mut parts = Vec::new();
        for name in stored.names {
            match self.stored.get(&name) {
                Some(location) => {
                    self.check_tensor(location, &name, &shape)?;
                    parts.push(location.part(stored.part));
                }
                None if spec.optional => return Ok(None),
                None => {
                    let problem =
                        format!("no tensor '{name}', which the model in the config needs; are the two of one model?");
                    return Err(ModelError::malformed(path, problem));
                }
            }
            known.insert(name);
        }
        Ok(Some(TensorPlace { parts, shape: spec.shape.clone(), is_transposed: stored.is_transposed }))
    }

    fn check_tensor(&self, location: &Location, name: &str, shape: &[usize]) -> Result<(), ModelError> {
        let path = &self.files[location.file].path;
        // Libraries differ in whether a single token is a batch of one.
        if without_ones(&location.shape) != without_ones(shape) {
            let problem = format!("tensor '{name}' has shape {:?}, but the config asks for {shape:?}", location.shape);
            return Err(ModelError::malformed(path, problem));
        }
        match location.dtype {
            Dtype::F32 | Dtype::F16 | Dtype::BF16 => Ok(()),
            other => {
                let problem = format!("tensor '{name}' is {other:?}; only F32, F16 and BF16 are supported");
                Err(ModelError::malformed(path, problem))
            }
        }
    }

    /// Reads the values at `part`, which belong to tensor `name`.
    fn read_part(&self, name: &str, part: &Location) -> Result<Vec<f32>, ModelError> {
        let WeightFile { path, file, .. } = &self.files[part.file];
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        let values = read_values(&mut file, part).map_err(|cause| ModelError::read(path, cause))?;
        // Whole numbers would hide it.
        match values.iter().position(|value| !value.is_finite()) {
            None => Ok(values),
            Some(at) => {
                let problem = format!("value {at} of tensor '{name}' is {}; fetch or save the model again", values[at]);
                Err(ModelError::malformed(path, problem))
            }
        }
    }

    /// Hashes one file: its SHA-256. Several files: the SHA-256 of their SHA-256s, as lower-case hex, concatenated in
    /// the order of their names.
    fn hash_files(&mut self) -> Result<(), ModelError> {
        for file in &mut self.files {
            let open = file.file.get_mut().unwrap_or_else(PoisonError::into_inner);
            file.sha256 = sha256_of(open).map_err(|cause| ModelError::read(&file.path, cause))?;
        }
        self.hash = match self.files.as_slice() {
            [only] => only.sha256.clone(),
            shards => {
                let mut hash = Sha256::new();
                shards.iter().for_each(|shard| hash.update(&shard.sha256));
                hex(&hash.finalize())
            }
        };
        Ok(())
    }
}

impl Weights for Checkpoint {
    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Cow<'_, [f32]>, ModelError> {
        let place = self.tensors.get(name).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
        if place.shape != shape {
            return Err(ModelError::TensorShape {
                name: name.to_owned(),
                expected: shape.to_vec(),
                found: place.shape.clone(),
            });
        }
        let mut values = self.read_part(name, &place.parts[0])?;
        for part in &place.parts[1..] {
            values.extend_from_slice(&self.read_part(name, part)?);
        }
        Ok(Cow::Owned(if place.is_transposed { transposed(&values, shape[0]) } else { values }))
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.tensors.get(name).map(|place| place.shape.clone())
    }

    /// SHA-256 of `model.safetensors`; for a sharded checkpoint, the SHA-256 of the shards' SHA-256s (lower-case hex,
    /// concatenated in the order of the file names).
    fn hash(&self) -> &str {
        &self.hash
    }

    fn is_seeded(&self) -> bool {
        false
    }
}

/// Reads the shards that an index file lists: tensor name to file name.
pub(crate) fn read_weight_map(index: &Path) -> Result<BTreeMap<String, String>, ModelError> {
    let json = std::fs::read(index).map_err(|cause| ModelError::read(index, cause))?;
    let value: Value =
        serde_json::from_slice(&json).map_err(|e| ModelError::malformed(index, format!("not valid JSON: {e}")))?;
    let map = value.get("weight_map").and_then(Value::as_object).filter(|map| !map.is_empty());
    let map = map.ok_or_else(|| ModelError::malformed(index, "'weight_map' is missing, empty or not an object"))?;
    let mut shards = BTreeMap::new();
    for (name, file) in map {
        let Some(plain) = file.as_str().filter(|file| is_plain_name(file)) else {
            let problem = format!("'weight_map' gives {file} for '{name}', which is no file name");
            return Err(ModelError::malformed(index, problem));
        };
        shards.insert(name.clone(), plain.to_owned());
    }
    Ok(shards)
}

/// Returns true if `name` is a shard next to its index; a path that could lead out of the folder is refused.
fn is_plain_name(name: &str) -> bool {
    [".safetensors", ".bin"].iter().any(|end| name.ends_with(end)) && !name.contains(['/', '\\', ':', '\0'])
}

impl Location {
    /// Part `index` of `count` equal ones.
    fn part(&self, (index, count): (usize, usize)) -> Self {
        let mut shape = self.shape.clone();
        if let Some(rows) = shape.first_mut() {
            *rows /= count;
        }
        let bytes = shape.iter().product::<usize>() * if self.dtype == Dtype::F32 { 4 } else { 2 };
        Self { offset: self.offset + (index * bytes) as u64, shape, ..self.clone() }
    }
}

/// A shape without leading dimensions of one.
fn without_ones(shape: &[usize]) -> &[usize] {
    let first = shape.iter().position(|&len| len != 1).unwrap_or(shape.len());
    &shape[first..]
}

/// Refuses the pointer file that a clone without git-lfs has.
fn refuse_pointer(file: &mut File, path: &Path) -> Result<(), ModelError> {
    let mut start = Vec::new();
    file.take(LFS_POINTER.len() as u64).read_to_end(&mut start).map_err(|cause| ModelError::read(path, cause))?;
    file.rewind().map_err(|cause| ModelError::read(path, cause))?;
    if start != LFS_POINTER {
        return Ok(());
    }
    Err(ModelError::malformed(path, "a git-lfs pointer, not the file it stands for; run `git lfs pull`"))
}

#[cfg(feature = "pickle")]
fn of_pickle(path: &Path) -> Result<Vec<StoredTensor>, ModelError> {
    crate::pickle::tensors(path)
}

#[cfg(not(feature = "pickle"))]
fn of_pickle(path: &Path) -> Result<Vec<StoredTensor>, ModelError> {
    let problem = "is in PyTorch's format, which a build with -F candle reads; or convert it with \
                   `save_pretrained(..., safe_serialization=True)`";
    Err(ModelError::malformed(path, problem))
}

fn of_safetensors(file: &mut File, path: &Path) -> Result<Vec<StoredTensor>, ModelError> {
    let (data_start, header) = read_header(file, path)?;
    let tensors = header.offset_keys().into_iter().filter_map(|name| {
        let info = header.info(&name)?;
        let offset = data_start + info.data_offsets.0 as u64;
        Some(StoredTensor { offset, dtype: info.dtype, shape: info.shape.clone(), name })
    });
    Ok(tensors.collect())
}

/// Reads the header of a safetensors file: the data's offset, and the tensors. The tensors are contiguous and fill the
/// file exactly.
fn read_header(file: &mut File, path: &Path) -> Result<(u64, Metadata), ModelError> {
    let file_len = file.metadata().map_err(|cause| ModelError::read(path, cause))?.len();
    let mut length = [0; 8];
    if file_len < length.len() as u64 {
        let problem = format!("{file_len} bytes are no safetensors file; fetch it again");
        return Err(ModelError::malformed(path, problem));
    }
    file.read_exact(&mut length).map_err(|cause| ModelError::read(path, cause))?;
    let header_len = u64::from_le_bytes(length);
    if header_len > MAX_HEADER || header_len > file_len - 8 {
        let problem = format!("truncated or not safetensors: a header of {header_len} bytes in a file of {file_len}");
        return Err(ModelError::malformed(path, problem));
    }
    let mut header = vec![0; header_len as usize];
    file.read_exact(&mut header).map_err(|cause| ModelError::read(path, cause))?;
    let metadata = parse_header(&header)
        .map_err(|problem| ModelError::malformed(path, format!("not a safetensors header: {problem}")))?;
    let data_start = 8 + header_len;
    let expected = data_start.checked_add(metadata.data_len() as u64);
    if expected != Some(file_len) {
        let problem = match expected {
            Some(expected) if expected > file_len => {
                format!("truncated: {file_len} of {expected} bytes; fetch it again")
            }
            _ => format!("{file_len} bytes, more than its header accounts for; fetch it again"),
        };
        return Err(ModelError::malformed(path, problem));
    }
    Ok((data_start, metadata))
}

/// Parses a header and checks that its tensors are well-formed and contiguous.
pub(crate) fn parse_header(header: &[u8]) -> Result<Metadata, String> {
    let metadata: Metadata = serde_json::from_slice(header).map_err(|e| e.to_string())?;
    let ordered = metadata.offset_keys().into_iter();
    let tensors = ordered.filter_map(|name| metadata.info(&name).cloned().map(|info| (name, info))).collect();
    // Only the constructor checks the offsets against the shapes; the deserializer does not.
    Metadata::new(metadata.metadata().clone(), tensors).map_err(|e| e.to_string())
}

fn read_values(file: &mut File, location: &Location) -> io::Result<Vec<f32>> {
    file.seek(SeekFrom::Start(location.offset))?;
    let count = location.shape.iter().product();
    match location.dtype {
        Dtype::F16 => read_as(file, count, |bytes| f16::from_le_bytes(bytes).to_f32()),
        Dtype::BF16 => read_as(file, count, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        _ => read_as(file, count, f32::from_le_bytes), // checked when the file was opened
    }
}

fn read_as<const N: usize>(file: &mut File, count: usize, convert: fn([u8; N]) -> f32) -> io::Result<Vec<f32>> {
    let mut values = Vec::with_capacity(count);
    let mut buffer = vec![0; READ_BYTES.min(count * N)];
    while values.len() < count {
        let bytes = &mut buffer[..READ_BYTES.min((count - values.len()) * N)];
        file.read_exact(bytes)?;
        values.extend(bytes.as_chunks::<N>().0.iter().map(|&value| convert(value)));
    }
    Ok(values)
}
