use std::any::Any;

/// The memory of a batch of images, `[n, height, width, 3]` u8 RGB: on the host, where anybody may fill it, or on a
/// device, where only that device's own code can.
///
/// Whoever owns it may write to it; it changes hands by value, so a device that still reads it also owns it.
pub trait BatchMemory: Send {
    /// Bytes that it holds.
    fn bytes(&self) -> usize;

    /// All of it, where the host can read it.
    fn host(&self) -> Option<&[u8]>;

    /// All of it, where the host can write to it.
    fn host_mut(&mut self) -> Option<&mut [u8]>;

    /// For the code of the device that it lies on.
    fn as_any(&self) -> &dyn Any;

    /// For the code of the device that it lies on.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// Ordinary memory of the host.
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
