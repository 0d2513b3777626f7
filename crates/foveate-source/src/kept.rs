//! Listings in files, so that neither a run that continues nor another shard lists again.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use tempfile::NamedTempFile;

use crate::lister::{Listed, Lister};
use crate::spool::{Record, read_field, write_field};
use crate::{Input, NameFilter, SourceError};

const MAGIC: &[u8; 18] = b"foveate listing 1\n";

/// Gives the records at `path` to `lister`. Returns false if there is no file yet.
pub(crate) fn read(path: &Path, of: &str, lister: &mut Lister<'_>) -> Result<bool, SourceError> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => BufReader::with_capacity(1 << 16, file.map_err(|error| failed("open", path, error))?),
    };
    let invalid = |why: &str| SourceError::Invalid(format!("{} {why}", path.display()));
    let mut start = [0; MAGIC.len()];
    if file.read_exact(&mut start).is_err() || start != *MAGIC {
        return Err(invalid("is not a listing of foveate; name another file"));
    }
    let mut field = || {
        let mut bytes = Vec::new();
        match read_field(&mut file, &mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            read => read.map(|()| Some(bytes)).map_err(|error| failed("read", path, error)),
        }
    };
    if field()?.is_none_or(|found| found != of.as_bytes()) {
        return Err(invalid("is the listing of other inputs; name another file, or remove it"));
    }
    let mut is_record = false;
    loop {
        let [Some(path), Some(fault), Some(version)] = [field()?, field()?, field()?] else {
            return Err(invalid("is cut off; remove it"));
        };
        match String::from_utf8(fault).ok().zip(String::from_utf8(version).ok()) {
            None => return Err(invalid("is damaged; remove it")),
            _ if path.is_empty() && is_record => return Ok(true),
            _ if path.is_empty() => is_record = true,
            Some((fault, version)) if is_record => lister.again(Record { path, fault, version })?,
            Some(_) => lister.root(&path),
        }
    }
}

/// Writes a listing to `path`. Returns false if another did so first.
pub(crate) fn write(path: &Path, of: &str, listed: &mut Listed) -> Result<bool, SourceError> {
    let write_error = |error| failed("write", path, error);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = NamedTempFile::new_in(folder).map_err(write_error)?;
    let mut out = BufWriter::with_capacity(1 << 16, file);
    out.write_all(MAGIC).map_err(write_error)?;
    let mut fields = |fields: &[&[u8]]| fields.iter().try_for_each(|field| write_field(&mut out, field));
    fields(&[of.as_bytes()]).map_err(write_error)?;
    for root in listed.roots.paths() {
        fields(&[&root, b"", b""]).map_err(write_error)?;
    }
    fields(&[b"", b"", b""]).map_err(write_error)?;
    let mut record = Record::default();
    listed.spool.seek(0)?;
    while listed.spool.read(&mut record)?.is_some() {
        fields(&[&record.path, record.fault.as_bytes(), record.version.as_bytes()]).map_err(write_error)?;
    }
    fields(&[b"", b"", b""]).map_err(write_error)?;
    let file = out.into_inner().map_err(|error| write_error(error.into_error()))?;
    file.as_file().sync_all().map_err(write_error)?;
    match file.persist_noclobber(path) {
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(write_error(error.error)),
        Ok(_) => Ok(true),
    }
}

/// What a listing is of.
pub(crate) fn subject(inputs: &[Input], names: &NameFilter) -> String {
    format!("{inputs:?}{}", names.text())
}

fn failed(what: &str, path: &Path, source: io::Error) -> SourceError {
    SourceError::Io { action: format!("{what} the listing {}", path.display()), source }
}
