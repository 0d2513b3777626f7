//! A check whether a device is available. ONNX Runtime detects that only when it opens a session.

use foveate_encode::EncodeError;
use ort::ep::ExecutionProviderDispatch;
use ort::session::Session;

use crate::error::one_line;
use crate::library::OrtLibrary;
use crate::provider::{OrtDevice, Wishes, refused};

/// An ONNX file with one node, Identity, on one f32.
const IDENTITY: &[u8] = b"\x08\x08\x3a\x37\x0a\x10\x0a\x01x\x12\x01y\x22\x08Identity\x12\x01g\
    \x5a\x0f\x0a\x01x\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x01\
    \x62\x0f\x0a\x01y\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x01\x42\x02\x10\x0d";

/// Opens a session on `device`, after loading its provider's libraries.
///
/// # Errors
/// [`EncodeError::Device`], naming what is missing.
pub(crate) fn probe(library: &OrtLibrary, device: OrtDevice) -> Result<(), EncodeError> {
    crate::nvidia::preload(library);
    let providers = device.providers(&Wishes::new(false))?;
    open(library, providers).map_err(|error| refused(device, &one_line(&error)))
}

fn open(library: &OrtLibrary, providers: Vec<ExecutionProviderDispatch>) -> ort::Result<()> {
    let builder = Session::builder(&library.environment)?.with_intra_threads(1)?;
    builder.with_execution_providers(providers)?.commit_from_memory(IDENTITY).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::load;

    #[test]
    fn the_cpu_is_there_and_its_graph_is_one() {
        if let Ok(library) = load() {
            probe(library, OrtDevice::Cpu).unwrap();
        }
    }
}
