//! The progress display of a job: a bar on a terminal, a plain line every few seconds elsewhere. It is always on
//! standard error, so that standard output holds only the summary.

use std::collections::{BTreeSet, VecDeque};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use foveate::core::lock;
use foveate::model::Card;
use foveate::pipeline::Progress;
use foveate::source::Extent;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::console;

const REDRAW: Duration = Duration::from_millis(200);
const PLAIN_EVERY: Duration = Duration::from_secs(10);

/// Shows the progress of a run over the items `inputs` until `work` returns.
pub(crate) fn watch<T>(quiet: bool, inputs: Extent, progress: &Progress, work: impl FnOnce() -> T) -> T {
    if quiet {
        return work();
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let shower = scope.spawn(|| show(&inputs, progress, &done));
        let result = work();
        done.store(true, Ordering::SeqCst);
        shower.thread().unpark();
        result
    })
}

fn show(inputs: &Extent, progress: &Progress, done: &AtomicBool) {
    let mut display: Box<dyn Display> = if std::io::stderr().is_terminal() {
        Box::new(Bar::new(inputs.count()))
    } else {
        Box::new(Plain { next: Instant::now() + PLAIN_EVERY })
    };
    let started = Instant::now();
    let mut meter = Meter::new();
    while !done.load(Ordering::SeqCst) {
        thread::park_timeout(REDRAW);
        display.update(&State::read(inputs, progress, &mut meter, started.elapsed()));
    }
    display.finish();
}

/// Measures throughput. Images settle a batch at a time, so it is measured from the arrival of one batch to that of
/// another: in between, the time that passes says nothing yet.
struct Meter {
    /// The latest arrivals: the time since the start, and the images settled by then.
    arrivals: VecDeque<(Duration, u64)>,
}

/// The throughput that is shown is of these last seconds.
const RECENT: Duration = Duration::from_secs(10);
/// The ETA follows from the throughput of these last seconds, so that a few slow images do not move it.
const STEADY: Duration = Duration::from_secs(60);

impl Meter {
    fn new() -> Self {
        Self { arrivals: VecDeque::from([(Duration::ZERO, 0)]) }
    }

    fn note(&mut self, now: Duration, images: u64) {
        if self.arrivals.back().is_some_and(|(_, latest)| *latest == images) {
            return;
        }
        self.arrivals.push_back((now, images));
        // The first batch also fills the stages before the encoder, which no later one does.
        let is_first_over = self.arrivals.len() == 3 && self.arrivals[0].1 == 0;
        if is_first_over {
            self.arrivals.pop_front();
        }
        while self.arrivals.len() > 2 && self.arrivals[1].0 + STEADY <= now {
            self.arrivals.pop_front();
        }
    }

    /// The time for which the batch under way is taken to progress at the usual pace: since the latest arrival, but no
    /// longer than a batch takes.
    fn under_way(&self, now: Duration) -> Duration {
        let gaps = self.arrivals.iter().zip(self.arrivals.iter().skip(1)).map(|(one, next)| next.0 - one.0);
        let latest = self.arrivals.back().map_or(now, |(at, _)| *at);
        now.saturating_sub(latest).min(gaps.max().unwrap_or_default())
    }

    /// Images per second over about the last `window`.
    fn rate(&self, window: Duration, now: Duration) -> f64 {
        let end = now - self.under_way(now);
        let earlier = self.arrivals.iter().rev().skip(1).find(|(at, _)| *at + window <= end);
        match (earlier.or(self.arrivals.front()), self.arrivals.back()) {
            (Some((from, before)), Some((_, images))) => per_second(images - before, end - *from),
            _ => 0.0,
        }
    }
}

fn per_second(images: u64, time: Duration) -> f64 {
    images as f64 / time.as_secs_f64().max(1e-9)
}

/// The state of a job at one moment.
struct State {
    /// `None` if only reading the inputs to their end tells.
    total: Option<u64>,
    settled: u64,
    failures: u64,
    /// Images per second, of the last seconds and of the whole session.
    recent: f64,
    overall: f64,
    /// Time to the end; `None` before the first batch, or if the end is not known.
    eta: Option<Duration>,
}

impl State {
    fn read(inputs: &Extent, progress: &Progress, meter: &mut Meter, now: Duration) -> Self {
        let total = inputs.count();
        let earlier = progress.first.load(Ordering::Relaxed).saturating_sub(inputs.start);
        let failures = progress.failures.load(Ordering::Relaxed);
        let session = progress.rows.load(Ordering::Relaxed) + failures;
        meter.note(now, session);
        let settled = earlier + session;
        let under_way = meter.under_way(now);
        let steady = meter.rate(STEADY, now);
        let eta = total.filter(|_| steady > 0.0).map(|total| {
            // Capped, because a rate near zero would overflow the Duration's seconds.
            let left = Duration::from_secs_f64((total.saturating_sub(settled) as f64 / steady).min(1e12));
            left.saturating_sub(under_way)
        });
        Self {
            total,
            settled,
            failures,
            recent: meter.rate(RECENT, now),
            overall: per_second(session, now - under_way),
            eta,
        }
    }

    fn line(&self) -> String {
        let eta = self.eta.map_or_else(|| "–".to_owned(), |eta| HumanDuration(eta).to_string());
        format!("{:.1} images/s ({:.1} overall) · ETA {eta} · {} failed", self.recent, self.overall, self.failures)
    }
}

trait Display {
    fn update(&mut self, state: &State);
    fn finish(&mut self);
}

struct Bar(ProgressBar);

impl Bar {
    fn new(total: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
        let shown = if total.is_some() {
            "{wide_bar} {human_pos}/{human_len} · {msg}"
        } else {
            "{spinner} {human_pos} · {msg}"
        };
        bar.set_style(style(shown));
        Self(bar)
    }
}

impl Display for Bar {
    fn update(&mut self, state: &State) {
        self.0.set_position(state.settled);
        self.0.set_message(state.line());
    }

    fn finish(&mut self) {
        self.0.finish_and_clear();
    }
}

struct Plain {
    next: Instant,
}

impl Display for Plain {
    fn update(&mut self, state: &State) {
        if Instant::now() >= self.next {
            self.next = Instant::now() + PLAIN_EVERY;
            let total = state.total.map_or_else(String::new, |total| format!("/{total}"));
            console::say!("{}{total} · {}", state.settled, state.line());
        }
    }

    fn finish(&mut self) {}
}

/// Shows the number of inputs found so far while a large listing is built.
pub(crate) struct Found(Option<ProgressBar>);

impl Found {
    pub(crate) fn new(quiet: bool) -> Self {
        let shown = !quiet && std::io::stderr().is_terminal();
        Self(shown.then(|| ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())))
    }

    pub(crate) fn show(&self, found: u64) {
        if let Some(bar) = &self.0 {
            bar.set_style(style("listing… {human_pos}"));
            bar.set_position(found);
        }
    }

    pub(crate) fn clear(&self) {
        self.0.iter().for_each(ProgressBar::finish_and_clear);
    }
}

/// Shows the downloads of a model's files: a bar on a terminal, one line per file elsewhere.
pub(crate) struct Download {
    quiet: bool,
    bar: Option<ProgressBar>,
}

impl Download {
    pub(crate) fn new(quiet: bool) -> Self {
        let shown = !quiet && std::io::stderr().is_terminal();
        Self { quiet, bar: shown.then(|| ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())) }
    }

    pub(crate) fn clear(&self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}

impl foveate::model::Progress for Download {
    fn bytes(&self, file: &str, done: u64, total: Option<u64>) {
        match &self.bar {
            Some(bar) => {
                bar.set_style(style("{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} ETA {eta}"));
                bar.set_message(file.to_owned());
                if let Some(total) = total {
                    bar.set_length(total);
                }
                bar.set_position(done);
            }
            None if !self.quiet && Some(done) == total => console::say!("downloaded {file} ({done} bytes)"),
            None => {}
        }
    }

    fn notice(&self, message: &str) {
        if !self.quiet {
            console::say!("note: {message}");
        }
    }

    fn published(&self, card: &Card) {
        // `embed --update --retry-failures` opens its model twice.
        static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
        if !self.quiet && lock(&TOLD).insert(card.repository.clone()) {
            let Card { repository, licence, gated, .. } = card;
            let gate = if *gated { format!(", gated: https://huggingface.co/{repository}") } else { String::new() };
            console::say!("model {repository}: licence {licence}{gate}");
        }
    }
}

/// The share of a search that is done, on a terminal.
#[cfg(feature = "search")]
pub(crate) struct Share(Option<ProgressBar>);

#[cfg(feature = "search")]
impl Share {
    pub(crate) fn new(quiet: bool) -> Self {
        let shown = !quiet && std::io::stderr().is_terminal();
        Self(shown.then(|| {
            let bar = ProgressBar::with_draw_target(Some(10_000), ProgressDrawTarget::stderr());
            bar.with_style(style("{wide_bar} {percent} % of the pairs, ETA {eta}"))
        }))
    }

    pub(crate) fn show(&self, share: f64) {
        self.0.iter().for_each(|bar| bar.set_position((share * 10_000.0) as u64));
    }

    pub(crate) fn clear(&self) {
        self.0.iter().for_each(ProgressBar::finish_and_clear);
    }
}

/// Returns an indicatif style, or the plain one if the template is invalid.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The states of a session in which batches of 32 images arrive at these times, looked at five times a second.
    fn session(total: u64, arrivals: &[f64]) -> Vec<(f64, State)> {
        let (progress, mut meter) = (Progress::default(), Meter::new());
        let looks =
            (1..).map(|look| f64::from(look) * 0.2).take_while(|now| *now <= arrivals[arrivals.len() - 1] + 0.1);
        let state = |now: f64| {
            let batches = arrivals.iter().filter(|at| **at <= now + 1e-6).count();
            progress.rows.store(32 * batches as u64, Ordering::Relaxed);
            (now, State::read(&(0..total).into(), &progress, &mut meter, Duration::from_secs_f64(now)))
        };
        looks.map(state).collect()
    }

    /// The ETA counts down as a clock does, and does not wait for the next batch to do so.
    #[test]
    fn the_eta_of_an_even_session_counts_down() {
        let arrivals: Vec<f64> = (0..10).map(|batch| 6.0 + 4.0 * f64::from(batch)).collect();
        let states = session(320, &arrivals);
        assert!(states.iter().all(|(now, state)| state.eta.is_some() == (*now > 5.9)));
        for (now, state) in states.iter().filter(|(now, _)| *now >= 10.0) {
            let eta = state.eta.unwrap().as_secs_f64();
            assert!((eta - (42.0 - now)).abs() < 0.3, "{eta} s left after {now} s");
            assert!((state.recent - 8.0).abs() < 0.1, "{} images/s after {now} s", state.recent);
        }
        let (_, last) = states.last().unwrap();
        assert!((last.overall - 320.0 / 42.0).abs() < 0.1, "{}", last.overall);
    }

    #[test]
    fn uneven_batches_move_the_eta_little_and_a_standstill_does() {
        let arrivals: Vec<f64> = (0..40).map(|batch| 4.0 * f64::from(batch + batch % 2)).collect();
        let etas: Vec<f64> =
            session(4000, &arrivals).iter().filter_map(|(_, state)| Some(state.eta?.as_secs_f64())).collect();
        let rises = etas[200..].windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        assert!(rises < 0.06 * etas[200], "{rises} of {}", etas[200]);

        let stalled = session(320, &[4.0, 8.0, 60.0]);
        let at = |time: f64| stalled.iter().find(|(now, _)| *now >= time).unwrap().1.eta.unwrap();
        assert!(at(55.0) > at(30.0) && at(30.0) > at(14.0), "no batch comes");
    }

    #[test]
    fn a_line_tells_rates_eta_and_failures() {
        let eta = Some(Duration::from_secs(30));
        let state = State { total: Some(100), settled: 40, failures: 3, recent: 2.0, overall: 1.5, eta };
        assert_eq!(state.line(), "2.0 images/s (1.5 overall) · ETA 30 seconds · 3 failed");
        assert!(State { eta: None, ..state }.line().contains("ETA – ·"));
        let mut meter = Meter { arrivals: VecDeque::from([(Duration::ZERO, 0), (Duration::from_secs(1 << 40), 1)]) };
        let (progress, now) = (Progress::default(), Duration::from_secs(1 << 40));
        progress.rows.store(1, Ordering::Relaxed);
        assert!(State::read(&(0..u64::MAX).into(), &progress, &mut meter, now).eta.is_some());
    }
}
