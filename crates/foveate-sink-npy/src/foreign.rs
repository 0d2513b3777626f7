//! Reads vectors that other programs wrote.

use std::fs::File;
use std::io::{BufReader, Read};
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
    let (mut bytes, mut row) = (vec![0; dim * size], Vec::with_capacity(dim));
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
    let sizes: Vec<usize> = inside.split(',').filter_map(|size| size.trim().parse().ok()).collect();
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
            read_array(&path, &mut |row| rows.push(row.to_vec())).map(|()| rows).map_err(|error| error.to_string())
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
        assert!(read(&of("<f4", "False", "(2, 1)"), &[0; 7]).unwrap_err().contains("read"));
        for (kind, order, shape) in [("<f4", "True", "(1, 1)"), ("<i4", "False", "(1, 1)"), ("<f4", "False", "(1,)")] {
            assert!(read(&of(kind, order, shape), &[0; 4]).unwrap_err().contains("not an array"));
        }
    }
}
