//! What `foveate doctor` shows.

use foveate_core::Health;

use crate::library::{Library, load};

/// The library, and the devices that a session can really be made on.
pub(crate) fn health() -> Health {
    match load() {
        Ok(library) => Health::library(describe(library)).on(devices(library)),
        Err(unavailable) => Health { problem: Some(unavailable.problem()), ..Health::all_rust() },
    }
}

fn describe(library: &Library) -> String {
    format!("ONNX Runtime {}, {}", library.version, library.path.display())
}

/// Providers are compiled into many libraries whose machine lacks what they need, so each is tried.
fn devices(library: &Library) -> Vec<String> {
    #[cfg(any(feature = "cuda", feature = "tensorrt"))]
    let gpus = gpu::devices(library);
    #[cfg(not(any(feature = "cuda", feature = "tensorrt")))]
    let gpus = {
        let _ = library;
        Vec::new()
    };
    [vec!["cpu".to_owned()], gpus].concat()
}

#[cfg(any(feature = "cuda", feature = "tensorrt"))]
mod gpu {
    use ort::session::Session;

    use crate::library::Library;
    use crate::provider::Device;

    /// More than any machine has.
    const MAX_DEVICES: i32 = 64;

    pub(super) fn devices(library: &Library) -> Vec<String> {
        let kinds: [fn(i32) -> Device; 2] = [Device::Cuda, Device::TensorRt];
        let usable =
            |kind: fn(i32) -> Device| (0..MAX_DEVICES).map(kind).take_while(|&device| is_usable(library, device));
        kinds.into_iter().flat_map(usable).map(|device| device.to_string()).collect()
    }

    fn is_usable(library: &Library, device: Device) -> bool {
        let Ok(providers) = device.providers() else { return false };
        let builder = Session::builder(&library.environment);
        builder.is_ok_and(|builder| builder.with_execution_providers(providers).is_ok())
    }
}
