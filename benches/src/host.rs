//! The machine and this process, without names or paths.

use std::time::Duration;

use crate::Result;

/// The system's name of the processor, if known, without commas, so that it fits into a CSV field.
pub fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(std::env::consts::ARCH);
    name.trim_start_matches([' ', '\t', ':']).replace(',', " ")
}

/// A backend's description of its library, without this machine's paths and without commas.
pub fn library(said: Option<&str>) -> String {
    let said = said.unwrap_or("all Rust");
    said.split(", ").filter(|part| !part.contains('/')).collect::<Vec<_>>().join(" ").replace(',', "")
}

/// The number of cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Reads a clock of `foveate_profile::process`.
///
/// # Errors
/// If the clock is not available.
pub fn time(clock: fn() -> Option<Duration>) -> Result<Duration> {
    clock().ok_or_else(|| "this system tells no processor time".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_named_without_paths() {
        assert_eq!(library(Some("X 1.2, vendored, /opt/x/libx.so.1")), "X 1.2 vendored");
        assert_eq!(library(None), "all Rust");
    }
}
