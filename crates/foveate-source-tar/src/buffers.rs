//! Memory of large members, used again: the pages of a fresh buffer take longer than copying into it.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use foveate_core::lock;

/// Smallest buffer that is kept; the allocator keeps smaller ones itself.
const LEAST: usize = 64 << 10;

/// Most bytes that are kept.
const MOST: usize = 32 << 20;

/// Buffers that no member uses.
#[derive(Clone, Default)]
pub(crate) struct Buffers(Arc<Mutex<IdleBuffers>>);

#[derive(Default)]
struct IdleBuffers {
    /// Those that were used last are at the end: they may still be in the processor's cache.
    buffers: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Buffers {
    /// A buffer of `len` bytes, of any content.
    pub(crate) fn take(&self, len: usize) -> MemberMemory {
        MemberMemory { memory: lock(&self.0).take(len).unwrap_or_else(|| vec![0; len]), len }
    }

    /// The content of `buffer`, whose memory comes back when it is not used any more.
    pub(crate) fn lend(&self, mut buffer: MemberMemory) -> Bytes {
        match buffer.len >= LEAST {
            true => Bytes::from_owner(LentBuffer { buffer, home: Arc::downgrade(&self.0) }),
            false => {
                buffer.memory.truncate(buffer.len);
                buffer.memory.into()
            }
        }
    }
}

impl IdleBuffers {
    /// Memory for `len` bytes. No more than twice as many, so that small members never hold the memory of large ones.
    fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        let at = self.buffers.iter().rposition(|memory| len >= LEAST && (len..=2 * len).contains(&memory.len()))?;
        let memory = self.buffers.remove(at)?;
        self.bytes -= memory.len();
        Some(memory)
    }

    fn give(&mut self, memory: Vec<u8>) {
        self.bytes += memory.len();
        self.buffers.push_back(memory);
        while self.bytes > MOST
            && let Some(oldest) = self.buffers.pop_front()
        {
            self.bytes -= oldest.len();
        }
    }
}

/// Memory, of which the first `len` bytes are used. All of it is initialized, so that it can be read into again.
pub(crate) struct MemberMemory {
    memory: Vec<u8>,
    len: usize,
}

impl MemberMemory {
    /// Adds bytes, up to `len`.
    pub(crate) fn grow(&mut self, len: usize) -> io::Result<()> {
        let more = len.saturating_sub(self.memory.len());
        self.memory.try_reserve_exact(more).map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error))?;
        self.memory.resize(self.memory.len() + more, 0);
        self.len = len;
        Ok(())
    }
}

impl Deref for MemberMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

impl DerefMut for MemberMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.len]
    }
}

struct LentBuffer {
    buffer: MemberMemory,
    home: Weak<Mutex<IdleBuffers>>,
}

impl AsRef<[u8]> for LentBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for LentBuffer {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade() {
            lock(&home).give(mem::take(&mut self.buffer.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_buffers_come_back_up_to_a_limit() {
        let buffers = Buffers::default();
        let kept = || buffers.0.lock().map(|idle| idle.bytes).unwrap_or_default();
        let lent = |len: usize| {
            let mut buffer = buffers.take(len);
            assert_eq!(buffer.len(), len);
            buffer.fill(7);
            buffers.lend(buffer)
        };
        let large = lent(100_000);
        let memory = large.as_ptr();
        assert!(large.len() == 100_000 && kept() == 0);
        drop(large);
        assert!(kept() >= 100_000);
        drop(lent(LEAST - 1));
        let smaller = lent(90_000);
        assert_eq!((smaller.as_ptr(), smaller.len()), (memory, 90_000), "a smaller member takes it");
        drop(smaller);
        drop(lent(1_000_000));
        assert!(lent(LEAST).as_ptr() == memory && kept() >= 1_100_000, "a much smaller one does not take the largest");
        drop((lent(MOST), lent(100_000)));
        assert!(kept() <= MOST);
        let outlives = lent(100_000);
        drop(buffers);
        assert_eq!(outlives[..], [7; 100_000]);
    }
}
