//! Reads vectors that other programs wrote.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;

use foveate_sink::SinkError;
use half::f16;

/// Longest header that is read.
const MOST: usize = 1 << 16;

/// Reads the rows of a `.npy` file that any program wrote: an array `[n, dim]` in C order of little-endian f16, f32 or
/// f64, or of i8 or u8. Calls `act` with each row.
///
/// # Errors
/// [`SinkError::Unsupported`] if the file is another array, [`SinkError::Io`] if it is cut short or cannot be read.
pub fn read_array(path: &Path, act: &mut dyn FnMut(&[f32])) -> Result<(), SinkError> {
    let file = File::open(path).map_err(SinkError::io("open", path))?;
    let mut file = BufReader::with_capacity(1 << 20, file);
    let header = header(&mut file).map_err(SinkError::io("read", path))?;
    let Some((kind, rows, dim)) = header.as_deref().and_then(shape) else {
        let reason = "it is not an array [n, dim] in C order of <f2, <f4, <f8, |i1 or |u1";
        return Err(SinkError::Unsupported(reason.to_owned()));
    };
    let size = usize::from(kind.as_bytes()[2] - b'0');
    let begin = file.stream_position().map_err(SinkError::io("read", path))?;
    let len = file.get_ref().metadata().map_err(SinkError::io("read", path))?.len().saturating_sub(begin);
    // The header may say anything, and memory is taken for what the file has.
    let wanted = (rows as u64).checked_mul(dim as u64).and_then(|numbers| numbers.checked_mul(size as u64));
    if wanted.is_none_or(|wanted| wanted > len) {
        let why = format!("its header says {rows} rows of {dim} numbers, and {len} bytes follow; save it again");
        return Err(SinkError::damaged(path, why));
    }
    if rows == 0 {
        return Ok(());
    }
    let mut bytes = vec![0; dim * size];
    let mut row = Vec::with_capacity(dim);
    for _ in 0..rows {
        file.read_exact(&mut bytes).map_err(SinkError::io("read", path))?;
        row.clear();
        match kind {
            "<f4" => row.extend(bytes.as_chunks().0.iter().map(|&x| f32::from_le_bytes(x))),
            "<f2" => row.extend(bytes.as_chunks().0.iter().map(|&x| f16::from_le_bytes(x).to_f32())),
            "<f8" => row.extend(bytes.as_chunks().0.iter().map(|&x| f64::from_le_bytes(x) as f32)),
            "|i1" => row.extend(bytes.iter().map(|&x| f32::from(x.cast_signed()))),
            _ => row.extend(bytes.iter().map(|&x| f32::from(x))),
        }
        act(&row);
    }
    Ok(())
}

/// The header's text; `None` if the file does not begin like an array.
fn header(file: &mut impl Read) -> std::io::Result<Option<String>> {
    let mut start = [0; 12];
    file.read_exact(&mut start[..10])?;
    let len = match start[6] {
        1 => usize::from(u16::from_le_bytes([start[8], start[9]])),
        _ => {
            file.read_exact(&mut start[10..])?;
            u32::from_le_bytes([start[8], start[9], start[10], start[11]]) as usize
        }
    };
    if !start.starts_with(b"\x93NUMPY") || len > MOST {
        return Ok(None);
    }
    let mut text = vec![0; len];
    file.read_exact(&mut text)?;
    Ok(String::from_utf8(text).ok())
}

/// The type of the elements, and the shape.
fn shape(header: &str) -> Option<(&'static str, usize, usize)> {
    let value = |key: &str| Some(header.split_once(key)?.1.trim_start_matches(['\'', '"', ':', ' ']));
    let kinds = ["<f2", "<f4", "<f8", "|i1", "|u1"];
    let kind = kinds.into_iter().find(|kind| value("descr").is_some_and(|value| value.starts_with(kind)))?;
    let (inside, _) = value("shape")?.strip_prefix('(')?.split_once(')')?;
    let sizes = inside.split(',').map(str::trim).filter(|size| !size.is_empty());
    let sizes: Vec<usize> = sizes.map(|size| size.parse().ok()).collect::<Option<_>>()?;
    match (value("fortran_order")?.starts_with("False"), sizes.as_slice()) {
        (true, &[rows, dim]) if dim > 0 => Some((kind, rows, dim)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_of_numpy_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        let read = |header: &str, data: &[u8]| {
            let start = [b"\x93NUMPY\x01\x00".as_slice(), &(header.len() as u16).to_le_bytes()].concat();
            std::fs::write(&path, [&start, header.as_bytes(), data].concat()).unwrap();
            let mut rows = Vec::new();
            read_array(&path, &mut |row| rows.push(row.to_vec()))
                .map(|()| rows)
                .map_err(|error| foveate_core::error_chain(&error))
        };
        let of = |kind: &str, order: &str, shape: &str| {
            format!("{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}\n")
        };
        assert_eq!(
            read(&of("|i1", "False", "(2, 2)"), &[1, 255, 3, 128]),
            Ok(vec![vec![1.0, -1.0], vec![3.0, -128.0]])
        );
        assert_eq!(read(&of("<f8", "False", "(1, 1)"), &0.5_f64.to_le_bytes()), Ok(vec![vec![0.5]]));
        assert_eq!(read(&of("<f2", "False", "(1, 1)"), &[0, 0x3c]), Ok(vec![vec![1.0]]));
        assert!(read(&of("<f4", "False", "(2, 1)"), &[0; 7]).unwrap_err().contains("2 rows of 1 numbers, and 7 bytes"));
        assert_eq!(read(&of("<f4", "False", "(0, 4611686018427387904)"), &[]), Ok(vec![]));
        for shape in
            ["(1, 9223372036854775807)", "(4294967296, 4294967296)", "(9000000000000000000, 1)", "(1, 1000000)"]
        {
            let error = read(&of("<f8", "False", shape), &[0; 64]).unwrap_err();
            assert!(error.contains("64 bytes follow; save it again"), "{error}");
        }
        for shape in ["(1, 99999999999999999999, 1)", "(1, -1)", "(1, x, 1)"] {
            assert!(read(&of("<f4", "False", shape), &[0; 4]).unwrap_err().contains("not an array"));
        }
        for (kind, order, shape) in [("<f4", "True", "(1, 1)"), ("<i4", "False", "(1, 1)"), ("<f4", "False", "(1,)")] {
            assert!(read(&of(kind, order, shape), &[0; 4]).unwrap_err().contains("not an array"));
        }
    }
}
