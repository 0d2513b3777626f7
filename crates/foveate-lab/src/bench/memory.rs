//! The peak memory of a forward.

use foveate_encode::EncoderSpec;
use foveate_profile::card::Cards;
use foveate_profile::process;

use crate::{Rig, Setting};

/// The peak memory, and what it covers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Memory {
    /// Bytes, if the system reports them.
    pub(super) bytes: Option<u64>,
    /// What the figure covers, or why there is none.
    pub(super) of: String,
}

impl Memory {
    /// Measures a forward on the host, in a process of its own.
    pub(super) fn on_host(rig: &dyn Rig, setting: &Setting) -> Self {
        match rig.memory_of_forward(setting) {
            Ok(bytes) => Self { bytes: Some(bytes), of: "process of its own".to_owned() },
            Err(why) => not_known(&why),
        }
    }
}

/// Returns true if the forward runs on an NVIDIA GPU.
pub(super) fn is_on_nvidia(spec: &EncoderSpec) -> bool {
    spec.device.starts_with("cuda")
}

/// Returns this process's memory on a GPU, or all memory in use if the driver does not distinguish processes.
pub(super) fn on_nvidia(device: &str) -> Memory {
    match Cards::find(device) {
        Err(why) => not_known(&why),
        Ok(cards) => match cards.own_bytes() {
            Some(bytes) => Memory { bytes: Some(bytes), of: "device".to_owned() },
            None => Memory {
                bytes: cards.read().map(|reading| reading.memory_bytes),
                of: "device, all processes".to_owned(),
            },
        },
    }
}

/// The measurement of this process's peak over a period.
pub(super) struct Peak {
    was_reset: bool,
}

impl Peak {
    /// Begins the period.
    pub(super) fn begin() -> Self {
        Self { was_reset: process::reset_peak_resident() }
    }

    /// Ends the period.
    pub(super) fn end(self) -> Memory {
        match self.was_reset {
            true => Memory { bytes: process::peak_resident_bytes(), of: "process".to_owned() },
            // The peak covers the whole process so far; the current value is closer.
            false => Memory { bytes: process::resident_bytes(), of: "process, at the end".to_owned() },
        }
    }
}

fn not_known(why: &str) -> Memory {
    Memory { bytes: None, of: super::cells::not_available(why) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn the_peak_of_a_process_holds_what_it_had_and_gave_back() {
        let peak = Peak::begin();
        let before = process::resident_bytes().unwrap();
        drop(std::hint::black_box(vec![1_u8; 64 << 20]));
        let was_reset = peak.was_reset;
        let memory = peak.end();
        assert_eq!(memory.of, if was_reset { "process" } else { "process, at the end" });
        // Without a reset, as in some sandboxes, only the current memory is known.
        assert!(!was_reset || memory.bytes.unwrap() >= before + (48 << 20), "{memory:?}");
    }
}
