//! The memory that a process needs.

use foveate_encode::EncoderSpec;
use foveate_profile::card::Cards;
use foveate_profile::process;

/// The peak memory, and what it covers.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Bytes, if the system reports them.
    pub bytes: Option<u64>,
    /// Scope of the figure, or the reason why there is none.
    pub of: String,
}

impl Memory {
    /// Returns the memory of a process that has run this encoder and nothing else: on an NVIDIA GPU the process's own,
    /// or all that is in use if the driver does not distinguish processes; on the host the peak.
    ///
    /// # Errors
    /// If the device's driver does not tell.
    pub fn of_this_process(spec: &EncoderSpec) -> Result<Self, String> {
        if !spec.device.starts_with("cuda") {
            return Ok(Self { bytes: process::peak_resident_bytes(), of: "process of its own".to_owned() });
        }
        let cards = Cards::find(&spec.device)?;
        if let Some(bytes) = cards.own_bytes() {
            return Ok(Self { bytes: Some(bytes), of: "device".to_owned() });
        }
        let bytes = cards.read().map(|reading| reading.memory_bytes);
        Ok(Self { bytes, of: "device, all processes".to_owned() })
    }
}
