//! NumPy's arrays.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use flate2::read::DeflateDecoder;
use half::f16;
use npyz::{DType, NpyFile, NpyHeader, Order, TypeStr};
use rawzip::{CompressionMethod, ZipArchive};

use super::args::{ActOnVector, ForeignArgs, IdSource};
use crate::cli::exit::Usage;
use crate::cli::tables::ID_NAMES;

/// Numbers of rows that are read at once.
const BLOCK: usize = 1024;

/// Reads the rows of a `.npy` file.
pub(super) fn read_file(path: &Path, act: &mut ActOnVector<'_>) -> anyhow::Result<()> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    read_rows(BufReader::with_capacity(1 << 20, file), len, &mut |vector| act(None, vector))
}

/// Reads a list of texts or of whole numbers.
pub(super) fn read_texts(path: &Path) -> anyhow::Result<Vec<String>> {
    texts(BufReader::new(File::open(path)?))
}

fn texts(mut reader: impl Read) -> anyhow::Result<Vec<String>> {
    let header = NpyHeader::from_reader(&mut reader)?;
    if header.shape().len() != 1 {
        bail!("the array of ids has {} dimensions; save one of one dimension", header.shape().len());
    }
    let kind = header.dtype();
    let file = NpyFile::with_header(header, reader);
    let file = match file.try_data::<String>() {
        Ok(texts) => return Ok(texts.collect::<Result<_, _>>()?),
        Err(file) => file,
    };
    let file = match file.try_data::<i64>() {
        Ok(numbers) => return numbers.map(|number| Ok(number?.to_string())).collect(),
        Err(file) => file,
    };
    match file.try_data::<Vec<u8>>() {
        Ok(texts) => texts.map(|bytes| Ok(String::from_utf8(bytes?)?)).collect(),
        Err(_) => bail!("ids of the type {} cannot be read; save `np.array(ids, dtype=str)`", kind.descr()),
    }
}

/// Reads an array `[n, dim]` in C order of little-endian f16, f32 or f64, or of i8 or u8, of at most `len` bytes.
fn read_rows(mut reader: impl Read, len: u64, act: &mut dyn FnMut(&[f32]) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let header = NpyHeader::from_reader(&mut reader).context("it does not begin like a NumPy array; save it again")?;
    let Some((kind, rows, dim)) = shape(&header) else {
        return Err(Usage::from(anyhow!(
            "it is not an array [n, dim] in C order of <f2, <f4, <f8, |i1 or |u1, but {} of {:?}; save it as \
             `np.save(name, np.ascontiguousarray(vectors, dtype='float32'))` does",
            header.dtype().descr(),
            header.shape()
        ))
        .into());
    };
    let size = kind.num_bytes().unwrap_or(1);
    // The header may say anything, and memory is taken for what the file has.
    let wanted = rows.checked_mul(dim).and_then(|numbers| numbers.checked_mul(size as u64));
    if wanted.is_none_or(|wanted| wanted > len) {
        bail!("its header says {rows} rows of {dim} numbers, and it has {len} bytes; save it again");
    }
    let dim = dim as usize;
    let mut bytes = vec![0; BLOCK.min(rows as usize) * dim * size];
    let mut numbers = Vec::new();
    let mut left = rows as usize;
    while left > 0 {
        let count = left.min(BLOCK);
        let block = &mut bytes[..count * dim * size];
        reader.read_exact(block).context("it ends before its last row; save it again")?;
        numbers.clear();
        match kind.to_string().as_str() {
            "<f4" => numbers.extend(block.as_chunks().0.iter().map(|&x| f32::from_le_bytes(x))),
            "<f2" => numbers.extend(block.as_chunks().0.iter().map(|&x| f16::from_le_bytes(x).to_f32())),
            "<f8" => numbers.extend(block.as_chunks().0.iter().map(|&x| f64::from_le_bytes(x) as f32)),
            "|i1" => numbers.extend(block.iter().map(|&x| f32::from(x.cast_signed()))),
            _ => numbers.extend(block.iter().map(|&x| f32::from(x))),
        }
        for vector in numbers.chunks_exact(dim) {
            act(vector)?;
        }
        left -= count;
    }
    Ok(())
}

/// The type of the elements, and the shape.
fn shape(header: &NpyHeader) -> Option<(TypeStr, u64, u64)> {
    let DType::Plain(kind) = header.dtype() else { return None };
    let is_known = ["<f2", "<f4", "<f8", "|i1", "|u1"].contains(&kind.to_string().as_str());
    match *header.shape() {
        [rows, dim] if is_known && dim > 0 && header.order() == Order::C => Some((kind, rows, dim)),
        _ => None,
    }
}

/// An array of a `.npz` file.
struct ArchivedArray {
    name: String,
    header: NpyHeader,
    bytes: Vec<u8>,
}

/// Reads a `.npz` file: its only array of two dimensions, or the one that is named, and ids from one of one dimension.
pub(super) fn read_archive(path: &Path, args: &ForeignArgs, act: &mut ActOnVector<'_>) -> anyhow::Result<IdSource> {
    let arrays = arrays(path)?;
    let mut names: Vec<&str> = arrays.iter().map(|array| array.name.as_str()).collect();
    names.sort_unstable();
    let names = names.join(", ");
    let of_name = |name: &str| {
        let found = arrays.iter().find(|array| array.name == name);
        found.ok_or_else(|| Usage::from(anyhow!("it has no array '{name}'; its arrays are {names}")))
    };
    let vectors = match &args.vector_column {
        Some(name) => of_name(name)?,
        None => {
            let mut tables = arrays.iter().filter(|array| array.header.shape().len() == 2);
            match (tables.next(), tables.next()) {
                (Some(one), None) => one,
                _ => {
                    let why = "none or several of its arrays have two dimensions; name one with --vector-column";
                    return Err(Usage::from(anyhow!("{why}: {names}")).into());
                }
            }
        }
    };
    let ids = match &args.id_column {
        Some(name) => Some(of_name(name)?),
        None if args.ids.is_empty() => {
            ID_NAMES.iter().find_map(|name| arrays.iter().find(|array| array.name.eq_ignore_ascii_case(name)))
        }
        None => None,
    };
    let mut texts = ids.map(|ids| texts(ids.bytes.as_slice()).map(Vec::into_iter)).transpose()?;
    read_rows(vectors.bytes.as_slice(), vectors.bytes.len() as u64, &mut |vector| {
        let id = match &mut texts {
            None => None,
            Some(texts) => {
                let id = texts.next();
                Some(id.ok_or_else(|| Usage::from(anyhow!("it has fewer ids than vectors; save as many")))?)
            }
        };
        act(id.as_deref(), vector)
    })?;
    if texts.is_some_and(|mut texts| texts.next().is_some()) {
        return Err(Usage::from(anyhow!("it has more ids than vectors; save as many")).into());
    }
    Ok(ids.map_or(IdSource::Numbers(names), |ids| IdSource::Column(ids.name.clone())))
}

/// The arrays of a `.npz` file, in memory.
fn arrays(path: &Path) -> anyhow::Result<Vec<ArchivedArray>> {
    let file = std::fs::read(path)?;
    let archive = ZipArchive::from_slice(&file)?;
    let mut arrays = Vec::new();
    let mut entries = archive.entries();
    while let Some(record) = entries.next_entry()? {
        let path = String::from_utf8_lossy(record.file_path().as_bytes()).into_owned();
        let Some(name) = path.strip_suffix(".npy") else { continue };
        let entry = archive.get_entry(record.wayfinder())?;
        let mut bytes = Vec::new();
        match record.compression_method() {
            CompressionMethod::STORE => entry.verifying_reader(entry.data()).read_to_end(&mut bytes)?,
            CompressionMethod::DEFLATE => {
                entry.verifying_reader(DeflateDecoder::new(entry.data())).read_to_end(&mut bytes)?
            }
            method => bail!("the array '{name}' is compressed with method {method}; save it with `np.savez`"),
        };
        let header = NpyHeader::from_reader(bytes.as_slice())
            .with_context(|| format!("the array '{name}' does not begin like one; save it again"))?;
        arrays.push(ArchivedArray { name: name.to_owned(), header, bytes });
    }
    Ok(arrays)
}
