//! The peak memory of a forward.

use foveate_profile::process;

use super::cells::{Row, not_available};
use crate::{Memory, Rig, Setting};

/// Returns the columns of a forward's memory, measured in a separate process.
pub(super) fn columns_of_forward(rig: &dyn Rig, setting: &Setting) -> Row {
    let memory = rig.memory_of_forward(setting).unwrap_or_else(|why| Memory { bytes: None, of: not_available(&why) });
    Row::from([
        ("peak_memory_mb", memory.bytes.map(|bytes| bytes as f64 / 1e6).into()),
        ("memory_of", memory.of.into()),
    ])
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
