use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// The error beneath another, or a text if there is none. Shared, because a later call returns the same error.
pub type Cause = Arc<dyn Error + Send + Sync>;

/// The reason why the GPU cannot be used, or an error that it reported. Every message is one line.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// There is no driver, or it does not start.
    #[error("no CUDA driver: {reason}; install NVIDIA's driver, version 525 or newer")]
    NoDriver {
        /// The loader's or the driver's error.
        #[source]
        reason: Cause,
    },
    /// The driver's release is not supported.
    #[error("the CUDA driver is of CUDA {found}; {needed} is the least (driver 525)")]
    DriverTooOld {
        /// The driver's release.
        found: Version,
        /// The oldest supported release.
        needed: Version,
    },
    /// There is no device of that number.
    #[error("no CUDA device {ordinal}: {}", there_are(.devices))]
    NoDevice {
        /// The requested number.
        ordinal: usize,
        /// The names of the existing devices, in order.
        devices: Vec<String>,
    },
    /// A library beside the driver is missing or unsuitable.
    #[error("no {name}: {reason}; {remedy}")]
    Library {
        /// The library's name.
        name: &'static str,
        /// The paths that were tried, or the loader's error.
        #[source]
        reason: Cause,
        /// The remedy.
        remedy: &'static str,
    },
    /// The device does not have enough free memory.
    #[error("out of memory on the device: {bytes} bytes asked for, {free} of {total} free")]
    OutOfMemory {
        /// Requested.
        bytes: usize,
        /// Free.
        free: usize,
        /// Total.
        total: usize,
    },
    /// The kernels do not compile for the device, or one is missing.
    #[error("kernels: {0}")]
    Kernels(String),
    /// The request does not fit the given memory; no work was started.
    #[error("{0}")]
    Misfit(String),
    /// The driver or a library refused a call, or a kernel failed before it.
    #[error("{function}: {name}{}", in_brackets(.detail))]
    Call {
        /// The called function.
        function: &'static str,
        /// The error's name (`CUDA_ERROR_LAUNCH_FAILED`).
        name: String,
        /// The error in words; may be empty.
        detail: String,
    },
}

/// A release of CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The number before the point.
    pub major: u32,
    /// The number after the point.
    pub minor: u32,
}

impl Version {
    /// Parses CUDA's own form, `1000 · major + 10 · minor`.
    pub(crate) fn from_number(number: i32) -> Self {
        let number = number.unsigned_abs();
        Self { major: number / 1000, minor: number % 1000 / 10 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

fn there_are(devices: &[String]) -> String {
    match devices {
        [] => "there is none".to_owned(),
        [only] => format!("there is one, 0 ({only})"),
        more => {
            let named: Vec<String> = more.iter().enumerate().map(|(i, name)| format!("{i} ({name})")).collect();
            format!("there are {}: {}", more.len(), named.join(", "))
        }
    }
}

fn in_brackets(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(" ({detail})") }
}

/// Joins a foreign message into one line.
pub(crate) fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_device_names_those_there_are() {
        let message = |devices: &[&str]| {
            let devices = devices.iter().map(|&name| name.to_owned()).collect();
            CudaError::NoDevice { ordinal: 3, devices }.to_string()
        };
        assert_eq!(message(&[]), "no CUDA device 3: there is none");
        assert_eq!(message(&["T4"]), "no CUDA device 3: there is one, 0 (T4)");
        assert_eq!(message(&["T4", "L4"]), "no CUDA device 3: there are 2: 0 (T4), 1 (L4)");
    }

    #[test]
    fn versions_are_read_as_cuda_writes_them() {
        assert_eq!(Version::from_number(12_080).to_string(), "12.8");
        assert!(Version::from_number(11_080) < Version { major: 12, minor: 0 });
    }

    #[test]
    fn messages_are_one_line() {
        assert_eq!(one_line("ptxas error : x\n  line 3\n"), "ptxas error : x line 3");
    }
}
