//! What the operating system says about this process.

use std::time::Duration;

/// Resident memory of this process in bytes, where the system tells (Linux).
pub fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
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

        let before = processor_time().unwrap();
        let started = std::time::Instant::now();
        while processor_time().unwrap() - before < Duration::from_millis(50) {
            assert!(started.elapsed() < Duration::from_secs(30), "a busy loop takes processor time");
        }
    }
}
