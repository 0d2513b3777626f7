//! The file system calls of a run, as `inject.c` records them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// One call below the injector's folder.
#[derive(Clone, Debug)]
pub(super) struct FileCall {
    pub(super) kind: CallKind,
    /// The call's return value; negative: the error's number.
    pub(super) result: i64,
    /// Inode of the open file, 0 if there is none.
    pub(super) inode: u64,
    /// Relative to the folder; the folder itself is empty.
    pub(super) path: PathBuf,
    /// The second name of a rename or a link.
    pub(super) to: PathBuf,
    /// The bytes that a write took.
    pub(super) data: Vec<u8>,
}

/// The effect of a call, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    Open { truncates: bool, creates: bool },
    Write { offset: usize, is_synced: bool },
    Sync { is_folder: bool },
    Truncate { len: usize },
    Rename,
    Link,
    Unlink,
    Rmdir,
    Mkdir,
    Map,
}

/// Linux's O_TRUNC.
const TRUNCATE: i64 = 0o1000;

impl CallKind {
    fn parse(name: &str, a: i64, b: i64) -> Option<Self> {
        let size = usize::try_from(a).ok();
        Some(match name {
            "open" => Self::Open { truncates: a & TRUNCATE != 0, creates: b != 0 },
            "write" => Self::Write { offset: size?, is_synced: b != 0 },
            "sync" => Self::Sync { is_folder: a != 0 },
            "truncate" => Self::Truncate { len: size? },
            "rename" => Self::Rename,
            "link" => Self::Link,
            "unlink" => Self::Unlink,
            "rmdir" => Self::Rmdir,
            "mkdir" => Self::Mkdir,
            "map" => Self::Map,
            _ => return None,
        })
    }
}

/// Reads the trace of a run below `folder`.
pub(super) fn read(file: &Path, folder: &Path) -> Result<Vec<FileCall>> {
    let bytes = fs::read(file).with_context(|| format!("the injector left no trace {}", file.display()))?;
    let mut rest = bytes.as_slice();
    let mut calls = Vec::new();
    while !rest.is_empty() {
        let (call, after) = take(rest, folder).with_context(|| format!("call {} of the trace", calls.len() + 1))?;
        calls.push(call);
        rest = after;
    }
    Ok(calls)
}

/// Parses `number family result inode a b path TAB path`, and the data after a write.
fn take<'a>(bytes: &'a [u8], folder: &Path) -> Option<(FileCall, &'a [u8])> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    let line = std::str::from_utf8(&bytes[..end]).ok()?;
    let (fields, to) = line.split_once('\t')?;
    let fields: Vec<&str> = fields.splitn(7, ' ').collect();
    let [_, family, result, inode, a, b, path] = fields[..] else { return None };
    let result = result.parse().ok()?;
    let kind = CallKind::parse(family, a.parse().ok()?, b.parse().ok()?)?;
    let len = if matches!(kind, CallKind::Write { .. }) { usize::try_from(result).unwrap_or(0) } else { 0 };
    let (data, rest) = bytes[end + 1..].split_at_checked(len)?;
    let inode = inode.parse::<i64>().ok()?.cast_unsigned();
    let [path, to] = [path, to].map(|path| Path::new(path).strip_prefix(folder).unwrap_or(Path::new(path)).to_owned());
    Some((FileCall { kind, result, inode, path, to, data: data.to_vec() }, rest))
}
