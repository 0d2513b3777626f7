//! Stand-ins for accelerators: encoders that take a device's time and compute nothing, so that the rest of a job can be
//! measured against a device that this machine does not have.

mod device;
mod rig;

use std::fmt;
use std::str::FromStr;

use foveate_encode::{DType, Encoder, EncoderSpec};
use serde::Deserialize;

pub use self::rig::StandInRig;

/// The time that a device takes for a batch: a fixed part, and a part per image.
#[derive(Clone, Debug, PartialEq)]
pub struct StandIn {
    /// The name of a known device, or the curve.
    name: String,
    /// Milliseconds of a batch of any size.
    overhead_ms: f64,
    /// Milliseconds of each image.
    image_ms: f64,
    /// The part of the curve that follows from an assumption; empty for none.
    assumed: String,
    /// Precision of the device's forward; `None` for the job's.
    dtype: Option<DType>,
    /// Bytes per second from the host's memory to the device; `None` for a curve.
    bus_bytes_per_second: Option<f64>,
}

/// Known devices and their milliseconds for a batch and for each image, of DINOv2-small at 224 px in f16, with the
/// sources of these figures.
const KNOWN: &str = include_str!("stand_in/devices.csv");

/// A row of [`KNOWN`].
#[derive(Deserialize)]
struct KnownCurve {
    name: String,
    overhead_ms: f64,
    image_ms: f64,
    bus_gb_per_second: f64,
    assumed: String,
}

fn known() -> impl Iterator<Item = KnownCurve> {
    // A test reads every row.
    csv::Reader::from_reader(KNOWN.as_bytes()).into_deserialize().filter_map(Result::ok)
}

impl StandIn {
    /// Name in tables of an encoder that takes no time.
    pub(crate) const FREE: &str = "free stand-in";

    /// Returns what a stand-in may be, in words.
    pub fn choices() -> String {
        let names = known().map(|known| known.name).collect::<Vec<_>>().join(", ");
        format!("{names}, or the milliseconds of a batch of n images, such as 5+0.9*n")
    }

    /// Returns the encoder's name in tables: `stand-in t4-f16`.
    pub fn encoder_name(&self) -> String {
        format!("stand-in {}", self.name)
    }

    /// Returns the precision of the device's forward; `None` for the job's.
    pub fn dtype(&self) -> Option<DType> {
        self.dtype
    }

    /// Returns the milliseconds of a batch of any size, and those of each image.
    pub fn step_ms(&self) -> (f64, f64) {
        (self.overhead_ms, self.image_ms)
    }

    /// Returns the bytes per second from the host's memory to the device, where they are known.
    pub fn bus_bytes_per_second(&self) -> Option<f64> {
        self.bus_bytes_per_second
    }

    /// Returns the device's name, with what is assumed of it: `t4-f16 (fixed part assumed)`.
    pub fn name(&self) -> String {
        match self.assumed.as_str() {
            "" => self.name.clone(),
            assumed => format!("{} ({assumed} assumed)", self.name),
        }
    }

    /// Opens an encoder of this speed with the inputs and outputs of `spec`.
    pub fn open(&self, spec: EncoderSpec) -> Box<dyn Encoder> {
        let spec = EncoderSpec { device: self.to_string(), batch_invariant: true, ..spec };
        Box::new(device::StandInDevice::new(spec, self.overhead_ms / 1e3, self.image_ms / 1e3))
    }

    /// Opens an encoder that takes no time.
    pub(crate) fn free(spec: EncoderSpec) -> Box<dyn Encoder> {
        Box::new(device::StandInDevice::new(spec, 0.0, 0.0))
    }
}

/// Name and curve, for the column `device` of every row.
impl fmt::Display for StandIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, overhead_ms, image_ms, assumed, dtype, .. } = self;
        write!(f, "stand-in {name}")?;
        if dtype.is_some() {
            write!(f, ": {overhead_ms}+{image_ms:.4}·n ms")?;
        }
        if !assumed.is_empty() {
            write!(f, ", {assumed} assumed")?;
        }
        Ok(())
    }
}

impl FromStr for StandIn {
    type Err = String;

    /// Reads a known name, or a curve in milliseconds: `5+0.9·n`, with `·` or `*`.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(device) = known().find(|known| known.name == text) {
            let KnownCurve { name, overhead_ms, image_ms, bus_gb_per_second, assumed } = device;
            let bus_bytes_per_second = Some(1e9 * bus_gb_per_second);
            return Ok(Self { name, overhead_ms, image_ms, assumed, dtype: Some(DType::F16), bus_bytes_per_second });
        }
        let (overhead_ms, image_ms) =
            curve(text).ok_or_else(|| format!("no stand-in '{text}'; give {}", Self::choices()))?;
        let name = format!("{overhead_ms}+{image_ms}·n ms");
        Ok(Self { name, overhead_ms, image_ms, assumed: String::new(), dtype: None, bus_bytes_per_second: None })
    }
}

/// Parses a time of at least 0.
fn milliseconds(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|ms: &f64| ms.is_finite() && *ms >= 0.0)
}

/// Parses `a+b·n`.
fn curve(text: &str) -> Option<(f64, f64)> {
    let (overhead, rest) = text.split_once('+')?;
    let per_image = rest.trim().strip_suffix('n')?.trim_end().trim_end_matches(['·', '*']);
    let overhead = milliseconds(overhead)?;
    let per_image = milliseconds(per_image)?;
    (overhead + per_image > 0.0).then_some((overhead, per_image))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_is_read_and_has_its_source() {
        let mut rows = csv::Reader::from_reader(KNOWN.as_bytes());
        let sources: Vec<String> = rows.records().map(|row| row.unwrap()[5].to_owned()).collect();
        assert_eq!((sources.len(), known().count()), (KNOWN.lines().count() - 1, sources.len()));
        for (source, device) in sources.iter().zip(known()) {
            assert!(source.contains("Bus: PCIe") && device.overhead_ms > 0.0, "{source}");
            let is_assumed = source.contains("assumed");
            assert_eq!(is_assumed, !device.assumed.is_empty(), "{source}");
        }
        let t4: StandIn = known().next().unwrap().name.parse().unwrap();
        assert_eq!(t4.bus_bytes_per_second(), Some(15.75e9));
    }

    #[test]
    fn names_and_curves_are_read_and_nonsense_is_refused() {
        let t4: StandIn = "t4-f16".parse().unwrap();
        let (overhead, image) = t4.step_ms();
        assert!((64.0 / (overhead + 64.0 * image) * 1e3 - 1006.0).abs() < 0.1);
        assert_eq!(t4.to_string(), "stand-in t4-f16: 10.47+0.8304·n ms, fixed part assumed");
        assert_eq!(t4.name(), "t4-f16 (fixed part assumed)");
        let h200: StandIn = "h200-f16".parse().unwrap();
        let (overhead, image) = h200.step_ms();
        assert!((256.0 / (overhead + 256.0 * image) * 1e3 - 28914.0).abs() < 10.0);
        for same in ["5+0.9·n", "5 + 0.9*n", "5+0.9n"] {
            let typed: StandIn = same.parse().unwrap();
            assert_eq!((typed.step_ms(), typed.to_string().as_str()), ((5.0, 0.9), "stand-in 5+0.9·n ms"), "{same}");
        }
        for bad in ["", "t5", "5", "5+n", "5+-1*n", "nan+1*n", "0+0*n", "1e400+1*n"] {
            let why = bad.parse::<StandIn>().unwrap_err();
            assert!(why.contains("give t4-f16, a100-f16"), "{bad}: {why}");
        }
    }
}
