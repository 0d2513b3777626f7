//! The health that `foveate doctor` shows.

use foveate_core::Health;

use crate::library::{Library, load};

/// The library, and the devices on which a session can be opened.
pub(crate) fn health() -> Health {
    match load() {
        Ok(library) => Health::library(describe(library)).on(devices(library)),
        Err(unavailable) => Health { problem: Some(unavailable.problem()), ..Health::all_rust() },
    }
}

fn describe(library: &Library) -> String {
    format!("ONNX Runtime {}, {}", library.version, library.path.display())
}

/// Tries each provider, because many libraries include providers whose requirements the machine lacks.
fn devices(library: &Library) -> Vec<String> {
    #[cfg(feature = "cuda")]
    let gpus = gpu::devices(library);
    #[cfg(not(feature = "cuda"))]
    let gpus = {
        let _ = library;
        Vec::new()
    };
    [vec!["cpu".to_owned()], gpus].concat()
}

#[cfg(feature = "cuda")]
mod gpu {
    use crate::library::Library;
    use crate::probe::probe;
    use crate::provider::Device;

    /// More than any machine has.
    const MAX_DEVICES: i32 = 64;

    pub(super) fn devices(library: &Library) -> Vec<String> {
        let kinds: [fn(i32) -> Device; 2] = [Device::Cuda, Device::TensorRt];
        let usable =
            |kind: fn(i32) -> Device| (0..MAX_DEVICES).map(kind).take_while(|&device| probe(library, device).is_ok());
        kinds.into_iter().flat_map(usable).map(|device| device.to_string()).collect()
    }
}
