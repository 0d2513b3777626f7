//! The health that `foveate doctor` shows.

use foveate_core::Health;

use crate::library::{OrtLibrary, load};

/// The library, and the devices on which a session can be opened.
pub(crate) fn health() -> Health {
    match load() {
        Ok(library) => Health::library(describe(library)).on(devices(library)),
        Err(unavailable) => Health { problem: Some(unavailable.problem()), ..Health::all_rust() },
    }
}

fn describe(library: &OrtLibrary) -> String {
    format!("ONNX Runtime {}, {}", library.version, library.path.display())
}

/// Tries each provider, because many libraries include providers whose requirements the machine lacks.
fn devices(library: &OrtLibrary) -> Vec<String> {
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
    use crate::library::OrtLibrary;
    use crate::probe::probe;
    use crate::provider::OrtDevice;

    /// More than any machine has.
    const MAX_DEVICES: i32 = 64;

    pub(super) fn devices(library: &OrtLibrary) -> Vec<String> {
        let mut usable = Vec::new();
        for kind in [OrtDevice::Cuda, OrtDevice::TensorRt] {
            let devices = (0..MAX_DEVICES).map(kind);
            usable
                .extend(devices.take_while(|&device| probe(library, device).is_ok()).map(|device| device.to_string()));
        }
        usable
    }
}
