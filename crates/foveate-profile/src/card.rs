//! The driver's figures for NVIDIA cards: how busy they are, and how much of their memory is in use.

#[cfg(feature = "nvml")]
mod nvml;
mod reading;
#[cfg(not(feature = "nvml"))]
mod without;

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

#[cfg(feature = "nvml")]
pub use nvml::Cards;
pub use reading::CardReading;
#[cfg(not(feature = "nvml"))]
pub use without::Cards;

/// Interval of readings: the driver's own figures are means over a sixth of a second to a second.
const INTERVAL: Duration = Duration::from_millis(100);

/// The use of a job's cards over a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CardUse {
    /// Mean share of the time in which some kernel ran, 0..=1, the mean of the cards.
    pub busy: f64,
    /// Most bytes of memory in use, by any process.
    pub memory_bytes: u64,
}

impl CardUse {
    /// Summarizes readings at equal intervals; `None` without any.
    pub fn of(readings: &[CardReading]) -> Option<Self> {
        let memory_bytes = readings.iter().map(|reading| reading.memory_bytes).max()?;
        let busy = readings.iter().map(|reading| reading.busy).sum::<f64>() / readings.len() as f64;
        Some(Self { busy, memory_bytes })
    }
}

/// Reads the figures of cards in a thread of its own, every tenth of a second.
#[derive(Debug)]
pub struct CardSampler {
    stop: Sender<()>,
    thread: JoinHandle<Vec<CardReading>>,
}

impl CardSampler {
    /// Begins the period.
    pub fn start(cards: Cards) -> Self {
        let (stop, stopped) = channel();
        let thread = thread::spawn(move || {
            let mut readings = Vec::new();
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                readings.extend(cards.read());
            }
            // The end of a short period, whose figures include what came just before.
            readings.extend(cards.read());
            readings
        });
        Self { stop, thread }
    }

    /// Ends the period. Returns `None` if no reading succeeded.
    pub fn finish(self) -> Option<CardUse> {
        // Without a receiver, the thread has ended already.
        let _ = self.stop.send(());
        CardUse::of(&self.thread.join().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_has_the_mean_share_and_the_most_memory() {
        let reading = |busy, memory_bytes| CardReading { busy, memory_bytes };
        let readings = [reading(0.25, 700), reading(1.0, 900), reading(0.25, 800), reading(0.5, 600)];
        assert_eq!(CardUse::of(&readings), Some(CardUse { busy: 0.5, memory_bytes: 900 }));
        assert_eq!(CardUse::of(&[]), None);
    }

    #[test]
    fn a_device_that_is_no_card_has_no_figures() {
        let why = Cards::find("cpu").unwrap_err();
        assert!(why.contains("runs on cpu"), "{why}");
    }
}
