//! What a span costs: prints a CSV table with nanoseconds, medians of rounds in which all cases take turns.
//!
//! `cargo run --release -p foveate-profile --example spans > spans.csv`

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use foveate_profile::{StageProfiler, Trace};

const SPANS: usize = 200_000;
const ROUNDS: usize = 31;

fn main() {
    let plain = StageProfiler::new(["outer", "inner"]);
    let mut cases: [(&str, Vec<f64>); 5] =
        ["empty loop", "Instant::now() and elapsed()", "span", "record", "span, traced"].map(|case| (case, Vec::new()));
    for _ in 0..ROUNDS {
        let traced = StageProfiler::traced(["outer", "inner"], Trace::new(SPANS));
        for (at, (_, rounds)) in cases.iter_mut().enumerate() {
            let start = Instant::now();
            for number in 0..SPANS {
                match at {
                    0 => drop(black_box(number)),
                    1 => drop(black_box(Instant::now().elapsed())),
                    2 => drop(plain.span(1)),
                    3 => plain.record(1, Duration::from_nanos(number as u64)),
                    _ => drop(traced.span(1)),
                }
            }
            rounds.push(start.elapsed().as_secs_f64() * 1e9 / SPANS as f64);
        }
    }
    println!("spans,rounds,case,ns_median,ns_min,ns_max");
    for (case, mut rounds) in cases {
        rounds.sort_by(f64::total_cmp);
        println!("{SPANS},{ROUNDS},\"{case}\",{:.2},{:.2},{:.2}", rounds[ROUNDS / 2], rounds[0], rounds[ROUNDS - 1]);
    }
}
