use super::reading::{CardReading, no_card};

/// The NVIDIA cards of a job. This build has none.
#[derive(Debug)]
pub enum Cards {}

impl Cards {
    /// Finds the cards of CUDA devices: `cuda:0`, or several with commas between them.
    ///
    /// # Errors
    /// The reason: the device is no card, or a build without NVML cannot ask the driver.
    pub fn find(devices: &str) -> Result<Self, String> {
        match devices.starts_with("cuda") {
            true => Err("this build lacks the feature nvml, which asks NVIDIA's driver".to_owned()),
            false => Err(no_card(devices)),
        }
    }

    /// Reads their figures; `None` if the driver does not tell.
    pub fn read(&self) -> Option<CardReading> {
        match *self {}
    }

    /// Returns this process's bytes of their memory; `None` if the driver does not distinguish processes.
    pub fn own_bytes(&self) -> Option<u64> {
        match *self {}
    }
}
