//! The files of a graph: its own, and those with its weights.

#[cfg(feature = "tensorrt")]
use std::io::Read;
use std::path::{Path, PathBuf};

use foveate_encode::GraphSource;
#[cfg(feature = "tensorrt")]
use sha2::{Digest, Sha256};

/// The size in bytes of a graph with its weights. An unreadable file counts as empty; opening it will fail later.
pub(crate) fn bytes(source: &GraphSource) -> u64 {
    match source {
        GraphSource::Memory(bytes) => bytes.len() as u64,
        GraphSource::File(path) => {
            let files = weights(path).chain([path.clone()]);
            files.map(|file| std::fs::metadata(file).map_or(0, |metadata| metadata.len())).sum()
        }
    }
}

/// The files next to a graph that may contain its weights, by the exporters' naming.
fn weights(graph: &Path) -> impl Iterator<Item = PathBuf> {
    [".data", "_data"].into_iter().map(|suffix| {
        let mut path = graph.as_os_str().to_owned();
        path.push(suffix);
        path.into()
    })
}

/// Returns the SHA-256 of a graph and the files of its weights, in hexadecimal digits.
#[cfg(feature = "tensorrt")]
pub(crate) fn hash(source: &GraphSource) -> std::io::Result<String> {
    let mut sha = Sha256::new();
    match source {
        GraphSource::Memory(bytes) => sha.update(bytes),
        GraphSource::File(path) => {
            add(&mut sha, path)?;
            for file in weights(path).filter(|file| file.is_file()) {
                add(&mut sha, &file)?;
            }
        }
    }
    Ok(sha.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(feature = "tensorrt")]
fn add(sha: &mut Sha256, path: &Path) -> std::io::Result<()> {
    let mut file = std::fs::File::open(path)?;
    let mut chunk = vec![0; 1 << 20];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(()),
            n => sha.update(&chunk[..n]),
        }
    }
}

#[cfg(all(test, feature = "tensorrt"))]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_of_the_graph_and_of_its_weights() {
        // SHA-256 of "abc", FIPS 180-2.
        let abc = hash(&GraphSource::Memory(b"abc"[..].into())).unwrap();
        assert_eq!(abc, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, "ab").unwrap();
        let source = GraphSource::File(path.clone());
        let alone = hash(&source).unwrap();
        assert_ne!(alone, abc);
        for suffix in [".data", "_data"] {
            let weights = folder.path().join(format!("model.onnx{suffix}"));
            std::fs::write(&weights, "c").unwrap();
            assert_eq!(hash(&source).unwrap(), abc);
            std::fs::remove_file(weights).unwrap();
        }
        assert!(hash(&GraphSource::File(folder.path().join("absent.onnx"))).is_err());
    }
}
