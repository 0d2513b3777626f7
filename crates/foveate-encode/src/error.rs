use foveate_core::FaultScope;

use crate::model::ModelForm;

/// The error beneath an encoder's: a library's error, or a text if there is none.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The reason why a batch could not be encoded, or an encoder not be opened. Always a run fault: the next batch would
/// fail too.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The model's files are missing, incomplete or of another architecture.
    #[error("model")]
    Model(#[source] Cause),
    /// The device or its library is missing. There is no silent fallback to another one.
    #[error("device {device} unavailable")]
    Device {
        /// The requested device.
        device: String,
        /// The reason why it cannot be used, and the remedy.
        #[source]
        reason: Cause,
    },
    /// The backend does not take models in this form.
    #[error("'{backend}' does not take {form}{}", takers_note(takers))]
    Form {
        /// The backend's name.
        backend: String,
        /// The form of the model.
        form: ModelForm,
        /// The program's backends that do take it, if they were looked up.
        takers: Vec<String>,
    },
    /// The backend does not support the options.
    #[error("not supported by this encoder: {0}")]
    Unsupported(String),
    /// The batch does not match `spec()`.
    #[error("batch does not fit the encoder: {0}")]
    Batch(String),
    /// The system refuses the encoder's threads.
    #[error("cannot start {count} threads")]
    Threads {
        /// Their number.
        count: usize,
        /// The system's error.
        source: Cause,
    },
    /// The engine failed.
    #[error("encoder failed")]
    Engine(#[source] Cause),
}

impl EncodeError {
    /// Always [`FaultScope::Run`].
    pub fn scope(&self) -> FaultScope {
        FaultScope::Run
    }
}

fn takers_note(takers: &[String]) -> String {
    if takers.is_empty() { String::new() } else { format!("; encoders that do: {}", takers.join(", ")) }
}
