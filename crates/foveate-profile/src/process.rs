//! The operating system's figures for this process.

use std::time::Duration;

/// This process's resident memory in bytes, if the system reports it (Linux).
pub fn resident_bytes() -> Option<u64> {
    status_bytes("VmRSS:")
}

/// This process's peak resident memory in bytes since its start, or since [`reset_peak_resident`], if the system
/// reports it (Linux).
pub fn peak_resident_bytes() -> Option<u64> {
    status_bytes("VmHWM:")
}

/// Resets [`peak_resident_bytes`], and returns whether it could: some systems and sandboxes do not permit it.
pub fn reset_peak_resident() -> bool {
    // Linux's Documentation/filesystems/proc.rst explains the "5".
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

fn status_bytes(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Processor time of this process's threads, ended ones included, if the system reports it (Unix).
pub fn processor_time() -> Option<Duration> {
    clock::time(clock::Of::Process)
}

/// Processor time of the calling thread, if the system reports it (Unix).
pub fn thread_processor_time() -> Option<Duration> {
    clock::time(clock::Of::Thread)
}

mod clock {
    use std::time::Duration;

    #[derive(Clone, Copy)]
    pub(super) enum Of {
        Process,
        Thread,
    }

    #[cfg(unix)]
    pub(super) fn time(of: Of) -> Option<Duration> {
        use rustix::time::{ClockId, clock_gettime};
        let time = clock_gettime(match of {
            Of::Process => ClockId::ProcessCPUTime,
            Of::Thread => ClockId::ThreadCPUTime,
        });
        Some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?))
    }

    #[cfg(not(unix))]
    pub(super) fn time(_: Of) -> Option<Duration> {
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn memory_grows_with_use() {
        let before = resident_bytes().unwrap();
        let block = vec![1_u8; 64 << 20];
        assert!(resident_bytes().unwrap() >= before + (48 << 20), "{}", block[block.len() / 2]);

        // Freed memory still counts in the peak until a reset.
        drop(block);
        let peak = peak_resident_bytes().unwrap();
        assert!(peak >= before + (48 << 20));
        let is_reset = reset_peak_resident();
        let anew = peak_resident_bytes().unwrap();
        assert_eq!(anew <= peak - (32 << 20), is_reset, "{anew} of {peak}");
    }

    #[test]
    fn work_takes_processor_time_and_sleep_does_not() {
        let time = || (thread_processor_time().unwrap(), processor_time().unwrap());
        let (thread, process) = time();
        while time().0 - thread < Duration::from_millis(5) {}
        // The process's clock was read after the thread's.
        assert!(time().1 - process >= Duration::from_millis(4));
        let (before, _) = time();
        std::thread::sleep(Duration::from_millis(50));
        assert!(time().0 - before < Duration::from_millis(40));
    }
}
