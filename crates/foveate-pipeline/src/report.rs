use std::collections::BTreeMap;
use std::time::Duration;

use foveate_core::Stage;
use foveate_profile::StageTotals;
use foveate_sink::Published;

use crate::{Changes, QueueStats, Recalled};

/// A session's results, and where its time went.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// Items of the whole run, including earlier sessions and items still to do; `None` if their number is not known
    /// yet.
    pub inputs: Option<u64>,
    /// Items that earlier sessions had settled.
    pub resumed: u64,
    /// Vectors stored in this session.
    pub rows: u64,
    /// Failures recorded in this session.
    pub failures: u64,
    /// These failures by stage and [kind](foveate_sink::Failure::kind) (`decode: truncated JPEG`). Of many kinds, the
    /// first 1000 are counted.
    pub failure_kinds: BTreeMap<String, u64>,
    /// Rows of this session whose vectors were not computed for them.
    pub recalled: Recalled,
    /// Images of this session whose gray was clipped to 8 bits, so that different ones may have equal vectors.
    pub clipped: u64,
    /// Items settled and durable, earlier sessions included.
    pub settled: u64,
    /// Encoded bytes that this session read.
    pub bytes: u64,
    /// Wall-clock time from the first item to the last commit.
    pub wall: Duration,
    /// The cost of each stage, in pipeline order.
    pub stages: Vec<StageReport>,
    /// The parts of encoding, as the encoder reports them: `copy-in`, `forward`, `copy-out`, one span per batch.
    pub encode_parts: Vec<StageTotals>,
    /// Each queue's statistics; empty in a sequential run.
    pub queues: Vec<QueueStats>,
    /// The changes that an update found; `None` for other runs.
    pub changes: Option<Changes>,
    /// The finished output; `None` when the run was interrupted.
    pub published: Option<Published>,
}

/// The cost of one stage.
#[derive(Clone, Debug)]
pub struct StageReport {
    /// The stage.
    pub stage: Stage,
    /// Threads that ran it.
    pub threads: usize,
    /// Its spans.
    pub totals: StageTotals,
    /// Busy time ÷ (threads × wall), 0..=1: how close the stage was to being the limit.
    pub utilization: f64,
    /// Its share of all stages' busy time, 0..=1.
    pub share: f64,
}

impl RunReport {
    /// The report of an update that has nothing to embed.
    pub fn without_items(changes: Changes, published: Published) -> Self {
        Self {
            inputs: Some(0),
            resumed: 0,
            rows: 0,
            failures: 0,
            failure_kinds: BTreeMap::new(),
            clipped: 0,
            settled: 0,
            bytes: 0,
            wall: Duration::ZERO,
            stages: Vec::new(),
            encode_parts: Vec::new(),
            queues: Vec::new(),
            recalled: Recalled::default(),
            changes: Some(changes),
            published: Some(published),
        }
    }

    /// Items settled per second of this session.
    pub fn throughput(&self) -> f64 {
        let seconds = self.wall.as_secs_f64();
        if seconds > 0.0 { (self.rows + self.failures) as f64 / seconds } else { 0.0 }
    }

    /// Vectors that this session computed.
    pub fn computed(&self) -> u64 {
        let Recalled { run, output, cache } = self.recalled;
        self.rows - run - output - cache
    }

    /// Returns true if the run reached its end.
    pub fn is_complete(&self) -> bool {
        self.published.is_some()
    }

    /// The stage that limited the run: the one with the highest utilization.
    pub fn bottleneck(&self) -> Option<&StageReport> {
        let busy = self.stages.iter().filter(|stage| stage.totals.count > 0);
        busy.max_by(|a, b| a.utilization.total_cmp(&b.utilization))
    }
}

pub(crate) fn stage_reports(
    totals: Vec<StageTotals>,
    threads: impl Fn(Stage) -> usize,
    wall: Duration,
) -> Vec<StageReport> {
    let all: f64 = totals.iter().map(|stage| stage.busy.as_secs_f64()).sum();
    let mut reports = Vec::new();
    for (stage, totals) in Stage::ALL.into_iter().zip(totals) {
        let busy = totals.busy.as_secs_f64();
        let threads = threads(stage);
        let utilization = ratio(busy, threads as f64 * wall.as_secs_f64());
        reports.push(StageReport { stage, threads, utilization, share: ratio(busy, all), totals });
    }
    reports
}

/// Divides, and returns 0 for a share of nothing.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
