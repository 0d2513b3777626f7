//! Compressed streams: gzip members and Zstandard frames, laid end to end. What follows them and is neither is ignored,
//! as by the tools of the same names.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// A compression that can be told from a stream's first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    Gzip,
    Zstd,
}

/// Number of bytes that tell.
pub(crate) const MAGIC: u64 = 6;

/// The compression of a stream with these first bytes; `None` if it is not compressed.
///
/// # Errors
/// The name of a format that is not read here.
pub(crate) fn sniff(head: &[u8]) -> Result<Option<Compression>, &'static str> {
    match head {
        [0x1f, 0x8b, ..] => Ok(Some(Compression::Gzip)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Ok(Some(Compression::Zstd)),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Err("xz"),
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, ..] => Err("bzip2"),
        [0x04, 0x22, 0x4d, 0x18, ..] => Err("lz4"),
        [b'P', b'K', 3 | 5, 4 | 6, ..] => Err("zip"),
        _ => Ok(None),
    }
}

impl Compression {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "Zstandard",
        }
    }

    pub(crate) fn decode(self, source: impl BufRead + Send + 'static) -> Box<dyn Read + Send> {
        match self {
            Self::Gzip => Box::new(Gzip(Some(GzDecoder::new(source)))),
            Self::Zstd => Box::new(Zstd { source, frame: FrameDecoder::new(), is_open: false }),
        }
    }
}

/// `None` after the last member.
struct Gzip<R>(Option<GzDecoder<R>>);

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.0 {
            let read = member.read(out)?;
            if read > 0 || out.is_empty() {
                return Ok(read);
            }
            let Some(mut source) = self.0.take().map(GzDecoder::into_inner) else { break };
            if source.fill_buf()?.first() == Some(&0x1f) {
                self.0 = Some(GzDecoder::new(source));
            }
        }
        Ok(0)
    }
}

struct Zstd<R> {
    source: R,
    frame: FrameDecoder,
    /// Whether `frame` has begun and has bytes left.
    is_open: bool,
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.is_open || self.open()? {
            while self.frame.can_collect() == 0 && !self.frame.is_finished() {
                let block = BlockDecodingStrategy::UptoBlocks(1);
                self.frame.decode_blocks(&mut self.source, block).map_err(io::Error::other)?;
            }
            let read = self.frame.read(out)?;
            if read > 0 || out.is_empty() {
                return Ok(read);
            }
            self.close()?;
        }
        Ok(0)
    }
}

impl<R: BufRead> Zstd<R> {
    /// Begins the next frame with content; `false` if there is none.
    fn open(&mut self) -> io::Result<bool> {
        while matches!(self.source.fill_buf()?.first(), Some(0x28 | 0x50..=0x5f)) {
            match self.frame.reset(&mut self.source) {
                Ok(()) => {
                    self.is_open = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    io::copy(&mut (&mut self.source).take(length.into()), &mut io::sink())?;
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }

    /// Ends a frame whose bytes are read.
    fn close(&mut self) -> io::Result<()> {
        self.is_open = false;
        let stored = self.frame.get_checksum_from_data();
        if stored.is_some() && stored != self.frame.get_calculated_checksum() {
            return Err(io::Error::other("the checksum does not match"));
        }
        Ok(())
    }
}
