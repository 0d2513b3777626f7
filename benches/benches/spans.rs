//! The cost of measuring: one span of the profiler, an empty loop, and the two clock reads that every span needs. The
//! bench checks that every span is counted, and that every event is in the trace.
//!
//! `cargo bench -p foveate-benches --bench spans -- [--spans 200000] [--rounds 31] [--csv FILE]`
//!
//! The cases take turns, in reverse order every other round; figures are nanoseconds per span over a turn. With several
//! threads, all of them write to one profiler, and the figure is their mean.

// A bench prints its table.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use foveate_benches::{Result, Spread, host, spread};
use foveate_profile::{StageProfiler, Trace};

const STAGES: [&str; 3] = ["outer", "middle", "inner"];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Case {
    EmptyLoop,
    ClockPair,
    Span,
    Nested,
    Record,
    Traced,
    TracedNested,
    Counter,
}

impl Case {
    const ALL: [Self; 8] = [
        Self::EmptyLoop,
        Self::ClockPair,
        Self::Span,
        Self::Nested,
        Self::Record,
        Self::Traced,
        Self::TracedNested,
        Self::Counter,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::EmptyLoop => "empty loop",
            Self::ClockPair => "Instant::now() and elapsed()",
            Self::Span => "span",
            Self::Nested => "span, three deep",
            Self::Record => "record",
            Self::Traced => "span, traced",
            Self::TracedNested => "span, three deep, traced",
            Self::Counter => "counter of a trace",
        }
    }

    fn is_traced(self) -> bool {
        matches!(self, Self::Traced | Self::TracedNested | Self::Counter)
    }

    /// Spans of a thread by stage; a trace's counters are not spans.
    fn counts(self, spans: u64) -> [u64; 3] {
        match self {
            Self::EmptyLoop | Self::ClockPair | Self::Counter => [0; 3],
            Self::Span | Self::Record | Self::Traced => [spans, 0, 0],
            Self::Nested | Self::TracedNested => [spans / 3; 3],
        }
    }

    fn run(self, profiler: &StageProfiler, spans: u64) {
        match self {
            Self::EmptyLoop => (0..spans).for_each(|i| _ = black_box(i)),
            Self::ClockPair => (0..spans).for_each(|_| _ = black_box(Instant::now().elapsed())),
            Self::Span | Self::Traced => (0..spans).for_each(|_| drop(profiler.span(black_box(0)))),
            Self::Nested | Self::TracedNested => (0..spans / 3).for_each(|_| {
                let _outer = profiler.span(black_box(0));
                let _middle = profiler.span(black_box(1));
                let _inner = profiler.span(black_box(2));
            }),
            Self::Record => (0..spans).for_each(|i| profiler.record(0, black_box(Duration::from_nanos(i)))),
            Self::Counter => {
                let trace = profiler.trace().expect("the case is traced");
                (0..spans).for_each(|i| trace.counter("queue", i));
            }
        }
    }
}

struct Args {
    spans: u64,
    rounds: usize,
    csv: Option<PathBuf>,
}

impl Args {
    fn parse() -> Result<Self> {
        let mut args = Self { spans: 200_000, rounds: 31, csv: None };
        let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
        while let Some(word) = words.next() {
            let value = words.next().ok_or(format!("{word} needs a value"))?;
            match word.as_str() {
                "--spans" => args.spans = value.parse()?,
                "--rounds" => args.rounds = value.parse()?,
                "--csv" => args.csv = Some(value.into()),
                _ => return Err(format!("there is no option {word}").into()),
            }
        }
        if args.spans < 3 || args.rounds == 0 {
            return Err("--spans takes 3 or more, --rounds 1 or more".into());
        }
        Ok(args)
    }
}

/// A case on a number of threads.
#[derive(Clone, Copy)]
struct Cell {
    case: Case,
    threads: usize,
}

impl Cell {
    /// Measures one turn, in nanoseconds per span.
    fn measure(self, spans: u64) -> f64 {
        let profiler = self.profiler(spans);
        let barrier = Barrier::new(self.threads);
        let turn = || {
            // A thread's first span allocates its slot in the profiler, which is not part of a span's cost.
            self.case.run(&profiler, 3);
            barrier.wait();
            let start = Instant::now();
            self.case.run(&profiler, spans);
            start.elapsed()
        };
        let times: Vec<Duration> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads).map(|_| scope.spawn(turn)).collect();
            threads.into_iter().map(|thread| thread.join().expect("a turn does not panic")).collect()
        });
        self.check(&profiler, spans);
        times.iter().sum::<Duration>().as_secs_f64() * 1e9 / (spans * self.threads as u64) as f64
    }

    fn profiler(self, spans: u64) -> StageProfiler {
        if self.case.is_traced() {
            // Threads allocate room in pieces, and may leave a part of one unused.
            StageProfiler::traced(STAGES, Trace::new((spans as usize + 100) * self.threads))
        } else {
            StageProfiler::new(STAGES)
        }
    }

    fn check(self, profiler: &StageProfiler, spans: u64) {
        let threads = self.threads as u64;
        let expected = [spans, 3].map(|spans| self.case.counts(spans).map(|count| count * threads));
        for (stage, totals) in profiler.totals().iter().enumerate() {
            assert_eq!(totals.count, expected[0][stage] + expected[1][stage], "{:?} counts every span", self.case);
            assert!(totals.own <= totals.busy);
        }
        if let Some(trace) = profiler.trace() {
            let per_thread = if self.case == Case::TracedNested { spans / 3 * 3 + 3 } else { spans + 3 };
            assert_eq!((trace.events() as u64, trace.dropped()), (per_thread * threads, 0), "{:?}", self.case);
        }
    }
}

fn main() -> Result<()> {
    let args = Args::parse()?;
    let cores = host::cores();
    let threads = if cores > 1 { vec![1, cores] } else { vec![1] };
    let cells: Vec<Cell> = threads.iter().flat_map(|&threads| Case::ALL.map(|case| Cell { case, threads })).collect();
    let mut turns = vec![Vec::new(); cells.len()];
    // The first round wakes the processor up and does not count.
    for round in 0..=args.rounds {
        let mut order: Vec<usize> = (0..cells.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let nanos = cells[at].measure(args.spans);
            if round > 0 {
                turns[at].push(nanos);
            }
        }
    }
    let spreads: Vec<Spread> = turns.iter().map(|turns| spread(turns)).collect();
    report(&args, &cells, &spreads)
}

fn report(args: &Args, cells: &[Cell], spreads: &[Spread]) -> Result<()> {
    let Args { spans, rounds, .. } = args;
    println!("ns per span, {spans} spans a turn, medians (least to most) of {rounds} rounds, {}", host::processor());
    let mut csv = String::from("host,cores,spans,rounds,case,threads,ns_median,ns_min,ns_max\n");
    for (Cell { case, threads }, Spread { median, min, max }) in cells.iter().zip(spreads) {
        let name = case.name();
        println!("{name:<28} {threads:>3} threads {median:>7.1} ({min:.1} to {max:.1})");
        csv += &format!(
            "{},{},{spans},{rounds},{name},{threads},{median:.2},{min:.2},{max:.2}\n",
            host::processor(),
            host::cores(),
        );
    }
    if host::cores() == 1 {
        println!("all cores at once: n/a (one core)");
    }
    Ok(args.csv.as_ref().map_or(Ok(()), |path| std::fs::write(path, csv))?)
}
