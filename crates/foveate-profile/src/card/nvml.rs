//! Cards by NVML, the driver's own library, which is loaded when the first one is asked for.

use std::env::var;
use std::ffi::OsStr;
use std::sync::OnceLock;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::reading::{CardReading, no_card};

/// The library's name on Linux.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// The NVIDIA cards of a job.
#[derive(Debug)]
pub struct Cards {
    found: Vec<Device<'static>>,
}

impl Cards {
    /// Finds the cards of CUDA devices: `cuda:0`, or several with commas between them.
    ///
    /// # Errors
    /// The reason why the driver has no figures for one of them: the device is no card, the library is missing, or
    /// CUDA's order of different cards is not the driver's.
    pub fn find(devices: &str) -> Result<Self, String> {
        static LOADED: OnceLock<Result<Nvml, String>> = OnceLock::new();
        let visible = var("CUDA_VISIBLE_DEVICES").ok();
        let mut names = Vec::new();
        for device in devices.split(',') {
            let name = CardName::of(device.trim(), visible.as_deref())?;
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let nvml = LOADED.get_or_init(|| load(LIBRARY.as_ref())).as_ref().map_err(Clone::clone)?;
        let is_in_bus_order = var("CUDA_DEVICE_ORDER").is_ok_and(|order| order == "PCI_BUS_ID");
        if !is_in_bus_order && has_different_cards(nvml).map_err(|error| reason(&error))? {
            return Err("the machine has different cards; CUDA_DEVICE_ORDER=PCI_BUS_ID tells which one".to_owned());
        }
        let mut found = Vec::new();
        for name in names {
            let card = match name {
                CardName::Uuid(uuid) => nvml.device_by_uuid(uuid),
                CardName::Index(index) => nvml.device_by_index(index),
            };
            found.push(card.map_err(|error| reason(&error))?);
        }
        Ok(Self { found })
    }

    /// Reads their figures: the mean share of time, and the memory of all. Returns `None` if the driver does not tell.
    pub fn read(&self) -> Option<CardReading> {
        let mut reading = CardReading::default();
        for card in &self.found {
            reading.busy += f64::from(card.utilization_rates().ok()?.gpu) / 100.0 / self.found.len() as f64;
            reading.memory_bytes += card.memory_info().ok()?.used;
        }
        Some(reading)
    }

    /// Returns this process's bytes of their memory; `None` if the driver does not distinguish processes (often in
    /// containers).
    pub fn own_bytes(&self) -> Option<u64> {
        let mut bytes = None;
        for card in &self.found {
            for process in card.running_compute_processes().ok()? {
                if let UsedGpuMemory::Used(used) = process.used_gpu_memory
                    && process.pid == std::process::id()
                {
                    bytes = Some(bytes.unwrap_or(0) + used);
                }
            }
        }
        bytes
    }
}

fn load(library: &OsStr) -> Result<Nvml, String> {
    Nvml::builder().lib_path(library).init().map_err(|error| reason(&error))
}

fn reason(error: &NvmlError) -> String {
    format!("NVIDIA's driver gives no figures: {error}")
}

/// CUDA sorts different cards by speed, unless told otherwise; the driver always sorts by their places on the bus.
fn has_different_cards(nvml: &Nvml) -> Result<bool, NvmlError> {
    let mut names = Vec::new();
    for index in 0..nvml.device_count()? {
        names.push(nvml.device_by_index(index)?.name()?);
    }
    names.dedup();
    Ok(names.len() > 1)
}

/// The driver's name of a card.
#[derive(Debug, PartialEq, Eq)]
enum CardName {
    Index(u32),
    Uuid(String),
}

impl CardName {
    /// Returns the name of a CUDA device, given the list of the devices that CUDA may use.
    fn of(device: &str, visible: Option<&str>) -> Result<Self, String> {
        let ordinal = device.strip_prefix("cuda").or_else(|| device.strip_prefix("tensorrt"));
        let ordinal = ordinal.map(|ordinal| ordinal.trim_start_matches(':'));
        let ordinal = ordinal.and_then(|ordinal| if ordinal.is_empty() { Some(0) } else { ordinal.parse().ok() });
        let ordinal: u32 = ordinal.ok_or_else(|| no_card(device))?;
        let Some(visible) = visible else { return Ok(Self::Index(ordinal)) };
        let entry = visible.split(',').nth(ordinal as usize).unwrap_or_default().trim();
        match entry.parse() {
            Ok(index) => Ok(Self::Index(index)),
            Err(_) if entry.starts_with("GPU-") => Ok(Self::Uuid(entry.to_owned())),
            Err(_) => Err(format!("CUDA_VISIBLE_DEVICES={visible} does not tell which card {device} is")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_the_library_says_so() {
        let why = load("/nowhere/libnvidia-ml.so.1".as_ref()).map(drop).unwrap_err();
        assert!(why.contains("NVIDIA's driver gives no figures") && why.contains("libnvidia-ml.so.1"), "{why}");
    }

    #[test]
    fn a_device_is_one_of_those_that_cuda_may_use() {
        let of = |device, visible| CardName::of(device, visible);
        assert_eq!(of("cuda:1", None), Ok(CardName::Index(1)));
        assert_eq!((of("cuda", None), of("tensorrt:2", None)), (Ok(CardName::Index(0)), Ok(CardName::Index(2))));
        assert_eq!(of("cuda:0", Some("3,1")), Ok(CardName::Index(3)));
        assert_eq!(of("cuda:1", Some("0, GPU-5c0e")), Ok(CardName::Uuid("GPU-5c0e".to_owned())));
        for (device, visible) in [("cuda:2", "0,1"), ("cuda:0", ""), ("cuda:0", "MIG-1")] {
            assert!(of(device, Some(visible)).unwrap_err().contains("CUDA_VISIBLE_DEVICES"), "{device} {visible}");
        }
        for device in ["cpu", "stand-in t4-f16: 1+1·n ms", "cuda:x", ""] {
            assert!(of(device, None).unwrap_err().contains("no NVIDIA card"), "{device}");
        }
    }
}
