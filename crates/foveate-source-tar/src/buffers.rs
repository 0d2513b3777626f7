//! Memory of large members, used again: the pages of a fresh buffer take longer than copying into it.

use std::mem;
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use foveate_core::lock;

/// Smallest buffer that is kept; the allocator keeps smaller ones itself.
const LEAST: usize = 64 << 10;

/// Most bytes that are kept.
const MOST: usize = 32 << 20;

/// Buffers that no member uses.
#[derive(Default)]
pub(crate) struct Buffers(Arc<Mutex<Idle>>);

#[derive(Default)]
struct Idle {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Buffers {
    /// An empty buffer with room for `len` bytes.
    pub(crate) fn take(&self, len: usize) -> Vec<u8> {
        let mut idle = lock(&self.0);
        let fits = |buffer: &Vec<u8>| len >= LEAST && buffer.capacity() >= len;
        let Some(at) = idle.buffers.iter().rposition(fits) else { return Vec::with_capacity(len) };
        let buffer = idle.buffers.swap_remove(at);
        idle.bytes -= buffer.capacity();
        buffer
    }

    /// The content of `buffer`, whose memory comes back when nobody uses it.
    pub(crate) fn lend(&self, buffer: Vec<u8>) -> Bytes {
        match buffer.capacity() >= LEAST {
            true => Bytes::from_owner(Lent { buffer, home: Arc::downgrade(&self.0) }),
            false => buffer.into(),
        }
    }
}

struct Lent {
    buffer: Vec<u8>,
    home: Weak<Mutex<Idle>>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(home) = self.home.upgrade() else { return };
        let mut idle = lock(&home);
        if idle.bytes + self.buffer.capacity() <= MOST {
            self.buffer.clear();
            idle.bytes += self.buffer.capacity();
            idle.buffers.push(mem::take(&mut self.buffer));
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
            assert!(buffer.is_empty() && buffer.capacity() >= len);
            buffer.resize(len, 7);
            buffers.lend(buffer)
        };
        let large = lent(100_000);
        let memory = large.as_ptr();
        assert!(large.len() == 100_000 && kept() == 0);
        drop(large);
        assert!(kept() >= 100_000);
        drop(lent(LEAST - 1));
        assert_eq!(lent(90_000).as_ptr(), memory, "a smaller member takes it");
        drop((lent(MOST), lent(100_000)));
        assert!(kept() <= MOST);
        let outlives = lent(100_000);
        drop(buffers);
        assert_eq!(outlives[..], [7; 100_000]);
    }
}
