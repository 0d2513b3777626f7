//! The peak memory of a forward.

use std::process::Command;
use std::thread;

use foveate_encode::{EncodeError, EncoderSpec};
use foveate_profile::process;

use crate::{LabError, Rig, Setting};

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

/// Measures this process's memory on a GPU. Another process reads it while `again` keeps the forward running.
pub(super) fn on_nvidia(mut again: impl FnMut() -> Result<(), EncodeError>) -> Result<Memory, LabError> {
    thread::scope(|scope| {
        let asked = scope.spawn(ask_nvidia);
        while !asked.is_finished() {
            again()?;
        }
        Ok(asked.join().unwrap_or_else(|_| not_known("asking nvidia-smi failed")))
    })
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

/// Returns this process's part, or all memory in use if the driver does not distinguish processes (often in
/// containers).
fn ask_nvidia() -> Memory {
    let ask = |what: &str| nvidia_smi(&[what, "--format=csv,noheader,nounits"]);
    let found = ask("--query-compute-apps=pid,used_memory").and_then(|apps| match used_by(&apps, std::process::id()) {
        Some(bytes) => Ok((bytes, "device")),
        None => Ok((of_the_only_device(&ask("--query-gpu=memory.used")?)?, "device, all processes")),
    });
    match found {
        Ok((bytes, of)) => Memory { bytes: Some(bytes), of: of.to_owned() },
        Err(why) => not_known(&why),
    }
}

fn nvidia_smi(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("nvidia-smi").args(arguments).output().map_err(|error| format!("nvidia-smi: {error}"))?;
    if !output.status.success() {
        return Err(format!("nvidia-smi: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the bytes of a process on all devices, from lines `pid, MiB`.
fn used_by(apps: &str, pid: u32) -> Option<u64> {
    let mine = |line: &str| {
        let (owner, mebibytes) = line.split_once(',')?;
        (owner.trim().parse() == Ok(pid)).then(|| mebibytes.trim().parse::<u64>().ok())?
    };
    apps.lines().filter_map(mine).reduce(|a, b| a + b).map(|mebibytes| mebibytes << 20)
}

/// Returns the bytes in use on a machine with one device, from a single line `MiB`.
fn of_the_only_device(used: &str) -> Result<u64, String> {
    let mut lines = used.lines().filter(|line| !line.trim().is_empty());
    match (lines.next().map(|line| line.trim().parse::<u64>()), lines.next()) {
        (Some(Ok(mebibytes)), None) => Ok(mebibytes << 20),
        (_, Some(_)) => Err("nvidia-smi lists several devices and not this process".to_owned()),
        _ => Err(format!("nvidia-smi: '{}' is no amount of memory", used.trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_among_those_that_nvidia_smi_lists() {
        let apps = "1234, 567\n99, 10\n1234, 33\n";
        assert_eq!(used_by(apps, 1234), Some(600 << 20));
        assert_eq!(used_by(apps, 99), Some(10 << 20));
        assert_eq!(used_by(apps, 9), None);
        for nothing in ["", "\n", "1234, [N/A]\n", "1234\n", "[Not Found], 12"] {
            assert_eq!(used_by(nothing, 1234), None, "{nothing:?}");
        }
    }

    #[test]
    fn the_only_device_stands_in_for_the_process() {
        assert_eq!(of_the_only_device("1021\n"), Ok(1021 << 20));
        for (listed, why) in [("12\n13\n", "several"), ("[N/A]\n", "[N/A]"), ("", "no amount")] {
            let error = of_the_only_device(listed).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

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
