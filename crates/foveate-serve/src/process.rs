//! Metrics of the process, under the names that Prometheus's own client libraries give them.

use std::fmt;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use foveate_profile::process::{processor_time, resident_bytes};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// Reads the system's figures at each scrape. Those that the system does not report are absent.
#[derive(Debug)]
pub(crate) struct ProcessStats {
    /// In seconds since the epoch.
    started: Option<f64>,
}

impl ProcessStats {
    pub(crate) fn new() -> Self {
        Self { started: started() }
    }
}

type Figure = (&'static str, &'static str, Option<Unit>, Option<Box<dyn EncodeMetric>>);

impl Collector for ProcessStats {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let cpu = processor_time().map(|time| Box::new(ConstCounter::new(time.as_secs_f64())) as Box<dyn EncodeMetric>);
        let figures: [Figure; 6] = [
            ("process_cpu", "Processor time used", Some(Unit::Seconds), cpu),
            ("process_start_time", "Start, since the epoch", Some(Unit::Seconds), self.started.map(gauge)),
            (
                "process_resident_memory",
                "Resident memory",
                Some(Unit::Bytes),
                resident_bytes().map(|b| gauge(b as f64)),
            ),
            ("process_threads", "Threads", None, entries("/proc/self/task").map(gauge)),
            ("process_open_fds", "Open file descriptors", None, entries("/proc/self/fd").map(gauge)),
            ("process_max_fds", "Most open file descriptors", None, max_fds().map(gauge)),
        ];
        for (name, help, unit, metric) in figures {
            if let Some(metric) = metric {
                metric.encode(encoder.encode_descriptor(name, help, unit.as_ref(), metric.metric_type())?)?;
            }
        }
        Ok(())
    }
}

fn gauge(value: f64) -> Box<dyn EncodeMetric> {
    Box::new(ConstGauge::new(value))
}

fn entries(folder: &str) -> Option<f64> {
    Some(fs::read_dir(folder).ok()?.count() as f64)
}

fn max_fds() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the time at which the process started: now, less the time since. proc(5) explains the fields.
fn started() -> Option<f64> {
    /// Linux counts in these to programs, on every architecture.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name, the second field, may contain spaces: the rest begins with the third, the start is the 22nd.
    let ticks: f64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let uptime: f64 = fs::read_to_string("/proc/uptime").ok()?.split_whitespace().next()?.parse().ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
    Some(now - (uptime - ticks / TICKS_PER_SECOND))
}
