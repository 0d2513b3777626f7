use std::any::Any;

/// The memory of a batch of images, `[n, height, width, 3]` u8 RGB, on the host or on a device. Host memory is open to
/// any code; device memory only to that device's own code.
///
/// Only the owner writes. Ownership moves by value, so a device that still reads the memory also owns it.
pub trait BatchMemory: Send {
    /// Length in bytes.
    fn bytes(&self) -> usize;

    /// All bytes, if the host can read them.
    fn host(&self) -> Option<&[u8]>;

    /// All bytes, if the host can write them.
    fn host_mut(&mut self) -> Option<&mut [u8]>;

    /// Lets the device's own code downcast to its type.
    fn as_any(&self) -> &dyn Any;

    /// Lets the device's own code downcast to its type, mutably.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// Ordinary host memory.
impl BatchMemory for Vec<u8> {
    fn bytes(&self) -> usize {
        self.len()
    }

    fn host(&self) -> Option<&[u8]> {
        Some(self)
    }

    fn host_mut(&mut self) -> Option<&mut [u8]> {
        Some(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
