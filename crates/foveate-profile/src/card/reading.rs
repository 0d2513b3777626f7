/// The figures of a job's cards at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CardReading {
    /// Share of the last moment in which some kernel ran, 0..=1, the mean of the cards.
    pub busy: f64,
    /// Bytes of memory in use, by any process.
    pub memory_bytes: u64,
}

/// Returns why a device has no figures.
pub(super) fn no_card(device: &str) -> String {
    format!("the forward runs on {device}, which is no NVIDIA card")
}
