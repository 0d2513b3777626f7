//! Metrics of HTTP requests, beside the worker's.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::http::StatusCode;
use foveate_worker::TIME_BUCKETS;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::index::IndexSlot;
use crate::process::ProcessStats;

const END: &str = "# EOF\n";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabel {
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: String,
}

pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<AnswerLabel, Counter>,
    seconds: Family<Route, Histogram, fn() -> Histogram>,
    uploads: Gauge<i64, std::sync::atomic::AtomicI64>,
}

fn build() -> Info<[(&'static str, &'static str); 3]> {
    let version = env!("CARGO_PKG_VERSION");
    Info::new([("version", version), ("os", std::env::consts::OS), ("arch", std::env::consts::ARCH)])
}

fn durations() -> Histogram {
    Histogram::new(TIME_BUCKETS)
}

impl Metrics {
    pub(crate) fn new(index: Option<&IndexSlot>) -> Self {
        let mut all = Registry::default();
        if let Some(slot) = index {
            let of_index = all.sub_registry_with_prefix("foveate_index");
            of_index.register("rows", "Vectors of the index", slot.rows.clone());
            let when = "When the index was read, since the epoch";
            of_index.register_with_unit("read_timestamp", when, Unit::Seconds, slot.read_at.clone());
        }
        all.register_collector(Box::new(ProcessStats::new()));
        all.register("foveate_build", "This build", build());
        let registry = all.sub_registry_with_prefix("foveate_http");
        let requests = Family::<AnswerLabel, Counter<u64, AtomicU64>>::default();
        let seconds = Family::new_with_constructor(durations as fn() -> Histogram);
        let uploads = Gauge::default();
        registry.register("requests", "Requests answered", requests.clone());
        registry.register_with_unit("request", "Time until the answer began", Unit::Seconds, seconds.clone());
        registry.register_with_unit(
            "uploads",
            "Bodies, images and results that are not done with",
            Unit::Bytes,
            uploads.clone(),
        );
        Self { registry: all, requests, seconds, uploads }
    }

    pub(crate) fn answered(&self, route: &str, status: StatusCode, took: Duration) {
        self.requests.get_or_create(&AnswerLabel { route: route.to_owned(), status: status.as_u16() }).inc();
        self.seconds.get_or_create(&Route { route: route.to_owned() }).observe(took.as_secs_f64());
    }

    /// Appends these metrics to the worker's text.
    pub(crate) fn after(&self, mut text: String, uploads: u64) -> String {
        self.uploads.set(uploads as i64);
        text.truncate(text.strip_suffix(END).unwrap_or(&text).len());
        let written = encode(&mut text, &self.registry);
        written.unwrap_or_else(|error| unreachable!("text can always be written to: {error}"));
        text
    }
}

/// Rewrites OpenMetrics text in Prometheus's own text format: other names in the comments, no units, no end.
pub(crate) fn plain(text: &str) -> String {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let types: HashMap<&str, &str> = types.collect();
    let mut plain = String::new();
    for line in text.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            plain += &format!("{line}\n");
            continue;
        };
        let (comment, rest) = comment.split_once(' ').unwrap_or((comment, ""));
        let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let (name, kind) = match types.get(name) {
            Some(&"counter") => (format!("{name}_total"), "counter"),
            Some(&"info") => (format!("{name}_info"), "gauge"),
            Some(&"unknown") => (name.to_owned(), "untyped"),
            kind => (name.to_owned(), kind.copied().unwrap_or_default()),
        };
        match comment {
            "TYPE" => plain += &format!("# TYPE {name} {kind}\n"),
            "HELP" => plain += &format!("# HELP {name} {rest}\n"),
            _ => {}
        }
    }
    plain
}
