//! The progress display of a job: a bar on a terminal, a plain line every few seconds elsewhere. It is always on
//! standard error, so that standard output holds only the summary.

use std::io::IsTerminal;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use foveate::pipeline::Progress;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

const REDRAW: Duration = Duration::from_millis(200);
const PLAIN_EVERY: Duration = Duration::from_secs(10);

/// Shows the progress of a run over the items `inputs` until `work` returns.
pub(crate) fn watch<T>(quiet: bool, inputs: Range<u64>, progress: &Progress, work: impl FnOnce() -> T) -> T {
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

fn show(inputs: &Range<u64>, progress: &Progress, done: &AtomicBool) {
    let mut display: Box<dyn Display> = if std::io::stderr().is_terminal() {
        Box::new(Bar::new(inputs.end - inputs.start))
    } else {
        Box::new(Plain { next: Instant::now() + PLAIN_EVERY })
    };
    let started = Instant::now();
    while !done.load(Ordering::SeqCst) {
        thread::park_timeout(REDRAW);
        display.update(&State::read(inputs, progress, started.elapsed()));
    }
    display.finish();
}

/// The state of a job at one moment.
struct State {
    total: u64,
    settled: u64,
    failures: u64,
    per_second: f64,
}

impl State {
    fn read(inputs: &Range<u64>, progress: &Progress, elapsed: Duration) -> Self {
        let total = inputs.end - inputs.start;
        let earlier = progress.first.load(Ordering::Relaxed).saturating_sub(inputs.start);
        let failures = progress.failures.load(Ordering::Relaxed);
        let session = progress.rows.load(Ordering::Relaxed) + failures;
        let per_second = session as f64 / elapsed.as_secs_f64().max(1e-9);
        Self { total, settled: earlier + session, failures, per_second }
    }

    fn eta(&self) -> String {
        if self.per_second <= 0.0 {
            return "ETA –".to_owned();
        }
        let left = self.total.saturating_sub(self.settled) as f64 / self.per_second;
        // Capped, because a rate near zero would overflow the Duration's seconds.
        format!("ETA {}", HumanDuration(Duration::from_secs(left.min(1e12) as u64)))
    }

    fn line(&self) -> String {
        format!("{:.1} images/s · {} · {} failed", self.per_second, self.eta(), self.failures)
    }
}

trait Display {
    fn update(&mut self, state: &State);
    fn finish(&mut self);
}

struct Bar(ProgressBar);

impl Bar {
    fn new(total: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        bar.set_style(style("{wide_bar} {human_pos}/{human_len} · {msg}"));
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
            eprintln!("{}/{} · {}", state.settled, state.total, state.line());
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

impl foveate::dinov2::Progress for Download {
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
            None if !self.quiet && Some(done) == total => eprintln!("downloaded {file} ({done} bytes)"),
            None => {}
        }
    }

    fn notice(&self, message: &str) {
        if !self.quiet {
            eprintln!("note: {message}");
        }
    }
}

/// Returns an indicatif style, or the plain one if the template is invalid.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_rate_eta_and_failures() {
        let state = State { total: 100, settled: 40, failures: 3, per_second: 2.0 };
        assert_eq!(state.line(), "2.0 images/s · ETA 30 seconds · 3 failed");
        let stuck = State { per_second: 0.0, ..state };
        assert_eq!(stuck.eta(), "ETA –");
        let slow = State { per_second: 1e-300, total: u64::MAX, ..stuck };
        assert!(slow.eta().starts_with("ETA "));
    }
}
