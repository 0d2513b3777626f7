use std::io::Read;

use crate::NetError;
use crate::answer::is_page;
use crate::coding::Codings;
use crate::download::DownloadRoom;
use crate::target::HttpTarget;

/// Bytes that are decoded at once.
const CHUNK: usize = 16 << 10;
/// Most bytes that a file may be decoded to for each byte that was sent: images compress little. A small one may have a
/// megabyte in any case.
const MOST_TIMES: u64 = 100;
const SMALL: u64 = 1 << 20;

/// A file that a server sent in content codings (`gzip`, `deflate`, `br`).
#[derive(Debug)]
pub struct CodedFile {
    pub(crate) target: HttpTarget,
    pub(crate) codings: Codings,
    pub(crate) content_type: String,
    pub(crate) is_part: bool,
    /// Most bytes that it may be decoded to.
    pub(crate) limit: u64,
}

impl CodedFile {
    /// Decodes the whole body `coded`. The result has at most [`crate::ClientOptions::max_bytes`] bytes, and at most
    /// 100 times those of `coded` unless it is smaller than a megabyte.
    ///
    /// # Errors
    /// [`NetError`], always permanent.
    pub fn decode(&self, coded: &[u8]) -> Result<Vec<u8>, NetError> {
        let mut reader = self.codings.decode(Box::new(coded));
        let mut out = Vec::new();
        let most = self.most(coded);
        while self.decode_some(&mut reader, &mut out, most)? {}
        self.check(&out)?;
        Ok(out)
    }

    /// Decodes `out` in place, with memory from `room`.
    pub(crate) async fn decode_in(&self, room: &mut impl DownloadRoom, out: &mut Vec<u8>) -> Result<(), NetError> {
        let coded = std::mem::take(out);
        let mut reader = self.codings.decode(Box::new(&coded[..]));
        let mut admitted = coded.len() as u64;
        let most = self.most(&coded);
        while self.decode_some(&mut reader, out, most)? {
            let have = (coded.len() + out.len()) as u64;
            if have > admitted {
                admitted = (2 * have).min(most.saturating_add(coded.len() as u64));
                if !room.grow(admitted).await {
                    return Err(self.no_room());
                }
            }
            tokio::task::yield_now().await;
        }
        self.check(out)
    }

    /// Most bytes that `coded` may be decoded to.
    fn most(&self, coded: &[u8]) -> u64 {
        self.limit.min(MOST_TIMES.saturating_mul(coded.len() as u64).max(SMALL))
    }

    /// Appends the next bytes to `out`, up to `most`. Returns false at the end.
    fn decode_some(&self, reader: &mut impl Read, out: &mut Vec<u8>, most: u64) -> Result<bool, NetError> {
        let have = out.len();
        out.resize(have + CHUNK, 0);
        let read = reader.read(&mut out[have..]);
        out.truncate(have + *read.as_ref().unwrap_or(&0));
        match read {
            Err(_) => Err(self.permanent(&format!("answered with damaged {}", self.codings))),
            Ok(_) if out.len() as u64 > self.limit => Err(self.too_large()),
            Ok(_) if out.len() as u64 > most => Err(self
                .permanent(&format!("its {} has more than {MOST_TIMES} times the bytes that were sent", self.codings))),
            Ok(read) => Ok(read > 0),
        }
    }

    /// Checks a decoded file.
    pub(crate) fn check(&self, file: &[u8]) -> Result<(), NetError> {
        match file.len() {
            0 => Err(self.permanent("answered with nothing")),
            bytes if !self.is_part && is_page(&self.content_type, file) => {
                Err(self.permanent(&format!("answered with a web page ({bytes} bytes of HTML), not with an image")))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn too_large(&self) -> NetError {
        self.permanent(&format!("over that many bytes, more than the limit of {}", self.limit))
    }

    pub(crate) fn no_room(&self) -> NetError {
        NetError::transient(format!("{}: there is no memory for its bytes now", self.target))
    }

    fn permanent(&self, reason: &str) -> NetError {
        NetError { reached: Some(true), ..NetError::permanent(format!("{}: {reason}", self.target)) }
    }
}
