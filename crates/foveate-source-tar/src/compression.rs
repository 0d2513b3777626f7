//! Compressed streams: gzip members and Zstandard frames, laid end to end. What follows them and is neither is ignored,
//! as by the tools of the same names.

use std::error::Error;
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
/// The remedy for a format that is not read here.
pub(crate) fn sniff(head: &[u8]) -> Result<Option<Compression>, String> {
    // The programs have the names of their formats.
    let other = match head {
        [0x1f, 0x8b, ..] => return Ok(Some(Compression::Gzip)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => return Ok(Some(Compression::Zstd)),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => "xz",
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, ..] => "bzip2",
        [0x04, 0x22, 0x4d, 0x18, ..] => "lz4",
        [b'P', b'K', 3 | 5, 4 | 6, ..] => return Err("it is no tar but a zip; rename it to .zip".to_owned()),
        _ => return Ok(None),
    };
    let again = format!("compress it with Zstandard: {other} -dc <old | zstd >new.tar.zst");
    Err(format!("it is compressed with {other}, which is not read here; {again}"))
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
            Self::Zstd => Box::new(Zstd { source, frame: FrameDecoder::new(), is_open: false, cut: None }),
        }
    }
}

/// Returns true if a decoder's error is that its stream ended.
pub(crate) fn is_end(error: &io::Error) -> bool {
    let first: &(dyn Error + 'static) = error;
    std::iter::successors(Some(first), |&cause| cause.source()).any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof)
    })
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
    /// True if `frame` has begun and has bytes left.
    is_open: bool,
    /// The error of a source that ended within a frame, until the bytes before are read.
    cut: Option<io::Error>,
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.is_open || self.open()? {
            while self.frame.can_collect() == 0 && !self.frame.is_finished() {
                self.decode_block()?;
            }
            let read = self.frame.read(out)?;
            if read > 0 || out.is_empty() {
                return Ok(read);
            }
            match self.cut.take() {
                Some(error) => return Err(error),
                None => self.close()?,
            }
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

    /// Decodes a block. If the source ends there, what the blocks before gave is still to be read.
    fn decode_block(&mut self) -> io::Result<()> {
        /// An empty last block and a checksum, for which the decoder lets go what it keeps for later blocks.
        const LAST: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];
        let decoded = self.frame.decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1));
        let Err(error) = decoded.map_err(io::Error::other) else { return Ok(()) };
        if !is_end(&error) || self.frame.decode_blocks(&LAST[..], BlockDecodingStrategy::UptoBlocks(1)).is_err() {
            return Err(error);
        }
        self.cut = Some(error);
        Ok(())
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
