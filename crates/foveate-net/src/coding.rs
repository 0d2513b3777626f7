//! Content codings of bodies: `gzip`, `deflate` and `br`.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread;
use flate2::read::GzDecoder;

/// Most codings of one body.
const MAX_CODINGS: usize = 2;
/// Bytes of an encoded body that are read at once.
const CHUNK: usize = 16 << 10;

/// The codings of a body that have to be undone, in the order in which they were applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Codings(Vec<String>);

impl Codings {
    /// Parses the value of `Content-Encoding`. Other words than the registered ones ("utf-8", "aws-chunked") are left
    /// out: users write them into the headers of files, and no client undoes them.
    ///
    /// # Errors
    /// The coding that is not understood.
    pub fn parse(header: &str) -> Result<Self, String> {
        let mut codings = Vec::new();
        for coding in header.split(',').map(|coding| coding.trim().to_ascii_lowercase()) {
            match coding.as_str() {
                "gzip" | "x-gzip" | "deflate" | "br" if codings.len() < MAX_CODINGS => codings.push(coding),
                "gzip" | "x-gzip" | "deflate" | "br" | "zstd" | "compress" | "x-compress" => return Err(coding),
                _ => {}
            }
        }
        Ok(Self(codings))
    }

    /// Returns true if there is nothing to undo.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of codings.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Undoes the codings. The caller bounds what comes out.
    pub fn decode<'a>(&self, body: Box<dyn Read + Send + 'a>) -> Box<dyn Read + Send + 'a> {
        let mut reader = body;
        for coding in self.0.iter().rev() {
            reader = match coding.as_str() {
                "deflate" => Box::new(Inflater::Unknown(Some(reader))),
                "br" => Box::new(brotli_decompressor::Decompressor::new(reader, CHUNK)),
                _ => Box::new(GzDecoder::new(reader)),
            };
        }
        reader
    }
}

impl fmt::Display for Codings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

/// A body in "deflate", which servers take for the format of zlib, as the standard says, or for its bare content.
enum Inflater<R> {
    Unknown(Option<R>),
    Zlib(Box<bufread::ZlibDecoder<BufReader<R>>>),
    Bare(Box<bufread::DeflateDecoder<BufReader<R>>>),
}

impl<R: Read> Read for Inflater<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if let Self::Unknown(reader) = self
            && let Some(reader) = reader.take()
        {
            let mut reader = BufReader::with_capacity(CHUNK, reader);
            // The method 8 with a window of at most 32 KiB.
            let is_zlib = reader.fill_buf()?.first().is_some_and(|byte| byte & 0x8f == 8);
            *self = if is_zlib {
                Self::Zlib(Box::new(bufread::ZlibDecoder::new(reader)))
            } else {
                Self::Bare(Box::new(bufread::DeflateDecoder::new(reader)))
            };
        }
        match self {
            Self::Unknown(_) => Ok(0),
            Self::Zlib(decoder) => decoder.read(out),
            Self::Bare(decoder) => decoder.read(out),
        }
    }
}
