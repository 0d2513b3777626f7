//! Listings in files, so that neither a run that continues nor another shard lists again.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use tempfile::NamedTempFile;

use crate::lister::{InputLister, ListedRecords};
use crate::spool::{Record, read_field, write_field};
use crate::{Input, NameFilter, SourceError};

const MAGIC: &[u8; 18] = b"foveate listing 1\n";

/// Gives the records at `path` to `lister`. Returns false if there is no file yet.
pub(crate) fn read(path: &Path, of: &str, lister: &mut InputLister<'_>) -> Result<bool, SourceError> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => BufReader::with_capacity(1 << 16, file.map_err(|error| failed("open", path, error))?),
    };
    let mut start = [0; MAGIC.len()];
    if file.read_exact(&mut start).is_err() || start != *MAGIC {
        return Err(invalid(path, "is not a listing of foveate; name another file"));
    }
    if next_field(&mut file, path)?.is_none_or(|found| found != of.as_bytes()) {
        return Err(invalid(path, "is the listing of other inputs; name another file, or remove it"));
    }
    let mut is_record = false;
    loop {
        let mut fields = [const { Vec::new() }; 3];
        for field in &mut fields {
            *field = next_field(&mut file, path)?.ok_or_else(|| invalid(path, "is cut off; remove it"))?;
        }
        let [record, fault, version] = fields;
        match String::from_utf8(fault).ok().zip(String::from_utf8(version).ok()) {
            None => return Err(invalid(path, "is damaged; remove it")),
            _ if record.is_empty() && is_record => return Ok(true),
            _ if record.is_empty() => is_record = true,
            Some((fault, version)) if is_record => lister.again(Record { path: record, fault, version })?,
            Some(_) => lister.root(&record),
        }
    }
}

/// Reads the next field of the listing at `path`; none at the end of the file.
fn next_field(file: &mut BufReader<File>, path: &Path) -> Result<Option<Vec<u8>>, SourceError> {
    let mut bytes = Vec::new();
    match read_field(file, &mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        read => read.map(|()| Some(bytes)).map_err(|error| failed("read", path, error)),
    }
}

fn invalid(path: &Path, why: &str) -> SourceError {
    SourceError::Invalid(format!("{} {why}", path.display()))
}

/// Writes a listing to `path`. Returns false if another did so first.
pub(crate) fn write(path: &Path, of: &str, listed: &mut ListedRecords) -> Result<bool, SourceError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write_error = |error| failed("write", path, error);
    let file = NamedTempFile::new_in(folder).map_err(write_error)?;
    let mut out = BufWriter::with_capacity(1 << 16, file);
    out.write_all(MAGIC).map_err(write_error)?;
    write_fields(&mut out, &[of.as_bytes()]).map_err(write_error)?;
    for root in listed.roots.paths() {
        write_fields(&mut out, &[&root, b"", b""]).map_err(write_error)?;
    }
    write_fields(&mut out, &[b"", b"", b""]).map_err(write_error)?;
    let mut record = Record::default();
    listed.spool.seek(0)?;
    while listed.spool.read(&mut record)?.is_some() {
        let fields = [&record.path[..], record.fault.as_bytes(), record.version.as_bytes()];
        write_fields(&mut out, &fields).map_err(write_error)?;
    }
    write_fields(&mut out, &[b"", b"", b""]).map_err(write_error)?;
    let file = out.into_inner().map_err(|error| write_error(error.into_error()))?;
    file.as_file().sync_all().map_err(write_error)?;
    match file.persist_noclobber(path) {
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(write_error(error.error)),
        Ok(_) => Ok(true),
    }
}

fn write_fields(out: &mut impl Write, fields: &[&[u8]]) -> io::Result<()> {
    fields.iter().try_for_each(|field| write_field(out, field))
}

/// The subject of a listing, as one text.
pub(crate) fn subject(inputs: &[Input], names: &NameFilter) -> String {
    format!("{inputs:?}{}", names.text())
}

fn failed(what: &str, path: &Path, source: io::Error) -> SourceError {
    SourceError::Io { action: format!("{what} the listing {}", path.display()), source }
}
