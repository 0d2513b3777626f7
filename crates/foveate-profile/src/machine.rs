//! The operating system's figures for the whole machine: who used its processors.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::process;

/// The processor time that the machine has spent so far, at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    at: Instant,
    /// Of this process's threads.
    own: Duration,
    /// Of programs that it started, and that those started, in the unit of `ticks`.
    started: u64,
    /// Of everything, on the processors that this process may use.
    ticks: Ticks,
    /// Time in which some thread waited for a processor, if the system reports it.
    stalled: Option<Duration>,
}

/// The use of the machine's processors between two moments, in shares of their time, 0..=1.
///
/// They are the processors that this process may use; a quota on top of that is not considered.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Used by this process and by the programs that it started.
    pub own: f64,
    /// Used by other processes, and by the system for them.
    pub others: f64,
    /// Not used.
    pub idle: f64,
    /// Given to other virtual machines by the hypervisor.
    pub steal: f64,
    /// Share of the time in which some thread of the machine waited for a processor, this process's included; `None` if
    /// the system does not report it.
    pub pressure: Option<f64>,
}

impl Moment {
    /// Reads the system's counters; `None` if it does not report them (Linux does).
    pub fn now() -> Option<Self> {
        let allowed = allowed_processors(&read("/proc/self/status")?);
        Some(Self {
            at: Instant::now(),
            own: process::processor_time()?,
            started: ended(&read("/proc/self/stat")?)? + running(Path::new("/proc/self")),
            ticks: Ticks::parse(&read("/proc/stat")?, |processor| {
                allowed.iter().any(|list| list.contains(&processor))
            })?,
            stalled: read("/proc/pressure/cpu").and_then(|text| stalled(&text)),
        })
    }

    /// Returns the time since `before`.
    pub fn since(&self, before: &Self) -> Duration {
        self.at - before.at
    }
}

/// Reads a file of the system; `None` if it has none.
fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

impl Usage {
    /// Returns the use between two moments; `None` if the counters did not move, as in some sandboxes.
    pub fn between(before: &Moment, after: &Moment) -> Option<Self> {
        let ticks = after.ticks.since(before.ticks);
        let all = ticks.busy + ticks.idle + ticks.steal;
        let seconds = after.since(before).as_secs_f64();
        if all == 0 || seconds <= 0.0 {
            return None;
        }
        let share = |of: u64| of as f64 / all as f64;
        let own_seconds = (after.own.saturating_sub(before.own)).as_secs_f64();
        let started = share(after.started.saturating_sub(before.started));
        let own = (own_seconds / (seconds * after.ticks.processors as f64) + started).min(1.0);
        let stalled = after.stalled.zip(before.stalled).map(|(after, before)| after.saturating_sub(before));
        Some(Self {
            own,
            others: (share(ticks.busy) - own).max(0.0),
            idle: share(ticks.idle),
            steal: share(ticks.steal),
            pressure: stalled.map(|stalled| (stalled.as_secs_f64() / seconds).min(1.0)),
        })
    }

    /// Returns the share of the processors' time that this process may have lost: what the hypervisor stole, and what
    /// other processes used beyond what was idle. While processors are idle, no process waits for one.
    pub fn lost(&self) -> f64 {
        self.steal + (self.others - self.idle).max(0.0)
    }
}

/// Returns the mean number of threads that ran or waited over the last minute, if the system reports it (Linux).
pub fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// Processor time since the machine started, in the system's unit, over several processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    processors: u64,
    busy: u64,
    idle: u64,
    steal: u64,
}

impl Ticks {
    /// Sums the lines `cpuN …` of `/proc/stat` (see `man proc_stat`) over the processors that `counts`.
    fn parse(stat: &str, counts: impl Fn(usize) -> bool) -> Option<Self> {
        let mut sum = Self::default();
        for line in stat.lines() {
            let mut fields = line.split_whitespace();
            let number = fields.next().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
            if !number.is_some_and(&counts) {
                continue;
            }
            let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
            let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else { return None };
            sum.processors += 1;
            sum.busy += user + nice + system + irq + softirq;
            sum.idle += idle + iowait;
            sum.steal += steal;
        }
        (sum.processors > 0).then_some(sum)
    }

    fn since(self, before: Self) -> Self {
        Self {
            processors: self.processors,
            busy: self.busy.saturating_sub(before.busy),
            idle: self.idle.saturating_sub(before.idle),
            steal: self.steal.saturating_sub(before.steal),
        }
    }
}

/// Reads `Cpus_allowed_list: 0-3,8` from `/proc/self/status`.
fn allowed_processors(status: &str) -> Vec<RangeInclusive<usize>> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
    let ranges = list.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    ranges.collect()
}

/// Sums `cutime` and `cstime` of `/proc/PID/stat`, the 14th and 15th fields behind the program's name in parentheses:
/// the time of programs that the process started, once they have ended.
fn ended(stat: &str) -> Option<u64> {
    times(stat).map(|[_, _, cutime, cstime]| cutime + cstime)
}

/// Reads `utime`, `stime`, `cutime` and `cstime`.
fn times(stat: &str) -> Option<[u64; 4]> {
    let fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let times: Vec<u64> = fields.map_while(|field| field.parse().ok()).take(4).collect();
    times.try_into().ok()
}

/// Sums the time of the programs that the process in this folder of `/proc` started and that still run, with those that
/// they started. When a program ends, its time becomes its parent's `cutime` and `cstime`, so that nothing is counted
/// twice. Without the system's lists of children it is 0.
fn running(process: &Path) -> u64 {
    let tasks = std::fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let mut sum = 0;
    for children in lists {
        for child in children.split_whitespace() {
            let child = Path::new("/proc").join(child);
            let stat = std::fs::read_to_string(child.join("stat")).unwrap_or_default();
            sum += times(&stat).map_or(0, |times| times.iter().sum()) + running(&child);
        }
    }
    sum
}

/// Reads the total from `some avg10=0.00 … total=12345` (microseconds) of `/proc/pressure/cpu`.
fn stalled(pressure: &str) -> Option<Duration> {
    let some = pressure.lines().find(|line| line.starts_with("some "))?;
    let total = some.split_whitespace().find_map(|field| field.strip_prefix("total="))?;
    total.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  30 3 6 100 10 1 2 4 0 0\ncpu0 10 1 2 60 5 1 1 1 0 0\ncpu1 20 2 4 40 5 0 1 3 0 0\nctxt 9\n";

    #[test]
    fn ticks_are_summed_over_the_processors_that_the_process_may_use() {
        let both = Ticks::parse(STAT, |_| true);
        assert_eq!(both, Some(Ticks { processors: 2, busy: 42, idle: 110, steal: 4 }));
        let second = Ticks::parse(STAT, |processor| processor == 1);
        assert_eq!(second, Some(Ticks { processors: 1, busy: 27, idle: 45, steal: 3 }));
        assert_eq!(Ticks::parse("cpu  1 2 3 4\n", |_| true), None);
        assert_eq!(Ticks::parse("cpu0 1 2 3\n", |_| true), None);
    }

    #[test]
    fn lists_of_processors_and_stalls_are_read() {
        let status = "Name:\tx\nCpus_allowed:\tf\nCpus_allowed_list:\t0-2,5\n";
        assert_eq!(allowed_processors(status), [0..=2, 5..=5]);
        let pressure = "some avg10=0.10 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 total=7\n";
        assert_eq!(stalled(pressure), Some(Duration::from_millis(2500)));
        assert_eq!(stalled("nothing"), None);
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 9 8 7 6 50 10 300 20 20 0 1 0 99 0";
        assert_eq!((ended(stat), ended("7 (a) S 1")), (Some(320), None));
    }

    /// Returns the use of two processors in ten seconds, which have 2000 ticks, by this process's seconds and by ticks.
    fn usage(own_seconds: u64, busy: u64, idle: u64, steal: u64) -> Usage {
        let moment = |seconds: u64, own: u64, [busy, idle, steal]: [u64; 3]| Moment {
            at: start() + Duration::from_secs(seconds),
            own: Duration::from_secs(own),
            started: 0,
            ticks: Ticks { processors: 2, busy, idle, steal },
            stalled: Some(Duration::from_secs(own)),
        };
        let before = moment(0, 100, [500, 600, 700]);
        let after = moment(10, 100 + own_seconds, [500 + busy, 600 + idle, 700 + steal]);
        Usage::between(&before, &after).unwrap()
    }

    fn start() -> Instant {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now)
    }

    #[test]
    fn time_that_others_use_is_lost_only_beyond_what_is_idle() {
        let alone = usage(20, 2000, 0, 0);
        assert_eq!((alone.own, alone.others, alone.lost(), alone.pressure), (1.0, 0.0, 0.0, Some(1.0)));
        let shared = usage(10, 2000, 0, 0);
        assert_eq!((shared.own, shared.others, shared.lost()), (0.5, 0.5, 0.5));
        let beside = usage(10, 1400, 600, 0);
        assert!((beside.others - 0.2).abs() < 1e-9 && beside.lost() == 0.0, "{beside:?}");
        let stolen = usage(16, 1600, 0, 400);
        assert_eq!((stolen.steal, stolen.others, stolen.lost()), (0.2, 0.0, 0.2));
    }

    #[test]
    fn counters_that_stand_still_tell_nothing() {
        let moment = |at| Moment { at, own: Duration::ZERO, started: 0, ticks: Ticks::default(), stalled: None };
        assert_eq!(Usage::between(&moment(start()), &moment(start() + Duration::from_secs(1))), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_program_that_was_started_is_no_other_process() {
        let ticks = || Moment::now().unwrap().started;
        let before = ticks();
        // The work is done by the child of a shell, so that it is found through that.
        let work = "sh -c 'i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done'; :";
        let mut shell = std::process::Command::new("sh").args(["-c", work]).spawn().unwrap();
        let mut while_it_ran = before;
        while shell.try_wait().unwrap().is_none() {
            while_it_ran = while_it_ran.max(ticks());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(while_it_ran > before, "{while_it_ran} ticks");
        assert!(ticks() >= while_it_ran, "nothing is lost when it ends");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_tells_something() {
        let before = Moment::now().unwrap();
        while process::processor_time().unwrap() - before.own < Duration::from_millis(100) {}
        let after = Moment::now().unwrap();
        let usage = Usage::between(&before, &after).unwrap();
        assert!(usage.own > 0.0 && load_average().is_some(), "{usage:?}");
        let whole = usage.own.max(usage.own + usage.others) + usage.idle + usage.steal;
        assert!((0.5..1.5).contains(&whole), "{usage:?}");
    }
}
