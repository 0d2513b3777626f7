//! Paths as ids (for users and outputs) and as locators (for the file system).

use std::path::{Path, PathBuf};

use crate::address::public;

/// A path's id, which no other path has: each byte that is not UTF-8 becomes `\xNN` and each backslash is doubled.
/// Where the backslash separates folders, paths are always UTF-8 and stay as they are. Of a web server's address it is
/// the public part.
pub(crate) fn id_of(path: &[u8]) -> String {
    let path = public(path);
    match std::str::from_utf8(&path) {
        Ok(text) if cfg!(not(unix)) || !text.contains('\\') => text.to_owned(),
        _ => escape(&path),
    }
}

fn escape(path: &[u8]) -> String {
    let mut id = String::with_capacity(path.len() + 16);
    for chunk in path.utf8_chunks() {
        id.push_str(&chunk.valid().replace('\\', r"\\"));
        for byte in chunk.invalid() {
            id.push_str(&format!("\\x{byte:02x}"));
        }
    }
    id
}

/// The path whose id this is; `None` for an id of no path.
pub fn path_of(id: &str) -> Option<PathBuf> {
    if cfg!(not(unix)) || !id.contains('\\') {
        return Some(PathBuf::from(id));
    }
    let mut bytes = Vec::with_capacity(id.len());
    let mut rest = id.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        match (first, after) {
            (b'\\', [b'\\', after @ ..]) => {
                bytes.push(b'\\');
                rest = after;
            }
            (b'\\', [b'x', high, low, after @ ..]) => {
                let digits = [*high, *low];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
                rest = after;
            }
            (b'\\', _) => return None,
            (byte, _) => bytes.push(byte),
        }
    }
    Some(to_path(&bytes))
}

/// A path as bytes: the operating system's own on Unix, UTF-8 elsewhere, with non-Unicode parts replaced. A file with
/// replaced parts then fails to open, and the error names it.
pub(crate) fn to_bytes(path: &Path) -> Vec<u8> {
    #[cfg(unix)]
    {
        std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec()
    }
    #[cfg(not(unix))]
    {
        path.to_string_lossy().into_owned().into_bytes()
    }
}

/// The path that was passed to [`to_bytes`].
pub(crate) fn to_path(bytes: &[u8]) -> PathBuf {
    #[cfg(unix)]
    {
        PathBuf::from(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes))
    }
    #[cfg(not(unix))]
    {
        PathBuf::from(String::from_utf8_lossy(bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utf8_paths_without_backslashes_are_their_own_ids() {
        for path in ["a/b.jpg", "ünï/日本.png", "new\nline"] {
            assert_eq!(id_of(path.as_bytes()), path);
        }
    }

    #[cfg(unix)]
    #[test]
    fn other_bytes_are_escaped_and_backslashes_doubled() {
        assert_eq!(id_of(b"a\xff\\b\xc3.jpg"), r"a\xff\\b\xc3.jpg");
        assert_eq!(id_of(br"bad\xff.jpg"), r"bad\\xff.jpg", "not the id of the byte");
        for path in [b"a\xff\\b\xc3.jpg".as_slice(), br"bad\xff.jpg", b"plain\n.jpg"] {
            assert_eq!(path_of(&id_of(path)), Some(to_path(path)));
        }
        assert_eq!(path_of(r"a\b.jpg"), None);
    }

    #[cfg(unix)]
    #[test]
    fn bytes_survive_the_way_through_a_path() {
        let bytes = b"dir/\xff\xfe\n.jpg";
        assert_eq!(to_bytes(&to_path(bytes)), bytes);
    }
}
