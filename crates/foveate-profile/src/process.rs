//! What the operating system says about this process.

use std::time::Duration;

/// Resident memory of this process in bytes, where the system tells (Linux).
pub fn resident_bytes() -> Option<u64> {
    status_bytes("VmRSS:")
}

/// The most memory that this process had resident since it began, or since [`reset_peak_resident`], in bytes, where the
/// system tells (Linux).
pub fn peak_resident_bytes() -> Option<u64> {
    status_bytes("VmHWM:")
}

/// Lets [`peak_resident_bytes`] begin anew, and says whether it could: some systems and sandboxes have no such thing.
pub fn reset_peak_resident() -> bool {
    // What "5" means is in Linux's Documentation/filesystems/proc.rst. A sandbox may take it and do nothing.
    let reset = std::fs::write("/proc/self/clear_refs", "5").is_ok();
    reset && peak_resident_bytes().zip(resident_bytes()).is_some_and(|(peak, now)| peak <= now + PEAK_SLACK)
}

/// What may come and go between a reset and a look at what it did.
const PEAK_SLACK: u64 = 16 << 20;

fn status_bytes(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Processor time of this process, all threads, where the system tells (Linux).
pub fn processor_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the program's name in parentheses and may hold spaces.
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    // USER_HZ is 100 on every Linux that Rust runs on.
    Some(Duration::from_millis(ticks * 10))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn memory_and_time_grow_with_use() {
        let before = resident_bytes().unwrap();
        let block = vec![1_u8; 64 << 20];
        assert!(resident_bytes().unwrap() >= before + (48 << 20), "{}", block[block.len() / 2]);

        // A peak stays when memory is given back, until it is told to begin anew.
        drop(block);
        let peak = peak_resident_bytes().unwrap();
        assert!(peak >= before + (48 << 20));
        if reset_peak_resident() {
            let anew = peak_resident_bytes().unwrap();
            assert!(anew <= peak - (32 << 20), "{anew} of {peak}");
        } else {
            eprintln!("skipped: this system does not reset the peak");
        }

        let before = processor_time().unwrap();
        let started = std::time::Instant::now();
        while processor_time().unwrap() - before < Duration::from_millis(50) {
            assert!(started.elapsed() < Duration::from_secs(30), "a busy loop takes processor time");
        }
    }
}
