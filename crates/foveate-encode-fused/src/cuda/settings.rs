//! The settings that only this encoder has.

use std::collections::BTreeMap;

use foveate_encode::{EncodeError, EncoderOptions};

/// The names of the settings, sorted.
const NAMES: [&str; 3] = ["attention", "graph", "tf32"];

/// The settings, as `EncoderOptions::settings` spells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CudaSettings {
    /// `attention=auto|plain`.
    pub(super) attention: AttentionKernel,
    /// `graph=on|off`: whether a batch's launches are captured and launched as one graph.
    pub(super) graph: bool,
    /// `tf32=on|off`: whether f32 products round their factors to TF32, 10 bits of mantissa.
    pub(super) tf32: bool,
}

/// The choice of attention kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttentionKernel {
    /// On tensor cores if they support the shape.
    Auto,
    /// Never on tensor cores.
    Plain,
}

impl CudaSettings {
    /// # Errors
    /// [`EncodeError::Unsupported`], naming an unknown setting or value.
    pub(super) fn new(options: &EncoderOptions) -> Result<Self, EncodeError> {
        let given = options.settings(&NAMES)?;
        Ok(Self {
            attention: choice(
                given,
                "attention",
                [("auto", AttentionKernel::Auto), ("plain", AttentionKernel::Plain)],
            )?,
            graph: choice(given, "graph", [("on", true), ("off", false)])?,
            tf32: choice(given, "tf32", [("off", false), ("on", true)])?,
        })
    }
}

/// Returns the value of a setting; the first choice is the default.
fn choice<T: Copy>(given: &BTreeMap<String, String>, name: &str, choices: [(&str, T); 2]) -> Result<T, EncodeError> {
    let Some(value) = given.get(name) else { return Ok(choices[0].1) };
    choices.iter().find(|(spelt, _)| spelt == value).map(|&(_, choice)| choice).ok_or_else(|| {
        EncodeError::Unsupported(format!("setting {name}={value}; it is {} or {}", choices[0].0, choices[1].0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(given: &[(&str, &str)]) -> Result<CudaSettings, String> {
        let settings = given.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        CudaSettings::new(&EncoderOptions { settings, ..EncoderOptions::default() }).map_err(|error| error.to_string())
    }

    #[test]
    fn settings_have_defaults_and_names() {
        let defaults = CudaSettings { attention: AttentionKernel::Auto, graph: true, tf32: false };
        assert_eq!(settings(&[]), Ok(defaults));
        let other = CudaSettings { attention: AttentionKernel::Plain, graph: false, tf32: true };
        assert_eq!(settings(&[("attention", "plain"), ("graph", "off"), ("tf32", "on")]), Ok(other));
        let error = settings(&[("tf32", "yes")]).unwrap_err();
        assert_eq!(error, "not supported by this encoder: setting tf32=yes; it is off or on");
        let error = settings(&[("tensor", "on")]).unwrap_err();
        assert_eq!(error, "not supported by this encoder: unknown setting 'tensor'; it has attention, graph, tf32");
    }
}
