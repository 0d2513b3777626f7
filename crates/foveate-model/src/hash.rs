//! SHA-256 of files, read in chunks.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::ModelError;

/// Bytes read at a time.
const CHUNK: usize = 1 << 18;

/// Formats bytes as lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the SHA-256 of the file at `path`, lower-case hex.
///
/// # Errors
/// [`ModelError::Read`].
pub fn sha256_file(path: &Path) -> Result<String, ModelError> {
    let hash = File::open(path).and_then(|mut file| sha256_of(&mut file));
    hash.map_err(|cause| ModelError::read(path, cause))
}

/// Returns the SHA-256 of a whole file, lower-case hex.
pub(crate) fn sha256_of(file: &mut File) -> io::Result<String> {
    let mut hash = Sha256::new();
    for_each_chunk(file, |chunk| hash.update(chunk))?;
    Ok(hex(&hash.finalize()))
}

/// Reads a whole file in chunks.
pub(crate) fn for_each_chunk(file: &mut File, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    let mut buffer = vec![0; CHUNK];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => each(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}
