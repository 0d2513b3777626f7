//! The machine and this process, without names or paths.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What the system calls the processor, where it tells; no commas, so that it fits into a CSV field.
pub fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(std::env::consts::ARCH);
    name.trim_start_matches([' ', '\t', ':']).replace(',', " ")
}

/// What a backend says that it computes with, without where this machine keeps it; no commas.
pub fn library(said: Option<&str>) -> String {
    let said = said.unwrap_or("all Rust");
    said.split(", ").filter(|part| !part.contains('/')).collect::<Vec<_>>().join(" ").replace(',', "")
}

/// Cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Processor time of the calling thread.
pub fn thread_time() -> Duration {
    time(ClockId::ThreadCPUTime)
}

/// Processor time of all threads of this process, those that ended included.
pub fn process_time() -> Duration {
    time(ClockId::ProcessCPUTime)
}

fn time(clock: ClockId) -> Duration {
    // Both clocks start at zero, so neither field is negative.
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// The most memory this process has had resident so far, in bytes, where the system tells (Linux).
pub fn peak_resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_processor_time_and_sleep_does_not() {
        let (thread, process, started) = (thread_time(), process_time(), std::time::Instant::now());
        while thread_time() - thread < Duration::from_millis(5) {
            assert!(started.elapsed() < Duration::from_secs(30), "a busy loop takes processor time");
        }
        assert!(process_time() - process >= Duration::from_millis(5));
        let before = thread_time();
        std::thread::sleep(Duration::from_millis(50));
        assert!(thread_time() - before < Duration::from_millis(40));
    }

    #[test]
    fn libraries_are_named_without_paths() {
        assert_eq!(library(Some("X 1.2, vendored, /opt/x/libx.so.1")), "X 1.2 vendored");
        assert_eq!(library(None), "all Rust");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_peak_stays_when_memory_is_given_back() {
        let block = vec![1_u8; 64 << 20];
        assert_eq!(block[block.len() / 2], 1);
        drop(block);
        assert!(peak_resident_bytes().unwrap() >= 64 << 20);
    }
}
